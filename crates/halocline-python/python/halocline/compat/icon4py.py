"""icon4py's exchange protocol. icon4py itself is not needed.

To use it there, before anything imports ``icon4py.model.common.decomposition.mpi_decomposition``::

    from halocline.compat import icon4py as halocline_icon4py

    halocline_icon4py.install()

Then icon4py's ``create_exchange`` gives MPI ranks Halocline's exchange. GHEX is not needed: if it is not installed,
``halocline.compat.ghex`` replaces it, since icon4py does not use MPI without GHEX. For process properties of another kind
register ``create_exchange(decomposition_info, comm)`` as ``install`` does.

Exchanges of host fields start at the call, whatever the stream; ``finish`` and ``exchange`` block until they are over. Exchanges
of GPU fields are ordered by the given streams; the host waits only for ``BLOCK``. A field of GT4Py (or any object with
``domain.dims``) may be longer than the grid's local cells; only that many are exchanged. A plain array does not name its axes,
so its first axis must have exactly the grid's local number of cells. icon4py's ``BLOCK`` and ``DEFAULT_STREAM`` are accepted, too.
"""

from __future__ import annotations

import importlib.util
import operator
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from halocline import HaloError, HaloTypeError, HaloValueError
from halocline._arguments import listed

from . import ghex
from .ghex import mpi_comm, unstructured
from .ghex.context import make_context

__all__ = [
    "BLOCK",
    "DEFAULT_STREAM",
    "Block",
    "DefaultStream",
    "Exchange",
    "ExchangeResult",
    "ExchangeRuntime",
    "SingleNodeExchange",
    "create_exchange",
    "install",
]


@dataclass(frozen=True)
class DefaultStream:
    """The null stream."""

    ptr: int = 0

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.ptr


class Block:
    """Used instead of a stream: wait on the host. The only instance is ``BLOCK``."""

    _only: Block | None = None

    def __new__(cls) -> Block:
        if cls._only is None:
            cls._only = super().__new__(cls)
        return cls._only

    def __repr__(self) -> str:
        return "BLOCK"


DEFAULT_STREAM = DefaultStream()
BLOCK = Block()


def _blocks(stream: Any) -> bool:
    """Whether it is this module's ``BLOCK`` or icon4py's, which exists only if icon4py's module is imported."""
    theirs = sys.modules.get("icon4py.model.common.decomposition.definitions")
    return stream is BLOCK or (theirs is not None and stream is theirs.BLOCK)


@runtime_checkable
class ExchangeResult(Protocol):
    """One exchange in flight."""

    def finish(self, stream: Any = DEFAULT_STREAM) -> None:
        """Later work of the stream runs after the exchange. Blocks for host fields, and for ``BLOCK``."""

    def is_ready(self) -> bool:
        """Whether the exchange is over. Never blocks."""


@runtime_checkable
class ExchangeRuntime(Protocol):
    """Exchanges the halos of fields on the cells, edges or vertices of a grid."""

    def start(self, dim: Any, *fields: Any, stream: Any = DEFAULT_STREAM) -> ExchangeResult:
        """Starts an exchange that runs after all earlier work of the stream."""

    def exchange(self, dim: Any, *fields: Any, stream: Any = DEFAULT_STREAM) -> None:
        """``start``, and ``finish`` on the same stream."""

    def __call__(self, *fields: Any, dim: Any, full_exchange: bool = True, stream: Any = DEFAULT_STREAM) -> Any:
        """The old form: ``exchange``, or ``start`` if not ``full_exchange``."""

    def get_size(self) -> int:
        """The number of ranks."""

    def my_rank(self) -> int:
        """This rank."""


class _Runtime:
    """Implements the other calls by ``start``."""

    def start(self, dim: Any, *fields: Any, stream: Any = DEFAULT_STREAM) -> ExchangeResult:
        raise NotImplementedError

    def exchange(self, dim: Any, *fields: Any, stream: Any = DEFAULT_STREAM) -> None:
        """Fills the halos of fields; blocks until they are filled."""
        self.start(dim, *fields, stream=stream).finish(stream)

    def __call__(
        self, *fields: Any, dim: Any, full_exchange: bool = True, stream: Any = DEFAULT_STREAM
    ) -> ExchangeResult | None:
        """The old form: ``exchange``, or ``start`` if not ``full_exchange``."""
        if not full_exchange:
            return self.start(dim, *fields, stream=stream)
        self.exchange(dim, *fields, stream=stream)
        return None


class _Nothing:
    """The result of an exchange of one rank, which copies nothing."""

    def finish(self, stream: Any = DEFAULT_STREAM) -> None:
        pass

    def is_ready(self) -> bool:
        return True


