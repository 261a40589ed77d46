"""Grids of patches: halos across seams, beside the geometry of the cubed sphere and the rules of a fold."""

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import halocline as hc

PICTURES = Path(__file__).resolve().parents[4] / "docs/pictures"

N = 6


def point(tile, rows, columns):
    """Unit vectors to points of a tile, in an equiangular projection; coordinates from 0 to 1."""
    b, a = (np.tan((np.asarray(at) - 0.5) * np.pi / 2) for at in np.broadcast_arrays(rows, columns))
    one = np.ones_like(a)
    on_cube = [(one, a, b), (-a, one, b), (-a, -b, one), (-one, -b, -a), (b, -one, -a), (b, a, -one)][tile]
    place = np.stack(on_cube, axis=-1)
    return place / np.linalg.norm(place, axis=-1, keepdims=True)


def scalar(place):
    x, y, z = np.moveaxis(place, -1, 0)
    return np.sin(3 * x + 1) + 2 * np.cos(2 * y - z) + x * z


def tiles(comm):
    return hc.PatchGrid.cubed_sphere(N).decompose(comm)


def of_block(cut, domain, value):
    """An array of a domain: `value(tile, rows, columns)` at owned cells, NaN in the halo."""
    tile, first, shape = cut.block(domain.id)
    array = np.full(domain.shape, np.nan)
    rows = (first[0] + np.arange(shape[0])[:, None] + 0.5) / N
    columns = (first[1] + np.arange(shape[1])[None, :] + 0.5) / N
    array[domain.owned] = value(tile, rows, columns)
    return array


def test_halos_beside_a_tile_continue_the_sphere(ranks):
    def program(comm):
        cut = tiles(comm)
        pattern = cut.pattern(halo=1)
        arrays = [of_block(cut, domain, lambda *at: scalar(point(*at))) for domain in pattern.domains]
        fields = [(pattern, hc.Field(a, domain=d.id)) for a, d in zip(arrays, pattern.domains)]
        hc.HaloExchange(comm, fields).exchange()
        for array, domain in zip(arrays, pattern.domains):
            tile, first, shape = cut.block(domain.id)
            # The first cell behind a side is about where the tile's own coordinates continue.
            rows = (first[0] + np.arange(-1, shape[0] + 1)[:, None] + 0.5) / N
            columns = (first[1] + np.arange(-1, shape[1] + 1)[None, :] + 0.5) / N
            near = scalar(point(tile, rows, columns))
            corner = np.isnan(array)
            outside = ((rows < 0) | (rows > 1)) & ((columns < 0) | (columns > 1))
            np.testing.assert_array_equal(corner, outside)
            assert np.abs(array - near)[~corner].max() < 0.5

    hc.run_threads(ranks, program)


def test_components_turn_with_the_seams(ranks):
    def program(comm):
        cut = tiles(comm)
        wind = cut.pattern(1, "cell_vectors")
        # Component 0 has 1 and component 1 has 2 everywhere.
        arrays, fields = {}, []
        for component in (0, 1):
            pattern = wind.component(component)
            for domain in pattern.domains:
                array = of_block(cut, domain, lambda *_: 1.0 + component)
                arrays[component, domain.id] = array
                fields.append((pattern, hc.Field(array, domain=domain.id)))
        hc.HaloExchange(comm, fields).exchange()
        for (component, domain), array in arrays.items():
            if cut.block(domain)[:2] == (0, (0, 0)):
                # West of tile 0 lies tile 4: its rows are columns there, and run backwards.
                west = array[1:-1, 0]
                assert set(west) == ({-2.0} if component == 0 else {1.0}), (component, west)

    hc.run_threads(ranks, program)


