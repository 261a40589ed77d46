"""icon4py's exchange protocol, on a ring of cells and the edges between them, without icon4py."""

import sys
import types

import numpy as np
import pytest

import halocline as hc
from halocline.compat import icon4py
from halocline.compat.icon4py import BLOCK, DEFAULT_STREAM, ExchangeResult, ExchangeRuntime

CELL, EDGE = "Cell", "Edge"
OWNED = 6


class DecompositionInfo:
    """As icon4py's: global indices and owner masks."""

    def __init__(self, rank, size):
        count = OWNED * size
        first = rank * OWNED
        # A halo cell on either side; of the edge between two ranks the higher one is the owner.
        cells = np.arange(first - 1, first + OWNED + 1) % count
        edges = np.arange(first, first + OWNED + 1) % count
        owner = lambda edge: max(edge // OWNED, (edge - 1) % count // OWNED)
        self._global_index = {CELL: cells, EDGE: edges}
        self._owner_mask = {CELL: cells // OWNED == rank, EDGE: np.array([owner(edge) == rank for edge in edges])}

    def global_index(self, dim):
        return self._global_index[dim]

    def owner_mask(self, dim):
        return self._owner_mask[dim]


class Field:
    """An array as GT4Py's fields have it."""

    def __init__(self, ndarray):
        self.ndarray = ndarray


class OnDims(Field):
    """As GT4Py's."""

    def __init__(self, ndarray, dims, first=0):
        super().__init__(ndarray)
        self.domain = types.SimpleNamespace(dims=dims, ranges=[types.SimpleNamespace(start=first)])


class Case:
    def __init__(self, comm, dim):
        self.info = DecompositionInfo(comm.rank, comm.size)
        self.ids, self.owned = self.info.global_index(dim), self.info.owner_mask(dim)

    def field(self, by=0, levels=(), padding=0, order="C"):
        array = np.full((len(self.ids) + padding, *levels), -1.0, order=order)
        array[: len(self.ids)][self.owned] = self.expected(by, levels)[self.owned]
        return array

    def expected(self, by=0, levels=()):
        return (
            self.ids.reshape((-1,) + (1,) * len(levels))
            + by
            + 1000 * np.arange(np.prod(levels, dtype=int)).reshape(levels)
        )

    def check(self, array, by=0, levels=()):
        np.testing.assert_array_equal(array[: len(self.ids)], self.expected(by, levels))
        assert (array[len(self.ids) :] == -1).all()


class CudaStream:
    def __cuda_stream__(self):
        return (0, 0)


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("dim", [CELL, EDGE])
def test_halos_of_padded_arrays_with_levels_are_filled_in_every_form(ranks, dim):
    def rank(comm):
        case = Case(comm, dim)
        runtime = icon4py.create_exchange(case.info, comm)
        assert isinstance(runtime, ExchangeRuntime)
        assert (runtime.my_rank(), runtime.get_size()) == (comm.rank, comm.size)
        assert str(runtime) == f"Exchange(rank = {comm.rank} / {comm.size})"
        for levels in [(), (3,), (1,)]:
            for padding, order in [(0, "C"), (5, "C"), (5, "F")]:
                for stream in [DEFAULT_STREAM, BLOCK, None, CudaStream()]:
                    arrays = [case.field(by, levels, padding, order) for by in range(3)]
                    first = slice(len(case.ids))
                    fields = [arrays[0][first], Field(arrays[1][first]), OnDims(arrays[2], (dim, "K"))]
                    runtime.exchange(dim, *fields, stream=stream)
                    for by, array in enumerate(arrays):
                        case.check(array, by, levels)
                    again = case.field(7, levels, padding, order)
                    result = runtime.start(dim, OnDims(again, (dim, "K")), stream=stream)
                    assert isinstance(result, ExchangeResult)
                    result.finish(stream)
                    assert result.is_ready()
                    case.check(again, 7, levels)
        array = case.field()
        assert runtime(array, dim=dim) is None
        case.check(array)
        array = case.field(1)
        runtime(Field(array), dim=dim, full_exchange=False).finish()
        case.check(array, 1)

    hc.run_threads(ranks, rank)


def test_several_exchanges_are_in_flight_on_several_dimensions():
    def rank(comm):
        cells, edges = Case(comm, CELL), Case(comm, EDGE)
        runtime = icon4py.create_exchange(cells.info, comm, [CELL, EDGE])
        begun = []
        for by in range(5):
            for case, dim in [(cells, CELL), (edges, EDGE)]:
                array = case.field(by)
                begun.append((runtime.start(dim, array), case, array, by))
        for result, *_ in begun[::-1]:
            result.finish()
        for _, case, array, by in begun:
            case.check(array, by)

    hc.run_threads(2, rank)


def test_one_rank_exchanges_nothing():
    info = DecompositionInfo(0, 1)
    for runtime in [
        icon4py.create_exchange(info),
        *hc.run_threads(1, lambda comm: icon4py.create_exchange(info, comm)),
    ]:
        assert isinstance(runtime, ExchangeRuntime)
        array = np.arange(8.0)
        runtime.exchange(CELL, array)
        assert runtime(array, dim=CELL) is None
        result = runtime.start(CELL, array, stream=BLOCK)
        result.finish()
        assert result.is_ready() and (array == np.arange(8)).all()
        assert (runtime.get_size(), runtime.my_rank()) == (1, 0)


def test_bad_arguments_are_refused():
    def rank(comm):
        case = Case(comm, CELL)
        runtime = icon4py.create_exchange(case.info, comm)
        with pytest.raises(hc.HaloValueError, match="there are no halos on 'Vertex'; those known are on"):
            runtime.start("Vertex", case.field())
        with pytest.raises(hc.HaloValueError, match="field 1 has 5 cells .* the grid has 8"):
            runtime.start(CELL, case.field(), np.zeros(5))
        with pytest.raises(hc.HaloTypeError, match=r"a dimension is what a dict can have as its key, not \[\]"):
            runtime.start([], case.field())
        with pytest.raises(hc.HaloTypeError, match=r"a dimension is .* not \[1\]"):
            icon4py.create_exchange(case.info, comm, [[1]])
        with pytest.raises(hc.HaloTypeError, match="field 0 is no array"):
            runtime.start(CELL, 3)
        with pytest.raises(TypeError, match="stream"):
            runtime.start(CELL, case.field(), stream="stream")
        # None of that has begun anything.
        array = case.field()
        runtime.exchange(CELL, array)
        case.check(array)
        with pytest.raises(hc.HaloValueError, match="differ"):
            icon4py.create_exchange(case.info, comm, [CELL, EDGE][:: 1 if comm.rank else -1])

    hc.run_threads(2, rank)
    with pytest.raises(hc.HaloTypeError, match="dims="):
        hc.run_threads(2, lambda comm: icon4py.create_exchange(object(), comm))


def test_the_constants():
    assert DEFAULT_STREAM.ptr == 0 and DEFAULT_STREAM.__cuda_stream__() == (0, 0)
    with pytest.raises(AttributeError):
        DEFAULT_STREAM.ptr = 1
    assert icon4py.Block() is BLOCK and repr(BLOCK) == "BLOCK"


@pytest.fixture
def modules(monkeypatch):
    """Modules in the place of icon4py's, as far as they are asked for."""
    made = {}
    for name in ["", ".model", ".model.common", ".model.common.decomposition"]:
        monkeypatch.setitem(sys.modules, "icon4py" + name, types.ModuleType("icon4py" + name))
    for name in ["definitions", "mpi_decomposition"]:
        made[name] = types.ModuleType(name)
        monkeypatch.setitem(sys.modules, f"icon4py.model.common.decomposition.{name}", made[name])
    made["definitions"].BLOCK = object()
    return made


def test_the_constant_of_icon4py_is_understood(modules):
    theirs = modules["definitions"].BLOCK

    def rank(comm):
        case = Case(comm, CELL)
        runtime = icon4py.create_exchange(case.info, comm)
        for by, stream in [(0, theirs), (1, BLOCK)]:
            array = case.field(by)
            runtime.exchange(CELL, array, stream=stream)
            case.check(array, by)
            array = case.field(by)
            runtime.start(CELL, array).finish(stream=stream)
            case.check(array, by)
        with pytest.raises(TypeError, match="stream"):
            runtime.start(CELL, case.field(), stream=object())

    hc.run_threads(2, rank)


def test_fields_that_know_their_dimensions_are_on_the_right_ones():
    def rank(comm):
        case = Case(comm, CELL)
        runtime = icon4py.create_exchange(case.info, comm)
        array = case.field(levels=(3,))
        for bad, text in [
            (OnDims(array, (EDGE, "K")), "field 1 is on .*Edge.*first axis .*Cell"),
            (OnDims(array, ("K", CELL)), "field 1 is on .*first axis .*Cell"),
            (OnDims(array, (CELL, "K"), 2), "field 1 begins at 2 on 'Cell'"),
        ]:
            with pytest.raises(hc.HaloValueError, match=text):
                runtime.start(CELL, case.field(levels=(3,)), bad)
        runtime.exchange(CELL, OnDims(array, (CELL, "K")))
        case.check(array, levels=(3,))

    hc.run_threads(2, rank)


@pytest.mark.parametrize("wrap", [lambda array: array, Field], ids=["array", "ndarray"])
@pytest.mark.parametrize("stream", [DEFAULT_STREAM, BLOCK])
def test_arrays_whose_first_axis_is_not_of_cells_are_refused(wrap, stream):
    def rank(comm):
        case = Case(comm, CELL)
        runtime = icon4py.create_exchange(case.info, comm)
        for shape, text in [
            ((65, 8), r"field 1 .*\(65, 8\).* 8 on 'Cell' .*axis 1 .*levels first.*array\.swapaxes\(0, 1\)"),
            ((65, 3, 8), r"\(65, 3, 8\).*axis 2 .*levels first.*array\.swapaxes\(0, 2\)"),
            ((5, 8), r"\(5, 8\).*axis 1 .*levels first.*array\.swapaxes\(0, 1\)"),
            ((65, 9), r"\(65, 9\).*levels first.*array\.swapaxes\(0, 1\)\[:8\].*array\[:8\]"),
            ((9,), r"\(9,\).*give array\[:8\]$"),
            ((9, 3), r"\(9, 3\).*give array\[:8\]$"),
        ]:
            array = np.arange(np.prod(shape, dtype=float)).reshape(shape)
            before = array.copy()
            with pytest.raises(hc.HaloValueError, match=text):
                runtime.start(CELL, case.field(), wrap(array), stream=stream)
            np.testing.assert_array_equal(array, before)
        # As the text says: a view with the cells first.
        array = np.ascontiguousarray(case.field(levels=(65,)).T)
        runtime.exchange(CELL, wrap(array.swapaxes(0, 1)), stream=stream)
        case.check(array.T, levels=(65,))

    hc.run_threads(2, rank)


def test_fields_that_are_none_are_errors_of_ours():
    def made(shape=(9, 3), **domain):
        return types.SimpleNamespace(
            shape=shape, domain=types.SimpleNamespace(**domain), ndarray=types.SimpleNamespace(shape=shape)
        )

    at_0, nowhere = types.SimpleNamespace(start=0), types.SimpleNamespace()

    def rank(comm):
        case = Case(comm, CELL)
        runtime = icon4py.create_exchange(case.info, comm)
        for shape in (3, (None,), (), None, {"a": 1}, "x", object()):
            with pytest.raises(hc.HaloTypeError, match="field 1 is no array of one or more axes"):
                runtime.start(CELL, case.field(), made(shape))
        for ranges in ({}, {"ranges": None}, {"ranges": []}, {"ranges": [nowhere]}, {"ranges": 3}):
            with pytest.raises(hc.HaloTypeError, match=r"field 1 does not say where it begins on 'Cell', by domain.ranges\[0\].start"):
                runtime.start(CELL, case.field(), made(dims=(CELL, "K"), **ranges))
        for dims in (3, object()):
            with pytest.raises(hc.HaloTypeError, match="the dimensions of field 0 are a list"):
                runtime.start(CELL, made(dims=dims, ranges=[at_0]))
        for dims in (np.array([EDGE, "K"]), np.zeros((2, 2)), np.array([]), [np.zeros(2)], [None]):
            with pytest.raises(hc.HaloValueError, match="field 0 is on .*; its first axis is to be 'Cell'"):
                runtime.start(CELL, made(dims=dims, ranges=[at_0]))
        for start in (None, np.zeros(2), "x"):
            with pytest.raises(hc.HaloValueError, match="field 0 begins at"):
                runtime.start(CELL, made(dims=(CELL,), ranges=[types.SimpleNamespace(start=start)]))
        # Given in an array they are as good.
        good = Field(case.field(levels=(3,)))
        good.domain = types.SimpleNamespace(dims=np.array([CELL, "K"]), ranges=[at_0])
        runtime.exchange(CELL, good)
        case.check(good.ndarray, levels=(3,))

    hc.run_threads(2, rank)


def test_without_icon4py_nothing_is_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "icon4py", None)
    monkeypatch.delitem(sys.modules, "ghex", raising=False)
    with pytest.raises(ImportError, match="icon4py"):
        icon4py.install()
    assert "ghex" not in sys.modules


def test_icon4py_that_was_imported_without_mpi_is_an_error(modules, monkeypatch):
    monkeypatch.setitem(sys.modules, "ghex", types.ModuleType("ghex"))
    sys.modules["ghex"].__spec__ = pytest.__spec__
    modules["mpi_decomposition"].import_error = ImportError("No module named 'ghex'")
    with pytest.raises(hc.HaloError, match="No module named 'ghex'.* call install.. before"):
        icon4py.install()


@pytest.mark.parametrize("fault", ["no such dimension", "a short mask", "no dimensions"])
def test_what_one_rank_is_refused_is_an_error_on_all(fault):
    def rank(comm):
        info, dims = DecompositionInfo(comm.rank, comm.size), None
        if comm.rank == 1 and fault == "no such dimension":
            info._global_index = {**info._global_index, "Nothing": None}
        if comm.rank == 1 and fault == "a short mask":
            info._owner_mask[CELL] = info._owner_mask[CELL][:-1]
        if comm.rank == 1 and fault == "no dimensions":
            info._global_index = None
        with pytest.raises((hc.HaloError, KeyError, AttributeError, TypeError)) as refused:
            icon4py.create_exchange(info, comm.with_deadline(60), dims)
        return type(refused.value)

    first, second = hc.run_threads(2, rank)
    assert first is hc.RefusedElsewhereError and second is not hc.RefusedElsewhereError
