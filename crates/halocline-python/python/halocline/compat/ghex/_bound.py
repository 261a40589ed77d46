"""Exchanges of fields in the memory of GPUs: fields are bound when they first meet a pattern together, and found again later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from halocline import Communicator, Field, HaloError, HaloExchange, InFlightError, Pending
from halocline import Pattern as CorePattern
from halocline._core import _Alone

from .context import _Begun, forget

Fields = Sequence[tuple[CorePattern, Field]]

REMEMBERED = 8
"""Sets of fields of one pattern that stay bound, and so are kept alive."""

# Above all numbers of what was bound.
_MOST = 1 << 62


def _is_over(pending: Pending) -> bool:
    try:
        return pending._is_over()
    except HaloError:
        # It has failed, which whoever waits for it is told.
        return True


class Bound:
    """The fields that were exchanged with a pattern, bound.

    Which of them an exchange takes the ranks agree on by one round of messages, since what one remembers another may have
    forgotten: if they do not all have the same, all bind.
    """

    def __init__(self, comm: Communicator, begun: _Begun) -> None:
        """``begun``: what the rank may have in flight, here and elsewhere."""
        self._comm, self._begun = comm, begun
        # The latest last. Numbers count binds, which are collective: so they mean the same on all ranks.
        self._known: dict[Any, tuple[int, HaloExchange]] = {}
        self._binds = 0
        self._alone = _Alone("an exchange of a pattern")

    def begin(self, fields: Fields, streams: tuple[Any, ...]) -> Pending:
        """Begins an exchange: after the work that the streams were given, if there are any. Collective."""
        with self._alone:
            halo = self._find(fields)
            begun = self._begun
            while True:
                with begun.lock:
                    try:
                        pending = halo.schedule_exchange(*streams) if streams else halo.exchange(wait=False)
                    except InFlightError:
                        # The lane is full, or the memory is in flight with other fields: the oldest ends first.
                        if not begun.pendings:
                            raise
                        oldest = begun.pendings[0]
                    else:
                        forget(begun.pendings, [earlier for earlier in begun.pendings if _is_over(earlier)])
                        begun.pendings.append(pending)
                        return pending
                # It stays in the list until it is over: so it is found by other threads that it is in the way of.
                try:
                    oldest.wait()
                finally:
                    with begun.lock:
                        forget(begun.pendings, [oldest])

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
