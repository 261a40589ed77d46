"""Halo exchange of distributed arrays: bind once, exchange many times.

A *rank* is a member of a communicator. A *domain* is a piece of the global grid; a rank may own several. *Owned* cells
belong to the domain, *halo* cells are copies of cells that another domain owns. A *pattern* says which cells each domain
sends and receives; it contains no fields.

Arrays are used in place, with any strides: objects with ``__cuda_array_interface__``, ``__array_interface__`` (NumPy),
DLPack (PyTorch, CuPy, ...) or the buffer protocol. They must be writable and in the byte order of the machine. The
package keeps them alive as long as an exchange may touch them. An exchange increments the version
counters of PyTorch's tensors, so that autograd refuses what it saved of them before (PyTorch 2.1 or later).

All ranks make calls marked *collective* in the same order. If one rank refuses its arguments there, the call is an
error on all ranks (except the collective calls of a ``Communicator`` itself). Calls that can wait release the GIL, and
Ctrl-C interrupts the wait: ``KeyboardInterrupt``. An interrupted wait leaves the exchange running, as if its handle had
been dropped. An interrupted collective call stays incomplete; afterwards the communicator can only be closed.
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
    """The base class of all errors of this package. The text says what was wrong, where, and what to do."""

class HaloValueError(HaloError, ValueError):
    """An argument has an impossible value: a grid, pattern, shape, field or option that does not fit."""

class HaloTypeError(HaloError, TypeError):
    """An argument has a type that cannot be taken: no array, a wrong element type or byte order."""

class RefusedElsewhereError(HaloError):
    """Another rank refused its arguments in a collective call."""

class InFlightError(HaloError):
    """An exchange of the same object or of the same memory is in flight: wait for it first.

    Memory is in flight until its exchange was waited for, even if that is over sooner."""

class CommunicatorError(HaloError):
    """Ranks cannot reach each other: one has died or left, or a transport or its environment is wrong."""

class CommunicatorTimeoutError(CommunicatorError, TimeoutError):
    """The communicator's deadline has passed in a collective call."""

class ClosedError(CommunicatorError):
    """The communicator was closed."""

class ForkedError(CommunicatorError):
    """The object belongs to the parent process: a forked child can use nothing of it."""

class MpiError(CommunicatorError):
    """MPI is missing, has failed, was finalised, or does not allow the call from this thread."""

class ExchangeFailedError(HaloError):
    """A bound object has failed, at all ranks that it connects; drop it and bind again.

    Attributes: ``rank`` (this rank), ``epoch`` (the exchange that failed), ``peer`` (the other rank of the link where the
    failure was noticed), ``culprit`` (the rank that it happened to, or that found it).
    """

    rank: int
    """This rank."""
    epoch: int
    """The first exchange that failed; those before it are complete."""
    peer: int
    """The other rank of the link where that was noticed."""
    culprit: int
    """The rank that it happened to, or that found it."""

class ExchangeTimeoutError(ExchangeFailedError, TimeoutError):
    """A rank missed a deadline."""

class DeviceError(HaloError):
    """A device refuses a call, or has failed."""

# --- communicators -----------------------------------------------------------------------------------------------

