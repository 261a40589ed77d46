"""Tensors as fields of ``halocline.torch``: which tensors are accepted, the types that they are exchanged as, and their buffers."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import Communicator, Field, HaloExchange, HaloTypeError, HaloValueError, InFlightError, Pending, zeros
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


def is_of_gpu(tensor: Tensor) -> bool:
    return tensor.device.type != "cpu"


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
        of_gpus = [tensor for tensor in tensors if is_of_gpu(tensor)]
        if of_gpus and torch.cuda.is_current_stream_capturing():
            raise HaloValueError(
                "the first call with such tensors binds buffers, which no CUDA graph can hold; call the object with such tensors "
                "before the capture, on all ranks"
            )
        # Buffers of inference mode could not be written outside it.
        with torch.inference_mode(False), torch.no_grad():
            for slot, along, tensor, dtype in zip(slots, axes, tensors, types):
                raw = RAW[dtype.itemsize] if numpy_type(dtype) is None else dtype
                array: Any
                if is_of_gpu(tensor):
                    array = torch.zeros(tensor.shape, dtype=raw, device=tensor.device)
                    self.buffers.append(array.view(dtype))
                else:
                    array = zeros(tuple(tensor.shape), numpy_type(raw), comm)
                    self.buffers.append(torch.from_numpy(array).view(dtype))
                fields.append((slot.pattern, Field(array, domain=slot.domain, axes=along)))
        self.halo = HaloExchange(comm, fields, **options)
        self.streams = None
        if of_gpus:
            buffers = [buffer for buffer, tensor in zip(self.buffers, tensors) if is_of_gpu(tensor)]
            self.streams = Streams(buffers, has_host_fields=len(of_gpus) < len(tensors))
        self.lock = threading.Lock()
        # A wait was interrupted: peers may still read the buffers.
        self.is_unfinished = False

    def run(self, tensors: Sequence[Tensor], is_reduce: bool) -> list[Tensor]:
        if not self.lock.acquire(False):
            raise InFlightError("another thread exchanges such tensors with this object; wait for it, or give each thread an object")
        try:
            if self.is_unfinished:
                self.halo.wait()
            if self.streams is not None:
                self.streams.follow()
            try:
                for buffer, tensor in zip(self.buffers, tensors):
                    buffer.copy_(tensor)
            except RuntimeError as error:
                raise HaloTypeError(
                    f"a tensor cannot be copied into a buffer: {error} Instead of batched gradients (is_grads_batched=True), use "
                    "torch.vmap of torch.func.vjp, or a loop"
                ) from error
            self.is_unfinished = True
            if self.streams is not None:
                self.streams.schedule(self.halo, is_reduce)
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


IN_FLIGHT = 64
"""The most exchanges of an object that may be in flight, if all its fields are in GPU memory; otherwise one may."""


class Streams:
    """The order of calls with buffers in GPU memory: that of PyTorch's current streams. The host waits for a call only if too many are
    in flight."""

    def __init__(self, buffers: Sequence[Tensor], *, has_host_fields: bool) -> None:
        self._buffers = buffers
        # The stream of each device that has used the buffers last.
        self._last = {buffer.device: torch.cuda.current_stream(buffer.device) for buffer in buffers}
        self._limit = 1 if has_host_fields else IN_FLIGHT
        self._in_flight: deque[Pending] = deque()

    def follow(self) -> None:
        """Makes the current streams wait for the last call, if that was on others: it may still read the buffers."""
        if torch.cuda.is_current_stream_capturing():
            # A capture waits for nothing outside the graph. The program orders the launches of the graph after earlier calls.
            return
        for device, last in self._last.items():
            current = torch.cuda.current_stream(device)
            if current != last:
                current.wait_stream(last)
                self._last[device] = current
                for buffer in self._buffers:
                    if buffer.device == device:
                        # PyTorch gives the memory to no other tensor before this stream has used it.
                        buffer.record_stream(current)

    def schedule(self, halo: HaloExchange, is_reduce: bool) -> None:
        """An exchange or a reduce by sum in the order of the current streams. The host waits for host fields."""
        streams = [torch.cuda.current_stream(device) for device in self._last]
        is_captured = torch.cuda.is_current_stream_capturing()
        if not is_captured and len(self._in_flight) == self._limit:
            self._in_flight.popleft().wait()
        pending = halo.schedule_reduce("sum", streams) if is_reduce else halo.schedule_exchange(streams)
        pending.schedule_wait(streams)
        if not is_captured:
            self._in_flight.append(pending)
