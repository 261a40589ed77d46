"""Regular grids against NumPy: every shape, halo, layout and number of ranks."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle import all_layouts, expected, start

import halocline as hc


def exchange_and_compare(comm, shape, periodic, halo, blocks=None, neighbours="all", layouts=None):
    grid = hc.RegularGrid(shape, periodic=periodic)
    cut = grid.decompose(comm) if blocks is None else grid.decompose_into(blocks, comm)
    pattern = cut.pattern(halo, neighbours=neighbours)
    (domain,) = pattern.domains
    before = start(domain, shape)
    arrays = list(all_layouts(before)) if layouts is None else layouts(before)
    exchange = hc.HaloExchange(comm, [(pattern, array) for _, array in arrays])
    exchange.exchange()
    want = expected(domain, shape, periodic, faces_only=neighbours == "faces")
    for name, array in arrays:
        np.testing.assert_array_equal(array, want, err_msg=name)
    # Again, begun and waited for.
    for _, array in arrays:
        array[...] = before
    pending = exchange.exchange(wait=False)
    pending.wait()
    pending.wait()
    assert pending.is_ready() and pending.epoch == 2
    for name, array in arrays:
        np.testing.assert_array_equal(array, want, err_msg=name)


@pytest.mark.parametrize(
    "shape, periodic, halo",
    [
        ((11,), (True,), 2),
        ((7, 9), (True, False), 1),
        ((8, 6), (True, True), [(0, 2), (1, 0)]),
        ((6, 5, 7), (False, True, True), [1, 2, 0]),
        ((5, 6, 4), (False, False, False), 2),
    ],
)
def test_halos_are_those_of_numpy(ranks, shape, periodic, halo):
    hc.run_threads(ranks, lambda comm: exchange_and_compare(comm, shape, periodic, halo))


def test_faces_alone(ranks):
    hc.run_threads(
        ranks, lambda comm: exchange_and_compare(comm, (9, 8), (True, True), 1, neighbours="faces")
    )


axes = st.integers(1, 3)


@st.composite
def grids(draw):
    n = draw(st.integers(1, 3))
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=n, max_size=n)))
    periodic = tuple(draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    halo = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=n, max_size=n))
    blocks = [draw(st.integers(1, min(2, cells))) for cells in shape]
    return shape, periodic, halo, blocks


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(grids())
def test_random_grids(grid):
    shape, periodic, halo, blocks = grid
    layouts = lambda before: [("C", before.copy()), ("F", np.asfortranarray(before))]  # noqa: E731
    hc.run_threads(
        int(np.prod(blocks)),
        lambda comm: exchange_and_compare(comm, shape, periodic, halo, blocks, layouts=layouts),
    )


def test_several_domains_of_a_rank_given_as_boxes():
    shape, periodic = (12, 6), (True, True)
    # Rank 0 has two boxes, rank 1 one, rank 2 none.
    boxes = [(0, (0, 0), (4, 6)), (1, (4, 0), (4, 6)), (0, (8, 0), (4, 6))]

    def run(comm):
        pattern = hc.RegularGrid(shape, periodic=periodic).decompose_boxes(boxes, comm).pattern([(1, 2), (2, 1)])
        assert [d.id for d in pattern.domains] == [[0, 2], [1], []][comm.rank]
        arrays = [start(domain, shape) for domain in pattern.domains]
        fields = [(pattern, hc.Field(a, domain=d.id)) for d, a in zip(pattern.domains, arrays)]
        hc.HaloExchange(comm, fields).exchange()
        for domain, array in zip(pattern.domains, arrays):
            np.testing.assert_array_equal(array, expected(domain, shape, periodic))

    hc.run_threads(3, run)


def test_axes_origin_and_levels():
    """Levels first, the grid's axes last and turned; the array is larger than its domain."""
    shape, periodic = (6, 8), (True, False)

    def run(comm):
        pattern = hc.RegularGrid(shape, periodic=periodic).decompose(comm).pattern(1)
        (domain,) = pattern.domains
        inner = start(domain, shape)
        padded = np.full((3, inner.shape[1] + 4, inner.shape[0] + 3), 5.0)
        part = padded[:, 2 : 2 + inner.shape[1], 1 : 1 + inner.shape[0]]
        part[...] = inner.T
        field = hc.Field(padded, axes=(2, 1), origin=(2, 3))
        hc.HaloExchange(comm, [(pattern, field)]).exchange()
        for level in part:
            np.testing.assert_array_equal(level.T, expected(domain, shape, periodic))
        part[...] = 5.0
        assert (padded == 5.0).all()

    hc.run_threads(2, run)


