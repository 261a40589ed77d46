"""Signals: Ctrl-C ends waits, and its exception comes before the errors that follow from it."""

import os
import signal
import subprocess
import sys
import time

import pytest
from child import ends_well, script


@pytest.mark.parametrize(
    "waits",
    [
        "halo.exchange()",
        "halo.exchange(wait=False).wait()",
        "halo.schedule_exchange().schedule_wait()",
        "comm.barrier()",
        "hc.RegularGrid((64,)).decompose(comm).pattern(1)",
        "asyncio.run(wait())",
    ],
)
def test_ctrl_c_ends_a_wait(waits):
    """Rank 0 is the main thread and waits for rank 1, which comes only after the interrupt; then all is well."""
    body = f"""
        import asyncio, threading, sys
        from halocline._core import ThreadGroup
        comm, other = ThreadGroup(2).ranks
        go = threading.Event()
        def peer():
            halo = bound(other)
            go.wait()
            halo.exchange()
            other.barrier()
        thread = threading.Thread(target=peer)
        thread.start()
        halo = bound(comm)
        async def wait():
            await halo.exchange_async()
        print("waiting", flush=True)
        try:
            {waits}
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        go.set()
        if not {waits!r}.startswith(("comm", "hc")):
            # The exchange went on without its waiter.
            halo.wait()
            comm.barrier()
        else:
            comm.close()
        thread.join()
    """
    process = subprocess.Popen(script(body), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "waiting\n"
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    start = time.monotonic()
    assert process.stdout.readline() == "interrupted\n"
    assert time.monotonic() - start < 1.0
    out, err = process.communicate(timeout=20)
    if "barrier" in waits or "pattern" in waits:
        # The other rank found that this one has left, in a thread of its own.
        assert process.returncode == 0 and "CommunicatorError" in err or "ExchangeFailedError" in err, err
    else:
        assert process.returncode == 0 and not err, (process.returncode, err)


@pytest.mark.parametrize("forks", ["main thread", "another thread"])
def test_ctrl_c_in_a_forked_child(forks):
    """The child waits for a rank that does not come, in the thread that forked, which is its main one; the parent's waits go on."""
    body = f"""
        import os, signal, threading, warnings
        warnings.simplefilter("ignore")
        from halocline._core import ThreadGroup
        parents = ThreadGroup(2).ranks

        def child():
            # What is the parent's is refused, and waits for nobody.
            try:
                parents[0].barrier()
            except hc.ForkedError:
                pass
            both = ThreadGroup(2).ranks
            comm = both[0]
            print("waiting", os.getpid(), flush=True)
            try:
                comm.barrier()
            except KeyboardInterrupt:
                print("interrupted", flush=True)
                os._exit(3)

        def fork():
            # This thread has waited before, in the parent, and asked for signals.
            late = ThreadGroup(2).ranks
            try:
                late[0].with_deadline(0.2).barrier()
            except hc.CommunicatorTimeoutError:
                pass
            pid = os.fork()
            if pid == 0:
                child()
                os._exit(4)
            _, status = os.waitpid(pid, 0)
            print(os.waitstatus_to_exitcode(status), flush=True)

        if {forks!r} == "main thread":
            fork()
        else:
            thread = threading.Thread(target=fork)
            thread.start()
            thread.join()
        barriers = [threading.Thread(target=rank.barrier) for rank in parents]
        [thread.start() for thread in barriers]; [thread.join() for thread in barriers]
    """
    process = subprocess.Popen(script(body), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    waiting, pid = process.stdout.readline().split()
    assert waiting == "waiting"
    try:
        time.sleep(0.3)
        os.kill(int(pid), signal.SIGINT)
        out, err = process.communicate(timeout=20)
    except BaseException:
        os.kill(int(pid), signal.SIGKILL)
        process.kill()
        raise
    assert (out, err, process.returncode) == ("interrupted\n3\n", "", 0)


def test_collective_calls_after_an_interrupted_bind_say_so():
    """The other ranks took them for parts of the bind, and reported malformed messages."""
    ends_well(
        """
        import os, signal, threading
        from halocline._core import ThreadGroup
        comm, other = ThreadGroup(2).ranks
        patterns = [None, None]
        def make(rank, comm):
            patterns[rank] = hc.RegularGrid((8,)).decompose(comm).pattern(1)
        threads = [threading.Thread(target=make, args=both) for both in enumerate((comm, other))]
        [t.start() for t in threads]; [t.join() for t in threads]
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        bind = lambda: hc.HaloExchange(comm, [(patterns[0], np.zeros(patterns[0].shape))])
        try:
            bind()
        except KeyboardInterrupt:
            pass
        for call in (bind, comm.barrier, lambda: make(0, comm), comm.duplicate, comm.agree):
            try:
                call()
            except hc.CommunicatorError as error:
                assert str(error).startswith("rank 0 was interrupted in a collective call") and "close" in str(error), error
            else:
                raise AssertionError(call)
        comm.close()
        """
    )


def test_ctrl_c_ends_init_while_another_thread_joins(tmp_path):
    os.mkfifo(tmp_path / "interrupted")
    program = f"""
        import os, signal, threading
        interrupted = {str(tmp_path / 'interrupted')!r}
        if os.environ["HALOCLINE_RANK"] == "0":
            other = threading.Thread(target=hc.init)
            other.start()
            signal.signal(signal.SIGALRM, signal.default_int_handler)
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            try:
                hc.init()
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            open(interrupted, "w").close()
            other.join()
        else:
            open(interrupted).close()  # joins once rank 0 was interrupted
        hc.init().barrier()
    """
    launch = [sys.executable, "-m", "halocline", "launch", "-n", "2", "--no-prefix", "--"]
    done = subprocess.run([*launch, *script(program)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), (done.stdout, done.stderr)


def test_init_in_a_signal_handler_during_init(tmp_path):
    os.mkfifo(tmp_path / "handled")
    program = f"""
        import os, signal
        handled = {str(tmp_path / 'handled')!r}
        def again(*_):
            try:
                hc.init()
            except hc.HaloValueError as error:
                print("refused", flush=True)
            open(handled, "w").close()
        signal.signal(signal.SIGALRM, again)
        if os.environ["HALOCLINE_RANK"] == "0":
            signal.setitimer(signal.ITIMER_REAL, 0.5)
        else:
            open(handled).close()  # waits for the handler of rank 0
        hc.init().barrier()
    """
    launch = [sys.executable, "-m", "halocline", "launch", "-n", "2", "--no-prefix", "--"]
    done = subprocess.run([*launch, *script(program)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "refused\n"), (done.stdout, done.stderr)


@pytest.mark.parametrize("waits", ["halo.exchange()", "asyncio.run(wait())", "comm.barrier()"])
def test_ctrl_c_just_after_the_news_that_another_rank_has_left_comes_first(waits):
    """A launcher signals one rank after the other, so the first may have left before the last is signalled."""
    ends_well(f"""
        import asyncio, os, signal, threading
        from halocline._core import ThreadGroup
        comm, other = ThreadGroup(2).ranks
        def peer():
            bound(other)
            go.wait()
            other.close()
            os.kill(os.getpid(), signal.SIGINT)
        go = threading.Event()
        async def wait():
            go.set()  # asyncio handles signals from here on
            while True:
                await halo.exchange_async()
        thread = threading.Thread(target=peer)
        thread.start()
        try:
            halo = bound(comm)
            if "asyncio" not in {waits!r}:
                go.set()
            while True:
                {waits}
        except KeyboardInterrupt:
            print("interrupted")
        thread.join()
    """, says="interrupted")


@pytest.mark.parametrize("handles", ["comm.close()", "another.barrier()"])
def test_a_signal_handler_may_call_the_package(handles):
    """The wait that it interrupts ends when its communicator is closed: by the handler, or by another thread later."""
    ends_well(f"""
        import os, signal, threading
        from halocline._core import ThreadGroup
        comm, other = ThreadGroup(2).ranks
        another = hc.init()
        handled = threading.Event()
        def handler(number, frame):
            {handles}
            handled.set()
        signal.signal(signal.SIGUSR1, handler)
        def peer():
            global kept
            kept = bound(other)
            os.kill(os.getpid(), signal.SIGUSR1)
            handled.wait()
            comm.close()
        thread = threading.Thread(target=peer)
        thread.start()
        halo = bound(comm)
        try:
            halo.exchange()
        except hc.ClosedError:
            print("closed")
        thread.join()
        other.close()
    """, says="closed")


@pytest.mark.parametrize(
    "waits",
    [
        "halo.exchange()",
        "halo.exchange(wait=False).wait()",
        "asyncio.run(wait())",
        "comm.barrier()",
        "hc.RegularGrid((64,)).decompose(comm).pattern(1)",
    ],
)
def test_ctrl_c_comes_before_the_error_that_another_rank_has_left(waits):
    """As when a whole job is interrupted: the error would reach the program first, and Ctrl-C strike amid its handling."""
    ends_well(f"""
        import asyncio, os, signal, socket, threading, traceback
        from halocline._core import ThreadGroup
        comm, other = ThreadGroup(2).ranks
        # Python's handler writes to it: `kill` may return before the main thread has received the signal.
        received, wakeup = socket.socketpair()
        wakeup.setblocking(False)
        signal.set_wakeup_fd(wakeup.fileno())
        def peer():
            bound(other)
            go.wait()
            os.kill(os.getpid(), signal.SIGINT)
            received.recv(1)
            other.close()
        go = threading.Event()
        async def wait():
            go.set()  # asyncio handles signals from here on
            while True:
                await halo.exchange_async()
        thread = threading.Thread(target=peer)
        thread.start()
        try:
            halo = bound(comm)
            if "asyncio" not in {waits!r}:
                go.set()
            while True:
                {waits}
        except KeyboardInterrupt as error:
            assert traceback.extract_tb(error.__traceback__)
            print("interrupted")
        thread.join()
    """, says="interrupted")
