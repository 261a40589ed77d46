"""Halo exchange as it is written by hand: numpy packs, persistent requests of mpi4py send one message a side."""

from __future__ import annotations

import mpi4py
import numpy as np
from mpi4py import MPI

from cases import GRID
from harness import Exchange, Local, main


def prepare(comm: MPI.Comm, local: Local) -> Exchange:
    return _mesh(comm, local) if local.case.is_mesh else _grid(comm, local)


def _grid(comm: MPI.Comm, local: Local) -> Exchange:
    """The axes that wrap onto the rank itself first, so that the planes that are sent hold their edges and corners."""
    w, fields = local.case.halo, local.fields
    low, high = slice(0, w), slice(GRID + w, GRID + 2 * w)
    first, last = slice(w, 2 * w), slice(GRID, GRID + w)
    owned, everything = slice(w, GRID + w), slice(None)

    wraps = []
    for a in fields:
        wraps += [(a[owned, owned, low], a[owned, owned, last]), (a[owned, owned, high], a[owned, owned, first])]
        wraps += [(a[owned, low, everything], a[owned, last, everything])]
        wraps += [(a[owned, high, everything], a[owned, first, everything])]

    extent = GRID + 2 * w
    order = local.case.layout.upper()

    def message() -> tuple[np.ndarray, list[np.ndarray]]:
        buffer = np.zeros(len(fields) * w * extent * extent)
        return buffer, [part.reshape((w, extent, extent), order=order) for part in np.split(buffer, len(fields))]

    (left_out, to_left), (right_out, to_right) = message(), message()
    (left_in, from_left), (right_in, from_right) = message(), message()
    packs = [(b, a[first]) for a, b in zip(fields, to_left)] + [(b, a[last]) for a, b in zip(fields, to_right)]
    unpacks = [(a[low], b) for a, b in zip(fields, from_left)] + [(a[high], b) for a, b in zip(fields, from_right)]

    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    receives = [comm.Recv_init(left_in, left, tag=1), comm.Recv_init(right_in, right, tag=0)]
    sends = [comm.Send_init(left_out, left, tag=0), comm.Send_init(right_out, right, tag=1)]
    requests = receives + sends

    def exchange() -> None:
        MPI.Prequest.Startall(receives)
        for to, source in wraps:
            np.copyto(to, source)
        for to, source in packs:
            np.copyto(to, source)
        MPI.Prequest.Startall(sends)
        MPI.Request.Waitall(requests)
        for to, source in unpacks:
            np.copyto(to, source)

    return exchange


def _mesh(comm: MPI.Comm, local: Local) -> Exchange:
    """One message to the peer with the cells that it wants; the halo cells lie together, behind the owned."""
    case, fields = local.case, local.fields
    owned, halo = local.cells
    peer = 1 - comm.rank
    wanted = comm.sendrecv(halo, dest=peer, source=peer)
    indices = np.searchsorted(owned, wanted)
    level_major = case.layout == "f"
    shape = (case.levels, len(halo)) if level_major else (len(halo), case.levels)
    axis = 1 if level_major else 0
    out, incoming = np.zeros((case.fields, *shape)), np.zeros((case.fields, *shape))
    # Transposed, a level-major field is in C order, which is what numpy packs best.
    arrays = [a.T if level_major else a for a in fields]
    packs = list(zip(arrays, out))
    halos = [a[:, len(owned) :] if level_major else a[len(owned) :] for a in arrays]
    unpacks = list(zip(halos, incoming))
    receive, send = comm.Recv_init(incoming, peer), comm.Send_init(out, peer)

    def exchange() -> None:
        receive.Start()
        for a, b in packs:
            np.take(a, indices, axis=axis, out=b, mode="clip")
        send.Start()
        receive.Wait()
        for to, source in unpacks:
            np.copyto(to, source)
        send.Wait()

    return exchange


if __name__ == "__main__":
    main("numpy+mpi4py", f"numpy {np.__version__}, mpi4py {mpi4py.__version__}", prepare)