def ten_by_ten(comm):
    """Each rank has an array of 10 x 10 cells."""
    grid = hc.RegularGrid((8 * comm.size, 8), periodic=(True, True))
    return grid.decompose_into((comm.size, 1), comm).pattern(1)


def refusals(comm, pattern, field):
    """What a field is refused by, bound and unbound, by this rank."""
    with pytest.raises(hc.HaloValueError) as bound:
        hc.HaloExchange(comm, [(pattern, field)])
    with pytest.raises(hc.HaloValueError) as unbound:
        hc.PatternLinks(comm, [pattern]).exchange([(pattern, field)])
    assert str(bound.value) == str(unbound.value)
    return str(bound.value)


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("levels", [30, 5])
def test_levels_first_need_their_axes_named(levels, checked):
    def run(comm):
        pattern = ten_by_ten(comm)
        array = np.arange(levels * 100.0).reshape(levels, 10, 10)
        before = array.copy()
        with pytest.raises(hc.HaloValueError, match=r"axes 1 and 2 fit; pass `halocline.Field\(array, axes=\[1, 2\]\)`"):
            hc.HaloExchange(comm, [(pattern, array)], checked=checked)
        np.testing.assert_array_equal(array, before)
        hc.HaloExchange(comm, [(pattern, hc.Field(array, axes=(1, 2)))], checked=checked).exchange()
        # Along the axis that this rank has to itself the halo is its own other side.
        np.testing.assert_array_equal(array[:, 1:9, 0], before[:, 1:9, 8])
        np.testing.assert_array_equal(array[:, 1:9, 1:9], before[:, 1:9, 1:9])

    hc.run_threads(2, run)


def test_extents_that_are_not_those_of_the_domain_are_refused():
    comm = hc.init("thread")
    pattern = ten_by_ten(comm)
    refusal = lambda *shape: refusals(comm, pattern, np.zeros(shape))  # noqa: E731
    assert "(30, 10, 10), the domain's with its halo (10, 10): axes 1 and 2 fit" in refusal(30, 10, 10)
    assert "axes 1 and 2 fit" in refusal(5, 10, 10)
    assert "axes 0 and 2 fit" in refusal(10, 3, 10)
    assert "for spare cells along axes 0 and 1 pass `halocline.Field(array, padded=True)`" in refusal(12, 11)
    assert "(8, 8), the domain's with its halo (10, 10): no axes fit; allocate the domain's shape" in refusal(8, 8)
    assert "no axes fit" in refusal(100)
    for field in [hc.Field(np.zeros((12, 11)), padded=True), hc.Field(np.zeros((12, 11)), origin=(2, 1))]:
        hc.HaloExchange(comm, [(pattern, field)]).exchange()
    small = hc.Field(np.zeros((12, 9)), padded=True)
    with pytest.raises(hc.HaloValueError, match="axis 1"):
        hc.HaloExchange(comm, [(pattern, small)])


