"""Halo exchange of distributed arrays: bind once, exchange many times.

A *rank* is a member of a communicator. A *domain* is a piece of the global grid; a rank may own several. *Owned* cells
belong to the domain, *halo* cells are copies of cells that another domain owns. A *pattern* says which cells each domain
sends and receives; it contains no fields.

Arrays are used in place, with any strides: objects with ``__cuda_array_interface__``, ``__array_interface__`` (NumPy),
DLPack (PyTorch, CuPy, ...) or the buffer protocol, in the formats that NumPy reads; for another format give
``numpy.frombuffer(array, dtype)``. They must be writable and in the byte order of the machine. The package keeps them
alive as long as an exchange may touch them. An exchange increments the version counters of PyTorch tensors, so that
autograd refuses a tensor that it saved before (PyTorch 2.1 or later).

All ranks make calls marked *collective* in the same order. If one rank refuses its arguments there, the call is an
error on all ranks (except the collective calls of a ``Communicator`` itself). Calls that can wait release the GIL.

Ctrl-C interrupts a wait: ``KeyboardInterrupt``. An interrupted wait leaves the exchange running, as if its handle had
been dropped. An interrupted collective call stays incomplete; afterwards the communicator can only be closed. If a
signal for the whole job makes other ranks leave, the signal's exception replaces the error that they have left. This
holds for signals that reach this rank at most 200 ms after that news. Python raises a later one wherever the program
then is, as it does with any signal.
"""

import datetime
import os
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from types import GenericAlias, TracebackType
from typing import Any, Generic, Literal, Protocol, SupportsIndex, TypeVar, final, overload

from typing_extensions import Buffer, TypeAlias, disjoint_base

import numpy
import numpy.typing

_T = TypeVar("_T")
_TableT = TypeVar("_TableT")

_NumbersLike: TypeAlias = Sequence[SupportsIndex] | numpy.typing.NDArray[Any]
"""Whole numbers: a sequence or a one-dimensional array. Values such as 64.0, which ``operator.index`` refuses, are refused."""

_FlagsLike: TypeAlias = Sequence[bool] | numpy.typing.NDArray[Any]

__all__ = [
    "BuildTimeoutError",
    "ClosedError",
    "Communicator",
    "CommunicatorError",
    "CommunicatorTimeoutError",
    "Decomposition",
    "DeviceError",
    "DeviceMemory",
    "DeviceTrace",
    "Domain",
    "ExchangeFailedError",
    "ExchangeTimeoutError",
    "Field",
    "ForeignMemory",
    "ForkedError",
    "Graph",
    "HaloError",
    "HaloExchange",
    "HaloTypeError",
    "HaloValueError",
    "HostMemory",
    "IconGrid",
    "IconGridPart",
    "IcosahedralGrid",
    "InFlightError",
    "IndexLists",
    "MemoryShortageError",
    "Mesh",
    "MeshDomains",
    "MeshHalos",
    "MeshPart",
    "MpiError",
    "NeighborExchange",
    "NeighborRound",
    "NeighborSession",
    "Packet",
    "PacketExchangeError",
    "Partition",
    "PatchDecomposition",
    "PatchGrid",
    "PatchTransfer",
    "Pattern",
    "PatternLinks",
    "Payload",
    "Pending",
    "ProgramError",
    "Redistribute",
    "RefusedElsewhereError",
    "RegularGrid",
    "RollingContext",
    "RowError",
    "SessionRound",
    "SparseAlltoall",
    "Statistic",
    "Stream",
    "UnreachableError",
    "UnstructuredDomain",
    "cubed_sphere_point",
    "empty",
    "init",
    "rolling",
    "run_threads",
    "trace",
    "zeros",
]

__version__: str

# --- errors ------------------------------------------------------------------------------------------------------

class HaloError(Exception):
    """The base class of all errors of this package. The text says what was wrong, where, and what to do."""

class HaloValueError(HaloError, ValueError):
    """An argument has an impossible value. The text begins with the name of the argument: ``owners[3]: ...``."""

class UnreachableError(HaloValueError):
    """A rank cannot reach the memory of a peer by a link of the kind that the call needs: on another node, for example."""

class HaloTypeError(HaloError, TypeError):
    """An argument has the wrong type: not an array, an unsupported element type, a foreign byte order."""

class RefusedElsewhereError(HaloError):
    """Another rank refused its arguments in a collective call. The text names the rank and its reason."""

class InFlightError(HaloError):
    """An exchange of the same object or of the same memory is in flight: wait for it first.

    Memory is in flight until the program has waited for its exchange, even if the exchange ends sooner."""

class CommunicatorError(HaloError):
    """Ranks cannot reach each other: a rank has died or left, or the transport or its environment is wrong."""

class CommunicatorTimeoutError(CommunicatorError, TimeoutError):
    """A collective call took longer than the communicator's deadline."""

class ClosedError(CommunicatorError):
    """The communicator was closed."""

class ForkedError(CommunicatorError):
    """The object belongs to the parent process; a forked child cannot use it."""

class MpiError(CommunicatorError):
    """MPI is missing, failed, is finalised, or does not allow the call from this thread."""

class ExchangeFailedError(HaloError):
    """An exchange object has failed on all ranks that it connects; drop it and bind again.

    Attributes: ``rank`` (this rank), ``epoch`` (the exchange that failed), ``peer`` (the other rank of the link where this rank
    noticed the failure; ``None`` if it is of no link), ``culprit`` (the rank that caused or detected the failure).
    """

    rank: int
    """This rank."""
    epoch: int
    """The first exchange that failed; all earlier ones are complete."""
    peer: int | None
    """The other rank of the link where this rank noticed the failure. ``None`` if it is of no link: a GPU of this rank has failed,
    or checked mode found a fault within the rank."""
    culprit: int
    """The rank that caused or detected the failure."""

class ExchangeTimeoutError(ExchangeFailedError, TimeoutError):
    """A rank missed a deadline."""

class PacketExchangeError(HaloError):
    """A neighbour exchange or a sparse all-to-all has failed on all ranks that it connects, and is of no more use: a rank has dropped it
    or given it up, or ranks have started different operations. The text names the rank."""

class ProgramError(HaloError):
    """A compiled program cannot be loaded or initialised, or has failed; then its results are not valid."""

class BuildTimeoutError(ProgramError, TimeoutError):
    """Another process builds a program for longer than this one was to wait."""

class MemoryShortageError(HaloError, MemoryError):
    """There is no memory for a payload: the limit of a memory resource is reached, or an allocator of the program has failed, whose
    exception is the ``__cause__``. The operation has failed on all ranks."""

class RowError(HaloValueError):
    """A row of a table that is not sorted, or has no key. The text has the values.

    Attributes: ``rank``, ``row`` (of that rank's table, counted from 0), ``column``.
    """

    rank: int
    row: int
    column: str

class DeviceError(HaloError):
    """A device refused a call or has failed."""

class _Resource(Protocol):
    def allocate(self, size: int, /) -> int: ...
    def deallocate(self, address: int, size: int, /) -> object: ...

class _Pointer(Protocol):
    @property
    def ptr(self) -> int: ...

_PacketLike: TypeAlias = Packet | Buffer | Any
"""A packet, or an object with bytes: the packet with that payload and without metadata."""

# --- communicators -----------------------------------------------------------------------------------------------

