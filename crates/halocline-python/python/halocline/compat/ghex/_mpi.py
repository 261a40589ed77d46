"""The MPI part of the interface, through mpi4py."""

from __future__ import annotations

import sys
from typing import Any

from halocline import Communicator, HaloError, HaloTypeError, MpiError


class UnsupportedError(HaloError, NotImplementedError):
    """A part of GHEX's interface that this package does not support."""


class _UnsupportedMember(UnsupportedError, AttributeError):
    """An unsupported member. ``hasattr`` is false for it."""


class mpi_comm:
    """A communicator of mpi4py, by default ``MPI.COMM_WORLD``, or one of Halocline, which needs no MPI."""

    __slots__ = ("_comm",)

    def __init__(self, *comm: Any) -> None:
        if len(comm) > 1:
            raise HaloTypeError(f"one communicator is wanted, not {len(comm)}")
        given = comm[0] if comm else _mpi().COMM_WORLD
        self._comm: Any = given._comm if isinstance(given, mpi_comm) else given
        # A communicator of mpi4py exists only if mpi4py is imported.
        mpi = sys.modules.get("mpi4py.MPI")
        kinds = (Communicator,) if mpi is None else (Communicator, mpi.Comm)
        if not isinstance(self._comm, kinds):
            raise HaloTypeError(f"a communicator must be `mpi4py.MPI.Comm` (or halocline.Communicator), not {given!r}")

    def _join(self) -> Communicator:
        """A Halocline communicator of these ranks with messages of its own. Collective."""
        if isinstance(self._comm, Communicator):
            return self._comm.duplicate()
        return Communicator(self._comm)

    def __repr__(self) -> str:
        return f"<ghex.mpi_comm: {self._comm!r}>"


def _mpi() -> Any:
    try:
        import mpi4py

        # The program initialises MPI by `mpi_init`, as with GHEX.
        mpi4py.rc.initialize = False
        from mpi4py import MPI
    except ImportError as missing:
        raise MpiError(
            f"mpi4py cannot be imported ({missing}); install it, or give make_context a halocline.Communicator"
        ) from missing
    return MPI


def mpi_init(thread_safe: bool = True) -> None:
    """Initialises MPI, unless it is initialised."""
    mpi = _mpi()
    if not mpi.Is_initialized():
        mpi.Init_thread(mpi.THREAD_MULTIPLE if thread_safe else mpi.THREAD_SINGLE)


def mpi_finalize() -> None:
    """Finalises MPI: after that no exchange over MPI works."""
    _mpi().Finalize()


def mpi_is_initialized() -> bool:
    """Whether MPI is, or was, initialised."""
    return bool(_mpi().Is_initialized())


def mpi_is_finalized() -> bool:
    """Whether MPI is finalised."""
    return bool(_mpi().Is_finalized())
