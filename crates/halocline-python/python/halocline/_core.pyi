# The extension module. What is public of it is described in __init__.pyi.

from collections.abc import Callable, Iterable, Sequence
from typing import Any, final

from typing_extensions import Self, disjoint_base

__all__ = [
    "__version__",
    "init",
    "_run_command",
    "_time_exchanges",
    "_check_stream",
    "_domain",
    "_patch_grid",
    "cubed_sphere_point",
    "_gpus",
    "trace",
    "DeviceTrace",
    "Communicator",
    "ThreadGroup",
    "RegularGrid",
    "Decomposition",
    "PatchGrid",
    "PatchDecomposition",
    "PatchTransfer",
    "Domain",
    "Pattern",
    "UnstructuredDomain",
    "Graph",
    "Partition",
    "Mesh",
    "MeshPart",
    "MeshDomains",
    "MeshHalos",
    "IconGrid",
    "IconGridPart",
    "IcosahedralGrid",
    "Field",
    "Memory",
    "_FieldDescriptor",
    "_BufferInfo",
    "_CallLock",
    "_LinkSlot",
    "_PatternBase",
    "_CommunicationBase",
    "_ScheduledState",
    "Stream",
    "HaloExchange",
    "Pending",
    "PatternLinks",
    "Redistribute",
    "IndexLists",
    "_XlaExchange",
    "_xla_handler",
    "Packet",
    "Payload",
    "HostMemory",
    "DeviceMemory",
    "ForeignMemory",
    "NeighborExchange",
    "NeighborRound",
    "NeighborSession",
    "SessionRound",
    "SparseAlltoall",
    "Entry",
    "FieldProgram",
    "PreparedCall",
    "Program",
    "_Calls",
    "_build_program",
    "_ProgramCall",
    "_field_program",
    "_load_program",
    "rolling",
    "Statistic",
    "RollingContext",
]

from halocline import (
    Communicator as Communicator,
    Decomposition as Decomposition,
    DeviceMemory as DeviceMemory,
    DeviceTrace as DeviceTrace,
    Domain as Domain,
    Field as Field,
    ForeignMemory as ForeignMemory,
    Graph as Graph,
    HaloExchange as HaloExchange,
    HostMemory as HostMemory,
    IconGrid as IconGrid,
    IconGridPart as IconGridPart,
    IcosahedralGrid as IcosahedralGrid,
    Mesh as Mesh,
    MeshDomains as MeshDomains,
    MeshHalos as MeshHalos,
    MeshPart as MeshPart,
    NeighborExchange as NeighborExchange,
    NeighborRound as NeighborRound,
    NeighborSession as NeighborSession,
    SessionRound as SessionRound,
    Packet as Packet,
    Partition as Partition,
    PatchDecomposition as PatchDecomposition,
    PatchGrid as PatchGrid,
    PatchTransfer as PatchTransfer,
    Pattern as Pattern,
    PatternLinks as PatternLinks,
    Payload as Payload,
    Pending as Pending,
    Redistribute as Redistribute,
    IndexLists as IndexLists,
    RegularGrid as RegularGrid,
    RollingContext as RollingContext,
    SparseAlltoall as SparseAlltoall,
    Statistic as Statistic,
    Stream as Stream,
    UnstructuredDomain as UnstructuredDomain,
    __version__ as __version__,
    cubed_sphere_point as cubed_sphere_point,
    init as init,
    rolling as rolling,
    trace as trace,
)
from halocline.program import Entry as Entry
from halocline.program import FieldProgram as FieldProgram
from halocline.program import PreparedCall as PreparedCall
from halocline.program import Program as Program
from halocline.program import load as _load_program

@final
class ThreadGroup:
    def __new__(cls, n: int, *, clock_speed: int | None = None) -> ThreadGroup: ...
    @property
    def ranks(self) -> list[Communicator]: ...
    def interrupt(self) -> bool: ...

@final
class Memory:
    def __new__(cls, comm: Communicator, bytes: int, device: int | None) -> Memory: ...
    @property
    def __array_interface__(self) -> dict[str, Any]: ...
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...

# --- for halocline.compat.ghex ---

@final
class _FieldDescriptor:
    def __new__(cls, domain: int, field: Field, grid: str, origin: Sequence[int] | None = None) -> _FieldDescriptor: ...
    @property
    def _domain(self) -> int: ...
    @property
    def _field(self) -> Field: ...
    @property
    def _grid(self) -> str: ...
    @property
    def _origin(self) -> Sequence[int] | None: ...

