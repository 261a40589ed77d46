"""Regular grids of one to four dimensions, cut into boxes."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from halocline import Field, HaloTypeError, HaloValueError, RegularGrid
from halocline._arguments import listed, whole

from .._exchange import CommunicationObject, FieldDescriptor, Pattern, placed
from ..context import check_context, context
from ..util import Architecture, CppWrapper
from .cartesian_sets import CartesianSet, ProductSet, UnitRange, union

__all__ = [
    "DomainDescriptor",
    "HaloContainer",
    "HaloGenerator",
    "make_communication_object",
    "make_field_descriptor",
    "make_pattern",
    "wrap_field",
]

GRIDS = {ndim: f"regular grid of {ndim} dimensions" for ndim in range(1, 5)}
"""The kinds of grids by number of dimensions."""


def _box(cells: CartesianSet, what: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """First cell and extents."""
    if not isinstance(cells, ProductSet):
        raise HaloTypeError(f"{what} is a ProductSet, not {cells!r}")
    if cells.empty:
        raise HaloValueError(f"{what} has no cells: {cells!r}; leave empty domains out")
    if cells.ndim not in GRIDS:
        raise HaloValueError(f"{what} has {cells.ndim} dimensions; 1 to {len(GRIDS)} are possible")
    try:
        return tuple(operator.index(arg.start) for arg in cells.args), tuple(map(operator.index, cells.shape))
    except TypeError:
        raise HaloValueError(f"{what} is infinite: {cells!r}; give ranges that end") from None


def _sides(halo: Any) -> list[int]:
    """The halo widths at the low and high side of a dimension."""
    # NumPy scalars also have a shape.
    if hasattr(halo, "__len__") and getattr(halo, "shape", None) != ():
        return [whole(width, "the width of a halo") for width in halo]
    return [whole(halo, "the width of a halo")] * 2


def _flag(periodic: Any) -> bool:
    """Whether a dimension is periodic."""
    if not getattr(periodic, "shape", ()) and periodic in (True, False):
        return bool(periodic)
    raise HaloTypeError(f"periodic: True or False is wanted for each dimension, not {periodic!r}")


class DomainDescriptor(CppWrapper):
    """A domain: its global number, unique among all ranks, and the box of its owned cells."""

    def __init__(self, id_: int, sub_domain_indices: CartesianSet) -> None:
        self._id = whole(id_, "the number of a domain")
        if self._id < 0:
            raise HaloValueError(f"domain {id_}: the number of a domain cannot be negative; count from 0")
        self._first, self._extents = _box(sub_domain_indices, f"domain {id_}")

    def domain_id(self) -> int:
        """Its number."""
        return self._id

    def first(self) -> tuple[int, ...]:
        """The first cell."""
        return self._first

    def last(self) -> tuple[int, ...]:
        """The last cell (inclusive)."""
        return tuple(first + extent - 1 for first, extent in zip(self._first, self._extents))


def _check_domain(domain: Any) -> None:
    if not isinstance(domain, DomainDescriptor):
        raise HaloTypeError(f"{domain!r} is no domain of a regular grid; give a regular.DomainDescriptor")


@dataclass
class HaloContainer:
    """The halo of a domain: relative to its first cell, and as cells of the grid."""

    local: CartesianSet
    global_: CartesianSet


class HaloGenerator(CppWrapper):
    """The halo widths, a number or a pair (low, high) for each dimension, and which dimensions are periodic."""

    def __init__(self, glob_domain_indices: ProductSet, halos: Any, periodicity: Any) -> None:
        self._first, self._extents = _box(glob_domain_indices, "the grid")
        widths = [_sides(halo) for halo in listed(halos, "halos")]
        self._periodic = [_flag(periodic) for periodic in listed(periodicity, "periodicities")]
        if not len(widths) == len(self._periodic) == len(self._extents):
            raise HaloValueError(
                f"{len(widths)} widths and {len(self._periodic)} periodicities for a grid of {len(self._extents)} "
                "dimensions; give one of each for each dimension"
            )
        if any(len(pair) != 2 or min(pair) < 0 for pair in widths):
            raise HaloValueError(f"halos {halos!r}: a width is a number from 0, or a pair (low, high) of such")
        self._halos = [(low, high) for low, high in widths]

    def __call__(self, domain: DomainDescriptor) -> HaloContainer:
        """The halo of a domain. At a border that is not periodic the halo exists, but is not filled."""
        _check_domain(domain)
        if len(domain._first) != len(self._extents):
            raise HaloValueError(
                f"a domain of {len(domain._first)} dimensions in a grid of {len(self._extents)} dimensions; give a domain of as many"
            )
        inner = ProductSet(*(UnitRange(0, extent) for extent in domain._extents))
        local = inner.extend(*self._halos).without(inner)
        pieces = [piece for box in local.elements() for piece in self._global(box.translate(*domain._first))]
        return HaloContainer(local, union(local.empty_set(), *pieces))

    def _global(self, box: ProductSet) -> Iterator[ProductSet]:
        axes = [list(self._wrapped(axis, *interval)) for axis, interval in enumerate(box.as_tuple())]
        return (ProductSet(*ranges) for ranges in itertools.product(*axes))

    def _wrapped(self, axis: int, start: int, stop: int) -> Iterator[UnitRange]:
        if not self._periodic[axis]:
            yield UnitRange(start, stop)
            return
        first, extent = self._first[axis], self._extents[axis]
        while start < stop:
            inside = (start - first) % extent
            length = min(stop - start, extent - inside)
            yield UnitRange(first + inside, first + inside + length)
            start += length


def make_communication_object(context: context) -> CommunicationObject:
    """Starts exchanges of fields."""
    return CommunicationObject(context)


def make_field_descriptor(
    domain_desc: DomainDescriptor,
    field: Any,
    offsets: Sequence[int],
    extents: Sequence[int],
    *,
    arch: Architecture | None = Architecture.CPU,
) -> FieldDescriptor:
    """Describes an array of any strides. ``offsets``: the index of the first owned cell. ``extents``: the part of the array that
    belongs to the domain and its halo, by default all."""
    _check_domain(domain_desc)
    try:
        offsets, extents = tuple(map(operator.index, offsets)), tuple(map(operator.index, extents))
    except TypeError:
        raise HaloTypeError(f"offsets {offsets!r}, extents {extents!r}: give a whole number for each dimension") from None
    core = Field(field, domain=domain_desc._id, origin=offsets)
    placed(core, arch)
    shape = core.shape
    if shape != extents or len(offsets) != len(shape) or len(shape) != len(domain_desc._extents):
        _check(domain_desc, shape, offsets, extents)
        if shape != extents:
            core = Field(field[tuple(map(slice, extents))], domain=domain_desc._id, origin=offsets)
    for offset, owned, extent in zip(offsets, domain_desc._extents, extents):
        if offset + owned > extent:
            raise HaloValueError(
                f"domain {domain_desc._id} owns {domain_desc._extents} cells, which are not within an array of "
                f"{extents} from {offsets}"
            )
    return FieldDescriptor(domain_desc._id, core, GRIDS[len(shape)], offsets)


def _check(
    domain: DomainDescriptor, shape: tuple[int, ...], offsets: tuple[int, ...], extents: tuple[int, ...]
) -> None:
    ndim = len(domain._extents)
    if not len(shape) == len(offsets) == len(extents) == ndim:
        raise HaloValueError(
            f"an array of {len(shape)} dimensions, {len(offsets)} offsets and {len(extents)} extents for a domain of {ndim} "
            "dimensions; give one for each dimension"
        )
    if any(extent > there for extent, there in zip(extents, shape)):
        raise HaloValueError(f"an array of shape {shape} is smaller than the extents {extents}; give the extents of the array")


def wrap_field(*args: Any) -> FieldDescriptor:
    """As ``make_field_descriptor``."""
    return make_field_descriptor(*args)


def make_pattern(context: context, halo_gen: HaloGenerator, domain_range: list[DomainDescriptor]) -> Pattern:
    """Makes the pattern that fills the halos of all domains; each rank passes its own domains. Collective.

    All ranks pass the same halo generator. The domains cover the grid, each cell once.
    """

    check_context(context)

    def describe() -> Any:
        if not isinstance(halo_gen, HaloGenerator):
            raise HaloTypeError(f"{halo_gen!r} is no halo generator of a regular grid; give a regular.HaloGenerator")
        domains = listed(domain_range, "domains")
        for domain in domains:
            _check_domain(domain)
            if len(domain._first) != len(halo_gen._extents):
                raise HaloValueError(
                    f"domain {domain._id} has {len(domain._first)} dimensions, the grid has {len(halo_gen._extents)}; make both of as many"
                )
        grid = [halo_gen._first, halo_gen._extents, halo_gen._halos, halo_gen._periodic]
        return grid, [(domain._id, domain._first, domain._extents) for domain in domains]

    all_grids = context._gather(describe)
    for rank, (grid, _) in enumerate(all_grids):
        if grid != all_grids[0][0]:
            raise HaloValueError(f"the halo generators of rank 0 and rank {rank} differ: {all_grids[0][0]} and {grid}; make the same one on all ranks")
    owned = sorted((id_, rank, *box) for rank, (_, domains) in enumerate(all_grids) for id_, *box in domains)
    for (id_, rank, *_), (other, other_rank, *_) in zip(owned, owned[1:]):
        if id_ == other:
            raise HaloValueError(
                f"domain {id_} exists on rank {rank} and on rank {other_rank}, or twice; numbers of domains are global"
            )
    return _pattern(context, halo_gen, owned)


def _pattern(ctx: context, halo_gen: HaloGenerator, owned: list[Any]) -> Pattern:
    # The core numbers boxes in the order of the ids; the numbers equal the ids if the ids are dense.
    relative = [
        (rank, [at - by for at, by in zip(first, halo_gen._first)], extents) for _, rank, first, extents in owned
    ]
    for (id_, _, first, _), (_, at, _) in zip(owned, relative):
        if min(at) < 0:
            raise HaloValueError(f"domain {id_} begins at {first}, before the grid, which begins at {halo_gen._first}")
    grid = RegularGrid(halo_gen._extents, periodic=halo_gen._periodic)
    core = grid.decompose_boxes(relative, ctx._comm).pattern(halo_gen._halos)
    numbers: dict[int, tuple[int, ...]] = {
        id_: (number,) for number, (id_, rank, *_) in enumerate(owned) if rank == ctx.rank()
    }
    return Pattern(ctx, core, GRIDS[len(halo_gen._extents)], numbers)
