"""PetscSF: a graph from the halo cells (leaves) to the cells that they copy (roots), in the same array."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI
from petsc4py import PETSc

from cases import GRID, RANKS
from harness import Exchange, Local, main


def graph_of(comm: MPI.Comm, local: Local) -> tuple[PETSc.SF, MPI.Datatype]:
    """The graph of a case, and the unit in which its arrays travel."""
    leaves, ranks, roots = _mesh_graph(comm, local) if local.case.is_mesh else _grid_graph(local)
    unit, count = MPI.DOUBLE, local.fields[0].size
    if local.case.is_mesh and local.case.layout == "c" and local.case.levels > 1:
        # The levels of a cell travel as one unit.
        unit = MPI.DOUBLE.Create_contiguous(local.case.levels).Commit()
        count //= local.case.levels
    graph = PETSc.SF().create(comm)
    graph.setFromOptions()
    remote = np.stack([ranks, roots], axis=1).astype(PETSc.IntType)
    graph.setGraph(count, leaves.astype(PETSc.IntType), remote.ravel())
    graph.setUp()
    return graph, unit


def prepare(comm: MPI.Comm, local: Local) -> Exchange:
    graph, unit = graph_of(comm, local)
    # One dimension, in the order of memory: views, not copies.
    arrays = [a.ravel(order="K") for a in local.fields]
    replace = MPI.REPLACE

    def exchange() -> None:
        for a in arrays:
            graph.bcastBegin(unit, a, a, replace)
        for a in arrays:
            graph.bcastEnd(unit, a, a, replace)

    return exchange


def _grid_graph(local: Local) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    w, order = local.case.halo, local.case.layout.upper()
    extents = (GRID + 2 * w,) * 3
    is_halo = np.ones(extents, dtype=bool)
    is_halo[local.owned] = False
    leaves = np.flatnonzero(is_halo.ravel(order=order))
    x, y, z = np.unravel_index(leaves, extents, order=order)
    x_global = (x - w + local.rank * GRID) % (GRID * RANKS)
    at_owner = (x_global % GRID + w, (y - w) % GRID + w, (z - w) % GRID + w)
    roots = np.ravel_multi_index(at_owner, extents, order=order)
    return leaves, x_global // GRID, roots


def _mesh_graph(comm: MPI.Comm, local: Local) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    owned, halo = local.cells
    peer = 1 - comm.rank
    wanted = comm.sendrecv(halo, dest=peer, source=peer)
    roots = comm.sendrecv(np.searchsorted(owned, wanted), dest=peer, source=peer)
    leaves = np.arange(len(owned), len(owned) + len(halo))
    if local.case.layout == "f":
        starts = np.arange(local.case.levels)[:, None] * (len(owned) + len(halo))
        leaves, roots = (starts + leaves).ravel(), (starts + roots).ravel()
    return leaves, np.full(len(leaves), peer), roots


if __name__ == "__main__":
    version = ".".join(map(str, PETSc.Sys.getVersion()))
    main("PetscSF", version, prepare)
