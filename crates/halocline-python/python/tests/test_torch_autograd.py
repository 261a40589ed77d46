"""Gradients through an exchange of PyTorch tensors: they are those of the linear map, for every pattern, on any number of ranks."""

import numpy as np
import pytest

import halocline as hc

torch = pytest.importorskip("torch", reason="torch is not installed")

import halocline.torch  # noqa: E402
from torch_patterns import (  # noqa: E402, F401
    alone,
    check_gradients,
    exchanged,
    faces,
    make_pattern,
    narrow,
    ranks,
    reduced,
    regular,
    total,
    unstructured,
    values,
)


# --- the map and its derivatives -------------------------------------------------------------------------------------


def test_the_result_is_the_exchange_and_the_input_stays(ranks, make_pattern):
    def rank(comm):
        pattern = make_pattern(comm)
        halo = halocline.torch.HaloExchange(comm, pattern)
        for requires_grad in (False, True):
            x = values(pattern.shape, comm.rank).requires_grad_(requires_grad)
            before = x.detach().clone()
            y = halo(x)
            assert torch.equal(y.detach(), exchanged(comm, pattern, x))
            assert torch.equal(x.detach(), before) and y.requires_grad == requires_grad
            z = halo.reduce(x)
            assert torch.equal(z.detach(), reduced(comm, pattern, x))
            assert torch.equal(x.detach(), before) and z.requires_grad == requires_grad

    hc.run_threads(ranks, rank)


def test_the_gradient_adds_copies_to_their_cell(ranks):
    def rank(comm):
        pattern = hc.RegularGrid((6,), periodic=(True,)).decompose(comm).pattern(1)
        x = torch.ones(pattern.shape, dtype=torch.float64, requires_grad=True)
        halocline.torch.HaloExchange(comm, pattern)(x).sum().backward()
        degree = hc.HaloExchange(comm, [(pattern, np.zeros(pattern.shape))]).degree()[0]
        assert x.grad[1:-1].tolist() == (degree[1:-1] + 1).tolist()
        assert x.grad[0] == x.grad[-1] == 0

    hc.run_threads(ranks, rank)


@pytest.mark.parametrize("operation", ["exchange", "reduce"])
def test_gradients_of_all_orders(ranks, make_pattern, operation):
    def rank(comm):
        pattern = make_pattern(comm)
        halo = halocline.torch.HaloExchange(comm, pattern)
        call = halo if operation == "exchange" else halo.reduce
        check_gradients(comm, lambda x: call(x) ** 3, [pattern.shape])

    hc.run_threads(ranks, rank)


def test_gradients_of_several_fields(ranks):
    def rank(comm):
        patterns = [narrow(comm), unstructured(comm)]
        halo = halocline.torch.HaloExchange(comm, patterns)

        def function(u, v):
            u, v = halo(u, v)
            v, u = v * v[0, 0] * u.sum(), u * u
            return halo(u, v)

        check_gradients(comm, function, [patterns[0].shape, (*patterns[1].shape, 2)])

    hc.run_threads(ranks, rank)


def test_gradients_of_complex_fields(ranks):
    def rank(comm):
        pattern = narrow(comm)
        halo = halocline.torch.HaloExchange(comm, pattern)
        check_gradients(comm, lambda z: halo(z * z), [pattern.shape], torch.complex128)

    hc.run_threads(ranks, rank)


def test_gradients_of_several_domains_a_rank(ranks):
    def rank(comm):
        pattern = hc.RegularGrid((7,), periodic=(True,), domains_per_rank=2).decompose(comm).pattern(1)
        halo = halocline.torch.HaloExchange(comm, pattern)

        def function(a, b):
            (a, b), c = halo([a, b], [a * b.sum(), b * b])
            return a + c[0], b * c[1]

        check_gradients(comm, function, [domain.shape for domain in pattern.domains])

    hc.run_threads(ranks, rank)


