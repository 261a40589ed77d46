"""Gradients through an exchange of PyTorch tensors: they are those of the linear map, for every pattern, on any number of ranks."""

import subprocess
import sys
import warnings

import numpy as np
import pytest

import halocline as hc

torch = pytest.importorskip("torch", reason="torch is not installed")

import halocline.torch  # noqa: E402
from global_function import global_function  # noqa: E402

torch.set_num_threads(1)

RANKS = [1, 2, 3]


def regular(comm):
    """Periodic along one axis; cells beyond the border of the other belong to no message."""
    return hc.RegularGrid((6, 3), periodic=(True, False)).decompose_into((comm.size, 1), comm).pattern([(1, 2), (1, 1)])


def faces(comm):
    return hc.RegularGrid((6, 3), periodic=(True, True)).decompose_into((comm.size, 1), comm).pattern(1, neighbours="faces")


def narrow(comm):
    return hc.RegularGrid((6,), periodic=(True,)).decompose(comm).pattern(2).narrowed(1)


def unstructured(comm):
    """Cells of a ring, owned by turns, with all others as the halo, in an order of their own."""
    cells = np.random.default_rng(comm.rank).permutation(6)
    return hc.Pattern.unstructured(comm, [hc.UnstructuredDomain.from_owners(comm.rank, comm, cells, cells % comm.size)])


PATTERNS = [regular, faces, narrow, unstructured]


@pytest.fixture(params=RANKS)
def ranks(request):
    return request.param


@pytest.fixture(params=PATTERNS, ids=lambda make: make.__name__)
def make_pattern(request):
    return request.param


def values(shape, seed, dtype=torch.float64):
    """Small whole numbers: sums of them are exact."""
    return torch.from_numpy(np.random.default_rng(seed).integers(-8, 9, shape)).to(dtype)


def exchanged(comm, pattern, tensor):
    copy = tensor.detach().clone()
    hc.HaloExchange(comm, [(pattern, copy)]).exchange()
    return copy


def reduced(comm, pattern, tensor):
    copy = tensor.detach().clone()
    hc.HaloExchange(comm, [(pattern, copy)]).reduce("sum")
    return copy


def total(comm, value):
    return sum(float(part) for part in comm.all_gather(repr(float(value)).encode()))


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


def check_gradients(comm, function, shapes, dtype=torch.float64):
    of_all, whole = global_function(comm, function, shapes, dtype)
    # Generators of random numbers are shared by threads, so what gradcheck would choose at random is given.
    upstream = torch.linspace(-1, 1, len(whole), dtype=torch.float64).to(dtype).requires_grad_()
    assert torch.autograd.gradcheck(of_all, whole)
    assert torch.autograd.gradgradcheck(of_all, whole, upstream)


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


@pytest.fixture
def alone():
    comm = hc.run_threads(1, lambda comm: comm)[0]
    pattern = hc.RegularGrid((6,), periodic=(True,)).decompose(comm).pattern(1)
    return comm, pattern, halocline.torch.HaloExchange(comm, pattern)


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


# --- what is refused -------------------------------------------------------------------------------------------------


