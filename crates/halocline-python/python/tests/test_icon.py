"""Halos of ICON and grid files of ICON: against brute force with NumPy, on files that netCDF4 writes."""

from pathlib import Path

import icon_files
import numpy as np
import pytest

import halocline as hc
from halocline.compat.icon4py import create_exchange

DATA = Path(__file__).resolve().parents[4] / "data/icon/r2b2.nc"


def whole(bisections=2):
    return icon_files.icosahedral(bisections)


def area():
    """A limited area: a fifth of the sphere."""
    return icon_files.part_of(*whole(), np.arange(64))


def table(variables, name):
    """A table of a file, counted from 0, with a row for each cell, edge or vertex; -1 where nothing is."""
    values = variables[name][1].T
    return np.where(values > 0, values - 1, -1)


def icon(variables, owners, part):
    """Level and owner of the local cells, vertices and edges by the rules of ICON: three dicts by global number."""
    c2v, c2e = table(variables, "vertex_of_cell"), table(variables, "edge_of_cell")
    e2v, e2c = table(variables, "edge_vertices"), table(variables, "adjacent_cell_of_edge")
    own = owners == part
    is_own = np.where(e2c >= 0, own[e2c], False)
    is_other = np.where(e2c >= 0, ~own[e2c], False)
    cut_edges = is_own.any(axis=1) & is_other.any(axis=1)
    cut_vertices = np.zeros(variables["vlon"][1].size, bool)
    cut_vertices[e2v[cut_edges]] = True
    cells = {}
    for cell in range(len(owners)):
        if own[cell]:
            cells[cell] = (0, part)
        elif cut_edges[c2e[cell]].any():
            cells[cell] = (1, owners[cell])
        elif cut_vertices[c2v[cell]].any():
            cells[cell] = (2, owners[cell])
    vertices, edges = {}, {}
    for cell in cells:
        for vertex in c2v[cell]:
            owner = owners[(c2v == vertex).any(axis=1)].max()
            vertices[vertex] = (0 if owner == part else 1 if cut_vertices[vertex] else 2, owner)
        for edge in c2e[cell]:
            owner = owners[e2c[edge][e2c[edge] >= 0]].max()
            level = 0 if owner == part else 1 if cut_edges[edge] else 2 if cut_vertices[e2v[edge]].any() else 3
            edges[edge] = (level, owner)
    return cells, vertices, edges


def assert_domain(domain, owned, due, levels):
    order = sorted((level, owner, number) for number, (level, owner) in due.items())
    assert list(domain.cells) == [number for _, _, number in order]
    assert owned == sum(level == 0 for level, _, _ in order)
    assert domain.levels == tuple(sum(level <= most for level, _, _ in order) for most in range(levels + 1))


def assert_tables(part, variables):
    cells, edges, vertices = (domain.cells.astype(int) for domain in (part.elements, part.edges, part.vertices))
    np.testing.assert_array_equal(vertices[part.connectivity.reshape(-1, 3).astype(int)], table(variables, "vertex_of_cell")[cells])
    np.testing.assert_array_equal(edges[part.cell_edges.astype(int)], table(variables, "edge_of_cell")[cells])
    np.testing.assert_array_equal(vertices[part.edge_vertices.astype(int)], table(variables, "edge_vertices")[edges])
    beside = table(variables, "adjacent_cell_of_edge")[edges]
    assert part.edge_cells.dtype == np.int64
    np.testing.assert_array_equal(np.where(part.edge_cells < 0, -1, cells[part.edge_cells]), np.where(np.isin(beside, cells), beside, -1))


def exchanged(comm, domains):
    """Fields on cells, edges and vertices in one exchange: each local one has its global number afterwards."""
    patterns = [hc.Pattern.unstructured(comm, [domain]) for domain in domains]
    fields = [np.full((len(domain.cells), 2), -1.0) for domain in domains]
    for domain, field in zip(domains, fields):
        field[: domain.levels[0]] = domain.cells[: domain.levels[0], None]
    hc.HaloExchange(comm, list(zip(patterns, fields))).exchange()
    for domain, field in zip(domains, fields):
        np.testing.assert_array_equal(field, np.repeat(domain.cells[:, None].astype("f8"), 2, axis=1))


