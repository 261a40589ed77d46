"""The Python interface of GHEX 0.9, on top of Halocline.

``import halocline.compat.ghex as ghex``, or ``install()`` before the first ``import ghex``, or
``python -m halocline.compat.ghex program.py`` run programs written for GHEX. Differences:

* Several exchanges may be in flight; each handle stands for one exchange; patterns, fields and arrays are kept alive.
* Arrays may have any strides (also negative ones), size-1 axes, and any element type of Halocline.
* Wrong arguments are errors: an id that no domain or two domains own, an array that is too small.
* ``make_context`` also takes a ``halocline.Communicator``, so that programs run without MPI.
* GPU fields are bound at their first exchange, and stay bound and alive until 8 other sets of fields of the pattern were
  exchanged. Before each exchange of GPU fields the ranks compare what they have bound, for which the hosts wait.
* The scheduled calls also work without a GPU: host fields start at once.

Not supported, since there are no C++ objects here: ``expose_cpp_ptr``, ``util.CppWrapper(...)``, ``util.cls_from_cpp_type_spec``,
``__wrapped__`` of domains and halo generators, and the C++ classes of ``pyghex`` raise ``UnsupportedError``. ``util.unwrap`` returns
the object itself, which the functions of ``pyghex`` accept.
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
"""A folder for ``sys.path`` with a package ``ghex`` that is this one, and the metadata of GHEX's version."""


def __getattr__(name: str) -> Any:
    # Only on request: the import must not initialise CUDA.
    if name == "__config__":
        return globals().setdefault(name, config())
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def install() -> None:
    """Makes ``import ghex`` import this package, submodules included, also in children that multiprocessing spawns;
    ``importlib.metadata.version("ghex")`` gives GHEX's version. Call it before the first ``import ghex``."""
    there = sys.modules.get("ghex")
    if there is not None and there is not sys.modules[__name__]:
        raise HaloError("GHEX itself is imported already; call install() before its first import")
    if _INSTALLED not in sys.path:
        # After the folder of the program.
        sys.path.insert(1, _INSTALLED)
    for module in (sys.modules[__name__], context, util, pyghex, unstructured, structured, regular, cartesian_sets):
        sys.modules["ghex" + module.__name__.removeprefix(__name__)] = module
