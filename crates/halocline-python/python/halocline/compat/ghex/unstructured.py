"""Unstructured grids: cells with global ids."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from halocline import Field, HaloTypeError, HaloValueError, UnstructuredDomain
from halocline import Pattern as CorePattern
from halocline._arguments import listed, whole

from ._exchange import CommunicationObject, FieldDescriptor, Pattern, placed
from .context import check_context, context
from .util import Architecture, CppWrapper

__all__ = [
    "DomainDescriptor",
    "HaloGenerator",
    "make_communication_object",
    "make_field_descriptor",
    "make_pattern",
    "wrap_field",
]

GRID = "unstructured grid"
# Ids of the program are below; ids above are private to one domain.
_PRIVATE = 1 << 62
# Bits of the number of a cell of a rank, and of a domain.
_CELL_BITS = 40
_DOMAIN_BITS = 32


def _numbers(given: Any, what: str) -> npt.NDArray[np.int64]:
    try:
        array = np.asarray(given)
    except (TypeError, ValueError) as error:
        raise HaloTypeError(f"{what} are a list of whole numbers: {error}") from None
    if array.shape == (0,):
        return np.empty(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise HaloTypeError(f"{what} are a list of whole numbers, not of shape {array.shape} and dtype {array.dtype}")
    if array.min() < 0 or array.max() >= _PRIVATE:
        raise HaloValueError(f"{what} range from {array.min()} to {array.max()}; they count from 0 and are below 2**62")
    return array.astype(np.int64)


def _first_twice(numbers: npt.NDArray[np.int64]) -> int | None:
    """A number that occurs more than once."""
    ordered = np.sort(numbers)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    return int(twice[0]) if twice.size else None


class DomainDescriptor(CppWrapper):
    """A domain: the global ids of its cells in local order. Cells at the local indices ``halo_indices`` are halo.

    Its number is global: no other domain of any rank may have it. Owned ids come once; an id may be in the halo several times,
    and there be a copy of a cell that the domain owns itself.
    """

    def __init__(self, index: int, indices: Any, halo_indices: Any) -> None:
        self._id = whole(index, "the number of a domain")
        if not 0 <= self._id < 1 << 31:
            raise HaloValueError(f"domain {index}: the number of a domain must be from 0 and below 2**31")
        self._cells = _numbers(indices, f"the ids of domain {index}")
        self._halo = _numbers(halo_indices, f"the halo indices of domain {index}")
        if self._halo.size and self._halo.max() >= self._cells.size:
            raise HaloValueError(
                f"domain {index}: halo index {self._halo.max()}, but it has {self._cells.size} cells, from 0"
            )
        if (twice := _first_twice(self._halo)) is not None:
            raise HaloValueError(f"domain {index}: halo index {twice} is given twice; give each once")
        self._is_owned = np.ones(self._cells.size, bool)
        self._is_owned[self._halo] = False
        if (twice := _first_twice(self._cells[self._is_owned])) is not None:
            raise HaloValueError(f"domain {index} owns id {twice} twice; an owned cell is in one place")

    def domain_id(self) -> int:
        """Its number."""
        return self._id

    def size(self) -> int:
        """The number of cells, owned and halo."""
        return self._cells.size

    def inner_size(self) -> int:
        """The number of owned cells."""
        return self._cells.size - self._halo.size

    def indices(self) -> list[int]:
        """The global ids in local order."""
        ids: list[int] = self._cells.tolist()
        return ids


def _check_domain(domain: Any) -> None:
    if not isinstance(domain, DomainDescriptor):
        raise HaloTypeError(f"{domain!r} is no domain of an unstructured grid; give an unstructured.DomainDescriptor")


class HaloGenerator(CppWrapper):
    """Selects the halo cells to fill: all, or those with given ids."""

    def __init__(self, gids: Any = None) -> None:
        self._ids = None if gids is None else _numbers(gids, "the ids of a halo")

    @classmethod
    def from_gids(cls, gids: Any) -> HaloGenerator:
        """A generator for the cells with these ids."""
        return cls(gids)

    def _filled(self, domain: DomainDescriptor) -> npt.NDArray[np.int64]:
        """The local indices of the halo cells of a domain that are filled, ascending."""
        halo = np.sort(domain._halo)
        return halo if self._ids is None else halo[np.isin(domain._cells[halo], self._ids)]


def make_communication_object(context: context) -> CommunicationObject:
    """Starts exchanges of fields."""
    return CommunicationObject(context)


def make_field_descriptor(
    domain_desc: DomainDescriptor, field: Any, *, arch: Architecture | None = None
) -> FieldDescriptor:
    """Describes an array, of any strides, whose first dimension is the cells of the domain."""
    _check_domain(domain_desc)
    core = Field(field, domain=domain_desc._id)
    placed(core, arch)
    shape, cells = core.shape, domain_desc._cells.size
    if not shape or shape[0] != cells:
        raise HaloValueError(
            f"an array of shape {shape} for domain {domain_desc._id}, which has {cells} cells; "
            f"give one whose first dimension is {cells}, a slice of a larger one for example"
        )
    return FieldDescriptor(domain_desc._id, core, GRID)


def wrap_field(*args: Any) -> FieldDescriptor:
    """As ``make_field_descriptor``."""
    return make_field_descriptor(*args)


def make_pattern(context: context, halo_gen: HaloGenerator, domain_range: list[DomainDescriptor]) -> Pattern:
    """Makes the pattern that fills the halos of all domains; each rank passes its own domains. Collective.

    Each halo cell that is filled must be owned by one domain.
    """
    check_context(context)
    made: list[UnstructuredDomain] = []
    numbers: dict[int, tuple[int, ...]] = {}

    def prepare() -> None:
        if not isinstance(halo_gen, HaloGenerator):
            raise HaloTypeError(f"{halo_gen!r} is no halo generator of an unstructured grid; give an unstructured.HaloGenerator")
        private = _PRIVATE + (context.rank() << _CELL_BITS)
        for domain in listed(domain_range, "domains"):
            _check_domain(domain)
            if domain._id in numbers:
                raise HaloValueError(f"domain {domain._id} is given twice")
            layers = _layers(domain, halo_gen._filled(domain), private)
            private += len(layers) * domain.size()
            numbers[domain._id] = tuple(domain._id + (layer << _DOMAIN_BITS) for layer in range(len(layers)))
            for number, (cells, halo) in zip(numbers[domain._id], layers):
                made.append(UnstructuredDomain.from_indices(number, cells, halo))

    context._gather(prepare)
    return Pattern(context, CorePattern.unstructured(context._comm, made), GRID, numbers)


def _layers(
    domain: DomainDescriptor, filled: npt.NDArray[np.int64], private: int
) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Splits the domain into domains over the same array that have each id at most once: the ids and halo indices of each.

    Cells that one of these does not exchange get an id that no other domain has.
    """
    cells = domain._cells
    ids = cells[filled]
    # For each halo cell, how many earlier cells have the same id.
    order = np.argsort(ids, kind="stable")
    _, first, counts = np.unique(ids[order], return_index=True, return_counts=True)
    copy = np.empty(ids.size, np.int64)
    copy[order] = np.arange(ids.size) - np.repeat(first, counts)
    copy += np.isin(ids, cells[domain._is_owned])

    layers = []
    for layer in range(1 + int(copy.max(initial=0))):
        mine = filled[copy == layer]
        known = domain._is_owned.copy() if layer == 0 else np.zeros(cells.size, bool)
        known[mine] = True
        own = np.arange(cells.size, dtype=np.int64) + (private + layer * cells.size)
        layers.append((np.where(known, cells, own), mine))
    return layers
