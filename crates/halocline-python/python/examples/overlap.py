"""Diffusion that computes the interior while halos are exchanged, with NumPy or, on GPUs, with CuPy. A trace shows the overlap:

    python -m halocline launch -n 2 -- python overlap.py --trace overlap.json            # and overlap.svg
    python -m halocline launch -n 2 -- python overlap.py --trace overlap.json --cuda     # rank r on GPU r modulo their number
"""

import argparse
import contextlib
import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import halocline as hc


def sweep(new: Any, old: Any, where: list[tuple[slice, ...]]) -> None:
    """One step of diffusion in parts of an array, for NumPy and CuPy."""
    for part in where:
        around = old[part] * -6.0
        for axis, step in itertools.product(range(old.ndim), (-1, 1)):
            moved = slice(part[axis].start + step, part[axis].stop + step)
            around += old[(*part[:axis], moved, *part[axis + 1 :])]
        around *= 0.1
        around += old[part]
        new[part] = around


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grid", type=int, nargs=3, default=[48, 48, 48], help="cells along each axis")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--cuda", action="store_true", help="use GPUs, with CuPy")
    parser.add_argument("--trace", type=Path, metavar="FILE.json", help="write a trace, and its picture beside it")
    args = parser.parse_args()

    comm = hc.init()
    pattern = hc.RegularGrid(args.grid, periodic=(True, True, True)).decompose(comm).pattern(halo=1)
    (domain,) = pattern.domains
    arrays: Any = np
    stream: Any = None
    here: Any = contextlib.nullcontext()
    if args.cuda:
        import cupy

        cupy.cuda.Device(comm.rank % cupy.cuda.runtime.getDeviceCount()).use()
        arrays = cupy
        # Not the default stream, which synchronises with other streams of the process.
        here = stream = cupy.cuda.Stream(non_blocking=True)

    with here:
        # Two time levels, exchanged in turn.
        levels = [arrays.zeros(pattern.shape) for _ in range(2)]
        if comm.rank == 0:
            levels[0][domain.owned] = 1.0
        # A stencil of one cell to each side. The interior reads no halo, the boundary is the rest of the owned cells.
        interior, boundary = [domain.interior(1)], domain.boundary(1)
        # Load kernels and touch memory before anything waits for a peer.
        sweep(levels[1], levels[0], interior + boundary)
        halo = hc.HaloExchange.alternatives(comm, [[(pattern, level)] for level in levels])
        if args.cuda:
            stream.synchronize()

        trace = hc.trace(args.trace, comm) if args.trace else None
        with trace or contextlib.nullcontext():
            steps = trace.on_device(halo, stream, rounds=args.steps) if trace and args.cuda else None
            for step in range(args.steps):
                old, new = levels[step % 2], levels[(step + 1) % 2]
                if steps:
                    steps.stamp("begun")
                pending = halo.schedule_exchange(stream, set=step % 2)
                if steps:
                    steps.observe(pending)
                sweep(new, old, interior)
                if steps:
                    steps.stamp("interior")
                pending.schedule_wait(stream)
                if steps:
                    steps.stamp("waited")
                sweep(new, old, boundary)
                if steps:
                    steps.stamp("done")
                # Keep the host only a few steps ahead of the GPU.
                if args.cuda and step % 8 == 7:
                    stream.synchronize()
        mine = float(levels[args.steps % 2][domain.owned].sum())

    sums = np.frombuffer(b"".join(comm.all_gather(np.float64(mine).tobytes())))
    if comm.rank == 0:
        print(f"{comm.size} ranks, {args.steps} steps: {sums.sum():.6f} in all, rank by rank {np.round(sums, 3)}")
        if args.trace:
            picture = args.trace.with_suffix(".svg")
            draw = [sys.executable, "-m", "halocline", "plot", "trace", str(args.trace), str(picture), "--exchanges", "3"]
            subprocess.run(draw, check=True)
            print(f"drawn: {picture}")


if __name__ == "__main__":
    main()
