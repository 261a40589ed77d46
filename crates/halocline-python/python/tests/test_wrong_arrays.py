"""What looks like an array, and is none, or none any more: an error of the package."""

import ctypes

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
