"""One rank of one peer's measurement: fields, verification, timing.

A peer script calls `main` with a function that prepares the peer and returns its exchange: a function without arguments
that fills the halo. `run` starts the scripts, one process a rank, under mpirun.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Callable

import numpy as np
from mpi4py import MPI

from cases import GRID, RANKS, SQUARE, Case, by_name

EPOCHS_VERIFIED = 5
WARM_UP = 10
LINE = 128  # alignment of a counter in harness.c
CACHE_LINE = 64
PAGE = 4096

Exchange = Callable[[], None]


def _zeros(shape: tuple[int, ...], order: str, skipped: int) -> np.ndarray:
    """A field that begins on a cache line, `skipped` lines after the begin of a page. All contenders have the same
    alignment, so that their rows touch the same number of cache lines."""
    count = int(np.prod(shape))
    memory = np.zeros(count + 2 * PAGE // 8)
    first = (-memory.ctypes.data % PAGE + skipped * CACHE_LINE % PAGE) // 8
    return memory[first : first + count].reshape(shape, order=order)


class Local:
    """This rank's part of a case: its fields and the global number of each of their cells."""

    def __init__(self, case: Case, rank: int, stagger: int = 0) -> None:
        self.case, self.rank = case, rank
        self.numbers = _mesh_numbers(case, rank) if case.is_mesh else _grid_numbers(case, rank)
        order = case.layout.upper()
        self.fields = [_zeros(self.numbers.shape, order, number * stagger) for number in range(case.fields)]

    @property
    def owned(self) -> tuple[slice, ...]:
        """Where the owned cells are in a field."""
        if self.case.is_mesh:
            return (slice(0, SQUARE * SQUARE), slice(None))
        return (slice(self.case.halo, self.case.halo + GRID),) * 3

    @property
    def cells(self) -> tuple[np.ndarray, np.ndarray]:
        """Global ids of the owned and of the halo cells of a mesh."""
        return _mesh_ids(self.rank)

    def is_owned(self) -> np.ndarray:
        """Whether this rank owns the cell, for each cell of a field."""
        mask = np.zeros(self.numbers.shape, dtype=bool)
        mask[self.owned] = True
        return mask

    def is_read(self) -> np.ndarray:
        """Of each cell, whether it is owned and a halo cell somewhere is its copy."""
        if self.case.is_mesh:
            _, halo = _mesh_ids(1 - self.rank)
            owned, _ = self.cells
            read = np.isin(owned, halo)
            mask = np.zeros(self.numbers.shape, dtype=bool)
            mask[: len(owned)] = read[:, None]
            return mask
        mask = self.is_owned()
        mask[(slice(2 * self.case.halo, GRID),) * 3] = False
        return mask

    def expected(self, field: int, epoch: int) -> np.ndarray:
        """What a field holds once its halo is filled: exact, and different for each cell, level and field."""
        return (self.numbers * self.case.fields + field).astype(np.float64) + epoch

    def fill(self, epoch: int) -> None:
        """Writes the owned cells, and makes the halo worthless."""
        for index, field in enumerate(self.fields):
            field[...] = np.nan
            field[self.owned] = self.expected(index, epoch)[self.owned]

    def wrong(self, epoch: int, of: np.ndarray) -> int:
        """The number of these cells that do not hold what they should."""
        return sum(int(np.sum((field != self.expected(i, epoch))[of])) for i, field in enumerate(self.fields))


def _grid_numbers(case: Case, rank: int) -> np.ndarray:
    first = np.arange(-case.halo, GRID + case.halo)
    x, y, z = (first + rank * GRID) % (GRID * RANKS), first % GRID, first % GRID
    return (x[:, None, None] * GRID + y[None, :, None]) * GRID + z[None, None, :]


def _mesh_ids(rank: int) -> tuple[np.ndarray, np.ndarray]:
    width, rows = SQUARE * RANKS, np.arange(SQUARE)
    columns = np.arange(rank * SQUARE, (rank + 1) * SQUARE)
    # The ring as `halocline bench halo` walks it: from the row before the first, which is the last, left and right.
    ring_rows = np.arange(-1, SQUARE - 1) % SQUARE
    beyond = np.array([rank * SQUARE - 1, (rank + 1) * SQUARE]) % width
    owned = rows[:, None] * width + columns[None, :]
    halo = ring_rows[:, None] * width + beyond[None, :]
    return owned.ravel(), halo.ravel()


def _mesh_numbers(case: Case, rank: int) -> np.ndarray:
    ids = np.concatenate(_mesh_ids(rank))
    return ids[:, None] * case.levels + np.arange(case.levels)[None, :]