@final
class Communicator:
    """A group of ranks.

    ``Communicator(comm)`` takes a communicator of mpi4py (of the MPI library that the process has loaded), or an
    ``MPI_Comm`` as a number (an intracommunicator). Collective over its ranks. It duplicates the communicator, so that
    messages of the package never mix with the program's. Outside MPI, ``init()`` and ``run_threads()`` make communicators.

    ``node_aware``: whether ranks of a node share memory; by default the value of ``HALOCLINE_NODE_AWARE``.
    ``deadline``: as for ``with_deadline``.

    A collective call of the communicator itself is one round of messages. If a rank refuses an argument there, only that
    rank gets an error; the others wait for it until the deadline.
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
        """A communicator of the same ranks whose collective calls are independent of this one's. Collective; does not
        communicate.
        """
    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Splits the ranks into one communicator for each ``color``, as ``MPI_Comm_split``: it has the ranks that pass this color,
        ordered by ``key``, and by their rank here where keys are equal. ``color=None`` returns ``None``. Collective.
        """
    def with_deadline(self, seconds: float | None) -> Communicator:
        """The same communicator with a deadline: a collective call that takes more seconds fails with
        ``CommunicatorTimeoutError``. ``None``: no deadline.
        """
    def barrier(self) -> None:
        """Blocks until all ranks have called it. Collective."""
    def broadcast(self, root: int, data: bytes) -> bytes:
        """Returns the ``data`` of rank ``root`` on every rank. Collective; blocks."""
    def all_gather(self, data: bytes) -> list[bytes]:
        """Returns the ``data`` of all ranks, in the order of ranks, on every rank. Collective; blocks."""
    @overload
    def all_reduce(self, values: Sequence[SupportsIndex], op: Literal["sum", "min", "max"] = "sum") -> list[int]: ...
    @overload
    def all_reduce(
        self, values: Sequence[float] | numpy.typing.NDArray[Any], op: Literal["sum", "min", "max"] = "sum"
    ) -> list[Any]:
        """Combines the values of all ranks element by element; ``op`` is ``sum``, ``min`` or ``max``. Values are whole numbers from
        0 below 2**64, whose sums may be larger, or floats: on all ranks of the same kind and equally many. Collective; blocks.
        """
    def agree(self, error: BaseException | None = None) -> None:
        """Reports whether a local step has failed on any rank. A rank that passes an error raises it here; all other ranks then raise
        ``RefusedElsewhereError``. Use it after a local call that may fail on some ranks only, as ``MeshPart.halos``. Collective;
        blocks.
        """
    def neighbor_exchange(
        self, periodic: bool = False, *, memory: _Memory | None = None, deadline: float | None = None
    ) -> NeighborExchange:
        """The exchange of packets with the rank before and the rank after this one. Collective; does not block.

        ``periodic``: whether rank 0 and the last rank are neighbours, too. ``memory``: where received payloads lie, by default a
        ``HostMemory`` without a limit; each rank chooses its own. ``deadline``: seconds for each round, by default the
        communicator's. If one rank refuses its arguments, rounds of the others raise ``RefusedElsewhereError``.
        """
    def sparse_alltoall(
        self,
        sends: Mapping[int, _PacketLike | Sequence[_PacketLike]],
        *,
        sources: _NumbersLike | None = None,
        memory: _Memory | None = None,
    ) -> dict[int, list[Packet]]:
        """Sends packets to a few ranks, and returns those of its sources: for each source a list, in the order in which the source
        has them. Collective; blocks.

        ``sends``: for each destination one packet or a list of them; a list may be empty. An object with bytes (``bytes``, an
        array) stands for ``Packet(payload=...)``. A rank does not send to itself. ``sources``: the ranks that have this rank among
        their destinations. ``None`` discovers them, which costs some messages and a barrier more; all ranks give sources, or none
        does. ``memory``: as for ``neighbor_exchange``. ``SparseAlltoall`` is the same in steps.

        If one rank refuses its arguments, the others raise ``RefusedElsewhereError``: all of them where sources are discovered,
        otherwise those that are connected with it through the sets. The packets of the rest are all there.
        """
    def mappings(self) -> dict[str, int]:
        """Counters of this rank's mapping cache: mappings of other ranks' memory here, and of this rank's memory elsewhere."""
    def close(self) -> None:
        """Leaves the group: closes this communicator, its duplicates and all objects bound with them. Later calls raise
        ``ClosedError``, and so do waits of other threads, within about 50 ms. Exchanges in flight continue; peers that wait for
        later ones get an error. The end of the interpreter and the end of a ``with`` block do the same.
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

    A rank leaves the group when its function raises or returns; the first error is raised here, and waits of other ranks for
    that rank fail. A rank that returns stays in the group while something keeps its communicator, or a pattern or
    redistribution made with it (its result, for instance). Its exchanges in flight continue.

    Ctrl-C closes the communicators of all ranks: their waits and later calls raise ``KeyboardInterrupt``. It is raised here
    once all ranks have ended; a second Ctrl-C raises it at once.
    """

# --- grids and patterns ------------------------------------------------------------------------------------------

_HaloLike: TypeAlias = SupportsIndex | _NumbersLike | Sequence[_NumbersLike]
"""The width of a halo: one number, one for each axis, or (low, high) for each axis."""

_Neighbours: TypeAlias = Literal["faces", "edges", "all"]
"""Which halo cells are filled: those outside along one axis, along one or two axes, or all (also corners)."""

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
        """Cuts the grid into one block for each domain, so that blocks share as few faces as possible. ``comm`` is a communicator or a
        number of ranks; with a number, ``Decomposition.pattern`` needs ``comm=``. Local; the result is the same on all ranks.
        """
    def decompose_into(self, blocks: _NumbersLike, comm: Communicator | SupportsIndex) -> Decomposition:
        """Cuts the grid into ``blocks[a]`` blocks along each axis a. Local."""
    def decompose_at(self, cuts: Sequence[_NumbersLike], comm: Communicator | SupportsIndex) -> Decomposition:
        """Cuts the grid at explicit positions: ``cuts[a]`` are the cells, ascending, at which a new block of axis a starts. Local."""
    def decompose_boxes(
        self, boxes: Sequence[tuple[SupportsIndex, _NumbersLike, _NumbersLike]], comm: Communicator | SupportsIndex
    ) -> Decomposition:
        """Cuts the grid into boxes ``(rank, first cell, cells along each axis)``, which cover the grid without overlap. Box i is
        domain i; all ranks pass all boxes. A rank may own any number of boxes. Local.
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
        """The decomposition of the points between cells along the axes whose flag is true. Local."""
    def domains_of(self, rank: int, halo: _HaloLike | None = None) -> list[Domain]:
        """The domains of a rank, ascending by id, with halos of the given width (by default none). Local."""
    def pattern(
        self, halo: _HaloLike, *, neighbours: _Neighbours = "all", comm: Communicator | None = None
    ) -> Pattern:
        """The pattern that fills halos of the given width, in cells. ``halo`` is one width, a width for each axis, or a pair (low,
        high) for each axis. ``neighbours`` says which halo cells are filled: ``faces``, ``edges`` or ``all``. Collective; all
        ranks pass the same arguments.
        """

_Side: TypeAlias = tuple[SupportsIndex, SupportsIndex, Literal["low", "high"]]
"""A side of a patch: the patch, the axis that leaves it there, and whether the side is before cell 0 or behind the last one."""

_Seam: TypeAlias = (
    tuple[Literal["join", "join_reversed"], _Side, _Side] | tuple[Literal["fold_cell", "fold_corner", "pole"], _Side]
)
"""Two sides that are joined, where coordinates along them run in the same direction or in opposite ones; or one that is folded
onto itself about the centre of cell 0 or about the corner before it, or joined with itself across a pole."""

_Along: TypeAlias = Literal["centre", "faces", "high_faces", "low_faces"]
"""Where values lie along an axis of n cells: n at centres, n + 1 at all faces, n at the high face of each cell, or n at the low face."""

_Quantity: TypeAlias = (
    Literal["cells", "corners", "cell_vectors", "c_grid", "d_grid"] | Sequence[tuple[_Along, _Along]]
)
"""What a field holds: scalars at centres or at corners, vectors at centres, or vectors whose components lie at the faces that
they cross (``c_grid``) or along which they point (``d_grid``); or the places of a scalar, or of both components."""

@final
class PatchGrid:
    """Patches of rows and columns of cells, and the seams that join their sides: grids of the Earth.

    ``patches``: rows and columns of each. ``seams``: the joined sides. A side without a seam is a border. Axis 0 of a patch counts
    rows, axis 1 columns.

    Grids are values: they compare by their contents, and can be copied, pickled and used as keys.
    """

    def __new__(cls, patches: Sequence[_NumbersLike], seams: Sequence[_Seam]) -> PatchGrid: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    @staticmethod
    def cubed_sphere(n: SupportsIndex) -> PatchGrid:
        """Six tiles of n x n cells, joined as those of FV3. Tile 2 lies on the north pole, tile 5 on the south pole."""
    @staticmethod
    def lat_lon_cap(n: SupportsIndex) -> PatchGrid:
        """The five patches of an LLC grid: 3 n x n, 3 n x n, n x n, n x 3 n and n x 3 n cells."""
    @staticmethod
    def tripolar(shape: _NumbersLike, pivot: Literal["cell", "corner"]) -> PatchGrid:
        """Rows from south to north, columns around the Earth, folded at the northern side about the centre of cell 0 (a T point, as in
        ORCA2) or about the corner before it (an F point). ``shape`` leaves out the rows and columns that a model adds as halo.
        """
    @staticmethod
    def latitude_longitude(shape: _NumbersLike) -> PatchGrid:
        """Rows from the south pole to the north pole, columns around the Earth."""
    def corners_through(self, axis: SupportsIndex) -> PatchGrid:
        """The same grid, where halo cells behind corners of three patches are filled with the cells that are reached through the side
        of this axis first. Otherwise an exchange leaves them unchanged.
        """
    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Rows and columns of each patch."""
    @property
    def seams(self) -> list[_Seam]:
        """The seams, as the constructor takes them: ``("join", side, side)``, or ``"join_reversed"`` where coordinates along the two
        sides run in opposite directions; ``("fold_cell", side)``, ``"fold_corner"`` or ``"pole"`` for one side. A side is
        ``(patch, axis, "low" or "high")``.
        """
    def decompose(self, comm: Communicator | SupportsIndex) -> PatchDecomposition:
        """Cuts the patches into the fewest blocks for each rank with which all ranks own about the same number of cells. ``comm`` is a
        communicator or a number of ranks; with a number, ``PatchDecomposition.pattern`` needs ``comm=``. Local; the result is the same on
        all ranks.
        """
    def decompose_into(self, blocks: Sequence[_NumbersLike], comm: Communicator | SupportsIndex) -> PatchDecomposition:
        """Cuts patch i into ``blocks[i]`` blocks along its axes. Domains are dealt out to the ranks in turn. Local."""

def cubed_sphere_point(tile: SupportsIndex, along: numpy.typing.ArrayLike) -> numpy.typing.NDArray[numpy.float64]:
    """Unit vectors to points of tile 0 to 5 of ``PatchGrid.cubed_sphere``, in an equiangular projection. ``along``, of shape (..., 2), has
    the coordinates of the points along both axes of the tile, from 0 at the low side to 1 at the high side. The projection goes on beyond
    the sides, and ends at -0.5 and 1.5. The result has the shape (..., 3).
    """

