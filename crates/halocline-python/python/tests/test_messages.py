"""Messages name the argument that is wrong, say what is wanted in Python's words, and name ways out."""

import ctypes
import re
from pathlib import Path

import numpy as np
import pytest

import halocline as hc

COMM = hc.run_threads(1, lambda comm: comm)[0]
TILES = hc.PatchGrid.cubed_sphere(4)
GRID = hc.RegularGrid((8, 6), periodic=(True, False))
CUT = GRID.decompose(COMM)
PATTERN = CUT.pattern(1)
TWO = hc.RegularGrid((8, 6), domains_per_rank=2).decompose(COMM)
MESH = hc.Mesh(4, [[0, 1, 2], [1, 2, 3]])
ICON_FILE = str(Path(__file__).resolve().parents[4] / "data/icon/r2b2.nc")
ICON = hc.IconGrid(ICON_FILE)
PART = hc.Partition([0, 0], 1)
GRAPH = hc.Graph([0, 1, 2], [1, 0])
DOMAIN = hc.UnstructuredDomain(0, [0, 1], [])
MOVE = hc.Redistribute.regular(COMM, (CUT, 0), (CUT, 0))


def array():
    return np.zeros(PATTERN.shape)


HALO = hc.HaloExchange(COMM, [(PATTERN, array())])
LINKS = hc.PatternLinks(COMM, [PATTERN])
OPTIONS = {
    "link": "auto",
    "deadline": 5.0,
    "name": "halo",
    "checked": False,
    "streams": [None],
    "inline": False,
    "stream_waits": False,
    "ll": "auto",
}

