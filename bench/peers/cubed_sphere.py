#!/usr/bin/env python3
"""Measures halos of a cubed sphere beside numpy and mpi4py: 6 tiles of n x n cells with levels, several fields, on 2 or 3 or 6 ranks.

    mpirun -n 2 python bench/peers/cubed_sphere.py

The exchange by hand is written as such code is: views of the edges, turned and flipped, are packed into one message for each peer, sent by
persistent requests, and unpacked; edges within a rank are copied from view to view. Both contenders fill the same arrays, which Halocline
allocates. Each is verified first: all halo cells are equal. The third column is the time of the copies alone, the least that memory
permits: each rank reads the owned cells, also those of other ranks, and writes its halo cells once, in the fastest of several orders, without
messages or waiting (copies.c; it needs a C compiler, and ranks that share memory). The time of an exchange is that of the slowest rank; all have
blocks in turn, and figures are medians over the blocks.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import os
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

# Ranks of a node share memory.
os.environ.pop("HALOCLINE_NODE_AWARE", None)

import halocline as hc
import numpy as np
from mpi4py import MPI

TILES = 6
EXCHANGES = 20


class Edge:
    """A strip of halo cells of one tile, and the strip of owned cells of another one that it copies."""

    def __init__(self, to: int, halo: tuple[slice, slice], source: int, owned: tuple[slice, slice], turn: tuple[bool, bool, bool]) -> None:
        self.to, self.halo, self.source, self.owned = to, halo, source, owned
        self.swapped, self.rows_back, self.columns_back = turn

    def read(self, field: np.ndarray, row: int) -> np.ndarray:
        """The owned strip of a field whose rows are dimension `row`, turned as the halo needs it: a view."""
        strip = field[(slice(None),) * row + self.owned]
        if self.swapped:
            strip = np.swapaxes(strip, row, row + 1)
        if self.rows_back:
            strip = np.flip(strip, row)
        return np.flip(strip, row + 1) if self.columns_back else strip

    def write(self, field: np.ndarray, row: int) -> np.ndarray:
        return field[(slice(None),) * row + self.halo]


def strips(n: int, width: int, low: int, first: int) -> list[tuple[slice, slice]]:
    """The four strips of a tile: `low` and `first` are the begin of those at the low and at the high side."""
    along = slice(width, width + n)
    ends = [slice(low, low + width), slice(first, first + width)]
    return [(end, along) for end in ends] + [(along, end) for end in ends]


def edges_of(numbers: list[np.ndarray], n: int, width: int) -> list[Edge]:
    """All edges, found by the numbers that an exchange has brought to the halos."""
    owned = [(tile, strip) for tile in range(TILES) for strip in strips(n, width, width, n)]
    found = []
    for to, halo in itertools.product(range(TILES), strips(n, width, 0, n + width)):
        for (source, strip), turn in itertools.product(owned, itertools.product((False, True), repeat=3)):
            edge = Edge(to, halo, source, strip, turn)
            read, wanted = edge.read(numbers[source], 0), numbers[to][halo]
            if read.shape == wanted.shape and (read == wanted).all():
                found.append(edge)
                break
    assert len(found) == 4 * TILES, f"{len(found)} edges"
    return found


def by_hand(comm: MPI.Comm, edges: list[Edge], rank_of: list[int], fields: dict[int, list[np.ndarray]], row: int):
    """The exchange by numpy and mpi4py, a function without arguments."""
    here = comm.rank
    copies, packs, unpacks, sends, receives = [], [], [], [], []
    messages: dict[tuple[int, bool], list[Edge]] = {}
    for edge in edges:
        source, to = rank_of[edge.source], rank_of[edge.to]
        if source == to == here:
            copies += [(edge.write(a, row), edge.read(b, row)) for a, b in zip(fields[edge.to], fields[edge.source])]
        elif here in (source, to):
            messages.setdefault((to if source == here else source, source == here), []).append(edge)
    for (peer, is_sent), of_peer in messages.items():
        strip = (lambda edge, one: edge.read(one, row)) if is_sent else (lambda edge, one: edge.write(one, row))
        views = [strip(edge, one) for edge in of_peer for one in fields[edge.source if is_sent else edge.to]]
        buffer = np.zeros(sum(one.size for one in views))
        ends = np.cumsum([0] + [one.size for one in views])
        parts = [buffer[begin:end].reshape(one.shape) for begin, end, one in zip(ends, ends[1:], views)]
        if is_sent:
            packs += list(zip(parts, views))
            sends.append(comm.Send_init(buffer, peer))
        else:
            unpacks += list(zip(views, parts))
            receives.append(comm.Recv_init(buffer, peer))

    def exchange() -> None:
        MPI.Prequest.Startall(receives)
        for to, source in packs:
            np.copyto(to, source)
        MPI.Prequest.Startall(sends)
        for to, source in copies:
            np.copyto(to, source)
        MPI.Request.Waitall(receives)
        for to, source in unpacks:
            np.copyto(to, source)
        MPI.Request.Waitall(sends)

    return exchange


class Strip(ctypes.Structure):
    """A strip of copies.c."""

    _fields_ = [("to", ctypes.c_void_p), ("source", ctypes.c_void_p)] + [
        (name, ctypes.c_ssize_t * 3) for name in ("shape", "to_strides", "source_strides")
    ]


def library() -> ctypes.CDLL:
    """copies.c, compiled."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "copies.so")
        subprocess.run(["cc", "-O3", "-march=native", "-fPIC", "-shared", "-o", made, Path(__file__).with_name("copies.c")], check=True)
        return ctypes.CDLL(str(made))


