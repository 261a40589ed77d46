"""Differentiable halo exchange of JAX arrays.

    halo = halocline.jax.HaloExchange(comm, pattern)

    @jax.jit
    def loss(x):
        y = halo(x)                                 # y is x with its halo filled
        return jnp.sum(y * y)

    jax.grad(loss)(x)                               # the gradient of the halo is added to the cells that it copies

The backward pass of an exchange is a reduce by sum, and the backward pass of a reduce is an exchange. Both add in the order of
the domains' numbers, so gradients have the same bits on each run and on any number of ranks that own the same domains.

All ranks take part in each forward and in each backward pass, in one order: see ``HaloExchange``.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Sequence
from typing import Any, overload

from . import Communicator, HaloTypeError, Pattern
from ._order_check import Check, described
from ._slots import Slot, Slots, checked_axes

try:
    import jax
    from jax import Array
except ModuleNotFoundError:
    raise ModuleNotFoundError("halocline.jax needs JAX 0.6 or later: pip install jax", name="jax") from None

import numpy as np  # noqa: E402

from ._jax_fields import Bound, check_memory, checked_array, is_differentiable, is_of_gpu, wide_type  # noqa: E402
from ._jax_primitive import Operation, check_threads, exchange_p, forget_token, register  # noqa: E402

__all__ = ["HaloExchange"]


class HaloExchange:
    """Exchanges the halos of arrays, and differentiates. Collective: all ranks make the same objects in the same order.

    ``patterns``: a pattern, for any number of fields, or a list with a pattern for each field.
    ``axes``: the dimensions of an array that are the axes of its pattern, by default the first ones; ``axes=(-2, -1)`` for images
    (batch, channel, y, x). Along these axes an array has the shape of its domain, halo included; its other dimensions belong to
    each cell.
    ``link``, ``deadline``, ``name``, ``checked``: as for ``halocline.HaloExchange``. In checked mode the ranks also compare each
    call and each backward pass before it communicates.

    A field is an array, or a list with an array for each domain of this rank. With one field a call returns a field, with
    several a tuple of fields. The arguments stay as they are.

    With owned cells o and halo cells h that copy them, ``y = halo(x)`` is ``y[o] = x[o]``, ``y[h] = x[o]``. So the gradient of
    ``x[o]`` is that of ``y[o]`` plus those of all its copies ``y[h]``, and the gradient of ``x[h]`` is 0. Cells of no message, as
    those beyond a border of the grid, are returned as they are, and so are their gradients.

    Calls work under ``jax.jit``, ``grad``, ``vjp``, ``vmap``, ``checkpoint``, in ``lax.scan``, ``cond`` and loops, and in gradients
    of gradients. JAX refuses forward mode (``jvp``), since the gradient is that of a ``jax.custom_vjp``.

    **Order.** Each forward and each backward pass communicates, so all ranks run them in one order. A rank runs its calls in the
    order of its program: their effect is ordered, so that XLA neither reorders, repeats nor drops them. Three rules follow:

    - All ranks make the same calls in the same order. Calls of one rank are made by one thread.
    - An array of a call is differentiated on all ranks, or on none.
    - The loss of each rank depends on a result of each such call. Add ``0 * y.sum()`` to the loss of a rank that does not use y.

    A rank that breaks a rule leaves its peers waiting until the deadline, or their gradients are wrong. Checked mode names the
    ranks and calls instead.

    **Memory.** A function is compiled for an exchange of its own buffers. The first compilation of a call with new element types
    or shapes binds them, which is collective. The object keeps one buffer for each array. Keep the object as long as functions
    that call it.

    **GPUs.** Of arrays in memory of a CUDA GPU, calls and backward passes are work of the stream that XLA computes on; the host waits for
    none of them, unless 64 are in flight, or in checked mode. Ranks are processes, each with one GPU: CUDA_VISIBLE_DEVICES,
    ``jax_default_device`` or ``jax.device_put`` chooses it.

    **Errors.** A call that is not compiled raises the errors of this package. From a compiled function, and from any call on a GPU, JAX
    raises a ``JaxRuntimeError`` with their text, where the result is used; ``raise_failure()`` raises the error itself. Until then, later
    compiled calls of the thread fail with the same text.
    """

    def __init__(
        self,
        comm: Communicator,
        patterns: Pattern | Sequence[Pattern],
        *,
        axes: Sequence[int] | None = None,
        link: str = "auto",
        deadline: float | None = None,
        name: str | None = None,
        checked: bool | None = None,
    ) -> None:
        register()
        self._slots = Slots(comm, patterns, axes, "array")
        check_threads(comm)
        self._comm = comm
        self._options: dict[str, Any] = {"link": link, "deadline": deadline, "name": name, "checked": checked}
        self._operations: dict[Any, Operation] = {}
        self._bound: dict[Any, Bound] = {}
        if checked is None:
            checked = os.environ.get("HALOCLINE_CHECK", "").strip().lower() in ("on", "1", "yes", "true")
        self._check = Check(comm, deadline, name) if checked else None
        # Of calls in checked mode, which know the number of their label.
        self._labels: dict[int, tuple[str, list[Any]]] = {}
        self._numbers = itertools.count()

    @overload
    def __call__(self, field: Array, /) -> Array: ...
    @overload
    def __call__(self, field: list[Array], /) -> list[Array]: ...
    @overload
    def __call__(self, first: Array, second: Array, /, *others: Array) -> tuple[Array, ...]: ...
    @overload
    def __call__(self, *fields: Array | Sequence[Array]) -> Any: ...
    def __call__(self, *fields: Any) -> Any:
        """The fields with their halos filled, as new arrays."""
        return self._call(fields, reduces=False)

    @overload
    def reduce(self, field: Array, /) -> Array: ...
    @overload
    def reduce(self, field: list[Array], /) -> list[Array]: ...
    @overload
    def reduce(self, first: Array, second: Array, /, *others: Array) -> tuple[Array, ...]: ...
    @overload
    def reduce(self, *fields: Array | Sequence[Array]) -> Any: ...
    def reduce(self, *fields: Any) -> Any:
        """The fields with each halo cell added to the owned cell that it copies, and cleared, as new arrays: the transpose of a
        call. Its backward pass is an exchange."""
        return self._call(fields, reduces=True)

    def raise_failure(self) -> None:
        """Raises the error of a call of a compiled function that failed, once. Call it after a ``JaxRuntimeError`` of JAX."""
        for bound in self._bound.values():
            failure = bound.take_failure()
            if failure is not None:
                forget_token()
                raise failure

    def _call(self, fields: tuple[Any, ...], *, reduces: bool) -> Any:
        parts = self._slots.parts(fields, Array) if not self._slots.one_domain or list in map(type, fields) else None
        flat = fields if parts is None else tuple(sum(parts, []))
        slots = self._slots.of(len(fields))
        axes = [checked_array(at, slot, array, self._slots.axes) for at, (slot, array) in enumerate(zip(slots, flat))]
        call = _Call(self, slots, reduces)
        if self._check is not None:
            call.label, call.details = self._check.label(repr(call)), [described(axes, flat)]
        results = _linear(call, *flat)
        if parts is None:
            return results[0] if len(results) == 1 else results
        left = iter(results)
        shaped = tuple(
            next(left) if isinstance(field, Array) else [next(left) for _ in part] for field, part in zip(fields, parts)
        )
        return shaped[0] if len(shaped) == 1 else shaped

    def _operation(self, slots: tuple[Slot, ...], reduces: bool) -> Operation:
        key = slots, reduces
        return self._operations.get(key) or self._operations.setdefault(key, Operation(self, slots, reduces))

    def _bound_to(self, operation: Operation, arrays: Sequence[Any], gpu: int | None) -> Bound:
        """The buffers for such arrays of a GPU, or of the CPU."""
        key = (operation.slots, gpu, *[(array.dtype, array.shape) for array in arrays])
        bound = self._bound.get(key)
        if bound is None:
            axes = [
                checked_axes(f"fields[{at}]", "an array", slot, tuple(array.shape), self._slots.axes)
                for at, (slot, array) in enumerate(zip(operation.slots, arrays))
            ]
            # It must not hold this object: the extension keeps it.
            compare = None if self._check is None else functools.partial(_compare, self._check, self._labels)
            bound = self._bound[key] = Bound(self._comm, self._options, operation.slots, axes, arrays, gpu, compare)
        return bound


def _compare(check: Check, labels: dict[int, tuple[str, list[Any]]], number: int) -> None:
    """Checked mode: called by the handler before it runs a call. Collective."""
    check.compare(*labels[number])


class _Call:
    """An exchange or a reduce, with what its backward pass needs. ``label`` names it in checked mode."""

    __slots__ = ("details", "halo", "label", "reduces", "slots")

    def __init__(self, halo: HaloExchange, slots: tuple[Slot, ...], reduces: bool) -> None:
        self.halo, self.slots, self.reduces = halo, slots, reduces
        self.label = ""
        self.details: list[Any] = []

    def __repr__(self) -> str:
        return "reduce" if self.reduces else "exchange"

    def run(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """Runs it, or has it run by the function that JAX traces."""
        types = [array.dtype for array in arrays]
        for at, array in enumerate(arrays):
            if self.reduces and array.dtype == bool:
                raise HaloTypeError(f"fields[{at}]: elements of bool have no sum; give array.astype(jnp.int32)")
            # JAX gives gradients of NumPy, too.
            if isinstance(array, Array) and not isinstance(array, jax.core.Tracer):
                check_memory(f"fields[{at}]", array)
        if self.reduces:
            arrays = [array.astype(wide_type(array.dtype)) for array in arrays]
        labels = []
        if self.halo._check is not None:
            number = next(self.halo._numbers)
            labels = [np.int32(number)]
            self.halo._labels[number] = self.label, self.details
        operation = self.halo._operation(self.slots, self.reduces)
        try:
            results = exchange_p.bind(*labels, *arrays, operation=operation, labels=len(labels))
            # On a GPU the stream orders what follows.
            if not any(map(is_of_gpu, results)):
                results = jax.block_until_ready(results)
        except jax.errors.JaxRuntimeError:
            self.halo.raise_failure()
            forget_token()
            raise
        if labels and not any(isinstance(array, jax.core.Tracer) for array in arrays):
            # No compiled function has this number.
            del self.halo._labels[int(labels[0])]
        return tuple(result.astype(dtype) for result, dtype in zip(results, types))

    def transpose(self, is_float: Sequence[bool]) -> _Call:
        """Of the fields that have a gradient."""
        call = _Call(self.halo, tuple(slot for slot, of_float in zip(self.slots, is_float) if of_float), not self.reduces)
        if self.label:
            call.label = f"backward pass of {self.label}"
        return call


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _linear(call: _Call, *arrays: Any) -> tuple[Any, ...]:
    return call.run(arrays)


def _forward(call: _Call, *arrays: Any) -> tuple[tuple[Any, ...], None]:
    # Itself differentiable, for gradients of gradients.
    return _linear(call, *arrays), None


def _backward(call: _Call, _: None, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
    """All floats take part, whether this rank needs their gradients or not: other ranks may."""
    is_float = [is_differentiable(gradient.dtype) for gradient in gradients]
    floats = [gradient for gradient, of_float in zip(gradients, is_float) if of_float]
    left = iter(_linear(call.transpose(is_float), *floats) if floats else ())
    return tuple(next(left) if of_float else None for of_float in is_float)


_linear.defvjp(_forward, _backward)
