"""Halo exchange of distributed arrays: bind once, exchange many times.

Words: a *rank* is a member of a communicator; a *domain* is a piece of the grid, of which a rank may own several;
*owned* cells belong to the domain, *halo* cells are copies of cells owned elsewhere; a *pattern* says which cells go
where, and no fields appear in it.

Arrays are taken as they are, with any strides and without a copy: objects with ``__cuda_array_interface__``,
``__array_interface__`` (NumPy), DLPack (PyTorch, CuPy, ...) or the buffer protocol. They must be writable, in the byte
order of the machine, and are kept alive as long as an exchange may touch them.

Calls marked *collective* are made by all ranks in the same order. An argument that one rank refuses there is an error
on all ranks (but for the collective calls of a ``Communicator`` itself). Calls that can wait release the GIL, and Ctrl-C interrupts the wait: ``KeyboardInterrupt``. An exchange that
was being waited for then goes on, as if its handle had been dropped; a collective call is left unfinished.
"""

import os
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Protocol, SupportsIndex, TypeVar, final, overload

from typing_extensions import Buffer, TypeAlias, disjoint_base

import numpy
import numpy.typing

_T = TypeVar("_T")

_NumbersLike: TypeAlias = Sequence[SupportsIndex] | numpy.typing.NDArray[Any]
"""Whole numbers: any sequence of them, also an array of one dimension. What ``operator.index`` refuses, as 64.0, is none."""

_FlagsLike: TypeAlias = Sequence[bool] | numpy.typing.NDArray[Any]

__all__ = [
    "ClosedError",
    "Communicator",
    "CommunicatorError",
    "CommunicatorTimeoutError",
    "Decomposition",
    "DeviceError",
    "DeviceTrace",
    "Domain",
    "ExchangeFailedError",
    "ExchangeTimeoutError",
    "Field",
    "ForkedError",
    "Graph",
    "HaloError",
    "HaloExchange",
    "HaloTypeError",
    "HaloValueError",
    "InFlightError",
    "Mesh",
    "MeshDomains",
    "MeshHalos",
    "MeshPart",
    "MpiError",
    "Partition",
    "Pattern",
    "PatternLinks",
    "Pending",
    "Redistribute",
    "RefusedElsewhereError",
    "RegularGrid",
    "Stream",
    "UnstructuredDomain",
    "empty",
    "init",
    "run_threads",
    "trace",
    "zeros",
]

__version__: str

# --- errors ------------------------------------------------------------------------------------------------------

class HaloError(Exception):
    """The root of all errors of this package. The text says what was wrong, where, and what would be right."""

class HaloValueError(HaloError, ValueError):
    """An argument with an impossible value: a grid, pattern, shape, field or option that does not fit."""

class HaloTypeError(HaloError, TypeError):
    """An argument of a kind that cannot be taken: no array, a wrong element type or byte order."""

class RefusedElsewhereError(HaloError):
    """Another rank refused its arguments in a collective call."""

class InFlightError(HaloError):
    """An exchange of the same object or of the same memory is in flight: wait for it first."""

class CommunicatorError(HaloError):
    """Ranks cannot reach each other: one has died or left, a transport or its environment is wrong."""

class CommunicatorTimeoutError(CommunicatorError, TimeoutError):
    """The communicator's deadline has passed in a collective call."""

class ClosedError(CommunicatorError):
    """The communicator was closed."""

class ForkedError(CommunicatorError):
    """The object belongs to the parent process: nothing of it can be used in a forked child."""

class MpiError(CommunicatorError):
    """MPI is missing, has failed, was finalised, or does not allow the call from this thread."""

class ExchangeFailedError(HaloError):
    """A bound object has failed, at all ranks that it connects; drop it and bind again."""

    rank: int
    """This rank."""
    epoch: int
    """The first exchange that failed; those before it are complete."""
    peer: int
    """The other rank of the link where that was noticed."""
    culprit: int
    """The rank that it happened to, or that found it."""

class ExchangeTimeoutError(ExchangeFailedError, TimeoutError):
    """A rank did not come within a deadline."""

class DeviceError(HaloError):
    """A device refuses, or has failed."""

# --- communicators -----------------------------------------------------------------------------------------------

