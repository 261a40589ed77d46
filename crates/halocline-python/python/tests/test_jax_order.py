"""The order of exchanges of JAX arrays: that of the program, whatever XLA could do, and whatever else each rank computes."""

import functools

import numpy as np
import pytest

import halocline as hc

jax = pytest.importorskip("jax", reason="jax is not installed")

import halocline.jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax_patterns import exchanged, narrow, ranks, reduced, same, values  # noqa: E402, F401


def test_independent_exchanges_of_one_function_keep_their_order(ranks):
    """XLA may run what does not depend on each other at once, and in another order. Of one object and of two; large fields, too."""

    def rank(comm):
        pattern = hc.RegularGrid((1 << 15,), periodic=(True,)).decompose(comm).pattern(1)
        first, second = (halocline.jax.HaloExchange(comm, pattern, deadline=300) for _ in range(2))

        @jax.jit
        @functools.partial(jax.value_and_grad, has_aux=True)
        def function(x):
            independent = [first(x + 1), second(jnp.cos(x)), first(jnp.sin(jnp.cos(x))), second(x * 5)]
            second(x)  # unused, and kept all the same
            return sum((y * y).sum() * (n + 1) for n, y in enumerate(independent)), independent

        x = values(pattern.shape, comm.rank)
        arguments = [np.asarray(given) for given in (x + 1, jnp.cos(x), jnp.sin(jnp.cos(x)), x * 5)]
        want = [exchanged(comm, pattern, argument) for argument in arguments]
        (_, results), gradient = function(x)
        assert all(map(same, results, want))
        for _ in range(200):
            (_, results), again = function(x)
        assert all(map(same, results, want)) and same(again, gradient)

    hc.run_threads(min(ranks, 2), rank)


def test_compiled_functions_keep_their_order(ranks):
    """JAX starts a function before the one before it has ended; these do not depend on each other."""

    def rank(comm):
        pattern = hc.RegularGrid((1 << 15,), periodic=(True,)).decompose(comm).pattern(1)
        halo = halocline.jax.HaloExchange(comm, pattern, deadline=300)

        def slow(x):
            return halo(jax.lax.fori_loop(0, 20, lambda _, y: jnp.cos(y), x))

        long, short = jax.jit(slow), jax.jit(halo)
        x = values(pattern.shape, comm.rank)
        want = exchanged(comm, pattern, jax.lax.fori_loop(0, 20, lambda _, y: jnp.cos(y), x)), exchanged(comm, pattern, x)
        for _ in range(50):
            assert all(map(same, (long(x), short(x)), want))

    hc.run_threads(min(ranks, 2), rank)


def test_ranks_that_are_threads_do_not_use_up_those_of_xla():
    """Each has several functions in flight, in which exchanges and large computations do not depend on each other."""

    def rank(comm):
        pattern = hc.RegularGrid((comm.size * 20000,), periodic=(True,)).decompose(comm).pattern(1)
        halos = [halocline.jax.HaloExchange(comm, pattern, deadline=300) for _ in range(3)]

        @jax.jit
        def function(x):
            results = [halo(jnp.cos(x * k)) for k, halo in enumerate([*halos, *reversed(halos)])]
            return sum(y.sum() for y in results), results

        gradient = jax.jit(jax.grad(lambda x: function(x)[0]))
        x = jnp.arange(float(pattern.shape[0]))
        for _ in range(20):
            last = function(x), gradient(x)
        jax.block_until_ready(last)

    hc.run_threads(4, rank)


@pytest.mark.parametrize("compile", [lambda function: function, jax.jit], ids=["eager", "jit"])
def test_backward_passes_have_the_order_of_the_calls_whatever_each_rank_computes(ranks, compile):
    """Checked mode would name another order."""

    def rank(comm):
        pattern = narrow(comm)
        halo = halocline.jax.HaloExchange(comm, pattern, checked=True, deadline=300)
        x = [values(pattern.shape, comm.rank) for _ in range(3)]

        def loss(x):
            random = np.random.default_rng(comm.rank)
            results = []
            for _ in range(8):
                y = x[random.integers(3)] * 1.0
                for _ in range(random.integers(4)):
                    y = y + results[random.integers(len(results))] if results else jnp.sin(y)
                results.append(halo(y))
            terms = 0.0
            for at in random.permutation(len(results)):
                y = results[at]
                for _ in range(random.integers(5)):
                    y = jnp.cos(y)
                terms = terms + y.sum()
            return terms

        compile(jax.grad(loss))(x)

    hc.run_threads(ranks, rank)
