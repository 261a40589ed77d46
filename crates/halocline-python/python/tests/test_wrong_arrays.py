"""What looks like an array, and is none, or none any more: an error of the package."""

import ctypes
import mmap
import re

import numpy as np
import pytest

import halocline as hc


def alone():
    comm = hc.run_threads(1, lambda comm: comm)[0]
    return comm, hc.RegularGrid((6,), periodic=(True,)).decompose(comm).pattern(1)


class Masked(np.ma.MaskedArray):
    """Of a module that is not NumPy's."""


def test_masked_arrays_of_other_classes_are_refused():
    comm, pattern = alone()
    masked = Masked(np.zeros(8), mask=[True] + 7 * [False])
    for use in (hc.Field, lambda array: hc.HaloExchange(comm, [(pattern, array)])):
        with pytest.raises(hc.HaloTypeError, match="masked"):
            use(masked)


class Pointer(ctypes.Structure):
    _fields_ = [("i", ctypes.c_int), ("p", ctypes.c_void_p)]


class Nested(ctypes.Structure):
    _fields_ = [("i", ctypes.c_int), ("text", ctypes.c_wchar_p)]


class Packed(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("i", ctypes.c_int), ("p", ctypes.c_void_p), ("j", ctypes.c_int)]


class Either(ctypes.Union):
    _fields_ = [("i", ctypes.c_long), ("p", ctypes.c_void_p)]


POINTERS = [
    ctypes.c_char_p,
    ctypes.c_wchar_p,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_int),
    ctypes.CFUNCTYPE(None),
    Pointer,
    Nested,
    Pointer * 1,
    Packed,
    Either,
]


@pytest.mark.parametrize("kind", POINTERS, ids=lambda kind: kind.__name__)
def test_addresses_of_a_process_are_refused(kind):
    """They mean nothing in another process: who reads them there reads anything."""
    with pytest.raises(hc.HaloTypeError, match="addresses"):
        hc.Field((kind * 8)())


def test_records_without_addresses_are_not():
    class Plain(ctypes.Structure):
        _fields_ = [("P", ctypes.c_int), ("z", ctypes.c_float), ("Z", ctypes.c_int), ("X", ctypes.c_int)]

    assert hc.Field((Plain * 8)()).shape == (8,)
    assert hc.Field(memoryview(np.zeros(8, "c16"))).element == "complex128"
    assert hc.Field(memoryview(np.zeros(8, [("Z", "c8"), ("P", "f4")]))).shape == (8,)


class Padded(ctypes.Structure):
    _fields_ = [("a", ctypes.c_double), ("b", ctypes.c_int)]


class Mixed(ctypes.Structure):
    _fields_ = [("text", ctypes.c_char * 3), ("parts", Padded * 2), ("is_on", ctypes.c_bool)]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", [Padded, Mixed], ids=lambda kind: kind.__name__)
def test_records_of_ctypes_that_end_with_padding(kind):
    """NumPy warns of them, which is an error here."""
    comm, pattern = alone()
    array = (kind * 8)()
    raw = np.frombuffer(array, "u1").reshape(8, -1)
    raw[...] = np.arange(8)[:, None]
    hc.HaloExchange(comm, [(pattern, array)]).exchange()
    assert raw[:, 0].tolist() == [6, 1, 2, 3, 4, 5, 6, 1]
    assert hc.Field(array).element == hc.Field(np.zeros(8, np.dtype(kind))).element
    assert hc.Field((kind * 2 * 3)()).shape == (3, 2) and hc.Field((kind * 0)()).shape == (0,)


def test_a_buffer_of_pointers_to_rows_is_refused():
    """An exchange would write elements over the pointers."""
    testbuffer = pytest.importorskip("_testbuffer", reason="this Python has no _testbuffer, which makes buffers with suboffsets")
    flags = testbuffer.ND_PIL | testbuffer.ND_WRITABLE
    rows = testbuffer.ndarray([1, 2, 3, 4, 5, 6], shape=[2, 3], format="q", flags=flags)
    for array in (rows, memoryview(rows)):
        with pytest.raises(hc.HaloTypeError, match="suboffsets.*one block of memory"):
            hc.Field(array)
    assert memoryview(rows).tolist() == [[1, 2, 3], [4, 5, 6]]