# Calls that are taken, by all of their arguments.
CALLS = {
    "RegularGrid": (hc.RegularGrid, {"shape": (8,), "periodic": (True,), "domains_per_rank": 1}),
    "decompose": (GRID.decompose, {"comm": 1}),
    "decompose_into": (GRID.decompose_into, {"blocks": (2, 1), "comm": 2}),
    "decompose_at": (GRID.decompose_at, {"cuts": ([4], []), "comm": 2}),
    "decompose_boxes": (GRID.decompose_boxes, {"boxes": [(0, (0, 0), (8, 6))], "comm": 1}),
    "staggered": (CUT.staggered, {"axes": (True, False)}),
    "domains_of": (CUT.domains_of, {"rank": 0, "halo": 1}),
    "Decomposition.pattern": (CUT.pattern, {"halo": 1, "neighbours": "all", "comm": COMM}),
    "PatchGrid": (hc.PatchGrid, {"patches": [(4, 4)], "seams": []}),
    "cubed_sphere": (hc.PatchGrid.cubed_sphere, {"n": 4}),
    "lat_lon_cap": (hc.PatchGrid.lat_lon_cap, {"n": 4}),
    "tripolar": (hc.PatchGrid.tripolar, {"shape": (4, 8), "pivot": "cell"}),
    "latitude_longitude": (hc.PatchGrid.latitude_longitude, {"shape": (4, 8)}),
    "corners_through": (TILES.corners_through, {"axis": 0}),
    "PatchGrid.decompose": (TILES.decompose, {"comm": 1}),
    "PatchGrid.decompose_into": (TILES.decompose_into, {"blocks": [(1, 1)] * 6, "comm": 2}),
    "PatchDecomposition.block": (TILES.decompose(1).block, {"domain": 0, "quantity": "cells", "component": 0}),
    "PatchDecomposition.owner": (TILES.decompose(1).owner, {"domain": 0}),
    "PatchDecomposition.domains_of": (TILES.decompose(1).domains_of, {"rank": 0}),
    "PatchDecomposition.transfers": (
        TILES.decompose(1).transfers,
        {"rank": 0, "halo": 1, "quantity": "cells", "neighbours": "all"},
    ),
    "cubed_sphere_point": (hc.cubed_sphere_point, {"tile": 0, "along": (0.5, 0.5)}),
    "PatchDecomposition.pattern": (
        TILES.decompose(1).pattern,
        {"halo": 1, "quantity": "cells", "neighbours": "all", "comm": COMM},
    ),
    "Pattern.component": (TILES.decompose(1).pattern(1, "c_grid", comm=COMM).component, {"component": 0}),
    "Pattern.unstructured": (hc.Pattern.unstructured, {"comm": COMM, "domains": [DOMAIN]}),
    "Pattern.narrowed": (PATTERN.narrowed, {"halo": 0, "neighbours": "all"}),
    "gather_to": (PATTERN.gather_to, {"root": 0, "fields": array()}),
    "UnstructuredDomain": (hc.UnstructuredDomain, {"id": 0, "owned": [0], "halo": [1]}),
    "from_indices": (hc.UnstructuredDomain.from_indices, {"id": 0, "cells": [0, 1], "halo": [1]}),
    "from_owners": (hc.UnstructuredDomain.from_owners, {"id": 0, "comm": COMM, "cells": [0], "owners": [0]}),
    "with_levels": (DOMAIN.with_levels, {"ends": (2,)}),
    "Graph": (hc.Graph, {"offsets": [0, 1, 2], "neighbours": [1, 0]}),
    "neighbours": (GRAPH.neighbours, {"cell": 0}),
    "Partition": (hc.Partition, {"owners": [0], "ranks": 1}),
    "block": (hc.Partition.block, {"cells": 4, "ranks": 2}),
    "metis": (hc.Partition.metis, {"graph": GRAPH, "ranks": 1}),
    "Mesh": (hc.Mesh, {"vertices": 3, "connectivity": [0, 1, 2], "offsets": [0, 3], "solid": False}),
    "element_graph": (MESH.element_graph, {"common": 2}),
    "domains_by_vertex": (MESH.domains_by_vertex, {"partition": hc.Partition([0] * 4, 1), "rank": 0}),
    "domains_by_element": (MESH.domains_by_element, {"partition": PART, "rank": 0}),
    "halos": (MESH.halos, {"partition": PART, "part": 0, "depth": 1, "shared": "edge"}),
    "icon_halos": (MESH.icon_halos, {"partition": PART, "part": 0}),
    "IconGrid": (hc.IconGrid, {"path": ICON_FILE}),
    "IconGrid.part": (ICON.part, {"partition": hc.Partition.block(1280, 1), "part": 0}),
    "IconGrid.read": (ICON.read, {"name": "clon", "ids": [0]}),
    "refined_part": (MESH.refined_part, {"partition": PART, "part": 0, "segments": 1, "depth": 1}),
    "MeshPart": (
        hc.MeshPart,
        {"mesh": MESH, "vertices": range(4), "elements": range(2), "partition": PART, "part": 0, "depth": 1},
    ),
    "Field": (hc.Field, {"array": array(), "domain": 0, "axes": (0, 1), "origin": (1, 1), "padded": False}),
    "HaloExchange": (hc.HaloExchange, {"comm": COMM, "fields": [(PATTERN, array())], **OPTIONS}),
    "alternatives": (hc.HaloExchange.alternatives, {"comm": COMM, "sets": [[(PATTERN, array())]], **OPTIONS}),
    "bind": (MOVE.bind, {"comm": COMM, "source": [np.zeros((8, 6))], "target": [np.zeros((8, 6))], **OPTIONS}),
    "exchange": (HALO.exchange, {"wait": True, "set": 0, "streams": [None]}),
    "exchange_async": (HALO.exchange_async, {"set": 0, "streams": [None]}),
    "schedule_exchange": (HALO.schedule_exchange, {"stream": None, "set": 0}),
    "schedule_wait": (HALO.schedule_wait, {"stream": None}),
    "alternative": (HALO.alternative, {"set": 0}),
    "HaloExchange.narrowed": (HALO.narrowed, {"halo": 0, "neighbours": "all"}),
    "PatternLinks": (
        hc.PatternLinks,
        {"comm": COMM, "patterns": [PATTERN], **{name: OPTIONS[name] for name in ("link", "deadline", "name", "checked")}},
    ),
    "PatternLinks.exchange": (LINKS.exchange, {"fields": [(PATTERN, array())], "wait": True}),
    "PatternLinks.exchange_async": (LINKS.exchange_async, {"fields": [(PATTERN, array())]}),
    "PatternLinks.schedule_exchange": (LINKS.schedule_exchange, {"fields": [(PATTERN, array())], "stream": None}),
    "Redistribute.regular": (hc.Redistribute.regular, {"comm": COMM, "source": (CUT, 0), "target": (CUT, 1)}),
    "Redistribute.unstructured": (hc.Redistribute.unstructured, {"comm": COMM, "source": [DOMAIN], "target": [DOMAIN]}),
    "broadcast": (COMM.broadcast, {"root": 0, "data": b""}),
    "all_gather": (COMM.all_gather, {"data": b""}),
    "all_reduce": (COMM.all_reduce, {"values": [1], "op": "min"}),
    "split": (COMM.split, {"color": 0, "key": 0}),
    "with_deadline": (COMM.with_deadline, {"seconds": 1.5}),
    "agree": (COMM.agree, {"error": None}),
    "init": (hc.init, {"transport": "auto", "deadline": None}),
    "run_threads": (hc.run_threads, {"n": 1, "fn": lambda comm: None}),
    "zeros": (hc.zeros, {"shape": 3, "dtype": "float64", "comm": COMM, "order": "C"}),
    "Stream": (hc.Stream, {"handle": 0}),
    "trace": (hc.trace, {"path": "trace.json", "comm": COMM}),
}
# Checked only later: when the trace begins, or against the domain. A key may be negative.
LATER = {("trace", "path"), ("gather_to", "fields"), ("split", "key")}
# Junk that is none for arguments of these names.
KINDS_TAKEN = {
    **dict.fromkeys(("deadline", "seconds"), float),
    "name": str,
    "values": list,
    **dict.fromkeys(("array", "source", "target", "along"), np.ndarray),
}
NEGATIVE = -1