@pytest.mark.parametrize("pivot", ["cell", "corner"])
def test_a_fold_reads_the_last_rows_backwards(pivot):
    def program(comm):
        rows, columns = 5, 8
        cut = hc.PatchGrid.tripolar((rows, columns), pivot).decompose(comm)
        pattern = cut.pattern(1)
        (domain,) = pattern.domains
        array = np.full(domain.shape, np.nan)
        cells = np.arange(rows * columns, dtype=float).reshape(rows, columns)
        array[domain.owned] = cells
        hc.HaloExchange(comm, [(pattern, array)]).exchange()
        north = array[-1, 1:-1]
        if pivot == "corner":
            np.testing.assert_array_equal(north, cells[-1, ::-1])
        else:
            np.testing.assert_array_equal(north, np.roll(cells[-2, ::-1], 1))
            # The second half of the last row repeats the first.
            last = array[-2, 1:-1]
            np.testing.assert_array_equal(last[columns // 2 + 1 :], last[columns // 2 - 1 : 0 : -1])

    hc.run_threads(1, program)


def test_tiles_are_gathered(ranks):
    def program(comm):
        cut = tiles(comm)
        pattern = cut.pattern(1)
        number = lambda tile, rows, columns: 1e4 * tile + 100 * np.floor(rows * N) + np.floor(columns * N)  # noqa: E731
        fields = [hc.Field(of_block(cut, d, number), domain=d.id) for d in pattern.domains]
        return pattern.gather_to(0, fields)

    gathered = hc.run_threads(ranks, program)[0]
    tile, row, column = np.indices((6, N, N))
    np.testing.assert_array_equal(gathered, 1e4 * tile + 100 * row + column)


def test_grids_are_described():
    grid = hc.PatchGrid.lat_lon_cap(2)
    assert grid.shapes == [(6, 2), (6, 2), (2, 2), (2, 6), (2, 6)]
    assert repr(grid) == "PatchGrid(5 patches, 8 seams)"
    assert grid.seams[1] == ("join_reversed", (0, 0, "high"), (2, 1, "low"))
    pair = hc.PatchGrid([(4, 4), (4, 4)], [("join_reversed", (0, 1, "high"), (1, 0, "low"))])
    cut = pair.decompose_into([(2, 1), (1, 1)], 3)
    assert (cut.domains, cut.ranks, cut.block(1)) == (3, 3, (0, (2, 0), (2, 4)))
    assert repr(cut) == "PatchDecomposition(3 domains for 3 ranks)"
    assert cut.blocks == [(2, 1), (1, 1)]
    assert [cut.owner(domain) for domain in range(3)] == [0, 1, 2]
    assert [cut.domains_of(rank) for rank in range(3)] == [[0], [1], [2]]
    # The last block holds the last faces of its patch.
    assert cut.block(1, [("faces", "centre")]) == (0, (2, 0), (3, 4))
    assert cut.block(1, "c_grid", component=1) == (0, (2, 0), (2, 5))
    halves = hc.PatchGrid.cubed_sphere(8).decompose(4)
    assert (halves.blocks, halves.domains_of(1)) == ([(2, 1)] * 6, [3, 4, 5])


@pytest.mark.parametrize(
    "grid, kinds",
    [
        (hc.PatchGrid.cubed_sphere(4), {"join": 6, "join_reversed": 6}),
        (hc.PatchGrid.latitude_longitude((4, 6)), {"join": 1, "pole": 2}),
        (hc.PatchGrid.tripolar((5, 8), "cell"), {"join": 1, "fold_cell": 1}),
        (hc.PatchGrid.tripolar((5, 8), "corner"), {"join": 1, "fold_corner": 1}),
        (hc.PatchGrid([(4, 4)], []), {}),
    ],
)
def test_a_grid_is_made_of_its_seams(grid, kinds):
    assert Counter(kind for kind, *_ in grid.seams) == kinds
    assert hc.PatchGrid(grid.shapes, grid.seams) == grid
    sides = [side for _, *sides in grid.seams for side in sides]
    assert len(set(sides)) == len(sides)


def test_points_of_tiles_are_on_the_sphere():
    rows, columns = np.meshgrid(np.linspace(0, 1, 4), np.linspace(-0.2, 1.2, 5), indexing="ij")
    along = np.stack([rows, columns], axis=-1)
    for tile in range(6):
        found = hc.cubed_sphere_point(tile, along)
        assert (found.shape, found.dtype) == ((4, 5, 3), np.float64)
        np.testing.assert_allclose(found, point(tile, rows, columns), rtol=0, atol=1e-15)
        # Not the order of the memory.
        np.testing.assert_array_equal(hc.cubed_sphere_point(tile, np.asfortranarray(along)), found)
    pole = hc.cubed_sphere_point(2, (0.5, 0.5))
    np.testing.assert_allclose(pole, [0, 0, 1], rtol=0, atol=1e-15)
    pole[2] = 0.0
    assert hc.cubed_sphere_point(5, np.empty((0, 2))).shape == (0, 3)


def pick(array, first, shape, width):
    """A box of an array of a domain, whose halo is so wide; indices count from the first value that the domain holds."""
    return array[tuple(slice(width + low, width + low + extent) for low, extent in zip(first, shape))]


def run_on_arrays(grid, width, quantity, count, fill, run):
    """Runs `run(exchange)` on `count` ranks, on arrays `fill(comm, cut, component, domain)` of all components and domains. Returns the
    arrays before and after, by component and domain.
    """

    def program(comm):
        cut = grid.decompose(comm)
        pattern = cut.pattern(width, quantity)
        before, arrays, fields = {}, {}, []
        for component, of_component in enumerate([pattern.component(c) for c in (0, 1)] if quantity == "c_grid" else [pattern]):
            for domain in of_component.domains:
                array = fill(comm, cut, component, domain)
                before[component, domain.id] = array.copy()
                arrays[component, domain.id] = array
                fields.append((of_component, hc.Field(array, domain=domain.id)))
        run(hc.HaloExchange(comm, fields))
        return before, arrays

    before, after = {}, {}
    for own, of_run in hc.run_threads(count, program):
        before.update(own)
        after.update(of_run)
    return before, after


@pytest.mark.parametrize("quantity", ["c_grid", "corners"])
def test_transfers_made_by_hand_fill_what_an_exchange_fills(quantity):
    grid, width, count = hc.PatchGrid.cubed_sphere(4), 2, 3

    def fill(comm, cut, component, domain):
        _, first, shape = cut.block(domain.id, quantity, component)
        assert (domain.first, domain.owned_shape) == (first, shape)
        assert domain.to_global((width, width)) == first and domain.id in cut.domains_of(comm.rank)
        array = np.full(domain.shape, np.nan)
        numbers = np.arange(shape[0] * shape[1], dtype=float).reshape(shape)
        array[domain.owned] = 1000 * domain.id + 100 * component + numbers + 1
        return array

    before, after = run_on_arrays(grid, width, quantity, count, fill, lambda exchange: exchange.exchange())
    filled = {key: array.copy() for key, array in before.items()}
    cut = grid.decompose(count)
    for rank in range(count):
        for moved in cut.transfers(rank, width, quantity):
            assert moved.source_rank == cut.owner(moved.source_domain)
            assert moved.target_rank == cut.owner(moved.target_domain)
            assert rank in (moved.source_rank, moved.target_rank)
            if moved.target_rank != rank:
                continue
            shape = moved.shape[::-1] if moved.swapped else moved.shape
            values = pick(before[moved.source_component, moved.source_domain], moved.source, shape, width)
            values = values.T if moved.swapped else values
            values = values[tuple(slice(None, None, -1 if backwards else 1) for backwards in moved.flipped)]
            target = filled[moved.target_component, moved.target_domain]
            pick(target, moved.target, moved.shape, width)[...] = -values if moved.negated else values
    for key, array in after.items():
        np.testing.assert_array_equal(filled[key], array)
    first = cut.transfers(0, width, quantity)[0]
    rows, columns = first.shape
    assert repr(first) == f"PatchTransfer(({rows}, {columns}) from domain {first.source_domain} to domain {first.target_domain})"


@pytest.mark.parametrize("quantity", ["cells", "corners", "c_grid"])
@pytest.mark.parametrize(
    "grid",
    [hc.PatchGrid.cubed_sphere(4), hc.PatchGrid.lat_lon_cap(2), hc.PatchGrid.latitude_longitude((4, 6)), hc.PatchGrid.tripolar((5, 8), "cell")],
)
def test_a_reduce_adds_what_transfers_bring_to_its_owner_and_clears_it(grid, quantity):
    width, count = 2, 3

    def fill(comm, cut, component, domain):
        return np.random.default_rng([component, domain.id]).integers(-50, 50, domain.shape).astype(float)

    before, after = run_on_arrays(grid, width, quantity, count, fill, lambda exchange: exchange.reduce("sum"))
    due = {key: array.copy() for key, array in before.items()}
    cut = grid.decompose(count)
    received = [moved for rank in range(count) for moved in cut.transfers(rank, width, quantity) if moved.target_rank == rank]
    for moved in received:
        pick(due[moved.target_component, moved.target_domain], moved.target, moved.shape, width)[...] = 0
    for moved in received:
        values = pick(before[moved.target_component, moved.target_domain], moved.target, moved.shape, width)
        values = values[tuple(slice(None, None, -1 if backwards else 1) for backwards in moved.flipped)]
        values = values.T if moved.swapped else values
        owned = pick(due[moved.source_component, moved.source_domain], moved.source, values.shape, width)
        owned += -values if moved.negated else values
    assert any(moved.negated for moved in received) == (quantity == "c_grid")
    for key, array in after.items():
        np.testing.assert_array_equal(array, due[key])


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: hc.PatchGrid([(4, 0)], []), "patches[0]: patch 0 has 0 cells along axis 1"),
        (lambda: hc.PatchGrid([(4, 4)], [("join", (0, 0, "low"), (1, 0, "high"))]), "seams[0]: seam 0 names"),
        (lambda: hc.PatchGrid.tripolar((4, 7), "cell"), "must be even"),
        (lambda: hc.PatchGrid.tripolar((4, 8), "edge"), "pivot: there is no 'edge'"),
        (lambda: hc.PatchGrid.latitude_longitude((4, 8)).corners_through(0), "use the grid without corners_through"),
        (lambda: hc.PatchGrid([(4, 4)], [("join", *[(0, 0, "low")] * 2)]), "fold it ('fold_cell' or 'fold_corner')"),
        (lambda: hc.PatchGrid([(4, 4)], [("pole", (0, 0, "low"))]), "join its two sides with each other, not reversed ('join')"),
        (lambda: hc.PatchGrid.cubed_sphere(4).decompose(97), "comm: 97 ranks for patches of 96 cells"),
        (lambda: hc.PatchGrid([(2**16, 2**16)], []).decompose(2**32 - 5), "of each patch (PatchGrid.decompose_into)"),
        (lambda: hc.PatchGrid.cubed_sphere(4).decompose(1).block(6), "domain: there is no 6 of 6 domains"),
        (lambda: hc.PatchGrid.cubed_sphere(4).decompose(1).owner(6), "domain: there is no 6 of 6 domains"),
        (lambda: hc.PatchGrid.cubed_sphere(4).decompose(1).block(0, "cells", 1), "component: there is no 1 of 1 components"),
        (lambda: hc.PatchGrid.cubed_sphere(4).decompose(2).domains_of(2), "rank: "),
        (lambda: hc.PatchGrid.cubed_sphere(4).decompose(2).transfers(2, 1), "rank: "),
        (lambda: hc.PatchGrid.cubed_sphere(4).decompose(2).transfers(0, 5), "halo: a halo 5 cells wide"),
        (lambda: hc.cubed_sphere_point(6, (0.5, 0.5)), "tile: there is no tile 6; the cubed sphere has tiles 0 to 5"),
        (lambda: hc.cubed_sphere_point(6, np.empty((0, 2))), "tile: there is no tile 6"),
        (lambda: hc.cubed_sphere_point(2, [(0.5, 0.5), (0.5, 1.5)]), "along: the coordinate along axis 1 of a point of tile 2 is 1.5"),
        (lambda: hc.cubed_sphere_point(2, (np.nan, 0.5)), "along: the coordinate along axis 0 of a point of tile 2 is NaN"),
        (lambda: hc.PatchGrid.cubed_sphere(4).decompose(1).pattern(1), "comm: the grid was decomposed"),
    ],
)
def test_what_does_not_fit_is_refused(make, message):
    with pytest.raises(hc.HaloValueError) as refused:
        make()
    assert message in str(refused.value)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: hc.PatchGrid.tripolar((4, 8, 2), "cell"), "shape: a pair (rows, columns) is wanted, not (4, 8, 2)"),
        (lambda: hc.PatchGrid([(4, 4)], [("join", (0, 0, "low"))]), "seams[0]: a seam ('join' or 'join_reversed', "),
        (lambda: hc.PatchGrid([(4, 4)], [("pole", (0, 0, "top"))]), "a side (patch, axis, 'low' or 'high') is wanted"),
        (
            lambda: hc.cubed_sphere_point(0, np.zeros((2, 3))),
            "along: an array of numbers of shape (..., 2) is wanted, not one of shape (2, 3)",
        ),
        (lambda: hc.cubed_sphere_point(0, ["a", "b"]), "along: an array of numbers of shape (..., 2) is wanted, not ['a', 'b']"),
    ],
)
def test_what_is_no_argument_is_refused(make, message):
    with pytest.raises(hc.HaloTypeError) as refused:
        make()
    assert message in str(refused.value)


