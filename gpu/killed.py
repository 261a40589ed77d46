"""Rank 1 is killed while graphs of exchanges run: rank 0 must get an error that names it, its streams must end, and its GPU must stay usable.

    halocline launch -n 2 --no-prefix -- python3 gpu/killed.py bound
    halocline launch -n 2 --no-prefix -- python3 gpu/killed.py unbound

The launcher reports the death and fails; rank 0 prints a line that begins with "= " if all was well.
"""

import os
import signal
import sys
import time

import cupy

import halocline as hc

ROUNDS = 50


def main(form):
    comm = hc.init()
    cupy.cuda.Device(comm.rank).use()
    stream = cupy.cuda.Stream(non_blocking=True)
    grid = hc.RegularGrid((128 * comm.size, 128, 128), periodic=(True,) * 3)
    pattern = grid.decompose_into((comm.size, 1, 1), comm).pattern(1)
    field = cupy.zeros(pattern.shape)
    if form == "bound":
        halo = hc.HaloExchange(comm, [(pattern, field)])
    else:
        links = hc.PatternLinks(comm, [pattern], device=comm.rank)

    def exchange():
        pending = halo.schedule_exchange(stream) if form == "bound" else links.schedule_exchange([(pattern, field)], stream)
        pending.schedule_wait(stream)

    cupy.cuda.Device().synchronize()
    stream.begin_capture(mode=cupy.cuda.runtime.streamCaptureModeGlobal)
    for _ in range(3):
        exchange()
    graph = stream.end_capture()
    begin = time.monotonic()
    try:
        for count in range(100_000):
            for launch in range(10):
                graph.launch(stream)
                if (comm.rank, count, launch) == (1, ROUNDS, 5):
                    os.kill(os.getpid(), signal.SIGKILL)
            exchange()
            stream.synchronize()
            begin = time.monotonic()
    except hc.HaloError as error:
        after = time.monotonic() - begin
        # Later launches copy nothing.
        for _ in range(100):
            graph.launch(stream)
        stream.synchronize()
        assert "rank 1" in str(error), error
        assert float(cupy.ones(1000).sum()) == 1000
        print(f"= {form}: after {count} rounds, {after:.2f} s: {error}", flush=True)
    else:
        raise AssertionError("no error")


if __name__ == "__main__":
    main(sys.argv[1])