@final
class PatchTransfer:
    """Values of one domain that fill halo cells of another, or of the same one. Made by ``PatchDecomposition.transfers``.

    Indices count from the first value that a domain holds: those of halo cells may be negative.
    """

    @property
    def source_domain(self) -> int:
        """The domain that owns the values."""
    @property
    def target_domain(self) -> int:
        """The domain whose halo cells are filled."""
    @property
    def source_rank(self) -> int:
        """The rank that owns ``source_domain``."""
    @property
    def target_rank(self) -> int:
        """The rank that owns ``target_domain``."""
    @property
    def source_component(self) -> int:
        """The component of the values; 0 for scalars."""
    @property
    def target_component(self) -> int:
        """The component that is filled; 0 for scalars."""
    @property
    def source(self) -> tuple[int, int]:
        """The index of the first value of the source box along each axis."""
    @property
    def target(self) -> tuple[int, int]:
        """The index of the first value of the target box along each axis."""
    @property
    def shape(self) -> tuple[int, int]:
        """The extents of the target box; of the source box if ``swapped`` is false."""
    @property
    def swapped(self) -> bool:
        """Whether axis 0 of the target is axis 1 of the source, and axis 1 is axis 0."""
    @property
    def flipped(self) -> tuple[bool, bool]:
        """For each axis of the target: whether values along it are read backwards."""
    @property
    def negated(self) -> bool:
        """Whether the values change their sign."""

@final
class PatchDecomposition:
    """A grid of patches cut into blocks, each a domain of one rank. Domains are numbered patch by patch."""

    @property
    def ranks(self) -> int:
        """The number of ranks."""
    @property
    def domains(self) -> int:
        """The number of domains."""
    @property
    def blocks(self) -> list[tuple[int, int]]:
        """Blocks of each patch along its axes."""
    def block(
        self, domain: SupportsIndex, quantity: _Quantity = "cells", component: SupportsIndex = 0
    ) -> tuple[int, tuple[int, int], tuple[int, int]]:
        """The patch of a domain, its first cell there, and its rows and columns. With a quantity: of the values of one of its components
        that the domain holds. Local.
        """
    def owner(self, domain: SupportsIndex) -> int:
        """The rank that owns a domain. Local."""
    def domains_of(self, rank: SupportsIndex) -> list[int]:
        """The domains of a rank. Local."""
    def transfers(
        self, rank: SupportsIndex, halo: _HaloLike, quantity: _Quantity = "cells", *, neighbours: _Neighbours = "all"
    ) -> list[PatchTransfer]:
        """All transfers that a rank sends, receives or makes within itself to fill the halos of a quantity: for programs that send
        messages themselves, and to look at the pattern of any rank. Two ranks list the transfers between them in the same order.
        Arguments as those of ``pattern``. Local.
        """
    def pattern(
        self,
        halo: _HaloLike,
        quantity: _Quantity = "cells",
        *,
        neighbours: _Neighbours = "all",
        comm: Communicator | None = None,
    ) -> Pattern:
        """The pattern that fills halos of the given width, in cells, of a quantity. Vectors have two fields for each domain: bind each
        with the ``Pattern.component`` that it holds. Collective; all ranks pass the same arguments.
        """

@final
class Domain:
    """A domain of this rank: which cells of its array are owned, interior, boundary and halo, and where they lie in the global grid or
    in their patch.

    Indices and coordinates count cells. A box of cells is a tuple with a slice for each axis: the index of these cells in an
    array of ``shape``, as in ``t[domain.owned]``. Extra axes (levels, components) may follow the domain's. The boxes are
    wrong for an array of another shape (``Field(origin=...)``, ``Field(axes=...)``).
    """

    @property
    def id(self) -> int:
        """Its global number."""
    @property
    def shape(self) -> tuple[int, ...]:
        """Extents, along the axes of the pattern, of the smallest array that holds owned and halo cells."""
    @property
    def first(self) -> tuple[int, ...] | None:
        """Of a regular grid: the first owned cell in the global grid. On patches: the first value that the domain holds, counted in its
        patch. ``None`` for unstructured domains.
        """
    @property
    def owned_shape(self) -> tuple[int, ...]:
        """Number of owned cells along each axis; of an unstructured domain their number, as ``(n,)``."""
    @property
    def halo(self) -> tuple[tuple[int, int], ...] | None:
        """Of a regular grid or patches: the halo width at the low and the high side of each axis. ``None`` for unstructured
        domains.
        """
    @property
    def owned(self) -> tuple[slice, ...]:
        """The box of the owned cells. ``HaloValueError`` if an unstructured domain has halo cells before owned ones, here and for the
        boxes below: take ``owned_indices``.
        """
    def interior(self, width: SupportsIndex) -> tuple[slice, ...]:
        """The box of the owned cells whose stencil of ``width`` cells to each side reads no cell that an exchange fills: neither a halo
        cell nor, on a :class:`PatchGrid`, a copy of a value that another patch owns. Compute them while the exchange is in flight.
        Its slices are empty if there are none.

        An axis without a halo at one side does not limit the box there. Halo cells beyond a border that is not periodic count
        as halo. An unstructured domain has no widths: all owned cells if ``width`` is 0, else none.
        """
    def boundary(self, width: SupportsIndex) -> list[tuple[slice, ...]]:
        """The owned cells outside ``interior(width)``, in disjoint boxes, at most two for each axis: compute them after the wait."""
    @property
    def halo_boxes(self) -> list[tuple[slice, ...]]:
        """The halo cells, in disjoint boxes, at most two for each axis."""
    def to_global(self, index: _NumbersLike) -> tuple[int, ...]:
        """The coordinates in the global grid of a local index, which has a number for each axis and may be of a halo cell. Halo
        cells beyond a periodic border keep counting: their coordinates are negative, or not below the grid's shape. On patches the
        coordinates count in the patch of the domain, and keep counting behind its sides.

        ``HaloValueError`` if the index is outside ``shape`` or the domain is unstructured.
        """
    def to_local(self, coordinates: _NumbersLike) -> tuple[int, ...] | None:
        """The local index of coordinates in the global grid or the patch, the inverse of ``to_global``. ``None``: the domain holds no such
        cell. ``HaloValueError`` if the domain is unstructured.
        """
    @property
    def global_ids(self) -> numpy.typing.NDArray[numpy.uint64] | None:
        """Of an unstructured domain: the global ids of all cells, owned and halo, in local order. ``None`` for regular grids, for
        patches and for domains of a redistribution.
        """
    @property
    def owned_indices(self) -> numpy.typing.NDArray[numpy.uint64] | None:
        """Of an unstructured domain: the local indices of its owned cells, ascending. ``None`` as for ``global_ids``."""

@final
class Pattern:
    """Which cells the domains of this rank exchange with which others. It contains no fields."""

    @staticmethod
    def unstructured(comm: Communicator, domains: Sequence[UnstructuredDomain]) -> Pattern:
        """The pattern of domains given by global ids or owners. Each rank passes its own domains, any number of them.
        Collective; blocks.
        """
    @property
    def domains(self) -> list[Domain]:
        """The domains of this rank, ascending by their ids."""
    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of this rank's domain; ``HaloValueError`` if the rank has no domain or several."""
    @property
    def peers(self) -> list[tuple[int, int, int]]:
        """For each peer: its rank, the number of cells sent to it, the number of cells received from it."""
    def component(self, component: SupportsIndex) -> Pattern:
        """The same pattern for fields of one component of its vectors, 0 along the rows' axis or 1 along the columns'. Local."""
    def narrowed(self, halo: _HaloLike, *, neighbours: _Neighbours = "all") -> Pattern:
        """The pattern of a narrower halo in the same arrays: exchanges fill only that part of the halo. Collective."""
    def gather_to(self, root: SupportsIndex, fields: _Parts) -> numpy.typing.NDArray[Any] | None:
        """Copies the owned cells of a distributed field into one NumPy array on rank ``root``; the other ranks get ``None``.
        ``fields``: this rank's array, or a list with an array for each of its domains (an empty list where it has none).

        The array is in C order. For a regular grid its axes are those of the grid, then the extra axes of the field (levels,
        components). For an unstructured pattern its first axis is the cells by ascending global id. Rank ``root`` needs memory
        for the whole field. Collective; blocks.
        """
    def save(self, path: str | os.PathLike[str], fields: _Parts) -> None:
        """Writes the owned cells of a distributed field to a NumPy file (``.npy``), or, if the name ends in ``.zarr``, to a Zarr
        version 3 array (a directory), in the order of ``gather_to``. Rank 0 gathers and writes the file. All ranks give the same
        path. Collective; blocks until the file is complete. If the write fails, an older file stays as it was.
        """

