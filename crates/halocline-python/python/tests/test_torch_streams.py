"""Tensors in GPU memory: in which order calls use the buffers. Here tensors of the host stand for them, and objects for streams; ``gpu``
has the tests on GPUs."""

import threading
from types import SimpleNamespace

import pytest

import halocline as hc

torch = pytest.importorskip("torch", reason="torch is not installed")

import halocline.torch  # noqa: E402
from halocline import _torch_fields  # noqa: E402
from torch_patterns import (  # noqa: E402, F401
    alone,
    check_gradients,
    exchanged,
    make_pattern,
    narrow,
    ranks,
    reduced,
    values,
)


class Stream:
    """A stream that notes what it waits for."""

    def __init__(self, name, log):
        self.name, self.log, self.cuda_stream = name, log, id(self)

    def wait_stream(self, other):
        self.log.append(f"{self.name} waits for {other.name}")


@pytest.fixture
def gpu(monkeypatch):
    """All tensors count as those of GPUs. Each thread has a current stream; ``log`` notes what streams do."""
    log, here = [], threading.local()

    def current_stream(device):
        if not hasattr(here, "stream"):
            here.stream = Stream("default", log)
        return here.stream

    made = SimpleNamespace(log=log, is_capturing=False, use=lambda name: setattr(here, "stream", Stream(name, log)))
    for module in (_torch_fields, halocline.torch):
        monkeypatch.setattr(module, "is_of_gpu", lambda tensor: True)
    monkeypatch.setattr(torch.cuda, "current_stream", current_stream)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: made.is_capturing)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda _, stream: log.append(f"memory of {stream.name}"))
    return made


class Halo:
    """Notes what is begun on which streams, and what is waited for."""

    def __init__(self, log):
        self.log, self.count = log, 0

    def schedule_exchange(self, streams):
        return self.begin("exchange", streams)

    def schedule_reduce(self, op, streams):
        return self.begin(f"reduce by {op}", streams)

    def begin(self, what, streams):
        self.count += 1
        return Pending(self.log, self.count, what, streams)


class Pending:
    def __init__(self, log, number, what, streams):
        self.log, self.number, self.streams = log, number, streams
        log.append(f"{what} {number} after {[stream.name for stream in streams]}")

    def schedule_wait(self, streams):
        assert streams == self.streams
        self.log.append(f"{[stream.name for stream in streams]} after {self.number}")

    def wait(self):
        self.log.append(f"host after {self.number}")


# --- gradients -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["exchange", "reduce"])
def test_gradients_of_all_orders(gpu, ranks, make_pattern, operation):
    def rank(comm):
        pattern = make_pattern(comm)
        halo = halocline.torch.HaloExchange(comm, pattern)
        call = halo if operation == "exchange" else halo.reduce
        check_gradients(comm, lambda x: call(x) ** 3, [pattern.shape])
        assert all(bound.streams is not None for bound in halo._bound.values())

    hc.run_threads(ranks, rank)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128])
def test_types_with_gradients(gpu, dtype):
    def rank(comm):
        pattern = narrow(comm)
        halo = halocline.torch.HaloExchange(comm, pattern)
        x, upstream = values(pattern.shape, comm.rank, dtype).requires_grad_(), values(pattern.shape, comm.rank + 9, dtype)
        halo(x).backward(upstream)
        assert x.grad.dtype == dtype
        assert torch.equal(x.grad.to(torch.complex128), reduced(comm, pattern, upstream.to(torch.complex128)))

    hc.run_threads(2, rank)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.int64, torch.float8_e5m2], ids=str)
def test_types_without_gradients(gpu, dtype):
    def rank(comm):
        pattern = narrow(comm)
        halo = halocline.torch.HaloExchange(comm, pattern)
        whole = values(pattern.shape, comm.rank).abs()
        x = (whole > 3) if dtype == torch.bool else whole.to(dtype)
        y, z = halo(whole.clone().requires_grad_(), x)
        assert torch.equal(z.to(torch.float64), exchanged(comm, pattern, x.to(torch.float64))) and z.dtype == dtype
        y.sum().backward()

    hc.run_threads(2, rank)


