"""Helpers of the interface."""

from __future__ import annotations

from enum import Enum
from typing import Any, NoReturn

from ._mpi import UnsupportedError, _UnsupportedMember

__all__ = ["Architecture", "CppWrapper", "cls_from_cpp_type_spec", "unwrap"]


class Architecture(Enum):
    """The memory of a field."""

    CPU = "cpu"
    GPU = "gpu"


class CppWrapper:
    """The base of classes that wrap a C++ object in GHEX; here there are no C++ objects."""

    def __init__(self, cpp_type_spec: str | tuple[Any, ...], *args: Any, **kwargs: Any) -> None:
        raise UnsupportedError(f"CppWrapper({cpp_type_spec!r}): there are no C++ objects of GHEX here; use the object itself")

    def __getattr__(self, name: str) -> NoReturn:
        if name == "__wrapped__":
            raise _UnsupportedMember(f"{type(self).__name__} has no __wrapped__: there are no C++ objects of GHEX here; use the object itself")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def unwrap(arg: Any) -> Any:
    """Returns the object itself, which the functions of ``pyghex`` accept."""
    return arg


def cls_from_cpp_type_spec(cpp_type_spec: str | tuple[Any, ...]) -> NoReturn:
    """Always fails: there are no C++ classes of GHEX here."""
    raise UnsupportedError(f"cls_from_cpp_type_spec({cpp_type_spec!r}): there are no C++ classes of GHEX here; use make_pattern")
