"""Halocline's exchange in icon4py itself: with its process properties, its decomposition, its fields and its operators."""

import inspect
import itertools
import os

import gt4py.next as gtx
import numpy as np
import pytest
from gt4py.next.program_processors.runners.gtfn import run_gtfn
from icon4py.model.common import dimension as dims
from icon4py.model.common.decomposition import definitions, halo, mpi_decomposition
from icon4py.model.common.decomposition.definitions import BLOCK, DEFAULT_STREAM
from icon4py.model.common.grid import base
from icon4py.model.common.interpolation.stencils.cell_2_edge_interpolation import _cell_2_edge_interpolation
from icon4py.model.common.interpolation.stencils.compute_cell_2_vertex_interpolation import (
    _compute_cell_2_vertex_interpolation,
)
from icon4py.model.common.interpolation.stencils.interpolate_to_cell_center import _interpolate_to_cell_center

import halocline as hc
from halocline.compat import icon4py as halocline_icon4py

DIMS = [dims.CellDim, dims.EdgeDim, dims.VertexDim]


def wait(runtime, handle, **stream):
    definitions.create_halo_exchange_wait(runtime)(handle, **stream)


FORMS = {
    "start, finish": lambda it, dim, *fields: it.start(dim, *fields).finish(),
    "start, finish on streams": lambda it, dim, *fields: it.start(dim, *fields, stream=DEFAULT_STREAM).finish(
        stream=definitions.Stream(0)
    ),
    "start, finish, blocking": lambda it, dim, *fields: it.start(dim, *fields).finish(stream=BLOCK),
    "exchange": lambda it, dim, *fields: it.exchange(dim, *fields),
    "exchange on a stream": lambda it, dim, *fields: it.exchange(dim, *fields, stream=definitions.Stream(0)),
    "exchange, blocking": lambda it, dim, *fields: it.exchange(dim, *fields, stream=BLOCK),
    "call": lambda it, dim, *fields: it(*fields, dim=dim),
    "call, blocking": lambda it, dim, *fields: it(*fields, dim=dim, stream=BLOCK),
    "call, wait": lambda it, dim, *fields: wait(it, it(*fields, dim=dim, full_exchange=False)),
    "call, wait, blocking": lambda it, dim, *fields: wait(
        it, it(*fields, dim=dim, full_exchange=False, stream=BLOCK), stream=BLOCK
    ),
}


def test_the_job(process):
    assert process.comm_size == int(os.environ["HALOCLINE_TEST_SIZE"])
    assert isinstance(process, mpi_decomposition.MPICommProcessProperties)


def test_it_is_ours_that_icon4py_makes(process, grid):
    made = definitions.create_exchange(process, grid.info)
    if process.is_single_rank():
        assert isinstance(made, definitions.SingleNodeExchange)
    else:
        assert isinstance(made, halocline_icon4py.Exchange)
        # As icon4py's own tests and decorators ask.
        assert isinstance(made, mpi_decomposition.GHexMultiNodeExchange)
        theirs = mpi_decomposition.GHexMultiNodeExchange
        for name in [*vars(theirs), *vars(definitions.ExchangeRuntime)]:
            if inspect.isfunction(getattr(theirs, name)) and (name == "__call__" or not name.startswith("_")):
                assert getattr(type(made), name).__module__ == halocline_icon4py.__name__, name
    assert isinstance(made, definitions.ExchangeRuntime)
    assert (made.my_rank(), made.get_size()) == (process.rank, process.comm_size)
    # Once more changes nothing.
    halocline_icon4py.install()
    assert type(definitions.create_exchange(process, grid.info)) is type(made)


@pytest.mark.parametrize(
    "theirs, ours",
    [
        (definitions.ExchangeRuntime, halocline_icon4py.Exchange),
        (definitions.ExchangeRuntime, halocline_icon4py.SingleNodeExchange),
        (definitions.ExchangeRuntime, halocline_icon4py.ExchangeRuntime),
        (definitions.ExchangeResult, halocline_icon4py.ExchangeResult),
    ],
)
def test_methods_are_called_as_those_of_the_protocol(theirs, ours):
    names = [name for name, member in vars(theirs).items() if inspect.isfunction(member) and name not in ("__init__", "__subclasshook__")]
    assert "start" in names or "finish" in names
    for name in names:
        if name.startswith("_") and name != "__call__":
            continue
        want, have = (inspect.signature(getattr(cls, name)).parameters.values() for cls in (theirs, ours))
        empty = inspect.Parameter.empty
        shape = lambda parameters: [(p.name, p.kind, p.default is empty) for p in parameters]
        assert shape(have) == shape(want), name


