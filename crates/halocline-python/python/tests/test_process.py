"""What belongs to the process: import, its one communicator, traces, the command, the end of the interpreter."""

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from child import ends_well, run, script
from exits import ENDS
from repeats import repeats


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
                    print(type(error).__name__, "the interpreter is ending and has left all groups" in str(error))
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
        says="ClosedError True\nHaloValueError False\nClosedError False\nTrue",
    )


EXITS = [sys.executable, str(Path(__file__).with_name("exits.py"))]


def test_interpreters_end():
    """Amid everything: hundreds of programs here. `exits.py --rounds 1000` makes thousands."""
    done = subprocess.run([*EXITS, "--rounds", str(repeats(40, 4))], capture_output=True, text=True, timeout=600)
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

    assert any(needed.startswith("numpy>=") for needed in importlib.metadata.requires("halocline") or [])


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
    done = run("bound(hc.init()).exchange()", env={**os.environ, "HALOCLINE_LOG": "halocline=trace"})
    assert done.returncode == 0 and "TRACE" in done.stderr and "epoch=1" in done.stderr, done.stderr
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
        ("HALOCLINE_LL", "garbage"),
        ("HALOCLINE_MPI", "/nowhere/libmpi.so"),
        ("HALOCLINE_STREAM_WAITS", "perhaps"),
    ],
)
def test_a_bind_refuses_a_variable_with_garbage(binds, variable, garbage):
    """Also one for devices, though all fields lie on the host."""
    ends_well(
        f"""
        try:
            comm = hc.init()
            pattern = hc.RegularGrid((8,)).decompose(comm).pattern(1)
            {binds}
        except hc.HaloError as error:
            print(str(error).split(",")[0])
        """,
        says=f'{variable} is "{garbage}"',
        env={**os.environ, variable: garbage},
    )


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
    line = process.stderr.readline()
    out, _ = process.communicate("go\n")
    limit.cancel()
    assert "WARN rank 0 has waited 3" in line and said in line, line
    assert (out, process.returncode) == ("done\n", 0)
