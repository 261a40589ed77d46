"""Tensors as fields of ``halocline.torch``: which tensors are accepted, the types that they are exchanged as, and their buffers."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import Communicator, Field, HaloExchange, HaloTypeError, InFlightError, zeros
from ._slots import Slot, checked_axes


def checked_field(at: int, slot: Slot, tensor: Any, axes: list[int] | None) -> list[int]:
    """The axes of a tensor that are those of its pattern, counted from 0."""
    what = f"fields[{at}]"
    if hasattr(tensor, "to_local"):
        raise HaloTypeError(f"{what}: a distributed tensor of PyTorch is not a field of one rank; give tensor.to_local()")
    if tensor.layout != torch.strided:
        raise HaloTypeError(f"{what}: a tensor of layout {tensor.layout} has no array of its cells; give tensor.to_dense()")
    if tensor.device.type not in ("cpu", "cuda"):
        raise HaloTypeError(f"{what}: a tensor of device {tensor.device} cannot be exchanged; those of the CPU and of CUDA can")
    if tensor.is_quantized:
        raise HaloTypeError(f"{what}: a quantized tensor cannot be exchanged; give tensor.dequantize() or tensor.int_repr()")
    return checked_axes(what, "a tensor", slot, tuple(tensor.shape), axes)


# --- element types ---------------------------------------------------------------------------------------------------

RAW = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""What an element type that NumPy lacks is exchanged as."""

_SUMMED = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def numpy_type(dtype: torch.dtype) -> Any:
    """The type of NumPy; ``None`` if it has none."""
    try:
        return torch.empty(0, dtype=dtype).numpy().dtype
    except (TypeError, RuntimeError):
        return None


def wide_type(dtype: torch.dtype) -> torch.dtype:
    """The type in which elements are added: half precision is added in single precision, and rounded once."""
    if dtype.is_complex and dtype not in _SUMMED:
        return torch.complex64
    return torch.float32 if dtype.is_floating_point and dtype not in _SUMMED else dtype


# --- buffers ---------------------------------------------------------------------------------------------------------


class Bound:
    """Buffers that are bound to one exchange. Tensors are copied there, and results from there."""

    def __init__(
        self,
        comm: Communicator,
        options: dict[str, Any],
        slots: tuple[Slot, ...],
        axes: list[list[int]],
        tensors: Sequence[Tensor],
        types: Sequence[torch.dtype],
    ) -> None:
        self.types = [tensor.dtype for tensor in tensors]
        self.keeps_types = self.types == list(types)
        self.buffers: list[Tensor] = []
        fields: list[Any] = []
        # Buffers of inference mode could not be written outside it.
        with torch.inference_mode(False), torch.no_grad():
            for slot, along, tensor, dtype in zip(slots, axes, tensors, types):
                array: Any
                if tensor.device.type == "cpu":
                    raw = RAW[dtype.itemsize] if numpy_type(dtype) is None else dtype
                    array = zeros(tuple(tensor.shape), numpy_type(raw), comm)
                    self.buffers.append(torch.from_numpy(array).view(dtype))
                else:
                    array = torch.zeros(tensor.shape, dtype=dtype, device=tensor.device)
                    self.buffers.append(array)
                fields.append((slot.pattern, Field(array, domain=slot.domain, axes=along)))
        self.devices = sorted({tensor.device for tensor in tensors if tensor.device.type != "cpu"}, key=str)
        self.halo = HaloExchange(comm, fields, **options)
        self.lock = threading.Lock()
        # A wait was interrupted: peers may still read the buffers.
        self.is_unfinished = False

    def run(self, tensors: Sequence[Tensor], is_reduce: bool) -> list[Tensor]:
        if not self.lock.acquire(False):
            raise InFlightError("another thread exchanges such tensors with this object; wait for it, or give each thread an object")
        try:
            if self.is_unfinished:
                self.halo.wait()
            try:
                for buffer, tensor in zip(self.buffers, tensors):
                    buffer.copy_(tensor)
            except RuntimeError as error:
                raise HaloTypeError(
                    f"a tensor cannot be copied into a buffer: {error} Instead of batched gradients (is_grads_batched=True), use "
                    "torch.vmap of torch.func.vjp, or a loop"
                ) from error
            self.is_unfinished = True
            if self.devices:
                self.schedule()
            elif is_reduce:
                self.halo.reduce("sum")
            else:
                self.halo.exchange()
            self.is_unfinished = False
            if self.keeps_types:
                return [buffer.clone() for buffer in self.buffers]
            return [buffer.to(dtype, copy=True) for buffer, dtype in zip(self.buffers, self.types)]
        finally:
            self.lock.release()

    def schedule(self) -> None:
        """An exchange in the order of the current streams. The host waits for host fields only."""
        streams = [torch.cuda.current_stream(device) for device in self.devices]
        self.halo.schedule_exchange(streams).schedule_wait(streams)
