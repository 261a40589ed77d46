"""What is no argument at all is an error of the package that says what was given, and on one rank alone an error on all."""

import math
import types

import numpy as np
import pytest

import halocline as hc
from halocline.compat import ghex, icon4py
from halocline.compat.ghex import unstructured
from halocline.compat.ghex.context import context, make_context
from halocline.compat.ghex.structured import regular
from halocline.compat.ghex.structured.cartesian_sets import IndexSpace, ProductSet, UnitRange
from halocline.compat.ghex.util import Architecture

BOX = ProductSet(UnitRange(0, 8), UnitRange(0, 6))
HALOS = regular.HaloGenerator(BOX, (1, 1), (True, False))
DOMAIN = regular.DomainDescriptor(0, BOX)
CELLS = unstructured.DomainDescriptor(0, [0, 1, 2], [2])
OFFSETS, EXTENTS = (1, 1), (10, 8)
FIELD = np.zeros(EXTENTS)

ARRAY, EMPTY = np.zeros(3), ()
JUNK = [None, 3, -1, 2.5, "x", b"x", EMPTY, [None], [[1], [2, 3]], {"a": 1}, object(), math.inf, math.nan, 2**70, ARRAY, type]
"""None of them is right anywhere below, unless that is said."""


def field(domain=DOMAIN, array=FIELD, offsets=OFFSETS, extents=EXTENTS, **arch):
    return regular.make_field_descriptor(domain, array, offsets, extents, **arch)