def test_no_graph_where_none_is_wanted(gpu, alone):
    _, _, halo = alone
    x = torch.arange(8.0, requires_grad=True)
    with torch.no_grad():
        y = halo(x)
    assert not y.requires_grad and y.tolist() == [6, 1, 2, 3, 4, 5, 6, 1]
    halo(x).sum().backward()
    assert x.grad.tolist() == [0, 2, 1, 1, 1, 1, 2, 0]


def test_a_compiled_program(gpu, alone):
    _, _, halo = alone
    x = torch.arange(8.0, requires_grad=True)
    torch.compile(lambda x: (halo(x * 2) * 3).sum(), backend="eager")(x).backward()
    assert x.grad.tolist() == [0, 12, 6, 6, 6, 6, 12, 0]
    torch._dynamo.reset()


# --- streams ---------------------------------------------------------------------------------------------------------


def test_a_call_has_the_order_of_the_current_stream(gpu, alone):
    _, _, halo = alone
    halo(torch.zeros(8))
    (bound,) = halo._bound.values()
    bound.halo = Halo(gpu.log)
    halo(torch.zeros(8))
    halo.reduce(torch.zeros(8))
    assert gpu.log == [
        "exchange 1 after ['default']",
        "['default'] after 1",
        "reduce by sum 2 after ['default']",
        "['default'] after 2",
    ]


def test_a_stream_follows_the_one_that_used_the_buffers_before(gpu, alone):
    _, _, halo = alone
    halo(torch.zeros(8))
    gpu.use("second")
    halo(torch.zeros(8))
    halo.reduce(torch.zeros(8))
    assert gpu.log == ["second waits for default", "memory of second"]
    gpu.use("third")
    halo(torch.zeros(8))
    assert gpu.log[2:] == ["third waits for second", "memory of third"]


def test_the_buffers_are_written_after_the_stream_waits(gpu, alone, monkeypatch):
    _, _, halo = alone
    halo(torch.zeros(8))
    real = torch.Tensor.copy_
    monkeypatch.setattr(torch.Tensor, "copy_", lambda to, source: gpu.log.append("copied") or real(to, source))
    gpu.use("second")
    halo(torch.zeros(8))
    assert gpu.log == ["second waits for default", "memory of second", "copied"]


def test_a_capture_waits_for_nothing_outside(gpu, alone):
    _, _, halo = alone
    gpu.is_capturing = True
    with pytest.raises(hc.HaloValueError, match="which no CUDA graph can hold; call the object with such tensors before the capture"):
        halo(torch.zeros(8))
    gpu.is_capturing = False
    halo(torch.zeros(8))
    (bound,) = halo._bound.values()
    real, bound.halo = bound.halo, Halo(gpu.log)
    gpu.is_capturing = True
    gpu.use("captured")
    for _ in range(100):
        halo(torch.zeros(8))
    assert not any("waits for" in line or line.startswith("host") for line in gpu.log)
    gpu.is_capturing, bound.halo = False, real
    gpu.log.clear()
    gpu.use("second")
    halo(torch.zeros(8))
    assert gpu.log == ["second waits for default", "memory of second"]


@pytest.mark.parametrize(("has_host_fields", "limit"), [(False, 64), (True, 1)])
def test_the_host_waits_only_if_too_many_are_in_flight(gpu, has_host_fields, limit):
    streams = _torch_fields.Streams([torch.zeros(8)], has_host_fields=has_host_fields)
    halo = Halo(gpu.log)
    for count in range(3 * limit):
        streams.schedule(halo, count % 2 == 1)
        waits = [line for line in gpu.log if line.startswith("host")]
        assert waits == [f"host after {number + 1}" for number in range(count + 1 - limit)]


def test_a_tensor_is_not_exchanged_in_place(gpu, alone):
    _, _, halo = alone
    with pytest.raises(hc.HaloTypeError, match=r"fields\[0\]: a tensor of cpu cannot be exchanged in place; "):
        halo.exchange_(torch.zeros(8))
