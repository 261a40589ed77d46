"""What is an array: every protocol, in place, and what is refused."""

import array as array_module
import ctypes
import gc
import mmap
import sys
import weakref

import numpy as np
import pytest
from repeats import repeats

import halocline as hc


@pytest.fixture(scope="module")
def alone():
    comm = hc.run_threads(1, lambda comm: comm)[0]
    pattern = hc.RegularGrid((6,), periodic=(True,)).decompose(comm).pattern(1)
    return comm, pattern


def exchanged(alone, array):
    comm, pattern = alone
    hc.HaloExchange(comm, [(pattern, array)]).exchange()


DTYPES = "? i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8 c8 c16 M8[ns] m8[s] S7 V16 f4,i2".split()


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(alone, dtype):
    dtype = np.dtype(dtype)
    raw = np.frombuffer(np.random.default_rng(1).integers(0, 2, 8 * dtype.itemsize, "u1").tobytes(), dtype).copy()
    want = raw.copy()
    want[0], want[-1] = want[-2], want[1]
    exchanged(alone, raw)
    assert raw.tobytes() == want.tobytes()
    assert hc.Field(raw).element == {"bool": "bool", "float64": "float64"}.get(dtype.name, hc.Field(raw).element)


def filled(length=8):
    return [float(i) for i in range(length)]


WANT = [6.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 1.0]


class Interface:
    """An array that has nothing but its interface."""

    def __init__(self, array, **changed):
        self.array = array
        self.__array_interface__ = {**array.__array_interface__, **changed}


class OldDLPack:
    def __init__(self, array):
        self.array = array

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class NewDLPack:
    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **kwargs):
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def owners():
    yield "array.array", array_module.array("d", filled()), list
    doubles = (ctypes.c_double * 8)(*filled())
    yield "ctypes", doubles, list
    raw = bytearray(np.array(filled()))
    yield "memoryview", memoryview(raw).cast("d"), list
    mapped = mmap.mmap(-1, 64)
    mapped[:] = np.array(filled()).tobytes()
    yield "mmap", memoryview(mapped).cast("d"), list
    yield "interface", Interface(np.array(filled())), lambda a: a.array.tolist()
    yield "dlpack", OldDLPack(np.array(filled())), lambda a: a.array.tolist()
    yield "dlpack 1", NewDLPack(np.array(filled())), lambda a: a.array.tolist()
    strided = np.zeros((8, 2))
    strided[:, 1] = filled()
    yield "dlpack strided", NewDLPack(strided[:, 1]), lambda a: a.array.tolist()


@pytest.mark.parametrize("name, owner, values", list(owners()), ids=lambda x: x if isinstance(x, str) else "")
def test_every_protocol_in_place(alone, name, owner, values):
    exchanged(alone, owner)
    assert values(owner) == WANT


def test_torch(alone):
    torch = pytest.importorskip("torch")
    tensor = torch.arange(8, dtype=torch.float64)
    exchanged(alone, tensor)
    assert tensor.tolist() == WANT
    bfloat = torch.arange(8, dtype=torch.bfloat16)
    exchanged(alone, bfloat)
    assert bfloat.tolist() == WANT and hc.Field(bfloat).element == "bfloat16"