def test_the_decomposition_is_icons(process, grid):
    counts = (grid.size.num_cells, grid.size.num_edges, grid.size.num_vertices)
    for dim, count in zip(DIMS, counts):
        assert sum(process.comm.allgather(int(grid.info.owner_mask(dim).sum()))) == count
        levels = set().union(*process.comm.allgather(np.unique(grid.info.halo_levels(dim)).tolist()))
        # Grids of few cells have no more than the first.
        assert levels == {0} if process.is_single_rank() else {0, 1} <= levels


# Levels, elements, cells beyond those of the grid, and whose arrays they are.
KINDS = [
    (None, np.float64, 0, None),
    (None, np.bool_, 9, run_gtfn),
    (1, np.int32, 9, None),
    (5, np.float32, 9, run_gtfn),
    (5, np.float64, 0, None),
]


@pytest.mark.parametrize("form", FORMS)
def test_each_halo_cell_has_the_value_of_its_owner(grid, runtime, form):
    for dim, (levels, dtype, padding, allocator) in itertools.product(DIMS, KINDS):
        axes = (dim,) if levels is None else (dim, dims.KDim)
        fields = [
            gtx.as_field(axes, grid.begin(dim, number, dtype, levels, padding), allocator=allocator) for number in range(3)
        ]
        before = [field.asnumpy().copy() for field in fields]
        FORMS[form](runtime, dim, *fields)
        cells = len(grid.ids(dim))
        for number, field in enumerate(fields):
            np.testing.assert_array_equal(field.ndarray[:cells], grid.truth(dim, number, dtype, levels))
            np.testing.assert_array_equal(field.ndarray[cells:], before[number][cells:])


@pytest.mark.parametrize("form", FORMS)
def test_icon4py_schedules_exchanges_where_ghex_is_for_gpus(process, grid, monkeypatch, form):
    ghex = mpi_decomposition.ghex
    if ghex.__name__ != "halocline.compat.ghex":
        pytest.skip("GHEX is installed, for CPUs")
    # As it would be said of GHEX built for them: then icon4py schedules exchanges of host fields, too.
    monkeypatch.setitem(ghex.__config__, "gpu", True)
    runtime = mpi_decomposition.create_multinode_node_exchange(process, grid.info)
    for dim in DIMS:
        field = gtx.as_field((dim, dims.KDim), grid.begin(dim, levels=3, padding=2))
        FORMS[form](runtime, dim, field)
        np.testing.assert_array_equal(field.ndarray[: len(grid.ids(dim))], grid.truth(dim, levels=3))


def test_arrays_are_exchanged_too(grid, runtime):
    for dim in DIMS:
        for levels in (None, 4):
            arrays = [grid.begin(dim, number, levels=levels) for number in range(2)]
            runtime.exchange(dim, *arrays)
            for number, array in enumerate(arrays):
                np.testing.assert_array_equal(array, grid.truth(dim, number, levels=levels))


def test_fields_of_several_kinds_go_together(process, grid):
    runtime = definitions.create_exchange(process, grid.info)
    for dim in DIMS:
        fields = [
            gtx.as_field((dim,) if levels is None else (dim, dims.KDim), grid.begin(dim, 0, dtype, levels, more), allocator=whose)
            for levels, dtype, more, whose in KINDS
        ]
        runtime.exchange(dim, *fields, grid.begin(dim, 1))
        for field, (levels, dtype, *_) in zip(fields, KINDS):
            np.testing.assert_array_equal(field.ndarray[: len(grid.ids(dim))], grid.truth(dim, 0, dtype, levels))


def test_several_exchanges_are_in_flight(process, grid):
    runtime = definitions.create_exchange(process, grid.info)
    begun = []
    for number in range(3):
        for dim in DIMS:
            field = gtx.as_field((dim, dims.KDim), grid.begin(dim, number, levels=3))
            begun.append((runtime.start(dim, field), dim, number, field))
    for handle, *_ in begun[::-1]:
        handle.finish(stream=BLOCK)
        assert handle.is_ready()
    for _, dim, number, field in begun:
        np.testing.assert_array_equal(field.ndarray, grid.truth(dim, number, levels=3))


