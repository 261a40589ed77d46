"""The functions of ``libhalocline.so`` that the example needs, and the DaCe environment that links the library.

A tasklet calls the C library by handle, so the program makes its handles with the same library. The Python package
``halocline`` is a library of its own: its objects have no handles that C knows.
"""

import ctypes
import os
from ctypes import POINTER, byref, c_char_p, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from pathlib import Path

import dace.library

#: The folder that ``tools/install --prefix`` has filled.
PREFIX = Path(os.environ.get("HALOCLINE_PREFIX", "/opt/halocline"))
LIBRARY = PREFIX / "lib/libhalocline.so"


@dace.library.environment
class Halocline:
    """Includes the header in the generated code, links the library, and keeps the exchange in flight in the program's state."""

    cmake_minimum_version = None
    cmake_packages = []
    cmake_variables = {}
    cmake_includes = [str(PREFIX / "include")]
    cmake_libraries = [str(LIBRARY)]
    cmake_compile_flags = []
    cmake_link_flags = []
    cmake_files = []
    headers = {"frame": ["halocline.hpp"], "cuda": ["halocline.h"]}
    state_fields = ["halocline_pending begun = {};"]
    init_code = ""
    finalize_code = ""
    dependencies = []


class Options(ctypes.Structure):
    """A struct of options: ``size`` is its first field, and fields that are not given are 0."""

    def __init__(self, **fields):
        super().__init__(size=ctypes.sizeof(self), **fields)


class Grid(Options):
    _fields_ = [
        ("size", c_size_t),
        ("axes", c_size_t),
        ("extents", POINTER(c_size_t)),
        ("periodic", POINTER(c_int32)),
        ("domains_per_rank", c_size_t),
    ]


class Halo(Options):
    _fields_ = [
        ("size", c_size_t),
        ("width", c_size_t),
        ("axes", c_size_t),
        ("low", POINTER(c_size_t)),
        ("high", POINTER(c_size_t)),
        ("neighbours", c_int32),
    ]


class Box(ctypes.Structure):
    _fields_ = [("first", c_size_t * 4), ("extents", c_size_t * 4)]


class Domain(Options):
    _fields_ = [
        ("size", c_size_t),
        ("axes", c_size_t),
        ("number", c_uint64),
        ("owned_count", c_uint64),
        ("extents", c_size_t * 4),
        ("owned", Box),
    ]


class Layout(Options):
    _fields_ = [
        ("size", c_size_t),
        ("dimensions", c_size_t),
        ("extents", POINTER(c_size_t)),
        ("strides", POINTER(c_int64)),
        ("axis_count", c_size_t),
        ("axes", POINTER(c_size_t)),
        ("origin_count", c_size_t),
        ("origin", POINTER(c_size_t)),
        ("name", c_char_p),
        ("element", c_int32),
        ("padded", c_int32),
    ]


class Memory(Options):
    _fields_ = [
        ("size", c_size_t),
        ("base", c_void_p),
        ("release", c_void_p),
        ("context", c_void_p),
        ("space", c_int32),
        ("device", c_int32),
    ]


class Binding(ctypes.Structure):
    _fields_ = [("pattern", c_uint64), ("field", c_uint64)]


#: HALOCLINE_F64
F64 = 13

# A handle is a struct of one 64-bit number, which is passed as that number.
HANDLE, RESULT = c_uint64, POINTER(c_uint64)
SIGNATURES = {
    "init": [RESULT],
    "comm_rank": [HANDLE, POINTER(c_size_t)],
    "comm_size": [HANDLE, POINTER(c_size_t)],
    "comm_barrier": [HANDLE],
    "decompose": [POINTER(Grid), c_size_t, RESULT],
    "pattern_regular": [HANDLE, HANDLE, POINTER(Halo), RESULT],
    "pattern_domain": [HANDLE, c_size_t, POINTER(Domain)],
    "domain_global": [HANDLE, c_size_t, POINTER(c_size_t), POINTER(c_int64)],
    "field_create": [POINTER(Memory), POINTER(Layout), RESULT],
    "field_base": [HANDLE, POINTER(c_void_p)],
    "bind": [HANDLE, POINTER(Binding), c_size_t, c_void_p, RESULT],
    "gather_to": [HANDLE, c_size_t, POINTER(HANDLE), c_size_t, RESULT],
    "halo_exchange_free": [RESULT],
    "field_free": [RESULT],
    "pattern_free": [RESULT],
    "decomposition_free": [RESULT],
    "comm_free": [RESULT],
}


def load():
    """The library. A call that fails raises ``RuntimeError``."""
    library = ctypes.CDLL(str(LIBRARY))
    library.halocline_error_message.restype = c_char_p

    def check(status, function, _):
        if status != 0:
            raise RuntimeError(f"{function.__name__}: {library.halocline_error_message().decode()}")
        return status

    for name, arguments in SIGNATURES.items():
        function = getattr(library, f"halocline_{name}")
        function.argtypes, function.restype, function.errcheck = arguments, c_int32, check
    return library


def made(function, *arguments, of=c_uint64):
    """The result that a function stores through its last argument."""
    result = of()
    function(*arguments, byref(result))
    return result.value
