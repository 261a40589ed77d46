"""What structured and unstructured grids have in common: patterns, fields given to them, exchanges, handles."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from halocline import Field, HaloTypeError, HaloValueError, InFlightError, PatternLinks, Pending
from halocline import Pattern as CorePattern

from ._bound import Bound, Fields
from .context import context
from .util import Architecture

# All that have begun, to know which was earlier.
_COUNT = itertools.count(1)

IN_FLIGHT = 2
"""Exchanges of one pattern that may be in flight at once; one more waits for the first of them."""


class FieldDescriptor:
    """An array of a domain."""

    __slots__ = ("_domain", "_field", "_grid", "_origin")

    def __init__(self, domain: int, field: Field, grid: str, origin: Sequence[int] | None = None) -> None:
        self._domain, self._field, self._grid, self._origin = domain, field, grid, origin

    def _on(self, number: int) -> Field:
        return Field(self._field.array, domain=number, origin=self._origin)


def placed(field: Field, arch: Architecture | None) -> None:
    """Refuses fields that are not where they are said to be."""
    if arch is not None and not isinstance(arch, Architecture):
        raise HaloTypeError(f"{arch!r} is no Architecture")
    if arch is Architecture.GPU and field.device is None:
        raise HaloTypeError("the field lies in the memory of the host, not of a GPU: arch is Architecture.CPU")
    if arch is Architecture.CPU and field.device is not None:
        raise HaloTypeError(f"the field lies in the memory of GPU {field.device}: arch is Architecture.GPU")


class _Lane:
    """Links of a pattern for one exchange in flight."""

    __slots__ = ("after", "begin", "begun", "is_over", "schedule", "wait")

    def __init__(self, links: PatternLinks) -> None:
        exchange: Any = links.exchange
        self.begin: Callable[[Fields], Pending] = functools.partial(exchange, wait=False)
        self.schedule = links.schedule_exchange
        self.wait = links.wait
        self.is_over = links.reclaim
        self.after = self
        self.begun = 0


class Pattern:
    """Which cells of the domains of this rank go where. Collective; made by ``make_pattern``.

    Exchanges take its lanes in turn, the same on all ranks, as they begin them in the same order.
    """

    domain_id_type = "int"

    def __init__(self, ctx: context, core: CorePattern, grid: str, numbers: dict[int, tuple[int, ...]]) -> None:
        """``numbers``: for the id of a domain of this rank, its numbers in the core's pattern."""
        self.grid_type = grid
        self._core, self._numbers, self._context = core, numbers, ctx
        # Of the domains here: those that are one of the core's, of the same number.
        self._plain = frozenset(domain for domain, those in numbers.items() if those == (domain,))
        self._lanes = [_Lane(PatternLinks(ctx._comm, [core])) for _ in range(IN_FLIGHT)]
        for lane, after in zip(self._lanes, self._lanes[1:] + self._lanes[:1]):
            lane.after = after
        self._lane = self._lanes[0]
        self._bound = Bound(ctx._comm.duplicate(), ctx._begun.pendings)
        self._lock = threading.Lock()
        ctx._begun.patterns.add(self)

    def __del__(self) -> None:
        lanes = [lane for lane in getattr(self, "_lanes", ()) if lane.begun]
        if lanes:
            begun = self._context._begun
            begun.lanes = [lane for lane in begun.lanes + lanes if not lane.is_over()]

    def __call__(self, field: FieldDescriptor) -> BufferInfo:
        """The field, to be exchanged with this pattern."""
        if field.__class__ is not FieldDescriptor:
            raise HaloTypeError(f"{field!r} is no field descriptor: see make_field_descriptor")
        if field._grid is not self.grid_type:
            raise HaloTypeError(f"a field of a {field._grid} and a pattern of a {self.grid_type} do not go together")
        info = BufferInfo if field._field.device is None else DeviceBufferInfo
        if field._domain in self._plain:
            return info(self, ((self._core, field._field),))
        numbers = self._numbers.get(field._domain)
        if numbers is None:
            raise HaloValueError(
                f"domain {field._domain} is not one of those of the pattern on this rank, which are {sorted(self._numbers)}"
            )
        return info(self, tuple((self._core, field._on(number)) for number in numbers))

    def _begin(self, fields: Fields, streams: tuple[Any, ...] = ()) -> Pending:
        # A turn is taken by what has begun only: what is refused here is not begun by the others.
        with self._lock:
            lane = self._lane
            try:
                pending = lane.schedule(fields, *streams) if streams else lane.begin(fields)
            except InFlightError:
                pending = self._begin_later(lane, fields)
            lane.begun = next(_COUNT)
            self._lane = lane.after
            return pending

    def _begin_later(self, lane: _Lane, fields: Fields) -> Pending:
        """Begins once those are over that the lane or the memory is in flight with, the oldest first."""
        begun = self._context._begun
        lanes = [one for pattern in list(begun.patterns) for one in pattern._lanes if one.begun]
        for earlier in sorted(lanes + begun.lanes, key=lambda one: one.begun):
            earlier.wait()
            try:
                return lane.begin(fields)
            except InFlightError:
                continue
        return lane.begin(fields)


