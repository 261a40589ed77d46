# All documentation is in the stub beside this file, ``program.pyi``; compiled classes have theirs from there.

from ._core import PreparedCall, Program
from ._core import _load_program as load
from ._sdfg import from_sdfg

__all__ = ["PreparedCall", "Program", "from_sdfg", "load"]

load.__module__ = __name__
from_sdfg.__module__ = __name__
