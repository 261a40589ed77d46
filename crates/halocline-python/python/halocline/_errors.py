"""The exceptions of the package."""


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
    epoch: int
    peer: int
    culprit: int


class ExchangeTimeoutError(ExchangeFailedError, TimeoutError):
    """A rank missed a deadline."""


class DeviceError(HaloError):
    """A device refuses a call, or has failed."""


for _class in list(globals().values()):
    if isinstance(_class, type) and issubclass(_class, HaloError):
        _class.__module__ = "halocline"
del _class