@final
class UnstructuredDomain:
    """A piece of an unstructured grid: the global ids of its cells in local order, and which of them are halo.

    ``UnstructuredDomain(id, owned, halo)``: all ``owned`` cells come first in local order, then all ``halo`` cells.

    ``id`` is the number of the domain: no other domain of any rank may have it. Cell ids are integers from 0 below 2**64,
    in a sequence or a one-dimensional integer array. ``Pattern.unstructured`` checks the ids of all ranks against each other.

    Domains are values: they compare by their contents, and can be copied, pickled and used as keys.
    """

    def __new__(cls, id: int, owned: _IdsLike, halo: _IdsLike) -> UnstructuredDomain: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    @staticmethod
    def from_indices(id: int, cells: _IdsLike, halo: _IdsLike) -> UnstructuredDomain:
        """``cells``: global ids in local order; ``halo``: the local indices of halo cells."""
    @staticmethod
    def from_owners(id: int, comm: Communicator, cells: _IdsLike, owners: _IdsLike) -> UnstructuredDomain:
        """``cells``: global ids in local order; ``owners``: the rank that owns each. Cells of other ranks are halo."""
    def with_levels(self, ends: _NumbersLike) -> UnstructuredDomain:
        """The domain with the depths of its halo, which ``narrowed`` needs: cells ``0:ends[d]`` in local order are the owned cells and
        the halo of depth d.
        """
    @property
    def levels(self) -> tuple[int, ...]:
        """The ``ends`` of ``with_levels``."""
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

    Repeated neighbours and cells listed as their own neighbour are dropped. An edge that only one of its cells lists is
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

    ``Partition(owners, ranks)``: ``owners[c]`` is the rank that owns cell c, from 0 below ``ranks``.

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
        """METIS' multilevel k-way partition. Local; the same graph gives the same partition on every rank."""
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

    ``vertices``: their number. ``connectivity`` has a row of vertices for each element (two dimensions), or is flat, and
    ``offsets`` says where each element begins. ``solid``: elements are solids in VTK's vertex order, not polygons.

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
        """Element e has the vertices ``connectivity[offsets[e]:offsets[e + 1]]``."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def vertex_graph(self) -> Graph:
        """The graph of vertices, for a partition of them: vertices are neighbours if an element connects them."""
    def element_graph(self, common: int) -> Graph:
        """The graph of elements, for a partition of them: elements are neighbours if they share ``common`` vertices or more."""
    def domains_by_vertex(self, partition: Partition, rank: int) -> MeshDomains:
        """The domains of a rank for a partition of the vertices. An element belongs to the lowest rank of its vertices."""
    def domains_by_element(self, partition: Partition, rank: int) -> MeshDomains:
        """The domains of a rank for a partition of the elements. A vertex belongs to the lowest rank of its elements."""
    def halos(
        self, partition: Partition, part: int, depth: int, *, shared: Literal["vertex", "edge", "facet"] = "vertex"
    ) -> MeshHalos:
        """The domains of a part of a partition of the elements, with halos ``depth`` elements deep. ``shared`` says what two
        elements must have in common to be neighbours: a ``vertex``, an ``edge`` or a ``facet``. Local; it may fail on some ranks
        only (``Communicator.agree``).
        """
    def icon_halos(self, partition: Partition, part: int) -> MeshHalos:
        """The domains of a part of a partition of the polygons, with the halos and owners of ICON. The cutting line consists of the
        edges between cells (elements) of the part and of others. ``levels`` of the domains has the ends of these levels:

        - level 1: cells with an edge on the cutting line; vertices and edges on it that belong to other parts
        - level 2: all other cells with a vertex on the cutting line; all other vertices of the cells; all other edges with a vertex
          on the cutting line
        - level 3: all other edges of the cells

        A vertex or an edge on the cutting line belongs to the highest part beside it. (``halos`` gives it to the lowest one.) Local.
        """
    def refined_part(self, partition: Partition, part: int, segments: int, depth: int) -> MeshPart:
        """A part of the finer mesh that cuts every edge of the triangles into ``segments``, with what halos up to ``depth`` finer
        elements deep need. A finer triangle belongs to the part of its coarse triangle. No rank holds the whole finer mesh.

        Global numbers: the finer triangles of triangle t begin at ``segments**2 * t``. The vertices of this mesh come first, then
        those on its edges (ordered by the pairs of their vertices), then those inside its triangles.
        """

@final
class MeshPart:
    """What a rank holds of a mesh that no rank holds as a whole, for halos up to ``depth`` elements deep around a part.

    ``mesh``: the local elements and vertices, numbered from 0; ``vertices`` and ``elements``: their global numbers;
    ``partition``: the part of each local element. Every element that is at most ``depth + 1`` steps over shared vertices away
    from the part must be local. This cannot be checked here; if ranks disagree on an owner, ``Pattern.unstructured`` fails.
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
    def icon_halos(self) -> MeshHalos:
        """The domains of the part with the halos of ICON, as ``Mesh.icon_halos`` of a whole mesh gives them, with global numbers. The
        part must have been made for a depth of 1 or more.
        """

@disjoint_base
class MeshDomains:
    """The domains of one rank for fields on vertices and on elements. Owned cells come first in local order."""

    @property
    def vertices(self) -> UnstructuredDomain:
        """The domain of the vertices."""
    @property
    def elements(self) -> UnstructuredDomain:
        """The domain of the elements."""
    @property
    def owned_vertices(self) -> int:
        """The number of owned vertices, which have the local indices from 0."""
    @property
    def owned_elements(self) -> int:
        """The number of owned elements, which have the local indices from 0."""
    @property
    def connectivity(self) -> numpy.typing.NDArray[numpy.uint64]:
        """The local vertices of the local elements, one element after the other."""
    @property
    def offsets(self) -> numpy.typing.NDArray[numpy.uint64]:
        """Local element e has the vertices ``connectivity[offsets[e]:offsets[e + 1]]``."""

@disjoint_base
class MeshHalos(MeshDomains):
    """``MeshDomains`` with edges."""

    @property
    def edges(self) -> UnstructuredDomain:
        """The domain of the edges."""
    @property
    def owned_edges(self) -> int:
        """The number of owned edges, which have the local indices from 0."""
    @property
    def edge_vertices(self) -> numpy.typing.NDArray[numpy.uint64]:
        """The local vertices at the two ends of each local edge: shape (edges, 2)."""

@final
class IconGrid:
    """An open grid file of ICON: triangles, their edges and vertices, on the whole Earth or in a limited area. It is a NetCDF file,
    classic or NetCDF-4.

    All methods are local and read only what they need: ``mesh`` the variable ``vertex_of_cell``, in full; ``part`` the columns of
    ``vertex_of_cell``, ``cells_of_vertex``, ``edge_of_cell``, ``edge_vertices`` and ``adjacent_cell_of_edge`` that are in the part or near
    it; ``read`` the listed columns. In a file without ``cells_of_vertex``, ``part`` reads ``vertex_of_cell`` in full, twice. A method may
    fail on some ranks only (``Communicator.agree``).

    Cells, edges and vertices are numbered as in the file, but from 0.
    """

    def __new__(cls, path: str | os.PathLike[str]) -> IconGrid: ...
    @property
    def cells(self) -> int:
        """The number of cells."""
    @property
    def edges(self) -> int:
        """The number of edges."""
    @property
    def vertices(self) -> int:
        """The number of vertices."""
    def mesh(self) -> Mesh:
        """All cells with their vertices, for a partition by METIS."""
    def part(self, partition: Partition, part: int) -> IconGridPart:
        """The domains of a part of a partition of the cells, with the halos and owners of ICON (``Mesh.icon_halos``)."""
    def read(self, name: str, ids: _IdsLike) -> numpy.typing.NDArray[numpy.float64]:
        """The values of a variable, such as ``clon`` or ``cell_area``, for the listed cells, edges or vertices: those along its last
        dimension. A variable with two dimensions, such as ``orientation_of_normal``, has a row of values for each of them.
        """

@final
class IconGridPart(MeshHalos):
    """``MeshHalos`` of a grid file of ICON. Elements are the cells, and the tables have the order of the file's entries."""

    @property
    def cell_edges(self) -> numpy.typing.NDArray[numpy.uint64]:
        """The local edges of each local cell: shape (cells, 3)."""
    @property
    def edge_cells(self) -> numpy.typing.NDArray[numpy.int64]:
        """The local cells beside each local edge: shape (edges, 2); -1 where no cell is, or one that is not local."""

@final
class IcosahedralGrid:
    """A grid of triangles on the sphere, as ICON and DYNAMICO use it: an icosahedron whose edges are bisected ``bisections`` times, at most
    13, so that each of its 20 faces becomes 4 ** bisections triangles. The middle of each edge is moved to the sphere.

    Triangle t of one bisection becomes the triangles 4 t to 4 t + 3 of the next one: those at its corners, then the one in its middle.
    Vertices keep their numbers. Corners are counterclockwise seen from outside. ICON's grid R2B4 has as many triangles as this one with
    5 bisections; ICON then moves the vertices a little.
    """

    def __new__(cls, bisections: int) -> IcosahedralGrid: ...
    @property
    def mesh(self) -> Mesh:
        """The triangles and their vertices."""
    @property
    def points(self) -> numpy.typing.NDArray[numpy.float64]:
        """Each vertex as a point of the unit sphere: shape (vertices, 3). A new array each time, which cannot be written."""

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
    """An array with its relation to a domain.

    ``domain``: the id of the domain that the array belongs to; needed if a rank owns several. ``axes``: the dimensions of the
    array that are the pattern's axes, by default the first ones; an array ``[levels, y, x]`` needs ``axes=(1, 2)``. ``origin``:
    the index, along the axes of a regular grid, of the first owned cell; by default the halo width. An array with an ``origin`` may
    have spare cells at both ends of these axes. ``padded``: without ``origin``, it may have spare cells at their high ends.

    Without ``origin`` and ``padded`` the array must have exactly the shape of its domain along these axes.
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
        """The element type, such as ``float64``; for plain bytes their meaning, such as ``datetime64[s]``."""
    @property
    def domain(self) -> int | None:
        """The id of the domain, if one was given."""
    @property
    def device(self) -> int | None:
        """The ordinal of the GPU; ``None`` for host memory."""

_FieldLike: TypeAlias = Field | _ArrayLike
_Parts: TypeAlias = _FieldLike | list[_FieldLike] | tuple[_FieldLike, ...]
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
    """A NumPy array in memory that as many peers as possible can access directly. With ``device``, the ordinal of a GPU, a CuPy
    array in memory that other ranks can map. ``comm``: by default that of ``init()``. ``order``: ``C`` or ``F``.

    Ranks that are processes of one node share this memory, and so does a forked child (``os.fork``, the start method ``fork``
    of ``multiprocessing``): the parent sees what the child writes. Give a child a copy to compute with: ``array.copy()``.
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