def shared_fields(comm: MPI.Comm, rank_of: list[int], fields: dict[int, list[np.ndarray]]) -> tuple[MPI.Win, dict[int, list[np.ndarray]]]:
    """Fields of all tiles in memory that the ranks share, with the values of these fields of this rank."""
    shape, count = np.shape(next(iter(fields.values()))[0]), len(next(iter(fields.values())))
    size = 8 * int(np.prod(shape))
    window = MPI.Win.Allocate_shared(len(fields) * count * size, 8, comm=comm)
    found = {}
    for tile, rank in enumerate(rank_of):
        memory = np.frombuffer(window.Shared_query(rank)[0]).reshape(-1, count, *shape)
        found[tile] = list(memory[tile - rank_of.index(rank)])
    for tile in fields:
        for one, other in zip(found[tile], fields[tile]):
            one[...] = other
    return window, found


def copies_alone(copies: ctypes.CDLL, mine: list[int], edges: list[Edge], fields: dict[int, list[np.ndarray]], row: int):
    """The copies of all halo cells of this rank, each read and written once, as functions: one for each order."""
    strips, groups = [], []
    for number in range(len(fields[mine[0]])):
        for to in mine:
            of_tile = [edge for edge in edges if edge.to == to]
            groups.append(len(of_tile))
            for edge in of_tile:
                views = edge.write(fields[to][number], row), edge.read(fields[edge.source][number], row)
                if row == 1 and views[0].shape[1] < views[0].shape[2] and not views[0].strides[2] == views[1].strides[2] == 8:
                    # The few rows are the inner loop.
                    views = tuple(np.swapaxes(view, 1, 2) for view in views)
                strips.append(Strip(views[0].ctypes.data, views[1].ctypes.data, views[0].shape, views[0].strides, views[1].strides))
    strips, groups = (Strip * len(strips))(*strips), (ctypes.c_size_t * len(groups))(*groups)

    def copy(at_once: int, fetch: bool):
        return lambda: copies.copy_strips(strips, groups, ctypes.c_size_t(len(groups)), ctypes.c_ssize_t(at_once), fetch)

    return [copy(at_once, fetch) for at_once, fetch in itertools.product((1, 8, 1 << 20), (False, True))]


def timed(comm: MPI.Comm, exchange) -> float:
    """Microseconds of an exchange on the slowest rank, the median of several."""
    times = []
    for _ in range(EXCHANGES):
        comm.Barrier()
        begin = time.perf_counter()
        exchange()
        times.append(time.perf_counter() - begin)
    return 1e6 * median(np.array(comm.allgather(times)).max(axis=0))


