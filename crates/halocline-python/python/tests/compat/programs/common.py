"""What the programs share. They are written for GHEX, and know nothing else.

``run(comm)`` returns what this rank found: all bytes of its fields go into it, so that two libraries that fill the same halos
find the same. ``comm`` has ``rank`` and ``size``, and is what ``make_context`` takes.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

DTYPES = [np.float64, np.float32, np.bool_, np.int32, np.int64]
UNTOUCHED = {"f": -7.0, "b": False, "i": -7}
"""What halo cells hold that no exchange fills, by the kind of the dtype."""


class Findings:
    """The fields of a rank after exchanges, all of which were right."""

    def __init__(self, comm: Any) -> None:
        self.comm = comm
        self.digest = hashlib.sha256()
        self.fields = 0

    def add(self, what: str, field: np.ndarray, expected: np.ndarray) -> None:
        wrong = np.argwhere(field != expected)
        if wrong.size:
            at = tuple(wrong[0])
            raise AssertionError(
                f"rank {self.comm.rank} of {self.comm.size}, {what}: {len(wrong)} of {field.size} elements are wrong, "
                f"element {at} is {field[at]}, not {expected[at]}"
            )
        self.digest.update(repr((what, field.shape, field.dtype.str)).encode())
        self.digest.update(np.ascontiguousarray(field).tobytes())
        self.fields += 1

    def __str__(self) -> str:
        return f"rank {self.comm.rank} of {self.comm.size}: {self.fields} fields right, {self.digest.hexdigest()[:16]}"


def values(numbers: np.ndarray, field: int, dtype: type) -> np.ndarray:
    """What the cells with these numbers hold: exact in every dtype, and different for neighbours, levels and fields."""
    mixed = (numbers.astype(np.int64) + 1) * 7919 + field * 104729
    if dtype is np.bool_:
        return (mixed // 7) % 2 == 1
    return (mixed % 8388593).astype(dtype)


def untouched(dtype: type) -> Any:
    return UNTOUCHED[np.dtype(dtype).kind]


def main(run: Callable[[Any], Findings]) -> None:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    findings = comm.gather(str(run(comm)))
    if comm.rank == 0:
        print(*findings, sep="\n")
        sys.stdout.flush()