# Of Rust, of pyo3 and of Python's converters of numbers.
FOREIGN = re.compile(
    r"::|Some\(|None\)|Ok\(|Err\(|\busize\b|\bu64\b|unsigned|cannot be interpreted|is not an instance of|cannot be cast"
    r"|too big to convert|out of range integral|must be real number|opaque|\[true|\[false|with_\w+`|\{ "
)


@pytest.mark.parametrize("name", CALLS)
def test_the_calls_are_taken(name):
    call, arguments = CALLS[name]
    call(**arguments)


@pytest.mark.parametrize("name, argument", [(name, argument) for name in CALLS for argument in CALLS[name][1]])
def test_a_message_names_the_argument_that_is_wrong(name, argument):
    class Junk:
        pass

    call, arguments = CALLS[name]
    if (name, argument) in LATER:
        pytest.skip("it is noticed later")
    for junk in (Junk(), 1.5, "no such word", {}, [1.5], np.zeros((2, 2, 2)), NEGATIVE, [[-1]]):
        if isinstance(junk, KINDS_TAKEN.get(argument, ())) and junk is not NEGATIVE:
            continue
        try:
            call(**{**arguments, argument: junk})
        except hc.HaloError as error:
            assert re.match(rf"{argument}(\[\d+\])*: ", str(error)), f"{junk!r}: {error}"
            assert not FOREIGN.search(str(error)), f"{junk!r}: {error}"
            assert isinstance(error, (hc.HaloTypeError, hc.HaloValueError))
        else:
            raise AssertionError(f"{junk!r} was taken")


def said(call):
    with pytest.raises((hc.HaloTypeError, hc.HaloValueError)) as caught:
        call()
    assert not FOREIGN.search(str(caught.value)), caught.value
    return str(caught.value)


