"""One rank of `reduces`. Arguments: case, rounds, CPUs. Rank 0 prints JSON."""

from __future__ import annotations

import json
import os
import sys
from statistics import median

# Ranks of a node share memory.
os.environ.pop("HALOCLINE_NODE_AWARE", None)

import halocline as hc
import numpy as np
from mpi4py import MPI

from cases import GRID, RANKS, by_name
from harness import Exchange, Harness, Local
from peer_petsc import graph_of


class Reversed(Harness):
    """Rewrites the halo, and reads the owned cells that have copies."""

    def masks(self, local: Local) -> tuple[np.ndarray, np.ndarray]:
        return ~local.is_owned(), local.is_read()


def ours(ranks: hc.Communicator, local: Local) -> Exchange:
    case = local.case
    if case.is_mesh:
        pattern = hc.Pattern.unstructured(ranks, [hc.UnstructuredDomain(local.rank, *local.cells)])
    else:
        grid = hc.RegularGrid((GRID * RANKS, GRID, GRID), periodic=(True, True, True))
        pattern = grid.decompose_into((RANKS, 1, 1), ranks).pattern(case.halo)
    halo = hc.HaloExchange(ranks, [(pattern, field) for field in local.fields])
    return lambda: halo.reduce("sum", keep=True)


def theirs(comm: MPI.Comm, local: Local) -> Exchange:
    graph, unit = graph_of(comm, local)
    arrays = [field.ravel(order="K") for field in local.fields]

    def reduce() -> None:
        for a in arrays:
            graph.reduceBegin(unit, a, a, MPI.SUM)
        for a in arrays:
            graph.reduceEnd(unit, a, a, MPI.SUM)

    return reduce


def verify(name: str, comm: MPI.Comm, local: Local, reduce: Exchange) -> None:
    """After a reduce of ones each owned cell holds one and the number of its copies; the halo holds ones."""
    for field in local.fields:
        field[...] = 1
    comm.Barrier()
    reduce()
    is_owned = local.is_owned()
    copies = comm.allreduce(int((~is_owned).sum()))
    for field in local.fields:
        added = comm.allreduce(float((field[is_owned] - 1).sum()))
        if added != copies or (field[~is_owned] != 1).any() or (field[is_owned & ~local.is_read()] != 1).any():
            raise SystemExit(f"{name}: a reduce of ones is wrong: {added} added of {copies} halo cells")


def main() -> None:
    name, rounds, library, cpus = sys.argv[1:5]
    comm = MPI.COMM_WORLD
    os.sched_setaffinity(0, {int(cpus.split(",")[comm.rank])})
    local = Local(by_name(name), comm.rank)
    ranks = hc.Communicator(comm)
    # Memory that the other rank maps. Both libraries work on it.
    order = "C" if local.case.layout == "c" else "F"
    local.fields = [hc.zeros(local.numbers.shape, comm=ranks, order=order) for _ in local.fields]
    harness = Reversed(library, comm, local)
    c = harness.c
    contenders = {"halocline": ours(ranks, local), "PetscSF": theirs(comm, local)}
    blocks: dict[str, list[float]] = {who: [] for who in contenders}
    for who, reduce in contenders.items():
        verify(who, comm, local, reduce)
    for number in range(int(rounds) + 1):
        for who in sorted(contenders, reverse=bool(number % 2)):
            ns = harness.block(c.unit_begin, contenders[who], c.unit_end, local.case.units)
            calls = harness.block(c.empty_begin, lambda: None, c.empty_end, 1000)
            # The first round warms up.
            if number > 0:
                blocks[who].append(max(0.0, float(np.median(ns) - np.median(calls))) / 1e3)
    if comm.rank == 0:
        print(json.dumps({"case": name, "us": {who: median(them) for who, them in blocks.items()}}), flush=True)


if __name__ == "__main__":
    main()
