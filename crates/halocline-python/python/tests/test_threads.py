"""Ctrl-C while the ranks of ``run_threads`` are at work: it ends alike on all versions of Python."""

import textwrap

import pytest
from child import ends_well

PROLOGUE = """
import os, signal, socket, threading, traceback
received, wakeup = socket.socketpair()
wakeup.setblocking(False)
signal.set_wakeup_fd(wakeup.fileno())

def interrupt():
    # Python's handler writes to the socket: `kill` may return before the main thread has received the signal.
    os.kill(os.getpid(), signal.SIGINT)
    received.recv(1)

def are_ended(threads):
    return not any(thread.is_alive() for thread in threads)

def functions(error):
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]
"""


def says(text, body):
    ends_well(PROLOGUE + textwrap.dedent(body), says=text)


@pytest.mark.parametrize(
    "ranks, works",
    [
        (2, "comm.barrier()"),
        (2, "halo.exchange()"),
        # The other waits for nobody.
        (2, "comm.barrier() if comm.rank else comm.duplicate()"),
        (1, "halo.exchange()"),
    ],
)
def test_ctrl_c_ends_all_ranks(ranks, works):
    says(
        "KeyboardInterrupt at program, all ended",
        f"""
        threads = []

        def rank(comm):
            threads.append(threading.current_thread())
            halo = bound(comm)
            comm.barrier()
            if comm.rank == 0:
                interrupt()
            while True:
                {works}

        def program():
            hc.run_threads({ranks}, rank)

        try:
            program()
        except KeyboardInterrupt as error:
            assert functions(error)[:3] == ["<module>", "program", "run_threads"], functions(error)
            assert len(threads) == {ranks} and are_ended(threads), threads
            print("KeyboardInterrupt at program, all ended")
        """,
    )


def test_interrupted_ranks_get_keyboard_interrupt():
    """In a wait, and then from each call. ``except Exception`` in their function does not keep them going."""
    says(
        "KeyboardInterrupt KeyboardInterrupt",
        """
        ends = []

        def rank(comm):
            if comm.rank == 0:
                comm.barrier()
                interrupt()
                ended.wait()
            else:
                comm.barrier()
                # The first waits for rank 0, the second for nobody.
                for call in comm.barrier, comm.duplicate:
                    try:
                        while True:
                            call()
                    except BaseException as error:
                        ends.append(type(error).__name__)
                ended.set()

        ended = threading.Event()
        try:
            hc.run_threads(2, rank)
        except KeyboardInterrupt:
            print(*ends)
        """,
    )


def test_what_is_bound_while_its_rank_is_closed_is_closed():
    says(
        "KeyboardInterrupt",
        """
        ends = set()

        def rank(comm):
            halo = bound(comm)
            interrupt()
            try:
                while True:
                    halo = bound(comm)
            except KeyboardInterrupt:
                pass
            try:
                halo.exchange()
                ends.add("exchanged")
            except KeyboardInterrupt:
                ends.add("KeyboardInterrupt")

        for _ in range(50):
            try:
                hc.run_threads(1, rank)
            except KeyboardInterrupt:
                pass
        print(*ends)
        """,
    )


def test_a_second_ctrl_c_does_not_wait_for_a_rank():
    """The rank goes on, finds its communicator closed, and what it has memory of is still there."""
    says(
        "KeyboardInterrupt, KeyboardInterrupt, KeyboardInterrupt, memory 7",
        """
        go = threading.Event()
        ends = []

        def rank(comm):
            threads.append(threading.current_thread())
            array = hc.zeros(3, comm=comm)
            comm.barrier()
            if comm.rank == 1:
                interrupt()
                try:
                    comm.barrier()
                except KeyboardInterrupt:
                    # All ranks are closed soon: the main thread waits for the ends of the ranks, or is about to.
                    interrupt()
                return
            go.wait()
            array[:] = 7
            try:
                comm.barrier()
            except BaseException as error:
                ends.append(f"{type(error).__name__}, memory {array[2]:.0f}")

        threads = []
        try:
            hc.run_threads(2, rank)
        except KeyboardInterrupt as error:
            assert any(thread.is_alive() for thread in threads)
            first = error.__context__
            assert "run_threads" in functions(error) and "run_threads" in functions(first)
            go.set()
            for thread in threads:
                thread.join()
            print(type(first).__name__, type(error).__name__, *ends, sep=", ")
        """,
    )


def test_signals_at_any_moment_leave_no_thread():
    """A handler that raises amid the start of threads, their ends, or an exchange."""
    says(
        "ended",
        """
        import itertools, sys

        class Alarm(Exception):
            pass

        def ring(*_):
            if is_armed:
                raise Alarm

        # Within a callback of a weak reference Python lets nothing through, and tells this.
        sys.unraisablehook = lambda raised: None if raised.exc_type is Alarm else sys.__unraisablehook__(raised)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGALRM, ring)
        threads, is_armed, alarms = [], False, 0

        def rank(comm):
            threads.append(threading.current_thread())
            comm.barrier()

        for step in itertools.count():
            is_armed = True
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + step % 400 * 10))
                hc.run_threads(3, rank)
                is_armed = False
            except Alarm:
                is_armed = False
                alarms += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert are_ended(threads), (step, threads)
            threads.clear()
            if alarms == 300:
                break
        print("ended")
        """,
    )