def measure(comm: MPI.Comm, args: argparse.Namespace, copies: ctypes.CDLL, width: int, level_first: bool) -> list[float]:
    """Times of Halocline, by hand, and of the copies alone."""
    ranks = hc.Communicator(comm)
    n, row = args.cells, 1 if level_first else 0
    pattern = hc.PatchGrid.cubed_sphere(n).decompose_into([(1, 1)] * TILES, ranks).pattern(width)
    rank_of = [tile * comm.size // TILES for tile in range(TILES)]
    mine = [tile for tile in range(TILES) if rank_of[tile] == comm.rank]
    assert [domain.id for domain in pattern.domains] == mine

    # One exchange of the numbers of all cells says where halo cells come from.
    plane = (n + 2 * width,) * 2
    numbers = [hc.zeros(plane, "float64", ranks) for _ in mine]
    owned = (slice(width, width + n),) * 2
    for tile, one in zip(mine, numbers):
        one[owned] = 1 + tile * n * n + np.arange(n * n).reshape(n, n)
    hc.HaloExchange(ranks, [(pattern, hc.Field(one, domain=tile)) for tile, one in zip(mine, numbers)]).exchange()
    everywhere = [one for part in comm.allgather([np.array(one) for one in numbers]) for one in part]
    edges = edges_of(everywhere, n, width)

    shape = (args.levels, *plane) if level_first else (*plane, args.levels)
    fields = {tile: [hc.zeros(shape, "float64", ranks) for _ in range(args.fields)] for tile in mine}
    axes = (1, 2) if level_first else (0, 1)
    bound = [(pattern, hc.Field(one, domain=tile, axes=axes)) for tile in mine for one in fields[tile]]
    halo = hc.HaloExchange(ranks, bound)
    hand = by_hand(comm, edges, rank_of, fields, row)

    window, shared = shared_fields(comm, rank_of, fields)
    alone = copies_alone(copies, mine, edges, shared, row)

    results = []
    for exchange, of in [(halo.exchange, fields), (hand, fields), *((copy, shared) for copy in alone)]:
        for tile in mine:
            for number, one in enumerate(of[tile]):
                one[...] = -1.0
                inside = (slice(None),) * row + owned
                one[inside] = np.random.default_rng(100 * tile + number).random(one[inside].shape)
        comm.Barrier()
        exchange()
        comm.Barrier()
        result = [np.array(one) for tile in mine for one in of[tile]]
        assert all((one == other).all() for one, other in zip(result, results or result)), "the halos differ"
        results = results or result

    contenders = [halo.exchange, hand, *alone]
    times: list[list[float]] = [[] for _ in contenders]
    for number in range(args.rounds + 1):
        for which in range(len(contenders))[:: 1 if number % 2 else -1]:
            took = timed(comm, contenders[which])
            # The first round warms up.
            if number > 0:
                times[which].append(took)
    ours, theirs, *orders = [median(of_one) for of_one in times]
    if args.orders and comm.rank == 0:
        print("  copies alone, 1, 8 and all steps together, each without and with prefetches:", *(f"{order:.1f}" for order in orders))
    # Views of the memory end before it does.
    del alone, shared, contenders
    window.Free()
    return [ours, theirs, min(orders)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=96, help="cells along an edge of a tile [default: 96]")
    parser.add_argument("--levels", type=int, default=80, help="levels [default: 80]")
    parser.add_argument("--fields", type=int, default=8, help="fields [default: 8]")
    parser.add_argument("--rounds", type=int, default=7, help="rounds [default: 7]")
    parser.add_argument("--orders", action="store_true", help="print the times of all orders of the copies alone")
    args = parser.parse_args()
    copies = library()
    comm = MPI.COMM_WORLD
    if comm.rank == 0:
        print(f"6 tiles of {args.cells}^2 cells, {args.levels} levels, {args.fields} fields, {comm.size} ranks; us an exchange")
        print(f"{'':32} {'Halocline':>10} {'by hand':>10} {'ratio':>6} {'copies':>10} {'ratio':>6}")
    for width, level_first in itertools.product((1, 3), (False, True)):
        ours, theirs, alone = measure(comm, args, copies, width, level_first)
        if comm.rank == 0:
            name = f"halo {width}, level {'first' if level_first else 'last'}"
            print(f"{name:32} {ours:10.1f} {theirs:10.1f} {ours / theirs:6.2f} {alone:10.1f} {ours / alone:6.2f}", flush=True)


if __name__ == "__main__":
    main()