def test_what_is_refused(alone):
    comm, pattern = alone
    good = np.zeros(8)
    read_only = good.copy()
    read_only.flags.writeable = False
    masked = np.ma.masked_array(good.copy(), mask=False)
    twice = np.broadcast_to(good, (3, 8)).T

    class Jax:
        pass

    class Record(ctypes.Structure):
        _fields_ = [("O", ctypes.c_int), ("b", ctypes.py_object)]

    def turned(*formats):
        return np.dtype({"names": ["b", "a"], "formats": formats, "offsets": [8, 0]})

    endless = []
    endless.append(("a", endless))
    Jax.__module__ = "jaxlib._jax"
    cases = [
        (hc.HaloValueError, "read-only", read_only),
        (hc.HaloValueError, "read-only", bytes(8)),
        (hc.HaloTypeError, "byte order", good.astype(">f8")),
        (hc.HaloTypeError, "Python objects", np.zeros(8, object)),
        (hc.HaloTypeError, "Python objects", np.zeros(8, [("a", "f4"), ("b", [("c", "O")])])),
        (hc.HaloTypeError, "Python objects", (ctypes.py_object * 8)()),
        (hc.HaloTypeError, "Python objects", (Record * 8)()),
        (hc.HaloTypeError, "byte order", np.zeros(8, [("a", ">f8")])),
        (hc.HaloTypeError, "byte order", np.zeros(8, [("a", ">i4", 2)])),
        # Their members are not listed by the array interface.
        (hc.HaloTypeError, "Python objects", np.zeros(8, turned("f8", "O"))),
        (hc.HaloTypeError, "byte order", np.zeros(8, turned(">f8", "i8"))),
        (hc.HaloTypeError, "Python objects", np.zeros(8, [("a", turned("f8", "O"))])),
        *((hc.HaloTypeError, "descr", Interface(good, typestr="|V8", descr=descr)) for descr in ([1], [], iter([]), {0}, {}, [("a",)], [("a", "|u1", -1)])),
        (hc.HaloTypeError, "nested", Interface(good, typestr="|V8", descr=endless)),
        (hc.HaloTypeError, "type string", Interface(good, typestr="<f8[zz")),
        (hc.HaloTypeError, "type string", Interface(good, typestr="<i8[s]")),
        (hc.HaloTypeError, "masked", masked),
        (hc.HaloTypeError, "mask", Interface(good, mask=np.zeros(8, bool))),
        (hc.HaloTypeError, "JAX", Jax()),
        (hc.HaloTypeError, "an array .* is wanted", [1.0] * 8),
        (hc.HaloTypeError, "an array .* is wanted", None),
        (hc.HaloTypeError, "type string", Interface(good, typestr="?")),
        (hc.HaloValueError, "address 0", Interface(good, data=(0, False))),
        (hc.HaloValueError, r"shape is \(7\), the domain's with its halo \(8\)", np.zeros(7)),
        (hc.HaloValueError, r"shape is \(\)", np.zeros(())),
        (hc.HaloValueError, "256 bytes|elements", np.zeros(8, "V257")),
        (hc.HaloValueError, "overlap|share|bytes", np.lib.stride_tricks.as_strided(good, (8,), (0,), writeable=True)),
    ]
    for error, text, array in cases:
        with pytest.raises((hc.HaloValueError, hc.HaloTypeError), match=text) as caught:
            hc.HaloExchange(comm, [(pattern, array)])
        if "256 bytes" not in text:
            assert type(caught.value) is error, (text, caught.value)
    with pytest.raises((hc.HaloValueError), match="read-only|same bytes|stride"):
        hc.HaloExchange(comm, [(pattern, twice)])
    with pytest.raises(hc.HaloTypeError, match="pair"):
        hc.HaloExchange(comm, [good])
    with pytest.raises(hc.HaloTypeError, match="halocline.Pattern"):
        hc.HaloExchange(comm, [(good, pattern)])


def test_the_same_memory_twice(alone):
    comm, pattern = alone
    array = np.arange(16.0)
    with pytest.raises(hc.HaloValueError, match="share memory"):
        hc.HaloExchange(comm, [(pattern, array[:8]), (pattern, array[7:15])])
    # Views of one memory that do not meet are fine, in one bind and in several.
    hc.HaloExchange(comm, [(pattern, array[:8]), (pattern, array[:7:-1])]).exchange()
    np.testing.assert_array_equal(array[:8], WANT)
    hc.HaloExchange(comm, [(pattern, array[::2])]).exchange()


@pytest.mark.parametrize("form", ["bound", "unbound"])
@pytest.mark.parametrize("second", ["whole", "part", "beyond"])
@pytest.mark.parametrize("first", ["whole", "part", "beyond"])
def test_raw_buffers_that_share_memory_are_known_in_any_order(first, second, form):
    """No array tells that they are parts of one: their addresses do."""

    def run(comm):
        pattern = hc.RegularGrid((8,), periodic=(True,)).decompose(comm).pattern(1)
        memory, cells = memoryview(bytearray(8 * 20)), 6
        assert pattern.shape == (cells,)
        # The halo of each is where another one has cells that it sends.
        parts = {
            "whole": memory[: 8 * 12].cast("d", (cells, 2)),
            "part": memory[8 * 4 : 8 * 10].cast("d"),
            "beyond": memory[8 * 8 :].cast("d", (cells, 2)),
        }
        arrays = [parts[first], parts[second]]
        links = [hc.PatternLinks(comm, [pattern]) for _ in arrays]
        if form == "bound":
            halos = [hc.HaloExchange(comm, [(pattern, array)]) for array in arrays]
            begin = lambda at: halos[at].exchange(wait=False)
        else:
            fields = [hc.Field(array) for array in arrays]
            begin = lambda at: links[at].exchange([(pattern, fields[at])], wait=False)
        for at in range(2):
            if comm.rank == 0:
                # Not over before the other rank begins it.
                pending = begin(at)
                with pytest.raises(hc.InFlightError):
                    begin(1 - at)
                comm.barrier()
                pending.wait()
            else:
                comm.barrier()
                begin(at).wait()
        if first != second:
            fields = [(pattern, array) for array in arrays]
            with pytest.raises(hc.HaloValueError, match="share memory"):
                hc.HaloExchange(comm, fields)
            # Others of these layouts, apart, are remembered.
            apart = [memoryview(bytearray(array.nbytes)).cast("B").cast("d", array.shape) for array in arrays]
            links[0].exchange([(pattern, array) for array in apart])
            with pytest.raises(hc.HaloValueError, match="share memory"):
                links[0].exchange(fields)

    hc.run_threads(2, run)


