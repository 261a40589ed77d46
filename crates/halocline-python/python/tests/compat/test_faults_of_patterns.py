"""Patterns that GHEX 0.9 takes wrong or dies of: axes of one cell, wide halos, ids of any size and order."""

import numpy as np
import pytest

import halocline as hc
from halocline.compat.ghex import unstructured
from halocline.compat.ghex.context import make_context
from halocline.compat.ghex.structured import regular
from halocline.compat.ghex.structured.cartesian_sets import ProductSet, UnitRange

RANKS = 2


def test_axes_of_one_cell_are_right():
    def rank(comm):
        context = make_context(comm)
        own = ProductSet(UnitRange(comm.rank, comm.rank + 1), UnitRange(0, 1), UnitRange(0, 4))
        whole = ProductSet(UnitRange(0, comm.size), UnitRange(0, 1), UnitRange(0, 4))
        domain = regular.DomainDescriptor(comm.rank, own)
        halos = regular.HaloGenerator(whole, (1, 0, 1), (True, True, True))
        pattern = regular.make_pattern(context, halos, [domain])
        for order in "CF":
            array = np.full((3, 1, 6), -1.0, order=order)
            array[1, 0, 1:5] = np.arange(4) + 10 * comm.rank
            buffer = pattern(regular.make_field_descriptor(domain, array, (1, 0, 1), array.shape))
            regular.make_communication_object(context).exchange(buffer).wait()
            rows = [(comm.rank + step) % comm.size for step in (-1, 0, 1)]
            expected = [[(np.arange(-1, 5) % 4) + 10 * row] for row in rows]
            np.testing.assert_array_equal(array, expected)

    hc.run_threads(RANKS, rank)


def unstructured_pattern(comm, cells, halo):
    context = make_context(comm)
    domain = unstructured.DomainDescriptor(comm.rank, cells, halo)
    return unstructured.make_pattern(context, unstructured.HaloGenerator(), [domain])


def test_halo_ids_that_nobody_owns_or_that_two_own_are_errors_on_all_ranks():
    def rank(comm):
        with pytest.raises(hc.HaloError, match="9"):
            unstructured_pattern(comm, [comm.rank, 9 if comm.rank else 0], [1])
        with pytest.raises(hc.HaloError, match="7"):
            unstructured_pattern(comm, [10 + comm.rank, 7], [])

    hc.run_threads(RANKS, rank)


def test_domains_that_leave_cells_out_or_share_them_are_errors_on_all_ranks():
    def rank(comm):
        context = make_context(comm)
        halos = regular.HaloGenerator(ProductSet(UnitRange(0, 10)), (1,), (True,))
        for wrong, text in [((4, 10), "none of"), ((5, 11), "axis 0"), ((4, 9), "cell"), ((-1, 5), "domain 1 begins at .*, before the grid, which begins at")]:
            box = (0, 5) if comm.rank == 0 else wrong
            if text == "none of":
                box = (0, 3) if comm.rank == 0 else wrong
            domain = regular.DomainDescriptor(comm.rank, ProductSet(UnitRange(*box)))
            with pytest.raises(hc.HaloError, match=text):
                regular.make_pattern(context, halos, [domain])
        other = regular.HaloGenerator(ProductSet(UnitRange(0, 10)), (1 + comm.rank,), (True,))
        with pytest.raises(hc.HaloValueError, match="the halo generators of rank 0 and rank 1 differ: .*; make the same one on all ranks"):
            regular.make_pattern(context, other, [])
        domain = regular.DomainDescriptor(3, ProductSet(UnitRange(5 * comm.rank, 5 * comm.rank + 5)))
        with pytest.raises(hc.HaloValueError, match="domain 3 exists on rank 0 and on rank 1"):
            regular.make_pattern(context, halos, [domain])

    hc.run_threads(RANKS, rank)


def test_ids_beyond_32_bits_are_right():
    def rank(comm):
        context = make_context(comm)
        ids = np.array([2**40 + comm.rank, 2**40 + 1 - comm.rank])
        domain = unstructured.DomainDescriptor(comm.rank, ids, [1])
        pattern = unstructured.make_pattern(context, unstructured.HaloGenerator(), [domain])
        array = np.array([10.0 + comm.rank, -1])
        buffer = pattern(unstructured.make_field_descriptor(domain, array))
        unstructured.make_communication_object(context).exchange(buffer).wait()
        assert array.tolist() == [10 + comm.rank, 11 - comm.rank]

    hc.run_threads(RANKS, rank)


def test_an_id_may_be_in_a_halo_several_times_and_be_owned_by_the_same_domain():
    def rank(comm):
        context = make_context(comm)
        own, other = 2 * comm.rank, 2 * (1 - comm.rank)
        ids = [own, other, own + 1, other, own, other + 1, other]
        domain = unstructured.DomainDescriptor(comm.rank, ids, [1, 3, 4, 5, 6])
        for only, filled in [(None, range(7)), ([other], [0, 1, 2, 3, 6]), ([own], [0, 2, 4])]:
            pattern = unstructured.make_pattern(context, unstructured.HaloGenerator(only), [domain])
            array = np.array(ids, float)
            array[[1, 3, 4, 5, 6]] = -1
            buffer = pattern(unstructured.make_field_descriptor(domain, array))
            unstructured.make_communication_object(context).exchange(buffer).wait()
            expected = [id_ if at in filled else -1 for at, id_ in enumerate(ids)]
            assert array.tolist() == expected

    hc.run_threads(RANKS, rank)


def test_ids_of_regular_domains_need_not_be_dense():
    def rank(comm):
        context = make_context(comm)
        ids = [70, 3] if comm.rank else [5, 1000]
        boxes = [(0, 4), (8, 12)] if comm.rank else [(4, 8), (12, 16)]
        domains = [regular.DomainDescriptor(i, ProductSet(UnitRange(*b))) for i, b in zip(ids, boxes)]
        halos = regular.HaloGenerator(ProductSet(UnitRange(0, 16)), (2,), (True,))
        pattern = regular.make_pattern(context, halos, domains)
        arrays = [np.r_[-1, -1, np.arange(*box), -1, -1] for box in boxes]
        buffers = [
            pattern(regular.make_field_descriptor(domain, array, (2,), (8,))) for domain, array in zip(domains, arrays)
        ]
        regular.make_communication_object(context).exchange(buffers).wait()
        for (start, stop), array in zip(boxes, arrays):
            np.testing.assert_array_equal(array, np.arange(start - 2, stop + 2) % 16)

    hc.run_threads(RANKS, rank)


def test_halos_wider_than_domains_and_over_the_seam_are_right():
    def rank(comm):
        context = make_context(comm)
        whole = ProductSet(UnitRange(3, 7))
        domain = regular.DomainDescriptor(comm.rank, ProductSet(UnitRange(3 + 2 * comm.rank, 5 + 2 * comm.rank)))
        halos = regular.HaloGenerator(whole, ((5, 3),), (True,))
        copied = halos(domain)
        assert set(copied.local) == {(x,) for x in [*range(-5, 0), *range(2, 5)]}
        assert set(copied.global_) == {(x,) for x in range(3, 7)}
        pattern = regular.make_pattern(context, halos, [domain])
        array = np.full(10, -1.0)
        expected = (np.arange(-5, 5) + 2 * comm.rank) % 4
        array[5:7] = expected[5:7]
        buffer = pattern(regular.make_field_descriptor(domain, array, (5,), (10,)))
        regular.make_communication_object(context).exchange(buffer).wait()
        np.testing.assert_array_equal(array, expected)

    hc.run_threads(RANKS, rank)