class Harness:
    """harness.c with the addresses of the fields."""

    def __init__(self, library: str, comm: MPI.Comm, local: Local) -> None:
        # PyDLL, not CDLL: nothing else wants the interpreter, and giving it up would take time within the unit.
        self.c = ctypes.PyDLL(library)
        for name in ("unit_begin", "unit_end", "empty_begin", "empty_end", "restart"):
            getattr(self.c, name).restype = None
        for name in ("shared_bytes", "max_fields", "max_block", "collect"):
            getattr(self.c, name).restype = ctypes.c_size_t
        self.c.ping_ns.restype = ctypes.c_double
        if local.case.fields > self.c.max_fields() or local.case.units > self.c.max_block():
            raise SystemExit("harness.c has no space for so many fields or units")
        size = self.c.shared_bytes() + LINE if comm.rank == 0 else 0
        self.window = MPI.Win.Allocate_shared(size, 1, comm=comm)
        memory, _ = self.window.Shared_query(0)
        if comm.rank == 0:
            np.frombuffer(memory, dtype=np.uint8)[:] = 0
        comm.Barrier()
        # MPI aligns to 8 bytes only. Both ranks find the same place, as mappings start at pages.
        aligned = -(-memory.address // LINE) * LINE
        self.c.open_shared(ctypes.c_void_p(aligned), comm.rank)
        self._describe(local)

    def masks(self, local: Local) -> tuple[np.ndarray, np.ndarray]:
        """Which cells are rewritten before a unit, and which are read in it."""
        return local.is_read(), ~local.is_owned()

    def _describe(self, local: Local) -> None:
        order, size = local.case.layout.upper(), ctypes.c_size_t
        self.runs = [_runs(mask.ravel(order=order)) for mask in self.masks(local)]
        rewritten, halo = ((ctypes.c_void_p(runs.ctypes.data), size(len(runs))) for runs in self.runs)
        self.c.describe(*rewritten, *halo)
        for field in local.fields:
            self.c.add_field(ctypes.c_void_p(field.ctypes.data))

    def block(self, begin: Exchange, exchange: Exchange, end: Exchange, units: int) -> np.ndarray:
        """The time of each unit over the slower rank, in nanoseconds."""
        self.c.restart()
        for _ in range(units):
            begin()
            exchange()
            end()
        ns = np.zeros(units)
        self.c.collect(ctypes.c_void_p(ns.ctypes.data))
        return ns


def _runs(mask: np.ndarray) -> np.ndarray:
    """First and number of each run of true."""
    edges = np.flatnonzero(np.diff(mask.astype(np.int8), prepend=0, append=0)).reshape(-1, 2)
    return np.stack([edges[:, 0], edges[:, 1] - edges[:, 0]], axis=1).astype(np.uintp)


def main(peer: str, version: str, prepare: Callable[[MPI.Comm, Local], Exchange], stagger: int = 0) -> None:
    """Verifies and times one case; rank 0 prints one JSON object. Arguments: case, path of harness.so, CPUs. Each field
    begins `stagger` cache lines further into a page than the field before (docs/memory.md)."""
    name, library, cpus = sys.argv[1:4]
    comm = MPI.COMM_WORLD
    if comm.size != RANKS:
        raise SystemExit(f"{peer}: {comm.size} ranks, the cases are for {RANKS}")
    os.sched_setaffinity(0, {int(cpus.split(",")[comm.rank])})
    case = by_name(name)
    local = Local(case, comm.rank, stagger)
    harness = Harness(library, comm, local)
    exchange = prepare(comm, local)
    _verify(peer, comm, local, exchange)

    c = harness.c
    local.fill(0)
    harness.block(c.unit_begin, exchange, c.unit_end, WARM_UP)
    before = c.ping_ns()
    ns = harness.block(c.unit_begin, exchange, c.unit_end, case.units)
    after = c.ping_ns()
    # Owned cells that nobody reads are not rewritten.
    _must_be_right(peer, comm, local, WARM_UP + case.units, ~local.is_owned())
    calls = harness.block(c.empty_begin, lambda: None, c.empty_end, 1000)
    if comm.rank == 0:
        result = {
            "contender": peer,
            "version": version,
            "case": case.name,
            "median_ns": max(0.0, float(np.median(ns) - np.median(calls))),
            "p99_ns": float(np.quantile(ns, 0.99)),
            "calls_ns": float(np.median(calls)),
            "ping_before_ns": before,
            "ping_after_ns": after,
            "iters": case.units,
            "verified": True,
        }
        print(json.dumps(result), flush=True)


def _verify(peer: str, comm: MPI.Comm, local: Local, exchange: Exchange) -> None:
    everything = np.ones(local.numbers.shape, dtype=bool)
    for epoch in range(1, EPOCHS_VERIFIED + 1):
        local.fill(1000 * epoch)
        comm.Barrier()
        exchange()
        comm.Barrier()
        _must_be_right(peer, comm, local, 1000 * epoch, everything)


def _must_be_right(peer: str, comm: MPI.Comm, local: Local, epoch: int, of: np.ndarray) -> None:
    wrong = comm.allreduce(local.wrong(epoch, of))
    if wrong:
        if comm.rank == 0:
            print(f"{peer}: {wrong} cells are wrong after an exchange of {local.case.name}", file=sys.stderr)
        raise SystemExit(3)
