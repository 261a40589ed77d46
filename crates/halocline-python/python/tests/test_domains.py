"""Boxes and coordinates of a domain, against masks and coordinates by NumPy."""

import itertools

import numpy as np
import pytest

import halocline as hc

# Odd and even sizes, one to three axes, borders of both kinds, halos of 0 to 3 cells.
GRIDS = [
    (shape, periodic, halo)
    for shape in ((7,), (12,), (7, 6), (5, 9), (5, 4, 7))
    for periodic in itertools.product((False, True), repeat=len(shape))
    for halo in (0, 1, 2, 3, tuple((axis % 3, (axis + 2) % 4) for axis in range(len(shape))))
]


def mask(domain, boxes):
    """How often each cell of the array lies in a box."""
    count = np.zeros((*domain.shape, 2), int)
    for box in boxes:
        count[box] += 1
    return count[..., 0]


def owned_mask(domain):
    """The owned cells, from first principles: a halo of the domain's widths around a block of ones."""
    return np.pad(np.ones(domain.owned_shape, int), domain.halo)


def reads_halo(domain, width):
    """Cells with a halo cell within `width` cells along an axis."""
    owned, result = owned_mask(domain), np.zeros(domain.shape, bool)
    for axis, by in itertools.product(range(owned.ndim), range(-width, width + 1)):
        pad = [(width, width) if at == axis else (0, 0) for at in range(owned.ndim)]
        # Beyond the array there is no halo to read.
        around = np.pad(owned, pad, constant_values=1)
        moved = [slice(width + by, width + by + cells) if at == axis else slice(None) for at, cells in enumerate(owned.shape)]
        result |= around[tuple(moved)] == 0
    return result


@pytest.mark.parametrize("shape, periodic, halo", GRIDS)
@pytest.mark.parametrize("ranks", [1, 3])
def test_boxes_are_the_masks_of_numpy(shape, periodic, halo, ranks):
    cut = hc.RegularGrid(shape, periodic=periodic).decompose(ranks)
    for domain in itertools.chain.from_iterable(cut.domains_of(rank, halo) for rank in range(ranks)):
        owned = owned_mask(domain)
        np.testing.assert_array_equal(mask(domain, [domain.owned]), owned)
        np.testing.assert_array_equal(mask(domain, domain.halo_boxes), 1 - owned)
        assert owned[domain.owned].shape == domain.owned_shape
        for width in range(4):
            inside = owned * ~reads_halo(domain, width)
            np.testing.assert_array_equal(mask(domain, [domain.interior(width)]), inside)
            np.testing.assert_array_equal(mask(domain, domain.boundary(width)), owned - inside)
        assert max(len(domain.halo_boxes), len(domain.boundary(1))) <= 2 * len(shape)


@pytest.mark.parametrize("shape, periodic, halo", GRIDS)
def test_coordinates_count_from_the_first_owned_cell_and_back(shape, periodic, halo):
    cut = hc.RegularGrid(shape, periodic=periodic).decompose(3)
    for domain in itertools.chain.from_iterable(cut.domains_of(rank, halo) for rank in range(3)):
        for index in np.ndindex(domain.shape):
            there = tuple(first + at - low for first, at, (low, _) in zip(domain.first, index, domain.halo))
            assert domain.to_global(index) == there
            assert domain.to_local(there) == index
        corner = domain.to_global((0,) * len(shape))
        assert domain.to_local((corner[0] - 1, *corner[1:])) is None
        assert domain.to_local((corner[0] + domain.shape[0], *corner[1:])) is None


def test_exactly_one_rank_owns_each_cell_of_the_grid():
    grid = hc.RegularGrid((7, 5), periodic=(True, False))

    def main(comm):
        (domain,) = grid.decompose(comm).pattern(2).domains
        places = np.argwhere(mask(domain, [domain.owned]))
        return [domain.to_global(tuple(place)) for place in places]

    owned = itertools.chain.from_iterable(hc.run_threads(3, main))
    assert sorted(owned) == list(np.ndindex(7, 5))


def test_halo_cells_beyond_a_periodic_border_keep_counting():
    (domain,) = hc.RegularGrid((7, 5), periodic=(True, True)).decompose(1).domains_of(0, 2)
    assert domain.to_global((0, 8)) == (-2, 6)
    assert domain.to_local((-2, 6)) == (0, 8)


def test_a_stencil_computed_in_parts_is_that_of_the_whole_grid():
    shape, width = (9, 7), 2
    whole = np.random.default_rng(7).random(shape)
    want = sum(np.roll(whole, by, axis) for axis in (0, 1) for by in range(-width, width + 1))

    def main(comm):
        pattern = hc.RegularGrid(shape, periodic=(True, True)).decompose(comm).pattern(width)
        (domain,) = pattern.domains
        place = tuple(slice(first, first + cells) for first, cells in zip(domain.first, domain.owned_shape))
        t, result = np.full(pattern.shape, np.nan), np.zeros(pattern.shape)
        t[domain.owned] = whole[place]
        halo = hc.HaloExchange(comm, [(pattern, t)])

        def compute(box):
            for axis, by in itertools.product((0, 1), range(-width, width + 1)):
                moved = [slice(part.start + by, part.stop + by) if at == axis else part for at, part in enumerate(box)]
                result[box] += t[tuple(moved)]

        pending = halo.exchange(wait=False)
        compute(domain.interior(width))
        pending.wait()
        for box in domain.boundary(width):
            compute(box)
        np.testing.assert_allclose(result[domain.owned], want[place])

    for ranks in (1, 2, 4):
        hc.run_threads(ranks, main)