_LinkChoice: TypeAlias = Literal["auto", "push", "pull", "mailbox", "message", "nccl"]
_ReduceOp: TypeAlias = Literal["sum", "product", "min", "max", "and", "or", "xor", "replace"]

_Ll: TypeAlias = int | Literal["auto", "never"]
"""A number of bytes, from 1 to 1 MiB (larger values count as 1 MiB), or ``never``. ``auto``: ``HALOCLINE_LL``, or the measured optimum."""

@final
class HaloExchange:
    """Fields whose halos are exchanged together: bound once, exchanged many times. Collective; all ranks bind fields of the same
    patterns in the same order.

    ``fields``: pairs (pattern, array), where an array may be a ``Field``. The n-th field of a domain of a pattern is exchanged
    with the n-th field of every other domain of that pattern.
    ``link``: the path of the bytes, the same on all ranks: ``auto``, ``push``, ``pull``, ``mailbox``, ``message`` or, for fields of GPUs,
    ``nccl``.
    ``deadline``: seconds that an exchange may take before the object fails. They count from its begin, of GPU fields from when their
    streams reach it, also while no caller waits.
    ``name``: the name of the object in traces and checked mode.
    ``checked``: every exchange verifies its result, at a cost; by default the value of ``HALOCLINE_CHECK``. Of GPU fields the
    cells that are sent and filled are checked; such an object cannot be captured into a CUDA graph.
    ``streams``: an ``exchange`` of device fields starts after the earlier work of these; by default the null stream.
    ``inline``: scheduled exchanges run on the given streams themselves, not on streams of the object.
    ``stream_waits``: streams wait for peers, kernels never do; by default the value of ``HALOCLINE_STREAM_WAITS``. Otherwise an
    exchange between GPUs that each serve one rank is one kernel. That saves some microseconds, but a cooperative kernel, which
    needs the whole GPU, then starts only after it.
    ``ll``: messages between GPUs of at most this many bytes use the LL (low-latency) protocol, which needs one step between
    the GPUs instead of two. A number of bytes, ``auto`` (the sizes that measured faster) or ``never``; by default the value of
    ``HALOCLINE_LL``, else ``auto``. The smaller value of the two ranks counts.
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
        stream_waits: bool | None = None,
        ll: _Ll | None = None,
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
        stream_waits: bool | None = None,
        ll: _Ll | None = None,
    ) -> HaloExchange:
        """Binds several sets of fields; each exchange takes one of them (``set=``), as for time levels that swap. Options as for
        ``HaloExchange``. Collective; blocks.
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
        """Starts an exchange and blocks until halos are filled and owned cells may be overwritten. With ``wait=False`` it only starts
        the exchange, and returns a ``Pending``.

        Host fields are read and written from the call until the wait has returned. Device fields are read and written after all
        earlier work of ``streams`` (by default those of the bind). ``set``: the index of a set of ``alternatives``.
        """
    def exchange_async(self, *, set: int = 0, streams: Sequence[_StreamLike] | None = None) -> Pending:
        """Starts an exchange at the call; ``await`` the result. Cancelling the task leaves the exchange running.

        The result is an awaitable, not a coroutine: use ``asyncio.ensure_future``, not ``asyncio.create_task``.
        """
    @overload
    def reduce(
        self, op: _ReduceOp = "sum", *, keep: bool = False, wait: Literal[True] = True, set: int = 0
    ) -> None: ...
    @overload
    def reduce(self, op: _ReduceOp = "sum", *, keep: bool = False, wait: Literal[False], set: int = 0) -> Pending: ...
    @overload
    def reduce(self, op: _ReduceOp = "sum", *, keep: bool = False, wait: bool, set: int = 0) -> Pending | None:
        """The reverse of ``exchange``: combines each halo cell with the owned cell that it copies, ``owned = op(owned, halo)``, and
        clears it, unless ``keep`` is true. Blocks until that is done. With ``wait=False`` it only starts, and returns a ``Pending``.

        ``op``: ``sum``, ``product``, ``min``, ``max``, ``replace``; for integers and bool also ``and``, ``or``, ``xor``. Integers wrap, a
        bool is one bit. The halo cells of one owned cell are combined in the order of their domains' numbers: the result is the
        same to the bit on any transport and number of ranks.

        All ranks start exchanges and reduces of an object in one order. Until the wait no cell of the arrays may be read or written.
        GPU fields are reduced on their GPUs; not if their halo travels in messages. Checked mode checks reduces of host fields.
        """
    def schedule_reduce(
        self,
        op: _ReduceOp = "sum",
        stream: _StreamLike | Sequence[_StreamLike] = None,
        *,
        keep: bool = False,
        set: int = 0,
    ) -> Pending:
        """As ``reduce``, after all earlier work of the stream, as ``schedule_exchange``. Host fields start at once. If the stream is being
        captured into a CUDA graph, the reduce becomes part of the graph."""
    def fetch_and_op(self, op: _ReduceOp = "sum") -> None:
        """Combines halo cells with the owned cells that they copy, as ``reduce`` does, and gives each halo cell the value that its owned
        cell had just before that. The halo cells of an owned cell follow in the order of their domains' numbers.

        With counts in the halo and 0 in the owned cells, a sum gives each halo cell the first of as many numbers that no other domain gets,
        and each owned cell the count of all. Of ``alternatives`` it takes the first set.

        Collective, blocks. It is meant for a program's start: the halo goes to the owners and back in messages. GPU fields are read after
        all earlier work of the object's ``streams``, which the call waits for. What one rank refuses, all refuse.
        """
    def degree(self) -> list[numpy.typing.NDArray[numpy.uint32]]:
        """How many halo cells copy each cell: for each field of the (first) set an array of the shape of its domain, 0 at halo cells."""
    def schedule_exchange(self, stream: _StreamLike | Sequence[_StreamLike] = None, *, set: int = 0) -> Pending:
        """Starts an exchange that runs after all earlier work of the stream. Does not wait for it: the call blocks only while dropped
        GPU memory is freed, or while CUDA's queue is full. Host fields start at once. If the stream is being captured into a CUDA
        graph, the exchange becomes part of the graph."""
    def schedule_wait(self, stream: _StreamLike | Sequence[_StreamLike] = None) -> None:
        """As ``Pending.schedule_wait``, for the last exchange."""
    def wait(self) -> None:
        """Blocks until the last exchange is over. Returns at once if there was none."""
    @property
    def pending(self) -> Pending | None:
        """The last exchange, over or not; ``None`` before the first."""
    @property
    def sets(self) -> int:
        """The number of sets of fields."""
    def alternative(self, set: int) -> HaloExchange:
        """A handle of one set. It shares links and epochs with this object."""
    def narrowed(self, halo: _HaloLike, *, neighbours: _Neighbours = "all") -> HaloExchange:
        """The same fields with a narrower halo: an exchange fills only that part of the halo. Shares the links. Collective. An
        object of device fields allows a limited number of calls: twice the number of bound sets, at least 16.
        """
    def reclaim(self) -> bool:
        """True once the last exchange is over; after a failure, once no peer can access the fields any more. Never blocks."""
    @property
    def links(self) -> list[tuple[int, Literal["send", "receive"], str]]:
        """The links of this rank: peer, direction, path."""
    def explain(self) -> str:
        """A table of this rank's links: peer, path, transport, bytes, regions, and why no better path is used."""
    def message_bytes(self, peer: int, direction: Literal["send", "receive"]) -> int:
        """The size in bytes of the buffers of ``pack`` (``send``) and ``unpack`` (``receive``). Objects that have both host and
        device fields do not support it.
        """
    def pack(self, peer: int, message: _ArrayLike, stream: _StreamLike = None) -> None:
        """Packs the cells that ``peer`` needs into a contiguous writable buffer, for programs that send by themselves.

        Host fields are packed during the call. Device fields are packed after all earlier work of the stream, into memory that
        the GPU can access (its own or pinned); the call blocks only the first time, to make a table for the buffer. Keep the
        buffer until the stream has done the work. Host and device fields give the same bytes.
        """
    def unpack(self, peer: int, message: _ArrayLike, stream: _StreamLike = None) -> None:
        """Unpacks a buffer that ``peer`` packed with an object of the same fields. Blocks and orders as ``pack``."""

@final
class Pending(Awaitable[None]):
    """One exchange in flight. Dropping it leaves the exchange running. ``await`` works in any asyncio loop."""

    def wait(self) -> None:
        """Blocks until the halo is filled and owned cells may be overwritten. A second call does nothing, or raises the error of the
        exchange again."""
    def schedule_wait(self, stream: _StreamLike | Sequence[_StreamLike] = None) -> None:
        """Later work of the stream runs after the exchange. Blocks for host fields only."""
    def is_ready(self) -> bool:
        """Whether ``wait`` would return at once. Never blocks."""
    def _is_over(self) -> bool: ...
    def progress(self) -> None:
        """Advances the exchange without blocking. (It also progresses by itself.)"""
    @property
    def epoch(self) -> int:
        """The number of the exchange, from 1."""
    def __await__(self) -> Generator[Any, None, None]: ...