@final
class Communicator:
    """A group of ranks.

    ``Communicator(comm)`` takes a communicator of mpi4py (of the MPI library that the process has loaded), or an
    ``MPI_Comm`` as a number (an intracommunicator). Collective over its ranks; it is duplicated, so that messages never meet the program's.
    ``node_aware``: whether ranks of a node share memory (by default what ``HALOCLINE_NODE_AWARE`` says).

    The collective calls of the communicator itself are one round of messages: arguments that a rank refuses there
    are an error on that rank alone, and the others wait for it, as long as the deadline.
    """

    def __new__(
        cls, comm: object, *, node_aware: bool | None = None, deadline: float | None = None
    ) -> Communicator: ...
    @property
    def rank(self) -> int:
        """This rank, from 0."""
    @property
    def size(self) -> int:
        """The number of ranks."""
    @property
    def transport(self) -> str:
        """``thread``, ``shm`` or ``mpi``."""
    def duplicate(self) -> Communicator:
        """The same ranks, whose collective calls never meet those of this one. Collective; does not communicate."""
    def with_deadline(self, seconds: float | None) -> Communicator:
        """The same, whose collective calls fail when one takes longer."""
    def barrier(self) -> None:
        """Returns once all ranks have called it. Collective."""
    def broadcast(self, root: int, data: bytes) -> bytes:
        """Gives the root's bytes to every rank. Collective."""
    def all_gather(self, data: bytes) -> list[bytes]:
        """Gives the bytes of every rank to every rank, in the order of ranks. Collective."""
    def all_reduce(self, values: _NumbersLike, op: Literal["sum", "min", "max"] = "sum") -> list[int]:
        """Combines values from 0 below 2**64 of all ranks, element by element; sums may be larger. Collective."""
    def agree(self, error: BaseException | None = None) -> None:
        """Ends what some ranks may have failed in: if a rank gives an error, that is raised there, and ``RefusedElsewhereError`` by all
        others. So a local call that only some ranks are refused, as ``MeshPart.halos``, keeps nobody waiting. Collective."""
    def mappings(self) -> dict[str, int]:
        """Counts of memory of this rank that others have mapped, and of theirs that it has."""
    def close(self) -> None:
        """Leaves the group, with all duplicates and all that was bound with them: later calls raise ``ClosedError``, and so do,
        within 50 ms or so, waits of other threads. What is in flight goes on; peers that wait for more are told. Happens by itself when the interpreter ends."""
    def __enter__(self) -> Communicator: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...

def init(transport: Literal["auto", "thread", "shm", "mpi"] = "auto", *, deadline: float | None = None) -> Communicator:
    """The communicator of this process: ``shm`` under ``halocline launch``, ``mpi`` under an MPI launcher, else one rank.

    Called again, also by other threads, it gives the same one. Blocks until all ranks of the job have called it. After
    ``close``: a new one where it was one rank alone, else ``ClosedError``, for a process joins its job only once. In a
    forked child of a process that had one: one rank alone.
    """

def run_threads(n: int, fn: Callable[[Communicator], _T]) -> list[_T]:
    """Calls ``fn(comm)`` in ``n`` threads, each a rank of one group, and returns what they return, in the order of ranks.

    If one raises, the others find that it has left, and the first error is raised here. One that returns has left, too,
    unless something keeps its communicator, or a pattern or redistribution made with it (what it returned, say); what it has in flight goes on.
    """

# --- grids and patterns ------------------------------------------------------------------------------------------

_HaloLike: TypeAlias = SupportsIndex | _NumbersLike | Sequence[_NumbersLike]
"""The width of a halo: one number, one for each axis, or (low, high) for each axis."""

_Neighbours: TypeAlias = Literal["faces", "edges", "all"]
"""Which halo cells are filled: outside along one axis, along one or two, or all, corners too."""

@final
class RegularGrid:
    """A regular grid of 1 to 4 axes, the last one running fastest in the numbering of domains."""

    def __new__(
        cls, shape: _NumbersLike, *, periodic: _FlagsLike | None = None, domains_per_rank: SupportsIndex = 1
    ) -> RegularGrid: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def periodic(self) -> tuple[bool, ...]: ...
    def decompose(self, comm: Communicator | SupportsIndex) -> Decomposition:
        """Blocks, one a domain, that cut through the fewest faces. With a number of ranks in place of a communicator,
        ``pattern`` needs one. Local, the same on all ranks."""
    def decompose_into(self, blocks: _NumbersLike, comm: Communicator | SupportsIndex) -> Decomposition:
        """That many blocks along each axis."""
    def decompose_at(self, cuts: Sequence[_NumbersLike], comm: Communicator | SupportsIndex) -> Decomposition:
        """Explicit cuts: for each axis the positions, ascending, at which a new block starts."""
    def decompose_boxes(
        self, boxes: Sequence[tuple[SupportsIndex, _NumbersLike, _NumbersLike]], comm: Communicator | SupportsIndex
    ) -> Decomposition:
        """Any boxes ``(rank, first cell, cells along each axis)``; box i is domain i, all ranks give all boxes. Ranks may
        own any number of them."""