def test_a_component_or_a_quantity_that_is_not_there_is_refused():
    def program(comm):
        cut = hc.PatchGrid.cubed_sphere(4).decompose(comm)
        with pytest.raises(hc.HaloValueError, match="component 1 of a pattern with 0 .*='c_grid', for example"):
            cut.pattern(1).component(1)
        with pytest.raises(hc.HaloValueError, match="halo: a halo 5 cells wide"):
            cut.pattern(5)
        with pytest.raises(hc.HaloTypeError, match="quantity: "):
            cut.pattern(1, "winds")
        with pytest.raises(hc.HaloValueError, match="quantity: across"):
            cut.pattern(1, [("faces", "centre")])
        globe = hc.PatchGrid.latitude_longitude((4, 8)).decompose(comm)
        with pytest.raises(hc.HaloValueError, match="quantity: no patch holds the values at (low|high) faces along axis 0 and centres along axis 1 on .*; use 'faces' along axis 0"):
            globe.pattern(1, [("high_faces", "centre"), ("centre", "high_faces")])

    hc.run_threads(1, program)


def test_the_interior_leaves_out_copies():
    def program(comm):
        grid = hc.PatchGrid.tripolar((6, 8), "cell")
        (domain,) = grid.decompose(comm).pattern(1).domains
        # Half of the last row repeats the other half.
        assert domain.owned == (slice(1, 7, 1), slice(1, 9, 1))
        assert domain.interior(0) == (slice(1, 6, 1), slice(1, 9, 1))
        assert domain.interior(1) == (slice(2, 5, 1), slice(2, 8, 1))
        assert domain.boundary(0) == [(slice(6, 7, 1), slice(1, 9, 1))]

    hc.run_threads(1, program)


