"""A limit, no peer: plain C copies the cells of an exchange within each rank's own arrays, both ranks at once.

The ranks' domains have the same shape, so a halo cell is copied from where it lies in its owner's array. The places of all
cells are known beforehand, and nothing is signalled.
"""

from __future__ import annotations

import ctypes
import sys

import numpy as np
from mpi4py import MPI

from cases import RANKS
from harness import Exchange, Local, main


def prepare(comm: MPI.Comm, local: Local) -> Exchange:
    order = local.case.layout.upper()
    numbers = local.numbers.ravel(order=order)
    halo = np.flatnonzero(~local.is_owned().ravel(order=order))
    source = np.full(len(halo), -1)
    for rank in range(RANKS):
        owner = Local(local.case, rank)
        owned = np.flatnonzero(owner.is_owned().ravel(order=order))
        owned_numbers = owner.numbers.ravel(order=order)[owned]
        by_number = np.argsort(owned_numbers)
        at = np.searchsorted(owned_numbers, numbers[halo], sorter=by_number)
        at = by_number[np.minimum(at, len(owned) - 1)]
        found = owned_numbers[at] == numbers[halo]
        source[found] = owned[at[found]]
    # What is verified: these copies, not those of an exchange.
    numbers[halo] = numbers[source]
    local.numbers = numbers.reshape(local.numbers.shape, order=order)

    c = ctypes.PyDLL(sys.argv[2])
    c.gather.restype = None
    pieces = _pieces(halo, source)
    single = int(np.sum(pieces[:, 2] == 1))
    c.describe_gather(ctypes.c_void_p(pieces.ctypes.data), ctypes.c_size_t(len(pieces)), ctypes.c_size_t(single))

    def exchange() -> None:
        c.gather()

    exchange.keep = pieces
    return exchange


def _pieces(to: np.ndarray, source: np.ndarray) -> np.ndarray:
    """First cell at both ends and number of cells, of each run that is contiguous at both ends; first those of one cell."""
    starts = np.flatnonzero((np.diff(to, prepend=-2) != 1) | (np.diff(source, prepend=-2) != 1))
    pieces = np.stack([to[starts], source[starts], np.diff(starts, append=len(to))], axis=1).astype(np.uint32)
    return pieces[np.argsort(pieces[:, 2] != 1, kind="stable")]


if __name__ == "__main__":
    main("C gather", "", prepare, stagger=9)
