"""The primitive of ``halocline.jax``: an exchange or a reduce, which XLA runs through a handler of its foreign function interface.

Its effect is ordered: JAX passes a token from each call to the next, within a compiled function and from one to the next. So XLA runs each
call once, and all calls of a thread in the order of the program.
"""

from __future__ import annotations

import os
import re
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from . import ClosedError, Communicator, HaloError, HaloTypeError, HaloValueError, _core
from ._slots import Slot

try:
    # JAX has no public names for what orders calls.
    from jax._src import core, dispatch, effects
    from jax._src.interpreters import batching, mlir

    _ALLOWED = (
        effects.lowerable_effects,
        effects.ordered_effects,
        # On more devices the lowering refuses it, with an error of this package.
        effects.shardable_ordered_effects,
        effects.control_flow_allowed_effects,
        effects.custom_derivatives_allowed_effects,
        effects.remat_allowed_effects,
    )
    _lowering = jax.ffi.ffi_lowering("halocline_exchange", has_side_effect=True)
except (ImportError, AttributeError):
    raise ImportError(f"halocline.jax does not work with JAX {jax.__version__}: install another one, from 0.6", name="jax")

if TYPE_CHECKING:
    from .jax import HaloExchange

_ON_CPU = "jax.device_put(array, jax.devices('cpu')[0])"
ONE_DEVICE = f"an exchange takes arrays of one device, as each rank holds its own part; give one by {_ON_CPU}"
ON_WHAT = f"halocline.jax exchanges arrays of the CPU and of CUDA GPUs; give one by {_ON_CPU}"


class Operation:
    """What a call runs. One object for all calls alike: JAX compares it by identity, and keeps it as long as compiled functions."""

    __slots__ = ("halo", "reduces", "slots")

    def __init__(self, halo: HaloExchange, slots: tuple[Slot, ...], reduces: bool) -> None:
        self.halo, self.slots, self.reduces = weakref.ref(halo), slots, reduces

    def __repr__(self) -> str:
        return "reduce" if self.reduces else "exchange"


class _HaloEffect(effects.Effect):
    def __str__(self) -> str:
        return "halocline"


_EFFECT = _HaloEffect()
for _allowed in _ALLOWED:
    _allowed.add_type(_HaloEffect)

exchange_p = core.Primitive("halocline_exchange")
"""Of the arrays of a call; in checked mode the number of its label comes first."""
exchange_p.multiple_results = True
dispatch.simple_impl(exchange_p)
# The buffers lie on the GPU that the function is compiled for.
dispatch.prim_requires_devices_during_lowering.add(exchange_p)


@exchange_p.def_effectful_abstract_eval  # type: ignore[untyped-decorator]
def _results(*arrays: Any, operation: Operation, labels: int) -> tuple[list[Any], set[Any]]:
    del operation
    return [core.ShapedArray(array.shape, array.dtype) for array in arrays[labels:]], {_EFFECT}


def _lower_for(ctx: Any, arrays: Any, operation: Operation, labels: int, gpu: int | None) -> Any:
    halo = operation.halo()
    if halo is None:
        raise ClosedError("the halocline.jax.HaloExchange of this function was dropped; keep a reference to it")
    axes = ctx.module_context.axis_context
    devices = axes.num_devices if hasattr(axes, "num_devices") else axes.mesh.size if hasattr(axes, "mesh") else None
    if devices != 1:
        raise HaloTypeError(ONE_DEVICE)
    bound = halo._bound_to(operation, ctx.avals_in[labels:], gpu)
    token = core.abstract_token
    with_token = ctx.replace(avals_in=[token, *ctx.avals_in], avals_out=[token, *ctx.avals_out])
    attributes = {"exchange": np.int64(bound.number), "reduces": np.int64(operation.reduces)}
    after, *results = _lowering(with_token, ctx.tokens_in.get(_EFFECT), *arrays, **attributes)
    ctx.set_tokens_out(ctx.tokens_in.update_tokens(mlir.TokenSet({_EFFECT: after})))
    return results


