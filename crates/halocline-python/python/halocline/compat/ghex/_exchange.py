"""Patterns, buffers, exchanges and handles, for structured and unstructured grids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from halocline import (
    CommunicatorError,
    Field,
    HaloError,
    HaloTypeError,
    HaloValueError,
    InFlightError,
    PatternLinks,
    Pending,
    UnreachableError,
)
from halocline import Pattern as CorePattern
from halocline._core import _BufferInfo as BufferInfo
from halocline._core import _CallLock
from halocline._core import _check_stream as check_stream
from halocline._core import _PatternBase as PatternBase
from halocline._core import _CommunicationBase as CommunicationBase
from halocline._core import _FieldDescriptor as FieldDescriptor
from halocline._core import _LinkSlot as LinkSlot
from halocline._core import _ScheduledState as ScheduledState

from ._bound import Bound, Fields
from .context import check_context, context
from .util import Architecture

__all__ = ["BufferInfo", "CommunicationObject", "FieldDescriptor", "Pattern", "placed"]

IN_FLIGHT = 2
"""How many exchanges of a pattern may be in flight; one more waits for the oldest."""

NAMES = {"patterns", "b", "b0", "b1", "b2"}
"""GHEX's names for the buffers of a scheduled exchange."""


def placed(field: Field, arch: Architecture | None) -> None:
    """Refuses a field that is not in the memory that ``arch`` names."""
    if arch is None or arch is (Architecture.CPU if field.device is None else Architecture.GPU):
        return
    if arch is Architecture.GPU:
        raise HaloTypeError("arch: the field is in host memory, not on a GPU; give Architecture.CPU")
    if arch is Architecture.CPU:
        raise HaloTypeError(f"arch: the field is in memory of GPU {field.device}; give Architecture.GPU")
    raise HaloTypeError(f"arch: {arch!r} is no Architecture; give Architecture.CPU or Architecture.GPU")


class Pattern(PatternBase):
    """Which cells the domains of this rank exchange with which others. Made by ``make_pattern``; collective.

    Exchanges use the link slots in turn. All ranks use the same slot, since they start exchanges in the same order.
    """

    domain_id_type = "int"

    def __new__(cls, ctx: context, core: CorePattern, grid: str, numbers: dict[int, tuple[int, ...]]) -> Pattern:
        # The domains of this rank that are a domain of the core with the same number.
        plain = [domain for domain, those in numbers.items() if those == (domain,)]
        slots = [LinkSlot(PatternLinks(ctx._comm, [core])) for _ in range(IN_FLIGHT)]
        return super().__new__(cls, core, grid, plain, slots)

    def __init__(self, ctx: context, core: CorePattern, grid: str, numbers: dict[int, tuple[int, ...]]) -> None:
        """``numbers``: the numbers in the core's pattern, by the id of each domain of this rank."""
        self._numbers, self._context = numbers, ctx
        self._bound: Bound | None = None
        self._making = _CallLock("the first exchange of GPU fields of a pattern")
        ctx._begun.add_pattern(self)

    def __del__(self) -> None:
        slots = [slot for slot in self._link_slots if slot.begun]
        if slots and hasattr(self, "_context"):
            # Only append: a finaliser may run in any thread, in the middle of any call.
            self._context._begun.slots.extend([slot for slot in slots if not slot.is_over()])

    def _apply(self, field: FieldDescriptor) -> BufferInfo:
        """Applies the pattern to a field of a domain that is several domains of the core."""
        if field.__class__ is not FieldDescriptor:
            raise HaloTypeError(f"{field!r} is no field descriptor: see make_field_descriptor")
        if field._grid is not self.grid_type:
            raise HaloTypeError(f"the field is of a {field._grid}, the pattern of a {self.grid_type}; give a field of the same kind of grid")
        numbers = self._numbers.get(field._domain)
        if numbers is None:
            raise HaloValueError(
                f"the pattern has no domain {field._domain} on this rank; it has {sorted(self._numbers)}"
            )
        array, origin = field._field.array, field._origin
        fields = [Field(array, domain=number, origin=origin) for number in numbers]
        return BufferInfo(self, fields, field._field.device is not None)

    def _begin_given(self, fields: Fields, streams: tuple[Any, ...]) -> Pending:
        """Starts an exchange of GPU fields, after all earlier work of the streams. The first one of a pattern makes its links:
        collective."""
        if self._device_links is None and self._bound is None:
            with self._making:
                if self._device_links is None and self._bound is None:
                    self._make_links({field.device for _, field in fields})
        if self._bound is not None:
            return self._bound.begin(fields, streams)
        pending: Pending = self._begin_on_device(fields, streams)
        return pending

    def _make_links(self, devices: set[int | None]) -> None:
        """Makes the links of GPU fields, unless a peer is out of reach for the GPU of a rank, or a rank has fields of several GPUs: then all
        ranks bind each set of fields."""
        comm = self._context._comm
        if comm.all_reduce([len(devices)], "max") == [1]:
            links: PatternLinks | HaloError
            try:
                links = PatternLinks(comm, [self._core], device=devices.pop())
            except CommunicatorError:
                raise
            except HaloError as refusal:
                links = refusal
            # What else is refused is no reason to bind.
            if comm.all_reduce([int(isinstance(links, UnreachableError))], "max") == [0]:
                if isinstance(links, HaloError):
                    raise links
                self._use_on_devices(links)
                return
        self._bound = Bound(comm.duplicate(), self._context._begun)

    def _begin_later(self, slot: LinkSlot, fields: Fields) -> Pending:
        """Starts an exchange after waiting, oldest first, for those that use the slot or the memory."""
        for earlier in self._context._begun.in_flight():
            earlier.wait()
            try:
                return slot.begin(fields)
            except InFlightError:
                continue
        return slot.begin(fields)