@final
class Decomposition:
    """A regular grid cut into domains, each owned by one rank."""

    @property
    def ranks(self) -> int: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def domains(self) -> int: ...
    @property
    def blocks_per_axis(self) -> tuple[int, ...] | None: ...
    def staggered(self, axes: _FlagsLike) -> Decomposition:
        """That of the points that are staggered along the axes that are true: those between the cells."""
    def domains_of(self, rank: int, halo: _HaloLike | None = None) -> list[Domain]:
        """The domains of any rank, with halos of that width (by default without), ascending by their ids. Local."""
    def pattern(
        self, halo: _HaloLike, *, neighbours: _Neighbours = "all", comm: Communicator | None = None
    ) -> Pattern:
        """Who sends what to fill halos of that width. Collective: all ranks give the same."""

@final
class Domain:
    """A domain of this rank."""

    @property
    def id(self) -> int:
        """Its global number."""
    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the smallest array that holds owned and halo cells (along the axes of the pattern)."""
    @property
    def first(self) -> tuple[int, ...] | None:
        """Of a regular grid: the first owned cell in the global grid."""
    @property
    def owned(self) -> tuple[int, ...]:
        """Owned cells: along each axis, or their number."""
    @property
    def halo(self) -> tuple[tuple[int, int], ...] | None:
        """Of a regular grid: the width at the low and the high side of each axis."""
    @property
    def interior(self) -> tuple[slice, ...]:
        """Index of the owned cells in an array of ``shape``; of an unstructured domain only if owned cells come first."""

@final
class Pattern:
    """Which cells the domains of this rank exchange with which others. No fields in it."""

    @staticmethod
    def unstructured(comm: Communicator, domains: Sequence[UnstructuredDomain]) -> Pattern:
        """The pattern of domains given by global ids or owners; a rank gives its own, any number of them. Collective."""
    @property
    def domains(self) -> list[Domain]:
        """The domains of this rank, ascending by their ids."""
    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the one domain of this rank; an error where it has none or several."""
    @property
    def peers(self) -> list[tuple[int, int, int]]:
        """For each rank that this one exchanges with: the rank, cells sent to it, cells received from it."""
    def narrowed(self, halo: _HaloLike, *, neighbours: _Neighbours = "all") -> Pattern:
        """The pattern that fills only what belongs to the narrower halo, of the same arrays. Collective."""

@final
class UnstructuredDomain:
    """A piece of an unstructured grid: the global ids of its cells in local order, and which are halo.

    ``id`` is the number of the domain: no other domain of any rank may have it. Ids are integers from 0 below 2**64, in
    any sequence or one-dimensional integer array. What is wrong is found when the pattern is made, on all ranks.
    """

    def __new__(cls, id: int, owned: _IdsLike, halo: _IdsLike) -> UnstructuredDomain:
        """All ``owned`` cells first in local order, then all ``halo`` cells."""
    @staticmethod
    def from_indices(id: int, cells: _IdsLike, halo: _IdsLike) -> UnstructuredDomain:
        """``cells`` in local order; those at the local indices ``halo`` are halo."""
    @staticmethod
    def from_owners(id: int, comm: Communicator, cells: _IdsLike, owners: _IdsLike) -> UnstructuredDomain:
        """``cells`` in local order with the rank that owns each; those of other ranks are halo."""
    def with_levels(self, ends: _NumbersLike) -> UnstructuredDomain:
        """``ends[d]`` is the end, in local order, of the cells that a halo of depth d has, so that it can be narrowed."""
    @property
    def levels(self) -> tuple[int, ...]:
        """What ``with_levels`` was given."""
    @property
    def id(self) -> int: ...
    @property
    def cells(self) -> numpy.typing.NDArray[numpy.uint64]: ...