def test_raw_buffers_that_meet_where_nothing_is_exchanged(alone):
    comm, pattern = alone
    memory = memoryview(np.arange(32.0)).cast("B")
    # The second begins in the first one's gaps, which are its even elements.
    one = np.asarray(memory[: 8 * 15]).view("f8")[::2]
    other = np.asarray(memory[8 : 8 * 16]).view("f8")[::2]
    hc.HaloExchange(comm, [(pattern, one), (pattern, other)]).exchange()
    hc.PatternLinks(comm, [pattern]).exchange([(pattern, other), (pattern, one)])
    assert one[0] == 12 and one[7] == 2 and other[0] == 13 and other[7] == 3


def test_an_array_is_kept_and_let_go(alone):
    comm, pattern = alone
    array = np.arange(8.0)
    view = array[:]
    count, gone = sys.getrefcount(array), weakref.ref(array)
    halo = hc.HaloExchange(comm, [(pattern, view)])
    held = sys.getrefcount(array)
    assert held > count
    with pytest.raises(ValueError, match="resize"):
        array.resize(100)
    del view
    halo.exchange()
    np.testing.assert_array_equal(array, WANT)
    del halo
    assert sys.getrefcount(array) < held
    del array
    gc.collect()
    assert gone() is None
    grown = bytearray(np.array(filled()))
    view = memoryview(grown).cast("d")
    halo = hc.HaloExchange(comm, [(pattern, view)])
    # The exchange holds the buffer, also of a view that is released.
    view.release()
    with pytest.raises(BufferError):
        grown.append(1)
    halo.exchange()
    del halo, view
    grown.append(1)


def test_temporaries_of_unbound_exchanges_are_kept(alone):
    comm, pattern = alone
    links = hc.PatternLinks(comm, [pattern])
    held = []

    class Array:
        def __init__(self):
            self.values = np.array(filled())
            self.__array_interface__ = self.values.__array_interface__
            held.append(weakref.ref(self))

    pending = links.exchange([(pattern, Array())], wait=False)
    pending.wait()
    links.exchange([(pattern, Array())])
    links.wait()
    gc.collect()
    assert [ref() for ref in held] == [None, None]


def test_field(alone):
    array = np.zeros((4, 8), "f4")
    field = hc.Field(array[:, ::-1], domain=3, axes=[1], origin=[2])
    assert field.shape == (4, 8) and field.strides == (32, -4) and field.element == "float32"
    assert field.domain == 3 and field.device is None and field.array.base is array
    for axes in ([0, 0], [2]):
        with pytest.raises(hc.HaloValueError):
            hc.Field(array, axes=axes)


def test_rounds_leak_nothing(alone):
    import resource

    comm, pattern = alone
    array = np.arange(8.0)
    halo = hc.HaloExchange(comm, [(pattern, array)])
    links = hc.PatternLinks(comm, [pattern])

    def rounds(n):
        for _ in range(n):
            halo.exchange()
            halo.exchange(wait=False).wait()
            links.exchange([(pattern, array)])
            try:
                halo.exchange(set=7)
            except hc.HaloValueError:
                pass
            hc.HaloExchange(comm, [(pattern, array)])

    rounds(500)
    gc.collect()
    count, resident = sys.getrefcount(array), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    objects = len(gc.get_objects())
    rounds(repeats(10_000, 2_000))
    gc.collect()
    assert sys.getrefcount(array) == count
    assert len(gc.get_objects()) - objects < 100
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident < 4096  # KiB


def test_shapes_of_integers_of_numpy():
    assert hc.zeros(np.int64(5)).shape == (5,)
    assert hc.zeros((np.int32(2), 3)).shape == (2, 3)
    for wrong in 2.5, (2, 2.5), None:
        with pytest.raises(hc.HaloTypeError, match="shape"):
            hc.zeros(wrong)


def test_memory_is_not_given_for_elements_that_cannot_be_exchanged():
    for dtype in ">f8", [("a", "i2"), ("b", ">i4")]:
        with pytest.raises(hc.HaloTypeError, match="byte order"):
            hc.empty(3, dtype)
    assert hc.empty(3, [("a", "i2"), ("b", "S3")]).dtype.itemsize == 5