def test_tensors_that_are_refused(alone):
    comm, pattern, halo = alone
    cases = [
        (np.zeros(8), "HaloTypeError", r"fields\[0\]: a tensor of PyTorch is wanted, not ndarray; torch.as_tensor"),
        (None, "HaloTypeError", r"a tensor of PyTorch is wanted, not NoneType"),
        (torch.zeros(7), "HaloValueError", r"fields\[0\]: has \(7,\) cells along the axes of its pattern, where domain 0 has \(8,\)"),
        (torch.zeros(()), "HaloValueError", r"a tensor of shape \(\) has no axes \(0,\)"),
        (torch.zeros(8, device="meta"), "HaloTypeError", "a tensor of device meta cannot be exchanged"),
        (torch.zeros(8).to_sparse(), "HaloTypeError", r"layout torch.sparse_coo .* give tensor.to_dense\(\)"),
    ]
    if hasattr(torch, "quantize_per_tensor"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            quantized = torch.quantize_per_tensor(torch.zeros(8), 1, 0, torch.qint8)
        cases.append((quantized, "HaloTypeError", r"tensor.dequantize\(\)"))
    for _ in range(2):
        for call in (halo, halo.reduce, halo.exchange_):
            for tensor, error, text in cases:
                with pytest.raises(getattr(hc, error), match=text):
                    call(tensor)
        # None of these took an epoch.
        assert halo(torch.arange(8)).tolist() == [6, 1, 2, 3, 4, 5, 6, 1]


def test_one_bad_tensor_of_several_is_named(alone):
    _, _, halo = alone
    with pytest.raises(hc.HaloTypeError, match=r"fields\[1\]: a tensor of PyTorch is wanted, not list"):
        halo(torch.zeros(8), [[0.0] * 8], torch.zeros(8))
    with pytest.raises(hc.HaloValueError, match=r"fields\[1\]: has \(9,\) cells"):
        halo(torch.zeros(8, requires_grad=True), torch.zeros(9))


def test_a_bool_has_no_sum(alone):
    _, _, halo = alone
    with pytest.raises(hc.HaloTypeError, match=r"fields\[1\]: elements of bool have no sum; give tensor.to\(torch.int32\)"):
        halo.reduce(torch.zeros(8), torch.zeros(8, dtype=torch.bool))


def test_counts_that_are_refused(alone):
    comm, pattern, halo = alone
    with pytest.raises(hc.HaloValueError, match="fields: there are none"):
        halo()
    two = halocline.torch.HaloExchange(comm, [pattern, pattern])
    with pytest.raises(hc.HaloValueError, match="fields: 1 are given for 2 patterns"):
        two(torch.zeros(8))
    with pytest.raises(hc.HaloValueError, match=r"fields\[0\]: this rank has 1 domains of its pattern, and 2 tensors are given"):
        halo([torch.zeros(8), torch.zeros(8)])
    assert [y.tolist() for y in halo([torch.arange(8)])] == [[6, 1, 2, 3, 4, 5, 6, 1]]


def test_arguments_that_are_refused_on_all_ranks():
    def rank(comm):
        pattern = narrow(comm)
        bad = [
            (pattern, {"axes": (0, -1)}, hc.HaloValueError, "axes: .* count from both ends"),
            (pattern, {"axes": "x"}, hc.HaloTypeError, "an axis is a whole number"),
            ([pattern, 3], {}, hc.HaloTypeError, r"patterns\[1\]: a Pattern is wanted, not 3"),
            (3, {}, hc.HaloTypeError, "patterns are a list, not 3"),
        ]
        for patterns, options, error, text in bad:
            with pytest.raises(error, match=text):
                halocline.torch.HaloExchange(comm, patterns, **options)
            with pytest.raises(error if comm.rank else hc.RefusedElsewhereError, match=text):
                halocline.torch.HaloExchange(comm, *((patterns,) if comm.rank else (pattern,)), **(options if comm.rank else {}))
        with pytest.raises(hc.HaloValueError, match=r"axes: \(0, 1\) are 2, and the pattern of fields\[0\] has 1 axes"):
            halocline.torch.HaloExchange(comm, pattern, axes=(0, 1))(torch.zeros(pattern.shape))

    hc.run_threads(2, rank)
    with pytest.raises(hc.HaloTypeError, match="comm: a Communicator is wanted, not 3"):
        halocline.torch.HaloExchange(3, [])


def test_a_rank_without_a_domain_is_refused():
    def rank(comm):
        decomposition = hc.RegularGrid((4,)).decompose_boxes([(0, (0,), (4,))], comm)
        with pytest.raises(hc.HaloValueError if comm.rank else hc.RefusedElsewhereError, match="has no domain"):
            halocline.torch.HaloExchange(comm, decomposition.pattern(1))

    hc.run_threads(2, rank)


def test_two_threads_at_once_are_refused(alone):
    _, _, halo = alone
    halo(torch.zeros(8))
    (bound,) = halo._bound.values()
    with bound.lock, pytest.raises(hc.InFlightError, match="another thread"):
        halo(torch.zeros(8))
    halo(torch.zeros(8))


# --- ranks that do different things ----------------------------------------------------------------------------------


def both_raise(work, text):
    """In checked mode every rank gets the same error."""

    def rank(comm):
        pattern = hc.RegularGrid((6,), periodic=(True,)).decompose(comm).pattern(1)
        with pytest.raises(hc.HaloError, match=text) as caught:
            work(comm, pattern)
        return str(caught.value)

    first, second = hc.run_threads(2, rank)
    assert first == second


def test_checked_mode_names_backward_passes_in_another_order():
    def work(comm, pattern):
        halo = halocline.torch.HaloExchange(comm, pattern, checked=True, name="t")
        x = torch.ones(pattern.shape, requires_grad=True)
        losses = [halo(x).sum() for _ in range(2)]
        for loss in losses if comm.rank else reversed(losses):
            loss.backward()

    both_raise(work, r"rank 0 in backward pass of exchange 2 of t \(object 1\); rank 1 in backward pass of exchange 1 of t .*\. Make the same calls")


def test_checked_mode_names_calls_of_different_objects():
    def work(comm, pattern):
        t, u = (halocline.torch.HaloExchange(comm, pattern, checked=True) for _ in range(2))
        (u if comm.rank else t)(torch.ones(pattern.shape))

    both_raise(work, "rank 0 in exchange 1 of object 1, .*; rank 1 in exchange 1 of object 2, ")


def test_checked_mode_names_a_backward_pass_beside_a_call():
    def work(comm, pattern):
        halo = halocline.torch.HaloExchange(comm, pattern, checked=True)
        loss = halo(torch.ones(pattern.shape, requires_grad=True)).sum()
        halo(torch.ones(pattern.shape)) if comm.rank else loss.backward()

    both_raise(work, "rank 0 in backward pass of exchange 1 of object 1; rank 1 in exchange 2 of object 1, ")


@pytest.mark.parametrize(
    ("tensors", "text"),
    [
        ([torch.ones(5), torch.ones(5, requires_grad=True)], "no gradient; rank 1 in exchange 1 .* a gradient"),
        ([torch.ones(5), torch.ones(5, dtype=torch.float64)], "'torch.float32', .*'torch.float64'"),
        ([torch.ones(5, 2), torch.ones(5, 3)], r"\[2\].*\[3\]"),
    ],
    ids=["gradients", "types", "dimensions"],
)
def test_checked_mode_names_tensors_that_differ(tensors, text):
    def work(comm, pattern):
        halocline.torch.HaloExchange(comm, pattern, checked=True)(tensors[comm.rank])

    both_raise(work, text)


def test_checked_mode_changes_no_result():
    def rank(comm):
        pattern = narrow(comm)
        halo = halocline.torch.HaloExchange(comm, pattern, checked=True)
        check_gradients(comm, lambda x: halo.reduce(halo(x) ** 2), [pattern.shape])

    hc.run_threads(2, rank)


def test_the_environment_turns_checked_mode_on(monkeypatch):
    monkeypatch.setenv("HALOCLINE_CHECK", "1")

    def work(comm, pattern):
        halo = halocline.torch.HaloExchange(comm, pattern)
        (halo if comm.rank else halo.reduce)(torch.ones(pattern.shape))

    both_raise(work, "rank 0 in reduce 1 .*; rank 1 in exchange 1 ")


def test_a_deadline_ends_a_backward_pass_that_a_rank_does_not_run():
    def rank(comm):
        pattern = hc.RegularGrid((6,), periodic=(True,)).decompose(comm).pattern(1)
        halo = halocline.torch.HaloExchange(comm, pattern, deadline=0.2)
        x = torch.ones(pattern.shape, requires_grad=comm.rank == 0)
        loss = halo(x).sum()
        if comm.rank == 0:
            with pytest.raises(hc.ExchangeTimeoutError):
                loss.backward()
        comm.barrier()

    hc.run_threads(2, rank)


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