def test_extra_axes_may_follow():
    (domain,) = hc.RegularGrid((5, 4)).decompose(1).domains_of(0, 1)
    assert np.zeros((*domain.shape, 3))[domain.interior(1)].shape == (3, 2, 3)


def test_the_index_of_the_owned_cells_is_not_a_method_any_more():
    (domain,) = hc.RegularGrid((5, 4)).decompose(1).domains_of(0, 1)
    t = np.zeros(domain.shape)
    with pytest.raises(IndexError):
        t[domain.interior] = 1
    with pytest.raises(TypeError):
        np.zeros(domain.owned)
    assert not t.any()


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda d: d.interior(-1), "width: a whole number from 0 is wanted, not -1"),
        (lambda d: d.boundary(1.0), "width: a whole number is wanted, not 1.0"),
        (lambda d: d.to_global((1,)), "index: 1 numbers for 2 axes; give one for each axis"),
        (lambda d: d.to_global((-1, 0)), r"index[0]: a whole number from 0 is wanted, not -1"),
        (lambda d: d.to_global((0, 6)), "index: (0, 6) is outside an array of shape (7, 6)"),
        (lambda d: d.to_global(3), "index: a sequence of whole numbers is wanted, not 3; a single one is given as (3,)"),
        (lambda d: d.to_local((1, 2, 3)), "coordinates: 3 numbers for 2 axes; give one for each axis"),
        (lambda d: d.to_local((2**70, 0)), "coordinates[0]: a whole number of 64 bits is wanted"),
    ],
)
def test_wrong_arguments_are_refused_by_name(call, text):
    (domain,) = hc.RegularGrid((5, 4)).decompose(1).domains_of(0, 1)
    with pytest.raises(hc.HaloError) as caught:
        call(domain)
    assert str(caught.value).startswith(text)


def test_any_width_and_any_coordinates_of_64_bits_are_taken():
    (domain,) = hc.RegularGrid((5, 4)).decompose(1).domains_of(0, 1)
    assert domain.boundary(2**64 - 1) == [domain.owned] and np.zeros(domain.shape)[domain.interior(2**64 - 1)].size == 0
    assert domain.to_local((-(2**63), 2**63 - 1)) is None


def test_cells_of_an_unstructured_domain_have_global_ids():
    def main(comm):
        cells = [4, 1, 0, 3] if comm.rank else [2, 1, 3, 5]
        owners = [0 if cell in (2, 3, 5) else 1 for cell in cells]
        given = hc.UnstructuredDomain.from_owners(10 + comm.rank, comm, cells, owners)
        (domain,) = hc.Pattern.unstructured(comm, [given]).domains
        assert domain.global_ids.tolist() == cells and domain.global_ids.dtype == "uint64"
        mine = [at for at, owner in enumerate(owners) if owner == comm.rank]
        assert domain.owned_indices.tolist() == mine
        assert np.array(cells)[domain.owned_indices].tolist() == [cells[at] for at in mine]
        assert (domain.owned_shape, domain.first, domain.halo) == ((3,), None, None)
        if comm.rank == 1:
            assert domain.interior(0) == domain.owned and np.zeros(4)[domain.interior(1)].size == 0
            assert (domain.boundary(1), domain.halo_boxes) == ([domain.owned], [(slice(3, 4, 1),)])
        else:
            for boxes in (lambda: domain.owned, lambda: domain.interior(0), lambda: domain.boundary(0), lambda: domain.halo_boxes):
                with pytest.raises(hc.HaloValueError, match="^domain 10 has halo cells before owned ones, .*; take domain.owned_indices$"):
                    boxes()
        for call, name in ((domain.to_global, "index"), (domain.to_local, "coordinates")):
            with pytest.raises(hc.HaloValueError, match=f"^{name}: an unstructured domain has no coordinates; see domain.global_ids"):
                call((0,))
        regular = hc.RegularGrid((4,)).decompose(comm).pattern(1).domains[0]
        assert (regular.global_ids, regular.owned_indices) == (None, None)

    hc.run_threads(2, main)


def test_a_rank_with_an_empty_unstructured_domain():
    def main(comm):
        domain = hc.UnstructuredDomain(comm.rank, [] if comm.rank else [3], [])
        (domain,) = hc.Pattern.unstructured(comm, [domain]).domains
        return domain.global_ids.tolist(), domain.owned_indices.tolist()

    assert hc.run_threads(2, main) == [([3], [0]), ([], [])]


def test_domains_of_a_redistribution_have_no_global_ids():
    def main(comm):
        ids = [[2 * comm.rank, 2 * comm.rank + 1], [comm.rank, 2 + comm.rank]]
        sides = [[hc.UnstructuredDomain(comm.rank, owned, [])] for owned in ids]
        move = hc.Redistribute.unstructured(comm, *sides)
        assert all(domain.global_ids is None for domain in move.pattern.domains)

    hc.run_threads(2, main)