_IdsLike: TypeAlias = Sequence[int] | numpy.typing.NDArray[Any]

@final
class Graph:
    """Which cells are neighbours, in compressed rows: those of cell c are ``neighbours[offsets[c]:offsets[c + 1]]``."""

    def __new__(cls, offsets: _IdsLike, neighbours: _IdsLike) -> Graph: ...
    def __len__(self) -> int: ...
    def neighbours(self, cell: int) -> numpy.typing.NDArray[numpy.uint64]: ...

@final
class Partition:
    """The owning rank of each cell."""

    def __new__(cls, owners: _IdsLike, ranks: int) -> Partition: ...
    @staticmethod
    def block(cells: int, ranks: int) -> Partition:
        """Consecutive blocks, whose sizes differ by at most one."""
    @staticmethod
    def metis(graph: Graph, ranks: int) -> Partition:
        """METIS' multilevel k-way partition; the same graph gives the same partition on every rank."""
    @property
    def ranks(self) -> int: ...
    @property
    def owners(self) -> numpy.typing.NDArray[numpy.uint64]: ...
    @property
    def counts(self) -> list[int]: ...

@final
class Mesh:
    """A whole mesh, the same on every rank: the vertices that each element connects.

    ``connectivity`` has a row for each element (two dimensions), or is flat, with ``offsets`` of each element's entries.
    ``solid``: elements are solids in VTK's order, not polygons.
    """

    def __new__(
        cls, vertices: int, connectivity: _IdsLike, *, offsets: _IdsLike | None = None, solid: bool = False
    ) -> Mesh: ...
    @property
    def vertices(self) -> int: ...
    @property
    def elements(self) -> int: ...
    @property
    def connectivity(self) -> numpy.typing.NDArray[numpy.uint64]:
        """The vertices of the elements, one element after the other."""
    @property
    def offsets(self) -> numpy.typing.NDArray[numpy.uint64]:
        """Where the vertices of each element begin there, and where those of the last end."""
    def vertex_graph(self) -> Graph: ...
    def element_graph(self, common: int) -> Graph: ...
    def domains_by_vertex(self, partition: Partition, rank: int) -> MeshDomains:
        """Where the partition gives each vertex to a rank; an element belongs to its lowest rank."""
    def domains_by_element(self, partition: Partition, rank: int) -> MeshDomains:
        """Where the partition gives each element to a rank; a vertex belongs to its lowest rank."""
    def halos(
        self, partition: Partition, part: int, depth: int, *, shared: Literal["vertex", "edge", "facet"] = "vertex"
    ) -> MeshHalos:
        """The domains of a part of a partition of the elements, with halos so many elements deep."""
    def refined_part(self, partition: Partition, part: int, segments: int, depth: int) -> MeshPart:
        """The part of a finer mesh that is needed for halos up to ``depth`` elements deep around a part of this one: every edge of its
        triangles is cut into so many segments. Finer triangles belong to the part of theirs in the partition, and no rank holds all of them.

        Their global numbers: of triangle t from ``segments**2 * t`` on; of vertices first those of this mesh, then those on its edges, in
        the order of the pairs of their vertices, then those within its triangles."""

@final
class MeshPart:
    """What a rank holds of a mesh that no rank holds as a whole, for halos up to ``depth`` elements deep around a part.

    ``mesh``: the elements and vertices that are here, numbered from 0; ``vertices`` and ``elements``: their global numbers;
    ``partition``: the part of each element. All elements must be here that are ``depth + 1`` steps from element to element over shared
    vertices away from the part, or fewer; that cannot be checked here, but ranks that disagree on an owner learn it when the pattern is made.
    """

    def __new__(
        cls, mesh: Mesh, vertices: _IdsLike, elements: _IdsLike, partition: Partition, part: int, depth: int
    ) -> MeshPart: ...
    @property
    def mesh(self) -> Mesh:
        """The elements and vertices that are here."""
    def halos(self, depth: int, *, shared: Literal["vertex", "edge", "facet"] = "vertex") -> MeshHalos:
        """As those of a whole mesh, with global numbers."""

