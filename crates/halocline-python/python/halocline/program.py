# All documentation is in the stub beside this file, ``program.pyi``; compiled classes have theirs from there.

from ._cache import BuildFolder, build, compile_sdfg
from ._core import Entry, PreparedCall, Program
from ._core import _load_program as load
from ._sdfg import from_sdfg

__all__ = ["BuildFolder", "Entry", "PreparedCall", "Program", "build", "compile_sdfg", "from_sdfg", "load"]

for _documented in (BuildFolder, build, compile_sdfg, from_sdfg, load):
    _documented.__module__ = __name__
del _documented