@final
class Communicator:
    """A group of ranks.

    ``Communicator(comm)`` takes a communicator of mpi4py (of the MPI library that the process has loaded), or an
    ``MPI_Comm`` as a number (an intracommunicator). Collective over its ranks. The communicator is duplicated, so that
    messages of the package never meet the program's. Outside MPI, ``init()`` and ``run_threads()`` make communicators.

    ``node_aware``: whether ranks of a node share memory; by default what ``HALOCLINE_NODE_AWARE`` says.
    ``deadline``: as for ``with_deadline``.

    The collective calls of the communicator itself are one round of messages: an argument that a rank refuses there is an
    error on that rank alone, and the others wait for it until the deadline.
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
        """How the ranks communicate: ``thread``, ``shm`` or ``mpi``."""
    def duplicate(self) -> Communicator:
        """The same ranks, with collective calls that never meet those of this communicator. Collective; does not
        communicate.
        """
    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Splits the ranks into one communicator for each ``color``, as ``MPI_Comm_split``: it has the ranks that pass this color,
        ordered by ``key``, and by their rank here where keys are equal. ``color=None`` returns ``None``. Collective.
        """
    def with_deadline(self, seconds: float | None) -> Communicator:
        """The same communicator, whose collective calls fail (``CommunicatorTimeoutError``) when one takes longer than
        so many seconds; ``None``: no deadline.
        """
    def barrier(self) -> None:
        """Returns once all ranks have called it. Collective."""
    def broadcast(self, root: int, data: bytes) -> bytes:
        """Gives the bytes of rank ``root`` to every rank. Collective."""
    def all_gather(self, data: bytes) -> list[bytes]:
        """Gives the bytes of every rank to every rank, in the order of ranks. Collective."""
    def all_reduce(self, values: _NumbersLike, op: Literal["sum", "min", "max"] = "sum") -> list[int]:
        """Combines values from 0 below 2**64 of all ranks, element by element; ``op`` is ``sum``, ``min`` or ``max``.
        Sums may be larger than 2**64. Collective.
        """
    def agree(self, error: BaseException | None = None) -> None:
        """Tells all ranks whether a local step has failed on one of them. A rank that gives an error raises it here; all others
        raise ``RefusedElsewhereError``. So a local call that fails on some ranks only, as ``MeshPart.halos`` may, keeps no rank
        waiting. Collective.
        """
    def mappings(self) -> dict[str, int]:
        """Counters of this rank's cache of mapped memory: how often others have mapped its memory, and it theirs."""
    def close(self) -> None:
        """Leaves the group, with all duplicates and all that was bound with them. Later calls raise ``ClosedError``; so do, within
        about 50 ms, waits of other threads. What is in flight goes on; peers that wait for more get an error. The end of the
        interpreter, and the end of a ``with`` block, do the same.
        """
    def __enter__(self) -> Communicator: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...

def init(transport: Literal["auto", "thread", "shm", "mpi"] = "auto", *, deadline: float | None = None) -> Communicator:
    """The communicator of this process: ``shm`` under ``halocline launch``, ``mpi`` under an MPI launcher, else one rank.

    A second call, also by another thread, returns the same communicator. Blocks until all ranks of the job have called it.
    After ``close()`` a process that was one rank alone gets a new communicator; a rank of a job gets ``ClosedError``, since
    a process joins its job only once. A forked child of such a process becomes one rank alone.
    """

def run_threads(n: int, fn: Callable[[Communicator], _T]) -> list[_T]:
    """Calls ``fn(comm)`` in ``n`` threads, each a rank of one group, and returns the results in the order of ranks.

    If one rank raises, the others learn that it has left, and the first error is raised here. A rank that returns has left,
    too, unless something keeps its communicator, or a pattern or redistribution made with it (its result, for instance).
    What it has in flight goes on.

    Ctrl-C closes the communicators of all ranks: their waits, and later calls, raise ``KeyboardInterrupt``. It is raised here
    once all ranks have ended; a second Ctrl-C raises it at once.
    """

# --- grids and patterns ------------------------------------------------------------------------------------------

_HaloLike: TypeAlias = SupportsIndex | _NumbersLike | Sequence[_NumbersLike]
"""The width of a halo: one number, one for each axis, or (low, high) for each axis."""

_Neighbours: TypeAlias = Literal["faces", "edges", "all"]
"""Which halo cells are filled: outside along one axis, along one or two, or all, corners too."""