@disjoint_base
class MeshDomains:
    """The domains of one rank for fields on vertices and on elements; owned ones come first in local order."""

    @property
    def vertices(self) -> UnstructuredDomain: ...
    @property
    def elements(self) -> UnstructuredDomain: ...
    @property
    def owned_vertices(self) -> int: ...
    @property
    def owned_elements(self) -> int: ...
    @property
    def connectivity(self) -> numpy.typing.NDArray[numpy.uint64]:
        """The local vertices of the local elements, one element after the other."""
    @property
    def offsets(self) -> numpy.typing.NDArray[numpy.uint64]:
        """Where the vertices of each local element begin there, and where those of the last end."""

@final
class MeshHalos(MeshDomains):
    """As ``MeshDomains``, with edges."""

    @property
    def edges(self) -> UnstructuredDomain: ...
    @property
    def owned_edges(self) -> int: ...
    @property
    def edge_vertices(self) -> numpy.typing.NDArray[numpy.uint64]:
        """The local vertices at the two ends of each local edge: shape (edges, 2)."""

# --- arrays ------------------------------------------------------------------------------------------------------

class _HasCudaArrayInterface(Protocol):
    @property
    def __cuda_array_interface__(self) -> Mapping[str, Any]: ...

class _HasArrayInterface(Protocol):
    @property
    def __array_interface__(self) -> dict[str, Any]: ...

class _HasDLPack(Protocol):
    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[Any, Any]: ...

_ArrayLike: TypeAlias = _HasCudaArrayInterface | _HasArrayInterface | _HasDLPack | Buffer

@final
class Field:
    """An array with what is to be said of it beside its memory.

    ``domain``: the id of the domain that it belongs to, needed where a rank owns several. ``axes``: its dimensions that
    are the pattern's axes, by default the first ones; an array ``[levels, y, x]`` needs ``axes=(1, 2)``. ``origin``: the
    index, along the axes of a regular grid, of the first owned cell; by default the halo width. ``padded``: the array may
    have more cells along these axes than its domain and the halo.

    Without ``axes``, ``origin`` and ``padded`` the array has exactly the shape of its domain along its first dimensions;
    any other is refused.
    """

    def __new__(
        cls,
        array: _ArrayLike,
        *,
        domain: int | None = None,
        axes: _NumbersLike | None = None,
        origin: _NumbersLike | None = None,
        padded: bool = False,
    ) -> Field: ...
    @property
    def array(self) -> Any:
        """The array object."""
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]:
        """In bytes."""
    @property
    def _key(self) -> object: ...
    @property
    def element(self) -> str:
        """The element type, as ``float64``; of plain bytes what they stand for, as ``datetime64[s]``."""
    @property
    def domain(self) -> int | None: ...
    @property
    def device(self) -> int | None:
        """The ordinal of the GPU; none for host memory."""

_FieldLike: TypeAlias = Field | _ArrayLike
_Bindings: TypeAlias = Sequence[tuple[Pattern, _FieldLike]]

@overload
def empty(
    shape: int | Sequence[int],
    dtype: numpy.typing.DTypeLike = "float64",
    comm: Communicator | None = None,
    device: None = None,
    *,
    order: Literal["C", "F"] = "C",
) -> numpy.typing.NDArray[Any]: ...
@overload
def empty(
    shape: int | Sequence[int],
    dtype: numpy.typing.DTypeLike = "float64",
    comm: Communicator | None = None,
    *,
    device: int,
    order: Literal["C", "F"] = "C",
) -> Any: ...
@overload
def empty(
    shape: int | Sequence[int],
    dtype: numpy.typing.DTypeLike,
    comm: Communicator | None,
    device: int,
    *,
    order: Literal["C", "F"] = "C",
) -> Any:
    """A NumPy array in memory that as many peers as possible can reach directly; on a device (the ordinal of a GPU) a CuPy
    array, in memory that other ranks can map. ``comm``: by default ``init()``'s."""

@overload
def zeros(
    shape: int | Sequence[int],
    dtype: numpy.typing.DTypeLike = "float64",
    comm: Communicator | None = None,
    device: None = None,
    *,
    order: Literal["C", "F"] = "C",
) -> numpy.typing.NDArray[Any]: ...
@overload
def zeros(
    shape: int | Sequence[int],
    dtype: numpy.typing.DTypeLike = "float64",
    comm: Communicator | None = None,
    *,
    device: int,
    order: Literal["C", "F"] = "C",
) -> Any: ...
@overload
def zeros(
    shape: int | Sequence[int],
    dtype: numpy.typing.DTypeLike,
    comm: Communicator | None,
    device: int,
    *,
    order: Literal["C", "F"] = "C",
) -> Any:
    """As ``empty``, zeroed."""