class SingleNodeExchange(_Runtime):
    """The exchange of one rank, which copies nothing."""

    def start(self, dim: Any, *fields: Any, stream: Any = DEFAULT_STREAM) -> ExchangeResult:
        """Does nothing: there are no halos."""
        return _Nothing()

    def get_size(self) -> int:
        """1"""
        return 1

    def my_rank(self) -> int:
        """0"""
        return 0

    def __str__(self) -> str:
        return "SingleNodeExchange(rank = 0 / 1)"


class _Result:
    __slots__ = ("_handle",)

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def finish(self, stream: Any = DEFAULT_STREAM) -> None:
        """Blocks until the halos are filled and the owned cells may be overwritten."""
        if _blocks(stream):
            self._handle.wait()
        else:
            self._handle.schedule_wait(stream)

    def is_ready(self) -> bool:
        """Whether ``finish`` would return at once. Never blocks."""
        ready: bool = self._handle.is_ready()
        return ready


class Exchange(_Runtime):
    """The exchange of several ranks, made by ``create_exchange``. Several may be in flight."""

    def __init__(self, decomposition_info: Any, comm: Any, dims: Iterable[Any] | None) -> None:
        self._context = make_context(comm)
        self._communication = unstructured.make_communication_object(self._context)
        self._domains: dict[Any, unstructured.DomainDescriptor] = {}

        # An error on one rank is an error on all.
        def describe() -> list[str]:
            known = _dimensions(decomposition_info) if dims is None else dims
            for dim in map(_hashable, listed(known, "dimensions")):
                self._domains[dim] = _domain(decomposition_info, dim, self.my_rank())
            return [str(dim) for dim in self._domains]

        if len({str(names) for names in self._context._gather(describe)}) > 1:
            raise HaloValueError(f"ranks differ in the dimensions or their order, which are {list(self._domains)} here")
        self._patterns = {
            dim: unstructured.make_pattern(self._context, unstructured.HaloGenerator(), [domain])
            for dim, domain in self._domains.items()
        }

    def get_size(self) -> int:
        """The number of ranks."""
        return self._context.size()

    def my_rank(self) -> int:
        """This rank."""
        return self._context.rank()

    def start(self, dim: Any, *fields: Any, stream: Any = DEFAULT_STREAM) -> ExchangeResult:
        """Begins to fill the halos of fields on a dimension, all with one message to each neighbour. All ranks begin theirs in
        the same order. Fields are arrays, or have one as ``ndarray``; their first axis is the dimension, and has exactly its
        cells unless ``domain.dims`` says that it is it: then it may have more."""
        domain, pattern = self._domains.get(_hashable(dim)), self._patterns.get(dim)
        if domain is None or pattern is None:
            raise HaloValueError(f"there are no halos on {dim!r}; those known are on {list(self._domains)}")
        buffers = [pattern(self._describe(domain, dim, at, field)) for at, field in enumerate(fields)]
        if _blocks(stream):
            handle = self._communication.exchange(buffers)
            handle.wait()
            return _Result(handle)
        return _Result(self._communication.schedule_exchange(stream, buffers))

    def _describe(self, domain: unstructured.DomainDescriptor, dim: Any, at: int, field: Any) -> Any:
        axes = getattr(getattr(field, "domain", None), "dims", None)
        if axes is not None:
            _check_axes(field, axes, dim, at)
        array, cells = getattr(field, "ndarray", field), domain.size()
        try:
            shape = tuple(map(operator.index, array.shape))
            there = shape[0]
        except (AttributeError, LookupError, TypeError):
            raise HaloTypeError(f"field {at} is no array of one or more axes: {field!r}") from None
        if there == cells:
            return unstructured.make_field_descriptor(domain, array)
        if axes is None or there < cells:
            advice = "" if axes is not None else _advice(shape, cells)
            raise HaloValueError(
                f"field {at} has {there} cells along its first axis, of shape {shape}; "
                f"the grid has {cells} on {dim!r} here{advice}"
            )
        # The first axis is known to be cells, so cells beyond the grid's are padding.
        return unstructured.make_field_descriptor(domain, array[:cells])

    def __str__(self) -> str:
        return f"Exchange(rank = {self.my_rank()} / {self.get_size()})"


def _dimensions(decomposition_info: Any) -> Iterable[Any]:
    """The dimensions that `with_dimension` added."""
    dims: Iterable[Any] | None = getattr(decomposition_info, "_global_index", None)
    if dims is None:
        raise HaloTypeError(f"{decomposition_info!r} does not say which dimensions it has; give dims=[...]")
    return dims


def _hashable(dim: Any) -> Any:
    try:
        hash(dim)
    except TypeError:
        raise HaloTypeError(f"a dimension is what a dict can have as its key, not {dim!r}") from None
    return dim


