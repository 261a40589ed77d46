"""What single calls of the interface of GHEX cost, on two ranks. Arguments: ghex or halocline, CPUs. Rank 0 prints JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

if sys.argv[1] == "halocline":
    # Ranks of a node share memory, as GHEX's do by MPI.
    os.environ.pop("HALOCLINE_NODE_AWARE", None)
    from halocline.compat import ghex

    ghex.install()

import numpy as np
from ghex import unstructured
from ghex.context import make_context
from ghex.structured import regular
from ghex.structured.cartesian_sets import ProductSet, UnitRange
from mpi4py import MPI

BLOCKS, CALLS = 50, 100
CELLS = 4


def regular_grid(context):
    """Four cells along each axis and a halo of one, along the first axis at the other rank."""
    box = [UnitRange(0, CELLS), UnitRange(0, CELLS)]
    first = CELLS * context.rank()
    domain = regular.DomainDescriptor(context.rank(), ProductSet(UnitRange(first, first + CELLS), *box))
    whole = ProductSet(UnitRange(0, CELLS * context.size()), *box)
    halos = regular.HaloGenerator(whole, (1, 1, 1), (False, False, False))
    extents = (CELLS + 2,) * 3

    def describe(array):
        return regular.make_field_descriptor(domain, array, (1, 1, 1), extents)

    pattern = regular.make_pattern(context, halos, [domain])
    return describe, pattern, regular.make_communication_object(context), [np.zeros(extents) for _ in range(8)], domain


def mesh(context):
    """A hundred cells, one of the other rank's in the halo."""
    own = range(100 * context.rank(), 100 * context.rank() + 100)
    domain = unstructured.DomainDescriptor(context.rank(), [*own, 100 * (1 - context.rank())], [100])

    def describe(array):
        return unstructured.make_field_descriptor(domain, array)

    pattern = unstructured.make_pattern(context, unstructured.HaloGenerator(), [domain])
    return describe, pattern, unstructured.make_communication_object(context), [np.zeros(101) for _ in range(8)], domain


def ns(call: Callable[[], object]) -> float:
    """The time of a call in the quickest block, over the slower rank: other programs and the scheduler only add to it."""
    times = []
    for _ in range(BLOCKS):
        MPI.COMM_WORLD.Barrier()
        start = time.perf_counter_ns()
        for _ in range(CALLS):
            call()
        times.append((time.perf_counter_ns() - start) / CALLS)
    return MPI.COMM_WORLD.allreduce(min(times), MPI.MAX)


def main() -> None:
    comm = MPI.COMM_WORLD
    os.sched_setaffinity(0, {int(sys.argv[2].split(",")[comm.rank])})
    context = make_context(comm, False)
    figures = {}
    for name, make in [("regular", regular_grid), ("unstructured", mesh)]:
        describe, pattern, communication, arrays, _domain = make(context)
        fields = [describe(array) for array in arrays]
        buffers = [pattern(field) for field in fields]
        figures[f"{name}: make_field_descriptor"] = ns(lambda: describe(arrays[0]))
        figures[f"{name}: pattern(field)"] = ns(lambda: pattern(fields[0]))
        figures[f"{name}: exchange(b).wait()"] = ns(lambda: communication.exchange(buffers[0]).wait())
        figures[f"{name}: exchange([b]).wait()"] = ns(lambda: communication.exchange(buffers[:1]).wait())
        figures[f"{name}: exchange(8 of them).wait()"] = ns(lambda: communication.exchange(buffers).wait())
        figures[f"{name}: all of it anew"] = ns(lambda: communication.exchange(pattern(describe(arrays[0]))).wait())
    if comm.rank == 0:
        print(json.dumps({"ns": figures}), flush=True)


if __name__ == "__main__":
    main()