@final
class PatternLinks:
    """The unbound form: links of patterns, made once, and fields passed to each exchange. Collective; blocks.

    Options as for ``HaloExchange``; ``link`` is ``auto``, ``mailbox`` or ``message``.

    With ``device``, the number of a GPU, also for fields there, 64 a call, and for host fields beside them. All ranks give a GPU each.
    The bytes go through memory of the receiver's GPU, which the sender's GPU has to reach: of this process, or of another one of the node.
    Otherwise all ranks refuse: with ``UnreachableError`` where a GPU is out of reach, with ``RefusedElsewhereError`` elsewhere.
    """

    def __new__(
        cls,
        comm: Communicator,
        patterns: Sequence[Pattern],
        *,
        device: int | None = None,
        link: Literal["auto", "mailbox", "message"] = "auto",
        deadline: float | None = None,
        name: str | None = None,
        checked: bool | None = None,
        streams: _StreamLike | Sequence[_StreamLike] = None,
        inline: bool = False,
        stream_waits: bool | None = None,
    ) -> PatternLinks: ...
    @overload
    def exchange(self, fields: _Bindings, *, wait: Literal[True] = True) -> None: ...
    @overload
    def exchange(self, fields: _Bindings, *, wait: Literal[False]) -> Pending: ...
    @overload
    def exchange(self, fields: _Bindings, *, wait: bool) -> Pending | None:
        """Exchanges the halos of fields, given as pairs (pattern, array), and blocks until it is over. With ``wait=False`` it only
        starts the exchange. All ranks pass equally many fields of the same patterns, element types and extra dimensions. A new
        field needs no communication, unless it needs a larger buffer than any before. The fields are kept alive until the exchange is
        over.
        """
    def exchange_async(self, fields: _Bindings) -> Pending:
        """Starts an exchange; ``await`` the result."""
    def schedule_exchange(self, fields: _Bindings, stream: _StreamLike | Sequence[_StreamLike] = None) -> Pending:
        """As ``exchange(wait=False)``, in the order of the stream: fields of the GPU are read and written after all its earlier work. An
        exchange of host fields starts at once. The host waits only where fields need larger buffers than any before. A stream can be
        under capture. Ranks whose fields differ in number, element type, extra dimensions or order of dimensions fail."""
    def wait(self) -> None:
        """Blocks until the last exchange is over. Returns at once if there was none."""
    def reclaim(self) -> bool:
        """After a failure: true once no peer can access the fields any more. Never blocks."""
    @property
    def links(self) -> list[tuple[int, Literal["send", "receive"], str]]:
        """The links of this rank: peer, direction, path."""
    def explain(self) -> str:
        """A table of this rank's links: peer, path, transport, and the bytes of one step."""

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
        """Its pattern, in which domain d of the source has the number 2 d and domain d of the target 2 d + 1. ``peers`` of the
        pattern shows how many cells go to which rank.
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
        stream_waits: bool | None = None,
        ll: _Ll | None = None,
    ) -> HaloExchange:
        """Binds fields: an exchange copies from the fields ``source`` to the fields ``target``. Options as for ``HaloExchange``.
        Collective; blocks.
        """

@final
class IndexLists:
    """Makes index lists of arrays of the host (NumPy) or of a GPU (CuPy, PyTorch, ...): the cells that ranks own, unique ids.

    Arrays have one dimension without gaps, and elements of int32, uint32, int64 or uint64. All arrays of a call lie on the host, or on
    one GPU. The results stay there.

    An object makes one list at a time, with memory that it keeps for the next. ``owned`` and ``unique`` on a GPU run after all earlier work
    of ``stream`` (by default the null stream), whose later work sees the list, and the host does not wait. Exceptions are the first list of
    an object, for which kernels are loaded and, once, compiled, and a list that needs more memory than those before. ``counts`` and ``domain`` block.
    """

    def __new__(cls) -> IndexLists: ...
    def owned(
        self, owners: _FieldLike, size: int, ranks: Sequence[int], indices: _FieldLike, *, stream: _StreamLike = None
    ) -> None:
        """Stores in ``indices`` the positions of the cells that each of ``ranks`` owns, rank after rank, each rank's in ascending order.

        ``owners`` has the rank of each cell, below ``size``, the number of ranks. ``ranks`` ascend. As many positions are stored as
        fit; the elements of ``indices`` behind the list stay as they are.

        ``counts`` then returns the number of cells of each rank, or raises ``HaloValueError`` if a cell's owner is no rank, or if the list
        is longer than ``indices``.
        """
    def unique(self, ids: _FieldLike, unique: _FieldLike, *, stream: _StreamLike = None) -> None:
        """Stores in ``unique`` the ids that occur in ``ids``, each once, in ascending order.

        Both have elements of one type. ``counts`` then returns a list of one number, or raises ``HaloValueError`` if there are more than
        fit. On a GPU the object keeps memory of twice the bytes of ``ids``.
        """
    def counts(self) -> list[int]:
        """The number of elements of each part of the last list. Waits until the list is made. Empty before the first list."""
    def domain(
        self, id: int, comm: Communicator, ids: _FieldLike, owners: _FieldLike, *, stream: _StreamLike = None
    ) -> UnstructuredDomain:
        """The domain of this rank for ``Pattern.unstructured``: ``ids`` has the global id of each cell in local order, owned and halo, and
        ``owners`` the rank that owns it.

        Of arrays on a GPU the host gets the ids, and the number and the positions of the halo cells; the owners stay there. Blocks until
        the host has them.
        """

# --- packets -----------------------------------------------------------------------------------------------------

@final
class Packet:
    """Metadata, and perhaps a payload: what a rank sends to another in a neighbour exchange or a sparse all-to-all.

    ``metadata``: bytes. ``payload``: a bytes-like object or an array (NumPy, CuPy, PyTorch, ...), contiguous, in memory of the host
    or of a GPU. It is sent from where it lies, and the packet keeps it alive. An empty payload is not ``None``: the receiver gets
    the same. Do not write to the payload until the operation that sends it is over. A packet can be sent several times.

    ``stream``: for a payload in GPU memory the stream that writes it, or several; by default the null stream. A call that sends the
    packet sends what the payload holds after the work that the streams have then.

    The payload of a received packet is a ``Payload``. It can be sent on as it is.
    """

    def __new__(cls, metadata: bytes = b"", payload: Any = None, *, stream: object = None) -> Packet: ...
    @property
    def metadata(self) -> bytes:
        """The metadata."""
    @property
    def payload(self) -> Any:
        """The object that the packet was made with, or ``None``; in a received packet a ``Payload``, or ``None``."""

@final
class Payload:
    """The payload of a received packet: bytes without a type. ``numpy.asarray(payload)`` (host memory) or ``cupy.asarray(payload)``
    (GPU memory) is a view of them with element type ``uint8``; its method ``view`` gives it another one. The memory goes back to
    its resource once the packet and all views are gone."""

    @property
    def nbytes(self) -> int:
        """The number of bytes, as ``len``."""
    @property
    def device(self) -> int | None:
        """The number of the GPU whose memory it is in; ``None``: memory of the host."""
    @property
    def __array_interface__(self) -> dict[str, Any]:
        """The array interface of host memory."""
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The array interface of GPU memory. It names the stream in whose order the content is there, where it is not yet."""
    def __bytes__(self) -> bytes:
        """A copy of the bytes, from host memory."""
    def __len__(self) -> int: ...

@final
class HostMemory:
    """Host memory for received payloads, which the ranks of a node can map: a payload that lies in such memory is copied once, from
    the sender's memory to the receiver's.

    ``limit``: the most bytes in use at once. On shortage a receiver waits ``patience`` seconds for payloads to be dropped; not at
    all if the limit is smaller than the payload. Then, with ``spill=True``, it takes host memory beyond the limit and counts it as
    spilled. Otherwise the operation fails with ``MemoryShortageError``.
    """

    def __new__(
        cls, comm: Communicator, *, limit: int | None = None, spill: bool = False, patience: float = 1.0
    ) -> HostMemory: ...
    def trim(self) -> None:
        """Frees the idle memory that the rank keeps for later payloads."""
    @property
    def statistics(self) -> dict[str, Any]:
        """``kind`` (``host``); bytes ``in_use``, their ``peak``, bytes ``spilled`` so far; the number of ``allocations``."""

@final
class DeviceMemory:
    """Memory of a GPU for received payloads, which the ranks of a node can map: payloads of GPUs that can share memory are copied once, from
    GPU to GPU. ``cupy.asarray(packet.payload)`` is an array of it, without a copy; work on it comes after the payload's arrival.

    ``device``: the ordinal of the GPU. ``limit``, ``spill``, ``patience``: as for ``HostMemory``; it spills to that. Do not drop a payload
    while work of a GPU uses it.
    """

    def __new__(
        cls, comm: Communicator, device: int, *, limit: int | None = None, spill: bool = False, patience: float = 1.0
    ) -> DeviceMemory: ...
    def trim(self) -> None:
        """Frees the idle memory that this object keeps for later payloads. Waits for no work of the GPU."""
    @property
    def device(self) -> int:
        """The ordinal of the GPU."""
    @property
    def statistics(self) -> dict[str, Any]:
        """As ``HostMemory.statistics``; ``kind`` is ``device``."""

@final
class ForeignMemory:
    """Memory of an allocator of the program for received payloads. ``memory=allocator`` stands for ``ForeignMemory(comm, allocator)``.

    ``allocator``: an object with ``allocate(bytes)``, which returns an address, and ``deallocate(address, bytes)``, as the memory
    resources of RMM; or a callable that takes a number of bytes and returns an object with the address at ``.ptr``, which frees the
    memory when it is dropped, as the allocators of CuPy. The memory belongs to the payload alone until it is freed.

    ``device``: the ordinal of the GPU whose memory it is; ``None``: memory of the host (pinned memory is). ``stream``: the stream, or list
    of streams, in whose order the allocator gives memory of a GPU; ``None`` is the null stream. Payloads are written after the work
    that the stream has then.

    The allocator is called within calls of the package alone: those that start, wait, await or ask ``is_ready``. A payload that
    arrives while the program computes waits for the next one. ``deallocate`` is called in a later call of the package. The allocator
    must not use a neighbour exchange or a sparse all-to-all, make a collective call, nor close a communicator (``HaloValueError``). It may drop objects of the
    package, as a garbage collection does: they are dropped once the call of the package is over. If it raises, the operation fails with
    ``MemoryShortageError``, after ``patience`` seconds where there is a ``limit``. ``limit``, ``spill``, ``patience``: as for
    ``HostMemory``; it spills to that.
    """

    def __new__(
        cls,
        comm: Communicator,
        allocator: _Resource | Callable[[int], _Pointer],
        *,
        device: int | None = None,
        stream: _StreamLike | Sequence[_StreamLike] | None = None,
        limit: int | None = None,
        spill: bool = False,
        patience: float = 1.0,
    ) -> ForeignMemory: ...
    @property
    def allocator(self) -> Any:
        """The allocator."""
    @property
    def statistics(self) -> dict[str, Any]:
        """As ``HostMemory.statistics``."""

