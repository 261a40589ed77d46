"""Programs that end in the middle of something, many times: each is a fork of this process, which has imported all that they
need, and ends as any interpreter does. What one says, how it dies, or that it does not end, is the error of this program.

    python exits.py --rounds 1000       # of each way to end
"""

from __future__ import annotations

import argparse
import array
import asyncio
import os
import select
import signal
import sys
import tempfile
import threading
import time

import halocline as hc
from halocline._core import ThreadGroup

DEADLINE = 30
"""Seconds that a program may take."""


class Ranks:
    """Two ranks of threads that have bound an array each, of no library."""

    def __init__(self) -> None:
        self.ranks = ThreadGroup(2).ranks
        self.halos: list = [None, None]
        threads = [threading.Thread(target=self._bind, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _bind(self, rank: int) -> None:
        comm = self.ranks[rank]
        pattern = hc.RegularGrid((64,), periodic=(True,)).decompose(comm).pattern(2)
        self.halos[rank] = hc.HaloExchange(comm, [(pattern, array.array("d", bytes(8 * pattern.shape[0])))])


# What a program still has when it ends.
keep: list = []


def with_everything_alive(two):
    keep.append(two)


def in_flight(two):
    keep.append((two, two.halos[0].exchange(wait=False)))


def by_sys_exit(two):
    keep.append(two)
    sys.exit(0)


def by_os_exit(two):
    os._exit(0)


def in_a_cycle(two):
    keep.append((keep, two))


def _left_asleep(two, wait):
    """A task that is amid a wait when its loop stops for good."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(wait())
    task._log_destroy_pending = False
    for _ in range(20):
        loop.call_later(0.0005, loop.stop)
        loop.run_forever()
    keep.append((two, loop, task))


def with_tasks_asleep(two):
    async def wait():
        await two.halos[0].exchange_async()

    _left_asleep(two, wait)


def _until_refused(exchange):
    try:
        while True:
            exchange()
    except Exception:
        pass


def while_a_thread_wakes_tasks(two):
    threading.Thread(target=_until_refused, args=(two.halos[1].exchange,), daemon=True).start()

    async def some():
        for _ in range(100):
            await two.halos[0].exchange_async()

    async def forever():
        while True:
            await two.halos[0].exchange_async()

    asyncio.run(some())
    _left_asleep(two, forever)


def with_daemon_threads_in_waits(two):
    threading.Thread(target=_until_refused, args=(two.halos[0].exchange,), daemon=True).start()
    keep.append(two)


def while_both_ranks_exchange(two):
    for halo in two.halos:
        threading.Thread(target=_until_refused, args=(halo.exchange,), daemon=True).start()
    keep.append(two)


ENDS = {
    end.__name__: end
    for end in (
        with_everything_alive,
        in_flight,
        by_sys_exit,
        by_os_exit,
        in_a_cycle,
        with_tasks_asleep,
        while_a_thread_wakes_tasks,
        with_daemon_threads_in_waits,
        while_both_ranks_exchange,
    )
}


class Program:
    """One that runs."""

    def __init__(self, name: str, pid: int, said) -> None:
        self.name, self.pid, self.said = name, pid, said
        self.fd = os.pidfd_open(pid)
        self.until = time.monotonic() + DEADLINE

    def end(self) -> str | None:
        """What is wrong with it, once it is over."""
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        self.said.seek(0)
        text = self.said.read().decode(errors="replace")
        self.said.close()
        return None if status == 0 and not text else f"{self.name}: ended by {status}, said {text!r}"


def begun(name: str) -> Program | None:
    """A program that has begun; in the program itself, none."""
    said = tempfile.TemporaryFile()
    pid = os.fork()
    if pid:
        return Program(name, pid, said)
    os.dup2(said.fileno(), 1)
    os.dup2(said.fileno(), 2)
    said.close()
    return None


def main() -> list:
    """Runs the programs. In one of them it returns what that is to do."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("ends", nargs="*", choices=[[], *ENDS], metavar="END", help=f"{', '.join(ENDS)} [default: all]")
    parser.add_argument("--rounds", type=int, default=100, help="programs that end each way [default: 100]")
    parser.add_argument("--at-once", type=int, default=2 * (os.cpu_count() or 1), help="programs at a time")
    parser.add_argument("--here", action="store_true", help="end this process, which was not forked, in the way that is given")
    args = parser.parse_args()
    if args.here:
        return [ENDS[name] for name in args.ends]
    ahead = [name for _ in range(args.rounds) for name in args.ends or ENDS]
    start, count = time.monotonic(), len(ahead)
    running: list[Program] = []
    while ahead or running:
        while ahead and len(running) < args.at_once:
            name = ahead.pop()
            program = begun(name)
            if program is None:
                return [ENDS[name]]
            running.append(program)
        late = max(0.0, min(program.until for program in running) - time.monotonic())
        over, _, _ = select.select([program.fd for program in running], [], [], late)
        for program in running if not over else [program for program in running if program.fd in over]:
            if not over:
                if time.monotonic() < program.until:
                    continue
                os.kill(program.pid, signal.SIGABRT)
            running.remove(program)
            wrong = program.end()
            if wrong:
                for other in running:
                    os.kill(other.pid, signal.SIGKILL)
                sys.exit(wrong if over else f"{wrong}, after {DEADLINE} s")
    took = time.monotonic() - start
    print(f"{count} programs have ended in {took:.1f} s, {1e3 * took / count:.1f} ms each")
    return []


if __name__ == "__main__":
    import faulthandler

    faulthandler.enable()
    for end in main():
        end(Ranks())
