"""What structured and unstructured grids have in common: patterns, fields given to them, exchanges, handles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from halocline import Field, HaloTypeError, HaloValueError, InFlightError, PatternLinks, Pending
from halocline import Pattern as CorePattern
from halocline._core import _BufferInfo as BufferInfo
from halocline._core import _check_stream as check_stream
from halocline._core import _Exchanged as Exchanged
from halocline._core import _Exchanges as Exchanges
from halocline._core import _FieldDescriptor as FieldDescriptor
from halocline._core import _Lane as Lane
from halocline._core import _Tie as Tie

from ._bound import Bound, Fields
from .context import check_context, context
from .util import Architecture

__all__ = ["BufferInfo", "CommunicationObject", "FieldDescriptor", "Pattern", "placed"]

IN_FLIGHT = 2
"""Exchanges of one pattern that may be in flight at once; one more waits for the first of them."""

NAMES = {"patterns", "b", "b0", "b1", "b2"}
"""What GHEX calls the buffers of a scheduled exchange."""


def placed(field: Field, arch: Architecture | None) -> None:
    """Refuses fields that are not where they are said to be."""
    if arch is None or arch is (Architecture.CPU if field.device is None else Architecture.GPU):
        return
    if arch is Architecture.GPU:
        raise HaloTypeError("the field lies in the memory of the host, not of a GPU: arch is Architecture.CPU")
    if arch is Architecture.CPU:
        raise HaloTypeError(f"the field lies in the memory of GPU {field.device}: arch is Architecture.GPU")
    raise HaloTypeError(f"{arch!r} is no Architecture")


class Pattern(Exchanged):
    """Which cells of the domains of this rank go where. Collective; made by ``make_pattern``.

    Exchanges take its lanes in turn, the same on all ranks, as they begin them in the same order.
    """

    domain_id_type = "int"

    def __new__(cls, ctx: context, core: CorePattern, grid: str, numbers: dict[int, tuple[int, ...]]) -> Pattern:
        # Of the domains here: those that are one of the core's, of the same number.
        plain = [domain for domain, those in numbers.items() if those == (domain,)]
        lanes = [Lane(PatternLinks(ctx._comm, [core])) for _ in range(IN_FLIGHT)]
        return super().__new__(cls, core, grid, plain, lanes)

    def __init__(self, ctx: context, core: CorePattern, grid: str, numbers: dict[int, tuple[int, ...]]) -> None:
        """``numbers``: for the id of a domain of this rank, its numbers in the core's pattern."""
        self._numbers, self._context = numbers, ctx
        self._bound = Bound(ctx._comm.duplicate(), ctx._begun)
        ctx._begun.add_pattern(self)

    def __del__(self) -> None:
        lanes = [lane for lane in self._lanes if lane.begun]
        if lanes and hasattr(self, "_context"):
            # Appended, and no more: this may come amid anything, in any thread.
            self._context._begun.lanes.extend([lane for lane in lanes if not lane.is_over()])

    def _apply(self, field: FieldDescriptor) -> BufferInfo:
        """The field with this pattern, where that is not simple."""
        if field.__class__ is not FieldDescriptor:
            raise HaloTypeError(f"{field!r} is no field descriptor: see make_field_descriptor")
        if field._grid is not self.grid_type:
            raise HaloTypeError(f"a field of a {field._grid} and a pattern of a {self.grid_type} do not go together")
        numbers = self._numbers.get(field._domain)
        if numbers is None:
            raise HaloValueError(
                f"domain {field._domain} is not one of those of the pattern on this rank, which are {sorted(self._numbers)}"
            )
        array, origin = field._field.array, field._origin
        fields = [Field(array, domain=number, origin=origin) for number in numbers]
        return BufferInfo(self, fields, field._field.device is not None)

    def _begin_later(self, lane: Lane, fields: Fields) -> Pending:
        """Begins once those are over that the lane or the memory is in flight with, the oldest first."""
        for earlier in self._context._begun.in_flight():
            earlier.wait()
            try:
                return lane.begin(fields)
            except InFlightError:
                continue
        return lane.begin(fields)


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

    __slots__ = ("_pendings", "_tie")

    def __init__(self, pendings: Sequence[CommunicationHandle]) -> None:
        self._pendings = pendings
        self._tie: Tie | None = None

    def wait(self) -> None:
        for pending in self._pendings:
            pending.wait()
        if self._tie is not None:
            self._tie.end()

    def is_ready(self) -> bool:
        ready = all([pending.is_ready() for pending in self._pendings])
        if ready and self._tie is not None:
            self._tie.end()
        return ready

    def progress(self) -> None:
        for pending in self._pendings:
            pending.progress()

    def schedule_wait(self, stream: Any) -> None:
        for pending in self._pendings:
            pending.schedule_wait(stream)
        if self._tie is not None:
            self._tie.schedule()


class CommunicationObject(Exchanges):
    """What begins exchanges. All ranks begin those of a pattern in the same order, with as many fields of the same kinds.

    Several may be in flight, of the same object and of others. One that touches an array of an earlier one begins once that
    is over.
    """

    def __init__(self, ctx: context) -> None:
        check_context(ctx)

    def schedule_exchange(
        self, stream: Any, *buffers: BufferInfo | Iterable[BufferInfo], **named: BufferInfo | Iterable[BufferInfo]
    ) -> CommunicationHandle:
        """As ``exchange``, after the work that the stream was given before; fields of the host have no stream, and begin at once.
        The stream is ``None``, or has ``__cuda_stream__`` or ``ptr``. By name as in GHEX: ``patterns`` is a list, ``b`` or
        ``b0`` to ``b2`` are single ones."""
        check_stream(stream)
        if named:
            if unknown := named.keys() - NAMES:
                raise HaloTypeError(f"schedule_exchange has no arguments {sorted(unknown)}; those it has are {sorted(NAMES)}")
            buffers += tuple(named[name] for name in sorted(named))
        handle: CommunicationHandle = self._begin(buffers, (stream,))
        return handle

    def has_scheduled_exchange(self) -> bool:
        """Whether ``schedule_wait`` was called for the last exchange: until ``wait`` has returned, ``is_ready`` was true, or the next
        exchange begins."""
        return super().has_scheduled_exchange()


def _begin(buffers: Any, streams: tuple[Any, ...] = ()) -> CommunicationHandle:
    if len(buffers) == 1 and buffers[0].__class__ is not BufferInfo:
        buffers = buffers[0]
    try:
        pattern, fields, others, on_device = None, [], [], False
        for buffer in buffers:
            if pattern is None:
                pattern = buffer._pattern
            if buffer._pattern is pattern:
                fields += buffer._fields
                on_device |= buffer._on_device
            else:
                # Those of other patterns than the first one are exchanged beside.
                others.append(buffer)
    except (AttributeError, TypeError):
        raise HaloTypeError(
            f"{buffers!r}: what patterns were applied to is wanted, pattern(field), or a list of such"
        ) from None
    if pattern is None:
        return _Several([])
    pending = pattern._bound.begin(fields, streams) if on_device else pattern._begin(fields)
    return pending if not others else _Several([pending, _begin(others, streams)])
