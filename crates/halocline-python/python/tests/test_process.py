"""What belongs to the process: import, signals, forks, the end of the interpreter."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from exits import ENDS

PROLOGUE = """
import numpy as np
import halocline as hc

def bound(comm):
    pattern = hc.RegularGrid((64,), periodic=(True,)).decompose(comm).pattern(2)
    array = hc.zeros(pattern.shape, comm=comm)
    return hc.HaloExchange(comm, [(pattern, array)])
"""


def mpi_environment():
    """In which a process alone may use MPI."""
    return {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def script(body):
    return [sys.executable, "-X", "faulthandler", "-c", PROLOGUE + textwrap.dedent(body)]


def run(body, timeout=60, **options):
    return subprocess.run(script(body), capture_output=True, text=True, timeout=timeout, **options)


def ends_well(body, says="", **options):
    done = run(body, **options)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    assert done.stdout.strip() == says and not done.stderr, (done.stdout, done.stderr)


def test_import_is_fast_and_does_nothing(tmp_path):
    code = """
        import os, sys, threading, time
        before = set(os.listdir("/proc/self/fd"))
        start = time.perf_counter()
        import halocline
        took = time.perf_counter() - start
        assert "numpy" not in sys.modules and "asyncio" not in sys.modules and "mpi4py" not in sys.modules
        assert threading.active_count() == 1 and len(os.listdir("/proc/self/task")) == 1
        assert len(os.listdir("/proc/self/fd")) == len(before)
        maps = open("/proc/self/maps").read()
        assert "libmpi" not in maps and "libcuda" not in maps
        print(took)
    """
    times = []
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, cwd=tmp_path,
            env={**os.environ, "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        )
        assert done.returncode == 0, done.stderr
        times.append(float(done.stdout))
    assert min(times) < 0.05, times
    assert not list(tmp_path.iterdir())


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


def test_a_forked_child_is_told_and_harms_nobody():
    ends_well(
        """
        import os, warnings
        warnings.simplefilter("ignore")
        from halocline._core import ThreadGroup
        ranks = ThreadGroup(2).ranks
        import threading
        made = [None, None]
        def make(rank):
            made[rank] = bound(ranks[rank])
        threads = [threading.Thread(target=make, args=(rank,)) for rank in range(2)]
        [t.start() for t in threads]; [t.join() for t in threads]
        pending = made[0].exchange(wait=False)
        if os.fork() == 0:
            for use in (
                made[0].exchange, pending.wait, ranks[0].barrier, ranks[0].duplicate, lambda: bound(ranks[1]),
                made[0].explain, lambda: hc.zeros(3, comm=ranks[0]),
            ):
                try:
                    use()
                except hc.ForkedError as error:
                    assert "spawn" in str(error)
                else:
                    raise AssertionError(use)
            # All of the parent's is dropped here, and the parent's ranks do not notice.
            del pending
            made.clear()
            ranks.clear()
            # What is made here works here.
            hc.run_threads(2, lambda comm: bound(comm).exchange())
            print("told", flush=True)
            raise SystemExit(0)
        _, status = os.wait()
        assert status == 0, status
        made[1].exchange()
        pending.wait()
        """,
        says="told",
    )


@pytest.mark.parametrize("launched", [True, False])
def test_a_forked_child_shares_the_arrays_that_ranks_share(launched):
    """As with any memory that processes share: what the child writes, the parent has. A copy is the child's own."""
    program = f"""
        import os, warnings
        warnings.simplefilter("ignore")
        comm = hc.init()
        array = hc.zeros(4, comm=comm)
        copy = array.copy()
        if os.fork() == 0:
            array[:] = copy[:] = 7
            os._exit(0)
        _, status = os.wait()
        assert status == 0 and (copy == 0).all()
        assert (array == (7 if {launched} else 0)).all(), array
    """
    launch = [sys.executable, "-m", "halocline", "launch", "-n", "2", "--no-prefix", "--"]
    command = [*(launch if launched else []), *script(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, (done.stdout, done.stderr)


def test_collective_calls_after_an_interrupted_bind_say_so():
    """The other ranks took them for parts of the bind, and told of malformed messages."""
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


def test_init_after_close():
    ends_well(
        """
        first = hc.init()
        with first:
            bound(first).exchange()
        again = hc.init()
        assert again is not first and hc.init() is again and again.size == 1
        again.barrier()
        bound(again).exchange()
        hc.zeros(3)
        try:
            first.barrier()
        except hc.ClosedError:
            print("closed")
        """,
        says="closed",
    )


def test_a_rank_of_a_job_joins_once():
    program = """
        comm = hc.init()
        comm.barrier()
        comm.close()
        try:
            hc.init()
        except hc.ClosedError as error:
            print(error)
    """
    launch = [sys.executable, "-m", "halocline", "launch", "-n", "2", "--no-prefix", "--"]
    done = subprocess.run([*launch, *script(program)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.count("joins its job only once") == 2, (done.stdout, done.stderr)


@pytest.mark.parametrize("before", ["", "hc.init().close()", "threading.Thread(target=hc.init, daemon=True).start()"])
def test_init_in_a_forked_child(before):
    ends_well(
        f"""
        import os, threading, warnings
        warnings.simplefilter("ignore")
        parents = hc.init()
        {before}
        if os.fork() == 0:
            comm = hc.init()
            assert comm.size == 1 and comm is hc.init() and comm is not parents
            bound(comm).exchange()
            for transport in "shm", "mpi":
                try:
                    hc.init(transport)
                except hc.HaloError:
                    continue
                raise AssertionError(transport)
            if os.fork() == 0:
                hc.init("thread").barrier()
                raise SystemExit(0)
            _, status = os.wait()
            assert status == 0, status
            print("made", flush=True)
            raise SystemExit(0)
        _, status = os.wait()
        assert status == 0, status
        hc.init().barrier()
        """,
        says="made",
    )


def test_a_forked_child_of_a_rank_is_alone():
    program = """
        import os
        comm = hc.init()
        if os.fork() == 0:
            hc.init().barrier()
            print("alone", hc.init().size, flush=True)
            os._exit(0)
        _, status = os.wait()
        assert status == 0, status
        comm.barrier()
    """
    launch = [sys.executable, "-m", "halocline", "launch", "-n", "2", "--no-prefix", "--"]
    done = subprocess.run([*launch, *script(program)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout == "alone 1\n" * 2, (done.stdout, done.stderr)


def test_first_init_of_several_threads():
    program = """
        import threading
        got, start = [], threading.Barrier(8)
        def join():
            start.wait()
            got.append(hc.init())
        threads = [threading.Thread(target=join) for _ in range(8)]
        [t.start() for t in threads]; [t.join() for t in threads]
        assert len(got) == 8 and all(comm is got[0] for comm in got), got
        got[0].barrier()
    """
    for _ in range(5):
        ends_well(program)
    launch = [sys.executable, "-m", "halocline", "launch", "-n", "2", "--no-prefix", "--"]
    done = subprocess.run([*launch, *script(program)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_ctrl_c_ends_init_while_another_thread_joins(tmp_path):
    os.mkfifo(tmp_path / "told")
    program = f"""
        import os, signal, threading
        told = {str(tmp_path / 'told')!r}
        if os.environ["HALOCLINE_RANK"] == "0":
            other = threading.Thread(target=hc.init)
            other.start()
            signal.signal(signal.SIGALRM, signal.default_int_handler)
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            try:
                hc.init()
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            open(told, "w").close()
            other.join()
        else:
            open(told).close()  # joins once rank 0 was interrupted
        hc.init().barrier()
    """
    launch = [sys.executable, "-m", "halocline", "launch", "-n", "2", "--no-prefix", "--"]
    done = subprocess.run([*launch, *script(program)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), (done.stdout, done.stderr)


def test_children_forked_while_another_thread_drops_what_it_has():
    """Which puts array objects aside: a lock that it holds for that would stay locked in the child."""
    ends_well("""
        import os, threading, warnings
        warnings.simplefilter("ignore")
        comm, stop = hc.init(), threading.Event()
        # What PyO3 makes at the first call of a kind it makes under a lock, which a fork would take along.
        hc.Field(np.zeros(3))

        def work():
            while not stop.is_set():
                hc.Field(np.zeros(3))

        thread = threading.Thread(target=work)
        thread.start()
        for _ in range(1000):
            child = os.fork()
            if child == 0:
                hc.Field(np.zeros(3))
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        stop.set()
        thread.join()
    """)


def test_init_in_a_signal_handler_during_init(tmp_path):
    os.mkfifo(tmp_path / "handled")
    program = f"""
        import os, signal
        handled = {str(tmp_path / 'handled')!r}
        def again(*_):
            try:
                hc.init()
            except hc.HaloValueError as error:
                print("told", flush=True)
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
    assert (done.returncode, done.stdout) == (0, "told\n"), (done.stdout, done.stderr)


def test_another_interpreter_is_refused():
    pytest.importorskip("_xxsubinterpreters", reason="this Python has no interface to its interpreters")
    ends_well(
        """
        import _xxsubinterpreters as interpreters
        other = interpreters.create()
        interpreters.run_string(other, "try:\\n import halocline\\nexcept ImportError as error:\\n print(error, flush=True)")
        interpreters.destroy(other)
        bound(hc.init()).exchange()
        """,
        says="halocline was imported by another interpreter of this process, and serves one alone; start a process for this "
        "one",
    )


def test_errors_at_shutdown_are_typed():
    ends_well(
        """
        import atexit
        def late():
            for use in hc.init, lambda: hc.RegularGrid((0,)).decompose(1), comm.barrier:
                try:
                    use()
                except hc.HaloError as error:
                    print(type(error).__name__)
        atexit.register(late)
        comm = hc.init("thread")
        class Last:
            def __init__(self):
                self.comm, self.of, self.print = comm, (hc.HaloError, hc.ClosedError), print
            def __del__(self):
                try:
                    self.comm.barrier()
                except self.of[0] as error:
                    self.print(type(error) is self.of[1])
        last = Last()
        """,
        says="ClosedError\nHaloValueError\nClosedError\nTrue",
    )


EXITS = [sys.executable, str(Path(__file__).with_name("exits.py"))]


def test_interpreters_end():
    """Amid everything: hundreds of programs here. `exits.py --rounds 1000` makes thousands."""
    rounds = os.environ.get("HALOCLINE_TEST_EXITS", "40")
    done = subprocess.run([*EXITS, "--rounds", rounds], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    print("\n" + done.stdout)


@pytest.mark.parametrize("how", ENDS)
def test_an_interpreter_ends_that_was_not_forked(how):
    for _ in range(2):
        done = subprocess.run([*EXITS, how, "--here"], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_error_within_a_trace_ends_the_others(tmp_path):
    """The rank that raised waited for the others at the end of the trace, and they for its next exchange."""
    body = f"""
        def rank(comm):
            halo = bound(comm)
            with hc.trace({str(tmp_path / "trace.json")!r}, comm):
                halo.exchange()
                if comm.rank == 1:
                    raise KeyError("of rank 1")
                if WAITS:
                    halo.exchange()
    """
    for waits in (True, False):
        program = f"WAITS = {waits}\n" + textwrap.dedent(body)
        threads = """
try:
    hc.run_threads(2, rank)
except KeyError:
    print("KeyError")
"""
        ends_well(program + threads, says="KeyError")
        launched = [sys.executable, "-m", "halocline", "launch", "-n", "2", "--", *script(program + "rank(hc.init())")]
        done = subprocess.run(launched, capture_output=True, text=True, timeout=60)
        assert done.returncode != 0 and "KeyError: 'of rank 1'" in done.stdout + done.stderr, (done.stdout, done.stderr)


def test_a_trace_after_one_that_failed_has_nothing_of_it(tmp_path):
    ends_well(
        f"""
        import json
        comm = hc.init()
        halo = bound(comm)
        try:
            with hc.trace({str(tmp_path / "failed.json")!r}, comm):
                halo.exchange()
                raise KeyError
        except KeyError:
            pass
        with hc.trace({str(tmp_path / "trace.json")!r}, comm):
            halo.exchange()
        events = json.load(open({str(tmp_path / "trace.json")!r}))["traceEvents"]
        print(sum(event["name"] == "exchange" for event in events))
        """,
        says="1",
    )


def test_numpy_is_installed_with_the_package():
    import importlib.metadata

    assert "numpy" in (importlib.metadata.requires("halocline") or [])


def test_the_command(tmp_path):
    command = [sys.executable, "-m", "halocline"]
    version = subprocess.run([*command, "--version"], capture_output=True, text=True)
    assert version.returncode == 0 and version.stdout.startswith("halocline 0.")
    wrong = subprocess.run([*command, "no-such"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "no-such" in wrong.stderr
    info = subprocess.run([*command, "info", "--json"], capture_output=True, text=True, timeout=60)
    assert info.returncode == 0 and info.stdout.startswith("{"), info.stderr
    heat = subprocess.run(
        [*command, "run", "heat", "--ranks", "2", "--grid", "16x16x16", "--steps", "2", "--rounds", "1", "--json"],
        capture_output=True, text=True, timeout=120,
    )
    assert heat.returncode == 0 and '"max_abs_diff":0.0' in heat.stdout, heat.stderr
    program = "import halocline as hc; c = hc.init(); c.barrier(); print(c.transport, c.rank, c.size)"
    launched = subprocess.run(
        [*command, "launch", "-n", "3", "--no-prefix", "--", sys.executable, "-c", program],
        capture_output=True, text=True, timeout=60,
    )
    assert launched.returncode == 0, launched.stderr
    assert sorted(launched.stdout.split("\n")[:-1]) == [f"shm {rank} 3" for rank in range(3)]
    piped = subprocess.run(
        f"{sys.executable} -m halocline launch -n 1 -- sh -c 'exit 7'", shell=True, capture_output=True, timeout=60
    )
    assert piped.returncode == 7


def test_what_the_environment_says(tmp_path):
    wrong = run("hc.init()", env={**os.environ, "HALOCLINE_LOG": "loud and=clear"})
    assert wrong.returncode == 1 and "HaloValueError" in wrong.stderr and "HALOCLINE_LOG" in wrong.stderr
    told = run("bound(hc.init()).exchange()", env={**os.environ, "HALOCLINE_LOG": "halocline=trace"})
    assert told.returncode == 0 and "exchange" in told.stderr, told.stderr
    checked = run(
        """
        comm = hc.init()
        pattern = hc.RegularGrid((8,), periodic=(True,)).decompose(comm).pattern(1)
        array = np.zeros(pattern.shape)
        pending = hc.HaloExchange(comm, [(pattern, array)]).exchange(wait=False)
        array[1:-1] = 5
        try:
            pending.wait()
        except hc.ExchangeFailedError as error:
            print("found")
        """,
        env={**os.environ, "HALOCLINE_CHECK": "1"},
    )
    assert checked.stdout == "found\n", (checked.stdout, checked.stderr)


@pytest.mark.parametrize("binds", ["bound(comm)", "hc.PatternLinks(comm, [pattern])"])
@pytest.mark.parametrize(
    "variable, garbage",
    [
        ("HALOCLINE_CHECK", "maybe"),
        ("HALOCLINE_FLAGS", "garbage"),
        ("HALOCLINE_STREAM_WAITS", "perhaps"),
        ("HALOCLINE_MAPPINGS_ENTRIES", "many"),
        ("HALOCLINE_MAPPINGS_BYTES", "1 GB"),
    ],
)
def test_a_bind_refuses_a_variable_with_garbage(binds, variable, garbage):
    """Also one for devices, though all fields lie on the host."""
    ends_well(
        f"""
        comm = hc.init()
        pattern = hc.RegularGrid((8,)).decompose(comm).pattern(1)
        try:
            {binds}
        except hc.CommunicatorError as error:
            print(str(error).split(",")[0])
        """,
        says=f'{variable} is "{garbage}"',
        env={**os.environ, variable: garbage},
    )


@pytest.mark.parametrize("waits", ["halo.exchange()", "comm.barrier()"])
def test_ctrl_c_just_after_the_news_that_another_rank_has_left_comes_first(waits):
    """A launcher signals one rank after the other, so the first may have left before the last is signalled."""
    ends_well(f"""
        import os, signal, threading
        from halocline._core import ThreadGroup
        comm, other = ThreadGroup(2).ranks
        def peer():
            bound(other)
            other.close()
            os.kill(os.getpid(), signal.SIGINT)
        thread = threading.Thread(target=peer)
        thread.start()
        try:
            halo = bound(comm)
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
    "waits", ["halo.exchange()", "halo.exchange(wait=False).wait()", "comm.barrier()", "hc.RegularGrid((64,)).decompose(comm).pattern(1)"]
)
def test_ctrl_c_comes_before_the_error_that_another_rank_has_left(waits):
    """As when a whole job is interrupted: the error would reach the program first, and Ctrl-C strike amid its handling."""
    ends_well(f"""
        import os, signal, socket, threading, traceback
        from halocline._core import ThreadGroup
        comm, other = ThreadGroup(2).ranks
        # Python's handler writes to it: `kill` may return before the main thread has received the signal.
        received, wakeup = socket.socketpair()
        wakeup.setblocking(False)
        signal.set_wakeup_fd(wakeup.fileno())
        def peer():
            bound(other)
            os.kill(os.getpid(), signal.SIGINT)
            received.recv(1)
            other.close()
        thread = threading.Thread(target=peer)
        thread.start()
        try:
            halo = bound(comm)
            while True:
                {waits}
        except KeyboardInterrupt as error:
            assert traceback.extract_tb(error.__traceback__)
            print("interrupted")
        thread.join()
    """, says="interrupted")


@pytest.mark.parametrize("waits, said", [("comm.barrier()", "a barrier from rank 1"), ("halo.exchange()", "exchange 1 of")])
def test_a_long_wait_is_told_on_standard_error(waits, said):
    """After 30 s of the ranks' clock, which runs a thousand times faster here. Rank 1 comes once that was read."""
    body = f"""
        import sys, threading
        from halocline._core import ThreadGroup
        comm, other = ThreadGroup(2, clock_speed=1000).ranks
        def peer(comm):
            halo = bound(comm)
            sys.stdin.readline()
            {waits}
        thread = threading.Thread(target=peer, args=(other,))
        thread.start()
        halo = bound(comm)
        {waits}
        thread.join()
        print("done")
    """
    process = subprocess.Popen(
        script(body), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    limit = threading.Timer(60, process.kill)
    limit.start()
    told = process.stderr.readline()
    out, _ = process.communicate("go\n")
    limit.cancel()
    assert "WARN rank 0 has waited 3" in told and said in told, told
    assert (out, process.returncode) == ("done\n", 0)
