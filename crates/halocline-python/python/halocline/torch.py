"""Differentiable halo exchange of PyTorch tensors.

    halo = halocline.torch.HaloExchange(comm, pattern)
    y = halo(x)                                     # y is x with its halo filled
    (y * y).sum().backward()                        # the gradient of the halo is added to the cells that it copies

The backward pass of an exchange is a reduce by sum, and the backward pass of a reduce is an exchange. Both add in the order of
the domains' numbers, so gradients have the same bits on each run and on any number of ranks that own the same domains.

All ranks take part in each forward and in each backward pass, in one order: see ``HaloExchange``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, overload

from . import Communicator, Field, HaloTypeError, HaloValueError, Pattern, PatternLinks
from ._order_check import Check, described
from ._slots import Slot, Slots

try:
    import torch
    from torch import Tensor
except ModuleNotFoundError:
    raise ModuleNotFoundError("halocline.torch needs PyTorch 2.3 or later: pip install torch", name="torch") from None
if not hasattr(torch.compiler, "is_compiling"):
    raise ImportError(f"halocline.torch needs PyTorch 2.3 or later, this is {torch.__version__}: pip install --upgrade torch", name="torch")

from ._torch_fields import RAW, Bound, checked_field, is_of_gpu, numpy_type, wide_type  # noqa: E402

__all__ = ["HaloExchange"]


class HaloExchange:
    """Exchanges the halos of tensors, and differentiates. Collective: all ranks make the same objects in the same order.

    ``patterns``: a pattern, for any number of fields, or a list with a pattern for each field.
    ``axes``: the dimensions of a tensor that are the axes of its pattern, by default the first ones; ``axes=(-2, -1)`` for the
    images (batch, channel, y, x) of a convolution. Along these axes a tensor has the shape of its domain, halo included; its
    other dimensions belong to each cell.
    ``link``, ``deadline``, ``name``, ``checked``: as for ``halocline.HaloExchange``. In checked mode the ranks also compare each
    call and each backward pass before it communicates.

    A field is a tensor, or a list with a tensor for each domain of this rank. With one field a call returns a field, with
    several a tuple of fields.

    With owned cells o and halo cells h that copy them, ``y = halo(x)`` is ``y[o] = x[o]``, ``y[h] = x[o]``. So the gradient of
    ``x[o]`` is that of ``y[o]`` plus those of all its copies ``y[h]``, and the gradient of ``x[h]`` is 0. Cells of no message, as
    those beyond a border of the grid, are returned as they are, and so are their gradients.

    **Order.** Each forward and each backward pass communicates, so all ranks run them in one order. Autograd runs the backward
    passes of one ``backward()`` in the reverse order of the calls, on each rank. Three rules follow:

    - All ranks make the same calls in the same order.
    - A tensor of a call requires a gradient on all ranks, or no tensor of this call does on any.
    - The loss of each rank depends on a result of each such call. Add ``0 * y.sum()`` to the loss of a rank that does not use y.

    A rank that breaks a rule leaves its peers waiting until the deadline, or their gradients are wrong. Checked mode names the
    ranks and calls instead.

    **Memory.** The first call with new element types, shapes or devices binds buffers for these tensors, which is collective.
    The object keeps one buffer for each tensor. Several calls may be in one graph; the results are new tensors.

    **GPUs.** Calls and backward passes of CUDA tensors run in the order of PyTorch's current stream; the host waits for none of them,
    unless 64 are in flight. The links between the GPUs need a reduce. Ranks that are threads of one process each have a GPU.
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
        self._slots = Slots(comm, patterns, axes, "tensor")
        self._comm = comm
        self._options: dict[str, Any] = {"link": link, "deadline": deadline, "name": name, "checked": checked}
        self._bound: dict[Any, Bound] = {}
        self._links: PatternLinks | None = None
        if checked is None:
            checked = os.environ.get("HALOCLINE_CHECK", "").strip().lower() in ("on", "1", "yes", "true")
        self._check = Check(comm, deadline, name) if checked else None

    @overload
    def __call__(self, field: Tensor, /) -> Tensor: ...
    @overload
    def __call__(self, field: list[Tensor], /) -> list[Tensor]: ...
    @overload
    def __call__(self, first: Tensor, second: Tensor, /, *others: Tensor) -> tuple[Tensor, ...]: ...
    @overload
    def __call__(self, *fields: Tensor | Sequence[Tensor]) -> Any: ...
    def __call__(self, *fields: Any) -> Any:
        """The fields with their halos filled, as new tensors."""
        return self._call(fields, _EXCHANGE)

    @overload
    def reduce(self, field: Tensor, /) -> Tensor: ...
    @overload
    def reduce(self, field: list[Tensor], /) -> list[Tensor]: ...
    @overload
    def reduce(self, first: Tensor, second: Tensor, /, *others: Tensor) -> tuple[Tensor, ...]: ...
    @overload
    def reduce(self, *fields: Tensor | Sequence[Tensor]) -> Any: ...
    def reduce(self, *fields: Any) -> Any:
        """The fields with each halo cell added to the owned cell that it copies, and cleared, as new tensors: the transpose of a
        call. Its backward pass is an exchange."""
        return self._call(fields, _REDUCE)

    @overload
    def exchange_(self, field: Tensor, /) -> Tensor: ...
    @overload
    def exchange_(self, field: list[Tensor], /) -> list[Tensor]: ...
    @overload
    def exchange_(self, first: Tensor, second: Tensor, /, *others: Tensor) -> tuple[Tensor, ...]: ...
    @overload
    def exchange_(self, *fields: Tensor | Sequence[Tensor]) -> Any: ...
    def exchange_(self, *fields: Any) -> Any:
        """Fills the halos of the tensors themselves, without a copy, and returns them.

        Autograd tracks it as any operation in place: PyTorch refuses a leaf that requires a gradient, and ``backward()`` raises an
        error if a tensor was saved before. Tensors of host memory only.
        """
        return self._call(fields, _IN_PLACE)

    def _call(self, fields: tuple[Any, ...], kind: _Kind) -> Any:
        if torch.compiler.is_compiling():
            return _outside_graphs(self, fields, kind)
        if not self._slots.one_domain or list in map(type, fields):
            return self._call_with_parts(fields, kind)
        results = _apply(self, self._slots.of(len(fields)), kind, fields)
        return results[0] if len(results) == 1 else tuple(results)

    def _call_with_parts(self, fields: tuple[Any, ...], kind: _Kind) -> Any:
        """A call whose fields may be lists of a tensor for each domain."""
        parts = self._slots.parts(fields, Tensor)
        flat = iter(_apply(self, self._slots.of(len(fields)), kind, tuple(sum(parts, []))))
        results = [[next(flat) for _ in given] for given in parts]
        shaped = tuple(part[0] if isinstance(field, Tensor) else part for field, part in zip(fields, results))
        return shaped[0] if len(shaped) == 1 else shaped

    def _bound_to(self, slots: tuple[Slot, ...], tensors: Sequence[Tensor], *, wide: bool) -> Bound:
        """The buffers for such tensors. ``wide``: of element types that have a sum."""
        key = (slots, wide, *[(tensor.dtype, tensor.shape, tensor.device, tensor.layout) for tensor in tensors])
        bound = self._bound.get(key)
        if bound is None:
            fields = [checked_field(at, *given, self._slots.axes) for at, given in enumerate(zip(slots, tensors))]
            types = tuple(wide_type(tensor.dtype) if wide else tensor.dtype for tensor in tensors)
            if wide and types == tuple(tensor.dtype for tensor in tensors):
                # The same memory and links as those of an exchange.
                bound = self._bound_to(slots, tensors, wide=False)
            else:
                bound = Bound(self._comm, self._options, slots, fields, tensors, types)
            self._bound[key] = bound
        return bound

    def _exchange_in_place(self, slots: tuple[Slot, ...], tensors: Sequence[Tensor]) -> None:
        fields = []
        for at, (slot, tensor) in enumerate(zip(slots, tensors)):
            axes = checked_field(at, slot, tensor, self._slots.axes)
            if is_of_gpu(tensor):
                raise HaloTypeError(f"fields[{at}]: a tensor of {tensor.device} cannot be exchanged in place; {_OUT_OF_PLACE}")
            plain = tensor.detach()
            if numpy_type(tensor.dtype) is None:
                plain = plain.view(RAW[tensor.element_size()])
            fields.append((slot.pattern, Field(plain, domain=slot.domain, axes=axes)))
        if self._links is None:
            link = self._options["link"]
            options = self._options | {"link": "auto" if link in ("push", "pull") else link}
            self._links = PatternLinks(self._comm, self._slots.patterns, **options)
        self._links.exchange(fields)