@pytest.mark.parametrize("kind", ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA", "NETCDF4", "NETCDF4_CLASSIC"])
@pytest.mark.parametrize("make", [whole, area])
def test_parts_of_a_file(tmp_path, kind, make):
    pytest.importorskip("netCDF4")
    triangles, points = make()
    variables = icon_files.tables(triangles, points)
    icon_files.write(tmp_path / "grid.nc", variables, format=kind)
    ranks = 3

    def run(comm):
        grid = hc.IconGrid(tmp_path / "grid.nc")
        assert (grid.cells, grid.edges, grid.vertices) == (len(triangles), variables["elon"][1].size, len(points))
        mesh = grid.mesh()
        np.testing.assert_array_equal(mesh.connectivity.reshape(-1, 3), triangles)
        partition = hc.Partition.metis(mesh.element_graph(2), ranks)
        part = grid.part(partition, comm.rank)
        assert isinstance(part, hc.MeshHalos)
        cells, vertices, edges = icon(variables, partition.owners.astype(int), comm.rank)
        assert_domain(part.elements, part.owned_elements, cells, 2)
        assert_domain(part.vertices, part.owned_vertices, vertices, 2)
        assert_domain(part.edges, part.owned_edges, edges, 3)
        assert_tables(part, variables)
        exchanged(comm, [part.elements, part.edges, part.vertices])
        # The same without a file.
        halos = mesh.icon_halos(partition, comm.rank)
        assert halos.elements == part.elements and halos.vertices == part.vertices
        assert len(halos.edges.cells) == len(part.edges.cells)
        exchanged(comm, [halos.elements, halos.edges, halos.vertices])

    hc.run_threads(ranks, run)


class Decomposition:
    """What icon4py's exchange asks for."""

    def __init__(self, part):
        self.domains = {"cell": part.elements, "edge": part.edges, "vertex": part.vertices}

    def global_index(self, dim):
        return self.domains[dim].cells

    def owner_mask(self, dim):
        return np.arange(len(self.domains[dim].cells)) < self.domains[dim].levels[0]


def test_a_part_in_the_exchange_of_icon4py():
    def run(comm):
        part = hc.IconGrid(DATA).part(hc.Partition.block(1280, 3), comm.rank)
        exchange = create_exchange(Decomposition(part), comm, dims=["cell", "edge", "vertex"])
        for dim, domain in Decomposition(part).domains.items():
            field = np.where(np.arange(len(domain.cells)) < domain.levels[0], domain.cells, 0).astype("f8")
            exchange.exchange(dim, field)
            np.testing.assert_array_equal(field, domain.cells)

    hc.run_threads(3, run)


def test_an_icosahedral_grid():
    triangles, points = whole(3)

    def run(comm):
        grid = hc.IcosahedralGrid(3)
        np.testing.assert_array_equal(grid.mesh.connectivity.reshape(-1, 3), triangles)
        assert grid.points.dtype == np.float64 and grid.points.shape == (642, 3) and grid.mesh.vertices == 642
        np.testing.assert_allclose(grid.points, points, atol=1e-15)
        halos = grid.mesh.icon_halos(hc.Partition.metis(grid.mesh.element_graph(2), comm.size), comm.rank)
        exchanged(comm, [halos.elements, halos.edges, halos.vertices])

    hc.run_threads(3, run)
    assert hc.IcosahedralGrid(0).points.shape == (12, 3)
    with pytest.raises(hc.HaloValueError, match="^bisections: .* at most 13"):
        hc.IcosahedralGrid(14)


def test_values_of_listed_cells(tmp_path):
    pytest.importorskip("netCDF4")
    variables = icon_files.tables(*whole())
    variables["refin_c_ctrl"] = (("cell",), np.arange(320) % 5)
    variables["edge_cell_distance"] = (("nc", "edge"), np.arange(960.0).reshape(2, 480))
    icon_files.write(tmp_path / "grid.nc", variables, format="NETCDF4")
    grid = hc.IconGrid(str(tmp_path / "grid.nc"))
    ids = np.array([319, 0, 7, 7, 250])
    for name in ["clon", "clat", "cell_area", "refin_c_ctrl"]:
        values = grid.read(name, ids)
        assert values.dtype == np.float64
        np.testing.assert_array_equal(values, variables[name][1][ids])
    np.testing.assert_array_equal(grid.read("edge_cell_distance", [479, 3]), variables["edge_cell_distance"][1].T[[479, 3]])
    assert grid.read("clon", []).shape == (0,)
    assert repr(grid) == f"IconGrid({tmp_path / 'grid.nc'}, 320 cells, 480 edges, 162 vertices)"


def test_the_file_of_the_repository():
    grid = hc.IconGrid(DATA)
    triangles, points = whole(3)
    np.testing.assert_array_equal(grid.mesh().connectivity.reshape(-1, 3), triangles)
    longitudes = grid.read("vlon", np.arange(grid.vertices))
    np.testing.assert_allclose(longitudes, np.arctan2(points[:, 1], points[:, 0]), rtol=0, atol=1e-15)
    assert grid.read("cell_area", range(1280)).sum() == pytest.approx(4 * np.pi * icon_files.EARTH_RADIUS**2, rel=1e-12)
    part = grid.part(hc.Partition.block(1280, 4), 1)
    assert repr(part).startswith("IconGridPart(") and repr(part).endswith(" edges owned)")


def test_files_that_are_no_grids_are_refused(tmp_path):
    pytest.importorskip("netCDF4")
    with pytest.raises(hc.HaloValueError, match=r"^path: cannot read .*grid\.nc: No such file"):
        hc.IconGrid(tmp_path / "grid.nc")
    with pytest.raises(hc.HaloValueError, match=r"^path: cannot read .*: it is no regular file; give a whole, undamaged grid file"):
        hc.IconGrid(tmp_path)
    (tmp_path / "grid.nc").write_text("no grid")
    with pytest.raises(hc.HaloValueError, match="invalid NetCDF magic bytes; give a whole, undamaged grid file of ICON in NetCDF"):
        hc.IconGrid(tmp_path / "grid.nc")
    with pytest.raises(hc.HaloTypeError, match="^path: "):
        hc.IconGrid(3)

    variables = icon_files.tables(*whole())
    for name in ["vertex_of_cell", "edge_of_cell", "edge_vertices", "adjacent_cell_of_edge"]:
        others = {other: values for other, values in variables.items() if other != name}
        icon_files.write(tmp_path / "grid.nc", others, format="NETCDF4")
        with pytest.raises(hc.HaloValueError, match=rf"grid\.nc has no variable {name}; give a grid file that has it"):
            hc.IconGrid(tmp_path / "grid.nc").part(hc.Partition.block(320, 2), 0)
    # Without the list of cells around each vertex, the parts are the same.
    others = {other: values for other, values in variables.items() if other != "cells_of_vertex"}
    icon_files.write(tmp_path / "other.nc", others, format="NETCDF3_CLASSIC")
    icon_files.write(tmp_path / "grid.nc", variables, format="NETCDF4")
    grid, partition = hc.IconGrid(tmp_path / "grid.nc"), hc.Partition.block(320, 2)
    assert hc.IconGrid(tmp_path / "other.nc").part(partition, 1).edges == grid.part(partition, 1).edges

    with pytest.raises(hc.HaloValueError, match=r"^partition: .*the mesh has 320 elements"):
        grid.part(hc.Partition.block(321, 2), 0)
    with pytest.raises(hc.HaloValueError, match=r"^part: there is no part 2"):
        grid.part(partition, 2)
    with pytest.raises(hc.HaloValueError, match=r"^ids: clon of .* has 320 columns.*no column 320"):
        grid.read("clon", [320])
    with pytest.raises(hc.HaloValueError, match=r"^name: .* has no variable cloud; give a grid file that has it"):
        grid.read("cloud", [0])
    whole_file = (tmp_path / "grid.nc").read_bytes()
    (tmp_path / "cut.nc").write_bytes(whole_file[: len(whole_file) // 2])
    with pytest.raises(hc.HaloValueError, match=r"cut\.nc"):
        hc.IconGrid(tmp_path / "cut.nc").mesh()
    variables["vertex_of_cell"][1][0, 7] = 163
    icon_files.write(tmp_path / "wrong.nc", variables, format="NETCDF4")
    with pytest.raises(hc.HaloValueError, match=r"vertex_of_cell of .*wrong\.nc: entry 1 of cell 8 is 163, but there are 162 vertices"):
        hc.IconGrid(tmp_path / "wrong.nc").mesh()


def test_a_part_of_a_mesh_has_the_halos_of_icon():
    triangles, points = whole(1)
    mesh = hc.Mesh(len(points), triangles)
    partition = hc.Partition.block(80, 2)
    # Two parts of 80 cells: each needs them all.
    cells, vertices = np.arange(80)[::-1], np.arange(42)[::-1]
    here = hc.Mesh(42, 41 - triangles[cells])
    part = hc.MeshPart(here, vertices, cells, hc.Partition(partition.owners[cells], 2), 1, 1).icon_halos()
    halos = mesh.icon_halos(partition, 1)
    assert (part.elements, part.vertices, part.edges) == (halos.elements, halos.vertices, halos.edges)
    tetrahedron = hc.Mesh(4, [[0, 1, 2, 3]], solid=True)
    with pytest.raises(hc.HaloValueError, match=r"the halos of ICON are those of polygons; ask for Mesh\.halos"):
        tetrahedron.icon_halos(hc.Partition.block(1, 1), 0)
