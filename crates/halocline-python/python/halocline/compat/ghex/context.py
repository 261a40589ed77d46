"""Contexts: the ranks that make patterns and exchanges together."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable
from typing import Any

from halocline import HaloTypeError
from halocline._arguments import gather

from ._mpi import mpi_comm

__all__ = ["context", "make_context"]

# As classes have a parameter and a method of that name.
_mpi_comm = mpi_comm


def forget(kept: list[Any], over: list[Any]) -> None:
    """Removes items from a list; a signal handler may have removed them already."""
    for one in over:
        with contextlib.suppress(ValueError):
            kept.remove(one)


class _Begun:
    """The exchanges that a rank may have in flight, of all its patterns. Several threads may exchange for a rank."""

    def __init__(self) -> None:
        # Never held while waiting for another rank. Reentrant for signal handlers.
        self.lock = threading.RLock()
        self.patterns: weakref.WeakSet[Any] = weakref.WeakSet()
        # Slots of dropped patterns. Finalisers append without the lock.
        self.slots: list[Any] = []
        # Exchanges of GPU fields, the oldest first.
        self.pendings: list[Any] = []

    def add_pattern(self, pattern: Any) -> None:
        """Adds a pattern, and forgets dropped patterns whose exchanges are over."""
        with self.lock:
            forget(self.slots, [slot for slot in self.slots if slot.is_over()])
            self.patterns.add(pattern)

    def in_flight(self) -> list[Any]:
        """The used slots, in the order of their last exchanges."""
        with self.lock:
            slots = [slot for pattern in list(self.patterns) for slot in pattern._link_slots if slot.begun]
        return sorted(slots + self.slots, key=lambda slot: slot.begun)


_OF_THREAD = threading.local()


def _begun() -> _Begun:
    if not hasattr(_OF_THREAD, "begun"):
        _OF_THREAD.begun = _Begun()
    found: _Begun = _OF_THREAD.begun
    return found


def check_context(ctx: Any) -> None:
    """Refuses an object that is no context."""
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
        """The communicator that the context was made with."""
        return self._given

    def _gather(self, say: Callable[[], Any]) -> list[Any]:
        """Gathers a value of each rank. An error on one rank is an error on all. Collective."""
        return gather(self._comm, say)

    def __repr__(self) -> str:
        return f"<ghex.context: {self._given!r}, rank {self.rank()} of {self.size()}>"


def make_context(comm: Any, thread_safe: bool = False) -> context:
    """Makes the context of a communicator of mpi4py or Halocline. Collective.

    ``thread_safe``: several threads may always exchange, as long as what they begin with one pattern comes in the same order
    on all ranks.
    """
    return context(mpi_comm(comm), thread_safe)