# Each argument of each call, with what it may be of the junk.
CALLS = {
    "mpi_comm": (lambda junk, _: ghex.mpi_comm(junk), []),
    "make_context": (lambda junk, _: make_context(junk), []),
    "context": (lambda junk, _: context(junk), []),
    "communication object": (lambda junk, _: regular.make_communication_object(junk), []),
    "exchange": (lambda junk, ctx: regular.make_communication_object(ctx).exchange(junk), [(), {}]),
    "stream": (lambda junk, ctx: regular.make_communication_object(ctx).schedule_exchange(junk, []), [None]),
    "regular domain, number": (lambda junk, _: regular.DomainDescriptor(junk, BOX), [3, 2**70]),
    "regular domain, box": (lambda junk, _: regular.DomainDescriptor(0, junk), []),
    "regular halos, box": (lambda junk, _: regular.HaloGenerator(junk, (1, 1), (True, False)), []),
    "regular halos, widths": (lambda junk, _: regular.HaloGenerator(BOX, junk, (True, False)), []),
    "regular halos, a width": (lambda junk, _: regular.HaloGenerator(BOX, (1, junk), (True, False)), [3, 2**70]),
    "regular halos, a side": (lambda junk, _: regular.HaloGenerator(BOX, (1, (junk, 1)), (True, False)), [3, 2**70]),
    "regular halos, periodicities": (lambda junk, _: regular.HaloGenerator(BOX, (1, 1), junk), []),
    "regular halos, a periodicity": (lambda junk, _: regular.HaloGenerator(BOX, (1, 1), (True, junk)), []),
    "regular halos of": (lambda junk, _: HALOS(junk), []),
    "regular pattern, context": (lambda junk, _: regular.make_pattern(junk, HALOS, [DOMAIN]), []),
    "regular pattern, halos": (lambda junk, ctx: regular.make_pattern(ctx, junk, [DOMAIN]), []),
    "regular pattern, domains": (lambda junk, ctx: regular.make_pattern(ctx, HALOS, junk), []),
    "regular pattern, a domain": (lambda junk, ctx: regular.make_pattern(ctx, HALOS, [junk]), []),
    "regular pattern, other halos": (lambda _, ctx: regular.make_pattern(ctx, unstructured.HaloGenerator(), [DOMAIN]), []),
    "regular pattern, other domain": (lambda _, ctx: regular.make_pattern(ctx, HALOS, [CELLS]), []),
    "regular field, domain": (lambda junk, _: field(domain=junk), []),
    "regular field, other domain": (lambda _, ctx: field(domain=CELLS), []),
    "regular field, array": (lambda junk, _: field(array=junk), []),
    "regular field, offsets": (lambda junk, _: field(offsets=junk), []),
    "regular field, an offset": (lambda junk, _: field(offsets=(1, junk)), []),
    "regular field, extents": (lambda junk, _: field(extents=junk), []),
    "regular field, an extent": (lambda junk, _: field(extents=(10, junk)), []),
    "regular field, arch": (lambda junk, _: field(arch=junk), [None]),
    "unstructured domain, number": (lambda junk, _: unstructured.DomainDescriptor(junk, [0, 1], []), [3]),
    "unstructured domain, ids": (lambda junk, _: unstructured.DomainDescriptor(0, junk, [0]), []),
    "unstructured domain, an id": (lambda junk, _: unstructured.DomainDescriptor(0, [0, junk], []), [3]),
    "unstructured domain, halo": (lambda junk, _: unstructured.DomainDescriptor(0, [0, 1], junk), [()]),
    "unstructured domain, a halo cell": (lambda junk, _: unstructured.DomainDescriptor(0, [0, 1], [junk]), []),
    "unstructured halos": (lambda junk, _: unstructured.HaloGenerator(junk), [None, ()]),
    "unstructured halos, from_gids": (lambda junk, _: unstructured.HaloGenerator.from_gids(junk), [None, ()]),
    "unstructured pattern, context": (lambda junk, _: unstructured.make_pattern(junk, unstructured.HaloGenerator(), [CELLS]), []),
    "unstructured pattern, halos": (lambda junk, ctx: unstructured.make_pattern(ctx, junk, [CELLS]), []),
    "unstructured pattern, domains": (lambda junk, ctx: unstructured.make_pattern(ctx, unstructured.HaloGenerator(), junk), [()]),
    "unstructured pattern, a domain": (lambda junk, ctx: unstructured.make_pattern(ctx, unstructured.HaloGenerator(), [junk]), []),
    "unstructured pattern, other domain": (lambda _, ctx: unstructured.make_pattern(ctx, unstructured.HaloGenerator(), [DOMAIN]), []),
    "unstructured field, domain": (lambda junk, _: unstructured.make_field_descriptor(junk, np.zeros(3)), []),
    "unstructured field, array": (lambda junk, _: unstructured.make_field_descriptor(CELLS, junk), [ARRAY]),
    "unstructured field, arch": (lambda junk, _: unstructured.make_field_descriptor(CELLS, np.zeros(3), arch=junk), [None]),
    "range": (lambda junk, _: UnitRange(0, junk), [3, math.inf, 2**70]),
    "box": (lambda junk, _: ProductSet(UnitRange(0, 1), junk), []),
    "translate": (lambda junk, _: BOX.translate(1, junk), [3, -1, 2**70]),
    "extend": (lambda junk, _: BOX.extend(1, junk), [3, -1, math.inf, 2**70]),
    "union": (lambda junk, _: BOX.union(junk), []),
    "position": (lambda junk, _: BOX[0, junk], [3, -1, 2**70]),
    "point": (lambda junk, _: junk in BOX, []),
    "slice": (lambda junk, _: UnitRange(0, 8)[0:junk], [None, 3, -1, math.inf, 2**70]),
    "space": (lambda junk, _: IndexSpace(junk), []),
    "space, sizes": (lambda junk, _: IndexSpace.from_sizes(8, junk), [3, math.inf, 2**70]),
    "space, parts": (lambda junk, _: IndexSpace.from_sizes(8, 6).decompose(junk), []),
    "space, a part": (lambda junk, _: IndexSpace.from_sizes(8, 6).decompose((1, junk)), [3]),
    "space, mask": (lambda junk, _: IndexSpace.from_sizes(8, 6).intersect(junk), []),
    "configuration": (lambda junk, _: ghex.print_config(junk), [{"a": 1}]),
    "icon4py, communicator": (lambda junk, _: icon4py.create_exchange(types.SimpleNamespace(), junk), [None]),
}


