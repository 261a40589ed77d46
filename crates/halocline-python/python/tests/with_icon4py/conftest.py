"""What the tests with icon4py itself share: they are run by every rank of an MPI job, and by no others."""

import numpy as np
import pytest

from halocline.compat import icon4py as halocline_icon4py

# Before icon4py looks for GHEX.
halocline_icon4py.install()

import gt4py.next as gtx  # noqa: E402
from icon4py.model.common import dimension as dims  # noqa: E402
from icon4py.model.common.decomposition import definitions, halo, mpi_decomposition  # noqa: E402
from icon4py.model.common.decomposition.decomposer import MetisDecomposer  # noqa: E402
from icon4py.model.common.grid import base, simple  # noqa: E402


@pytest.fixture(scope="session")
def process():
    """icon4py's properties of this rank of an MPI job."""
    return definitions.get_process_properties(definitions.get_runtype(with_mpi=True))


def torus(columns, rows):
    """icon4py's tables of a grid of triangles that wraps around both ways: squares, cut in two, with their vertices numbered row by row."""
    at = lambda i, j: j % rows * columns + i % columns
    c2v = [
        [at(i, j), *third]
        for j in range(rows)
        for i in range(columns)
        for third in ([at(i + 1, j), at(i + 1, j + 1)], [at(i + 1, j + 1), at(i, j + 1)])
    ]
    sides = [[tuple(sorted(pair)) for pair in zip(cell, cell[1:] + cell[:1])] for cell in c2v]
    e2v = sorted({side for cell in sides for side in cell})
    c2e = [[e2v.index(side) for side in cell] for cell in sides]
    e2c = inverse(c2e, len(e2v))
    c2e2c = [[sum(e2c[edge]) - cell for edge in edges] for cell, edges in enumerate(c2e)]
    tables = {
        dims.C2V: c2v,
        dims.C2E: c2e,
        dims.E2C: e2c,
        dims.C2E2C: c2e2c,
        dims.C2E2CO: [[*neighbours, cell] for cell, neighbours in enumerate(c2e2c)],
        dims.V2C: inverse(c2v, columns * rows),
        dims.V2E: inverse(e2v, columns * rows),
    }
    return {offset.value: np.array(table, gtx.int32) for offset, table in tables.items()}


def inverse(table, count):
    """Where each of so many comes in a table."""
    return [[row for row, those in enumerate(table) if number in those] for number in range(count)]


def simple_grid():
    """The tables of icon4py's grid of 18 cells."""
    grid = simple.simple_grid()
    offsets = [dims.C2V, dims.C2E, dims.E2C, dims.C2E2C, dims.C2E2CO, dims.V2C, dims.V2E]
    return {offset.value: grid.get_connectivity(offset).ndarray for offset in offsets}


def owners_by_metis(tables, ranks):
    return MetisDecomposer()(tables["C2E2C"], ranks)


def owners_in_blocks(tables, ranks):
    cells = len(tables["C2E2C"])
    return np.arange(cells) * ranks // cells


class Grid:
    """A grid, decomposed by icon4py."""

    def __init__(self, process, tables, owners):
        self.tables = tables
        self.owners = np.zeros(len(tables["C2E2C"]), gtx.int32)
        if not process.is_single_rank():
            self.owners = owners(tables, process.comm_size)
        self.size = base.HorizontalGridSize(
            num_cells=len(tables["C2V"]), num_edges=len(tables["E2C"]), num_vertices=len(tables["V2C"])
        )
        self.info = halo.get_halo_constructor(process, self.size, tables, None)(self.owners)

    def ids(self, dim):
        return self.info.global_index(dim)

    def truth(self, dim, number=0, dtype=np.float64, levels=None):
        """What a field holds: of all its cells, halo included, that which their global ids say."""
        shape = (-1,) if levels is None else (-1, 1)
        mixed = (self.ids(dim).reshape(shape).astype(np.int64) + 1) * 7919 + number * 104729
        if levels is not None:
            mixed = mixed + 31 * np.arange(levels)
        return mixed // 7 % 2 == 1 if dtype is np.bool_ else (mixed % 65521).astype(dtype)

    def begin(self, dim, number=0, dtype=np.float64, levels=None, padding=0):
        """An array as it is before an exchange: the halo has what the owner has not, and so has padding."""
        truth = self.truth(dim, number, dtype, levels)
        wrong = np.logical_not(truth) if dtype is np.bool_ else truth + dtype(1)
        array = np.where(self.info.owner_mask(dim).reshape((-1,) + (1,) * (truth.ndim - 1)), truth, wrong)
        return np.concatenate([array, np.ones((padding, *truth.shape[1:]), dtype)])


GRIDS = {
    "torus by metis": lambda: (torus(8, 6), owners_by_metis),
    "torus in blocks": lambda: (torus(7, 5), owners_in_blocks),
    "simple grid": lambda: (simple_grid(), owners_in_blocks),
}


@pytest.fixture(params=GRIDS, scope="session")
def grid(request, process):
    return Grid(process, *GRIDS[request.param]())


RUNTIMES = {
    "halocline": definitions.create_exchange,
    "of GHEX": lambda process, info: mpi_decomposition.create_multinode_node_exchange(process, info),
}


@pytest.fixture(params=RUNTIMES, scope="session")
def runtime(request, process, grid):
    """What icon4py's `create_exchange` gives, and icon4py's own exchange: of GHEX, or of what is in its place."""
    return RUNTIMES[request.param](process, grid.info)
