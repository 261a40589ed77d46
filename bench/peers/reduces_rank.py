"""One rank of `reduces`. Arguments: case, rounds, CPUs. Rank 0 prints JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from statistics import median

# Ranks of a node share memory.
os.environ.pop("HALOCLINE_NODE_AWARE", None)

import halocline as hc
import numpy as np
from mpi4py import MPI

from cases import GRID, RANKS, by_name
from harness import Exchange, Local
from peer_petsc import graph_of

WARM_UP = 5


def ours(comm: MPI.Comm, local: Local) -> tuple[list[np.ndarray], Exchange]:
    """The fields, in memory of Halocline, and a reduce of them."""
    case = local.case
    ranks = hc.Communicator(comm)
    if case.is_mesh:
        pattern = hc.Pattern.unstructured(ranks, [hc.UnstructuredDomain(local.rank, *local.cells)])
    else:
        grid = hc.RegularGrid((GRID * RANKS, GRID, GRID), periodic=(True, True, True))
        pattern = grid.decompose_into((RANKS, 1, 1), ranks).pattern(case.halo)
    order = "C" if case.layout == "c" else "F"
    fields = [hc.zeros(local.numbers.shape, comm=ranks, order=order) for _ in local.fields]
    halo = hc.HaloExchange(ranks, [(pattern, field) for field in fields])
    return fields, lambda: halo.reduce("sum", keep=True)


def theirs(comm: MPI.Comm, local: Local) -> tuple[list[np.ndarray], Exchange]:
    graph, unit = graph_of(comm, local)
    arrays = [field.ravel(order="K") for field in local.fields]

    def reduce() -> None:
        for a in arrays:
            graph.reduceBegin(unit, a, a, MPI.SUM)
        for a in arrays:
            graph.reduceEnd(unit, a, a, MPI.SUM)

    return local.fields, reduce


def verify(name: str, comm: MPI.Comm, local: Local, fields: list[np.ndarray], reduce: Exchange) -> None:
    """After a reduce of ones each owned cell holds one and the number of its copies; the halo holds ones."""
    for field in fields:
        field[...] = 1
    comm.Barrier()
    reduce()
    is_owned = local.is_owned()
    copies = comm.allreduce(int((~is_owned).sum()))
    for field in fields:
        added = comm.allreduce(float((field[is_owned] - 1).sum()))
        if added != copies or (field[~is_owned] != 1).any() or (field[is_owned & ~local.is_read()] != 1).any():
            raise SystemExit(f"{name}: a reduce of ones is wrong: {added} added of {copies} halo cells")


def block(comm: MPI.Comm, fields: list[np.ndarray], reduce: Exchange, units: int) -> float:
    """The median over units of the slower rank's time, us."""
    times = []
    for _ in range(units):
        for field in fields:
            field[...] = 1
        comm.Barrier()
        start = time.perf_counter_ns()
        reduce()
        for field in fields:
            field.sum()
        times.append(time.perf_counter_ns() - start)
    return median(comm.allreduce(np.array(times), MPI.MAX)) / 1e3


def main() -> None:
    name, rounds, cpus = sys.argv[1:4]
    comm = MPI.COMM_WORLD
    os.sched_setaffinity(0, {int(cpus.split(",")[comm.rank])})
    local = Local(by_name(name), comm.rank)
    contenders = {"halocline": ours(comm, local), "PetscSF": theirs(comm, local)}
    for who, (fields, reduce) in contenders.items():
        verify(who, comm, local, fields, reduce)
        block(comm, fields, reduce, WARM_UP)
    blocks: dict[str, list[float]] = {who: [] for who in contenders}
    for number in range(int(rounds)):
        for who in sorted(contenders, reverse=bool(number % 2)):
            blocks[who].append(block(comm, *contenders[who], units=local.case.units // 4))
    if comm.rank == 0:
        print(json.dumps({"case": name, "us": {who: median(them) for who, them in blocks.items()}}), flush=True)


if __name__ == "__main__":
    main()
