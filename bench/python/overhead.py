"""Time of an exchange begun and waited for from Python, and from Rust, on the same object; medians, in microseconds."""

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


def scheduled(halo):
    return lambda: halo.schedule_exchange().schedule_wait()


def begun(halo):
    return lambda: halo.exchange(wait=False).wait()


CALLS = {
    "exchange()": lambda halo: halo.exchange,
    "exchange(wait=False).wait()": begun,
    "schedule_exchange().schedule_wait()": scheduled,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000, help="exchanges of one sample")
    parser.add_argument("--samples", type=int, default=31, help="samples of each, in turn")
    parser.add_argument("--most", type=float, help="fail if exchange() costs so many microseconds more, or schedule_exchange()")
    args = parser.parse_args()
    comm = hc.init()
    worst = 0.0
    for cells in (8, 64):
        pattern = hc.RegularGrid((cells, cells), periodic=(True, True)).decompose(comm).pattern(1)
        field = hc.zeros(pattern.shape, comm=comm)
        halo = hc.HaloExchange(comm, [(pattern, field)])
        for name, call in CALLS.items():
            pairs = []
            for _ in range(args.samples):
                comm.barrier()
                rust = _time_exchanges(halo, args.rounds)
                comm.barrier()
                pairs.append((of_python(call(halo), args.rounds), rust))
            python, rust = (1e6 * statistics.median(times) for times in zip(*pairs))
            more = np.array([python, rust, 1e6 * statistics.median(p - r for p, r in pairs)])
            more = np.max([np.frombuffer(part) for part in comm.all_gather(more.tobytes())], axis=0)
            worst = max(worst, more[2])
            if comm.rank == 0:
                python, rust, over = more
                print(f"{comm.size} ranks, {comm.transport}, {cells}x{cells}, {name:36} "
                      f"Python {python:6.2f} us, Rust {rust:6.2f} us, more {over:5.2f} us")
    if args.most is not None and worst > args.most:
        raise SystemExit(f"{worst:.2f} us more, allowed are {args.most}")


if __name__ == "__main__":
    main()
