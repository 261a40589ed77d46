"""The texts of the checks of ``halocline.compat``: what is wrong, and what to give instead."""

import math
import sys
import types

import numpy as np
import pytest

import halocline as hc
from halocline import HaloTypeError, HaloValueError
from halocline.compat import ghex, icon4py
from halocline.compat.ghex import pyghex, unstructured, util
from halocline.compat.ghex.context import context, make_context, mpi_comm
from halocline.compat.ghex.structured import regular
from halocline.compat.ghex.structured.cartesian_sets import (
    CartesianSet,
    IndexSpace,
    ProductSet,
    UnionCartesian,
    UnionRange,
    UnitRange,
    union,
)
from halocline.compat.ghex.unstructured import DomainDescriptor

RANGE = UnitRange(0, 4)
BOX = ProductSet(RANGE, RANGE)
SPACE = IndexSpace({"definition": BOX})
LINE = ProductSet(RANGE)


def raises(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)


SETS = [
    (lambda: UnitRange("a", 3), HaloTypeError, "'a' is no coordinate; give a whole number, math.inf or -math.inf"),
    (lambda: RANGE.union(BOX), HaloTypeError, "are not sets of the same kind; give two of numbers, or two of points"),
    (lambda: BOX.union(LINE), HaloValueError, "has 1; give sets of as many"),
    (lambda: BOX.translate(1), HaloValueError, "1 distances for a set of 2 dimensions; give one for each"),
    (lambda: BOX.extend(1), HaloValueError, "1 widths for a set of 2 dimensions; give one for each"),
    (lambda: LINE.extend((1, 2, 3)), HaloValueError, "widths ((1, 2, 3),): give a number for each dimension, or a pair (low, high)"),
    (lambda: (1, 2, 3) in BOX, HaloValueError, "(1, 2, 3) has 3 coordinates, the set has 2 dimensions; give one for each"),
    (lambda: UnionRange(RANGE), HaloValueError, "a union is of two sets at least; use union(...)"),
    (lambda: UnionRange(RANGE, UnitRange(3, 3)), HaloValueError, "is empty, or no range or box; make unions of such with union(...)"),
    (lambda: UnitRange(3, 1), HaloValueError, "a range from 3 to 1 ends before it begins; give an end that is not below the start"),
    (lambda: RANGE[::2], HaloValueError, "a slice of a range has steps of 1, not 2; leave the step out"),
    (lambda: RANGE[9], IndexError, "position 9 of UnitRange(0, 4), which has 4 members"),
    (lambda: ProductSet(), HaloValueError, "a product of no ranges; give one for each dimension"),
    (lambda: ProductSet(3), HaloTypeError, "3 is no range; give a UnitRange for each dimension"),
    (lambda: BOX[1], HaloValueError, "1 indices for a box of 2 dimensions; give one for each"),
    (lambda: BOX[1, 0:2], HaloValueError, "positions and slices do not go together; give only positions, or only slices"),
    (lambda: UnionCartesian(BOX, LINE), HaloValueError, "boxes of different numbers of dimensions"),
    (lambda: CartesianSet.from_range(3), HaloTypeError, "3 is no set of numbers; give a UnitRange or a UnionRange"),
    (lambda: union(), HaloValueError, "a union of no sets has no kind; give one at least"),
    (lambda: union(3), HaloTypeError, "3 is no set; give ranges, boxes or unions of them"),
    (lambda: IndexSpace(3), HaloTypeError, "the sets of an index space are a dict, not 3"),
    (lambda: IndexSpace({}), HaloValueError, "the sets [] of an index space lack the one named 'definition'; add it"),
    (lambda: SPACE.intersect(3), HaloTypeError, "a mask is a ProductSet, not 3"),
    (lambda: SPACE.intersect(LINE), HaloValueError, "a mask of 1 dimensions for an index space of 2; give a box of as many"),
    (lambda: SPACE.decompose((2,)), HaloValueError, "1 numbers of parts for 2 dimensions; give one for each"),
    (lambda: SPACE.decompose((9, 1)), HaloValueError, "4 indices in 9 parts; give from 1 to 4 parts"),
]


