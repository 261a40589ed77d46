"""The texts of the package's own checks: what is wrong, and what to give instead."""

import ctypes
import sys

import numpy as np
import pytest

import halocline as hc
from halocline import _cache, plot

COMM = hc.run_threads(1, lambda comm: comm)[0]
OF_TWO = hc.run_threads(2, lambda comm: hc.RegularGrid((6,)).decompose(comm).pattern(1))[0]
PATTERN = hc.RegularGrid((6,), periodic=(True,)).decompose(COMM).pattern(1)


def raises(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)


class Tensor(ctypes.Structure):
    """DLPack's ``DLTensor`` of no elements."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("rest", ctypes.c_uint64 * 3),
    ]


class Versioned(ctypes.Structure):
    """The beginning of DLPack's ``DLManagedTensorVersioned``."""

    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("managed", ctypes.c_void_p * 2), ("flags", ctypes.c_uint64), ("tensor", Tensor)]


class OfDLPack:
    """An array that only has DLPack's protocol."""

    def __init__(self, name=b"dltensor_versioned", major=1, flags=0, **tensor):
        self.name = name
        self.kept = Versioned(major=major, flags=flags, tensor=Tensor(**{"device_type": 1, "code": 2, "bits": 64, "lanes": 1, **tensor}))

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **options):
        if self.name is None:
            return 3
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.kept), self.name, None)


class Interface:
    """An array that only has the array interface."""

    def __init__(self, interface=None, **changed):
        self.array = np.zeros(8)
        self.__array_interface__ = interface or {**self.array.__array_interface__, **changed}


class OfJax:
    __module__ = "jaxlib._jax"


ARRAYS = [
    (OfDLPack(major=2), hc.HaloTypeError, "DLPack version 2 is not supported; give an array of a library that supports version 1"),
    (OfDLPack(b"other"), hc.HaloTypeError, "__dlpack__ returns a capsule that is no tensor, or was consumed: "),
    (OfDLPack(flags=2), hc.HaloTypeError, "DLPack gives only a copy of the array, which an exchange would write to no effect; give the array itself"),
    (OfDLPack(device_type=99), hc.HaloTypeError, "memory of DLPack's device type 99 is not supported; the host's and CUDA's is"),
    (OfDLPack(code=99), hc.HaloTypeError, "DLPack code 99 of 64 bits is no type of elements that can be exchanged"),
    (OfDLPack(None), hc.HaloTypeError, "__dlpack__ must return a capsule, not 3"),
    (Interface(3), hc.HaloTypeError, "the array interface must be a dict, not 3"),
    (Interface({"shape": ()}), hc.HaloTypeError, 'the array interface lacks "typestr", which version 3 requires'),
    (Interface(mask=np.zeros(8, bool)), hc.HaloTypeError, 'the array interface has a "mask"; give the data and the mask as two fields'),
    (Interface(data=b""), hc.HaloTypeError, 'the "data" of the array interface must be (address, is_read_only)'),
    (Interface(data=(0, False)), hc.HaloValueError, "the array has address 0; give one whose memory is allocated"),
    (Interface(typestr="?"), hc.HaloTypeError, '"?" is no type string of the array interface; give one such as "<f8"'),
    (
        Interface(typestr="|V8", descr=[]),
        hc.HaloTypeError,
        'the "descr" of an array interface is a list of tuples (a name, a type, perhaps a shape), not nested too deep: it is empty',
    ),
    (OfJax(), hc.HaloTypeError, "arrays of JAX cannot be changed in place; give a NumPy, CuPy or PyTorch array"),
    (np.zeros(8, "V0"), hc.HaloTypeError, "cannot be exchanged; booleans, numbers and plain bytes of 1 to 256 bytes can"),
]


@pytest.mark.parametrize("array, error, text", ARRAYS, ids=[text for *_, text in ARRAYS])
def test_arrays(array, error, text):
    raises(lambda: hc.Field(array), error, text)


class OfCuda:
    def __init__(self, pair):
        self.pair = pair

    def __cuda_stream__(self):
        return self.pair


def rolling(**options):
    pyarrow = pytest.importorskip("pyarrow")
    return hc.rolling(pyarrow.table({"t": [1, 2]}), "t", 2, comm=COMM, **options)