class FromInterface:
    """An array as its interface says."""

    def __init__(self, array, **overrides):
        self.array = array
        self.__array_interface__ = {**array.__array_interface__, "strides": None, **overrides}


@pytest.mark.parametrize(
    "overrides, error, text",
    [
        ({"shape": (8, -8)}, hc.HaloValueError, "shape"),
        ({"shape": 8}, hc.HaloTypeError, "shape"),
        ({"strides": (8, 8)}, hc.HaloValueError, "strides"),
        ({"shape": (2**62,)}, hc.HaloValueError, "4611686018427387904|large|bytes"),
        ({"data": (0, False)}, hc.HaloValueError, "address 0"),
        ({"typestr": "<U4611686018427387905"}, hc.HaloTypeError, "U46"),
        ({"typestr": "<i99999999999999999999"}, hc.HaloTypeError, "i99"),
    ],
)
def test_an_interface_that_lies(overrides, error, text):
    array = np.zeros(8, "i8")
    for use in (hc.Field, lambda array: hc.UnstructuredDomain(0, array, [])):
        with pytest.raises(error, match=text):
            use(FromInterface(array, **overrides))


def test_sizes_beyond_memory():
    for use in (
        lambda: hc.UnstructuredDomain(0, np.broadcast_to(np.int64(0), (2**59,)), []),
        lambda: hc.UnstructuredDomain(0, range(2**62), []),
        lambda: hc.Partition.block(2**62, 2),
        lambda: hc.zeros((2**40, 2**40)),
    ):
        with pytest.raises(hc.HaloValueError):
            use()


@pytest.mark.parametrize("form", ["array", "view", "field", "subclass"])
def test_a_bound_array_is_not_resized(alone, form):
    """Not even where NumPy does not check references: its memory would be freed under the exchange."""
    comm, pattern = alone
    array = np.zeros(pattern.shape)
    if form == "subclass":
        array = np.ndarray.__new__(type("Ours", (np.ndarray,), {}), pattern.shape)
    given = {"view": array[:], "field": hc.Field(array)}.get(form, array)
    halo = hc.HaloExchange(comm, [(pattern, given)])
    with pytest.raises(ValueError, match="resize"):
        array.resize((1,), refcheck=False)
    halo.exchange()
    del given, halo
    array.resize((1,), refcheck=False)
    assert array.shape == (1,)


def test_an_array_in_another_shape_is_the_same(alone):
    comm, pattern = alone
    array = np.arange(8.0)
    halo = hc.HaloExchange(comm, [(pattern, array)])
    array.shape = (2, 4)
    halo.exchange()
    assert array[0, 0] == 6 and array[1, 3] == 1


def test_another_array_that_moves_is_found_in_checked_mode(alone):
    comm, pattern = alone
    one = FromInterface(np.zeros(8))
    halo = hc.HaloExchange(comm, [(pattern, one)], checked=True)
    halo.exchange()
    other = np.zeros(8)
    one.__array_interface__ = other.__array_interface__
    with pytest.raises(hc.HaloValueError, match="field 0: the array has 8 elements at"):
        halo.exchange()


def test_a_field_of_an_array_of_records(alone):
    records = np.zeros(8, [("a", "f8"), ("b", "f8", 4)])
    records["a"] = np.arange(8)
    exchanged(alone, records["a"])
    assert records["a"][0] == 6


def test_memory_that_was_given_back_is_not_known(alone):
    """An array where a resized one lay before is kept alive itself."""
    comm, pattern = alone
    memory = (ctypes.c_double * 8)()

    class Lies(FromInterface):
        pass

    gone = Lies(np.frombuffer(memory))
    first = hc.HaloExchange(comm, [(pattern, gone)])
    gone.__array_interface__ = np.zeros(8).__array_interface__
    array = np.frombuffer(memory)
    kept = weakref.ref(array)
    second = hc.HaloExchange(comm, [(pattern, array)])
    del array
    gc.collect()
    assert kept() is not None
    second.exchange()
    del second
    hc.Field(np.zeros(1))
    assert first


def test_a_gpu_is_opened_once_to_find_out_where_arrays_lie(with_driver):
    """GPU 0 was opened for each array, and so got a context each time where nobody else uses it."""
    code = """
import halocline as hc

class OnGpu:
    def __init__(self, number):
        data = ((1 << 28) + 64 * number, False)
        self.__cuda_array_interface__ = {"shape": (8,), "typestr": "<f8", "data": data, "version": 3}

print("begun")
for number in range(5):
    assert hc.Field(OnGpu(number)).device == 1
"""
    assert with_driver(code) == ["begun", "started 0", "context 0", "context 1"]