class Number(ctypes.Union):
    _fields_ = [("i", ctypes.c_long), ("d", ctypes.c_double)]


class WithUnion(ctypes.Structure):
    _fields_ = [("i", ctypes.c_long), ("number", Number)]


class WithEither(ctypes.Structure):
    _fields_ = [("i", ctypes.c_long), ("either", Either)]


class WithPacked(ctypes.Structure):
    _fields_ = [("parts", Packed * 2), ("i", ctypes.c_int)]


class OfEither(WithEither):
    pass


@pytest.mark.parametrize("kind", [WithEither, WithPacked, OfEither], ids=lambda kind: kind.__name__)
def test_addresses_in_members_that_the_buffer_does_not_describe_are_refused(kind):
    """NumPy reads them as numbers."""
    for array in ((kind * 8)(), memoryview((kind * 8)())[::2]):
        with pytest.raises(hc.HaloTypeError, match="addresses"):
            hc.Field(array)


@pytest.mark.filterwarnings("error")
def test_records_with_a_union_of_numbers_are_not():
    assert hc.Field((WithUnion * 8)()).shape == (8,)


class Bits(ctypes.Structure):
    _fields_ = [("one", ctypes.c_int, 3), ("other", ctypes.c_int, 5)]


class Unaligned(ctypes.Structure):
    """NumPy takes its union for bytes that need no alignment."""

    _fields_ = [("i", ctypes.c_int), ("number", Number)]


class Derived(Padded):
    """NumPy does not see the members of its base."""

    _fields_ = [("c", ctypes.c_int)]


NOT_READ = {
    "bit fields": ((Bits * 8)(), "V4"),
    "union": ((Unaligned * 8)(), "V16"),
    "derived": ((Derived * 8)(), "V24"),
    "wchar": ((ctypes.c_wchar * 8)(), "V4"),
    "padded record": (memoryview(np.zeros(8, {"names": ["a"], "formats": ["f8"], "itemsize": 24})), "V24"),
}
if np.lib.NumpyVersion(np.__version__) < "2.0.0":
    NOT_READ["ssize_t"] = (memoryview(bytearray(64)).cast("n"), "i8")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("array, dtype", NOT_READ.values(), ids=NOT_READ)
def test_the_refusal_of_a_format_that_numpy_does_not_read_names_it(array, dtype):
    text = rf"NumPy does not read the buffer format {re.escape(memoryview(array).format)} .*numpy\.frombuffer\(array, dtype\)"
    with pytest.raises(hc.HaloTypeError, match=text) as caught:
        hc.Field(array)
    assert "address" not in str(caught.value) and isinstance(caught.value.__cause__, Exception)
    assert hc.Field(np.frombuffer(array, dtype)).shape == (8,)


def released():
    view = memoryview(bytearray(64)).cast("d")
    view.release()
    return view


def closed():
    mapped = mmap.mmap(-1, 64)
    mapped.close()
    return mapped


class WithoutDevice:
    def __dlpack__(self, **_):
        return np.zeros(8).__dlpack__()


class DeviceIsNone(WithoutDevice):
    __dlpack_device__ = None


class DeviceRaises(WithoutDevice):
    def __init__(self, error):
        self.error = error

    def __dlpack_device__(self):
        raise self.error


class Refuses:
    """As a tensor of PyTorch whose gradient is wanted."""

    @property
    def __cuda_array_interface__(self):
        raise RuntimeError("cannot be had of what requires a gradient")


WRONG = [
    (released(), hc.HaloValueError, "buffer.*released"),
    (closed(), hc.HaloValueError, "buffer.*closed"),
    (WithoutDevice(), hc.HaloTypeError, "__dlpack_device__"),
    (DeviceIsNone(), hc.HaloTypeError, "__dlpack_device__"),
    (DeviceRaises(ValueError("gone")), hc.HaloValueError, "__dlpack_device__: gone"),
    (DeviceRaises(BufferError("gone")), hc.HaloTypeError, "__dlpack_device__: gone"),
    (Refuses(), hc.HaloTypeError, "__cuda_array_interface__: cannot be had"),
]