@pytest.fixture(scope="module")
def ctx():
    return make_context(hc.init())


def cases():
    for name, (_, right) in CALLS.items():
        for at, junk in enumerate(JUNK):
            if not any(junk is one or (type(junk) is type(one) and junk == one) for one in right):
                yield pytest.param(name, junk, id=f"{name}: {type(junk).__name__} {at}")


@pytest.mark.parametrize(("name", "junk"), list(cases()))
def test_junk_is_an_error_of_ours(name, junk, ctx):
    with pytest.raises(hc.HaloError) as caught:
        CALLS[name][0](junk, ctx)
    # GHEX's own errors are of these.
    assert isinstance(caught.value, (ValueError, TypeError)) and str(caught.value)


@pytest.mark.parametrize("kind", ["regular", "unstructured"])
@pytest.mark.parametrize("argument", ["halos", "domains"])
def test_junk_of_one_rank_is_an_error_on_all(kind, argument):
    def rank(comm):
        context = make_context(comm.with_deadline(20))
        own = ProductSet(UnitRange(4 * comm.rank, 4 * comm.rank + 4), UnitRange(0, 6))
        if kind == "regular":
            module, halos, domain = regular, HALOS, regular.DomainDescriptor(comm.rank, own)
        else:
            ids = [3 * comm.rank, 3 * comm.rank + 1]
            module, halos = unstructured, unstructured.HaloGenerator()
            domain = unstructured.DomainDescriptor(comm.rank, ids, [])
        for junk in JUNK:
            # Of an unstructured grid a rank may have no domain.
            if junk is EMPTY and (kind, argument) == ("unstructured", "domains"):
                continue
            given = {"halos": halos, "domains": [domain]} | ({argument: junk} if comm.rank == 1 else {})
            with pytest.raises(hc.HaloError) as caught:
                module.make_pattern(context, given["halos"], given["domains"])
            # Domains that leave cells out are found by all.
            if comm.rank == 0 and not (junk is EMPTY and argument == "domains"):
                assert isinstance(caught.value, hc.RefusedElsewhereError), caught.value
        module.make_pattern(context, halos, [domain])

    hc.run_threads(2, rank)


class Decomposition:
    """What is wrong with it, on one rank or on all."""

    def __init__(self, **members):
        self._global_index = {"Cell": 0}
        self.__dict__.update(members)


@pytest.mark.parametrize("junk", [None, 3, "x", Decomposition(), Decomposition(global_index=lambda dim: [0]), Decomposition(_global_index=3)], ids=str)
def test_a_decomposition_that_is_none_is_refused_on_all_ranks(junk):
    def rank(comm):
        good = Decomposition(global_index=lambda dim: [comm.rank], owner_mask=lambda dim: np.array([True]))
        wanted = hc.HaloTypeError if comm.rank == 1 else hc.RefusedElsewhereError
        with pytest.raises(wanted):
            icon4py.create_exchange(junk if comm.rank == 1 else good, comm.with_deadline(20))

    hc.run_threads(2, rank)


def test_ghexs_own_message_for_what_is_no_communicator():
    with pytest.raises(TypeError, match=r"must be `mpi4py.MPI.Comm`"):
        ghex.mpi_comm("invalid")


def test_numbers_of_numpy_are_numbers():
    one = np.int64(1)
    domain = regular.DomainDescriptor(np.int32(0), BOX)
    halos = regular.HaloGenerator(BOX, np.array([[1, 2], [0, 1]]), np.array([True, False]))
    assert halos(domain).local == regular.HaloGenerator(BOX, ((1, 2), (0, 1)), (True, False))(domain).local
    assert regular.HaloGenerator(BOX, (one, [one, one]), (np.True_, 0))(domain).local == HALOS(domain).local
    field(domain, offsets=np.array(OFFSETS), extents=np.array(EXTENTS), arch=Architecture.CPU)