_Memory: TypeAlias = HostMemory | DeviceMemory | ForeignMemory | _Resource | Callable[[int], _Pointer]

@final
class NeighborExchange:
    """Packets between neighbours on a line of ranks, made by ``Communicator.neighbor_exchange``.

    In a round each rank sends its neighbours a packet or nothing (``None``), and gets what they send. An object with bytes (``bytes``, an
    array) stands for ``Packet(payload=...)``. Both neighbours take part in each round, also if they send nothing. ``id`` (0 to 2**32 - 1)
    numbers the operation that a round belongs to. Rounds of different operations are independent of each other, and ranks may start them in
    different orders. An id can be used again once the result of its last round was taken, or the round was dropped; before,
    ``InFlightError`` is raised.

    All methods may be called from several threads. A failure is final: every later call raises it, and it reaches all ranks.
    """

    def exchange(
        self, left: _PacketLike | None = None, right: _PacketLike | None = None, id: int = 0
    ) -> tuple[Packet | None, Packet | None]:
        """One round: sends a packet to each side, and returns those ``(from_left, from_right)``. Blocks until the neighbours have
        sent theirs, and the memory of the payloads that were sent can be written again. A deadline that passes raises
        ``CommunicatorTimeoutError``, which names the missing neighbour. If Ctrl-C or a callback raises ``KeyboardInterrupt``, the
        round goes on, and what comes is dropped; with ``start`` it can still be had."""
    def start(self, left: _PacketLike | None = None, right: _PacketLike | None = None, id: int = 0) -> NeighborRound:
        """Starts a round. Never blocks."""
    def session(self, id: int = 0) -> NeighborSession:
        """A series of rounds that either side may end. The neighbours open one of the same id, too. Does not communicate."""
    @property
    def neighbors(self) -> tuple[int | None, int | None]:
        """The ranks to the left and to the right. A rank alone has none, also where it sends to itself (``periodic``)."""
    @property
    def statistics(self) -> dict[str, Any]:
        """The number of ``rounds``; ``sent`` and ``received`` as those of ``SparseAlltoall.statistics``."""

@final
class NeighborRound:
    """A round in flight. ``await round`` in a task of asyncio returns what ``wait()`` does. Cancelling the task leaves the round in flight.

    Dropping it changes nothing for the neighbours: they get their packets, and what comes is dropped."""

    def wait(self) -> tuple[Packet | None, Packet | None]:
        """Blocks until the round is over, and returns the packets ``(from_left, from_right)``. Later calls return the same."""
    def is_ready(self) -> bool:
        """Whether the round is over. Never blocks. Raises if the round has failed."""
    def add_done_callback(self, function: Callable[[NeighborRound], object]) -> None:
        """Calls ``function(round)`` once, when the round is over, also if it has failed. The library runs no Python code on its own
        threads, so the callback runs within the next call of any packet exchange, in the thread of that call. In a thread with a
        running loop of asyncio the loop makes that call as soon as the round is over. If the round is over already, the callback runs
        at once. An ``Exception`` of a callback goes to ``sys.unraisablehook``; others, as ``KeyboardInterrupt``, end that call, and the
        packets of its operation can still be had.
        """
    @property
    def id(self) -> int:
        """The operation."""
    def __await__(self) -> Generator[Any, None, tuple[Packet | None, Packet | None]]: ...

@final
class NeighborSession:
    """A series of rounds of one operation (``NeighborExchange.session``). Each direction of each link ends on its own: a rank that has sent
    ``"last"`` to a side sends nothing more there. Rounds go on until all have ended.

    As a context manager (``with`` or ``async with``) it finishes at the end of the block. If the block raises, or the session is dropped
    before its end, the rounds of the neighbours raise ``PacketExchangeError``. Other operations go on.

    A rank that only receives iterates (``for`` or ``async for``): each step is ``round("last", "last")``, until the session is over. A step
    that was interrupted or cancelled leaves its round in flight, and the next step returns its packets."""

    def round(
        self, left: _PacketLike | Literal["last"] | None = None, right: _PacketLike | Literal["last"] | None = None
    ) -> tuple[Packet | Literal["last"] | None, Packet | Literal["last"] | None]:
        """One round: sends to each side a packet, nothing (``None``) or ``"last"``, and returns what comes from the left and from the right,
        in the same terms: ``"last"`` from a side that has ended, or is missing. Blocks. After ``KeyboardInterrupt`` ``wait`` has its
        packets."""
    def start(
        self, left: _PacketLike | Literal["last"] | None = None, right: _PacketLike | Literal["last"] | None = None
    ) -> SessionRound:
        """Starts a round. Never blocks. A session has one round at a time: before the packets of this one were taken, the next one raises
        ``InFlightError``."""
    def wait(self) -> tuple[Packet | Literal["last"] | None, Packet | Literal["last"] | None]:
        """What ``round`` returns, of the round that was started, or whose call was interrupted. Blocks."""
    def finish(self) -> None:
        """Ends what this rank sends, and receives until the neighbours have ended, too; what they still send is dropped. Blocks. Repeated
        calls do nothing."""
    def finish_async(self) -> Coroutine[Any, Any, None]:
        """The same in a task of asyncio."""
    @property
    def is_over(self) -> bool:
        """Whether all directions have ended. Then the id can be used again."""
    @property
    def id(self) -> int:
        """The operation."""
    def __enter__(self) -> NeighborSession: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def __aenter__(self) -> Coroutine[Any, Any, NeighborSession]: ...
    def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> Coroutine[Any, Any, None]: ...
    def __iter__(self) -> NeighborSession: ...
    def __next__(self) -> tuple[Packet | Literal["last"] | None, Packet | Literal["last"] | None]: ...
    def __aiter__(self) -> NeighborSession: ...
    def __anext__(self) -> Coroutine[Any, Any, tuple[Packet | Literal["last"] | None, Packet | Literal["last"] | None]]: ...

@final
class SessionRound:
    """A round of a session (``NeighborSession.start``). ``await round`` in a task of asyncio returns what ``wait()`` does. Cancelling the task
    leaves the round in flight. If it is dropped, ``NeighborSession.wait`` has its packets."""

    def wait(self) -> tuple[Packet | Literal["last"] | None, Packet | Literal["last"] | None]:
        """What ``NeighborSession.round`` returns. Blocks until the round is over. Later calls return the same."""
    def is_ready(self) -> bool:
        """Whether the round is over. Never blocks. Raises if the round has failed."""
    def add_done_callback(self, function: Callable[[SessionRound], object]) -> None:
        """Calls ``function(round)`` once, as ``NeighborRound.add_done_callback``. The callback may start the next round."""
    @property
    def session(self) -> NeighborSession:
        """The session."""
    def __await__(self) -> Generator[Any, None, tuple[Packet | Literal["last"] | None, Packet | Literal["last"] | None]]: ...

@final
class SparseAlltoall:
    """Packets from each rank to a few ranks, in steps: ``insert`` packets, ``finish``, ``wait``, ``extract``. For one exchange.

    ``destinations``: the ranks that this one sends to. ``sources``: those that send to it. The sets need not be equal. Collective. With
    ``sources=None`` the sources are discovered, which blocks until all ranks have called it; all ranks give sources, or none does. Sets that
    do not match those of other ranks raise ``PacketExchangeError``. ``memory``: where received payloads lie, as for
    ``Communicator.neighbor_exchange``.

    Packets to one rank arrive in the order of their insertion. All methods may be called from several threads. ``await exchange`` waits in a
    task of asyncio. A failure is final: every later call raises it, and it reaches the ranks that are named.
    """

    def __new__(
        cls,
        comm: Communicator,
        destinations: _NumbersLike,
        *,
        sources: _NumbersLike | None = None,
        memory: _Memory | None = None,
    ) -> SparseAlltoall: ...
    def insert(self, destination: int, packet: _PacketLike) -> None:
        """Adds a packet for a destination. Never blocks: the packet leaves once its payload is ready and those before it have left."""
    def finish(self) -> None:
        """Says that this rank inserts no more packets. Repeated calls do nothing."""
    def wait(self) -> None:
        """Blocks until all packets of all sources are here, and the memory of those that were sent can be written again. After
        ``finish``."""
    def is_ready(self) -> bool:
        """Whether ``wait`` would return at once. Never blocks."""
    def add_done_callback(self, function: Callable[[SparseAlltoall], object]) -> None:
        """Calls ``function(exchange)`` once, when the exchange is over after ``finish``, also if it has failed: where and when, as
        ``NeighborRound.add_done_callback`` says."""
    def extract(self, source: int) -> list[Packet]:
        """The packets of a source, in the order of their insertion there; once ``wait`` has returned. They are given once."""
    @property
    def sources(self) -> list[int]:
        """The sources, in ascending order."""
    @property
    def destinations(self) -> list[int]:
        """The destinations, in ascending order."""
    @property
    def statistics(self) -> dict[str, dict[str, int]]:
        """``sent`` and ``received``: the number of ``packets``; bytes of ``metadata``, of payloads in ``host`` memory, in ``pinned`` host
        memory and in memory of a ``device``."""
    def __await__(self) -> Generator[Any, None, None]: ...