def test_gradients_of_images(ranks):
    """(batch, channel, y, x), convolved, with a step of the exchange before each convolution."""

    def rank(comm):
        pattern = hc.RegularGrid((6, 3), periodic=(True, True)).decompose_into((comm.size, 1), comm).pattern(1)
        halo = halocline.torch.HaloExchange(comm, pattern, axes=(-2, -1))
        weights = torch.linspace(-1, 1, 9, dtype=torch.float64).view(1, 1, 3, 3)

        def function(x):
            inner = torch.nn.functional.conv2d(halo(x[None, None]), weights)
            return torch.nn.functional.pad(inner, (1, 1, 1, 1))[0, 0] ** 2

        check_gradients(comm, function, [pattern.shape])

    hc.run_threads(ranks, rank)


def test_forward_mode():
    """PyTorch keeps the levels of forward mode for the whole process, so that ranks that are threads cannot use it: see ``job``."""
    (comm,) = hc.run_threads(1, lambda comm: comm)
    pattern = regular(comm)
    halo = halocline.torch.HaloExchange(comm, pattern)
    of_all, whole = (lambda x: halo(x) ** 2), values(pattern.shape, 3).requires_grad_()
    assert torch.autograd.gradcheck(of_all, whole, check_forward_ad=True)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(whole.detach(), whole.detach())
        y, count = halo(dual, torch.ones(pattern.shape, dtype=torch.int32))
        assert torch.equal(torch.autograd.forward_ad.unpack_dual(y).tangent, exchanged(comm, pattern, whole))
        with pytest.raises(hc.HaloTypeError, match="has no tangent; call the object"):
            halo.exchange_(dual)


def test_transforms_of_functions(ranks):
    def rank(comm):
        pattern = faces(comm)
        first, last = (halocline.torch.HaloExchange(comm, pattern, axes=axes) for axes in (None, (-2, -1)))
        x = values((3, *pattern.shape), comm.rank)
        want = torch.stack([exchanged(comm, pattern, image) for image in x])
        for halo in (first, last):
            assert torch.equal(torch.vmap(halo)(x), want)
            assert torch.equal(torch.func.grad(lambda a, halo=halo: (halo(a) ** 2).sum())(x[0]), reduced(comm, pattern, 2 * want[0]))
            same, y = torch.vmap(halo, in_dims=(None, 0), out_dims=(None, 0))(x[0], x)
            assert torch.equal(same, want[0]) and torch.equal(y, want)
            with pytest.raises(hc.HaloTypeError, match="torch.func transforms no exchange in place"):
                torch.vmap(halo.exchange_)(x)

    hc.run_threads(ranks, rank)


def test_batched_gradients(alone):
    _, _, halo = alone
    x = torch.arange(8.0, requires_grad=True)
    upstream = torch.eye(8)
    with pytest.raises(hc.HaloTypeError, match="use torch.vmap of torch.func.vjp, or a loop"):
        torch.autograd.grad(halo(x), x, upstream, is_grads_batched=True)
    _, pull = torch.func.vjp(halo, x.detach())
    (jacobian,) = torch.vmap(pull)(upstream)
    assert torch.equal(jacobian, torch.func.jacrev(halo)(x.detach()))
    assert jacobian[0].tolist() == [0, 0, 0, 0, 0, 0, 1, 0] and jacobian.sum(0).tolist() == [0, 2, 1, 1, 1, 1, 2, 0]


def test_the_transpose(ranks, make_pattern):
    def rank(comm):
        pattern = make_pattern(comm)
        halo = halocline.torch.HaloExchange(comm, pattern)
        x, y = (values(pattern.shape, 2 * comm.rank + which) for which in range(2))
        assert total(comm, (halo(x) * y).sum()) == total(comm, (x * halo.reduce(y)).sum())

    hc.run_threads(ranks, rank)