WITHOUT = {
    "a number as a shape": (
        lambda: hc.RegularGrid(8),
        "shape: a sequence of whole numbers is wanted, not 8; a single one is given as (8,)",
    ),
    "one flag": (
        lambda: hc.RegularGrid((8, 8), periodic=True),
        "periodic: a sequence of flags (True or False) is wanted, not True; a single one is given as (True,)",
    ),
    "a flag that is none": (
        lambda: hc.RegularGrid((8, 8), periodic=(2, 0)),
        "periodic[0]: True or False is wanted, not 2",
    ),
    "too few flags": (lambda: hc.RegularGrid((8, 8), periodic=(True,)), "periodic: 1 flags for 2 axes; give one for each axis"),
    "float ids": (
        lambda: hc.UnstructuredDomain(0, np.arange(3.0), []),
        "owned: an array of whole numbers is wanted, not of float64; convert it: array.astype('int64')",
    ),
    "a float id": (lambda: hc.UnstructuredDomain(0, [1, 2.5], []), "owned[1]: a whole number is wanted, not 2.5"),
    "a negative id": (
        lambda: hc.UnstructuredDomain(0, [0], np.array([1, -7])),
        "halo[1]: a whole number from 0 is wanted, not -7",
    ),
    "a mask": (
        lambda: hc.UnstructuredDomain.from_indices(0, [0, 1], np.array([False, True])),
        "halo: an array of whole numbers is wanted, not of bool; of a mask give the indices: numpy.flatnonzero(mask)",
    ),
    "a mask as a list": (
        lambda: hc.UnstructuredDomain.from_indices(0, [0, 1], [False, True]),
        "halo[0]: a whole number is wanted, not False",
    ),
    "ids that are masked": (
        lambda: hc.Partition(np.ma.array([0, 0]), 1),
        "owners: a masked array is two arrays; give its .data, and its .mask as another one",
    ),
    "texts as ids": (
        lambda: hc.Partition(np.array(["a"]), 1),
        "owners: an array of whole numbers is wanted, not of U1",
    ),
    "ids of two dimensions": (
        lambda: hc.UnstructuredDomain(0, np.zeros((2, 3), int), []),
        "owned: an array of one dimension is wanted, not one of shape (2, 3); flatten it: array.ravel()",
    ),
    "an id without a dimension": (
        lambda: hc.Graph(np.array(3), [0]),
        "offsets: an array of one dimension is wanted, not one of shape ()",
    ),
    "connectivity of two dimensions with offsets": (
        lambda: hc.Mesh(3, np.array([[0, 1, 2]]), offsets=[0, 3]),
        "connectivity: an array of one dimension is wanted, not one of shape (1, 3); flatten it: array.ravel()",
    ),
    "a vertex of many bits": (
        lambda: hc.Graph([0, 2], [0, 2**32]),
        f"neighbours[1]: a whole number below 2**32 is wanted, not {2**32}",
    ),
    "an array without a pattern": (
        lambda: hc.HaloExchange(COMM, [array()]),
        "fields[0]: a pair (pattern, array) is wanted, not numpy.ndarray",
    ),
    "a pair turned around": (
        lambda: hc.HaloExchange(COMM, [(array(), PATTERN)]),
        "fields[0][0]: a halocline.Pattern is wanted, not numpy.ndarray",
    ),
    "several domains": (
        lambda: hc.HaloExchange(COMM, [(TWO.pattern(1), array())]),
        "pattern 0 has the domains [0, 1] on this rank; say which one a field belongs to with Field(domain=...)",
    ),
    "several domains of a side": (
        lambda: hc.Redistribute.regular(COMM, (TWO, 0), (CUT, 0)).bind(COMM, [array()], [array()]),
        "the first side has the domains [0, 1] on this rank; say which one a field belongs to with Field(domain=...)",
    ),
    "a width of an unstructured pattern": (
        lambda: hc.Pattern.unstructured(COMM, [DOMAIN]).narrowed((1, 1)),
        "halo: unstructured domains have no axes or faces: narrow them to a depth, as narrowed(depth)",
    ),
    "a direct link without fields": (
        lambda: hc.PatternLinks(COMM, [PATTERN], link="push"),
        "links without fields cannot be push, which needs memory of bound fields; make them with the link choice auto, mailbox or "
        "message",
    ),
    "no such link": (
        lambda: hc.HaloExchange(COMM, [(PATTERN, array())], link="fast"),
        "link: there is no 'fast'; choose 'auto', 'push', 'pull', 'mailbox', 'message' or 'nccl'",
    ),
    "records of many bytes": (
        lambda: hc.Field(np.zeros(3, [("a", "f8", 30), ("b", "f8"), ("c", "f8", 2)])),
        "array: elements of type |V264 have 264 bytes, 256 at most can be exchanged as one; give each member as a field of its own "
        "(array['name']), or a view of their bytes: array.view('uint8').reshape(*array.shape, 264)",
    ),
    "texts of many bytes": (
        lambda: hc.Field(np.zeros(3, "U70")),
        "array: elements of type <U70 have 280 bytes, 256 at most can be exchanged as one; give a view of their bytes: "
        "array.view('uint8').reshape(*array.shape, 280)",
    ),
    "a scalar of NumPy": (lambda: hc.Field(np.float64(3)), "array: a scalar of NumPy has no memory of its own; give an array"),
    "a message that is read-only": (lambda: HALO.pack(0, b"abc"), "message: the array is read-only; `pack` writes it"),
    "too much memory": (
        lambda: hc.zeros((2**40, 2**40), "u1", COMM),
        f"shape: an array of shape ({2**40}, {2**40}) would have {2**80} bytes, more than memory can have",
    ),
}


@pytest.mark.parametrize("what", WITHOUT)
def test_a_message_says_what_is_wanted_and_a_way_out(what):
    call, text = WITHOUT[what]
    assert said(call) == text