# --- autograd --------------------------------------------------------------------------------------------------------

_OUT_OF_PLACE = "call the object instead, which returns a new tensor"


def _is_differentiable(tensor: Tensor) -> bool:
    dtype = tensor.dtype
    return bool(dtype.is_floating_point or dtype.is_complex)


class _Kind:
    """An operation, with its transpose."""

    __slots__ = ("function", "is_in_place", "is_reduce", "name", "transpose")

    def __init__(self, name: str, function: Any, *, is_reduce: bool = False, is_in_place: bool = False) -> None:
        self.name, self.function, self.is_reduce, self.is_in_place = name, function, is_reduce, is_in_place
        self.transpose: _Kind = self


class _Pass:
    """What the backward pass of a call needs. ``label`` names the call in checked mode."""

    __slots__ = ("halo", "kind", "label", "slots")

    def __init__(self, halo: HaloExchange, slots: tuple[Slot, ...], kind: _Kind, label: str) -> None:
        self.halo, self.slots, self.kind, self.label = halo, slots, kind, label


def _apply(halo: HaloExchange, slots: tuple[Slot, ...], kind: _Kind, tensors: tuple[Any, ...]) -> Sequence[Tensor]:
    """Runs an operation, in a graph if a tensor requires a gradient."""
    needs_grad = False
    for at, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            raise HaloTypeError(
                f"fields[{at}]: a tensor of PyTorch is wanted, not {type(tensor).__name__}; torch.as_tensor() makes one"
            )
        if tensor.requires_grad:
            needs_grad = True
    needs_grad = needs_grad and torch.is_grad_enabled()
    if needs_grad:
        _check_differentiable(kind, tensors)
    check, label = halo._check, ""
    if check is not None:
        axes = [checked_field(at, *given, halo._slots.axes) for at, given in enumerate(zip(slots, tensors))]
        label = check.label(kind.name)
        check.compare(label, [described(axes, tensors), "a gradient" if needs_grad else "no gradient"])
    if torch._C._are_functorch_transforms_active():
        if kind.is_in_place:
            raise HaloTypeError(f"torch.func transforms no exchange in place; {_OUT_OF_PLACE}")
        return _TransformFunction.apply(_Pass(halo, slots, kind, label), *tensors)  # type: ignore[no-any-return]
    if needs_grad or torch.autograd.forward_ad._current_level >= 0:
        return kind.function.apply(_Pass(halo, slots, kind, label), *tensors)  # type: ignore[no-any-return]
    return _run(halo, slots, kind, tensors)