class BufferInfo:
    """A field with the pattern that it is exchanged with. It keeps both."""

    __slots__ = ("_fields", "_pattern")

    def __init__(self, pattern: Pattern, fields: tuple[tuple[CorePattern, Field], ...]) -> None:
        self._pattern, self._fields = pattern, fields


class DeviceBufferInfo(BufferInfo):
    """Of a field in the memory of a GPU."""

    __slots__ = ()


class CommunicationHandle(Protocol):
    """One exchange. Dropping it leaves the exchange running, with all that it needs."""

    def wait(self) -> None:
        """Blocks until the halos are filled and the owned cells may be overwritten. Calling it again does nothing."""

    def is_ready(self) -> bool:
        """Whether ``wait`` would return at once. Never blocks."""

    def progress(self) -> None:
        """Carries the exchange on as far as it goes now. Never blocks. (It also gets on by itself.)"""

    def schedule_wait(self, stream: Any) -> None:
        """All work that the stream is given from now on runs after the exchange. Blocks for fields of the host only."""


class _Several:
    """One exchange of fields of several patterns, or of none."""

    __slots__ = ("_pendings",)

    def __init__(self, pendings: Sequence[CommunicationHandle]) -> None:
        self._pendings = pendings

    def wait(self) -> None:
        for pending in self._pendings:
            pending.wait()

    def is_ready(self) -> bool:
        return all([pending.is_ready() for pending in self._pendings])

    def progress(self) -> None:
        for pending in self._pendings:
            pending.progress()

    def schedule_wait(self, stream: Any) -> None:
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
        return _begin(buffers)

    def schedule_exchange(self, stream: Any, *buffers: BufferInfo | Iterable[BufferInfo]) -> CommunicationHandle:
        """As ``exchange``, after the work that the stream was given before; fields of the host have no stream, and begin at once.
        The stream is ``None``, or has ``__cuda_stream__`` or ``ptr``."""
        self._scheduled = _begin(buffers, (stream,))
        return self._scheduled

    def has_scheduled_exchange(self) -> bool:
        """Whether the last scheduled exchange is not over yet."""
        return self._scheduled is not None and not self._scheduled.is_ready()


def _begin(buffers: Any, streams: tuple[Any, ...] = ()) -> CommunicationHandle:
    if len(buffers) == 1:
        first = buffers[0]
        if first.__class__ is BufferInfo:
            pending: Pending = first._pattern._begin(first._fields, streams)
            return pending
        buffers = buffers if first.__class__ is DeviceBufferInfo else first
    try:
        pattern, fields, others, on_device = None, [], [], False
        for buffer in buffers:
            on_device |= buffer.__class__ is DeviceBufferInfo
            if buffer._pattern is pattern:
                fields += buffer._fields
            elif pattern is None:
                pattern, fields = buffer._pattern, [*buffer._fields]
            else:
                # Those of other patterns than the first one are exchanged beside.
                others.append(buffer)
    except (AttributeError, TypeError):
        raise HaloTypeError(
            f"{buffers!r}: what patterns were applied to is wanted, pattern(field), or a list of such"
        ) from None
    if pattern is None:
        return _Several([])
    pending = pattern._bound.begin(fields, streams) if on_device else pattern._begin(fields, streams)
    return pending if not others else _Several([pending, _begin(others, streams)])
