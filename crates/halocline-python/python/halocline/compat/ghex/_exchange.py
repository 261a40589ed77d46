"""What structured and unstructured grids have in common: patterns, fields given to them, exchanges, handles."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from halocline import Field, HaloTypeError, HaloValueError, InFlightError, PatternLinks, Pending
from halocline import Pattern as CorePattern

from .context import context
from .util import Architecture

Fields = list[tuple[CorePattern, Field]]
Call = Callable[..., Pending]
"""``PatternLinks.exchange``, or another that begins one."""

IN_FLIGHT = 2
"""Exchanges of one pattern that may be in flight at once; one more waits for the first of them."""


class FieldDescriptor:
    """An array of a domain."""

    __slots__ = ("_domain", "_field", "_grid", "_origin")

    def __init__(self, domain: int, field: Field, grid: str, origin: Sequence[int] | None = None) -> None:
        self._domain, self._field, self._grid, self._origin = domain, field, grid, origin

    def _on(self, number: int) -> Field:
        return Field(self._field.array, domain=number, origin=self._origin)


def on_host(field: Any, arch: Architecture | None) -> None:
    """Refuses fields of GPUs."""
    if arch is Architecture.GPU or (
        hasattr(field, "__cuda_array_interface__") or hasattr(field, "__hip_array_interface__")
    ):
        raise HaloTypeError(
            "a field in the memory of a GPU: the interface of GHEX takes fields of the host here; "
            "bind those of GPUs once, with halocline.HaloExchange"
        )
    if arch is not None and arch is not Architecture.CPU:
        raise HaloTypeError(f"{arch!r} is no Architecture")


class _Lane:
    """Links of a pattern for one exchange in flight."""

    __slots__ = ("begun", "links")

    def __init__(self, links: PatternLinks) -> None:
        self.links = links
        self.begun = 0


class Pattern:
    """Which cells of the domains of this rank go where. Collective; made by ``make_pattern``.

    Exchanges take its lanes in turn, the same on all ranks, as they begin them in the same order.
    """

    domain_id_type = "int"

    _begins = itertools.count(1)

    def __init__(self, ctx: context, core: CorePattern, grid: str, numbers: dict[int, tuple[int, ...]]) -> None:
        """``numbers``: for the id of a domain of this rank, its numbers in the core's pattern."""
        self.grid_type = grid
        self._core, self._numbers, self._context = core, numbers, ctx
        self._lanes = [_Lane(PatternLinks(ctx._comm, [core])) for _ in range(IN_FLIGHT)]
        self._turn = 0
        self._lock = threading.Lock()
        ctx._patterns.add(self)

    def __call__(self, field: FieldDescriptor) -> BufferInfo:
        """The field, to be exchanged with this pattern."""
        if field.__class__ is not FieldDescriptor:
            raise HaloTypeError(f"{field!r} is no field descriptor: see make_field_descriptor")
        if field._grid is not self.grid_type:
            raise HaloTypeError(f"a field of a {field._grid} and a pattern of a {self.grid_type} do not go together")
        domain = field._domain
        numbers = self._numbers.get(domain)
        if numbers is None:
            here = sorted(self._numbers)
            raise HaloValueError(f"domain {domain} is not one of those of the pattern on this rank, which are {here}")
        if numbers == (domain,):
            return BufferInfo(self, ((self._core, field._field),))
        return BufferInfo(self, tuple((self._core, field._on(number)) for number in numbers))

    def _begin(self, call: Call, fields: Fields, options: dict[str, Any]) -> Pending:
        # A turn is taken by what has begun only: what is refused here is not begun by the others.
        with self._lock:
            lane = self._lanes[self._turn]
            try:
                pending = call(lane.links, fields, **options)
            except InFlightError:
                pending = self._begin_later(lane, call, fields, options)
            lane.begun = next(self._begins)
            self._turn = (self._turn + 1) % IN_FLIGHT
            return pending

    def _begin_later(self, lane: _Lane, call: Call, fields: Fields, options: dict[str, Any]) -> Pending:
        """Begins once those are over that the lane or the memory is in flight with, the oldest first."""
        lanes = [one for pattern in list(self._context._patterns) for one in pattern._lanes if one.begun]
        for earlier in sorted(lanes, key=lambda one: one.begun):
            earlier.links.wait()
            try:
                return call(lane.links, fields, **options)
            except InFlightError:
                continue
        return call(lane.links, fields, **options)