def test_gradients_have_the_same_bits_on_any_number_of_ranks():
    def gradient(ranks):
        def rank(comm):
            pattern = hc.RegularGrid((12,), periodic=(True,), domains_per_rank=6 // comm.size).decompose(comm).pattern(2)
            halo = halocline.torch.HaloExchange(comm, pattern)
            cells = [[domain.to_global((i,))[0] % 12 for i in range(domain.shape[0])] for domain in pattern.domains]
            x = [torch.tensor(part, dtype=torch.float32).sin().requires_grad_() for part in cells]
            y = halo(x)
            sum((part.exp() * 0.1 * (domain.id + 1)).sum() for part, domain in zip(y, pattern.domains)).backward()
            return pattern.gather_to(0, [hc.Field(part.grad, domain=domain.id) for part, domain in zip(x, pattern.domains)])

        return hc.run_threads(ranks, rank)[0]

    one, *others = [gradient(ranks).tobytes() for ranks in (1, 2, 3, 6)]
    assert others == [one] * 3


# --- graphs ----------------------------------------------------------------------------------------------------------


def test_several_calls_in_one_graph(ranks):
    """Each call has results of its own, although all use the same buffers."""

    def rank(comm):
        pattern = narrow(comm)
        halo = halocline.torch.HaloExchange(comm, pattern)
        x = values(pattern.shape, comm.rank).requires_grad_()
        y = x
        for _ in range(3):
            y = halo(y * y)
        y.sum().backward()
        want = x.detach()
        steps = []
        for _ in range(3):
            steps.append(want)
            want = exchanged(comm, pattern, want * want)
        assert torch.equal(y.detach(), want)
        grad = torch.ones(pattern.shape, dtype=torch.float64)
        for step in reversed(steps):
            grad = 2 * step * reduced(comm, pattern, grad)
        assert torch.equal(x.grad, grad)

    hc.run_threads(ranks, rank)


def test_backward_passes_have_the_order_of_the_calls_whatever_each_rank_computes(ranks):
    """Checked mode would name another order."""

    def rank(comm):
        pattern = narrow(comm)
        halo = halocline.torch.HaloExchange(comm, pattern, checked=True)
        random = np.random.default_rng(comm.rank)
        x = [values(pattern.shape, comm.rank).requires_grad_() for _ in range(3)]
        results = []
        for _ in range(8):
            y = x[random.integers(3)] * 1.0
            for _ in range(random.integers(4)):
                y = y + results[random.integers(len(results))] if results else y.sin()
            results.append(halo(y))
            for _ in range(random.integers(4)):
                results[random.integers(len(results))].cos()
        loss = 0.0
        for at in random.permutation(len(results)):
            y = results[at]
            for _ in range(random.integers(5)):
                y = y.cos()
            loss = loss + y.sum()
        loss.backward()

    hc.run_threads(ranks, rank)


def test_checkpoints_repeat_the_exchange(ranks):
    from torch.utils.checkpoint import checkpoint

    def rank(comm):
        pattern = narrow(comm)
        halo = halocline.torch.HaloExchange(comm, pattern)
        grads = []
        for saves in (False, True):
            x = values(pattern.shape, comm.rank).requires_grad_()

            def step(y):
                return halo(y * y)

            y = x
            for _ in range(3):
                y = step(y) if saves else checkpoint(step, y, use_reentrant=False, preserve_rng_state=False)
            y.sum().backward()
            grads.append(x.grad)
        assert torch.equal(*grads)

    hc.run_threads(ranks, rank)


def test_no_graph_where_none_is_wanted(alone):
    comm, pattern, halo = alone
    x = torch.ones(8, requires_grad=True)
    with torch.no_grad():
        assert not halo(x).requires_grad
    with torch.inference_mode():
        y = halo(x)
        assert y.is_inference() and halo.exchange_(y) is y
    # Buffers that were made in inference mode serve outside it, too.
    halo(x).sum().backward()
    assert x.grad.tolist() == [0, 2, 1, 1, 1, 1, 2, 0]
    assert not halo(x.detach()).requires_grad


def test_results_that_are_not_used_have_a_gradient_of_zero(ranks):
    """On one rank only, even: all of them take part."""

    def rank(comm):
        pattern = narrow(comm)
        halo = halocline.torch.HaloExchange(comm, pattern)
        x, z = (values(pattern.shape, comm.rank).requires_grad_() for _ in range(2))
        y, w = halo(x, z)
        (y if comm.rank == 0 else w).sum().backward()
        ones, zeros = torch.ones(pattern.shape, dtype=torch.float64), torch.zeros(pattern.shape, dtype=torch.float64)
        assert torch.equal(x.grad, reduced(comm, pattern, ones if comm.rank == 0 else zeros))
        assert torch.equal(z.grad, reduced(comm, pattern, zeros if comm.rank == 0 else ones))

    hc.run_threads(ranks, rank)


def test_fields_that_require_no_gradient_on_some_ranks(ranks):
    def rank(comm):
        pattern = narrow(comm)
        halo = halocline.torch.HaloExchange(comm, pattern)
        x, z = (values(pattern.shape, comm.rank) for _ in range(2))
        (x if comm.rank == 0 else z).requires_grad_()
        y, w = halo(x, z)
        assert y.requires_grad and w.requires_grad
        (y + 2 * w).sum().backward()
        ones = reduced(comm, pattern, torch.ones(pattern.shape, dtype=torch.float64))
        mine, other = (x, z) if comm.rank == 0 else (z, x)
        # The sums of x count copies on other ranks, whose x requires none.
        assert torch.equal(mine.grad, ones if mine is x else 2 * ones) and other.grad is None

    hc.run_threads(ranks, rank)


def test_gradients_with_any_strides(alone):
    _, _, halo = alone
    x = torch.arange(16.0).view(8, 2).requires_grad_()
    y = halo(x)
    y.sum().backward()  # an expanded gradient, without strides
    assert x.grad[:, 1].tolist() == [0, 2, 1, 1, 1, 1, 2, 0]
    x.grad = None
    (halo(x).T * torch.arange(8.0)).sum().backward()
    assert x.grad[:, 0].tolist() == [0, 1 + 7, 2, 3, 4, 5, 6 + 0, 0]
    strided = torch.arange(32.0).view(2, 16)[:, ::2].T.detach().requires_grad_()
    halo(strided).sum().backward()
    assert strided.grad[:, 0].tolist() == [0, 2, 1, 1, 1, 1, 2, 0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128])