def test_views_of_bytes_are_the_way_out_that_messages_name():
    records = np.zeros(PATTERN.shape, [("a", "f8"), ("b", "f8"), ("c", "f8")])
    whole = records.view("uint8").reshape(*records.shape, 24)
    hc.HaloExchange(COMM, [(PATTERN, whole), (PATTERN, np.zeros(PATTERN.shape, records.dtype)["b"])]).exchange()


def test_numbers_as_flags_are_taken():
    grid = hc.RegularGrid((8, 8), periodic=(1, 0))
    assert grid.periodic == (True, False) and grid == hc.RegularGrid((8, 8), periodic=np.array([1, 0]))
    assert CUT.staggered([1, 0]).shape == (8, 6)
    assert HALO.exchange(wait=np.False_).is_ready()


@pytest.mark.parametrize(
    "shape, options, text",
    [
        ((), {}, "shape: a grid of 0 axes; grids have 1 to 4"),
        ((1,) * 5, {}, "shape: a grid of 5 axes; grids have 1 to 4"),
        ((4, 0), {}, "shape: axis 1 of the grid has 0 cells; every axis has at least 1"),
        ((2**40, 2**40), {}, "shape: a grid of .* has more cells than 2\\^60"),
        ((4,), {"domains_per_rank": 0}, "domains_per_rank: a whole number from 1 is wanted, not 0"),
        ((8, 8), {"domains_per_rank": 100}, r"domains_per_rank: 100 domains, but a grid of \(8, 8\) has 64 cells"),
        ((8,), {"domains_per_rank": 9}, r"domains_per_rank: 9 domains, but a grid of \(8,\) has 8 cells"),
    ],
)
def test_a_grid_that_no_decomposition_takes_is_refused(shape, options, text):
    with pytest.raises(hc.HaloValueError, match=text):
        hc.RegularGrid(shape, **options)


def test_as_many_domains_as_cells_are_taken():
    assert hc.RegularGrid((3, 2), domains_per_rank=6).decompose(1).domains == 6


@pytest.mark.parametrize("text", [b"88", bytearray(b"88"), "88"], ids=repr)
def test_texts_are_no_sequences_of_numbers_or_flags(text):
    with pytest.raises(hc.HaloTypeError, match="shape: a sequence of whole numbers is wanted, not"):
        hc.RegularGrid(text)
    with pytest.raises(hc.HaloTypeError, match="origin: a sequence of whole numbers is wanted, not"):
        hc.Field(np.zeros((8, 8)), origin=text)


def of_module(name, **members):
    return type("DataArray", (), {"__module__": name, **members})()


def test_ways_to_the_array_behind_an_object_are_named():
    copied = {"__array__": lambda self: np.zeros(3)}
    for given, text in [
        (of_module("xarray.core.dataarray", data=np.zeros(3), **copied), "array: xarray.core.dataarray.DataArray is no array, but has one: give its .data"),
        (of_module("xarray.core.dataset"), "array: xarray.core.dataset.DataArray has several arrays: give the .data of one of its variables"),
        (of_module("dask.array.core", **copied), "array: dask.array.core.DataArray is computed piece by piece, and has no memory: give what its compute() returns"),
        (of_module("units", **copied), "array: units.DataArray gives a copy as an array, which an exchange would not change: give the array behind it (as .data)"),
    ]:
        assert said(lambda: hc.Field(given)) == text  # noqa: B023
        with pytest.raises(hc.HaloTypeError, match=re.escape(f"fields[0]: {text.removeprefix('array: ')}")):
            hc.HaloExchange(COMM, [(PATTERN, given)])


@pytest.mark.parametrize("refusal", [BufferError, RuntimeError, IndexError])
def test_the_bytes_of_small_floats_of_torch_are_named(refusal):
    """Versions of PyTorch refuse them by one of these."""

    def dlpack(self, **_):
        raise refusal("float8 types are not supported by dlpack")

    members = {"__dlpack__": dlpack, "__dlpack_device__": lambda self: (1, 0), "dtype": "torch.float8_e4m3fn"}
    text = said(lambda: hc.Field(of_module("torch", **members)))
    assert text == (
        "array: the array refuses __dlpack__: float8 types are not supported by dlpack; give its bytes: tensor.view(torch.uint8)"
    )


