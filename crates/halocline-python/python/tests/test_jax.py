"""Gradients through an exchange of JAX arrays: they are those of the linear map, for every pattern, on any number of ranks."""

import subprocess
import sys

import numpy as np
import pytest

import halocline as hc

jax = pytest.importorskip("jax", reason="jax is not installed")

import halocline.jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax_patterns import (  # noqa: E402, F401
    alone,
    check_gradients,
    exchanged,
    faces,
    make_pattern,
    narrow,
    ranks,
    reduced,
    same,
    total,
    unstructured,
    values,
)

COMPILED = pytest.mark.parametrize("compile", [lambda function: function, jax.jit], ids=["eager", "jit"])


# --- the map and its derivatives -------------------------------------------------------------------------------------


def test_halocline_does_not_import_jax():
    code = "import sys, halocline; raise SystemExit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0


@COMPILED
def test_the_result_is_the_exchange_and_the_argument_stays(ranks, make_pattern, compile):
    def rank(comm):
        pattern = make_pattern(comm)
        halo = halocline.jax.HaloExchange(comm, pattern)
        x = values(pattern.shape, comm.rank)
        before = np.array(x)
        assert same(compile(halo)(x), exchanged(comm, pattern, x))
        assert same(compile(halo.reduce)(x), reduced(comm, pattern, x))
        assert same(x, before)

    hc.run_threads(ranks, rank)


@COMPILED
def test_the_gradient_adds_copies_to_their_cell(ranks, compile):
    def rank(comm):
        pattern = hc.RegularGrid((6,), periodic=(True,)).decompose(comm).pattern(1)
        halo = halocline.jax.HaloExchange(comm, pattern)
        gradient = np.asarray(compile(jax.grad(lambda x: halo(x).sum()))(jnp.ones(pattern.shape)))
        degree = hc.HaloExchange(comm, [(pattern, np.zeros(pattern.shape))]).degree()[0]
        assert gradient[1:-1].tolist() == (degree[1:-1] + 1).tolist()
        assert gradient[0] == gradient[-1] == 0

    hc.run_threads(ranks, rank)


@pytest.mark.parametrize("operation", ["exchange", "reduce"])
def test_gradients_of_all_orders(ranks, make_pattern, operation):
    def rank(comm):
        pattern = make_pattern(comm)
        halo = halocline.jax.HaloExchange(comm, pattern)
        call = halo if operation == "exchange" else halo.reduce
        check_gradients(comm, lambda x: call(x) ** 3, [pattern.shape])

    hc.run_threads(ranks, rank)


def test_gradients_of_compiled_functions(ranks):
    def rank(comm):
        pattern = narrow(comm)
        halo = halocline.jax.HaloExchange(comm, pattern)
        check_gradients(comm, jax.jit(lambda x: halo.reduce(halo(x * x) * x)), [pattern.shape])

    hc.run_threads(ranks, rank)


def test_gradients_of_several_fields(ranks):
    def rank(comm):
        patterns = [narrow(comm), unstructured(comm)]
        halo = halocline.jax.HaloExchange(comm, patterns)

        def function(u, v):
            u, v = halo(u, v)
            v, u = v * v[0, 0] * u.sum(), u * u
            return halo(u, v)

        check_gradients(comm, function, [patterns[0].shape, (*patterns[1].shape, 2)])

    hc.run_threads(ranks, rank)


def test_gradients_of_complex_fields(ranks):
    def rank(comm):
        pattern = narrow(comm)
        halo = halocline.jax.HaloExchange(comm, pattern)
        check_gradients(comm, lambda z: halo(z * z), [pattern.shape], jnp.complex128)

    hc.run_threads(ranks, rank)


def test_gradients_of_several_domains_a_rank(ranks):
    def rank(comm):
        pattern = hc.RegularGrid((7,), periodic=(True,), domains_per_rank=2).decompose(comm).pattern(1)
        halo = halocline.jax.HaloExchange(comm, pattern)

        def function(a, b):
            (a, b), c = halo([a, b], [a * b.sum(), b * b])
            return a + c[0], b * c[1]

        check_gradients(comm, function, [domain.shape for domain in pattern.domains])

    hc.run_threads(ranks, rank)


