"""GHEX, as its own Python tests use it, with everything that can be made once made once."""

from __future__ import annotations

import ghex
import numpy as np
from ghex import unstructured
from ghex.context import make_context
from ghex.structured import regular
from ghex.structured.cartesian_sets import ProductSet, UnitRange
from mpi4py import MPI

from cases import GRID
from harness import Exchange, Local, main


def prepare(comm: MPI.Comm, local: Local) -> Exchange:
    context = make_context(comm, False)
    keep, communication, infos = (_mesh if local.case.is_mesh else _grid)(context, local)

    def exchange() -> None:
        communication.exchange(infos).wait()

    # GHEX keeps no reference to what it uses.
    exchange.keep = (context, keep, infos)
    return exchange


def _grid(context, local: Local):
    w = local.case.halo
    rank = local.rank
    whole = ProductSet(UnitRange(0, GRID * context.size()), UnitRange(0, GRID), UnitRange(0, GRID))
    mine = ProductSet(UnitRange(GRID * rank, GRID * (rank + 1)), UnitRange(0, GRID), UnitRange(0, GRID))
    domain = regular.DomainDescriptor(rank, mine)
    halos = regular.HaloGenerator(whole, (w, w, w), (True, True, True))
    pattern = regular.make_pattern(context, halos, [domain])
    fields = [regular.make_field_descriptor(domain, a, (w, w, w), a.shape) for a in local.fields]
    infos = [pattern(field) for field in fields]
    return (domain, halos, pattern, fields), regular.make_communication_object(context), infos


def _mesh(context, local: Local):
    owned, halo = local.cells
    ids = np.concatenate([owned, halo]).astype(np.int32)
    domain = unstructured.DomainDescriptor(local.rank, ids, np.arange(len(owned), len(ids), dtype=np.int32))
    halos = unstructured.HaloGenerator.from_gids(halo.astype(np.int32))
    pattern = unstructured.make_pattern(context, halos, [domain])
    fields = [unstructured.make_field_descriptor(domain, a) for a in local.fields]
    infos = [pattern(field) for field in fields]
    return (domain, halos, pattern, fields), unstructured.make_communication_object(context), infos


if __name__ == "__main__":
    main("GHEX", str(ghex.__version__), prepare)
