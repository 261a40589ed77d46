"""The exceptions of the package."""


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
    epoch: int
    peer: int
    culprit: int


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


for _class in list(globals().values()):
    if isinstance(_class, type) and issubclass(_class, HaloError):
        _class.__module__ = "halocline"
del _class