@pytest.mark.parametrize("call, error, text", SETS, ids=[text for *_, text in SETS])
def test_sets(call, error, text):
    raises(call, error, text)


def ring(ndim=2, periodic=True):
    return regular.HaloGenerator(ProductSet(*[RANGE] * ndim), (1,) * ndim, (True,) * ndim if periodic is True else periodic)


REGULAR = [
    (lambda: ring(2, (3, True)), HaloTypeError, "periodic: True or False is wanted for each dimension, not 3"),
    (
        lambda: regular.make_field_descriptor(
            regular.DomainDescriptor(0, BOX), np.zeros((4, 4)), (0, 0), (4, 4), arch=util.Architecture.GPU
        ),
        HaloTypeError,
        "arch: the field is in host memory, not on a GPU; give Architecture.CPU",
    ),
    (lambda: regular.DomainDescriptor(0, 3), HaloTypeError, "domain 0 is a ProductSet, not 3"),
    (lambda: regular.DomainDescriptor(0, ProductSet(UnitRange(1, 1))), HaloValueError, "; leave empty domains out"),
    (lambda: regular.DomainDescriptor(0, ProductSet(*[RANGE] * 9)), HaloValueError, "domain 0 has 9 dimensions; 1 to "),
    (lambda: regular.DomainDescriptor(0, ProductSet(UnitRange(0, math.inf))), HaloValueError, "; give ranges that end"),
    (lambda: regular.DomainDescriptor(-1, BOX), HaloValueError, "domain -1: the number of a domain cannot be negative; count from 0"),
    (lambda: ring()(3), HaloTypeError, "3 is no domain of a regular grid; give a regular.DomainDescriptor"),
    (
        lambda: ring()(regular.DomainDescriptor(0, LINE)),
        HaloValueError,
        "a domain of 1 dimensions in a grid of 2 dimensions; give a domain of as many",
    ),
    (
        lambda: regular.make_field_descriptor(regular.DomainDescriptor(0, BOX), np.zeros((4, 4)), 3, (4, 4)),
        HaloTypeError,
        "offsets 3, extents (4, 4): give a whole number for each dimension",
    ),
    (
        lambda: regular.make_field_descriptor(regular.DomainDescriptor(0, BOX), np.zeros((4, 4)), (0,), (4, 4)),
        HaloValueError,
        "an array of 2 dimensions, 1 offsets and 2 extents for a domain of 2 dimensions; give one for each dimension",
    ),
    (
        lambda: regular.make_field_descriptor(regular.DomainDescriptor(0, BOX), np.zeros((4, 4)), (0, 0), (4, 4), arch="x"),
        HaloTypeError,
        "arch: 'x' is no Architecture; give Architecture.CPU or Architecture.GPU",
    ),
]


@pytest.mark.parametrize("call, error, text", REGULAR, ids=[text for *_, text in REGULAR])
def test_regular_grids(call, error, text):
    raises(call, error, text)


UNSTRUCTURED = [
    (lambda: DomainDescriptor(0, [[1], [1, 2]], []), HaloTypeError, "the ids of domain 0 are a list of whole numbers: "),
    (lambda: DomainDescriptor(0, [[1]], []), HaloTypeError, "the ids of domain 0 are a list of whole numbers, not of shape (1, 1)"),
    (lambda: DomainDescriptor(0, [-1], []), HaloValueError, "range from -1 to -1; they count from 0 and are below 2**62"),
    (lambda: DomainDescriptor(-1, [1], []), HaloValueError, "domain -1: the number of a domain must be from 0 and below 2**31"),
    (lambda: DomainDescriptor(0, [1, 1], []), HaloValueError, "domain 0 owns id 1 twice; an owned cell is in one place"),
    (lambda: DomainDescriptor(0, [1, 2], [1, 1]), HaloValueError, "domain 0: halo index 1 is given twice; give each once"),
]


@pytest.mark.parametrize("call, error, text", UNSTRUCTURED, ids=[text for *_, text in UNSTRUCTURED])
def test_unstructured_grids(call, error, text):
    raises(call, error, text)