def of_one_rank(grid, quantity, value, halo=1):
    """Arrays after an exchange, by component and patch: `value(patch, rows, columns)` at owned values."""

    def program(comm):
        cut = grid.decompose_into([(1, 1)] * len(grid.shapes), comm)
        pattern = cut.pattern(halo, quantity)
        components = [pattern] if quantity == "cells" or len(quantity) == 1 else [pattern.component(c) for c in (0, 1)]
        arrays, fields = {}, []
        for number, component in enumerate(components):
            for domain in component.domains:
                array = np.full(domain.shape, np.nan)
                patch = cut.block(domain.id)[0]
                array[domain.owned] = value(patch, *np.indices([owned.stop - owned.start for owned in domain.owned]))
                arrays[number, patch] = array
                fields.append((component, hc.Field(array, domain=domain.id)))
        hc.HaloExchange(comm, fields).exchange()
        return arrays

    return hc.run_threads(1, program)[0]


def test_halos_of_tiles_are_those_that_the_guide_shows():
    found = of_one_rank(hc.PatchGrid.cubed_sphere(3), "cells", lambda *at: 100 * at[0] + 10 * at[1] + at[2])
    nan = np.nan
    shown = [
        [
            [nan, 220, 210, 200, nan],
            [420, 20, 21, 22, 120],
            [421, 10, 11, 12, 110],
            [422, 0, 1, 2, 100],
            [nan, 520, 521, 522, nan],
        ],
        [
            [nan, 200, 201, 202, nan],
            [22, 120, 121, 122, 300],
            [12, 110, 111, 112, 301],
            [2, 100, 101, 102, 302],
            [nan, 522, 512, 502, nan],
        ],
    ]
    for tile in range(6):
        # Tiles 2 and 4 are joined as tile 0, tiles 3 and 5 as tile 1.
        cells = np.array(shown[tile % 2], dtype=float)
        np.testing.assert_array_equal(found[0, tile][::-1], (cells + 100 * (tile - tile % 2)) % 600)


