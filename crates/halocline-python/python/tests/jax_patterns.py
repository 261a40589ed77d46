"""Arrays and what becomes of them, for the tests of ``halocline.jax``. A test module imports the fixtures that it uses."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gradient_patterns import faces, make_pattern, narrow, ranks, regular, unstructured  # noqa: F401

import halocline as hc
import halocline.jax

# Ranks are threads here, and XLA has one for each processor: it reads this when JAX makes its first array.
os.environ["PJRT_NPROC"] = "8"
jax.config.update("jax_enable_x64", True)
# For arrays of several devices, which are refused.
jax.config.update("jax_num_cpu_devices", 2)


def values(shape, seed, dtype=jnp.float64):
    """Small whole numbers: sums of them are exact."""
    return jnp.asarray(np.random.default_rng(seed).integers(-8, 9, shape)).astype(dtype)


def exchanged(comm, pattern, array):
    copy = np.array(array)
    hc.HaloExchange(comm, [(pattern, copy)]).exchange()
    return copy


def reduced(comm, pattern, array):
    copy = np.array(array)
    hc.HaloExchange(comm, [(pattern, copy)]).reduce("sum")
    return copy


def same(one, other):
    return np.array_equal(np.asarray(one), np.asarray(other))


def total(comm, value):
    return sum(float(part) for part in comm.all_gather(repr(float(value)).encode()))


def whole_and_parts(comm, size):
    """Makes an array of all ranks of this rank's part, and the reverse. Each is the gradient of the other: a loss is one of all ranks.

    The whole is gathered by an exchange in which each rank has the cells of all others as its halo.
    """
    sizes = [int(other) for other in comm.all_gather(str(size).encode())]
    first, cells = sum(sizes[: comm.rank]), np.arange(sum(sizes))
    owners = np.repeat(np.arange(comm.size), sizes)
    domain = hc.UnstructuredDomain.from_owners(comm.rank, comm, cells, owners)
    gathering = halocline.jax.HaloExchange(comm, hc.Pattern.unstructured(comm, [domain]))

    @jax.custom_vjp
    def gather(part):
        return gathering(jnp.zeros(len(cells), part.dtype).at[first : first + size].set(part))

    @jax.custom_vjp
    def take(whole):
        return whole[first : first + size]

    gather.defvjp(lambda part: (gather(part), None), lambda _, gradient: (take(gradient),))
    take.defvjp(lambda whole: (take(whole), None), lambda _, gradient: (gather(gradient),))
    return gather, take, len(cells)


def global_function(comm, function, shapes, dtype=jnp.float64):
    """The function of all ranks' fields, which are ``shapes`` here, and an input for it, the same on all ranks."""
    sizes = [int(np.prod(shape)) for shape in shapes]
    gather, take, count = whole_and_parts(comm, sum(sizes))

    def of_all(whole):
        parts = jnp.split(take(whole), np.cumsum(sizes)[:-1])
        results = function(*(part.reshape(shape) for part, shape in zip(parts, shapes)))
        results = [results] if isinstance(results, jax.Array) else results
        return gather(jnp.concatenate([result.reshape(-1) for result in results]))

    random = np.random.default_rng(7).standard_normal((2, count))
    return of_all, jnp.asarray(random[0] + 1j * random[1] if dtype == jnp.complex128 else random[0], dtype)


def check_gradients(comm, function, shapes, dtype=jnp.float64):
    from jax.test_util import check_grads

    of_all, whole = global_function(comm, function, shapes, dtype)
    check_grads(of_all, (whole,), order=2, modes=["rev"])


@pytest.fixture
def alone():
    comm = hc.run_threads(1, lambda comm: comm)[0]
    pattern = hc.RegularGrid((6,), periodic=(True,)).decompose(comm).pattern(1)
    return comm, pattern, halocline.jax.HaloExchange(comm, pattern)