@COMPILED
def test_the_transpose(ranks, make_pattern, compile):
    """<Hx, y> = <x, H^T y>, exactly: the values are whole numbers."""

    def rank(comm):
        pattern = make_pattern(comm)
        halo = halocline.jax.HaloExchange(comm, pattern)
        x, y = (values(pattern.shape, 2 * comm.rank + which) for which in range(2))
        forward, backward = compile(lambda x, y: ((halo(x) * y).sum(), (x * halo.reduce(y)).sum()))(x, y)
        assert total(comm, forward) == total(comm, backward)

    hc.run_threads(ranks, rank)


def test_gradients_have_the_same_bits_on_any_number_of_ranks():
    def gradient(ranks):
        def rank(comm):
            pattern = hc.RegularGrid((12,), periodic=(True,), domains_per_rank=6 // comm.size).decompose(comm).pattern(2)
            halo = halocline.jax.HaloExchange(comm, pattern)
            cells = [[domain.to_global((i,))[0] % 12 for i in range(domain.shape[0])] for domain in pattern.domains]
            x = [jnp.sin(jnp.asarray(part, jnp.float32)) for part in cells]
            weights = [domain.id + 1 for domain in pattern.domains]

            @jax.grad
            def gradients(parts):
                return sum((jnp.exp(part) * 0.1 * weight).sum() for part, weight in zip(halo(parts), weights))

            fields = [hc.Field(np.array(part), domain=domain.id) for part, domain in zip(gradients(x), pattern.domains)]
            return pattern.gather_to(0, fields)

        return hc.run_threads(ranks, rank)[0]

    one, *others = [gradient(ranks).tobytes() for ranks in (1, 2, 3, 6)]
    assert others == [one] * 3


def test_a_step_of_diffusion_has_the_gradient_of_finite_differences(ranks):
    """Of a loss of all ranks, of the diffusivity and of each owned cell."""

    def rank(comm):
        pattern = hc.RegularGrid((6, 4), periodic=(True, True)).decompose_into((comm.size, 1), comm).pattern(1)
        halo = halocline.jax.HaloExchange(comm, pattern)
        target = jnp.asarray(np.random.default_rng(comm.rank).standard_normal(pattern.domains[0].owned_shape))

        @jax.jit
        def loss(kappa, x):
            y = halo(x)
            inner = y[1:-1, 1:-1]
            stencil = y[:-2, 1:-1] + y[2:, 1:-1] + y[1:-1, :-2] + y[1:-1, 2:] - 4 * inner
            return ((inner + kappa * stencil - target) ** 2).sum()

        x = jnp.asarray(np.random.default_rng(comm.rank + 9).standard_normal(pattern.shape))
        kappa, step = jnp.asarray(0.2), 1e-5
        of_kappa, of_x = jax.grad(loss, (0, 1))(kappa, x)
        differences = total(comm, loss(kappa + step, x) - loss(kappa - step, x)) / (2 * step)
        assert total(comm, of_kappa) == pytest.approx(differences, rel=1e-7)
        for other in range(comm.size):
            # One cell beside the neighbour, and one that no other rank copies.
            for cell in [(1, 2), (2, 2)]:
                moved = jnp.zeros(pattern.shape).at[cell].set(step * (other == comm.rank))
                differences = total(comm, loss(kappa, x + moved) - loss(kappa, x - moved)) / (2 * step)
                assert total(comm, of_x[cell] * (other == comm.rank)) == pytest.approx(differences, rel=1e-6)
        assert not np.asarray(of_x)[0].any() and not np.asarray(of_x)[:, -1].any()

    hc.run_threads(ranks, rank)


def test_gradients_are_those_of_pytorch(ranks, make_pattern):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    import halocline.torch

    def rank(comm):
        pattern = make_pattern(comm)
        ours, theirs = halocline.jax.HaloExchange(comm, pattern), halocline.torch.HaloExchange(comm, pattern)
        x, upstream = (values(pattern.shape, 2 * comm.rank + which) for which in range(2))
        leaf, weights = (torch.tensor(np.array(array)) for array in (x, upstream))
        leaf.requires_grad_()
        for of_jax, of_torch in ((ours, theirs), (ours.reduce, theirs.reduce)):
            (of_torch(leaf * leaf) * weights).sum().backward()
            assert same(jax.grad(lambda x, call=of_jax: (call(x * x) * upstream).sum())(x), leaf.grad)
            leaf.grad = None

    hc.run_threads(ranks, rank)


def test_results_that_are_not_used_have_a_gradient_of_zero(ranks):
    """On one rank only, even: all of them take part."""

    def rank(comm):
        pattern = narrow(comm)
        halo = halocline.jax.HaloExchange(comm, pattern)
        x, z = (values(pattern.shape, comm.rank) for _ in range(2))
        of_x, of_z = jax.grad(lambda x, z: halo(x, z)[comm.rank != 0].sum(), (0, 1))(x, z)
        ones, zeros = np.ones(pattern.shape), np.zeros(pattern.shape)
        assert same(of_x, reduced(comm, pattern, ones if comm.rank == 0 else zeros))
        assert same(of_z, reduced(comm, pattern, zeros if comm.rank == 0 else ones))

    hc.run_threads(ranks, rank)


def test_fields_that_some_ranks_do_not_differentiate(ranks):
    def rank(comm):
        pattern = narrow(comm)
        halo = halocline.jax.HaloExchange(comm, pattern)
        x, z = (values(pattern.shape, comm.rank) for _ in range(2))

        def loss(mine, other):
            y, w = halo(mine, other) if comm.rank == 0 else halo(other, mine)
            return (y + 2 * w).sum()

        gradient = jax.grad(loss)(x, z)
        ones = reduced(comm, pattern, np.ones(pattern.shape))
        # The sums of x count copies on other ranks, which do not differentiate by theirs.
        assert same(gradient, ones if comm.rank == 0 else 2 * ones)

    hc.run_threads(ranks, rank)


# --- types -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"])
def test_types_with_gradients(ranks, dtype):
    def rank(comm):
        pattern = narrow(comm)
        halo = halocline.jax.HaloExchange(comm, pattern)
        x, upstream = values(pattern.shape, comm.rank, dtype), values(pattern.shape, comm.rank + 9, dtype)
        y, pull = jax.vjp(halo, x)
        assert y.dtype == dtype and same(y.astype(complex), exchanged(comm, pattern, x.astype(complex)))
        (gradient,) = pull(upstream)
        assert gradient.dtype == dtype and same(gradient.astype(complex), reduced(comm, pattern, upstream.astype(complex)))

    hc.run_threads(ranks, rank)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "int32", "int64", "float8_e5m2"])