@pytest.mark.parametrize("shape, axes", [((30, 14, 14), (1, 2)), ((30, 11, 10), (1, 2)), ((14, 14, 30), (0, 1))])
def test_spare_cells_of_arrays_with_levels_need_axes_and_origin(shape, axes):
    comm = hc.init("thread")
    pattern = ten_by_ten(comm)
    text = refusals(comm, pattern, np.zeros(shape))
    assert f"pass `halocline.Field(array, axes=[{axes[0]}, {axes[1]}])`" in text and "`origin=` (the index" in text
    assert "Field(array, padded=True)" not in text
    array = np.arange(np.prod(shape, dtype=float)).reshape(shape)
    before = array.copy()
    origin = [(shape[axis] - 8) // 2 for axis in axes]
    hc.HaloExchange(comm, [(pattern, hc.Field(array, axes=axes, origin=origin))]).exchange()
    owned = [slice(None)] * 3
    for axis, first in zip(axes, origin):
        owned[axis] = slice(first, first + 8)
    np.testing.assert_array_equal(array[tuple(owned)], before[tuple(owned)])
    assert (array != before).any()


def test_named_axes_have_the_shape_of_the_domain():
    comm = hc.init("thread")
    pattern = ten_by_ten(comm)
    for shape, axes in [((3, 12, 12), (1, 2)), ((12, 12), (0, 1)), ((3, 10, 11), (2, 1))]:
        array = np.arange(np.prod(shape, dtype=float)).reshape(shape)
        before = array.copy()
        text = refusals(comm, pattern, hc.Field(array, axes=axes))
        assert f"the named axes {axes[0]} and {axes[1]} have ({shape[axes[0]]}, {shape[axes[1]]})" in text
        np.testing.assert_array_equal(array, before)
        for field in [hc.Field(array, axes=axes, origin=(1, 1)), hc.Field(array, axes=axes, padded=True)]:
            hc.HaloExchange(comm, [(pattern, field)]).exchange()
    text = refusals(comm, pattern, hc.Field(np.zeros((10, 30, 10)), axes=(0, 1)))
    assert "axes 0 and 2 fit; pass `halocline.Field(array, axes=[0, 2])`" in text


def test_the_other_ranks_learn_of_wrong_extents_in_words_of_python():
    def run(comm):
        pattern = ten_by_ten(comm)
        array = np.zeros((30, 10, 10) if comm.rank == 1 else (10, 10, 30))
        with pytest.raises(hc.HaloError, match=r"axes=\[1, 2\]") as error:
            hc.HaloExchange(comm, [(pattern, array)])
        assert isinstance(error.value, hc.HaloValueError if comm.rank == 1 else hc.RefusedElsewhereError)

    hc.run_threads(2, run)


def test_staggered_and_cells_together():
    def run(comm):
        cells = hc.RegularGrid((8, 6), periodic=(True, False)).decompose(comm)
        edges = cells.staggered((False, True))
        assert edges.shape == (8, 7)
        patterns = [cells.pattern(1), edges.pattern(1)]
        arrays = [start(p.domains[0], s) for p, s in zip(patterns, [(8, 6), (8, 7)])]
        hc.HaloExchange(comm, list(zip(patterns, arrays))).exchange()
        for p, s, a in zip(patterns, [(8, 6), (8, 7)], arrays):
            np.testing.assert_array_equal(a, expected(p.domains[0], s, (True, False)))

    hc.run_threads(4, run)


def test_an_array_is_in_flight_until_the_wait_however_soon_the_exchange_is_over():
    comm = hc.init("thread")
    pattern = ten_by_ten(comm)
    array = np.zeros(pattern.shape)
    one, other = (hc.HaloExchange(comm, [(pattern, array)]) for _ in range(2))
    ends = [
        lambda pending: pending.wait(),
        lambda pending: pending.is_ready(),
        lambda pending: one.wait(),
        lambda pending: one.reclaim(),
    ]
    for end in ends:
        # Of one rank it is over at once.
        pending = one.exchange(wait=False)
        with pytest.raises(hc.InFlightError, match="another object"):
            other.exchange()
        end(pending)
        other.exchange()
    del pending
    one.exchange(wait=False)
    with pytest.raises(hc.InFlightError):
        other.exchange()
    # Nobody is left who could wait for it.
    del one, ends, end
    other.exchange()


def test_alternatives_and_narrowed():
    shape, periodic = (9,), (True,)

    def run(comm):
        pattern = hc.RegularGrid(shape, periodic=periodic).decompose(comm).pattern(2)
        (domain,) = pattern.domains
        a, b = start(domain, shape), start(domain, shape)
        halo = hc.HaloExchange.alternatives(comm, [[(pattern, a)], [(pattern, b)]])
        assert halo.sets == 2
        halo.exchange(set=1)
        assert (a[:2] == -1).all()
        np.testing.assert_array_equal(b, expected(domain, shape, periodic))
        halo.narrowed(1).exchange()
        want = expected(domain, shape, periodic)
        want[[0, -1]] = -1
        np.testing.assert_array_equal(a, want)
        halo.alternative(0).exchange()
        np.testing.assert_array_equal(a, expected(domain, shape, periodic))
        with pytest.raises(hc.HaloValueError, match="no set 2"):
            halo.exchange(set=2)
        assert pattern.narrowed(1).shape == pattern.shape

    hc.run_threads(3, run)


def test_pack_and_unpack():
    def run(comm):
        pattern = hc.RegularGrid((8, 4), periodic=(True, True)).decompose_into((2, 1), comm).pattern(1)
        (domain,) = pattern.domains
        array = start(domain, (8, 4))
        halo = hc.HaloExchange(comm, [(pattern, array)])
        peer = 1 - comm.rank
        message = bytearray(halo.message_bytes(peer, "send"))
        halo.pack(peer, message)
        received = comm.all_gather(bytes(message))[peer]
        halo.unpack(peer, received)
        want = expected(domain, (8, 4), (True, True))
        np.testing.assert_array_equal(array[[0, -1], 1:-1], want[[0, -1], 1:-1])
        with pytest.raises(hc.HaloValueError, match="bytes"):
            halo.pack(peer, bytearray(3))
        with pytest.raises(hc.HaloValueError, match="read-only"):
            halo.pack(peer, bytes(message))

    hc.run_threads(2, run)


def test_memory_of_the_library_is_reached_directly():
    def run(comm):
        pattern = hc.RegularGrid((16, 16)).decompose(comm).pattern(1)
        for order, dtype in [("C", "float32"), ("F", "complex128"), ("C", "bool")]:
            array = hc.zeros((*pattern.shape, 3), dtype, comm, order=order)
            assert array.dtype == dtype and array.flags.writeable and not array.any()
            assert array.flags.f_contiguous == (order == "F")
            hc.HaloExchange(comm, [(pattern, array)]).exchange()
        assert hc.empty(5, comm=comm).shape == (5,)
        assert hc.zeros((0, 4), comm=comm).shape == (0, 4)
        with pytest.raises(hc.HaloTypeError, match="object"):
            hc.zeros(3, object, comm)

    hc.run_threads(2, run)


def test_the_domains_of_every_rank_are_known_to_all():
    grid = hc.RegularGrid((13, 9), periodic=(True, False), domains_per_rank=2)

    def run(comm):
        cut = grid.decompose(comm)
        mine = [(domain.id, domain.first, domain.owned_shape, domain.shape) for domain in cut.pattern((2, 1)).domains]
        assert mine == [(d.id, d.first, d.owned_shape, d.shape) for d in cut.domains_of(comm.rank, (2, 1))]
        owned = np.zeros(grid.shape, int)
        for rank in range(comm.size):
            for domain in cut.domains_of(rank):
                assert domain.shape == domain.owned_shape and domain.halo == ((0, 0), (0, 0))
                owned[tuple(slice(at, at + n) for at, n in zip(domain.first, domain.owned_shape))] += 1
        assert (owned == 1).all()
        for rank in (comm.size, -1, 2**70):
            with pytest.raises(hc.HaloValueError):
                cut.domains_of(rank)
        with pytest.raises(hc.HaloValueError, match="^halo: a width"):
            cut.domains_of(0, "1")

    hc.run_threads(3, run)
    # Without a communicator.
    assert [domain.id for domain in grid.decompose(4).domains_of(3)] == [6, 7]