@final
class RegularGrid:
    """A regular grid of 1 to 4 axes; domains are numbered with the last axis running fastest.

    ``shape``: cells along each axis, as ``(512, 512)``. ``periodic``: a flag for each axis; by default no axis is periodic.
    ``domains_per_rank``: how many domains each rank owns in a decomposition that is not given as boxes, at most as many as
    the grid has cells.

    Grids are values: they compare by their contents, and can be copied, pickled and used as keys.
    """

    def __new__(
        cls, shape: _NumbersLike, *, periodic: _FlagsLike | None = None, domains_per_rank: SupportsIndex = 1
    ) -> RegularGrid: ...
    @property
    def shape(self) -> tuple[int, ...]:
        """Cells along each axis."""
    @property
    def periodic(self) -> tuple[bool, ...]:
        """Whether each axis is periodic."""
    @property
    def domains_per_rank(self) -> int:
        """How many domains each rank owns."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def decompose(self, comm: Communicator | SupportsIndex) -> Decomposition:
        """Cuts the grid into blocks, one a domain, through the fewest faces. ``comm`` is a communicator or a number of ranks; with
        a number, ``Decomposition.pattern`` needs ``comm=``. Local; gives the same on all ranks.
        """
    def decompose_into(self, blocks: _NumbersLike, comm: Communicator | SupportsIndex) -> Decomposition:
        """Cuts the grid into so many blocks along each axis."""
    def decompose_at(self, cuts: Sequence[_NumbersLike], comm: Communicator | SupportsIndex) -> Decomposition:
        """Cuts the grid at explicit positions: for each axis the cells, ascending, at which a new block starts."""
    def decompose_boxes(
        self, boxes: Sequence[tuple[SupportsIndex, _NumbersLike, _NumbersLike]], comm: Communicator | SupportsIndex
    ) -> Decomposition:
        """Cuts the grid into any boxes ``(rank, first cell, cells along each axis)``. Box i is domain i; all ranks give all boxes.
        A rank may own any number of boxes.
        """

@final
class Decomposition:
    """A regular grid cut into domains, each owned by one rank."""

    @property
    def ranks(self) -> int:
        """The number of ranks."""
    @property
    def shape(self) -> tuple[int, ...]:
        """Cells of the grid along each axis."""
    @property
    def domains(self) -> int:
        """The number of domains."""
    @property
    def blocks_per_axis(self) -> tuple[int, ...] | None:
        """Blocks along each axis; ``None`` for a decomposition given as boxes."""
    def staggered(self, axes: _FlagsLike) -> Decomposition:
        """The decomposition of the points between the cells, along those axes whose flag is true."""
    def domains_of(self, rank: int, halo: _HaloLike | None = None) -> list[Domain]:
        """The domains of any rank, with halos of that width (by default none), ascending by their ids. Local."""
    def pattern(
        self, halo: _HaloLike, *, neighbours: _Neighbours = "all", comm: Communicator | None = None
    ) -> Pattern:
        """The pattern that fills halos of that width. ``halo`` is one width, a width for each axis, or a pair (low, high) for each
        axis. ``neighbours`` says which halo cells are filled: ``faces``, ``edges`` or ``all``. Collective: all ranks give the
        same.
        """

@final
class Domain:
    """A domain of this rank."""

    @property
    def id(self) -> int:
        """Its global number."""
    @property
    def shape(self) -> tuple[int, ...]:
        """Extents, along the axes of the pattern, of the smallest array that holds owned and halo cells."""
    @property
    def first(self) -> tuple[int, ...] | None:
        """Of a regular grid: the first owned cell in the global grid. ``None`` for unstructured domains."""
    @property
    def owned(self) -> tuple[int, ...]:
        """Owned cells: along each axis of a regular grid, or the number of cells of an unstructured domain."""
    @property
    def halo(self) -> tuple[tuple[int, int], ...] | None:
        """Of a regular grid: the halo width at the low and the high side of each axis. ``None`` for unstructured
        domains.
        """
    @property
    def interior(self) -> tuple[slice, ...]:
        """Index of the owned cells in an array of ``shape``. For an unstructured domain it is right only if owned cells
        come first.
        """

@final
class Pattern:
    """Which cells the domains of this rank exchange with which others. It contains no fields."""

    @staticmethod
    def unstructured(comm: Communicator, domains: Sequence[UnstructuredDomain]) -> Pattern:
        """The pattern of domains given by global ids or owners. Each rank gives its own domains, any number of them.
        Collective.
        """
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
        """The pattern that fills only the part of the halo that a narrower halo has, in the same arrays. Collective."""

@final
class UnstructuredDomain:
    """A piece of an unstructured grid: the global ids of its cells in local order, and which of them are halo.

    ``UnstructuredDomain(id, owned, halo)``: all ``owned`` cells come first in local order, then all ``halo`` cells.

    ``id`` is the number of the domain: no other domain of any rank may have it. Cell ids are integers from 0 below 2**64,
    in any sequence or one-dimensional integer array. Faults between ids are found when the pattern is made, on all ranks.

    Domains are values: they compare by their contents, and can be copied, pickled and used as keys.
    """

    def __new__(cls, id: int, owned: _IdsLike, halo: _IdsLike) -> UnstructuredDomain: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    @staticmethod
    def from_indices(id: int, cells: _IdsLike, halo: _IdsLike) -> UnstructuredDomain:
        """``cells`` in local order; those at the local indices ``halo`` are halo."""
    @staticmethod
    def from_owners(id: int, comm: Communicator, cells: _IdsLike, owners: _IdsLike) -> UnstructuredDomain:
        """``cells`` in local order with the rank that owns each; cells of other ranks are halo."""
    def with_levels(self, ends: _NumbersLike) -> UnstructuredDomain:
        """The domain with depths of its halo, so that it can be narrowed: ``ends[d]`` is the end, in local order, of the
        cells that a halo of depth d has.
        """
    @property
    def levels(self) -> tuple[int, ...]:
        """The ends that ``with_levels`` was given."""
    @property
    def id(self) -> int:
        """Its global number."""
    @property
    def cells(self) -> numpy.typing.NDArray[numpy.uint64]:
        """The global ids of all cells, owned and halo, in local order."""

_IdsLike: TypeAlias = Sequence[int] | numpy.typing.NDArray[Any]

@final
class Graph:
    """Which cells are neighbours, in compressed rows: those of cell c are ``neighbours[offsets[c]:offsets[c + 1]]``.

    Repeated neighbours are dropped, and so are cells that are neighbours of themselves. An edge given at one end only is
    refused. ``len(graph)`` is the number of cells.

    Graphs are values: they compare by their contents, and can be copied, pickled and used as keys.
    """

    def __new__(cls, offsets: _IdsLike, neighbours: _IdsLike) -> Graph: ...
    def __len__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def neighbours(self, cell: int) -> numpy.typing.NDArray[numpy.uint64]:
        """The neighbours of a cell, ascending."""

@final
class Partition:
    """The owning rank of each cell.

    ``Partition(owners, ranks)``: ``owners`` has the rank of each cell, below ``ranks``.

    Partitions are values: they compare by their contents, and can be copied, pickled and used as keys.
    """

    def __new__(cls, owners: _IdsLike, ranks: int) -> Partition: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    @staticmethod
    def block(cells: int, ranks: int) -> Partition:
        """Consecutive blocks of cells, whose sizes differ by at most one."""
    @staticmethod
    def metis(graph: Graph, ranks: int) -> Partition:
        """METIS' multilevel k-way partition. The same graph gives the same partition on every rank."""
    @property
    def ranks(self) -> int:
        """The number of ranks."""
    @property
    def owners(self) -> numpy.typing.NDArray[numpy.uint64]:
        """The rank that owns each cell."""
    @property
    def counts(self) -> list[int]:
        """The number of cells that each rank owns."""

