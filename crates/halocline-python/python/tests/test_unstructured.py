"""Unstructured domains, meshes, partitions, redistribution, the unbound form: against NumPy."""

import array as array_module
import re
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import halocline as hc


def ring(comm, cells, per_rank=2):
    """A ring of cells, each rank with several domains of consecutive cells and one halo cell at each end."""
    domains = comm.size * per_rank
    bounds = [cells * d // domains for d in range(domains + 1)]
    for number in range(comm.rank * per_rank, (comm.rank + 1) * per_rank):
        owned = list(range(bounds[number], bounds[number + 1]))
        yield number, owned, [(owned[0] - 1) % cells, (owned[-1] + 1) % cells]


def value(ids, levels=1):
    ids = np.asarray(ids, "f8")
    return ids if levels == 1 else ids[:, None] + np.arange(levels) / 16


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("ids", [list, np.array, lambda x: np.array(x, "i4")[::1], lambda x: np.repeat(x, 2)[::2]])
def test_several_domains_of_a_rank(ranks, order, ids):
    def run(comm):
        pieces = list(ring(comm, 40))
        pattern = hc.Pattern.unstructured(comm, [hc.UnstructuredDomain(n, ids(o), ids(h)) for n, o, h in pieces])
        arrays = []
        for _, owned, halo in pieces:
            array = np.full((len(owned) + 2, 3), -1.0, order=order)
            array[: len(owned)] = value(owned, 3)
            arrays.append(array)
        fields = [(pattern, hc.Field(a, domain=n)) for (n, _, _), a in zip(pieces, arrays)]
        hc.HaloExchange(comm, fields).exchange()
        check = [value(owned + halo, 3) for _, owned, halo in pieces]
        for array, want in zip(arrays, check):
            np.testing.assert_array_equal(array, want)
            array[-2:] = -1
        # The same, unbound; in the other memory order; twice, so that it is known the second time.
        links = hc.PatternLinks(comm, [pattern])
        for _ in range(2):
            others = [np.array(a, order="C" if order == "F" else "F") for a in arrays]
            fields = [(pattern, hc.Field(a, domain=n)) for (n, _, _), a in zip(pieces, others)]
            pending = links.exchange(fields, wait=False)
            pending.wait()
            for array, want in zip(others, check):
                np.testing.assert_array_equal(array, want)
        pending = links.schedule_exchange(fields, stream=None)
        pending.schedule_wait(None)
        assert all(direction in ("send", "receive") for _, direction, _ in links.links)
        assert "rank" in links.explain()

    hc.run_threads(ranks, run)


def test_levels_first_need_their_axis_named():
    def run(comm):
        number, owned, halo = comm.rank, list(range(50 * comm.rank, 50 * comm.rank + 50)), [(50 * comm.rank + 50) % 100]
        pattern = hc.Pattern.unstructured(comm, [hc.UnstructuredDomain(number, owned, halo)])
        array = np.full((65, 51), -1.0)
        array[:, :50] = value(owned, 65).T
        with pytest.raises(hc.HaloValueError, match=r"\(65, 51\).*\(51\): axis 1 fits; pass `.*axes=\[1\]"):
            hc.HaloExchange(comm, [(pattern, array)])
        links = hc.PatternLinks(comm, [pattern])
        with pytest.raises(hc.HaloValueError, match="axis 1 fits"):
            links.exchange([(pattern, array)])
        with pytest.raises(hc.HaloValueError, match="origin"):
            links.exchange([(pattern, hc.Field(np.zeros(60), origin=[9]))])
        for exchange in [
            lambda field: hc.HaloExchange(comm, [(pattern, field)]).exchange(),
            lambda field: links.exchange([(pattern, field)]),
        ]:
            array[:, 50:] = -1
            exchange(hc.Field(array, axes=[1]))
            np.testing.assert_array_equal(array, value(owned + halo, 65).T)

    hc.run_threads(2, run)


def test_indices_and_owners():
    def run(comm):
        # Local order is turned round: the halo comes first.
        pieces = [(n, h + o) for n, o, h in ring(comm, 12, per_rank=1)]
        ((number, cells),) = pieces
        by_index = hc.UnstructuredDomain.from_indices(number, cells, np.array([0, 1]))
        owners = [min(c * comm.size // 12, comm.size - 1) for c in cells]
        by_owner = hc.UnstructuredDomain.from_owners(number, comm, cells, owners)
        assert list(by_owner.cells) == cells and by_owner.id == number
        for domain in (by_index, by_owner):
            pattern = hc.Pattern.unstructured(comm, [domain])
            array = value(cells).copy()
            array[:2] = -1
            hc.HaloExchange(comm, [(pattern, array)]).exchange()
            np.testing.assert_array_equal(array, value(cells))

    hc.run_threads(3, run)


def test_what_is_wrong_is_an_error_on_all_ranks():
    wrong = {
        "nobody owns": lambda rank, o, h: (rank, o, [h[0], 99]),
        "owned by two": lambda rank, o, h: (rank, o + [(o[0] + 6) % 12], h),
        "halo twice": lambda rank, o, h: (rank, o, [h[0], h[0]]),
        "one number": lambda rank, o, h: (0, o, h),
    }
    for name, change in wrong.items():

        def run(comm):
            ((number, owned, halo),) = ring(comm, 12, per_rank=1)
            # Only rank 1 is wrong, or does it.
            args = change(number, owned, halo) if comm.rank == 1 or name == "one number" else (number, owned, halo)
            try:
                hc.Pattern.unstructured(comm, [hc.UnstructuredDomain(*args)])
            except hc.HaloError as error:
                return str(error)
            return None

        messages = hc.run_threads(3, run)
        assert all(messages), (name, messages)


def test_ids_that_are_none():
    with pytest.raises(hc.HaloValueError, match="-1"):
        hc.UnstructuredDomain(0, [0, -1], [])
    with pytest.raises(hc.HaloValueError, match="-3"):
        hc.UnstructuredDomain(0, np.array([1, -3]), [])
    with pytest.raises(hc.HaloTypeError):
        hc.UnstructuredDomain(0, np.array([1.5]), [])
    with pytest.raises(hc.HaloTypeError):
        hc.UnstructuredDomain(0, ["a"], [])
    assert list(hc.UnstructuredDomain(0, [2**63 + 5], []).cells) == [2**63 + 5]


def triangles(nx, ny):
    """A rectangle of nx x ny squares, each cut into two triangles."""
    vertex = np.arange((nx + 1) * (ny + 1)).reshape(nx + 1, ny + 1)
    a, b, c, d = vertex[:-1, :-1], vertex[1:, :-1], vertex[:-1, 1:], vertex[1:, 1:]
    return vertex.size, np.stack([np.stack([a, b, c], -1), np.stack([d, c, b], -1)], 2).reshape(-1, 3)


@pytest.mark.parametrize("depth", [1, 2])
def test_meshes(depth):
    vertices, connectivity = triangles(7, 5)
    mesh = hc.Mesh(vertices, connectivity)
    assert (mesh.vertices, mesh.elements) == (vertices, len(connectivity))
    partition = hc.Partition.metis(mesh.element_graph(2), 3)
    assert sum(partition.counts) == mesh.elements and partition.ranks == 3
    assert set(partition.owners) == {0, 1, 2}

    def run(comm):
        halos = mesh.halos(partition, comm.rank, depth)
        flat = hc.Mesh(vertices, connectivity.ravel(), offsets=np.arange(0, connectivity.size + 1, 3))
        assert list(flat.halos(partition, comm.rank, depth).edges.cells) == list(halos.edges.cells)
        kinds = [
            (halos.elements, halos.owned_elements),
            (halos.vertices, halos.owned_vertices),
            (halos.edges, halos.owned_edges),
        ]
        bindings = []
        for domain, owned in kinds:
            array = value(domain.cells).copy()
            array[owned:] = -1
            bindings.append((hc.Pattern.unstructured(comm, [domain]), array))
        hc.HaloExchange(comm, bindings).exchange()
        for (_, array), (domain, _) in zip(bindings, kinds):
            np.testing.assert_array_equal(array, value(domain.cells))
        # Local numbers mean the same vertices as global ones.
        local = halos.vertices.cells[halos.connectivity.reshape(-1, 3).astype(int)]
        np.testing.assert_array_equal(local, connectivity[halos.elements.cells.astype(int)])
        assert halos.edge_vertices.shape == (len(halos.edges.cells), 2)
        by_vertex = mesh.domains_by_vertex(hc.Partition.block(vertices, comm.size), comm.rank)
        assert by_vertex.owned_vertices + len(hc.Pattern.unstructured(comm, [by_vertex.vertices]).peers) > 0
        mesh.domains_by_element(partition, comm.rank)

    hc.run_threads(3, run)


def test_mesh_refusals():
    with pytest.raises(hc.HaloValueError, match="vertices"):
        hc.Mesh(3, [[0, 1, 2], [1, 2]])
    with pytest.raises(hc.HaloValueError):
        hc.Mesh(3, [[0, 1, 7]])
    with pytest.raises(hc.HaloValueError):
        hc.Mesh(3, np.array([0, 1, 2]))
    with pytest.raises(hc.HaloValueError, match="shar"):
        hc.Mesh(3, [[0, 1, 2]]).halos(hc.Partition.block(1, 1), 0, 1, shared="point")
    with pytest.raises(hc.HaloValueError):
        hc.Partition([0, 3], 2)
    assert len(hc.Graph([0, 1, 2], [1, 0])) == 2


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(4, 30), st.randoms(use_true_random=False))
def test_random_partitions(ranks, cells, random):
    """Any owner of any cell, any halo: what arrives is what the owner has."""
    owners = [random.randrange(ranks) for _ in range(cells)]
    halos = [[c for c in range(cells) if owners[c] != r and random.random() < 0.4] for r in range(ranks)]
    orders = [random.sample(range(cells), cells) for _ in range(ranks)]

    def run(comm):
        owned = [c for c in orders[comm.rank] if owners[c] == comm.rank]
        halo = halos[comm.rank]
        pattern = hc.Pattern.unstructured(comm, [hc.UnstructuredDomain(comm.rank, owned, halo)])
        array = np.full(len(owned) + len(halo), -1.0)
        array[: len(owned)] = value(owned)
        hc.HaloExchange(comm, [(pattern, array)]).exchange()
        np.testing.assert_array_equal(array, value(owned + halo))

    hc.run_threads(ranks, run)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_random_unbound_fields(data):
    """Fields of any memory order, element type and extra dimensions, given to each exchange; the order differs by rank."""
    ranks = data.draw(st.integers(1, 3))
    shape = tuple(data.draw(st.lists(st.integers(3, 6), min_size=2, max_size=2)))
    steps = data.draw(
        st.lists(
            st.lists(st.tuples(st.sampled_from(["f4", "f8", "i2", "?"]), st.integers(0, 3)), min_size=1, max_size=3),
            min_size=1,
            max_size=4,
        )
    )
    orders = data.draw(st.lists(st.sampled_from("CF"), min_size=12, max_size=12))

    def run(comm):
        from oracle import expected, start

        pattern = hc.RegularGrid(shape, periodic=(True, False)).decompose_into((comm.size, 1), comm).pattern(1)
        (domain,) = pattern.domains
        links = hc.PatternLinks(comm, [pattern])
        for step, kinds in enumerate(steps):
            fields, wants = [], []
            for at, (dtype, levels) in enumerate(kinds):
                full = lambda a: np.repeat(a[..., None], levels, -1) if levels else a  # noqa: E731
                order = orders[(4 * comm.rank + step + at) % len(orders)]
                fields.append((pattern, np.array(full(start(domain, shape)).astype(dtype), order=order)))
                wants.append(full(expected(domain, shape, (True, False))).astype(dtype))
            pending = links.exchange(fields, wait=False)
            pending.wait()
            for (_, array), want in zip(fields, wants):
                np.testing.assert_array_equal(array, want)

    hc.run_threads(min(ranks, shape[0]), run)


def test_redistribution_there_and_back():
    shape = (12, 10)

    def run(comm):
        grid = hc.RegularGrid(shape)
        rows, columns = grid.decompose_into((comm.size, 1), comm), grid.decompose_into((1, comm.size), comm)
        way = hc.Redistribute.regular(comm, (rows, 0), (columns, 1))
        truth = np.arange(120.0).reshape(shape)
        mine = truth[12 // comm.size * comm.rank :][: 12 // comm.size].copy()
        target = np.full((14, 10 // comm.size + 2), -1.0)
        way.bind(comm, [mine], [target]).exchange()
        want = np.full_like(target, -1)
        want[1:-1, 1:-1] = truth[:, 10 // comm.size * comm.rank :][:, : 10 // comm.size]
        np.testing.assert_array_equal(target, want)
        again = np.zeros_like(mine)
        way.back().bind(comm, [target], [again]).exchange()
        np.testing.assert_array_equal(again, mine)
        ids = [list(range(12))[comm.rank :: comm.size], list(range(12))[12 // comm.size * comm.rank :][: 12 // comm.size]]
        sides = [[hc.UnstructuredDomain(comm.rank, i, [])] for i in ids]
        a, b = value(ids[0]).copy(), np.zeros(12 // comm.size)
        hc.Redistribute.unstructured(comm, *sides).bind(comm, [a], [b]).exchange()
        np.testing.assert_array_equal(b, value(ids[1]))

    hc.run_threads(2, run)


def test_the_pattern_of_a_redistribution():
    """Who has what goes to whom is seen there; its fields are on domains of both sides."""

    def run(comm):
        grid = hc.RegularGrid((12, 10))
        rows, columns = grid.decompose_into((comm.size, 1), comm), grid.decompose_into((1, comm.size), comm)
        way = hc.Redistribute.regular(comm, (rows, 0), (columns, 1))
        assert [domain.id for domain in way.pattern.domains] == [2 * comm.rank, 2 * comm.rank + 1]
        assert [domain.shape for domain in way.pattern.domains] == [(6, 10), (14, 7)]
        # A quarter of the cells goes to the other rank, and as many come.
        assert way.pattern.peers == [(1 - comm.rank, 30, 30)] == way.back().pattern.peers
        source, target = np.full((6, 10), float(comm.rank)), np.full((14, 7), -1.0)
        fields = [hc.Field(array, domain=2 * comm.rank + side) for side, array in enumerate((source, target))]
        hc.HaloExchange(comm, [(way.pattern, field) for field in fields]).exchange()
        np.testing.assert_array_equal(target[1:-1, 1:-1], np.repeat([0.0, 1.0], 6)[:, None] + np.zeros(5))
        with pytest.raises(hc.HaloValueError, match="another communicator"):
            alone = hc.run_threads(1, lambda c: c)[0]
            hc.HaloExchange(alone, [(way.pattern, fields[0])])

    hc.run_threads(2, run)


@pytest.mark.parametrize("is_refined", [True, False], ids=["refined", "given"])
def test_parts_of_meshes_that_no_rank_has_as_a_whole(is_refined):
    """As ranks that have all of it."""
    coarse, segments, ranks = hc.Mesh(*triangles(6, 5)), 3, 3
    partition = hc.Partition.metis(coarse.element_graph(2), ranks)
    whole = coarse.refined_part(hc.Partition.block(coarse.elements, 1), 0, segments, 0).mesh
    assert whole.elements == segments**2 * coarse.elements
    owners = np.repeat(partition.owners, segments**2)

    def run(comm):
        if is_refined:
            part = coarse.refined_part(partition, comm.rank, segments, 2)
            assert part.mesh.elements < whole.elements
        else:
            # All of it, backwards.
            vertices, elements = np.arange(whole.vertices)[::-1], np.arange(whole.elements)[::-1]
            backwards = hc.Mesh(whole.vertices, vertices[whole.connectivity.reshape(-1, 3).astype(int)][::-1])
            part = hc.MeshPart(backwards, vertices, elements, hc.Partition(owners[::-1], ranks), comm.rank, 2)
            assert part.mesh.connectivity.tolist() == backwards.connectivity.tolist()
        halos = part.halos(2, shared="edge")
        same = whole.halos(hc.Partition(owners, ranks), comm.rank, 2, shared="edge")
        assert set(halos.elements.cells) == set(same.elements.cells)
        for kind in ("elements", "vertices", "edges"):
            assert getattr(halos, kind).levels == getattr(same, kind).levels
            assert len(getattr(halos, kind).cells) == len(getattr(same, kind).cells)
            domain, owned = getattr(halos, kind), getattr(halos, f"owned_{kind}")
            field = value(domain.cells, 3)
            field[owned:] = -1
            hc.HaloExchange(comm, [(hc.Pattern.unstructured(comm, [domain]), field)]).exchange()
            np.testing.assert_array_equal(field, value(domain.cells, 3))
        for depth, error in [(3, hc.HaloValueError), (1.0, hc.HaloTypeError), (-1, hc.HaloValueError)]:
            with pytest.raises(error):
                part.halos(depth)

    hc.run_threads(ranks, run)


def test_parts_that_are_none_are_refused():
    mesh, one = hc.Mesh(4, [[0, 1, 2], [1, 2, 3]]), hc.Partition([0, 0], 1)
    for call, text in [
        (lambda: hc.MeshPart(mesh, [0, 1, 2], [0, 1], one, 0, 1), "vertices"),
        (lambda: hc.MeshPart(mesh, [0, 1, 2, 2], [0, 1], one, 0, 1), "2"),
        (lambda: hc.MeshPart(mesh, [0, 1, 2, 3], [0], one, 0, 1), "elements"),
        (lambda: hc.MeshPart(mesh, [0, 1, 2, 3], [0, 1], one, 1, 1), "1"),
        (lambda: hc.MeshPart(hc.Mesh(5, [[0, 1, 2], [1, 2, 3]]), range(5), [0, 1], one, 0, 1), "4"),
        (lambda: mesh.refined_part(one, 0, 0, 1), "segments"),
        (lambda: hc.Mesh(4, [[0, 1, 2, 3]]).refined_part(hc.Partition([0], 1), 0, 2, 1), "triangle"),
        (lambda: mesh.refined_part(hc.Partition([0], 1), 0, 2, 1), "elements"),
        (lambda: hc.MeshPart(mesh, "abcd", [0, 1], one, 0, 1), "whole numbers"),
    ]:
        with pytest.raises(hc.HaloError, match=text):
            call()


def test_numbers_that_are_no_vertices_and_parts_that_there_are_not_are_named():
    for entry, error, text in [
        (-1, hc.HaloValueError, "a whole number from 0 is wanted, not -1"),
        (2**40, hc.HaloValueError, f"a whole number below 2**32 is wanted, not {2**40}"),
        (2**70, hc.HaloValueError, f"a whole number below 2**32 is wanted, not {2**70}"),
        ("x", hc.HaloTypeError, "a whole number is wanted, not 'x'"),
    ]:
        with pytest.raises(error, match=re.escape(f"connectivity[1][2]: {text}")):
            hc.Mesh(3, [[0, 1, 2], [0, 1, entry]])
    for entries in ([0, 1, -1], [0, 1, 2**40]):
        for connectivity in ([entries], np.array([entries])):
            with pytest.raises(hc.HaloValueError, match=str(entries[-1])):
                hc.Mesh(3, connectivity)
    mesh, partition = hc.Mesh(4, [[0, 1, 2], [1, 2, 3]]), hc.Partition([0, 1], 2)
    for call in (lambda: mesh.halos(partition, 5, 1), lambda: mesh.domains_by_element(partition, 5)):
        with pytest.raises(hc.HaloValueError, match="no part 5: the partition has 2, numbered from 0"):
            call()


def test_what_meshes_graphs_and_domains_are_made_of_is_told():
    mixed = hc.Mesh(6, [0, 1, 2, 1, 2, 4, 3, 5], offsets=[0, 3, 7, 8])
    assert mixed.connectivity.tolist() == [0, 1, 2, 1, 2, 4, 3, 5] and mixed.offsets.tolist() == [0, 3, 7, 8]
    assert hc.Mesh(3, np.empty((0, 3), int)).offsets.tolist() == [0]
    mine = mixed.domains_by_element(hc.Partition([0, 0, 0], 1), 0)
    lists = np.split(mine.vertices.cells[mine.connectivity], mine.offsets[1:-1])
    assert [cells.tolist() for cells in lists] == [[0, 1, 2], [1, 2, 4, 3], [5]]
    graph = mixed.element_graph(2)
    assert [graph.neighbours(cell).tolist() for cell in range(len(graph))] == [[1], [0], []]
    for cell in (3, -1, 2**70):
        with pytest.raises(hc.HaloValueError):
            graph.neighbours(cell)
    domain = hc.UnstructuredDomain(0, [0, 1], [2])
    assert domain.levels == () and domain.with_levels((2, 3)).levels == (2, 3)


def test_ids_of_two_protocols_that_differ_are_refused():
    """NumPy prefers the buffer, fields are of the array interface."""

    class Bytes(bytearray):
        pass

    class Longs(array_module.array):
        pass

    ids = np.array([7, 8, 9, 10])
    for of_buffer in (Bytes(range(4)), Longs("q", range(4)), Longs("q", range(5))):
        of_buffer.__array_interface__ = ids.__array_interface__
        with pytest.raises(hc.HaloTypeError, match="^owned: numpy.asarray reads other memory"):
            hc.UnstructuredDomain(0, of_buffer, [])
    same = Longs("q", range(4))
    same.__array_interface__ = np.asarray(same).__array_interface__
    assert hc.UnstructuredDomain(0, same, []).cells.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("dtype", ["i1", "u2", "i4", "u8", "i8"])
def test_ids_of_any_strides(dtype):
    for count in (1, 2**16, 2**17 + 3):
        ids = (np.arange(2 * count) % 101).astype(dtype)
        for given in (ids[:count], ids[::2], ids[::-2]):
            assert hc.Partition(given, 101).owners.tolist() == given.tolist()
    table = np.arange(6, dtype=dtype).reshape(2, 3)
    for connectivity in (table, table.T, np.repeat(table, 2, 1)[:, ::2]):
        assert hc.Mesh(6, connectivity).connectivity.tolist() == connectivity.ravel().tolist()


def test_the_first_negative_id_is_named():
    ids = np.arange(200_000)
    ids[[150_001, 150_002]] = -1, -7
    for given, at, value in [
        (np.array([0, -1, 5, -7]), 1, -1),
        (np.array([-128, 3], "i1"), 0, -128),
        (ids, 150_001, -1),
        (ids[::-1], 49_997, -7),
    ]:
        text = re.escape(f"owned[{at}]: a whole number from 0 is wanted, not {value}")
        with pytest.raises(hc.HaloValueError, match=f"^{text}$"):
            hc.UnstructuredDomain(0, given, [])


def test_ids_are_read_without_a_copy_of_the_array():
    for ids in (np.arange(2**20), np.arange(2**20, dtype="u8"), np.arange(2**21)[::2]):
        tracemalloc.start()
        try:
            hc.UnstructuredDomain(0, ids, [])
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 2**22


def test_ids_that_numpy_has_no_memory_for(monkeypatch):
    def full(*_, **__):
        raise MemoryError("no memory")

    ids = np.arange(8)
    monkeypatch.setattr(np, "asarray", full)
    with pytest.raises(hc.HaloValueError, match="^owned: 8 entries are more than there is memory for$"):
        hc.UnstructuredDomain(0, ids, [])