def _check_differentiable(kind: _Kind, tensors: tuple[Tensor, ...]) -> None:
    """Before anything communicates."""
    for at, tensor in enumerate(tensors):
        if kind.is_in_place and tensor.requires_grad and tensor.is_leaf:
            raise HaloValueError(f"fields[{at}]: a leaf that requires a gradient cannot be exchanged in place; {_OUT_OF_PLACE}")


def _run(halo: HaloExchange, slots: tuple[Slot, ...], kind: _Kind, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Runs an operation outside the graph."""
    if kind.is_in_place:
        halo._exchange_in_place(slots, tensors)
        return tensors
    if kind.is_reduce:
        for at, tensor in enumerate(tensors):
            if tensor.dtype == torch.bool:
                raise HaloTypeError(f"fields[{at}]: elements of bool have no sum; give tensor.to(torch.int32)")
    return halo._bound_to(slots, tensors, wide=kind.is_reduce).run(tensors, kind.is_reduce)


def _linear(this: _Pass, what: str, kind: _Kind, is_float: Sequence[bool], values: Sequence[Any]) -> tuple[Any, ...]:
    """A linear operation on the gradients or tangents of a call. All floats take part, whether this rank needs their gradients or
    not: other ranks may."""
    halo, slots, label = this.halo, this.slots, this.label
    if not all(is_float):
        slots = tuple(slot for slot, of_float in zip(slots, is_float) if of_float)
        values = [value for value, of_float in zip(values, is_float) if of_float]
    if halo._check is not None:
        label = f"{what} of {label}"
        halo._check.compare(label, [])
    results: Sequence[Any]
    if torch._C._are_functorch_transforms_active():
        results = _TransformFunction.apply(_Pass(halo, slots, kind, label), *values)
    elif torch.is_grad_enabled():
        results = _Function.apply(_Pass(halo, slots, kind, label), *values)
    else:
        results = _run(halo, slots, kind, values)
    left = iter(results)
    return tuple([next(left) if of_float else None for of_float in is_float])


class _Function(torch.autograd.Function):
    """An exchange or a reduce in a graph."""

    @staticmethod
    def forward(ctx: Any, this: _Pass, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.this, ctx.is_float = this, [_is_differentiable(tensor) for tensor in tensors]
        return tuple(_run(this.halo, this.slots, this.kind, tensors))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        return (None, *_linear(ctx.this, "backward pass", ctx.this.kind.transpose, ctx.is_float, grads))

    @staticmethod
    def jvp(ctx: Any, _this: Any, *tangents: Any) -> tuple[Any, ...]:
        return _linear(ctx.this, "tangent", ctx.this.kind, ctx.is_float, tangents)


class _InPlaceFunction(_Function):
    """An exchange that writes its tensors, in a graph."""

    @staticmethod
    def forward(ctx: Any, this: _Pass, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.mark_dirty(*tensors)
        return _Function.forward(ctx, this, *tensors)

    @staticmethod
    def jvp(ctx: Any, _this: Any, *tangents: Any) -> tuple[Any, ...]:
        raise HaloTypeError(f"an exchange in place has no tangent; {_OUT_OF_PLACE}")


class _TransformFunction(_Function):
    """The same under the transforms of ``torch.func``, which want the context apart; that costs some microseconds more."""

    @staticmethod
    def forward(this: _Pass, *tensors: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        return tuple(_run(this.halo, this.slots, this.kind, tensors))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        this, *tensors = inputs
        ctx.this, ctx.is_float = this, [_is_differentiable(tensor) for tensor in tensors]

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], this: _Pass, *tensors: Tensor) -> tuple[Any, ...]:
        # The batch is one more dimension of each cell, at the end that no axis counts from.
        place = 0 if this.halo._slots.axes and this.halo._slots.axes[0] < 0 else -1
        dims = in_dims[1:]
        moved = [tensor if dim is None else tensor.movedim(dim, place) for tensor, dim in zip(tensors, dims)]
        return _TransformFunction.apply(this, *moved), tuple(None if dim is None else place for dim in dims)


_EXCHANGE = _Kind("exchange", _Function)
_REDUCE = _Kind("reduce", _Function, is_reduce=True)
_IN_PLACE = _Kind("exchange_", _InPlaceFunction, is_in_place=True)
_EXCHANGE.transpose, _REDUCE.transpose, _IN_PLACE.transpose = _REDUCE, _EXCHANGE, _REDUCE


def _call_outside_graphs(halo: HaloExchange, fields: tuple[Any, ...], kind: _Kind) -> Any:
    """A call in a program that torch.compile compiles. A compiler may reorder or drop what it sees, each rank's in its own way, so the
    call ends one graph, and another begins after it."""
    return halo._call(fields, kind)


# Imports the compiler when it is first called; torch.compiler.disable imports it at once, which takes a second.
_outside_graphs = getattr(torch, "_disable_dynamo", torch.compiler.disable)(_call_outside_graphs)