@pytest.mark.parametrize(
    "picture, grid, halo",
    [
        ("cubed", hc.PatchGrid.cubed_sphere(3), 1),
        ("llc", hc.PatchGrid.lat_lon_cap(2), 1),
        ("poles", hc.PatchGrid.latitude_longitude((4, 8)), 2),
        ("tripolar-cell", hc.PatchGrid.tripolar((4, 8), "cell"), 2),
        ("tripolar-corner", hc.PatchGrid.tripolar((4, 8), "corner"), 2),
    ],
)
def test_pictures_of_the_guide_name_the_cells_that_an_exchange_copies(picture, grid, halo):
    found = of_one_rank(grid, "cell_vectors", lambda patch, row, column: 100.0 * patch + 10 * row + column + 1, halo)
    names = Counter()
    for patch in range(len(grid.shapes)):
        # Both components of a cell, as numbers of their sources.
        for both in zip(found[0, patch].flat, found[1, patch].flat):
            if not np.isnan(both).any():
                assert abs(both[0]) == abs(both[1])
                number = int(abs(both[0])) - 1
                is_one = len(grid.shapes) == 1
                cell = f"{number // 10},{number % 10}" if is_one else f"{number // 100}.{number % 100:02}"
                negated = f"\u2212({cell})" if is_one else f"\u2212{cell}"
                names[negated if max(both) < 0 else cell] += 1
    texts = re.findall(r"<text [^>]*>([^<]*)</text>", (PICTURES / f"{picture}-halos.svg").read_text())
    assert Counter(text for text in texts if re.fullmatch(r"\u2212?\(?[0-9]+[.,][0-9]+\)?", text)) == names