@final
class Mesh:
    """A whole mesh, the same on every rank: the vertices that each element connects.

    ``vertices``: how many there are. ``connectivity`` has a row for each element (two dimensions), or is flat, with
    ``offsets`` of each element's entries. ``solid``: elements are solids in VTK's order, not polygons.

    Meshes are values: they compare by their contents, and can be copied, pickled and used as keys.
    """

    def __new__(
        cls, vertices: int, connectivity: _IdsLike, *, offsets: _IdsLike | None = None, solid: bool = False
    ) -> Mesh: ...
    @property
    def vertices(self) -> int:
        """The number of vertices."""
    @property
    def elements(self) -> int:
        """The number of elements."""
    @property
    def solid(self) -> bool:
        """Whether elements are solids, not polygons."""
    @property
    def connectivity(self) -> numpy.typing.NDArray[numpy.uint64]:
        """The vertices of the elements, one element after the other."""
    @property
    def offsets(self) -> numpy.typing.NDArray[numpy.uint64]:
        """Where the vertices of each element begin in ``connectivity``, and where those of the last end."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def vertex_graph(self) -> Graph:
        """Vertices as cells, neighbours where an element connects them: for a partition of the vertices."""
    def element_graph(self, common: int) -> Graph:
        """Elements as cells, neighbours where they share at least ``common`` vertices: for a partition of the elements."""
    def domains_by_vertex(self, partition: Partition, rank: int) -> MeshDomains:
        """The domains of a rank where the partition gives each vertex to a rank; an element belongs to the lowest rank
        of its vertices.
        """
    def domains_by_element(self, partition: Partition, rank: int) -> MeshDomains:
        """The domains of a rank where the partition gives each element to a rank; a vertex belongs to the lowest rank of
        its elements.
        """
    def halos(
        self, partition: Partition, part: int, depth: int, *, shared: Literal["vertex", "edge", "facet"] = "vertex"
    ) -> MeshHalos:
        """The domains of a part of a partition of the elements, with halos ``depth`` elements deep. ``shared`` says what
        neighbouring elements have in common: ``vertex``, ``edge`` or ``facet``.
        """
    def refined_part(self, partition: Partition, part: int, segments: int, depth: int) -> MeshPart:
        """The part of a finer mesh that halos up to ``depth`` elements deep around a part of this one need: every edge of its
        triangles is cut into ``segments``. Finer triangles belong to the part that their triangle has in the partition. No rank
        holds all of them.

        Their global numbers: those of triangle t begin at ``segments**2 * t``; vertices are first those of this mesh, then those
        on its edges, in the order of the pairs of their vertices, then those within its triangles.
        """

@final
class MeshPart:
    """What a rank holds of a mesh that no rank holds as a whole, for halos up to ``depth`` elements deep around a part.

    ``mesh``: the local elements and vertices, numbered from 0; ``vertices`` and ``elements``: their global numbers;
    ``partition``: the part of each local element. All elements must be local that are ``depth + 1`` steps from element to
    element over shared vertices away from the part, or fewer. That cannot be checked here, but ranks that disagree on an
    owner learn it when the pattern is made.
    """

    def __new__(
        cls, mesh: Mesh, vertices: _IdsLike, elements: _IdsLike, partition: Partition, part: int, depth: int
    ) -> MeshPart: ...
    @property
    def mesh(self) -> Mesh:
        """The local elements and vertices."""
    def halos(self, depth: int, *, shared: Literal["vertex", "edge", "facet"] = "vertex") -> MeshHalos:
        """The domains of the part with halos ``depth`` elements deep, as ``Mesh.halos`` of a whole mesh gives them, with
        global numbers.
        """

@disjoint_base
class MeshDomains:
    """The domains of one rank for fields on vertices and on elements; owned ones come first in local order."""

    @property
    def vertices(self) -> UnstructuredDomain:
        """The domain of the vertices."""
    @property
    def elements(self) -> UnstructuredDomain:
        """The domain of the elements."""
    @property
    def owned_vertices(self) -> int:
        """The number of owned vertices: the local ones from 0 on."""
    @property
    def owned_elements(self) -> int:
        """The number of owned elements: the local ones from 0 on."""
    @property
    def connectivity(self) -> numpy.typing.NDArray[numpy.uint64]:
        """The local vertices of the local elements, one element after the other."""
    @property
    def offsets(self) -> numpy.typing.NDArray[numpy.uint64]:
        """Where the vertices of each local element begin in ``connectivity``, and where those of the last end."""

@final
class MeshHalos(MeshDomains):
    """``MeshDomains`` with edges."""

    @property
    def edges(self) -> UnstructuredDomain:
        """The domain of the edges."""
    @property
    def owned_edges(self) -> int:
        """The number of owned edges: the local ones from 0 on."""
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
    """An array with facts that the array object does not tell.

    ``domain``: the id of the domain that it belongs to, needed where a rank owns several. ``axes``: its dimensions that
    are the pattern's axes, by default the first ones; an array ``[levels, y, x]`` needs ``axes=(1, 2)``. ``origin``: the
    index, along the axes of a regular grid, of the first owned cell; by default the halo width. ``padded``: the array may
    have more cells along these axes than its domain and the halo.

    Without ``origin`` and ``padded`` the array has exactly the shape of its domain along its first dimensions, or along
    ``axes``; any other is refused.
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
    def shape(self) -> tuple[int, ...]:
        """The extents of the array."""
    @property
    def strides(self) -> tuple[int, ...]:
        """The strides of the array, in bytes."""
    @property
    def _key(self) -> object: ...
    @property
    def element(self) -> str:
        """The element type, as ``float64``; for plain bytes their meaning, as ``datetime64[s]``."""
    @property
    def domain(self) -> int | None:
        """The id of the domain, if one was given."""
    @property
    def device(self) -> int | None:
        """The ordinal of the GPU; ``None`` for host memory."""

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
    array, in memory that other ranks can map. ``comm``: by default ``init()``'s. ``order``: ``C`` or ``F``.

    Where ranks are processes of one node, they share this memory, and so does a forked child (``os.fork``, the start method
    ``fork`` of ``multiprocessing``): what the child writes, its parent has. Give a child that computes on its own a copy:
    ``array.copy()``.
    """

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
    """As ``empty``, filled with zeros."""

# --- streams -----------------------------------------------------------------------------------------------------

@final
class Stream:
    """A stream given by its handle (a ``cudaStream_t`` or ``CUstream`` as a number; 0 is the null stream)."""

    def __new__(cls, handle: int) -> Stream: ...
    @property
    def ptr(self) -> int:
        """The handle."""
    def __cuda_stream__(self) -> tuple[int, int]:
        """The version of the protocol, 0, and the handle."""

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

_WordsWithFlags: TypeAlias = int | Literal["auto", "never"]
"""A number of bytes, from 1, of which no more than 1 MiB counts; ``auto``: what ``HALOCLINE_FLAGS`` says, or what was found to pay."""

@final
class HaloExchange:
    """Fields whose halos are exchanged together, bound once and exchanged many times. Collective; all ranks bind fields of the
    same patterns in the same order.

    ``fields``: pairs (pattern, array), where an array may be a ``Field``. The n-th field given for a domain of a pattern is
    exchanged with the n-th field of every other domain of it.
    ``link``: how bytes move (the same on all ranks): ``auto``, ``push``, ``pull``, ``device-mailbox``, ``mailbox`` or
    ``message``. ``device-mailbox`` is for memory of GPUs; it takes a buffer of the receivers' GPUs.
    ``deadline``: seconds that a wait may take before the object fails.
    ``name``: how traces and checked mode call the object.
    ``checked``: every exchange proves that it did what it should, at a cost; by default what ``HALOCLINE_CHECK`` says. Fields
    in memory of GPUs are not checked.
    ``streams``: those whose work comes before an ``exchange`` of device fields, by default the null stream.
    ``inline``: scheduled exchanges run on the streams given to them, not beside them.
    ``stream_waits``: streams wait for peers, kernels never do; so with ``HALOCLINE_STREAM_WAITS=1`` in the environment. By
    default, between GPUs that each serve one rank, an exchange is one kernel, some microseconds less, and a kernel that needs
    all of a GPU at once (a cooperative launch) begins only after that kernel.
    ``flags``: messages between GPUs of at most so many bytes go as words with flags, one step between the GPUs instead of
    two; by default those for which measurements found it faster. A number of bytes, ``auto`` or ``never``. Between two ranks
    the smaller number counts, and ``never`` wins.
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
        flags: _WordsWithFlags = "auto",
    ) -> HaloExchange:
        """Binds several sets of fields at once, of which an exchange takes one (``set=``): time levels that swap.
        Options as for ``HaloExchange``. Collective.
        """
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
        """Begins an exchange, and waits until halos are filled and owned cells may be overwritten. With ``wait=False`` it only
        begins it, and returns a ``Pending``.

        Host fields are read and written from the call until the wait has returned. Device fields are read and written after all
        earlier work of ``streams`` (by default those of the bind). ``set``: which of the sets of ``alternatives``.
        """
    def exchange_async(self, *, set: int = 0, streams: Sequence[_StreamLike] | None = None) -> Pending:
        """Begins an exchange; ``await`` the result. The exchange begins at the call. Cancelling the task leaves it running.

        The result is an awaitable, not a coroutine: ``asyncio.ensure_future`` makes a task of it, ``asyncio.create_task`` refuses
        it.
        """
    def schedule_exchange(self, stream: _StreamLike | Sequence[_StreamLike] = None, *, set: int = 0) -> Pending:
        """Begins an exchange after all earlier work of the stream; never waits. Host fields begin at once."""
    def schedule_wait(self, stream: _StreamLike | Sequence[_StreamLike] = None) -> None:
        """As ``Pending.schedule_wait``, for the exchange begun last."""
    def wait(self) -> None:
        """Waits for the exchange begun last, if there is one."""
    @property
    def pending(self) -> Pending | None:
        """The exchange begun last, over or not; ``None`` before the first."""
    @property
    def sets(self) -> int:
        """The number of sets of fields."""
    def alternative(self, set: int) -> HaloExchange:
        """A handle of one of the sets alone, which shares links and exchanges with this one."""
    def narrowed(self, halo: _HaloLike, *, neighbours: _Neighbours = "all") -> HaloExchange:
        """The same fields with a narrower halo: an exchange fills only that part of their halos. Shares the links. Collective. For
        device fields the number of calls is limited: an object has room for twice the sets that were bound, at least 16.
        """
    def reclaim(self) -> bool:
        """True once the exchange is over, or, after a failure, once no peer can touch the fields any more."""
    @property
    def links(self) -> dict[str, int]:
        """The number of links of this rank that are ``direct``, ``mailbox`` and ``message``."""
    @property
    def paths(self) -> list[tuple[int, Literal["send", "receive"], str]]:
        """The links of this rank: peer, direction, path."""
    def explain(self) -> str:
        """A table of this rank's links: peer, path, through what, bytes, regions, and why not a better path."""
    def message_bytes(self, peer: int, direction: Literal["send", "receive"]) -> int:
        """Bytes of the buffers of ``pack`` (``send``) and ``unpack`` (``receive``). Not for host and device fields in
        one object.
        """
    def pack(self, peer: int, message: _ArrayLike, stream: _StreamLike = None) -> None:
        """Packs what ``peer`` needs into a contiguous buffer, for programs that send by themselves.

        Host fields are packed at the call. Device fields are packed into memory that the GPU reaches, its own or pinned, after all
        earlier work of the stream; that never waits, except for a table that the first call for a buffer makes. Keep the buffer
        until the stream has done the work. The bytes are the same for both.
        """
    def unpack(self, peer: int, message: _ArrayLike, stream: _StreamLike = None) -> None:
        """Unpacks what ``peer`` has packed with an object of the same fields; as ``pack``."""

