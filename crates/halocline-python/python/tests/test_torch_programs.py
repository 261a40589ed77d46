"""Exchanges of PyTorch tensors in place, in compiled programs, and after an interrupt."""

import subprocess
import sys

import pytest

import halocline as hc

torch = pytest.importorskip("torch", reason="torch is not installed")

import halocline.torch  # noqa: E402
from torch_patterns import alone, check_gradients, make_pattern, ranks, values  # noqa: E402, F401


# --- in place --------------------------------------------------------------------------------------------------------


def test_in_place(ranks, make_pattern):
    def rank(comm):
        pattern = make_pattern(comm)
        halo = halocline.torch.HaloExchange(comm, pattern)

        def function(x):
            y = x * x
            assert halo.exchange_(y) is y
            return y * y

        check_gradients(comm, function, [pattern.shape])

    hc.run_threads(ranks, rank)


def test_in_place_several_fields_and_types(alone):
    comm, pattern, halo = alone
    x = torch.arange(8.0, requires_grad=True)
    y, mask = x * 1, torch.arange(8)
    halo.exchange_(y, mask)
    assert y.tolist() == mask.tolist() == [6, 1, 2, 3, 4, 5, 6, 1]
    y.sum().backward()
    assert x.grad.tolist() == [0, 2, 1, 1, 1, 1, 2, 0]


def test_in_place_of_a_part(alone):
    _, _, halo = alone
    x = torch.arange(16.0).view(2, 8).requires_grad_()
    y = x * 1
    halo.exchange_(y[1])
    assert y.tolist() == [list(range(8)), [14, 9, 10, 11, 12, 13, 14, 9]]
    y.sum().backward()
    assert x.grad.tolist() == [[1] * 8, [0, 2, 1, 1, 1, 1, 2, 0]]


def test_what_was_saved_before_an_exchange_in_place_is_an_error(alone):
    _, _, halo = alone
    x = torch.ones(8, requires_grad=True)
    y = x * 2
    loss = (y * y).sum()
    halo.exchange_(y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_leaf_is_refused_in_place(alone):
    _, _, halo = alone
    x = torch.arange(8.0, requires_grad=True)
    with pytest.raises(hc.HaloValueError, match=r"fields\[0\]: a leaf that requires a gradient"):
        halo.exchange_(x)
    assert x.tolist() == list(range(8))
    with torch.no_grad():
        halo.exchange_(x)
    assert x.tolist() == [6, 1, 2, 3, 4, 5, 6, 1]


def test_a_tensor_in_flight_is_refused_in_place(alone):
    comm, pattern, halo = alone
    x = torch.arange(8.0)
    pending = hc.HaloExchange(comm, [(pattern, x)]).exchange(wait=False)
    with pytest.raises(hc.InFlightError):
        halo.exchange_(x)
    # A call reads owned cells, which is allowed, and fills the halo of its result.
    assert halo(x).tolist() == [6, 1, 2, 3, 4, 5, 6, 1]
    pending.wait()
    halo.exchange_(x)


# --- torch.compile ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_programs(alone, backend):
    comm, pattern, halo = alone

    def function(x):
        y = halo(torch.sin(x) * 2)
        z = y * y
        return halo.reduce(z + halo.exchange_(z * 3)).sum()

    grads = []
    for run in (function, torch.compile(function, backend=backend)):
        x = values(8, 1).requires_grad_()
        loss = run(x)
        loss.backward()
        grads.append((loss.detach(), x.grad))
    torch.testing.assert_close(*grads)
    torch._dynamo.reset()


def test_a_compiled_graph_ends_at_the_call(alone):
    import torch._dynamo

    _, _, halo = alone
    seen = []

    def backend(module, inputs):
        seen.append([node.target for node in module.graph.nodes if node.op.startswith("call")])
        return module.forward

    torch.compile(lambda x: halo(x.sin()).cos(), backend=backend)(torch.ones(8))
    assert len(seen) == 2, seen
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(lambda x: halo(x.sin()).cos(), backend="eager", fullgraph=True)(torch.ones(8))
    torch._dynamo.reset()


def test_the_import_does_not_load_the_compiler():
    code = """
import sys, torch, halocline as hc, halocline.torch
assert halocline.torch.torch is torch
comm = hc.init()
halo = halocline.torch.HaloExchange(comm, hc.RegularGrid((6,)).decompose(comm).pattern(1))
halo(torch.ones(8, requires_grad=True)).sum().backward()
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


# --- other programs --------------------------------------------------------------------------------------------------


def test_an_interrupted_wait_ends_before_the_buffers_are_written_again(alone):
    _, _, halo = alone
    halo(torch.zeros(8))
    (bound,) = halo._bound.values()
    real, done = bound.halo, []

    class Interrupted:
        def exchange(self):
            done.append("interrupted")
            real.exchange(wait=False)
            bound.halo = Finished()
            raise KeyboardInterrupt

    class Finished:
        def wait(self):
            done.append("waited for")
            real.wait()
            bound.halo = real

    bound.halo = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        halo(torch.zeros(8))
    assert halo(torch.arange(8.0)).tolist() == [6, 1, 2, 3, 4, 5, 6, 1]
    assert done == ["interrupted", "waited for"]


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        ('sys.modules["torch"] = None', "halocline.torch needs PyTorch 2.3 or later: pip install torch"),
        (
            "import torch; del torch.compiler.is_compiling",
            f"halocline.torch needs PyTorch 2.3 or later, this is {torch.__version__}: pip install --upgrade torch",
        ),
    ],
    ids=["without", "old"],
)
def test_without_pytorch_the_import_says_what_to_install(prepare, said):
    code = f"import sys; {prepare}\ntry:\n    import halocline.torch\nexcept ImportError as error:\n    print(error)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == said + "\n", done