def _domain(decomposition_info: Any, dim: Any, rank: int) -> unstructured.DomainDescriptor:
    for name in ("global_index", "owner_mask"):
        if not callable(getattr(decomposition_info, name, None)):
            raise HaloTypeError(f"{decomposition_info!r} has no {name}(dim), as icon4py's DecompositionInfo has")
    cells = _on_host(decomposition_info.global_index(dim))
    owned = _on_host(decomposition_info.owner_mask(dim)).astype(bool)
    if owned.shape != cells.shape:
        raise HaloValueError(f"the owner mask on {dim!r} has the shape {owned.shape}, its cells have {cells.shape}; both must have the same")
    return unstructured.DomainDescriptor(rank, cells, np.flatnonzero(~owned))


def _check_axes(field: Any, axes: Any, dim: Any, at: int) -> None:
    """Checks a field that has dimensions and start indices, as GT4Py's fields do."""
    axes = listed(axes, f"the dimensions of field {at}")
    if not axes or not _is(axes[0], dim):
        raise HaloValueError(f"field {at} is on {axes!r}; its first axis is to be {dim!r}")
    try:
        first = field.domain.ranges[0].start
    except (AttributeError, LookupError, TypeError):
        raise HaloTypeError(
            f"field {at} does not say where it begins on {dim!r}, by domain.ranges[0].start, as fields of GT4Py do"
        ) from None
    if not _is(first, 0):
        raise HaloValueError(f"field {at} begins at {first} on {dim!r}; give one that begins at 0")


def _advice(shape: tuple[int, ...], cells: int) -> str:
    """Advice for an array whose first axis does not have the grid's number of cells."""
    first = f"array[:{cells}]"
    spare = f"if axis 0 is of cells and those from {cells} on are spare, give {first}"
    # The last of several, as for an array with levels first.
    others = range(len(shape) - 1, 0, -1)
    exact = next((axis for axis in others if shape[axis] == cells), None)
    axis = next((axis for axis in others if shape[axis] > cells), None) if exact is None else exact
    if axis is None:
        return f"; {spare}" if shape[0] > cells else ""
    part = "" if axis == exact else f"[:{cells}]"
    view = f"axis {axis} has {shape[axis]}: of an array with levels first give the view array.swapaxes(0, {axis}){part}"
    return f"; {view}; {spare}" if shape[0] > cells else f"; {view}"


def _is(one: Any, other: Any) -> bool:
    """Whether two values are equal; arrays count as different."""
    try:
        return bool(one == other)
    except (TypeError, ValueError):
        return False


def _on_host(array: Any) -> Any:
    """Converts an array, also of CuPy, to NumPy."""
    return array.get() if hasattr(array, "get") else np.asarray(array)


def create_exchange(
    decomposition_info: Any, comm: Any = None, dims: Iterable[Any] | None = None
) -> Exchange | SingleNodeExchange:
    """The exchange for a decomposition: with ``global_index(dim)`` and ``owner_mask(dim)`` of the cells of this rank, as
    icon4py's ``DecompositionInfo`` has them. Collective.

    ``comm``: a communicator of mpi4py or Halocline; without one, or with one rank, nothing is exchanged. ``dims``: those that
    have halos, by default all that the decomposition knows.
    """
    if comm is None or mpi_comm(comm)._comm.size == 1:
        return SingleNodeExchange()
    return Exchange(decomposition_info, comm, dims)


_kinds: dict[type, type] = {}


def _multi_node_exchange(theirs: type) -> type:
    """A subclass of icon4py's class for several ranks with this module's methods. Made once."""
    if theirs not in _kinds:
        _kinds[theirs] = type("MultiNodeExchange", (Exchange, theirs), {})
    return _kinds[theirs]


def install() -> None:
    """Makes icon4py's ``create_exchange`` return this exchange for ``MPICommProcessProperties``, as an instance of icon4py's
    ``GHexMultiNodeExchange``. Unless GHEX is installed, call it before icon4py's ``mpi_decomposition`` is imported."""
    from icon4py.model.common.decomposition import definitions

    found = importlib.util.find_spec("ghex")
    # A folder named ghex is also found, as a package without a file.
    if found is None or found.loader is None or found.origin is None:
        ghex.install()
    from icon4py.model.common.decomposition import mpi_decomposition

    if mpi_decomposition.import_error is not None:
        raise HaloError(
            f"icon4py was imported without MPI support: {mpi_decomposition.import_error}; install mpi4py, "
            "and call install() before anything imports icon4py.model.common.decomposition.mpi_decomposition"
        )

    def create(process_props: Any, decomp_info: Any) -> Any:
        if process_props.comm_size == 1:
            return definitions.SingleNodeExchange()
        kind = _multi_node_exchange(mpi_decomposition.GHexMultiNodeExchange)
        return kind(decomp_info, process_props.comm, None)

    definitions.create_exchange.register(mpi_decomposition.MPICommProcessProperties, create)
    for kind in (Exchange, SingleNodeExchange):
        definitions.create_halo_exchange_wait.register(kind, definitions.HaloExchangeWait)