# --- rolling windows ---------------------------------------------------------------------------------------------

_Length: TypeAlias = str | SupportsIndex | datetime.timedelta | numpy.timedelta64
_StatisticLike: TypeAlias = str | Statistic
_Statistics: TypeAlias = _StatisticLike | Sequence[_StatisticLike] | Mapping[str, _StatisticLike | Sequence[_StatisticLike]]
_Closed: TypeAlias = Literal["left", "right", "both", "none"]
_Route: TypeAlias = Literal["auto", "relay", "direct"]

@overload
def rolling(
    table: _TableT,
    by: str,
    window: _Length | tuple[_Length, _Length],
    *,
    closed: _Closed = "right",
    center: bool = False,
    offset: _Length | None = None,
    group: str | Sequence[str] | None = None,
    aggregate: None = None,
    columns: str | Sequence[str] | None = None,
    min_samples: int | None = None,
    threads: int | None = None,
    route: _Route = "auto",
    deadline: float | None = None,
    comm: Communicator | None = None,
) -> RollingContext[_TableT]: ...
@overload
def rolling(
    table: _TableT,
    by: str,
    window: _Length | tuple[_Length, _Length],
    *,
    closed: _Closed = "right",
    center: bool = False,
    offset: _Length | None = None,
    group: str | Sequence[str] | None = None,
    aggregate: Callable[[_TableT], _T],
    columns: str | Sequence[str] | None = None,
    min_samples: int | None = None,
    threads: int | None = None,
    route: _Route = "auto",
    deadline: float | None = None,
    comm: Communicator | None = None,
) -> _T: ...
@overload
def rolling(
    table: _TableT,
    by: str,
    window: _Length | tuple[_Length, _Length],
    *,
    closed: _Closed = "right",
    center: bool = False,
    offset: _Length | None = None,
    group: str | Sequence[str] | None = None,
    aggregate: _Statistics,
    columns: str | Sequence[str] | None = None,
    min_samples: int | None = None,
    threads: int | None = None,
    route: _Route = "auto",
    deadline: float | None = None,
    comm: Communicator | None = None,
) -> _TableT:
    """Rolling windows over a table whose rows are sorted over the ranks: rank 0 has the first rows, rank 1 the rows after them. Brings
    the rows of other ranks that the windows of this rank's rows need, and computes. Collective; blocks, without the GIL.

    ``table``: this rank's rows, perhaps none; a table of pyarrow, polars, pandas or cuDF, or an object with ``__arrow_c_stream__``.
    Rows are not copied (pandas and cuDF convert theirs). The result is of the same kind; of other Arrow tables a ``pyarrow.Table``.

    ``by``: the key that rows ascend by: timestamps, dates or integers, without nulls. For pandas it may be a level of the index.
    ``group``: columns that rows are sorted by before that; windows do not cross from one group to another.

    ``window``: of the row with key ``t``

    - ``"5s"`` or a ``timedelta`` of Python, NumPy or pandas: keys in (t - 5 s, t]. Units ``ns``, ``us``, ``ms``, ``s``, ``m``, ``h``,
      ``d``, ``w``, which add up; ``"5i"``: units of an integer key;
    - ``10``: 10 rows, the last of them the row itself;
    - ``("5s", "2s")``: keys in (t - 5 s, t + 2 s]; ``(3, 2)``: 3 rows before it, itself, 2 rows after it.

    ``closed``: which ends belong to the window. ``center``: the row is in the middle. ``offset``: the window begins at that length
    from ``t``, as in polars; a window of rows moves by that many rows.

    ``aggregate``: what to compute.

    - The name of a statistic (``sum``, ``mean``, ``min``, ``max``, ``count``, ``var``, ``std``, ``first``, ``last``, ``median``), a
      ``Statistic``, or a list of them: of all columns but the key and the groups. A mapping from columns to these: of those columns.
      The result has the groups, the key, and columns ``COLUMN_STATISTIC``: a row for each own row, in order.
    - A function: it is called with a table of all rows (``RollingContext.table``), and returns a table, a column or an array with a
      row for each. The own rows of that are returned.
    - ``None``: the ``RollingContext`` is returned.

    ``columns``: those that travel besides the key and the groups, by default all that may be needed. ``min_samples``: windows with
    fewer values that are not null give null; by default 1, and in windows of rows the number of their rows. ``threads``: that compute
    statistics; by default the processors of this process divided by the number of ranks. ``route``: how rows travel; the result does
    not depend on it. ``deadline``: seconds, by default the communicator's. ``comm``: by default that of ``init()``.

    A row that is not sorted, or has no key, is a ``RowError`` on all ranks, which names the rank, the row and the values.
    """

@final
class Statistic:
    """A statistic of ``rolling`` with its parameters.

    ``name``: as in ``rolling``, or ``quantile`` with ``q`` from 0 to 1. ``interpolation`` of a quantile between two values: ``nearest``
    (the default, as in polars), ``linear`` (the default of pandas), ``lower``, ``higher``, ``midpoint`` or ``equiprobable``. ``median``
    lies in the middle of two values. ``ddof``: what is subtracted from the number of
    values in the denominator of ``var`` and ``std``, by default 1. ``result``: the name of the result's column.
    """

    def __new__(
        cls,
        name: str,
        *,
        q: float | None = None,
        interpolation: Literal["linear", "nearest", "lower", "higher", "midpoint", "equiprobable"] | None = None,
        ddof: int | None = None,
        result: str | None = None,
    ) -> Statistic: ...

@final
class RollingContext(Generic[_TableT]):
    """This rank's rows, with the rows of other ranks that their windows need before and after them, returned by ``rolling``. Local: no
    method communicates. Any engine can compute windows on ``table``; ``own`` takes the rows of this rank from the result.

    An offset may leave out rows between those of other ranks and the own rows.
    """

    @property
    def table(self) -> _TableT:
        """All rows in order, as a table of the kind that was given."""
    @property
    def own_rows(self) -> slice:
        """Where this rank's rows are in ``table``."""
    @property
    def mask(self) -> numpy.ndarray[Any, Any]:
        """For each row of ``table`` whether it is this rank's."""
    @property
    def first_row(self) -> int:
        """The number of this rank's first row in the whole table, counted from 0."""
    @property
    def total_rows(self) -> int:
        """Rows of the whole table."""
    @property
    def traffic(self) -> dict[str, Any]:
        """The ``route`` (``relay``, ``direct``); ``rows_received``, ``rows_sent``, ``bytes_received``, ``bytes_sent``,
        ``messages_sent``."""
    def windows(self) -> numpy.ndarray[Any, Any]:
        """The window of each own row: the first row in ``table``, and the row after the last. Empty windows may lie anywhere."""
    def own(self, values: _T) -> _T:
        """The own rows of a table, a column or an array with a row for each row of ``table``. pandas objects get the index of the table
        that was given."""
    def aggregate(
        self, aggregate: _Statistics, *, min_samples: int | None = None, threads: int | None = None
    ) -> _TableT:
        """Statistics of the windows, as those of ``rolling``."""
    def __class_getitem__(cls, key: Any) -> GenericAlias: ...
    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """All rows in order, as a stream of Arrow record batches."""
    def __len__(self) -> int: ...

# --- traces ------------------------------------------------------------------------------------------------------

@final
class trace:
    """``with hc.trace("trace.json", comm):`` records the activity of every rank over time, for Perfetto. Collective at both ends;
    rank 0 writes the file.

    A rank records at most 131,072 events. The trace ends on all ranks where the first rank reaches its limit. A warning on standard
    error and ``events_left_out`` in ``otherData`` of the file say how many events are missing.

    A rank that leaves the block by an exception discards its record and does not wait. The other ranks then fail at the end of
    the block with ``CommunicatorError``, once that rank has left the group.
    """

    def __new__(cls, path: str | os.PathLike[str], comm: Communicator) -> trace: ...
    def __enter__(self) -> trace: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def on_device(self, halo: HaloExchange, stream: _StreamLike = None, *, rounds: int) -> DeviceTrace:
        """Records a stream of a GPU for ``rounds`` rounds, at most 32,768, by the GPU's own clock. The trace ends where a later round
        begins. The stream belongs to a device of the exchange's fields. Blocks: it compiles and loads a kernel of one thread and
        compares clocks, so call it while no exchange is in flight, and where ranks share a GPU call ``comm.barrier()`` before the next.
        """

@final
class DeviceTrace:
    """Records the rounds of one stream, made by ``trace.on_device``. In each round the program marks the position of the stream::

        steps.stamp("begun")
        pending = halo.schedule_exchange(stream)
        steps.observe(pending)
        ...                         # work that needs no halo
        steps.stamp("interior")
        pending.schedule_wait(stream)
        steps.stamp("waited")
        ...                         # the rest
        steps.stamp("done")

    Stamps do not wait for the GPU. Those after the last round do nothing; those after the trace's end raise
    ``HaloValueError``.
    """

    def stamp(self, moment: Literal["begun", "interior", "waited", "done"]) -> None:
        """Marks a moment of this round: ``begun``, ``interior``, ``waited`` or ``done``, which ends the round."""

    def observe(self, pending: Pending) -> None:
        """Also records the end of this round's exchange, on a stream of its own."""
