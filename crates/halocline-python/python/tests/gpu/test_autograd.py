"""Gradients through exchanges of tensors in GPU memory, by ``halocline.torch``: of each rank alone with its GPU, and of all together."""

import gc

import libraries
import numpy as np
import pytest

import halocline as hc

torch = pytest.importorskip("torch", reason="torch is not installed")

import halocline.torch  # noqa: E402
from global_function import global_function  # noqa: E402
from gradient_patterns import regular, unstructured  # noqa: E402

TYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128]


@pytest.fixture
def engine_of_torch():
    if not libraries.gpus():
        pytest.skip("there is no GPU, or no CuPy: test_torch_streams.py has tests without one")
    return libraries.ENGINES["torch"]


@pytest.fixture(params=["one GPU", "all ranks"])
def on_gpus(request, together, engine_of_torch):
    """Calls a function with a communicator, of one rank or of all, and the engine of this rank's GPU, whose stream is the current one."""

    def call(function):
        def rank(comm):
            mine = engine_of_torch(comm.rank)
            with mine.here(), mine.on(mine.streams()["torch"][0]):
                of = comm if request.param == "all ranks" else hc.run_threads(1, lambda alone: alone)[0]
                if of.size > 1 and libraries.gpus() < of.size:
                    return "SKIPPED: ranks share a GPU"
                said = function(of, mine)
                mine.synchronise()
                return said

        together(rank)

    return call


@pytest.fixture(params=[regular, unstructured], ids=lambda make: make.__name__)
def make_pattern(request):
    return request.param


def values(shape, seed, mine, dtype=torch.float64):
    """Small whole numbers: sums of them are exact."""
    return torch.from_numpy(np.random.default_rng(seed).integers(-8, 9, shape)).to(dtype).to(mine.place)


def on_the_host(comm, pattern, tensor, *, reduce=False):
    """The same by an exchange of host memory."""
    copy = tensor.detach().cpu().clone()
    halo = hc.HaloExchange(comm, [(pattern, copy)])
    halo.reduce("sum") if reduce else halo.exchange()
    return copy


def total(comm, value):
    return comm.all_reduce([value.item()])[0]


@pytest.mark.parametrize("operation", ["exchange", "reduce"])
def test_gradients_of_all_orders(on_gpus, make_pattern, operation):
    def check(comm, mine):
        pattern = make_pattern(comm)
        halo = halocline.torch.HaloExchange(comm, pattern, deadline=20)
        call = halo if operation == "exchange" else halo.reduce
        of_all, whole = global_function(comm, lambda x: (call(x.to(mine.place)) ** 3).cpu(), [pattern.shape])
        upstream = torch.linspace(-1, 1, len(whole), dtype=torch.float64).requires_grad_()
        assert torch.autograd.gradcheck(of_all, whole)
        assert torch.autograd.gradgradcheck(of_all, whole, upstream)
        return f"gradcheck of {operation}, {make_pattern.__name__}, {comm.size} ranks: {len(whole)} cells of all ranks"

    on_gpus(check)


def test_the_transpose(on_gpus, make_pattern):
    def check(comm, mine):
        pattern = make_pattern(comm)
        halo = halocline.torch.HaloExchange(comm, pattern, deadline=20)
        x, y = (values(pattern.shape, 2 * comm.rank + which, mine) for which in range(2))
        there, back = total(comm, (halo(x) * y).sum()), total(comm, (x * halo.reduce(y)).sum())
        assert there == back
        return f"<Hx, y> = <x, H^T y> = {there:g}, {make_pattern.__name__}, {comm.size} ranks"

    on_gpus(check)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_gradients_equal_those_of_the_host(on_gpus, dtype):
    def check(comm, mine):
        pattern = regular(comm)
        halo = halocline.torch.HaloExchange(comm, pattern, deadline=20)
        x, upstream = (values(pattern.shape, 2 * comm.rank + which, mine, dtype) for which in range(2))
        y = halo(x.requires_grad_())
        y.backward(upstream)
        assert x.grad.dtype == dtype and x.grad.device == x.device
        assert torch.equal(y.detach().cpu().to(torch.complex128), on_the_host(comm, pattern, x.to(torch.complex128)))
        assert torch.equal(x.grad.cpu().to(torch.complex128), on_the_host(comm, pattern, upstream.to(torch.complex128), reduce=True))

    on_gpus(check)


def test_no_grad_and_compiled_programs(on_gpus):
    def check(comm, mine):
        pattern = regular(comm)
        halo = halocline.torch.HaloExchange(comm, pattern, deadline=20)

        def function(x):
            y = halo(torch.sin(x) * 2)
            return halo.reduce(y * y).sum()

        # Threads compile no functions at the same time.
        compiled = [torch.compile(function, backend="aot_eager")] if libraries.IS_JOB else []
        grads = []
        for run in (function, *compiled):
            x = values(pattern.shape, comm.rank, mine).requires_grad_()
            run(x).backward()
            grads.append(x.grad)
        torch.testing.assert_close(grads[0], grads[-1])
        with torch.no_grad():
            assert not halo(x).requires_grad

    on_gpus(check)
    # What it has compiled keeps a communicator alive, and no exchange is captured on a GPU that two communicators use.
    torch.compiler.reset()


def test_the_host_runs_ahead(on_gpus):
    """More calls than may be in flight, on two streams, with kernels of random length between them, in one graph of autograd."""

    def check(comm, mine):
        pattern = regular(comm)
        halo = halocline.torch.HaloExchange(comm, pattern, deadline=20)
        random = np.random.default_rng(comm.rank)
        first, second = (mine.streams()[name][0] for name in ("torch", "torch, high priority"))

        def run(place, steps, calls):
            x = values(pattern.shape, comm.rank, mine, torch.float32).to(place).requires_grad_()
            y = x * 1.0
            for step in range(steps):
                y = calls(y.sin() * 1.1, step)
            return x, y

        def on_a_gpu(y, step):
            mine.spin(random.choice([0, 0, 0, 0.3]))
            stream, other = (second, first) if step % 3 == 0 else (first, second)
            stream.wait_stream(other)
            with mine.on(stream):
                result = halo(y)
            other.wait_stream(stream)
            return result

        x, y = run(mine.place, 100, on_a_gpu)
        y.sum().backward()
        again, z = run(mine.place, 100, lambda y, step: halo(y))
        z.sum().backward()
        assert torch.equal(y, z) and torch.equal(x.grad, again.grad)

    on_gpus(check)


def test_a_captured_step(on_gpus):
    def check(comm, mine):
        if not libraries.IS_JOB:
            return "SKIPPED: a capture by PyTorch allows no other thread to allocate"
        if comm.size > 1 and not libraries.SHARE_MEMORY:
            return "SKIPPED: no graph holds an exchange by messages"
        if comm.size == 1:
            return "SKIPPED: the communicator of the job uses this GPU, too"
        # Objects of earlier tests may wait in cycles of references, and their communicators count as users of the GPU.
        gc.collect()
        pattern = regular(comm)
        halo = halocline.torch.HaloExchange(comm, pattern, deadline=20)
        x = values(pattern.shape, comm.rank, mine).requires_grad_()

        def step():
            y = halo(x * 2)
            (grad,) = torch.autograd.grad((y * y).sum(), x)
            return grad

        want = step()
        stream = mine.streams()["torch"][0]
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            got = step()
        with torch.no_grad():
            x.mul_(3)
        graph.replay()
        assert torch.equal(got, 3 * want)

    on_gpus(check)
