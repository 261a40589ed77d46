"""Exchanges of CuPy fields, one GPU a rank: bound, unbound, and through GHEX's interface; medians of blocks, in microseconds.

Every rank has a cube of cells (periodic, the ranks one behind the other along the slowest axis), or 20,000 cells of a list with 80 levels,
of which each neighbour needs 3,200. Each figure is the time of one of many exchanges in a row on the stream (schedule_exchange, then
schedule_wait), of the slowest rank; in brackets the time of the calls on the host, while a kernel keeps the GPU busy. "new": with new field
descriptors for each call.

    halocline launch -n 2 --no-prefix -- python bench/python/ghex_on_gpus.py
"""

import argparse
import statistics
import time

import cupy
import numpy as np

import halocline as hc
from halocline.compat.ghex import unstructured
from halocline.compat.ghex.context import make_context
from halocline.compat.ghex.structured import regular
from halocline.compat.ghex.structured.cartesian_sets import ProductSet, UnitRange
from halocline.compat.ghex.util import Architecture

BUSY = cupy.RawKernel("extern \"C\" __global__ void busy(long long clocks) { long long t = clock64(); while (clock64() - t < clocks); }", "busy")
LEVELS, OWNED, NEEDED = 80, 20_000, 3_200
WAYS = ["bound, inline", "bound", "unbound, inline", "unbound", "GHEX", "GHEX, new"]


class Cube:
    def __init__(self, comm, cells, width):
        self.name = f"{cells}^3, halo {width}"
        shape = (cells * comm.size, cells, cells)
        self.pattern = (
            hc.RegularGrid(shape, periodic=(True,) * 3)
            .decompose_into((comm.size, 1, 1), comm)
            .pattern(width)
        )
        first = cells * comm.rank
        inner = ProductSet(UnitRange(first, first + cells), UnitRange(0, cells), UnitRange(0, cells))
        grid = ProductSet(*(UnitRange(0, n) for n in shape))
        self.domain = regular.DomainDescriptor(comm.rank, inner)
        generator = regular.HaloGenerator(grid, (width,) * 3, (True,) * 3)
        self.ghex = regular.make_pattern(make_context(comm), generator, [self.domain])
        self.width, self.shape = width, (cells + 2 * width,) * 3
        at = [np.arange(f - width, f + cells + width) % n for f, n in zip((first, 0, 0), shape)]
        self.truth = sum(axis.reshape([-1 if n == k else 1 for n in range(3)]) * w for k, (axis, w) in enumerate(zip(at, (1e6, 1e3, 1.0))))

    def begin(self):
        field = np.full(self.shape, -1.0)
        inner = (slice(self.width, -self.width),) * 3
        field[inner] = self.truth[inner]
        return cupy.asarray(field)

    def described(self, field):
        return regular.make_field_descriptor(self.domain, field, (self.width,) * 3, field.shape, arch=Architecture.GPU)


class Mesh:
    def __init__(self, comm):
        self.name = f"unstructured, {LEVELS} levels"
        rank, size = comm.rank, comm.size
        others = sorted({(rank + 1) % size, (rank - 1) % size} - {rank})
        ids = [np.arange(rank * OWNED, (rank + 1) * OWNED)]
        for other in others:
            cells = np.random.default_rng(rank * size + other).permutation(OWNED)[: NEEDED // len(others)]
            ids.append(other * OWNED + cells)
        ids = np.concatenate(ids)
        domain = hc.UnstructuredDomain(rank, ids[:OWNED], halo=ids[OWNED:])
        self.pattern = hc.Pattern.unstructured(comm, [domain])
        self.domain = unstructured.DomainDescriptor(rank, ids, list(range(OWNED, len(ids))))
        self.ghex = unstructured.make_pattern(make_context(comm), unstructured.HaloGenerator(), [self.domain])
        self.truth = ids[:, None] + np.arange(LEVELS) / 128

    def begin(self):
        field = self.truth.copy()
        field[OWNED:] = -1
        return cupy.asarray(field)

    def described(self, field):
        return unstructured.make_field_descriptor(self.domain, field, arch=Architecture.GPU)


def ways(comm, case, fields, stream):
    """The ways to exchange the fields: a function that begins one, for each."""
    pairs = [(case.pattern, field) for field in fields]
    object_ = unstructured.make_communication_object(make_context(comm))
    buffers = [case.ghex(case.described(field)) for field in fields]
    for name, inline in (("bound, inline", True), ("bound", False)):
        halo = hc.HaloExchange(comm, pairs, inline=inline)
        yield name, lambda halo=halo: halo.schedule_exchange(stream)
    for name, inline in (("unbound, inline", True), ("unbound", False)):
        links = hc.PatternLinks(comm, [case.pattern], device=cupy.cuda.Device().id, inline=inline)
        yield name, lambda links=links: links.schedule_exchange(pairs, stream)
    yield "GHEX", lambda: object_.schedule_exchange(stream, buffers)
    yield "GHEX, new", lambda: object_.schedule_exchange(stream, [case.ghex(case.described(field)) for field in fields])


def run(begin, stream, rounds):
    for _ in range(rounds):
        begin().schedule_wait(stream)


def measure(comm, begin, stream, blocks, rounds):
    row, host = [], []
    for _ in range(blocks):
        comm.barrier()
        events = [cupy.cuda.Event(), cupy.cuda.Event()]
        events[0].record(stream)
        run(begin, stream, rounds)
        events[1].record(stream)
        stream.synchronize()
        row.append(1e3 * cupy.cuda.get_elapsed_time(*events) / rounds)
        comm.barrier()
        with stream:
            BUSY((1,), (1,), (2_000_000,))
        start = time.perf_counter()
        run(begin, stream, 10)
        host.append(1e6 * (time.perf_counter() - start) / 10)
        stream.synchronize()
    mine = np.array([statistics.median(row), statistics.median(host)])
    return np.max([np.frombuffer(part) for part in comm.all_gather(mine.tobytes())], axis=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=11)
    parser.add_argument("--rounds", type=int, default=50)
    args = parser.parse_args()
    comm = hc.init()
    cupy.cuda.Device(comm.rank % cupy.cuda.runtime.getDeviceCount()).use()
    stream = cupy.cuda.Stream(non_blocking=True)
    if comm.rank == 0:
        print(f"{'us an exchange (host)':36}" + "".join(f"{name:>17}" for name in WAYS))
    cases = [(Cube(comm, 128, 1), (1, 8)), (Cube(comm, 128, 3), (8,)), (Cube(comm, 256, 3), (8,)), (Mesh(comm), (1, 8))]
    for case, counts in cases:
        for count in counts:
            figures = []
            for name, begin in ways(comm, case, fields := [case.begin() for _ in range(count)], stream):
                # Only the owned cells have values before the first exchange of each way.
                for field in fields:
                    field[...] = case.begin()
                cupy.cuda.Device().synchronize()
                comm.barrier()
                run(begin, stream, 3)
                stream.synchronize()
                for field in fields:
                    np.testing.assert_array_equal(cupy.asnumpy(field), case.truth, err_msg=f"{case.name}, {name}")
                comm.barrier()
                figures.append(measure(comm, begin, stream, args.blocks, args.rounds))
            if comm.rank == 0:
                name = f"{case.name}, {count} field{'s'[: count - 1]}"
                print(f"{name:36}" + "".join(f"{row:10.1f} ({host:4.1f})" for row, host in figures), flush=True)


if __name__ == "__main__":
    main()
