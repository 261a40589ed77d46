"""Halo exchange of distributed arrays: bind once, exchange many times. The stub beside this file documents all of it."""

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
