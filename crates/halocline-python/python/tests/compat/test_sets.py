"""The algebra of cartesian sets, against sets of Python."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halocline import HaloTypeError, HaloValueError
from halocline.compat.ghex.structured.cartesian_sets import (
    CartesianSet,
    IndexSpace,
    ProductSet,
    UnionCartesian,
    UnionRange,
    UnitRange,
    union,
)

ranges = st.builds(lambda start, size: UnitRange(start, start + size), st.integers(-4, 4), st.integers(0, 4))
numbers = st.lists(ranges, min_size=1, max_size=4).map(lambda args: union(*args))


def boxes(ndim):
    return st.tuples(*[ranges] * ndim).map(lambda args: ProductSet(*args))


cartesian = st.integers(1, 3).flatmap(
    lambda ndim: st.tuples(*[st.lists(boxes(ndim), min_size=1, max_size=4).map(lambda args: union(*args))] * 2)
)


@given(st.one_of(st.tuples(numbers, numbers), cartesian))
def test_operations_are_those_of_sets(pair):
    one, other = pair
    these, others = set(one), set(other)
    for found, wanted in [
        (one.union(other), these | others),
        (one.intersect(other), these & others),
        (one.without(other), these - others),
        (one.complement(other), others - these),
        (one.without(other).union(one.intersect(other)), these),
        (one.complement().complement(), these),
    ]:
        assert set(found) == wanted and found.size == len(wanted) == len(list(found)) and found.empty == (not wanted)
    assert one.issubset(other) == (these <= others)
    assert (one == other) == (these == others)
    # Equal sets are the same, however they came about.
    again = union(one.without(other), one.intersect(other))
    assert again == one and hash(again) == hash(one) and repr(again) == repr(one)


@given(numbers, numbers)
def test_products(one, other):
    product = one * other
    assert set(product) == {(x, y) for x in one for y in other}
    assert all(point in product for point in product)


def test_unions_are_of_their_kinds():
    assert type(union(UnitRange(0, 2), UnitRange(2, 3))) is UnitRange
    assert type(union(UnitRange(0, 2), UnitRange(3, 4))) is UnionRange
    two = union(ProductSet(UnitRange(0, 1)), ProductSet(UnitRange(3, 4)))
    assert type(two) is UnionCartesian and two.bounds == ProductSet(UnitRange(0, 4)) and len(two.args) == 2
    assert UnionRange(UnitRange(0, 2), UnitRange(1, 4)) == UnitRange(0, 4)
    assert CartesianSet.from_range(union(UnitRange(0, 2), UnitRange(3, 4))) == ProductSet(UnitRange(0, 4)).without(
        ProductSet(UnitRange(2, 3))
    )
    assert UnitRange(5, 5) == UnitRange(0, 0) and UnitRange(0, 3).complement().bounds == UnitRange(-math.inf, math.inf)
    assert UnitRange(0, 1) != ProductSet(UnitRange(0, 1)) and UnitRange(0, 1) != 3


def test_index_spaces():
    space = IndexSpace(
        {
            "definition": ProductSet(UnitRange(0, 4), UnitRange(0, 4)),
            "edge": ProductSet(UnitRange(4, 5), UnitRange(0, 4)),
        }
    )
    assert space.shape == (5, 4) and space.bounds.size == space.covering.size == 20 and space.ndim == 2
    mask = ProductSet(UnitRange(0, 2), UnitRange(0, 2), UnitRange(0, 1))
    kept = space.intersect(mask).prune()
    assert list(kept.subset) == ["definition"] and kept.shape == (2, 2) and not kept.empty
    assert IndexSpace.from_sizes(3).intersect(mask).shape == (1,)
    assert "edge: " in str(space)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda: UnitRange(3, 1), HaloValueError),
        (lambda: UnitRange(0.5, 1), HaloTypeError),
        (lambda: UnitRange(0, 3)[::2], HaloValueError),
        (lambda: UnitRange(0, 3)[3], IndexError),
        (lambda: union(), HaloValueError),
        (lambda: union(UnitRange(0, 1), ProductSet(UnitRange(0, 1))), HaloTypeError),
        (lambda: ProductSet(), HaloValueError),
        (lambda: ProductSet(3), HaloTypeError),
        (lambda: ProductSet(UnitRange(0, 1)).union(ProductSet(UnitRange(0, 1), UnitRange(0, 1))), HaloValueError),
        (lambda: UnionRange(UnitRange(0, 1)), HaloValueError),
        (lambda: UnionRange(UnitRange(0, 1), UnitRange(0, 0)), HaloValueError),
        (lambda: (1,) in ProductSet(UnitRange(0, 1), UnitRange(0, 1)), HaloValueError),
        (lambda: IndexSpace({}), HaloValueError),
        (lambda: IndexSpace.from_sizes(3, 3).decompose((4, 1)), HaloValueError),
        (lambda: IndexSpace.from_sizes(3, 3).intersect(ProductSet(UnitRange(0, 1))), HaloValueError),
    ],
)
def test_what_makes_no_sense_is_refused(wrong, error):
    with pytest.raises(error):
        wrong()
