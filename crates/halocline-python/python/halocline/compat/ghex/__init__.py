"""The Python interface of GHEX 0.9, on top of Halocline.

``import halocline.compat.ghex as ghex``, or ``install()`` before the first ``import ghex``, or
``python -m halocline.compat.ghex program.py`` run programs written for it. What differs:

* Several exchanges may be in flight; handles are of one exchange each; patterns, fields and arrays are kept alive.
* Arrays may have any strides (negative ones, too), size-1 axes, and any element type of Halocline.
* An id that nobody owns, or that two own, and an array that is too small are errors; so is all else that cannot be right.
* ``make_context`` also takes a ``halocline.Communicator``, so that programs run without MPI.
* Fields of GPUs are bound when ranks first exchange them together, and stay bound, and alive, until 8 other sets of fields of
  the pattern were. Before each exchange ranks agree on what they have bound: so each has a field for it, and its host waits
  for those of the others.
* The scheduled calls are there without a GPU, too: fields of the host begin at once.

Not to be had: what is of C++ objects, which there are none of here. ``expose_cpp_ptr``, ``util.CppWrapper(...)``,
``util.cls_from_cpp_type_spec``, ``__wrapped__`` of domains and halo generators, and the C++ classes of ``pyghex`` are an ``UnsupportedError``;
``util.unwrap`` gives the object itself, which the functions of ``pyghex`` take.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from halocline import HaloError

from . import context, pyghex, structured, unstructured, util
from ._mpi import (
    UnsupportedError,
    mpi_comm,
    mpi_finalize,
    mpi_init,
    mpi_is_finalized,
    mpi_is_initialized,
)
from .pyghex import VERSION, config, expose_cpp_ptr, print_config
from .structured import cartesian_sets, regular

__all__ = [
    "UnsupportedError",
    "config",
    "context",
    "expose_cpp_ptr",
    "install",
    "mpi_comm",
    "mpi_finalize",
    "mpi_init",
    "mpi_is_finalized",
    "mpi_is_initialized",
    "print_config",
    "pyghex",
    "structured",
    "unstructured",
    "util",
]

__version__ = VERSION
"""The version of GHEX whose interface this is."""


_INSTALLED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_installed")
"""A folder with a package ``ghex`` that is this one, and with GHEX's version: ``sys.path`` has it after ``install()``."""


def __getattr__(name: str) -> Any:
    # Not before it is asked for: the import leaves CUDA alone.
    if name == "__config__":
        return globals().setdefault(name, config())
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def install() -> None:
    """From now on ``import ghex`` is this package, submodules included, also in children that multiprocessing spawns, and
    ``importlib.metadata.version("ghex")`` answers. Before GHEX itself is imported."""
    there = sys.modules.get("ghex")
    if there is not None and there is not sys.modules[__name__]:
        raise HaloError("GHEX itself is imported already; call install() before its first import")
    if _INSTALLED not in sys.path:
        # Behind the folder of the program.
        sys.path.insert(1, _INSTALLED)
    for module in (sys.modules[__name__], context, util, pyghex, unstructured, structured, regular, cartesian_sets):
        sys.modules["ghex" + module.__name__.removeprefix(__name__)] = module