class BufferInfo:
    """A field with the pattern that it is exchanged with. It keeps both."""

    __slots__ = ("_fields", "_pattern")

    def __init__(self, pattern: Pattern, fields: tuple[tuple[CorePattern, Field], ...]) -> None:
        self._pattern, self._fields = pattern, fields


class CommunicationHandle:
    """One exchange. Dropping it leaves the exchange running, with all that it needs."""

    __slots__ = ("_pendings",)

    def __init__(self, pendings: Sequence[Pending]) -> None:
        self._pendings = pendings

    def wait(self) -> None:
        """Blocks until the halos are filled and the owned cells may be overwritten. Calling it again does nothing."""
        for pending in self._pendings:
            pending.wait()

    def is_ready(self) -> bool:
        """Whether ``wait`` would return at once. Never blocks."""
        return all([pending.is_ready() for pending in self._pendings])

    def progress(self) -> None:
        """Carries the exchange on as far as it goes now. Never blocks. (It also gets on by itself.)"""
        self.is_ready()

    def schedule_wait(self, stream: Any) -> None:
        """All work that the stream is given from now on runs after the exchange: blocks, since fields lie on the host."""
        for pending in self._pendings:
            pending.schedule_wait(stream)


class CommunicationObject:
    """What begins exchanges. All ranks begin those of a pattern in the same order, with as many fields of the same kinds.

    Several may be in flight, of the same object and of others. One that touches an array of an earlier one begins once that
    is over.
    """

    def __init__(self, ctx: context) -> None:
        if not isinstance(ctx, context):
            raise HaloTypeError(f"{ctx!r} is no context: see make_context")
        self._scheduled: CommunicationHandle | None = None

    def exchange(self, *buffers: BufferInfo | Iterable[BufferInfo]) -> CommunicationHandle:
        """Begins an exchange of fields that patterns were applied to: a list of them, or each as an argument."""
        return _begin(buffers, PatternLinks.exchange, {"wait": False})

    def schedule_exchange(self, stream: Any, *buffers: BufferInfo | Iterable[BufferInfo]) -> CommunicationHandle:
        """As ``exchange``: fields of the host have no stream, and begin at once. The stream is ``None``, or has
        ``__cuda_stream__`` or ``ptr``."""
        self._scheduled = _begin(buffers, PatternLinks.schedule_exchange, {"stream": stream})
        return self._scheduled

    def has_scheduled_exchange(self) -> bool:
        """Whether the last scheduled exchange is not over yet."""
        return self._scheduled is not None and not self._scheduled.is_ready()


def _begin(buffers: tuple[Any, ...], call: Call, options: dict[str, Any]) -> CommunicationHandle:
    if len(buffers) == 1 and buffers[0].__class__ is not BufferInfo:
        buffers = buffers[0]
    # By pattern, in the order in which each comes first.
    groups: dict[Pattern, Fields] = {}
    last = None
    try:
        for buffer in buffers:
            if buffer._pattern is not last:
                last = buffer._pattern
                fields = groups.setdefault(last, [])
            fields += buffer._fields
    except (AttributeError, TypeError):
        raise HaloTypeError(
            f"{buffers!r}: what patterns were applied to is wanted, pattern(field), or a list of such"
        ) from None
    return CommunicationHandle([pattern._begin(call, fields, options) for pattern, fields in groups.items()])