def test_patterns_and_contexts():
    def rank(comm):
        ctx = make_context(comm)
        give = "is no halo generator of a regular grid; give a regular.HaloGenerator"
        raises(lambda: regular.make_pattern(ctx, 3, []), HaloTypeError, give)
        give = "is no halo generator of an unstructured grid; give an unstructured.HaloGenerator"
        raises(lambda: unstructured.make_pattern(ctx, 3, []), HaloTypeError, give)
        communication = regular.make_communication_object(ctx)
        raises(lambda: communication.exchange([3]), HaloTypeError, "[3]: results of pattern(field) are wanted, one or a list")
        raises(lambda: regular.make_communication_object(3), HaloTypeError, "3 is no context: see make_context")
        raises(lambda: context(3), HaloTypeError, "3 is no mpi_comm: see make_context, which takes communicators")
        domain = regular.DomainDescriptor(0, LINE)
        wanted = "domain 0 has 1 dimensions, the grid has 2; make both of as many"
        raises(lambda: regular.make_pattern(ctx, ring(), [domain]), HaloValueError, wanted)
        pattern = regular.make_pattern(ctx, ring(1), [domain])
        wanted = "the pattern has no links for fields of GPUs yet"
        raises(lambda: pattern._begin_on_device([], []), HaloValueError, wanted)
        core = hc.RegularGrid((4,)).decompose(comm).pattern(1)
        raises(lambda: hc._core._PatternBase(core, "regular", [], []), HaloValueError, "a pattern needs at least one link slot")

    hc.run_threads(1, rank)


def test_cpp_objects_of_ghex():
    unsupported = ghex.UnsupportedError
    raises(lambda: util.CppWrapper("a"), unsupported, "CppWrapper('a'): there are no C++ objects of GHEX here; use the object itself")
    raises(lambda: pyghex.buffer_info, unsupported, "pyghex.buffer_info: there are no C++ classes of GHEX here; use halocline.compat.ghex")
    domain = regular.DomainDescriptor(0, BOX)
    raises(lambda: domain.__wrapped__, unsupported, "has no __wrapped__: there are no C++ objects of GHEX here; use the object itself")
    raises(lambda: domain.nothing, AttributeError, "'DomainDescriptor' object has no attribute 'nothing'")
    for module in (pyghex, ghex):
        raises(lambda: module.nothing, AttributeError, f"module {module.__name__!r} has no attribute 'nothing'")
    raises(lambda: pyghex.print_config(3), HaloTypeError, "config: the dict that config() returns is wanted, not 3")


def test_ghex_itself_is_imported_already(monkeypatch):
    monkeypatch.setitem(sys.modules, "ghex", types.ModuleType("ghex"))
    raises(ghex.install, hc.HaloError, "GHEX itself is imported already; call install() before its first import")


def test_mpi4py_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    raises(lambda: mpi_comm(), hc.MpiError, "install it, or give make_context a halocline.Communicator")


class Info:
    """Cells of one rank, as icon4py describes them."""

    def global_index(self, dim):
        return np.arange(4)

    def owner_mask(self, dim):
        return np.ones(4, bool)


class Masked(Info):
    def owner_mask(self, dim):
        return np.ones(3, bool)


class Field:
    def __init__(self, array, first):
        self.ndarray = array
        ranges = [types.SimpleNamespace(start=first)]
        self.domain = types.SimpleNamespace(dims=("Cell",), ranges=ranges)


def test_fields_and_grids_of_icon4py():
    def rank(comm):
        raises(lambda: icon4py.Exchange(Info(), comm, None), HaloTypeError, "does not say which dimensions it has; give dims=[...]")
        runtime = icon4py.Exchange(Info(), comm, ["Cell"])
        wrong = "the owner mask on 'Cell' has the shape (3,), its cells have (4,); both must have the same"
        raises(lambda: icon4py.Exchange(Masked(), comm, ["Cell"]), HaloValueError, wrong)
        late = Field(np.zeros(4), 3)
        raises(lambda: runtime.exchange("Cell", late), HaloValueError, "field 0 begins at 3 on 'Cell'; give one that begins at 0")
        short = Field(np.zeros(2), 0)
        raises(lambda: runtime.exchange("Cell", short), HaloValueError, "has 2 cells along its first axis, of shape (2,); the grid has 4")

    hc.run_threads(1, rank)
