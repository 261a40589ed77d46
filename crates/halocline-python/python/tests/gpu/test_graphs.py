"""Exchanges and reduces in CUDA graphs that CuPy and PyTorch have captured."""

import libraries
import numpy as np
import pytest
from test_reduce_on_gpus import Case as OfReduces
from test_scheduled import Case

import halocline as hc

LAUNCHES = 5


MODE = "global" if libraries.IS_JOB else "relaxed"
"""If ranks are threads of a process, the other one uses CUDA meanwhile, which ends captures of the other modes."""


def captured(engine, given, work):
    """A function that launches what ``work`` has given to a stream."""
    if engine.name == "torch":
        import torch

        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=given, capture_error_mode=MODE):
            work()
        return graph.replay
    import cupy

    mode = cupy.cuda.runtime.streamCaptureModeGlobal if libraries.IS_JOB else cupy.cuda.runtime.streamCaptureModeRelaxed
    given.begin_capture(mode=mode)
    work()
    graph = given.end_capture()
    return lambda: graph.launch(given)


def stream_of(engine):
    """A stream of the engine's library: to be current, and to be given to exchanges."""
    if engine.name == "torch":
        import torch

        stream = torch.cuda.Stream()
        return torch.cuda.stream(stream), stream
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    return stream, stream


def of_gpus(engine):
    if engine.name == "numpy":
        pytest.skip("there is no GPU, or no CuPy")


def why_not_captured(comm, halo):
    if libraries.gpus() < comm.size:
        return "SKIPPED: ranks share a GPU"
    if any(path == "message" for _, _, path in halo.links):
        return "SKIPPED: a graph holds no messages"
    return None


@pytest.mark.parametrize("inline", [False, True])
def test_graphs_and_calls_take_turns(together, main_engine, inline):
    of_gpus(main_engine)

    def rank(comm):
        mine = main_engine(comm.rank)
        with mine.here():
            case = Case(comm, mine)
            halo = case.bind(inline=inline)
            if why := why_not_captured(comm, halo):
                return why
            current, given = stream_of(mine)
            with current:

                def step():
                    mine.add(case.field, case.grow)
                    halo.schedule_exchange(given)
                    halo.schedule_wait(given)

                launch = captured(mine, given, step)
                for count in range(LAUNCHES):
                    # The ranks take turns, too.
                    (launch if (count + comm.rank) % 2 else step)()
                    mine.copy(case.seen[count], case.field)
            case.check(LAUNCHES)
            del launch
            return f"{mine.name}, inline {inline}: {LAUNCHES} exchanges"

    together(rank)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("inline", [False, True])
def test_reduces_in_graphs_and_calls_have_the_bits_of_the_host(together, main_engine, inline, keep):
    of_gpus(main_engine)

    def on_the_host(case):
        copy = np.array(case.begin)
        halo = hc.HaloExchange(case.comm, [(case.pattern, copy)], deadline=20)
        for _ in range(LAUNCHES):
            copy += case.begin
            halo.reduce("sum", keep=keep)
            halo.exchange()
        return copy

    def rank(comm):
        mine = main_engine(comm.rank)
        with mine.here():
            case = OfReduces(comm, mine, 7)
            halo = hc.HaloExchange(comm, [(case.pattern, case.field)], inline=inline, deadline=20)
            expected = on_the_host(case)
            if why := why_not_captured(comm, halo):
                return why
            current, given = stream_of(mine)
            with current:

                def step():
                    mine.add(case.field, case.other)
                    halo.schedule_reduce("sum", given, keep=keep).schedule_wait(given)
                    halo.schedule_exchange(given).schedule_wait(given)

                launch = captured(mine, given, step)
                for count in range(LAUNCHES):
                    # The ranks take turns, too.
                    (launch if (count + comm.rank) % 2 else step)()
            case.check(expected)
            del launch
            return f"{mine.name}, inline {inline}, keep {keep}: {LAUNCHES} reduces and exchanges"

    together(rank)


def test_the_host_cannot_wait_for_a_captured_exchange(together, main_engine):
    of_gpus(main_engine)

    def rank(comm):
        mine = main_engine(comm.rank)
        with mine.here():
            case = Case(comm, mine)
            halo = case.bind()
            if why := why_not_captured(comm, halo):
                return why
            current, given = stream_of(mine)
            pending = []

            def work():
                mine.add(case.field, case.grow)
                pending.append(halo.schedule_exchange(given))
                pending[0].schedule_wait(given)

            with current:
                launch = captured(mine, given, work)
                launch()
            mine.synchronise()
            with pytest.raises(hc.HaloValueError, match="captured into a CUDA graph"):
                pending[0].wait()
            # The graph keeps the object.
            del halo, pending[:]
            with current:
                launch()
            mine.synchronise()
            np.testing.assert_array_equal(mine.host(case.field), case.expected(2))

    together(rank)
