"""What the tests with GT4Py itself share. They run in an environment of their own, with GT4Py and DaCe from PyPI."""

import os
import shutil
import tempfile

import pytest

FOLDER = tempfile.mkdtemp()
# Read when GT4Py is imported.
os.environ["GT4PY_BUILD_CACHE_DIR"] = FOLDER
os.environ["OMP_NUM_THREADS"] = "1"

import gt4py.next as gtx  # noqa: E402
import numpy as np  # noqa: E402
import programs  # noqa: E402
from gt4py.next.embedded.nd_array_field import NumPyArrayField  # noqa: E402
from gt4py.next.program_processors.runners import dace as backends  # noqa: E402

from halocline import program  # noqa: E402


def pytest_unconfigure():
    shutil.rmtree(FOLDER, ignore_errors=True)


RANDOM = np.random.default_rng(7)


def field(*dimensions, start=0, extents=None, dtype="f8", order="C", value=None):
    """A field of random numbers whose indices begin at ``start`` in all dimensions."""
    extents = extents or (8, 7, 5)[: len(dimensions)]
    array = RANDOM.random(extents).astype(dtype) if value is None else np.full(extents, value, dtype)
    array = np.asfortranarray(array) if order == "F" else array
    # In place: `as_field` would choose another order of the elements.
    return NumPyArrayField.from_array(array, domain={d: (start, start + n) for d, n in zip(dimensions, extents)})


def plane(start=0, extents=(8, 7), **more):
    return field(programs.I, programs.J, start=start, extents=extents, **more)


def line(extent=6, start=0, **more):
    return field(programs.I, start=start, extents=(extent,), **more)


def connectivity(source, local, target, table):
    return gtx.as_connectivity([source, local], target, np.array(table, np.int32))


E2V = connectivity(programs.Edge, programs.E2VDim, programs.Vertex, [[0, 1], [1, 2], [2, 3], [3, 0], [0, 2]])
V2E = connectivity(programs.Vertex, programs.V2EDim, programs.Edge, [[0, 3, 4], [0, 1, 2], [1, 2, 4], [2, 3, 1]])
OFFSETS = {"E2V": E2V, "V2E": V2E, "Ioff": programs.I}

_made = {}


def gt4py_program(name, backend=backends.run_dace_cpu):
    """GT4Py's program of this name, which GT4Py calls."""
    if ("gt4py", name) not in _made:
        _made["gt4py", name] = getattr(programs, name).with_backend(backend)
    return _made["gt4py", name]


def made(name):
    """The program that Halocline calls."""
    if ("ours", name) not in _made:
        _made["ours", name] = program.from_gt4py(gt4py_program(name), offset_provider=OFFSETS)
    return _made["ours", name]


def leaves(value):
    """The fields in a nested tuple."""
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in leaves(part)]
    return [value]


def copied(value):
    """A nested tuple with copies of its fields."""
    if isinstance(value, tuple):
        parts = [copied(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if hasattr(value, "domain"):
        return NumPyArrayField.from_array(value.ndarray.copy(order="K"), domain=value.domain)
    return value


def same(left, right):
    """Whether two nested tuples of fields have the same bits."""
    return all(
        one.ndarray.tobytes() == other.ndarray.tobytes() if hasattr(one, "ndarray") else one == other
        for one, other in zip(leaves(left), leaves(right), strict=True)
    )


@pytest.fixture(scope="session")
def compiled():
    return made


@pytest.fixture(scope="session")
def of_gt4py():
    return gt4py_program