def test_types_without_gradients(dtype):
    def rank(comm):
        pattern = narrow(comm)
        halo = halocline.jax.HaloExchange(comm, pattern)
        whole = abs(values(pattern.shape, comm.rank))
        x = whole > 3 if dtype == "bool" else whole.astype(dtype)
        want = exchanged(comm, pattern, x.astype(float))
        assert same(halo(x).astype(float), want)

        def loss(x, other):
            y, z = halo(x, other)
            return y.sum(), z

        # Beside a field that has a gradient.
        gradient, z = jax.grad(loss, has_aux=True)(whole, x)
        assert z.dtype == dtype and same(z.astype(float), want)
        assert same(gradient, reduced(comm, pattern, np.ones(pattern.shape)))
        if dtype != "bool":
            assert same(halo.reduce(x).astype(float), reduced(comm, pattern, x.astype(float)))
        if dtype == "int32":
            none = jax.grad(lambda x: (halo(x) * 1.0).sum(), allow_int=True)(x)
            assert none.dtype == jax.dtypes.float0

    hc.run_threads(2, rank)


def test_half_precision_is_added_in_single_precision(alone):
    comm, _, _ = alone
    pattern = hc.RegularGrid((1,), periodic=(True,)).decompose(comm).pattern(2)
    upstream = jnp.asarray([0.4, 0.4, 2048, 0.4, 0.4], jnp.float16)
    _, pull = jax.vjp(halocline.jax.HaloExchange(comm, pattern), jnp.zeros(5, jnp.float16))
    assert pull(upstream)[0][2] == 2050


def test_axes_at_the_end(ranks):
    def rank(comm):
        pattern = faces(comm)
        halo = halocline.jax.HaloExchange(comm, pattern, axes=(-2, -1))
        x = values((2, 3, *pattern.shape), comm.rank)
        y = halo(x)
        assert all(same(y[i, j], exchanged(comm, pattern, x[i, j])) for i in range(2) for j in range(3))

    hc.run_threads(ranks, rank)


