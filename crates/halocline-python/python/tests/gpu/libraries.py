"""What computes on the fields of the tests: CuPy, PyTorch, Numba's arrays, and NumPy, for which nothing runs on its own.

An ``Engine`` has a device of a rank. What it computes it gives to a stream and waits for nothing.
"""

import contextlib
import functools
import os

import numpy as np

SPIN = r"""
extern "C" __global__ void spin(long long cycles) {
  long long begin = clock64();
  while (clock64() - begin < cycles) {}
}
"""
CYCLES = 1_900_000
"""Of a millisecond, about."""


@functools.cache
def gpus():
    """How many there are."""
    try:
        import cupy
    except ImportError:
        return 0
    try:
        return cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        return 0


def device_of(rank):
    return rank % max(gpus(), 1)


class OnHost:
    """NumPy: what is computed is done at once. It shows that the tests are right where there is no GPU."""

    name, device = "numpy", None

    def __init__(self, rank):
        pass

    def here(self):
        return contextlib.nullcontext()

    def array(self, values):
        return np.array(values)

    def empty(self, shape):
        return np.empty(shape)

    def host(self, array):
        return np.array(array)

    def streams(self):
        return {"None": (None, None)}

    def on(self, stream):
        return contextlib.nullcontext()

    def spin(self, milliseconds):
        pass

    def add(self, array, other):
        array += other

    def copy(self, to, array):
        to[...] = array

    def after(self, stream, other):
        pass

    def synchronise(self):
        pass


# Of streams that are known by their handles alone.
held = []


def once(streams):
    """Of each rank: streams made anew would come to share queues of the hardware with others that wait."""
    made = {}

    def streams_of_rank(self):
        key = (self.name, self.rank)
        if key not in made:
            made[key] = streams(self)
        return made[key]

    return streams_of_rank


class OfCupy:
    name = "cupy"

    def __init__(self, rank):
        import cupy

        self.cupy, self.rank, self.device = cupy, rank, device_of(rank)
        with self.here():
            self._spin = cupy.RawKernel(SPIN, "spin")
            # Kernels are loaded now: later that would wait for streams that wait for ranks.
            a = self.array(np.ones((4, 5, 6)))
            b = self.array(np.ones((2, 4, 5, 6)))
            self.spin(0.01)
            self.add(a, b[0])
            self.copy(b[1], a)
            self.add(a[1:3, ::2], a[1:3, ::2])
            self.copy(a[::2], a[1::2])
            a.fill(0)
            self.host(b)
            self.synchronise()

    def here(self):
        return self.cupy.cuda.Device(self.device)

    def array(self, values):
        return self.cupy.array(values)

    def empty(self, shape):
        return self.cupy.empty(shape)

    def host(self, array):
        with array.device:
            return self.cupy.asnumpy(array)

    @once
    def streams(self):
        """By name: what computes use, and what an exchange is given."""
        import halocline as hc

        cuda = self.cupy.cuda

        class Speaking:
            def __cuda_stream__(self):
                return (0, blocking.ptr)

        blocking, free, own = cuda.Stream(), cuda.Stream(non_blocking=True), cuda.Stream(non_blocking=True)
        return {
            "None": (cuda.Stream.null, None),
            "cupy null": (cuda.Stream.null, cuda.Stream.null),
            "per thread": (cuda.Stream.ptds, cuda.Stream.ptds),
            "from_external": (free, cuda.Stream.from_external(hc.Stream(free.ptr))),
            "__cuda_stream__": (blocking, Speaking()),
            "hc.Stream": (own, hc.Stream(own.ptr)),
            "cupy": (free, free),
        }

    def on(self, stream):
        return stream

    def spin(self, milliseconds):
        self._spin((1,), (1,), (int(milliseconds * CYCLES),))

    def add(self, array, other):
        array += other

    def copy(self, to, array):
        to[...] = array

    def after(self, stream, other):
        """What the stream is given from now on comes after the work of the other one."""
        stream.wait_event(other.record())

    def synchronise(self):
        self.cupy.cuda.Device(self.device).synchronize()


class OfNumba(OfCupy):
    """Arrays and streams of Numba, on which CuPy computes, without a copy."""

    name = "numba"

    def __init__(self, rank):
        import numba.cuda

        self.numba = numba.cuda
        self.numba.select_device(device_of(rank))
        computing = OfCupy(rank)
        self.cupy, self.rank, self.device, self._spin = computing.cupy, rank, computing.device, computing._spin

    def array(self, values):
        values = np.ascontiguousarray(values)
        array = self.numba.device_array(values.shape, values.dtype)
        self._of(array)[...] = self.cupy.array(values)
        return array

    def _of(self, array):
        return self.cupy.asarray(array)

    def host(self, array):
        return self.cupy.asnumpy(self._of(array))

    @once
    def streams(self):
        import halocline as hc

        stream = self.numba.stream()
        handle = stream.handle
        handle = int(getattr(handle, "value", handle))
        held.append(stream)
        return {
            "hc.Stream of Numba": (self.cupy.cuda.Stream.from_external(hc.Stream(handle)), hc.Stream(handle)),
            "Numba's default": (self.cupy.cuda.Stream.null, None),
        }

    def add(self, array, other):
        array = self._of(array)
        array += self._of(other)

    def copy(self, to, array):
        self._of(to)[...] = self._of(array)


class OfTorch:
    name = "torch"

    def __init__(self, rank):
        import torch

        self.torch, self.rank, self.device = torch, rank, device_of(rank)
        self.place = torch.device("cuda", self.device)
        with self.here():
            a, b = self.array(np.ones((4, 5, 6))), self.array(np.ones((2, 4, 5, 6)))
            self.spin(0.01)
            self.add(a, b[0])
            self.copy(b[1], a)
            self.copy(a[::2], a[1::2])
            a.fill_(0)
            self.host(b)
            self.synchronise()

    def here(self):
        return self.torch.cuda.device(self.place)

    def array(self, values):
        return self.torch.from_numpy(np.array(values)).to(self.place)

    def empty(self, shape):
        return self.torch.empty(tuple(shape), dtype=self.torch.float64, device=self.place)

    def host(self, array):
        return array.cpu().numpy()

    @once
    def streams(self):
        cuda = self.torch.cuda
        own, first = cuda.Stream(self.place), cuda.Stream(self.place, priority=-1)
        return {
            "torch's default": (cuda.default_stream(self.place), cuda.default_stream(self.place)),
            "torch, high priority": (first, first),
            "torch": (own, own),
        }

    def on(self, stream):
        return self.torch.cuda.stream(stream)

    def spin(self, milliseconds):
        self.torch.cuda._sleep(int(milliseconds * CYCLES))

    def add(self, array, other):
        array += other

    def copy(self, to, array):
        to.copy_(array, non_blocking=True)

    def after(self, stream, other):
        stream.wait_stream(other)

    def synchronise(self):
        self.torch.cuda.synchronize(self.place)


ENGINES = {"numpy": OnHost, "cupy": OfCupy, "torch": OfTorch, "numba": OfNumba}
IS_JOB = "HALOCLINE_TEST_SIZE" in os.environ
SHARE_MEMORY = os.environ.get("HALOCLINE_NODE_AWARE") != "off"