@final
class Pending(Awaitable[None]):
    """One exchange in flight. Dropping it leaves the exchange running. ``await`` works in any asyncio loop."""

    def wait(self) -> None:
        """Blocks until the halo is filled and owned cells may be overwritten. A second call does nothing."""
    def schedule_wait(self, stream: _StreamLike | Sequence[_StreamLike] = None) -> None:
        """All later work of the stream runs after the exchange. Blocks for host fields only."""
    def is_ready(self) -> bool:
        """Whether ``wait`` would return at once. Never blocks."""
    def _is_over(self) -> bool: ...
    def progress(self) -> None:
        """Carries the exchange on as far as possible now. Never blocks. (It also goes on by itself.)"""
    @property
    def epoch(self) -> int:
        """The number of the exchange, from 1."""
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
        """Exchanges the halos of these fields, given as pairs (pattern, array). All ranks give fields of the same patterns, as many,
        of the same element types and extra dimensions. A new field costs no communication. The fields are kept alive until the
        exchange is over.
        """
    def exchange_async(self, fields: _Bindings) -> Pending:
        """Begins an exchange; ``await`` the result."""
    def schedule_exchange(self, fields: _Bindings, stream: _StreamLike | Sequence[_StreamLike] = None) -> Pending:
        """As ``exchange(wait=False)``: host fields begin at once."""
    def wait(self) -> None:
        """Waits for the exchange begun last, if there is one."""
    def reclaim(self) -> bool:
        """After a failure: true once no peer can touch the fields any more."""
    @property
    def links(self) -> dict[str, int]:
        """The number of links of this rank that are ``direct``, ``mailbox`` and ``message``."""
    @property
    def paths(self) -> list[tuple[int, Literal["send", "receive"], str]]:
        """The links of this rank: peer, direction, path."""
    def explain(self) -> str:
        """A table of this rank's links: peer, path, through what, and the bytes that it carries at once."""