# --- streams -----------------------------------------------------------------------------------------------------

@final
class Stream:
    """A stream given by its handle (a ``cudaStream_t`` or ``CUstream`` as a number; 0 is the null stream)."""

    def __new__(cls, handle: int) -> Stream: ...
    @property
    def ptr(self) -> int: ...
    def __cuda_stream__(self) -> tuple[int, int]: ...

class _HasCudaStream(Protocol):
    def __cuda_stream__(self) -> tuple[int, int]: ...

class _HasPtr(Protocol):
    @property
    def ptr(self) -> int: ...

class _HasCudaStreamHandle(Protocol):
    @property
    def cuda_stream(self) -> int: ...

_StreamLike: TypeAlias = Stream | _HasCudaStream | _HasPtr | _HasCudaStreamHandle | None
"""``None`` is the null stream."""

# --- exchanges ---------------------------------------------------------------------------------------------------

_LinkChoice: TypeAlias = Literal["auto", "push", "pull", "device-mailbox", "mailbox", "message"]

_CopyEngine: TypeAlias = int | Literal["auto", "never"]
"""A number of bytes, from 1; ``auto``: what ``HALOCLINE_COPY_ENGINE`` says, or what was found to pay."""

_WordsWithFlags: TypeAlias = int | Literal["auto", "never"]
"""A number of bytes, from 1, of which no more than 1 MiB counts; ``auto``: what ``HALOCLINE_FLAGS`` says, or what was found to pay."""