@pytest.mark.parametrize("array, error, text", WRONG, ids=lambda x: type(x).__name__)
def test_what_an_array_raises_is_the_cause_of_an_error_of_ours(array, error, text):
    comm, pattern = alone()
    for use in (hc.Field, lambda array: hc.HaloExchange(comm, [(pattern, array)])):
        with pytest.raises(error, match=text) as caught:
            use(array)
        assert use is not hc.Field or isinstance(caught.value.__cause__, Exception)


def test_what_is_no_error_of_an_array_is_left_alone():
    with pytest.raises(KeyboardInterrupt):
        hc.Field(DeviceRaises(KeyboardInterrupt()))


@pytest.mark.parametrize("typestr", ["éf8", "xf8", "!f8", "ff8", " f8", "", "<", "f8"])
def test_a_type_string_of_no_byte_order_is_refused(typestr):
    class FromInterface:
        __array_interface__ = {**np.zeros(8).__array_interface__, "typestr": typestr}

    with pytest.raises(hc.HaloTypeError, match="type string"):
        hc.Field(FromInterface())


def test_memory_is_not_given_for_elements_that_are_arrays():
    for use in (hc.zeros, hc.empty):
        with pytest.raises(hc.HaloTypeError, match=r"shape \(3,\)"):
            use((2,), "3f4")


def test_the_class_of_a_stream_is_no_stream():
    comm, pattern = alone()
    halo = hc.HaloExchange(comm, [(pattern, np.zeros(8))])
    with pytest.raises(hc.HaloTypeError, match="the class halocline.Stream is no stream; give an instance"):
        halo.schedule_exchange(hc.Stream)


OF_GPU = """
import halocline as hc

class OfGpu:
    def __init__(self, shape, address, **overrides):
        self.__cuda_array_interface__ = {"shape": shape, "typestr": "<f8", "data": (address, False), "version": 3, **overrides}

class OnDevice(OfGpu):
    def __dlpack_device__(self):
        return 2, 1
"""


def test_an_empty_array_of_a_gpu(with_driver):
    """It has no address, so that no driver knows where it is."""
    code = """
for shape in [(0,), (0, 5), (4, 0)]:
    for address in (0, 64):
        assert hc.Field(OnDevice(shape, address)).device == 1
        assert hc.Field(OfGpu(shape, address)).device == 0
assert hc.Field(OfGpu((4,), 1 << 28)).device == 1
assert hc.Field(OfGpu((0,), 0)).device == 1
assert hc.Field(OfGpu((0,), 0)).shape == (0,)
"""
    said = with_driver(OF_GPU + code)
    assert set(said) == {"started 0", "context 0", "context 1"}


def test_an_array_of_a_gpu_without_an_address(with_driver):
    code = """
for error, overrides in [(hc.HaloValueError, {}), (hc.HaloTypeError, {"data": b"12345678"}), (hc.HaloTypeError, {"data": None})]:
    try:
        hc.Field(OfGpu((4,), 0, **overrides))
    except error as refused:
        assert "address" in str(refused) or "data" in str(refused), refused
    else:
        raise AssertionError(overrides)
"""
    assert with_driver(OF_GPU + code) == []


def test_memory_of_a_gpu_has_no_interface_of_the_host(with_driver):
    code = """
import halocline as hc

memory = hc._core.Memory(hc.init(), 64, 1)
try:
    memory.__array_interface__
except AttributeError as refused:
    print(refused)
"""
    assert with_driver(code)[-1] == "the memory is on a GPU; use cupy.asarray"


def test_a_message_of_host_fields_does_not_lie_on_a_gpu(with_driver):
    code = """
import numpy as np
import halocline as hc

class OnGpu:
    __cuda_array_interface__ = {"shape": (8,), "typestr": "|u1", "data": (1 << 28, False), "version": 3}

comm = hc.init()
pattern = hc.RegularGrid((6,), periodic=(True,)).decompose(comm).pattern(1)
halo = hc.HaloExchange(comm, [(pattern, np.zeros(8))])
try:
    halo.pack(0, OnGpu())
except hc.HaloValueError as refused:
    print(refused)
"""
    assert with_driver(code)[-1] == "message: the array is in GPU memory, but the fields are in host memory; give a host array"
