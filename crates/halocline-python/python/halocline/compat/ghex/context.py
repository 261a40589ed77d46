"""The ranks of patterns and exchanges."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable
from typing import Any

from halocline import HaloTypeError
from halocline._given import gather

from ._mpi import mpi_comm

__all__ = ["context", "make_context"]

# As classes have a parameter and a method of that name.
_mpi_comm = mpi_comm


def forget(kept: list[Any], over: list[Any]) -> None:
    """Takes some out of a list, which a signal handler may have taken out."""
    for one in over:
        with contextlib.suppress(ValueError):
            kept.remove(one)


class _Begun:
    """What a rank, which is a thread here, may have in flight, whatever it was made with. Other threads may exchange for it."""

    def __init__(self) -> None:
        # Held by nobody who waits for another rank; by a signal handler amid what its thread holds it for.
        self.lock = threading.RLock()
        self.patterns: weakref.WeakSet[Any] = weakref.WeakSet()
        # Of patterns that nobody holds any more. Appended to without the lock.
        self.lanes: list[Any] = []
        # Of fields of GPUs, the oldest first.
        self.pendings: list[Any] = []

    def add_pattern(self, pattern: Any) -> None:
        """One more pattern. What is over of those before is forgotten."""
        with self.lock:
            forget(self.lanes, [lane for lane in self.lanes if lane.is_over()])
            self.patterns.add(pattern)

    def in_flight(self) -> list[Any]:
        """The lanes that have begun an exchange, in the order of their last ones."""
        with self.lock:
            lanes = [lane for pattern in list(self.patterns) for lane in pattern._lanes if lane.begun]
        return sorted(lanes + self.lanes, key=lambda lane: lane.begun)


_OF_THREAD = threading.local()


def _begun() -> _Begun:
    if not hasattr(_OF_THREAD, "begun"):
        _OF_THREAD.begun = _Begun()
    found: _Begun = _OF_THREAD.begun
    return found


def check_context(ctx: Any) -> None:
    """Refuses what is no context."""
    if not isinstance(ctx, context):
        raise HaloTypeError(f"{ctx!r} is no context: see make_context")


class context:
    """Ranks that make patterns together. Collective; all ranks of the communicator make one."""

    def __init__(self, mpi_comm: mpi_comm, thread_safe: bool = False) -> None:
        if not isinstance(mpi_comm, _mpi_comm):
            raise HaloTypeError(f"{mpi_comm!r} is no mpi_comm: see make_context, which takes communicators")
        self._given = mpi_comm
        self._comm = mpi_comm._join()
        self._begun = _begun()

    def rank(self) -> int:
        """This rank."""
        return self._comm.rank

    def size(self) -> int:
        """The number of ranks."""
        return self._comm.size

    def mpi_comm(self) -> mpi_comm:
        """The communicator that it was made with."""
        return self._given

    def _gather(self, say: Callable[[], Any]) -> list[Any]:
        """What every rank says. If that is an error on one, it is an error on all. Collective."""
        return gather(self._comm, say)

    def __repr__(self) -> str:
        return f"<ghex.context: {self._given!r}, rank {self.rank()} of {self.size()}>"


def make_context(comm: Any, thread_safe: bool = False) -> context:
    """The context of a communicator of mpi4py (or of Halocline). Collective.

    ``thread_safe``: several threads may always exchange, as long as what they begin with one pattern comes in the same order
    on all ranks.
    """
    return context(mpi_comm(comm), thread_safe)