@final
class HaloExchange:
    """Fields whose halos are exchanged together, bound once and exchanged many times. Collective; all ranks bind fields
    of the same patterns in the same order.

    The n-th field given for a domain of a pattern is exchanged with the n-th field of every other domain of it.

    ``link``: how bytes move (the same on all ranks); ``device-mailbox`` is for memory of GPUs, of whose receivers it takes a buffer.
    ``deadline``: seconds that a wait may take before the object fails.
    ``checked``: every exchange proves that it did what it should, at a price; by default what ``HALOCLINE_CHECK`` says. Fields in
    memory of GPUs are not looked at.
    ``streams``: those whose work comes before an ``exchange`` of device fields, by default the null stream.
    ``inline``: scheduled exchanges run on the streams given to them, not beside them.
    ``stream_waits``: streams wait for peers, never kernels; so does ``HALOCLINE_STREAM_WAITS=1`` in the environment. By default, between
    GPUs that each serve one rank, an exchange is one kernel, some microseconds less, and a kernel that needs all of a GPU at once (a
    cooperative launch) begins only once that has gone.
    ``copy_engine``: regions of device fields of at least so many contiguous bytes at both ends go by the copy engines of the receivers'
    GPUs, which take no multiprocessors from the work beside them; links with such a region are pulled, where ``link`` is ``auto``. Between two
    ranks it is the larger of what both say, and never if one says so.
    ``flags``: messages between GPUs of at most so many bytes go as words with flags, one step between the GPUs instead of two; by default
    those for which it was measured to be faster. Between two ranks it is the smaller of what both say, and never if one says so.
    """

    def __new__(
        cls,
        comm: Communicator,
        fields: _Bindings,
        *,
        link: _LinkChoice = "auto",
        deadline: float | None = None,
        name: str | None = None,
        checked: bool | None = None,
        streams: Sequence[_StreamLike] | None = None,
        inline: bool = False,
        stream_waits: bool = False,
        copy_engine: _CopyEngine = "auto",
        flags: _WordsWithFlags = "auto",
    ) -> HaloExchange: ...
    @staticmethod
    def alternatives(
        comm: Communicator,
        sets: Sequence[_Bindings],
        *,
        link: _LinkChoice = "auto",
        deadline: float | None = None,
        name: str | None = None,
        checked: bool | None = None,
        streams: Sequence[_StreamLike] | None = None,
        inline: bool = False,
        stream_waits: bool = False,
        copy_engine: _CopyEngine = "auto",
        flags: _WordsWithFlags = "auto",
    ) -> HaloExchange:
        """Binds several sets of fields at once, of which an exchange takes one (``set=``): time levels that swap. Collective."""
    @overload
    def exchange(
        self, *, wait: Literal[True] = True, set: int = 0, streams: Sequence[_StreamLike] | None = None
    ) -> None: ...
    @overload
    def exchange(
        self, *, wait: Literal[False], set: int = 0, streams: Sequence[_StreamLike] | None = None
    ) -> Pending: ...
    @overload
    def exchange(
        self, *, wait: bool, set: int = 0, streams: Sequence[_StreamLike] | None = None
    ) -> Pending | None:
        """Exchanges, and waits until halos are filled and owned cells may be overwritten; or only begins it.

        Host fields are read and written from the call until the wait has returned. Device fields: after all work given
        before to ``streams`` (by default those of the bind).
        """
    def exchange_async(self, *, set: int = 0, streams: Sequence[_StreamLike] | None = None) -> Pending:
        """``await`` what it returns. The exchange begins at the call. Cancelling the task leaves it running.

        It is an awaitable and no coroutine: ``asyncio.ensure_future`` makes a task of it, ``asyncio.create_task`` refuses it.
        """
    def schedule_exchange(self, stream: _StreamLike | Sequence[_StreamLike] = None, *, set: int = 0) -> Pending:
        """Begins an exchange after all work that the stream was given before; never waits. Host fields begin at once."""
    def schedule_wait(self, stream: _StreamLike | Sequence[_StreamLike] = None) -> None:
        """As ``Pending.schedule_wait``, for the exchange begun last."""
    def wait(self) -> None:
        """Waits for the exchange begun last, if there is one."""
    @property
    def pending(self) -> Pending | None:
        """The exchange begun last, over or not."""
    @property
    def sets(self) -> int: ...
    def alternative(self, set: int) -> HaloExchange:
        """A handle of one of the sets alone, which shares links and exchanges with this one."""
    def narrowed(self, halo: _HaloLike, *, neighbours: _Neighbours = "all") -> HaloExchange:
        """The same fields, of whose halos an exchange fills only the narrower part; shares the links. Collective.
        Of device fields so many times at most: an object has room for twice the sets that were bound, at least 16."""
    def reclaim(self) -> bool:
        """After a failure: true once no peer can touch the fields any more."""
    @property
    def links(self) -> dict[str, int]:
        """How many links of this rank are ``direct``, ``mailbox`` and ``message``."""
    @property
    def ways(self) -> list[tuple[int, Literal["send", "receive"], str]]:
        """The links of this rank: peer, direction, way."""
    def explain(self) -> str:
        """A table of this rank's links: peer, way, through what, bytes, regions, and why not a better way."""
    def message_bytes(self, peer: int, direction: Literal["send", "receive"]) -> int:
        """Bytes of the buffers of ``pack`` (send) and ``unpack`` (receive). Not of host and device fields in one object."""
    def pack(self, peer: int, message: _ArrayLike, stream: _StreamLike = None) -> None:
        """Packs what ``peer`` needs into a contiguous buffer, for those who send by themselves.

        Host fields: at the call. Device fields: into memory that the GPU reaches, its own or pinned, after all work that the stream
        was given before; never waits, but for a table that the first call for a buffer makes. Keep the buffer until the stream is
        through. The bytes are the same.
        """
    def unpack(self, peer: int, message: _ArrayLike, stream: _StreamLike = None) -> None:
        """Unpacks what ``peer`` has packed with an object of the same fields; as ``pack``."""

@final
class Pending(Awaitable[None]):
    """One exchange in flight. Dropping it leaves the exchange running. ``await`` works in any asyncio loop."""

    def wait(self) -> None:
        """Blocks until the halo is filled and owned cells may be overwritten. Calling it again does nothing."""
    def schedule_wait(self, stream: _StreamLike | Sequence[_StreamLike] = None) -> None:
        """All work that the stream is given from now on runs after the exchange. Blocks for host fields only."""
    def is_ready(self) -> bool:
        """Whether ``wait`` would return at once. Never blocks."""
    def progress(self) -> None:
        """Carries the exchange on as far as it goes now. Never blocks. (It also gets on by itself.)"""
    @property
    def epoch(self) -> int: ...
    def __await__(self) -> Generator[Any, None, None]: ...

