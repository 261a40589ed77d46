"""What the modules of the interface share."""

from __future__ import annotations

from enum import Enum
from typing import Any, NoReturn

from ._mpi import UnsupportedError, _UnsupportedMember

__all__ = ["Architecture", "CppWrapper", "cls_from_cpp_type_spec", "unwrap"]


class Architecture(Enum):
    """Where a field lies."""

    CPU = "cpu"
    GPU = "gpu"


class CppWrapper:
    """What has an object of C++ in it with GHEX, and has none here."""

    def __init__(self, cpp_type_spec: str | tuple[Any, ...], *args: Any, **kwargs: Any) -> None:
        raise UnsupportedError(f"CppWrapper({cpp_type_spec!r}): there are no C++ objects of GHEX here")

    def __getattr__(self, name: str) -> NoReturn:
        if name == "__wrapped__":
            raise _UnsupportedMember(f"{type(self).__name__} has no __wrapped__: there are no C++ objects of GHEX here")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def unwrap(arg: Any) -> Any:
    """The object itself: functions that take what is unwrapped with GHEX take it as it is."""
    return arg


def cls_from_cpp_type_spec(cpp_type_spec: str | tuple[Any, ...]) -> NoReturn:
    """There are no C++ classes of GHEX here."""
    raise UnsupportedError(f"cls_from_cpp_type_spec({cpp_type_spec!r}): there are no C++ classes of GHEX here")