@final
class Redistribute:
    """How owned cells move from one decomposition or partition to another."""

    @staticmethod
    def regular(
        comm: Communicator,
        source: tuple[Decomposition, _HaloLike],
        target: tuple[Decomposition, _HaloLike],
    ) -> Redistribute:
        """Between two decompositions of one grid, each given as (decomposition, halo of its arrays). Collective."""
    @staticmethod
    def unstructured(
        comm: Communicator, source: Sequence[UnstructuredDomain], target: Sequence[UnstructuredDomain]
    ) -> Redistribute:
        """Between two sets of domains; each rank gives its own. Collective."""
    def back(self) -> Redistribute:
        """The redistribution in the other direction."""
    @property
    def pattern(self) -> Pattern:
        """The pattern behind it: domain d of the source has the number 2 d there, domain d of the target 2 d + 1. Its
        ``peers`` tell how many cells go where.
        """
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
        flags: _WordsWithFlags = "auto",
    ) -> HaloExchange:
        """Binds fields: ``source`` on the domains that cells leave, ``target`` on the domains that they reach. Options as for
        ``HaloExchange``. Collective.
        """

# --- traces ------------------------------------------------------------------------------------------------------

@final
class trace:
    """``with hc.trace("trace.json", comm):`` records what every rank does when, for Perfetto. Collective at both ends; rank 0
    writes the file.

    A rank records at most 131,072 events. The trace ends on all ranks where the first rank reaches its limit. A warning on standard
    error and ``events_left_out`` in ``otherData`` of the file say how many events are missing.

    A rank that leaves the block by an exception drops its record and waits for no rank; the others fail at the end, with
    ``CommunicatorError``, once that rank has left the group.
    """

    def __new__(cls, path: str | os.PathLike[str], comm: Communicator) -> trace: ...
    def __enter__(self) -> trace: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def on_device(self, halo: HaloExchange, stream: _StreamLike = None, *, rounds: int) -> DeviceTrace:
        """Adds what a stream of a GPU does in this many rounds, at most 32,768, by the GPU's own clock. The trace ends where a later
        round begins. The stream is of a device of the exchange's fields. Blocks: it compiles and loads a kernel of one thread, and compares clocks, so call it while no
        exchange is in flight.
        """

@final
class DeviceTrace:
    """Records the rounds of one stream, for ``trace.on_device``. Each round tells where the stream has come to::

        steps.stamp("begun")
        pending = halo.schedule_exchange(stream)
        steps.observe(pending)
        ...                         # what needs no halo
        steps.stamp("interior")
        pending.schedule_wait(stream)
        steps.stamp("waited")
        ...                         # the rest
        steps.stamp("done")

    Stamps do not wait for the GPU. Those after the last round do nothing; those after the trace's end raise
    ``HaloValueError``.
    """

    def stamp(self, moment: Literal["begun", "interior", "waited", "done"]) -> None:
        """The stream has come to a moment of this round: ``begun``, ``interior``, ``waited`` or ``done``, which ends it."""

    def observe(self, pending: Pending) -> None:
        """Stamps the end of this round's exchange, too, on a stream of its own."""
