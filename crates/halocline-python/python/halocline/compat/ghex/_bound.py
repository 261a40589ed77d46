"""Exchanges of fields in the memory of GPUs: fields are bound when they first meet a pattern together, and found again later."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from halocline import Communicator, Field, HaloExchange, InFlightError, Pending
from halocline import Pattern as CorePattern

Fields = Sequence[tuple[CorePattern, Field]]

REMEMBERED = 8
"""Sets of fields of one pattern that stay bound, and so are kept alive."""

# Above all numbers of what was bound.
_MOST = 1 << 62


class Bound:
    """The fields that were exchanged with a pattern, bound.

    Which of them an exchange takes the ranks agree on by one round of messages, since what one remembers another may have
    forgotten: if they do not all have the same, all bind.
    """

    def __init__(self, comm: Communicator, begun: list[Pending]) -> None:
        """``begun``: what the rank may have in flight, here and elsewhere, the oldest first."""
        self._comm, self._begun = comm, begun
        # The latest last. Numbers count binds, which are collective: so they mean the same on all ranks.
        self._known: dict[Any, tuple[int, HaloExchange]] = {}
        self._binds = 0
        self._lock = threading.Lock()

    def begin(self, fields: Fields, streams: tuple[Any, ...]) -> Pending:
        """Begins an exchange: after the work that the streams were given, if there are any. Collective."""
        with self._lock:
            halo = self._find(fields)
            while True:
                try:
                    pending = halo.schedule_exchange(*streams) if streams else halo.exchange(wait=False)
                except InFlightError:
                    # The lane is full, or the memory is in flight with other fields: the oldest ends first.
                    if not self._begun:
                        raise
                    self._begun.pop(0).wait()
                    continue
                self._begun[:] = [earlier for earlier in self._begun if not earlier.is_ready()]
                self._begun.append(pending)
                return pending

    def _find(self, fields: Fields) -> HaloExchange:
        key = tuple(field._key for _, field in fields)
        number, halo = self._known.pop(key, (0, None))
        highest, lowest = self._comm.all_reduce([number, _MOST - number], "max")
        if halo is None or highest + lowest != _MOST:
            self._binds += 1
            number, halo = self._binds, HaloExchange(self._comm, list(fields))
        self._known[key] = number, halo
        if len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]
        return halo
