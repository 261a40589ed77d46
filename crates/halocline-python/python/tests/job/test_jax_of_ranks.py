"""Gradients through exchanges of JAX arrays between processes. Ranks that are threads have more tests: ``test_jax.py``."""

import sys
from pathlib import Path

import numpy as np
import pytest

import halocline as hc

jax = pytest.importorskip("jax", reason="jax is not installed")

import halocline.jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent.parent))
from jax_patterns import check_gradients, exchanged, reduced, total, values  # noqa: E402


@pytest.fixture
def pattern(comm):
    grid = hc.RegularGrid((3 * comm.size, 2), periodic=(True, False))
    return grid.decompose_into((comm.size, 1), comm).pattern([(1, 2), (1, 1)])


@pytest.mark.parametrize("compile", [lambda function: function, jax.jit], ids=["eager", "jit"])
def test_the_result_is_the_exchange(comm, pattern, compile):
    halo = halocline.jax.HaloExchange(comm, pattern)
    x = values(pattern.shape, comm.rank)
    assert np.array_equal(compile(halo)(x), exchanged(comm, pattern, x))
    assert np.array_equal(compile(halo.reduce)(x), reduced(comm, pattern, x))


@pytest.mark.parametrize("compile", [lambda function: function, jax.jit], ids=["eager", "jit"])
def test_gradients_of_all_orders(comm, pattern, compile):
    halo = halocline.jax.HaloExchange(comm, pattern)
    check_gradients(comm, compile(lambda x: halo.reduce(halo(x * x) * x)), [pattern.shape])


def test_the_transpose(comm, pattern):
    halo = halocline.jax.HaloExchange(comm, pattern)
    x, y = (values(pattern.shape, 2 * comm.rank + which) for which in range(2))
    assert total(comm, (halo(x) * y).sum()) == total(comm, (x * halo.reduce(y)).sum())


def test_independent_exchanges_of_one_function_keep_their_order(comm):
    pattern = hc.RegularGrid((1 << 15,), periodic=(True,)).decompose(comm).pattern(1)
    first, second = (halocline.jax.HaloExchange(comm, pattern, deadline=300) for _ in range(2))

    @jax.jit
    def function(x):
        return [first(x + 1), second(jnp.cos(x)), first(jnp.sin(jnp.cos(x))), second(x * 5)]

    x = values(pattern.shape, comm.rank)
    arguments = [np.asarray(given) for given in (x + 1, jnp.cos(x), jnp.sin(jnp.cos(x)), x * 5)]
    want = [exchanged(comm, pattern, argument) for argument in arguments]
    for _ in range(200):
        assert all(map(np.array_equal, function(x), want))


def test_the_bits_of_a_loop_with_its_gradient(comm, pattern):
    """The same in each run: the sums have an order."""
    halo = halocline.jax.HaloExchange(comm, pattern)

    @jax.jit
    @jax.grad
    def gradient(x):
        return jax.lax.fori_loop(0, 5, lambda _, y: halo(jnp.sin(y * 3)), x).sum()

    x = jnp.asarray(np.random.default_rng(comm.rank).standard_normal(pattern.shape))
    first = np.asarray(gradient(x)).tobytes()
    assert all(np.asarray(gradient(x)).tobytes() == first for _ in range(20))


def test_checked_mode_names_ranks_that_do_different_things(comm, pattern):
    if comm.size == 1:
        pytest.skip("one rank does nothing different")
    halo = halocline.jax.HaloExchange(comm, pattern, checked=True, deadline=300)
    pulls = [jax.vjp(halo, jnp.ones(pattern.shape))[1] for _ in range(2)]
    with pytest.raises(hc.HaloError, match="rank 0 in backward pass of exchange 1 .*; rank 1 in backward pass of exchange 2 "):
        pulls[1 if comm.rank else 0](jnp.ones(pattern.shape))