@final
class PatternLinks:
    """The unbound form: links of patterns, made once, collectively, and fields given to each exchange.

    Options as for ``HaloExchange``; ``link`` is ``auto``, ``mailbox`` or ``message``. Host fields only.
    """

    def __new__(
        cls,
        comm: Communicator,
        patterns: Sequence[Pattern],
        *,
        link: Literal["auto", "mailbox", "message"] = "auto",
        deadline: float | None = None,
        name: str | None = None,
        checked: bool | None = None,
    ) -> PatternLinks: ...
    @overload
    def exchange(self, fields: _Bindings, *, wait: Literal[True] = True) -> None: ...
    @overload
    def exchange(self, fields: _Bindings, *, wait: Literal[False]) -> Pending: ...
    @overload
    def exchange(self, fields: _Bindings, *, wait: bool) -> Pending | None:
        """All ranks give fields of the same patterns, as many, of the same element types and extra dimensions. Describing
        new fields is local. The fields are kept alive until the exchange is over."""
    def exchange_async(self, fields: _Bindings) -> Pending: ...
    def schedule_exchange(self, fields: _Bindings, stream: _StreamLike | Sequence[_StreamLike] = None) -> Pending:
        """As ``exchange(wait=False)``: host fields begin at once."""
    def wait(self) -> None: ...
    def reclaim(self) -> bool: ...
    @property
    def links(self) -> dict[str, int]: ...
    @property
    def ways(self) -> list[tuple[int, Literal["send", "receive"], str]]: ...
    def explain(self) -> str: ...

@final
class Redistribute:
    """How owned cells get from one decomposition or partition of them to another."""

    @staticmethod
    def regular(
        comm: Communicator,
        source: tuple[Decomposition, _HaloLike],
        target: tuple[Decomposition, _HaloLike],
    ) -> Redistribute:
        """Between two decompositions of one grid, each with the halo that its arrays have. Collective."""
    @staticmethod
    def unstructured(
        comm: Communicator, source: Sequence[UnstructuredDomain], target: Sequence[UnstructuredDomain]
    ) -> Redistribute:
        """Between two sets of domains, of which each rank gives its own. Collective."""
    def back(self) -> Redistribute:
        """The way back."""
    @property
    def pattern(self) -> Pattern:
        """The pattern behind it: domain d of the source has the number 2 d there, domain d of the target 2 d + 1. Its ``peers`` tell how many
        cells go where."""
    def bind(
        self,
        comm: Communicator,
        source: Sequence[_FieldLike],
        target: Sequence[_FieldLike],
        *,
        link: _LinkChoice = "auto",
        deadline: float | None = None,
        name: str | None = None,
        checked: bool | None = None,
        streams: Sequence[_StreamLike] | None = None,
        inline: bool = False,
        stream_waits: bool = False,
        copy_engine: _CopyEngine = "auto",
        flags: _WordsWithFlags = "auto",
    ) -> HaloExchange:
        """Binds fields: ``source`` on the domains that cells leave, ``target`` on those where they go. Collective. Options as for
        ``HaloExchange``."""

# --- traces ------------------------------------------------------------------------------------------------------

@final
class trace:
    """``with hc.trace("trace.json", comm):`` writes down what every rank does when, for Perfetto. Collective at both ends;
    rank 0 writes the file. A rank that leaves it by an exception drops what it wrote down and waits for nobody; the others fail at
    the end, with ``CommunicatorError``, once that rank has left the group."""

    def __new__(cls, path: str | os.PathLike[str], comm: Communicator) -> trace: ...
    def __enter__(self) -> trace: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def on_device(self, halo: HaloExchange, stream: _StreamLike = None, *, rounds: int) -> DeviceTrace:
        """Adds what a stream of a GPU does in so many rounds (262,144 at most), by the GPU's own clock. The stream is of a device of the
        exchange's fields. Blocks: compiles and loads a kernel of one thread, and compares clocks, so call it while no exchange is in
        flight."""

@final
class DeviceTrace:
    """Of ``trace.on_device``. In each round the stream is told where it has come to::

        steps.stamp("begun")
        pending = halo.schedule_exchange(stream)
        steps.observe(pending)
        ...                         # what needs no halo
        steps.stamp("interior")
        pending.schedule_wait(stream)
        steps.stamp("waited")
        ...                         # the rest
        steps.stamp("done")

    Stamps do not wait for the GPU. Those after the last round do nothing, those after the trace's end raise ``HaloValueError``."""

    def stamp(self, moment: Literal["begun", "interior", "waited", "done"]) -> None:
        """The stream has come to a moment of this round; ``"done"`` ends it."""

    def observe(self, pending: Pending) -> None:
        """When the exchange of this round is over is stamped, too, on a stream of its own."""
