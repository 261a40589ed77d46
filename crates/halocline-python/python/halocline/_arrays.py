"""Arrays in memory that ranks share."""

from . import _core
from ._errors import HaloTypeError, HaloValueError

MOST_AXES = 64


def zeros(shape, dtype="float64", comm=None, device=None, *, order="C"):
    """As ``empty``, filled with zeros."""
    import itertools
    import math
    import operator
    import sys

    import numpy

    if not isinstance(order, str) or order not in ("C", "F"):
        raise HaloValueError(f"order: there is no {order!r}; choose 'C' or 'F'")
    try:
        dtype = numpy.dtype(dtype)
    except (TypeError, ValueError, SyntaxError) as error:
        raise HaloTypeError(f"dtype: {dtype!r} is no type of elements: {error}; give what numpy.dtype() takes") from None
    if dtype.subdtype is not None:
        base, inner = dtype.subdtype
        raise HaloTypeError(f"dtype: elements of {dtype} are arrays of shape {inner}; give elements of {base} and a shape that ends so")
    if dtype.hasobject or not 1 <= dtype.itemsize <= 256:
        raise HaloTypeError(
            f"dtype: elements of {dtype} cannot be exchanged; numbers and plain bytes of 1 to 256 bytes can. Make an array of each "
            "member of a record, or give the shape one more axis"
        )
    if dtype != dtype.newbyteorder("="):
        native = dtype.newbyteorder("=")
        raise HaloTypeError(f"dtype: elements of {dtype} are not in the byte order of this machine; give {native}")
    try:
        # Take at most one extent too many: a sequence may be endless.
        is_list = numpy.iterable(shape) and not isinstance(shape, dict)
        extents = itertools.islice(shape, MOST_AXES + 1) if is_list else (shape,)
        shape = tuple(map(operator.index, extents))
    except TypeError:
        raise HaloTypeError(f"shape: a whole number, or one for each axis, is wanted, not {shape!r}") from None
    if len(shape) > MOST_AXES:
        raise HaloValueError(f"shape: an array has at most {MOST_AXES} axes, more are given")
    if any(n < 0 for n in shape):
        raise HaloValueError(f"shape: extents are whole numbers from 0, not {shape}")
    size = math.prod(shape) * dtype.itemsize
    if size > sys.maxsize:
        raise HaloValueError(f"shape: an array of shape {shape} would have {size} bytes, more than memory can have")
    memory = _core.Memory(_core.init() if comm is None else comm, size, device)
    if device is None:
        raw = numpy.asarray(memory)
    else:
        import cupy

        raw = cupy.asarray(memory)
    return raw.view(dtype).reshape(shape, order=order)


def empty(shape, dtype="float64", comm=None, device=None, *, order="C"):
    """A NumPy array in memory that as many peers as possible can access directly. With ``device``, the ordinal of a GPU, a CuPy
    array in memory that other ranks can map. ``comm``: by default that of ``init()``. ``order``: ``C`` or ``F``.

    Ranks that are processes of one node share this memory, and so does a forked child (``os.fork``, the start method ``fork``
    of ``multiprocessing``): the parent sees what the child writes. Give a child a copy to compute with: ``array.copy()``.
    """
    return zeros(shape, dtype, comm, device, order=order)
