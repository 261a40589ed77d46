"""Checked mode of ``halocline.torch``."""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import Communicator, HaloError

if TYPE_CHECKING:
    from torch import Tensor


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

    def call(self, kind: str, axes: list[list[int]], tensors: Sequence[Tensor], needs_grad: bool) -> str:
        """Of a call. Returns its name."""
        self._calls += 1
        label = f"{kind} {self._calls} of {self._name}"
        fields = [
            [str(tensor.dtype), [extent for axis, extent in enumerate(tensor.shape) if axis not in along]]
            for along, tensor in zip(axes, tensors)
        ]
        self.compare(label, [fields, "a gradient" if needs_grad else "no gradient"])
        return label

    def compare(self, label: str, details: list[Any]) -> None:
        """Raises an error on all ranks if they differ."""
        gathered = self._comm.all_gather(json.dumps([label, *details]).encode())
        for rank, theirs in enumerate(gathered):
            if theirs != gathered[0]:
                first, other = (", ".join(map(str, json.loads(said))) for said in (gathered[0], theirs))
                raise HaloError(
                    f"ranks are in different operations: rank 0 in {first}; rank {rank} in {other}. Make the same calls in the same "
                    "order on all ranks, with gradients on all ranks or on none, and let the loss of each rank depend on each call"
                )