class CommunicationHandle(Protocol):
    """One exchange. Dropping the handle leaves the exchange running and keeps its memory alive."""

    def wait(self) -> None:
        """Blocks until the halos are filled and the owned cells may be overwritten. Calling it again does nothing."""

    def is_ready(self) -> bool:
        """Whether ``wait`` would return at once. Never blocks."""

    def progress(self) -> None:
        """Advances the exchange without blocking. (It also progresses by itself.)"""

    def schedule_wait(self, stream: Any) -> None:
        """Later work of the stream runs after the exchange. Blocks for host fields only."""


class _Several:
    """One exchange of fields of several patterns, or of none."""

    __slots__ = ("_pendings", "_scheduled_state")

    def __init__(self, pendings: Sequence[CommunicationHandle]) -> None:
        self._pendings = pendings
        self._scheduled_state: ScheduledState | None = None

    def wait(self) -> None:
        for pending in self._pendings:
            pending.wait()
        if self._scheduled_state is not None:
            self._scheduled_state.end()

    def is_ready(self) -> bool:
        ready = all([pending.is_ready() for pending in self._pendings])
        if ready and self._scheduled_state is not None:
            self._scheduled_state.end()
        return ready

    def progress(self) -> None:
        for pending in self._pendings:
            pending.progress()

    def schedule_wait(self, stream: Any) -> None:
        for pending in self._pendings:
            pending.schedule_wait(stream)
        if self._scheduled_state is not None:
            self._scheduled_state.schedule()


class CommunicationObject(CommunicationBase):
    """Starts exchanges. All ranks start those of a pattern in the same order, with equally many fields of the same kinds.

    Several exchanges may be in flight, also of other objects. An exchange of an array that is in flight first waits for the
    earlier one.
    """

    def __init__(self, ctx: context) -> None:
        check_context(ctx)

    def schedule_exchange(
        self, stream: Any, *buffers: BufferInfo | Iterable[BufferInfo], **named: BufferInfo | Iterable[BufferInfo]
    ) -> CommunicationHandle:
        """As ``exchange``, after all earlier work of the stream; host fields start at once. The stream is ``None``, or has
        ``__cuda_stream__`` or ``ptr``. Buffers may be given by GHEX's names: ``patterns`` (a list), or ``b``, ``b0`` to ``b2``."""
        check_stream(stream)
        if named:
            if unknown := named.keys() - NAMES:
                raise HaloTypeError(f"schedule_exchange has no arguments {sorted(unknown)}; its arguments are {sorted(NAMES)}")
            buffers += tuple(named[name] for name in sorted(named))
        handle: CommunicationHandle = self._schedule(stream, buffers) or self._begin(buffers, (stream,))
        return handle

    def has_scheduled_exchange(self) -> bool:
        """True from ``schedule_wait`` for the last exchange until ``wait`` has returned, ``is_ready`` was true, or the next exchange
        starts."""
        return super().has_scheduled_exchange()


def _begin(buffers: Any, streams: tuple[Any, ...] = ()) -> CommunicationHandle:
    if len(buffers) == 1 and buffers[0].__class__ is not BufferInfo:
        buffers = buffers[0]
    try:
        pattern, fields, given, others = None, [], [], []
        for buffer in buffers:
            if pattern is None:
                pattern = buffer._pattern
            if buffer._pattern is not pattern:
                # Buffers of other patterns become exchanges of their own.
                others.append(buffer)
            elif buffer._on_device:
                given += buffer._fields
            else:
                fields += buffer._fields
    except (AttributeError, TypeError):
        raise HaloTypeError(
            f"{buffers!r}: results of pattern(field) are wanted, one or a list"
        ) from None
    pendings: list[CommunicationHandle] = []
    if pattern is not None and given:
        pendings.append(pattern._begin_given(given, streams))
    if pattern is not None and fields:
        pendings.append(pattern._begin(fields))
    if others:
        pendings.append(_begin(others, streams))
    return pendings[0] if len(pendings) == 1 else _Several(pendings)
