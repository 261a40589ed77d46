"""Sets of integers and of cartesian indices, and their algebra.

A set keeps its points in a canonical form: equal sets compare equal, and sizes count each point once. ``simplify`` and
``disjoint`` are accepted as in GHEX; unions are always simple and disjoint here.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from halocline import HaloTypeError, HaloValueError
from halocline._arguments import listed, whole

from .. import _boxes
from .._boxes import Box, Interval

__all__ = [
    "CartesianSet", "IndexSpace", "IntegerSet", "ProductSet", "Set", "UnionCartesian", "UnionMixin", "UnionRange", "UnitRange",
    "index_convention", "is_integer_like", "union",
]

S = TypeVar("S", bound="Set")


def _integer(value: Any) -> Any:
    """A whole number, or an infinite one."""
    if isinstance(value, float) and math.isinf(value):
        return value
    try:
        return operator.index(value)
    except TypeError:
        raise HaloTypeError(f"{value!r} is no coordinate; give a whole number, math.inf or -math.inf") from None


def is_integer_like(val: Any) -> bool:
    """Whether a coordinate may be this."""
    try:
        _integer(val)
    except HaloTypeError:
        return False
    return True


class Set:
    """Points with integer coordinates, as disjoint boxes in canonical form."""

    _boxes: tuple[Box, ...]
    _axes: int

    # What differs between sets of numbers and sets of tuples.
    @staticmethod
    def _of(boxes: tuple[Box, ...], axes: int) -> Any:
        raise NotImplementedError

    def _made(self, boxes: Any) -> Any:
        return self._of(_boxes.canonical(boxes), self._axes)

    def _same_kind(self, other: object) -> Set:
        if not isinstance(other, Set) or (isinstance(self, IntegerSet) != isinstance(other, IntegerSet)):
            raise HaloTypeError(f"{self!r} and {other!r} are not sets of the same kind; give two of numbers, or two of points")
        if other._axes != self._axes:
            raise HaloValueError(f"{self!r} has {self._axes} dimensions, {other!r} has {other._axes}; give sets of as many")
        return other

    @cached_property
    def size(self) -> Any:
        """The number of points."""
        return _boxes.size(self._boxes)

    @property
    def empty(self) -> bool:
        """Whether there are none."""
        return not self._boxes

    def elements(self) -> Sequence[Any]:
        """The ranges or boxes that it consists of."""
        return [self._of((box,), self._axes) for box in self._boxes]

    @cached_property
    def bounds(self) -> Any:
        """The smallest range or box around it."""
        return self._of((_boxes.bounds(self._boxes),) if self._boxes else (), self._axes)

    def empty_set(self) -> Any:
        """The empty set of the same kind."""
        return self._of((), self._axes)

    def universe(self) -> Any:
        """All points of the same kind."""
        return self._of((((-math.inf, math.inf),) * self._axes,), self._axes)

    def intersect(self, other: Set) -> Any:
        """The points in both."""
        return self._made(_boxes.intersection(self._boxes, self._same_kind(other)._boxes))

    def without(self, *others: Set, simplify: bool = True) -> Any:
        """The points that are in none of the others."""
        return self._made(_boxes.difference(self._boxes, [box for o in others for box in self._same_kind(o)._boxes]))

    def complement(self, other: Set | None = None, simplify: bool = True) -> Any:
        """The points of ``other``, by default all, that are not here."""
        return (self.universe() if other is None else self._same_kind(other)).without(self)

    def union(self, *others: Set) -> Any:
        """The points of all."""
        return union(self, *others)

    def simplify(self: S) -> S:
        """The same set."""
        return self

    def issubset(self, other: Set) -> bool:
        """Whether all points are in the other."""
        return not _boxes.difference(self._boxes, self._same_kind(other)._boxes)

    def translate(self, *by: int) -> Any:
        """The set moved, by a number for each dimension."""
        if len(by) != self._axes:
            raise HaloValueError(f"{len(by)} distances for a set of {self._axes} dimensions; give one for each")
        by = tuple(whole(distance, "a distance") for distance in by)
        return self._made(tuple((a + d, b + d) for (a, b), d in zip(box, by)) for box in self._boxes)

    def extend(self, *by: Any) -> Any:
        """The range or box grown, in each dimension by a number on both sides, or by (low, high). The empty set stays so."""
        if len(by) != self._axes:
            raise HaloValueError(f"{len(by)} widths for a set of {self._axes} dimensions; give one for each")
        widths = [tuple(map(_integer, width if isinstance(width, tuple) else (width, width))) for width in by]
        if any(len(width) != 2 for width in widths):
            raise HaloValueError(f"widths {by!r}: give a number for each dimension, or a pair (low, high)")
        return self._made(tuple((a - low, b + high) for (a, b), (low, high) in zip(box, widths)) for box in self._boxes)

    def _contains(self, point: tuple[Any, ...]) -> bool:
        if len(point) != self._axes:
            raise HaloValueError(f"{point!r} has {len(point)} coordinates, the set has {self._axes} dimensions; give one for each")
        point = tuple(map(_integer, point))
        return any(all(start <= at < stop for at, (start, stop) in zip(point, box)) for box in self._boxes)

    def __mul__(self, other: Set) -> Any:
        """The tuples of a member of this set and one of the other."""
        if not isinstance(other, Set):
            return NotImplemented
        boxes = (a + b for a in self._boxes for b in other._boxes)
        return CartesianSet._of(_boxes.canonical(boxes), self._axes + other._axes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Set):
            return NotImplemented
        if isinstance(self, IntegerSet) != isinstance(other, IntegerSet):
            return False
        return (self._axes, self._boxes) == (other._axes, other._boxes)

    def __hash__(self) -> int:
        return hash((self._axes, self._boxes))


class UnionMixin:
    """A union of several ranges or boxes."""

    disjoint = True

    @property
    def args(self) -> tuple[Any, ...]:
        """The ranges or boxes, disjoint."""
        return tuple(self.elements())  # type: ignore[attr-defined]

    def make_disjoint(self: S) -> S:  # type: ignore[misc]
        """The same set."""
        return self

    def _united(self, args: tuple[Any, ...]) -> tuple[Box, ...]:
        if len(args) < 2:
            raise HaloValueError("a union is of two sets at least; use union(...)")
        for arg in args:
            if not isinstance(arg, self.primitive_type()) or arg.empty:  # type: ignore[attr-defined]
                raise HaloValueError(f"{arg!r} is empty, or no range or box; make unions of such with union(...)")
        if len({arg._axes for arg in args}) > 1:
            raise HaloValueError(f"boxes of different numbers of dimensions: {args!r}; give boxes of as many")
        return _boxes.canonical(box for arg in args for box in arg._boxes)

    def __repr__(self) -> str:
        return "union(" + ", ".join(map(repr, self.args)) + ")"


class IntegerSet(Set):
    """A set of integers."""

    _axes = 1

    @staticmethod
    def _of(boxes: tuple[Box, ...], axes: int) -> Any:
        if len(boxes) <= 1:
            start, stop = boxes[0][0] if boxes else (0, 0)
            return UnitRange(start, stop)
        several = UnionRange.__new__(UnionRange)
        several._boxes = boxes
        return several

    @staticmethod
    def empty_set() -> UnitRange:
        """The empty set."""
        return UnitRange(0, 0)

    @staticmethod
    def universe() -> UnitRange:
        """All integers."""
        return UnitRange(-math.inf, math.inf)

    @staticmethod
    def primitive_type() -> type[UnitRange]:
        return UnitRange

    @staticmethod
    def union_type() -> type[UnionRange]:
        return UnionRange

    def __contains__(self, number: Any) -> bool:
        return self._contains((number,))

    def __iter__(self) -> Iterator[int]:
        return itertools.chain.from_iterable(range(*map(operator.index, box[0])) for box in self._boxes)  # type: ignore[arg-type]


class UnitRange(IntegerSet):
    """The integers from ``start`` to before ``stop``."""

    def __init__(self, start: Any, stop: Any) -> None:
        start, stop = _integer(start), _integer(stop)
        if stop < start:
            raise HaloValueError(f"a range from {start} to {stop} ends before it begins; give an end that is not below the start")
        self._boxes = (((start, stop),),) if start < stop else ()

    @property
    def start(self) -> Any:
        """The first one; 0 if there is none."""
        return self._boxes[0][0][0] if self._boxes else 0

    @property
    def stop(self) -> Any:
        """The first one that is not in it; 0 if it is empty."""
        return self._boxes[0][0][1] if self._boxes else 0

    def as_tuple(self) -> tuple[Any, Any]:
        """(start, stop)"""
        return self.start, self.stop

    def __getitem__(self, index: int | slice) -> Any:
        """The member at a position, or the range between two, both counted from the end where negative."""
        if isinstance(index, slice):
            if index.step not in (1, None):
                raise HaloValueError(f"a slice of a range has steps of 1, not {index.step}; leave the step out")

            def at(position: Any, default: Any) -> Any:
                if position is None:
                    return default
                position = _integer(position)
                return (self.start if position >= 0 else self.stop) + position

            return UnitRange(at(index.start, self.start), at(index.stop, self.stop))
        index = whole(index, "a position")
        member = (self.start if index >= 0 else self.stop) + index
        if member not in self:
            raise IndexError(f"position {index} of {self!r}, which has {self.size} members")
        return member

    def __repr__(self) -> str:
        return f"UnitRange({self.start}, {self.stop})"


class UnionRange(UnionMixin, IntegerSet):
    """Several ranges."""

    def __init__(self, *args: UnitRange, disjoint: bool = False) -> None:
        self._boxes = self._united(args)


class CartesianSet(Set):
    """A set of tuples of integers."""

    @staticmethod
    def _of(boxes: tuple[Box, ...], axes: int) -> Any:
        if len(boxes) <= 1:
            box: tuple[Interval, ...] = boxes[0] if boxes else ((0, 0),) * axes
            return ProductSet(*(UnitRange(start, stop) for start, stop in box))
        several = UnionCartesian.__new__(UnionCartesian)
        several._boxes, several._axes = boxes, axes
        return several

    @staticmethod
    def primitive_type() -> type[ProductSet]:
        return ProductSet

    @staticmethod
    def union_type() -> type[UnionCartesian]:
        return UnionCartesian

    @staticmethod
    def from_range(rng: IntegerSet) -> Any:
        """The tuples of one member each."""
        if not isinstance(rng, IntegerSet):
            raise HaloTypeError(f"{rng!r} is no set of numbers; give a UnitRange or a UnionRange")
        return CartesianSet._of(rng._boxes, 1)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._axes

    dim = ndim

    def __contains__(self, point: Any) -> bool:
        return self._contains(tuple(listed(point, "the coordinates of a point")))

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return itertools.chain.from_iterable(
            itertools.product(*(range(*map(operator.index, axis)) for axis in box))  # type: ignore[arg-type]
            for box in self._boxes
        )


class ProductSet(CartesianSet):
    """A box: the tuples of a member of each of some ranges."""

    def __init__(self, *args: UnitRange) -> None:
        if not args:
            raise HaloValueError("a product of no ranges; give one for each dimension")
        for arg in args:
            if not isinstance(arg, UnitRange):
                raise HaloTypeError(f"{arg!r} is no range; give a UnitRange for each dimension")
        self.args = args
        self._axes = len(args)
        self._boxes = _boxes.canonical([tuple(arg.as_tuple() for arg in args)])

    @property
    def shape(self) -> tuple[Any, ...]:
        """The sizes of the ranges."""
        return tuple(arg.size for arg in self.args)

    def as_tuple(self) -> tuple[tuple[Any, Any], ...]:
        """(start, stop) of each range."""
        return tuple(arg.as_tuple() for arg in self.args)

    def __getitem__(self, indices: Any) -> Any:
        """The member at a position of each range, or the box of a slice of each."""
        indices = indices if isinstance(indices, tuple) else (indices,)
        if len(indices) != self._axes:
            raise HaloValueError(f"{len(indices)} indices for a box of {self._axes} dimensions; give one for each")
        found = tuple(arg[index] for arg, index in zip(self.args, indices))
        are_slices = {isinstance(index, slice) for index in indices}
        if len(are_slices) > 1:
            raise HaloValueError(f"{indices!r}: positions and slices do not go together; give only positions, or only slices")
        return ProductSet(*found) if are_slices == {True} else found

    def __repr__(self) -> str:
        return " * ".join(map(repr, self.args))


class UnionCartesian(UnionMixin, CartesianSet):
    """Several boxes."""

    def __init__(self, *args: ProductSet, disjoint: bool = False) -> None:
        self._boxes, self._axes = self._united(args), args[0].ndim


def union(*args: Any, simplify: bool = True, disjoint: bool = False) -> Any:
    """The points of all sets, which are of one kind."""
    if not args:
        raise HaloValueError("a union of no sets has no kind; give one at least")
    first = args[0]
    if not isinstance(first, Set):
        raise HaloTypeError(f"{first!r} is no set; give ranges, boxes or unions of them")
    return first._made(box for arg in args for box in first._same_kind(arg)._boxes)


class IndexSpace:
    """Cartesian sets with names, one of which is ``definition``."""

    def __init__(self, subset: dict[Any, Any]) -> None:
        if not isinstance(subset, Mapping):
            raise HaloTypeError(f"the sets of an index space are a dict, not {subset!r}")
        if "definition" not in subset:
            raise HaloValueError(f"the sets {list(subset)} of an index space lack the one named 'definition'; add it")
        self.subset = subset

    @classmethod
    def from_sizes(cls, *shape: int) -> IndexSpace:
        """The box of all indices of an array."""
        return cls({"definition": ProductSet(*(UnitRange(0, size) for size in shape))})

    def __getitem__(self, indices: Any) -> Any:
        return self.subset["definition"][indices]

    def transform(self, transformer: Callable[[Any], Any]) -> IndexSpace:
        """The space of what a function makes of each set."""
        return IndexSpace({name: transformer(subset) for name, subset in self.subset.items()})

    def translate(self, *by: int) -> IndexSpace:
        """The space moved."""
        return self.transform(lambda subset: subset.translate(*by))

    def intersect(self, mask: ProductSet) -> IndexSpace:
        """What lies in a box, which may have three dimensions where the space is horizontal (the first two) or a column
        (the third)."""
        if not isinstance(mask, ProductSet):
            raise HaloTypeError(f"a mask is a ProductSet, not {mask!r}")
        if mask.ndim != self.ndim:
            axes = {1: mask.args[2:3], 2: mask.args[:2]}.get(self.ndim, ())
            if mask.ndim != 3 or not axes:
                raise HaloValueError(f"a mask of {mask.ndim} dimensions for an index space of {self.ndim}; give a box of as many")
            mask = ProductSet(*axes)
        return self.transform(lambda subset: subset.intersect(mask))

    def prune(self) -> IndexSpace:
        """Without the empty sets, but for the definition."""
        kept = {name: subset for name, subset in self.subset.items() if name == "definition" or not subset.empty}
        return IndexSpace(kept)

    def decompose(self, parts_per_dim: Sequence[int]) -> dict[tuple[int, ...], IndexSpace]:
        """Equal parts along each dimension, the last ones with what is left over, by their position."""
        parts_per_dim = [whole(parts, "a number of parts") for parts in listed(parts_per_dim, "numbers of parts")]
        if len(parts_per_dim) != self.ndim:
            raise HaloValueError(f"{len(parts_per_dim)} numbers of parts for {self.ndim} dimensions; give one for each")

        def slices(parts: int, length: int) -> list[slice]:
            if parts < 1 or parts > length:
                raise HaloValueError(f"{length} indices in {parts} parts; give from 1 to {length} parts")
            cuts = [part * (length // parts) for part in range(parts)] + [length]
            return [slice(*cut) for cut in zip(cuts, cuts[1:])]

        axes = [list(enumerate(slices(parts, length))) for parts, length in zip(parts_per_dim, self.shape)]
        pieces = {}
        for piece in itertools.product(*axes):
            index = tuple(cut for _, cut in piece)
            pieces[tuple(at for at, _ in piece)] = self.transform(lambda subset: subset[index])
        return pieces

    @cached_property
    def covering(self) -> Any:
        """The points of all sets."""
        return union(*self.subset.values())

    @property
    def bounds(self) -> ProductSet:
        """The smallest box around all sets."""
        box: ProductSet = self.covering.bounds
        return box

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        ndim: int = self.subset["definition"].ndim
        return ndim

    dim = ndim

    @property
    def shape(self) -> tuple[Any, ...]:
        """The sizes of ``bounds``."""
        return self.bounds.shape

    @property
    def default_origin(self) -> tuple[Any, ...]:
        """The lowest indices of the definition."""
        return tuple(start for start, _ in self.subset["definition"].bounds.as_tuple())

    @property
    def empty(self) -> bool:
        """Whether no set has points."""
        return all(subset.empty for subset in self.subset.values())

    def __str__(self) -> str:
        return "".join([f"{self!r}\n  subsets:\n", *(f"    {name}: {at}\n" for name, at in self.subset.items())])


class index_convention:
    """Index spaces by what they are of, and where each of them begins."""

    index_spaces: dict[Any, IndexSpace]
    origins: dict[Any, Sequence[int]]