def test_operators_of_icon4py_compute_what_they_compute_on_one_rank(grid, runtime):
    """From cells to edges to cells, and to vertices at the end: halos of the step before would be found in the next one."""
    random = np.random.default_rng(1)
    levels, counts = 4, [grid.size.num_cells, grid.size.num_edges, grid.size.num_vertices]
    start = random.uniform(size=(counts[0], levels))
    weights = {"E2C": random.uniform(-1, 2, (counts[1], 2)), "C2E": random.uniform(-1, 1, (counts[0], 3))}
    weights["V2C"] = random.uniform(size=(counts[2], 6))

    def compute(ids, exchange):
        def apply(operator, field, offset, dim):
            source, (_, local_dim) = offset.source, offset.target
            table = grid.tables[offset.value][ids[dim]]
            local = halo.global_to_local(ids[source], table.ravel()).reshape(table.shape)
            # At the rim of the halo neighbours are missing. What is computed there is overwritten.
            offsets = {offset.value: base.construct_connectivity(offset, np.where(local < 0, 0, local).astype(gtx.int32))}
            factors = gtx.as_field((dim, local_dim), weights[offset.value][ids[dim]])
            out = gtx.as_field((dim, dims.KDim), np.zeros((len(ids[dim]), levels)))
            operator(field, factors, out=out, offset_provider=offsets)
            exchange(dim, out)
            return out

        cells = gtx.as_field((dims.CellDim, dims.KDim), start[ids[dims.CellDim]])
        for _ in range(4):
            edges = apply(_cell_2_edge_interpolation, cells, dims.E2C, dims.EdgeDim)
            cells = apply(_interpolate_to_cell_center, edges, dims.C2E, dims.CellDim)
        vertices = apply(_compute_cell_2_vertex_interpolation, cells, dims.V2C, dims.VertexDim)
        return [field.asnumpy() for field in (cells, edges, vertices)]

    alone = compute({dim: np.arange(count) for dim, count in zip(DIMS, counts)}, lambda dim, field: None)
    together = compute({dim: grid.ids(dim) for dim in DIMS}, runtime.exchange)
    for dim, have, want in zip(DIMS, together, alone):
        np.testing.assert_array_equal(have, want[grid.ids(dim)])


def test_reductions_are_still_those_of_icon4py(process):
    # The numbers of cells, edges and vertices identify the owner masks, so they must differ.
    class Info:
        def owner_mask(self, dim):
            return np.arange(3 + DIMS.index(dim)) > 0

    assert definitions.create_reduction(process, Info()).sum(np.ones(4)) == 3 * process.comm_size


def test_fields_that_cannot_be_right_are_refused(process, grid):
    if process.is_single_rank():
        pytest.skip("one rank exchanges nothing")
    runtime = definitions.create_exchange(process, grid.info)
    cells, edges = len(grid.ids(dims.CellDim)), len(grid.ids(dims.EdgeDim))
    good = gtx.as_field((dims.CellDim,), grid.begin(dims.CellDim))
    on_edges = gtx.as_field((dims.EdgeDim,), np.zeros(max(cells, edges)))
    with pytest.raises(hc.HaloValueError, match="field 1 is on .*Edge.* first axis .*Cell"):
        runtime.exchange(dims.CellDim, good, on_edges)
    with pytest.raises(hc.HaloValueError, match="field 0 is on .*K.* first axis .*Cell"):
        runtime.exchange(dims.CellDim, gtx.as_field((dims.KDim, dims.CellDim), np.zeros((cells, cells))))
    with pytest.raises(hc.HaloValueError, match="field 0 begins at 2 on .*Cell"):
        runtime.exchange(dims.CellDim, gtx.as_field({dims.CellDim: (2, cells + 2)}, np.zeros(cells)))
    with pytest.raises(hc.HaloValueError, match=f"field 0 has {cells - 1} cells"):
        runtime.exchange(dims.CellDim, gtx.as_field((dims.CellDim,), np.zeros(cells - 1)))
    with pytest.raises(hc.HaloValueError, match="no halos on .*K"):
        runtime.exchange(dims.KDim, good)
    # None of that has begun anything.
    runtime.exchange(dims.CellDim, good)
    np.testing.assert_array_equal(good.ndarray, grid.truth(dims.CellDim))
