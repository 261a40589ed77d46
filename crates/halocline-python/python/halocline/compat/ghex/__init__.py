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

Not to be had: ``expose_cpp_ptr``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, NoReturn

from halocline import HaloError, HaloTypeError
from halocline._core import _gpus

from . import context, structured, unstructured, util
from ._mpi import (
    UnsupportedError,
    mpi_comm,
    mpi_finalize,
    mpi_init,
    mpi_is_finalized,
    mpi_is_initialized,
)
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
    "structured",
    "unstructured",
    "util",
]

__version__ = "0.9.0"
"""The version of GHEX whose interface this is."""


def config() -> dict[str, Any]:
    """What it serves, by the names that GHEX has for it: ``gpu`` is whether CUDA has a GPU here, whose driver this starts."""
    gpu = _gpus() > 0
    gpu_mode = "cuda" if gpu else "none"
    return {"transport": "HALOCLINE", "gpu": gpu, "gpu_mode": gpu_mode, "xpmem": False, "version": __version__}


def __getattr__(name: str) -> Any:
    # Not before it is asked for: the import leaves CUDA alone.
    if name == "__config__":
        return globals().setdefault(name, config())
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def print_config(config: dict[str, Any]) -> None:
    """Prints what ``config`` returns."""
    if not isinstance(config, Mapping):
        raise HaloTypeError(f"what config() returns is wanted, not {config!r}")
    print("GHEX's configuration:")
    for name, value in config.items():
        print(f"     {name:<16}: {value!s:>10}")


def expose_cpp_ptr(obj: object) -> NoReturn:
    """There are no C++ objects of GHEX here."""
    raise UnsupportedError(
        f"expose_cpp_ptr({obj!r}): there is no C++ object of GHEX behind it that C++ could use"
    )


def install() -> None:
    """From now on ``import ghex`` is this package, submodules included. Before GHEX itself is imported."""
    there = sys.modules.get("ghex")
    if there is not None and there is not sys.modules[__name__]:
        raise HaloError("GHEX itself is imported already; call install() before its first import")
    for module in (sys.modules[__name__], context, util, unstructured, structured, regular, cartesian_sets):
        sys.modules["ghex" + module.__name__.removeprefix(__name__)] = module