def _lower_for_cpu(ctx: Any, *arrays: Any, operation: Operation, labels: int) -> Any:
    return _lower_for(ctx, arrays, operation, labels, None)


def _lower_for_gpu(ctx: Any, *arrays: Any, operation: Operation, labels: int) -> Any:
    devices = getattr(ctx.module_context.axis_context, "device_assignment", None) or ()
    if len(devices) != 1:
        raise HaloTypeError(ONE_DEVICE)
    return _lower_for(ctx, arrays, operation, labels, devices[0].local_hardware_id)


def _refuse_device(*_: Any, **__: Any) -> Any:
    raise HaloTypeError(ON_WHAT)


mlir.register_lowering(exchange_p, _refuse_device)
mlir.register_lowering(exchange_p, _lower_for_cpu, platform="cpu")
mlir.register_lowering(exchange_p, _lower_for_gpu, platform="cuda")


def _batch(arrays: Any, dims: Any, *, operation: Operation, labels: int) -> Any:
    """The batch is one more dimension of each cell, at the end that no axis counts from."""
    halo = operation.halo()
    is_first = halo is not None and halo._slots.axes is not None and halo._slots.axes[0] < 0
    moved, places = [], []
    for array, dim in zip(arrays, dims):
        if dim is None:
            moved.append(array)
            places.append(dim)
        else:
            place = 0 if is_first else array.ndim - 1
            moved.append(jax.numpy.moveaxis(array, dim, place))
            places.append(place)
    return exchange_p.bind(*moved, operation=operation, labels=labels), places[labels:]


batching.primitive_batchers[exchange_p] = _batch


def forget_token() -> None:
    """After a failed call: all later calls of this thread would fail with it, and the end of the process would report it again."""
    dispatch.runtime_tokens.current_tokens.pop(_EFFECT, None)
    # Of a GPU, the last computation there, which has failed.
    dispatch.runtime_tokens.output_runtime_tokens.clear()


_registration = threading.Lock()
_is_registered = False


def register() -> None:
    """Registers the handler, once."""
    global _is_registered
    with _registration:
        if not _is_registered:
            handler = _core._xla_handler(*_interface_version())
            try:
                # Before that, JAX keeps what is registered for later.
                jax.devices("cpu")
            except RuntimeError as error:
                raise HaloError(f"halocline.jax needs JAX's CPU device; add cpu to JAX_PLATFORMS: {error}") from error
            for platform in ("cpu", "CUDA"):
                jax.ffi.register_ffi_target("halocline_exchange", jax.ffi.pycapsule(handler), platform=platform)
            _is_registered = True


def check_threads(comm: Communicator) -> None:
    """Refuses ranks that are threads of this process, if XLA could not run a function of each at once: one would wait for another that
    has not begun."""
    given = [os.environ[name] for name in ("NPROC", "PJRT_NPROC") if os.environ.get(name, "").isdecimal()]
    threads = max(int(given[0]) if given else len(os.sched_getaffinity(0)), len(jax.devices("cpu")))
    if comm.transport == "thread" and comm.size > threads:
        raise HaloValueError(
            f"comm: its {comm.size} ranks are threads of this process, and XLA runs {threads} functions at once here; set the environment "
            f"variable PJRT_NPROC={comm.size} before JAX starts, or make ranks processes (halocline launch)"
        )


def _interface_version() -> tuple[int, int]:
    """The version of XLA's foreign function interface, by the header that jaxlib installs."""
    try:
        header = Path(jax.ffi.include_dir(), "xla/ffi/api/c_api.h").read_text()
    except OSError as error:
        raise HaloError(f"jaxlib lacks a header that halocline.jax needs; install the one of PyPI: {error}") from error
    found = [re.search(rf"^#define XLA_FFI_API_{part} (\d+)", header, re.MULTILINE) for part in ("MAJOR", "MINOR")]
    major, minor = (int(part[1]) if part else -1 for part in found)
    return major, minor
