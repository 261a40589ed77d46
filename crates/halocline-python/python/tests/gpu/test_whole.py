"""A trace, the end of a program with work in flight, and what a call costs."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from libraries import IS_JOB
from test_scheduled import ROUNDS, Case

import halocline as hc

HERE = Path(__file__).parent


def test_a_trace(together, main_engine, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trace")

    def rank(comm):
        mine = main_engine(comm.rank)
        path = comm.broadcast(0, f"{folder}/trace.json".encode()).decode()
        with mine.here():
            case = Case(comm, mine)
            halo = case.bind(name="traced")
            stream, given = list(mine.streams().values())[-1]
            with hc.trace(path, comm) as trace:
                steps = None if mine.device is None else trace.on_device(halo, given, rounds=ROUNDS)
                with mine.on(stream):
                    for count in range(ROUNDS):
                        mine.add(case.field, case.grow)
                        if steps:
                            steps.stamp("begun")
                        pending = halo.schedule_exchange(given)
                        if steps:
                            steps.observe(pending)
                            steps.stamp("interior")
                        pending.schedule_wait(given)
                        if steps:
                            steps.stamp("waited")
                        mine.copy(case.seen[count], case.field)
                        if steps:
                            steps.stamp("done")
                mine.synchronise()
            case.check()
            if steps:
                with pytest.raises(hc.HaloValueError, match="the trace is over; make stamps inside its `with` block"):
                    steps.stamp("begun")
        if comm.rank == 0:
            events = json.loads(Path(path).read_text())["traceEvents"]
            ranks = {e["pid"] for e in events if e["name"] == "exchange"}
            assert ranks == set(range(comm.size)), {e["name"] for e in events}
            if steps:
                for name in ("exchange (device)", "interior", "boundary"):
                    stamped = [e["pid"] for e in events if e["name"] == name]
                    assert sorted(stamped) == sorted(list(range(comm.size)) * ROUNDS), (name, stamped)
            names = sorted({e["name"] for e in events if e.get("ph") != "M"})
            return f"{len(events)} events of {len(ranks)} ranks: {', '.join(names)}"

    together(rank)


ENDS = """
import sys
import cupy
import halocline as hc
sys.path[:0] = {path!r}
from test_scheduled import Case
import libraries

def rank(comm):
    mine = libraries.OfCupy(comm.rank)
    comm.barrier()
    with mine.here():
        case = Case(comm, mine)
        halo = case.bind()
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            mine.spin(30)
            mine.add(case.field, case.grow)
            pending = halo.schedule_exchange(stream)
            mine.spin(30)
        if {how!r} == "raise" and comm.rank == 0:
            raise SystemError("on purpose")
        kept.append((case, halo, pending, stream))

kept = []
try:
    hc.run_threads(2, rank)
except SystemError:
    pass
print("over")
if {how!r} == "exit":
    sys.exit(0)
"""


@pytest.mark.parametrize("how", ["exit", "end", "raise"])
def test_the_end_of_a_program_with_exchanges_in_flight(cupy_engine, how):
    if IS_JOB:
        pytest.skip("of a process of its own")
    code = ENDS.format(path=[str(HERE), str(HERE.parent)], how=how)
    began = time.monotonic()
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=40)
    assert ended.returncode == 0 and "over" in ended.stdout, ended.stdout + ended.stderr
    print(f"\n= {how}: {time.monotonic() - began:.1f} s")


def test_what_a_call_costs(together, main_engine):
    def rank(comm):
        mine = main_engine(comm.rank)
        with mine.here():
            case = Case(comm, mine)
            halo = case.bind()
            stream, given = list(mine.streams().values())[-1]
            medians = []
            with mine.on(stream):
                for _ in range(20):
                    comm.barrier()
                    begun = time.perf_counter()
                    for _ in range(20):
                        halo.schedule_exchange(given).schedule_wait(given)
                    medians.append((time.perf_counter() - begun) / 20)
                    mine.synchronise()
            return f"{mine.name}: schedule_exchange and schedule_wait {1e6 * sorted(medians)[10]:.1f} us"

    together(rank)
