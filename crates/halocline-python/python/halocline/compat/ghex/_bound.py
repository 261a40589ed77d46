"""Exchanges of GPU fields where a peer is out of reach for the GPU: on another node, for example. A set of fields is bound at its first
exchange, and the bound object is used again later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from halocline import Communicator, Field, HaloError, HaloExchange, InFlightError, Pending
from halocline import Pattern as CorePattern
from halocline._core import _CallLock

from .context import _Begun, forget

Fields = Sequence[tuple[CorePattern, Field]]

REMEMBERED = 8
"""How many sets of fields of a pattern stay bound, which keeps their arrays alive."""

# Above the numbers of all binds.
_MOST = 1 << 62


def _is_over(pending: Pending) -> bool:
    try:
        return pending._is_over()
    except HaloError:
        # It has failed; a wait for it raises the error.
        return True


class Bound:
    """The bound sets of fields of a pattern.

    A rank may have dropped a bound object that another still has. So ranks compare, in one round of messages for each exchange, which object
    they would use; unless all have the same, all bind anew.
    """

    def __init__(self, comm: Communicator, begun: _Begun) -> None:
        """``begun``: all exchanges that the rank may have in flight."""
        self._comm, self._begun = comm, begun
        # The latest last. Binds are collective, so their numbers mean the same on all ranks.
        self._known: dict[Any, tuple[int, HaloExchange]] = {}
        self._binds = 0
        self._lock = _CallLock("an exchange of a pattern")

    def begin(self, fields: Fields, streams: tuple[Any, ...]) -> Pending:
        """Starts an exchange, after all earlier work of the streams. Collective."""
        with self._lock:
            halo = self._find(fields)
            begun = self._begun
            while True:
                with begun.lock:
                    try:
                        pending = halo.schedule_exchange(*streams) if streams else halo.exchange(wait=False)
                    except InFlightError:
                        # Too many are in flight, or another exchange uses the memory: wait for the oldest.
                        if not begun.pendings:
                            raise
                        oldest = begun.pendings[0]
                    else:
                        forget(begun.pendings, [earlier for earlier in begun.pendings if _is_over(earlier)])
                        begun.pendings.append(pending)
                        return pending
                # It stays listed until it is over, so that other threads can wait for it, too.
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
