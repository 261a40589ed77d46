"""Time to start and wait for an exchange from Python and from Rust, on the same object; medians, in microseconds.

With --cuda the fields are CuPy arrays, and the time is that of the host, which schedules exchanges in a row without waiting.
"""

import argparse
import statistics
import time

import numpy as np

import halocline as hc
from halocline._core import _time_exchanges


def of_python(call, rounds):
    start = time.perf_counter()
    for _ in range(rounds):
        call()
    return (time.perf_counter() - start) / rounds


class OfCupy:
    """Names its stream as CuPy's streams do, to time the host's part."""

    __module__ = "cupy.cuda.stream"

    def __init__(self):
        self.ptr = 0

    def __cuda_stream__(self):
        return (0, self.ptr)


class OnHost:
    """Host fields: an exchange is complete when the call, or its wait, returns."""

    rounds, samples, stream = 2000, 31, None
    like_cupy = OfCupy()
    calls = {
        "exchange()": lambda halo, _: halo.exchange,
        "exchange(wait=False).wait()": lambda halo, _: lambda: halo.exchange(wait=False).wait(),
        "schedule_exchange().schedule_wait()": lambda halo, _: lambda: halo.schedule_exchange().schedule_wait(),
        "the same, a stream like CuPy's": lambda halo, _, s=like_cupy: lambda: halo.schedule_exchange(s).schedule_wait(s),
    }

    def zeros(self, shape, comm):
        return hc.zeros(shape, comm=comm)

    def finish(self):
        pass


class OnGpu:
    """Exchanges in the order of a stream. So many in a row do not fill it."""

    rounds, samples = 20, 301
    calls = {
        "schedule_exchange(s).schedule_wait(s)": lambda halo, s: lambda: halo.schedule_exchange(s).schedule_wait(s),
        "halo's own schedule_wait(s)": lambda halo, s: lambda: (halo.schedule_exchange(s), halo.schedule_wait(s)),
    }

    def __init__(self, rank):
        import cupy

        cupy.cuda.Device(rank % cupy.cuda.runtime.getDeviceCount()).use()
        self.cupy, self.stream = cupy, cupy.cuda.Stream(non_blocking=True)

    def zeros(self, shape, comm):
        return self.cupy.zeros(shape)

    def finish(self):
        self.stream.synchronize()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuda", action="store_true", help="fields of GPUs; rank r takes GPU r modulo their number")
    parser.add_argument("--rounds", type=int, help="exchanges of one sample [default: 2000, or 20]")
    parser.add_argument("--samples", type=int, help="samples of each, in turn [default: 31, or 301]")
    parser.add_argument("--most", type=float, help="fail if exchange() costs so many microseconds more, or schedule_exchange()")
    args = parser.parse_args()
    comm = hc.init()
    fields = OnGpu(comm.rank) if args.cuda else OnHost()
    rounds, samples = args.rounds or fields.rounds, args.samples or fields.samples
    worst = 0.0
    for cells in (8, 64):
        pattern = hc.RegularGrid((cells, cells), periodic=(True, True)).decompose(comm).pattern(1)
        halo = hc.HaloExchange(comm, [(pattern, fields.zeros(pattern.shape, comm))])

        def sample(timed, *given):
            comm.barrier()
            took = timed(*given, rounds, *([fields.stream] if timed is _time_exchanges else []))
            fields.finish()
            return took

        for name, make in fields.calls.items():
            call = make(halo, fields.stream)
            call()
            pairs = []
            for _ in range(samples):
                rust = sample(_time_exchanges, halo)
                pairs.append((sample(of_python, call), rust))
            python, rust = (1e6 * statistics.median(times) for times in zip(*pairs))
            more = np.array([python, rust, 1e6 * statistics.median(p - r for p, r in pairs)])
            more = np.max([np.frombuffer(part) for part in comm.all_gather(more.tobytes())], axis=0)
            worst = max(worst, more[2])
            if comm.rank == 0:
                python, rust, over = more
                print(f"{comm.size} ranks, {comm.transport}, {cells}x{cells}, {name:37} "
                      f"Python {python:6.2f} us, Rust {rust:6.2f} us, more {over:5.2f} us")
    if args.most is not None and worst > args.most:
        raise SystemExit(f"{worst:.2f} us more, allowed are {args.most}")


if __name__ == "__main__":
    main()