OTHERS = [
    (lambda: hc._core._check_stream(OfCuda((7, 0))), hc.HaloTypeError, "stream: __cuda_stream__ returns version 7; only version 0 is supported"),
    (lambda: hc._core._check_stream(OfCuda(3)), hc.HaloTypeError, "stream: __cuda_stream__ must return (0, handle), not 3"),
    (lambda: rolling(offset=2**31), hc.HaloValueError, "offset: 2147483648 rows are too many; give at most 2**31 - 1"),
    (lambda: hc.Graph([0, 1, 2], [1, 0]).neighbours(9), hc.HaloValueError, "cell: there is no cell 9; the graph has 2 cells, which count from 0"),
    (lambda: COMM.agree(3), hc.HaloTypeError, "error: an exception or None is wanted, not 3"),
    (lambda: plot.pattern(OF_TWO, COMM), hc.HaloValueError, "the pattern has a rank 1, the communicator 1; give the pattern's own"),
    (lambda: hc.run_threads(0, print), hc.HaloValueError, "n: a group of 0 threads; it needs at least 1"),
    (
        lambda: hc.zeros(3, [("a", "O")]),
        hc.HaloTypeError,
        "cannot be exchanged; numbers and plain bytes of 1 to 256 bytes can. Make an array of each member",
    ),
    (lambda: hc.zeros(3, ("f8", (2,))), hc.HaloTypeError, "dtype: elements of ('<f8', (2,)) are arrays of shape (2,); give elements of float64"),
    (lambda: hc.RegularGrid((6,)).decompose(2).pattern(1), hc.HaloValueError, "comm: the grid was decomposed for a number of ranks, not for a"),
    (
        lambda: hc.rolling(None, "t", 2, aggregate={"v": 3}),
        hc.HaloTypeError,
        "the name of a statistic, a halocline.Statistic or a list of them is wanted, not 3",
    ),
    (lambda: hc.run_threads(10**6, print), hc.HaloValueError, "n: 1000000 threads are too many; a group has at most "),
    (lambda: hc.zeros(3, order="A"), hc.HaloValueError, "order: there is no 'A'; choose 'C' or 'F'"),
    (lambda: hc.zeros(3, "nothing"), hc.HaloTypeError, "dtype: 'nothing' is no type of elements: "),
    (lambda: hc.zeros(3, ">f8"), hc.HaloTypeError, "dtype: elements of >f8 are not in the byte order of this machine; give float64"),
    (lambda: hc.zeros("ab"), hc.HaloTypeError, "shape: a whole number, or one for each axis, is wanted, not 'ab'"),
    (lambda: hc.zeros([1] * 99), hc.HaloValueError, "shape: an array has at most "),
    (lambda: hc.zeros(-1), hc.HaloValueError, "shape: extents are whole numbers from 0, not (-1,)"),
    (
        lambda: _cache._version_of_compiler("/nowhere/cc"),
        hc.ProgramError,
        "the compiler /nowhere/cc does not say its version: ",
    ),
]


@pytest.mark.parametrize("call, error, text", OTHERS, ids=[text for *_, text in OTHERS])
def test_other_arguments(call, error, text):
    raises(call, error, text)


class NoBytes(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("i", ctypes.c_int), ("p", ctypes.c_void_p)]


def read_only():
    array = np.zeros(8)
    array.flags.writeable = False
    return array


# From Python 3.14 on the buffer says what they are.
OF_PACKED = (
    "bytes that are a union, or a packed record, of ctypes may have addresses"
    if sys.version_info < (3, 14)
    else "contain addresses, which mean nothing"
)

MORE_ARRAYS = [
    (np.zeros(8, object), hc.HaloTypeError, "elements that are Python objects cannot be passed on; convert the array"),
    ((NoBytes * 8)(), hc.HaloTypeError, OF_PACKED),
    ((ctypes.c_void_p * 8)(), hc.HaloTypeError, "contain addresses, which mean nothing in another process"),
    (read_only(), hc.HaloValueError, "the array is read-only; an exchange writes its halo"),
]


@pytest.mark.parametrize("array, error, text", MORE_ARRAYS, ids=[text for *_, text in MORE_ARRAYS])
def test_elements(array, error, text):
    raises(lambda: hc.Field(array), error, text)


def test_traces_run_once(tmp_path):
    trace = hc.trace(str(tmp_path / "trace.json"), COMM)
    halo = hc.HaloExchange(COMM, [(PATTERN, np.zeros(PATTERN.shape))])
    raises(lambda: trace.on_device(halo, rounds=1), hc.HaloValueError, "this trace has not begun, or is over: `with hc.trace(...) as trace`")
    with trace:
        raises(trace.__enter__, hc.HaloValueError, "this trace has begun already; make a new one")


def test_one_process_has_one_transport():
    hc.init("auto")
    raises(lambda: hc.init("mpi"), hc.HaloValueError, "already and cannot use 'mpi'; ask for '")


def test_a_refusal_is_told_to_all_ranks():
    def rank(comm):
        what = "rank 1 refused its arguments: a halocline.Pattern is wanted, not 3"
        pattern = hc.RegularGrid((6,)).decompose(comm).pattern(1)
        refused = (hc.HaloTypeError, what.split(": ")[1]) if comm.rank else (hc.RefusedElsewhereError, what)
        raises(lambda: plot.pattern(3 if comm.rank else pattern, comm), *refused)

    hc.run_threads(2, rank)


def test_host_memory_has_no_interface_of_a_gpu():
    memory = hc._core.Memory(COMM, 8, None)
    raises(lambda: memory.__cuda_array_interface__, AttributeError, "the memory is host memory; use numpy.asarray")
    line = COMM.neighbor_exchange(periodic=True)
    packet, _ = line.exchange(right=hc.Packet(b"", b"8 bytes."))
    raises(lambda: packet.payload.__cuda_array_interface__, AttributeError, "the payload is in host memory; use numpy.asarray")


def test_tables_without_pyarrow(monkeypatch):
    from halocline import _tables

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    raises(lambda: _tables.pyarrow_for("a table of Arrow"), hc.HaloTypeError, "table: a table of Arrow needs pyarrow; pip install pyarrow")


NUMBERS = [
    ([["a", "b"]], [0], None, "places are numbers, not of dtype "),
    ([[0, 0], [1]], [0, 1], None, "; give what numpy.asarray() takes"),
]


@pytest.mark.parametrize("places, owners, connectivity, text", NUMBERS, ids=[case[-1] for case in NUMBERS])
def test_pictures(places, owners, connectivity, text):
    raises(lambda: plot.partition(places, owners, connectivity=connectivity), hc.HaloTypeError, text)