@pytest.mark.parametrize("axis, corner", [(0, [[121, 111], [120, 110]]), (1, [[210, 211], [200, 201]])])
def test_corners_of_tiles_are_those_that_the_guide_shows(axis, corner):
    grid = hc.PatchGrid.cubed_sphere(3).corners_through(axis)
    found = of_one_rank(grid, "cells", lambda *at: 100 * at[0] + 10 * at[1] + at[2], halo=2)[0, 0][::-1]
    beside = [[[211, 201], [210, 200]], [[21, 22], [11, 12]], [[120, 121], [110, 111]]]
    np.testing.assert_array_equal(found[:4, 3:], np.block([[np.array(beside[0]), np.array(corner)], [np.array(beside[1]), np.array(beside[2])]]))


@pytest.mark.parametrize("pivot, inwards", [("corner", 0), ("cell", 1)])
def test_points_behind_a_fold_are_those_that_the_guide_lists(pivot, inwards):
    rows, n = 6, 8
    grid = hc.PatchGrid.tripolar((rows, n), pivot)
    j = np.arange(n)

    def north(quantity, component=0):
        return of_one_rank(grid, quantity, lambda _, row, column: 100 * row + column + 1)[component, 0][-1, 1:-1]

    def of(row, column):
        return 100 * (row - inwards) + (column + inwards) % n + 1

    velocity = [("high_faces", "centre"), ("centre", "high_faces")]
    np.testing.assert_array_equal(north("cells"), of(rows - 1, n - 1 - j))
    np.testing.assert_array_equal(north(velocity, 1), -of(rows - 1, n - 2 - j))
    np.testing.assert_array_equal(north(velocity, 0), -of(rows - 2, n - 1 - j))
    np.testing.assert_array_equal(north([("high_faces", "high_faces")]), of(rows - 2, n - 2 - j))
    np.testing.assert_array_equal(north([("centre", "low_faces")]), of(rows - 1, n - j))
    if pivot == "cell":
        np.testing.assert_array_equal(north([("low_faces", "centre")]), of(rows, n - 1 - j))


def test_rows_behind_poles_are_those_that_the_guide_shows():
    found = of_one_rank(hc.PatchGrid.latitude_longitude((4, 8)), "cells", lambda _, row, column: 10 * row + column)
    np.testing.assert_array_equal(found[0, 0][-1, 1:-1], [34, 35, 36, 37, 30, 31, 32, 33])
    np.testing.assert_array_equal(found[0, 0][0, 1:-1], [4, 5, 6, 7, 0, 1, 2, 3])
