"""Grid files of ICON for tests: an icosahedron whose edges are bisected, or a part of it.

    python icon_files.py BISECTIONS FILE.nc

writes such a file in NetCDF-4. It needs the package netCDF4.
"""

from __future__ import annotations

import math
import sys

import numpy as np

EARTH_RADIUS = 6.371229e6
NO_CELL = -1


def icosahedral(bisections):
    """The vertices of the triangles and the points of the vertices, numbered as by ``IcosahedralGrid`` of the Rust library."""
    height, radius = math.sqrt(0.2), math.sqrt(0.8)
    points = [(0.0, 0.0, 1.0)]
    for place in range(10):
        turn = (place % 5 + (0.5 if place >= 5 else 0.0)) * 0.4 * math.pi
        points.append((radius * math.cos(turn), radius * math.sin(turn), -height if place >= 5 else height))
    points.append((0.0, 0.0, -1.0))
    faces = [None] * 20
    for at in range(5):
        north, north_next, south, south_next = 1 + at, 1 + (at + 1) % 5, 6 + at, 6 + (at + 1) % 5
        faces[at] = (0, north, north_next)
        faces[5 + 2 * at] = (north, south, north_next)
        faces[6 + 2 * at] = (north_next, south, south_next)
        faces[15 + at] = (11, south_next, south)
    for _ in range(bisections):
        middles = {}

        def middle(a, b):
            key = (min(a, b), max(a, b))
            if key not in middles:
                total = np.add(points[a], points[b])
                middles[key] = len(points)
                points.append(tuple(total / np.linalg.norm(total)))
            return middles[key]

        finer = []
        for a, b, c in faces:
            ab, bc, ca = middle(a, b), middle(b, c), middle(c, a)
            finer += [(a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca)]
        faces = finer
    return np.array(faces), np.array(points)


def part_of(triangles, points, cells):
    """The listed cells alone, with their vertices numbered anew: a limited area."""
    vertices, local = np.unique(triangles[cells], return_inverse=True)
    return local.reshape(-1, 3), points[vertices]


def tables(triangles, points):
    """The variables of a grid file by name, counted from 1, as (dimensions, values)."""
    edges, edge_of_cell, adjacent = {}, np.zeros_like(triangles), []
    for cell, corners in enumerate(triangles):
        for side in range(3):
            # Edge k lies opposite vertex k. Its direction is that of the cell that names it first.
            ends = (corners[(side + 1) % 3], corners[(side + 2) % 3])
            edge = edges.setdefault(tuple(sorted(ends)), (len(edges), ends))[0]
            if edge == len(adjacent):
                adjacent.append([cell + 1, NO_CELL])
            else:
                adjacent[edge][1] = cell + 1
            edge_of_cell[cell, side] = edge
    edge_vertices = np.array([ends for _, ends in edges.values()])
    cells_of_vertex = np.full((len(points), 6), NO_CELL)
    count = np.zeros(len(points), int)
    for cell, corners in enumerate(triangles):
        for corner in corners:
            cells_of_vertex[corner, count[corner]] = cell + 1
            count[corner] += 1
    return {
        "vertex_of_cell": (("nv", "cell"), triangles.T + 1),
        "edge_of_cell": (("nv", "cell"), edge_of_cell.T + 1),
        "edge_vertices": (("nc", "edge"), edge_vertices.T + 1),
        "adjacent_cell_of_edge": (("nc", "edge"), np.array(adjacent).T),
        "cells_of_vertex": (("ne", "vertex"), cells_of_vertex.T),
        **positions("c", "cell", points[triangles].sum(axis=1)),
        **positions("v", "vertex", points),
        **positions("e", "edge", points[edge_vertices].sum(axis=1)),
        "cell_area": (("cell",), EARTH_RADIUS**2 * areas(points[triangles])),
    }


def positions(letter, dimension, points):
    x, y, z = points.T
    longitude, latitude = np.arctan2(y, x), np.arctan2(z, np.hypot(x, y))
    return {f"{letter}lon": ((dimension,), longitude), f"{letter}lat": ((dimension,), latitude)}


def areas(corners):
    """Areas of triangles on the unit sphere (Van Oosterom and Strackee 1983)."""
    a, b, c = np.moveaxis(corners, 1, 0)
    volume = np.einsum("ij,ij->i", a, np.cross(b, c))
    cosines = [np.einsum("ij,ij->i", *pair) for pair in ((a, b), (b, c), (c, a))]
    return 2 * np.arctan2(volume, 1 + sum(cosines))


def write(path, variables, **options):
    """Writes the variables to a NetCDF file. ``options`` are those of ``netCDF4.Dataset``; ``format`` chooses the kind of file."""
    import netCDF4

    with netCDF4.Dataset(path, "w", **options) as file:
        compression = {"zlib": True, "shuffle": True} if file.data_model.startswith("NETCDF4") else {}
        for dimensions, values in variables.values():
            for name, size in zip(dimensions, values.shape):
                if name not in file.dimensions:
                    file.createDimension(name, size)
        for name, (dimensions, values) in variables.items():
            element = "f8" if values.dtype.kind == "f" else "i4"
            variable = file.createVariable(name, element, dimensions, **compression)
            variable[:] = values
            if name[1:] in ("lon", "lat"):
                variable.units = "radian"


if __name__ == "__main__":
    write(sys.argv[2], tables(*icosahedral(int(sys.argv[1]))), format="NETCDF4")