def test_types_with_gradients(ranks, dtype):
    def rank(comm):
        pattern = narrow(comm)
        halo = halocline.torch.HaloExchange(comm, pattern)
        x = values(pattern.shape, comm.rank, dtype).requires_grad_()
        y = halo(x)
        assert y.dtype == dtype and torch.equal(y.to(torch.complex128), exchanged(comm, pattern, x.to(torch.complex128)))
        upstream = values(pattern.shape, comm.rank + 9, dtype)
        y.backward(upstream)
        assert x.grad.dtype == dtype
        assert torch.equal(x.grad.to(torch.complex128), reduced(comm, pattern, upstream.to(torch.complex128)))
        assert torch.equal(halo.exchange_(x.detach().clone()), y.detach())

    hc.run_threads(ranks, rank)


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float8_e5m2], ids=str
)
def test_types_without_gradients(dtype):
    def rank(comm):
        pattern = narrow(comm)
        halo = halocline.torch.HaloExchange(comm, pattern)
        whole = values(pattern.shape, comm.rank).abs()
        x = (whole > 3) if dtype == torch.bool else whole.to(dtype)
        want = exchanged(comm, pattern, x.to(torch.float64))
        assert torch.equal(halo(x).to(torch.float64), want)
        # Beside a field that has a gradient.
        y, z = halo(whole.clone().requires_grad_(), x)
        assert torch.equal(z.to(torch.float64), want) and z.dtype == dtype
        assert y.requires_grad
        y.sum().backward()
        if not dtype.is_floating_point and dtype != torch.bool:
            assert torch.equal(halo.reduce(x).to(torch.float64), reduced(comm, pattern, whole))

    hc.run_threads(2, rank)


def test_half_precision_is_added_in_single_precision(alone):
    comm, _, _ = alone
    pattern = hc.RegularGrid((1,), periodic=(True,)).decompose(comm).pattern(2)
    x = torch.zeros(5, dtype=torch.float16, requires_grad=True)
    upstream = torch.tensor([0.4, 0.4, 2048, 0.4, 0.4], dtype=torch.float16)
    halocline.torch.HaloExchange(comm, pattern)(x).backward(upstream)
    assert x.grad[2] == 2050