def dlpack_with_code(code, array):
    """An array whose DLPack tells of another kind of element."""
    new = ctypes.pythonapi.PyCapsule_GetPointer
    new.restype, new.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule = array.__dlpack__()
    # Behind the pointer, the device and the number of dimensions.
    ctypes.c_uint8.from_address(new(capsule, b"dltensor") + 20).value = code
    return type("Tensor", (), {"__dlpack__": lambda self, **_: capsule, "__dlpack_device__": lambda self: (1, 0)})()


def test_small_floats_are_exchanged_as_they_are():
    held = np.zeros(PATTERN.shape, "u1")
    field = hc.Field(dlpack_with_code(10, held))
    assert field.element == "float8_e4m3fn"
    hc.HaloExchange(COMM, [(PATTERN, field)]).exchange()


def test_a_class_without_a_module_is_no_error():
    """NumPy takes the module from types of ctypes that it makes, which ctypes then gives to all programs."""
    np.ctypeslib.as_ctypes(np.zeros(64))
    held = (ctypes.c_double * 64)()
    assert type(held).__module__ is None
    pattern = hc.RegularGrid((64,)).decompose(COMM).pattern(0)
    hc.HaloExchange(COMM, [(pattern, held)]).exchange()

    class Nameless:
        __module__ = None

    assert "is wanted, not" in said(lambda: hc.Field(Nameless()))
    assert "is no stream" in said(lambda: HALO.schedule_wait(Nameless()))


REPRS = {
    "grid": (lambda: GRID, "RegularGrid((8, 6), periodic=(True, False))"),
    "grid of one axis": (lambda: hc.RegularGrid([4], domains_per_rank=3), "RegularGrid((4,), periodic=(False,), domains_per_rank=3)"),
    "decomposition": (lambda: CUT, "Decomposition((8, 6) in 1 domains for 1 ranks)"),
    "pattern": (lambda: PATTERN, "Pattern(1 domains here, 0 peers)"),
    "domain": (lambda: PATTERN.domains[0], "Domain(0, (10, 8))"),
    "unstructured domain": (lambda: DOMAIN, "UnstructuredDomain(0, 2 cells)"),
    "graph": (lambda: GRAPH, "Graph(2 cells, 1 edges)"),
    "partition": (lambda: PART, "Partition(2 cells, 1 ranks)"),
    "mesh": (lambda: MESH, "Mesh(4 vertices, 2 elements)"),
    "part of a mesh": (lambda: hc.MeshPart(MESH, range(4), range(2), PART, 0, 1), "MeshPart(4 vertices, 2 elements here)"),
    "domains of a mesh": (lambda: MESH.domains_by_element(PART, 0), "MeshDomains(4 of 4 vertices owned, 2 of 2 elements owned)"),
    "grid of a file": (lambda: ICON, f"IconGrid({ICON_FILE}, 1280 cells, 1920 edges, 642 vertices)"),
    "part of a file": (
        lambda: ICON.part(hc.Partition.block(1280, 1), 0),
        "IconGridPart(642 of 642 vertices owned, 1280 of 1280 elements owned, 1920 of 1920 edges owned)",
    ),
    "icosahedral grid": (lambda: hc.IcosahedralGrid(1), "IcosahedralGrid(80 cells, 42 vertices)"),
    "halos of a mesh": (lambda: MESH.halos(PART, 0, 1), "MeshHalos(4 of 4 vertices owned, 2 of 2 elements owned, 5 of 5 edges owned)"),
    "field": (lambda: hc.Field(np.zeros((2, 3), "f4"), domain=7), "Field(float32, (2, 3), domain=7)"),
    "exchange": (lambda: hc.HaloExchange(COMM, [(PATTERN, array())]), "HaloExchange(exchange 0, links: 0 direct, 0 mailbox, 0 message)"),
    "pending": (lambda: hc.HaloExchange(COMM, [(PATTERN, array())]).exchange(wait=False), "Pending(exchange 1)"),
    "links": (lambda: LINKS, "PatternLinks(links: 0 direct, 0 mailbox, 0 message)"),
    "stream": (lambda: hc.Stream(16), "Stream(0x10)"),
    "communicator": (lambda: COMM, "Communicator(thread, rank 0 of 1)"),
}


@pytest.mark.parametrize("what", REPRS)
def test_reprs_are_in_pythons_words(what):
    make, text = REPRS[what]
    assert repr(make()) == text


def test_the_repr_of_a_grid_makes_it_again():
    for grid in (GRID, hc.RegularGrid([4], domains_per_rank=3)):
        assert eval(repr(grid), {"RegularGrid": hc.RegularGrid}) == grid
