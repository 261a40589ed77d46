# All documentation is in the stub beside this file, ``program.pyi``; compiled classes have theirs from there.

from ._cache import BuildFolder, build, compile_sdfg
from ._cache_gt4py import cache_gt4py
from ._core import Entry, FieldProgram, PreparedCall, Program
from ._core import _load_program as load
from ._gt4py import from_gt4py
from ._install import install, uninstall
from ._sdfg import from_sdfg

__all__ = [
    "BuildFolder",
    "Entry",
    "FieldProgram",
    "PreparedCall",
    "Program",
    "build",
    "cache_gt4py",
    "compile_sdfg",
    "from_gt4py",
    "from_sdfg",
    "install",
    "load",
    "uninstall",
]

for _documented in (BuildFolder, build, cache_gt4py, compile_sdfg, from_gt4py, from_sdfg, install, load, uninstall):
    _documented.__module__ = __name__
del _documented
