"""Checked mode of ``halocline.torch`` and ``halocline.jax``: the ranks compare their calls and backward passes."""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Sequence
from typing import Any

from . import Communicator, HaloError


class Check:
    """Compares what the ranks do before they do it."""

    # All objects of a communicator compare through one of its duplicates, so that calls of different objects meet. With it the number of
    # these objects.
    _duplicates: weakref.WeakKeyDictionary[Communicator, tuple[Communicator, int]] = weakref.WeakKeyDictionary()
    _guard = threading.Lock()

    def __init__(self, comm: Communicator, deadline: float | None, name: str | None) -> None:
        with self._guard:
            duplicate, number = self._duplicates.get(comm) or (comm.duplicate(), 0)
            self._duplicates[comm] = duplicate, number + 1
        self._comm = duplicate if deadline is None else duplicate.with_deadline(deadline)
        self._name = f"object {number + 1}" if name is None else f"{name} (object {number + 1})"
        self._calls = 0

    def label(self, kind: str) -> str:
        """The name of the next call."""
        self._calls += 1
        return f"{kind} {self._calls} of {self._name}"

    def compare(self, label: str, details: list[Any]) -> None:
        """Raises an error on all ranks if they differ. Collective."""
        gathered = self._comm.all_gather(json.dumps([label, *details]).encode())
        for rank, theirs in enumerate(gathered):
            if theirs != gathered[0]:
                first, other = (", ".join(map(str, json.loads(said))) for said in (gathered[0], theirs))
                raise HaloError(
                    f"ranks are in different operations: rank 0 in {first}; rank {rank} in {other}. Make the same calls in the same "
                    "order on all ranks, with gradients on all ranks or on none, and let the loss of each rank depend on each call"
                )


def described(axes: list[list[int]], arrays: Sequence[Any]) -> list[Any]:
    """What must be the same on all ranks: the element types, and the extents of what belongs to each cell."""
    return [
        [str(array.dtype), [extent for axis, extent in enumerate(array.shape) if axis not in along]]
        for along, array in zip(axes, arrays)
    ]