@final
class _BufferInfo:
    def __new__(cls, pattern: _PatternBase, fields: list[Field], on_device: bool) -> _BufferInfo: ...
    @property
    def _pattern(self) -> Any: ...
    @property
    def _on_device(self) -> bool: ...
    @property
    def _fields(self) -> list[tuple[Pattern, Field]]: ...

@final
class _CallLock:
    """Lets one thread in at a time, of those that may wait for other ranks within: ``with`` it. A signal handler amid what its own
    thread does there is refused (``HaloValueError``), and Ctrl-C ends a wait to get in."""

    def __new__(cls, what: str) -> _CallLock: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *_of: object) -> None: ...

@final
class _LinkSlot:
    def __new__(cls, links: PatternLinks) -> _LinkSlot: ...
    @property
    def begun(self) -> int: ...
    def begin(self, fields: Sequence[tuple[Pattern, Field]]) -> Pending: ...
    def wait(self) -> None: ...
    def is_over(self) -> bool: ...

@disjoint_base
class _PatternBase:
    def __new__(cls, core: Pattern, grid_type: str, plain: list[int], slots: list[_LinkSlot]) -> Self: ...
    @property
    def _core(self) -> Pattern: ...
    @property
    def grid_type(self) -> str: ...
    @property
    def _link_slots(self) -> list[_LinkSlot]: ...
    def __call__(self, field: _FieldDescriptor) -> _BufferInfo: ...
    def _begin(self, fields: Sequence[tuple[Pattern, Field]]) -> Pending: ...
    @property
    def _device_links(self) -> PatternLinks | None: ...
    def _use_on_devices(self, links: PatternLinks) -> None: ...
    def _begin_on_device(self, fields: Sequence[tuple[Pattern, Field]], streams: Sequence[object]) -> Pending: ...

@disjoint_base
class _CommunicationBase:
    def __new__(cls, *_of: Any) -> Self: ...
    def exchange(self, *buffers: _BufferInfo | Iterable[_BufferInfo]) -> Any: ...
    def has_scheduled_exchange(self) -> bool: ...
    def _begin(self, buffers: Any, streams: tuple[Any, ...]) -> Any: ...
    def _schedule(self, stream: object, buffers: tuple[Any, ...]) -> Any: ...

@final
class _ScheduledState:
    def schedule(self) -> None: ...
    def end(self) -> None: ...

def _check_stream(stream: object) -> None: ...
def _patch_grid(patches: Any, seams: Any, axis: int | None) -> PatchGrid: ...
def _domain(id: int, cells: Any, kind: str, rank: int, halo: Any, levels: Sequence[int]) -> UnstructuredDomain: ...
def _gpus() -> int: ...
def _run_command(args: list[str], again: list[str]) -> int: ...
def _time_exchanges(halo: HaloExchange, rounds: int, stream: object = None) -> float: ...

# --- for halocline.jax ---

@final
class _XlaExchange:
    """An exchange of arrays, which compiled functions of JAX call by its number. ``compare`` is called in checked mode, with the number
    of the call's label."""

    def __new__(cls, halo: HaloExchange, arrays: list[Any], compare: Callable[[int], None] | None) -> _XlaExchange: ...
    @property
    def number(self) -> int: ...
    def take_failure(self) -> BaseException | None: ...

def _xla_handler(major: int, minor: int) -> int: ...

# --- for halocline.program ---

@final
class _ProgramCall:
    def __new__(cls, original: Any, make: Any) -> _ProgramCall: ...
    def __get__(self, program: Any, _class: Any = None, /) -> Any: ...

@final
class _Calls:
    def __new__(cls, program: Any, slow: Any, config: Any, hooks: tuple[Any, ...]) -> _Calls: ...
    def __call__(self, *args: Any, out: Any = None, offset_provider: Any = None, enable_jit: Any = None, **kwargs: Any) -> None: ...
    def _adopt(self, variants: list[FieldProgram]) -> None: ...

def _field_program(library: Any, manifest: str, description: dict[str, Any]) -> FieldProgram: ...
def _build_program(describe: Any, comm: Any, cache: Any, timeout: Any) -> Entry: ...
