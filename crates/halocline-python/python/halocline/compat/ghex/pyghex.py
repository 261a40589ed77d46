"""The replacement for GHEX's C++ module ``pyghex``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from halocline import HaloTypeError
from halocline._core import _gpus

from ._mpi import (
    UnsupportedError,
    mpi_comm,
    mpi_finalize,
    mpi_init,
    mpi_is_finalized,
    mpi_is_initialized,
)
from .context import context
from .structured.regular import make_communication_object as make_co_regular
from .structured.regular import make_pattern as make_pattern_regular
from .unstructured import make_communication_object as make_co_unstructured
from .unstructured import make_pattern as make_pattern_unstructured

__all__ = [
    "config",
    "context",
    "expose_cpp_ptr",
    "make_co_regular",
    "make_co_unstructured",
    "make_pattern_regular",
    "make_pattern_unstructured",
    "mpi_comm",
    "mpi_finalize",
    "mpi_init",
    "mpi_is_finalized",
    "mpi_is_initialized",
    "print_config",
]

VERSION = "0.9.0"
"""The version of GHEX whose interface this is."""

CPLUSPLUS = (
    "buffer_info",
    "communication_handle",
    "communication_object",
    "pattern_container",
    "py_dtype_to_cpp_name",
    "pystructured",
    "structured__",
    "unstructured__",
)
"""Prefixes of the names of GHEX's C++ classes."""


def __getattr__(name: str) -> NoReturn:
    if name.startswith(CPLUSPLUS):
        raise UnsupportedError(f"pyghex.{name}: there are no C++ classes of GHEX here; use halocline.compat.ghex")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def config() -> dict[str, Any]:
    """The configuration, by GHEX's names. ``gpu``: whether CUDA finds a GPU; this initialises the driver."""
    gpu = _gpus() > 0
    gpu_mode = "cuda" if gpu else "none"
    return {"transport": "HALOCLINE", "gpu": gpu, "gpu_mode": gpu_mode, "xpmem": False, "version": VERSION}


def print_config(config: dict[str, Any]) -> None:
    """Prints what ``config`` returns."""
    if not isinstance(config, Mapping):
        raise HaloTypeError(f"config: the dict that config() returns is wanted, not {config!r}")
    print("GHEX's configuration:")
    for name, value in config.items():
        print(f"     {name:<16}: {value!s:>10}")


def expose_cpp_ptr(obj: object) -> NoReturn:
    """Always fails: there are no C++ objects of GHEX here."""
    raise UnsupportedError(
        f"expose_cpp_ptr({obj!r}): there is no C++ object of GHEX behind it that C++ could use"
    )