# --- transformations -------------------------------------------------------------------------------------------------


@COMPILED
def test_vmap(ranks, compile):
    def rank(comm):
        pattern = faces(comm)
        x = values((3, *pattern.shape), comm.rank)
        want = np.stack([exchanged(comm, pattern, image) for image in x])
        for axes in (None, (-2, -1)):
            halo = halocline.jax.HaloExchange(comm, pattern, axes=axes)
            assert same(compile(jax.vmap(halo))(x), want)
            one, y = compile(jax.vmap(halo, in_axes=(None, 0), out_axes=(None, 0)))(x[0], x)
            assert same(one, want[0]) and same(y, want)
            gradients = compile(jax.vmap(jax.grad(lambda a, halo=halo: (halo(a) ** 2).sum())))(x)
            assert same(gradients, np.stack([reduced(comm, pattern, 2 * image) for image in want]))
            at_end = compile(jax.vmap(jax.vmap(halo), in_axes=-1, out_axes=-1))(jnp.stack([x, x], -1))
            assert same(at_end, np.stack([want, want], -1))

    hc.run_threads(ranks, rank)


def test_the_jacobian(alone):
    _, _, halo = alone
    jacobian = np.asarray(jax.jacrev(halo)(jnp.arange(8.0)))
    assert jacobian[0].tolist() == [0, 0, 0, 0, 0, 0, 1, 0] and jacobian.sum(0).tolist() == [0, 2, 1, 1, 1, 1, 2, 0]


def test_forward_mode_is_refused_by_jax(alone):
    _, _, halo = alone
    x = jnp.arange(8.0)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(halo, (x,), (x,))


def steps_of(halo, form, count):
    def step(y):
        return halo(y * y)

    def unrolled(y):
        for _ in range(count):
            y = step(y)
        return y

    return {
        "unrolled": unrolled,
        "scan": lambda y: jax.lax.scan(lambda y, _: (step(y), None), y, None, count)[0],
        "cond": lambda y: jax.lax.cond(y[0] < 1e9, unrolled, lambda y: y, y),
        "checkpoint": jax.checkpoint(unrolled),
        "scan of checkpoints": lambda y: jax.lax.scan(lambda y, _: (jax.checkpoint(step)(y), None), y, None, count)[0],
    }[form]


@pytest.mark.parametrize("form", ["unrolled", "scan", "cond", "checkpoint", "scan of checkpoints"])
@COMPILED
def test_several_calls_in_one_graph(ranks, form, compile):
    def rank(comm):
        pattern = narrow(comm)
        halo = halocline.jax.HaloExchange(comm, pattern, deadline=300)
        x = values(pattern.shape, comm.rank) / 8
        many = steps_of(halo, form, 3)
        value, gradient = compile(jax.value_and_grad(lambda x: many(x).sum()))(x)
        y, steps = np.asarray(x), []
        for _ in range(3):
            steps.append(y)
            y = exchanged(comm, pattern, y * y)
        want = np.ones(pattern.shape)
        for step in reversed(steps):
            want = 2 * step * reduced(comm, pattern, want)
        assert float(value) == pytest.approx(y.sum()) and np.allclose(gradient, want, rtol=1e-14)

    hc.run_threads(ranks, rank)


def test_a_loop_whose_count_a_rank_computes(ranks):
    def rank(comm):
        pattern = narrow(comm)
        halo = halocline.jax.HaloExchange(comm, pattern)
        count = jnp.asarray(4)
        looped = jax.jit(lambda y: jax.lax.fori_loop(0, count, lambda _, y: halo(y + 1), y))(values(pattern.shape, comm.rank))
        want = np.asarray(values(pattern.shape, comm.rank))
        for _ in range(4):
            want = exchanged(comm, pattern, want + 1)
        assert same(looped, want)

    hc.run_threads(ranks, rank)


def test_donated_memory(ranks):
    def rank(comm):
        pattern = narrow(comm)
        halo = halocline.jax.HaloExchange(comm, pattern)
        step = jax.jit(lambda x: halo(x + 1), donate_argnums=0)
        want = np.asarray(values(pattern.shape, comm.rank))
        x = values(pattern.shape, comm.rank)
        for _ in range(5):
            x, want = step(x), exchanged(comm, pattern, want + 1)
        assert same(x, want)

    hc.run_threads(ranks, rank)
