# The extension module. What is public of it is described in __init__.pyi.

from typing import Any, final

__all__ = [
    "__version__",
    "init",
    "_run_command",
    "_time_exchanges",
    "trace",
    "Communicator",
    "ThreadGroup",
    "RegularGrid",
    "Decomposition",
    "Domain",
    "Pattern",
    "UnstructuredDomain",
    "Graph",
    "Partition",
    "Mesh",
    "MeshDomains",
    "MeshHalos",
    "Field",
    "Memory",
    "Stream",
    "HaloExchange",
    "Pending",
    "PatternLinks",
    "Redistribute",
]

from halocline import (
    Communicator as Communicator,
    Decomposition as Decomposition,
    Domain as Domain,
    Field as Field,
    Graph as Graph,
    HaloExchange as HaloExchange,
    Mesh as Mesh,
    MeshDomains as MeshDomains,
    MeshHalos as MeshHalos,
    Partition as Partition,
    Pattern as Pattern,
    PatternLinks as PatternLinks,
    Pending as Pending,
    Redistribute as Redistribute,
    RegularGrid as RegularGrid,
    Stream as Stream,
    UnstructuredDomain as UnstructuredDomain,
    __version__ as __version__,
    init as init,
    trace as trace,
)

@final
class ThreadGroup:
    def __new__(cls, size: int) -> ThreadGroup: ...
    @property
    def ranks(self) -> list[Communicator]: ...
    def interrupt(self) -> None: ...

@final
class Memory:
    def __new__(cls, comm: Communicator, bytes: int, device: int | None) -> Memory: ...
    @property
    def __array_interface__(self) -> dict[str, Any]: ...
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...

def _run_command(args: list[str], again: list[str]) -> int: ...
def _time_exchanges(halo: HaloExchange, rounds: int) -> float: ...
