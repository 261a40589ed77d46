"""Halo exchange of distributed arrays: bind once, exchange many times. The stub beside this file, ``__init__.pyi``, documents
all of it; what is here is the first sentence of each."""

from ._core import (
    Communicator,
    Decomposition,
    DeviceTrace,
    Domain,
    Field,
    Graph,
    HaloExchange,
    Mesh,
    MeshDomains,
    MeshHalos,
    MeshPart,
    Partition,
    Pattern,
    PatternLinks,
    Pending,
    Redistribute,
    RegularGrid,
    Stream,
    UnstructuredDomain,
    __version__,
    init,
    trace,
)
from ._arrays import empty, zeros
from ._errors import (
    ClosedError,
    CommunicatorError,
    CommunicatorTimeoutError,
    DeviceError,
    ExchangeFailedError,
    ExchangeTimeoutError,
    ForkedError,
    HaloError,
    HaloTypeError,
    HaloValueError,
    InFlightError,
    MpiError,
    RefusedElsewhereError,
)
from ._threads import run_threads

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

# Where they are to be found, wherever they were written.
for _function in (empty, init, run_threads, zeros):
    _function.__module__ = __name__
del _function
