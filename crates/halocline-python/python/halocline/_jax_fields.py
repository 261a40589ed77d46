"""JAX arrays as fields of ``halocline.jax``: which arrays are accepted, the types that they are exchanged as, and their buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import Communicator, Field, HaloExchange, HaloTypeError, HaloValueError, _core, zeros
from ._jax_primitive import ON_WHAT, ONE_DEVICE
from ._slots import Slot, checked_axes

_SUMMED = (jnp.float32, jnp.float64, jnp.complex64, jnp.complex128)


def checked_array(at: int, slot: Slot, array: Any, axes: list[int] | None) -> list[int]:
    """The axes of an array, or of what stands for it while JAX traces a function, that are those of its pattern."""
    what = f"fields[{at}]"
    if not isinstance(array, jax.Array):
        raise HaloTypeError(f"{what}: an array of JAX is wanted, not {type(array).__name__}; jax.numpy.asarray() makes one")
    if jnp.issubdtype(array.dtype, jax.dtypes.extended):
        raise HaloTypeError(f"{what}: elements of {array.dtype} cannot be exchanged; give jax.random.key_data(array)")
    if array.dtype.name.startswith(("int2", "uint2", "int4", "uint4", "float4")):
        raise HaloTypeError(f"{what}: elements of {array.dtype} have less than a byte and cannot be exchanged; give array.astype(jnp.int8)")
    if not isinstance(array, jax.core.Tracer):
        check_memory(what, array)
    return checked_axes(what, "an array", slot, array.shape, axes)


def check_memory(what: str, array: jax.Array) -> None:
    """Of an array that exists."""
    if array.is_deleted():
        raise HaloValueError(
            f"{what}: the array was deleted, or donated to a compiled function (donate_argnums); give the result of that function, or do "
            "not donate the array"
        )
    if len(array.sharding.device_set) != 1:
        raise HaloTypeError(f"{what}: the array is on {len(array.sharding.device_set)} devices; {ONE_DEVICE}")
    (device,) = array.sharding.device_set
    if device.platform not in ("cpu", "gpu", "cuda"):
        raise HaloTypeError(f"{what}: the array is on {device}; {ON_WHAT}")


def is_of_gpu(array: Any) -> bool:
    """Whether an array exists, in GPU memory."""
    if not isinstance(array, jax.Array) or isinstance(array, jax.core.Tracer):
        return False
    return any(device.platform != "cpu" for device in array.sharding.device_set)


def is_differentiable(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.inexact))


def wide_type(dtype: Any) -> Any:
    """The type in which elements are added: half precision is added in single precision, and rounded once."""
    return jnp.dtype(jnp.float32) if jnp.issubdtype(dtype, jnp.floating) and dtype not in _SUMMED else dtype


def _bound_type(dtype: Any) -> Any:
    """The type of a buffer: bytes, for a type that NumPy lacks."""
    return dtype if dtype.isbuiltin == 1 else np.dtype(f"u{dtype.itemsize}")


class Bound:
    """Buffers that are bound to one exchange. The handler copies arrays there, and results from there."""

    def __init__(
        self,
        comm: Communicator,
        options: dict[str, Any],
        slots: Sequence[Slot],
        axes: Sequence[list[int]],
        arrays: Sequence[Any],
        gpu: int | None,
        compare: Callable[[int], None] | None,
    ) -> None:
        """``gpu``: the buffers lie in its memory."""
        place: dict[str, Any] = {} if gpu is None else {"device": gpu}
        buffers = [zeros(tuple(array.shape), _bound_type(array.dtype), comm, **place) for array in arrays]
        fields = [
            (slot.pattern, Field(buffer, domain=slot.domain, axes=along)) for slot, along, buffer in zip(slots, axes, buffers)
        ]
        self.halo = HaloExchange(comm, fields, **options)
        self._exchange = _core._XlaExchange(self.halo, buffers, compare)
        self.number = self._exchange.number
        self.take_failure = self._exchange.take_failure
