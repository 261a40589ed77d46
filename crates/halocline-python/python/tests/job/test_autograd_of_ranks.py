"""Gradients through exchanges between processes. Ranks that are threads have more tests: ``test_torch_autograd.py``."""

import sys
from pathlib import Path

import pytest

import halocline as hc

torch = pytest.importorskip("torch", reason="torch is not installed")

import halocline.torch  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent.parent))
from global_function import global_function  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture
def pattern(comm):
    grid = hc.RegularGrid((3 * comm.size, 2), periodic=(True, False))
    return grid.decompose_into((comm.size, 1), comm).pattern([(1, 2), (1, 1)])


def step(halo):
    return lambda x: halo.reduce(halo(x * x) * x)


def test_gradients_of_all_orders(comm, pattern):
    of_all, whole = global_function(comm, step(halocline.torch.HaloExchange(comm, pattern)), [pattern.shape])
    assert torch.autograd.gradcheck(of_all, whole)
    upstream = torch.linspace(-1, 1, len(whole), dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradgradcheck(of_all, whole, upstream)


def test_forward_mode_agrees_with_the_reverse(comm, pattern):
    function = step(halocline.torch.HaloExchange(comm, pattern))
    x, tangent, upstream = (torch.linspace(-1, 1 + n, 2 * x_size(pattern))[:: 2].view(pattern.shape).double() for n in range(3))
    _, pushed = torch.func.jvp(function, (x,), (tangent,))
    _, pull = torch.func.vjp(function, x)
    (pulled,) = pull(upstream)
    there, back = (sum_of_ranks(comm, (a * b).sum()) for a, b in ((pushed, upstream), (tangent, pulled)))
    assert there == pytest.approx(back, rel=1e-13)


def x_size(pattern):
    rows, columns = pattern.shape
    return rows * columns


def sum_of_ranks(comm, value):
    return comm.all_reduce([value.item()])[0]


def test_in_place(comm, pattern):
    halo = halocline.torch.HaloExchange(comm, pattern)

    def function(x):
        y = x * x
        return halo.exchange_(y) * y

    of_all, whole = global_function(comm, function, [pattern.shape])
    assert torch.autograd.gradcheck(of_all, whole)


def test_checked_mode_names_ranks_that_do_different_things(comm, pattern):
    if comm.size == 1:
        pytest.skip("one rank does nothing different")
    halo = halocline.torch.HaloExchange(comm, pattern, checked=True, deadline=60)
    x = torch.ones(pattern.shape, requires_grad=True)
    losses = [halo(x).sum() for _ in range(2)]
    with pytest.raises(hc.HaloError, match="rank 0 in backward pass of exchange 1 .*; rank 1 in backward pass of exchange 2 "):
        losses[1 if comm.rank else 0].backward()
