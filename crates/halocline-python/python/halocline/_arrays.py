"""Arrays in memory that ranks share."""

from . import _core
from ._errors import HaloTypeError, HaloValueError

MOST_AXES = 64


def zeros(shape, dtype="float64", comm=None, device=None, *, order="C"):
    """As ``empty``, filled with zeros."""
    import itertools
    import math
    import operator

    import numpy

    if not isinstance(order, str) or order not in ("C", "F"):
        raise HaloValueError(f"there is no order {order!r}; choose C or F")
    try:
        dtype = numpy.dtype(dtype)
    except (TypeError, ValueError, SyntaxError) as error:
        raise HaloTypeError(f"{dtype!r} is no type of elements: {error}") from None
    if dtype.subdtype is not None:
        base, inner = dtype.subdtype
        raise HaloTypeError(f"elements of {dtype} are arrays of shape {inner}; give elements of {base} and a shape that ends so")
    if dtype.hasobject or not 1 <= dtype.itemsize <= 16:
        raise HaloTypeError(f"elements of {dtype} cannot be exchanged; plain ones of 1 to 16 bytes can")
    if dtype != dtype.newbyteorder("="):
        native = dtype.newbyteorder("=")
        raise HaloTypeError(f"elements of {dtype} are not in the byte order of this machine, as those of {native} are")
    try:
        # No more than shows that there are too many.
        extents = itertools.islice(shape, MOST_AXES + 1) if numpy.iterable(shape) else (shape,)
        shape = tuple(map(operator.index, extents))
    except TypeError:
        raise HaloTypeError(f"a shape is a whole number, or one for each axis, not {shape!r}") from None
    if len(shape) > MOST_AXES:
        raise HaloValueError(f"an array has {MOST_AXES} axes at most")
    if any(n < 0 for n in shape):
        raise HaloValueError(f"an array of shape {shape} cannot be")
    memory = _core.Memory(_core.init() if comm is None else comm, math.prod(shape) * dtype.itemsize, device)
    if device is None:
        raw = numpy.asarray(memory)
    else:
        import cupy

        raw = cupy.asarray(memory)
    return raw.view(dtype).reshape(shape, order=order)


def empty(shape, dtype="float64", comm=None, device=None, *, order="C"):
    """A NumPy array in memory that as many peers as possible can reach directly; on a device (the ordinal of a GPU) a CuPy
    array, in memory that other ranks can map. ``comm``: by default ``init()``'s. ``order``: ``C`` or ``F``.

    Ranks that are processes map this memory, and so does a forked child: it and its parent change the same cells. Give a
    child that computes on its own a copy (``array.copy()``).
    """
    return zeros(shape, dtype, comm, device, order=order)
