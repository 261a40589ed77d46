"""The arrays that ``halocline.torch`` and ``halocline.jax`` take: which domain and which axes of a pattern each belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import Communicator, HaloError, HaloTypeError, HaloValueError, Pattern
from ._arguments import listed, whole


class Slot:
    """A domain of this rank that an array belongs to."""

    __slots__ = ("domain", "pattern", "shape")

    def __init__(self, pattern: Pattern, domain: Any) -> None:
        self.pattern, self.domain, self.shape = pattern, domain.id, tuple(domain.shape)


class Slots:
    """The slots of a differentiable exchange. Making them is collective: an argument that a rank refuses is an error on all ranks."""

    def __init__(self, comm: Communicator, patterns: Pattern | Sequence[Pattern], axes: Sequence[int] | None, array: str) -> None:
        """``array``: what the arrays are called, a "tensor"."""
        if not isinstance(comm, Communicator):
            raise HaloTypeError(f"comm: a Communicator is wanted, not {comm!r}")
        refusal = None
        try:
            self._only = isinstance(patterns, Pattern)
            self.patterns: list[Pattern] = [patterns] if isinstance(patterns, Pattern) else listed(patterns, "patterns")
            self.axes = None if axes is None else [whole(axis, "an axis") for axis in listed(axes, "axes")]
            self._check_arguments()
        except HaloError as error:
            refusal = error
        comm.agree(refusal)
        self._array = array
        self._slots = [[Slot(pattern, domain) for domain in pattern.domains] for pattern in self.patterns]
        self.one_domain = all(len(slots) == 1 for slots in self._slots)
        # Slots of so many fields of the only pattern.
        self._repeated: dict[int, tuple[Slot, ...]] = {}

    def _check_arguments(self) -> None:
        for at, pattern in enumerate(self.patterns):
            if not isinstance(pattern, Pattern):
                raise HaloTypeError(f"patterns[{at}]: a Pattern is wanted, not {pattern!r}")
            if not pattern.domains:
                raise HaloValueError(f"patterns[{at}]: this rank has no domain, and each rank needs one; split the communicator")
        if self.axes and min(self.axes) < 0 <= max(self.axes):
            raise HaloValueError(f"axes: {tuple(self.axes)} count from both ends; give all of them from 0, or all negative")

    def of(self, count: int) -> tuple[Slot, ...]:
        """Those of so many fields."""
        slots = self._repeated.get(count)
        if slots is None:
            self._check_count(count)
            flat = tuple(slot for slots in self._slots for slot in slots)
            slots = self._repeated[count] = flat * count if self._only else flat
        return slots

    def parts(self, fields: Sequence[Any], kind: type) -> list[list[Any]]:
        """The arrays of each field: itself if it is of this kind, otherwise those of the list, one for each domain."""
        of_fields = self._slots * len(fields) if self._only else self._slots
        self._check_count(len(fields))
        parts = [[field] if isinstance(field, kind) else list(listed(field, f"fields[{at}]")) for at, field in enumerate(fields)]
        for at, (slots, given) in enumerate(zip(of_fields, parts)):
            if len(slots) != len(given):
                raise HaloValueError(
                    f"fields[{at}]: this rank has {len(slots)} domains of its pattern, and {len(given)} {self._array}s are given; give "
                    f"a list with one {self._array} for each domain"
                )
        return parts

    def _check_count(self, count: int) -> None:
        if self._only and count == 0:
            raise HaloValueError(f"fields: there are none; give one {self._array} or more")
        if not self._only and count != len(self.patterns):
            raise HaloValueError(f"fields: {count} are given for {len(self.patterns)} patterns; give one for each pattern")


def checked_axes(what: str, array: str, slot: Slot, shape: tuple[int, ...], axes: list[int] | None) -> list[int]:
    """The axes of an array of a shape that are those of its pattern, counted from 0. ``what`` names the array, of a kind, in errors."""
    wanted = range(len(slot.shape)) if axes is None else axes
    if len(wanted) != len(slot.shape):
        raise HaloValueError(f"axes: {tuple(wanted)} are {len(wanted)}, and the pattern of {what} has {len(slot.shape)} axes")
    found = [axis + len(shape) if axis < 0 else axis for axis in wanted]
    if min(found) < 0 or max(found) >= len(shape) or len(set(found)) != len(found):
        raise HaloValueError(f"{what}: {array} of shape {shape} has no axes {tuple(wanted)} for those of its pattern")
    cells = tuple(shape[axis] for axis in found)
    if cells != slot.shape:
        raise HaloValueError(
            f"{what}: has {cells} cells along the axes of its pattern, where domain {slot.domain} has {slot.shape}, halo included "
            f"(shape {shape}, axes {tuple(found)})"
        )
    return found
