"""JAX arrays in GPU memory, by ``halocline.jax``: of each rank alone with its GPU, and of all together."""

import libraries
import numpy as np
import pytest

import halocline as hc

jax = pytest.importorskip("jax", reason="jax is not installed")

import halocline.jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from gradient_patterns import regular, unstructured  # noqa: E402

jax.config.update("jax_enable_x64", True)
TYPES = [jnp.bool_, jnp.int8, jnp.int64, jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64, jnp.complex64, jnp.complex128]


def gpus():
    try:
        return jax.devices("gpu")
    except RuntimeError:
        return []


@pytest.fixture(params=["one GPU", "all ranks"])
def on_gpus(request, together):
    """Calls a function with a communicator, of one rank or of all, and this rank's GPU, which is JAX's default device."""
    if not gpus():
        pytest.skip("JAX has no GPU: test_jax.py has tests without one")

    def call(function):
        def rank(comm):
            if not libraries.IS_JOB:
                return "SKIPPED: ranks with JAX arrays in GPU memory are processes"
            of = comm if request.param == "all ranks" else hc.run_threads(1, lambda alone: alone)[0]
            with jax.default_device(gpus()[comm.rank % len(gpus())]):
                return function(of)

        together(rank)

    return call


@pytest.fixture(params=[regular, unstructured], ids=lambda make: make.__name__)
def make_pattern(request):
    return request.param


def values(shape, seed, dtype=jnp.float64):
    """Small whole numbers: sums of them are exact."""
    return jnp.asarray(np.random.default_rng(seed).integers(-8, 9, shape)).astype(dtype)


def on_the_host(comm, pattern, array, *, reduce=False):
    """The same by an exchange of host memory."""
    copy = np.array(array)
    halo = hc.HaloExchange(comm, [(pattern, copy)])
    halo.reduce("sum") if reduce else halo.exchange()
    return copy


def total(comm, value):
    return comm.all_reduce([float(value)])[0]


@pytest.mark.parametrize("compile", [lambda function: function, jax.jit], ids=["eager", "jit"])
def test_calls_equal_those_of_the_host(on_gpus, make_pattern, compile):
    def check(comm):
        pattern = make_pattern(comm)
        halo = halocline.jax.HaloExchange(comm, pattern, deadline=20)
        for seed, dtype in enumerate(TYPES):
            x = values(pattern.shape, 10 * comm.rank + seed, dtype)
            y = compile(halo)(x)
            assert y.dtype == dtype and y.devices() == x.devices() and next(iter(y.devices())).platform != "cpu"
            raw = x if dtype != jnp.bfloat16 else x.view(jnp.uint16)
            found = y if dtype != jnp.bfloat16 else y.view(jnp.uint16)
            np.testing.assert_array_equal(found, on_the_host(comm, pattern, raw), str(dtype))
            if dtype not in (jnp.bool_, jnp.float16, jnp.bfloat16):
                np.testing.assert_array_equal(compile(halo.reduce)(x), on_the_host(comm, pattern, x, reduce=True), str(dtype))
        return f"{make_pattern.__name__}: {len(TYPES)} types, {comm.size} ranks"

    on_gpus(check)


def test_gradients(on_gpus, make_pattern):
    """With y = Hx, the gradient of sum(y^3) is 3 H^T y^2; and <Hx, y> = <x, H^T y>."""

    def check(comm):
        pattern = make_pattern(comm)
        halo = halocline.jax.HaloExchange(comm, pattern, deadline=20)
        x, y = (values(pattern.shape, 2 * comm.rank + which) for which in range(2))
        gradient = jax.jit(jax.grad(lambda x: (halo(x) ** 3).sum()))(x)
        squares = 3 * np.asarray(on_the_host(comm, pattern, x)) ** 2
        np.testing.assert_array_equal(gradient, on_the_host(comm, pattern, squares, reduce=True))
        there, back = total(comm, (halo(x) * y).sum()), total(comm, (x * halo.reduce(y)).sum())
        assert there == back
        second = jax.grad(lambda x: (jax.grad(lambda x: (halo(x) ** 3).sum())(x) ** 2).sum())(x)
        assert second.shape == x.shape and np.isfinite(second).all()
        return f"<Hx, y> = <x, H^T y> = {there:g}, {make_pattern.__name__}, {comm.size} ranks"

    on_gpus(check)


def test_the_host_runs_ahead(on_gpus):
    """More calls than may be in flight, in one compiled loop and one after the other; the backward pass of all of them."""

    def check(comm):
        pattern = regular(comm)
        halo = halocline.jax.HaloExchange(comm, pattern, deadline=30)

        def step(x):
            return jnp.sin(halo(x)) * 1.1

        def loop(x):
            return jax.lax.scan(lambda x, _: (step(x), None), x, length=100)[0]

        x = values(pattern.shape, comm.rank)
        at_once = jax.jit(loop)(x)
        one_step, apart, host = jax.jit(step), x, np.array(x)
        for _ in range(100):
            apart = one_step(apart)
            host = np.sin(on_the_host(comm, pattern, host)) * 1.1
        np.testing.assert_array_equal(at_once, apart)
        np.testing.assert_allclose(at_once, host, rtol=1e-9)
        gradient = jax.jit(jax.grad(lambda x: loop(x).sum()))(x)
        again = jax.jit(jax.grad(lambda x: loop(x).sum()))(x)
        np.testing.assert_array_equal(gradient, again)

    on_gpus(check)


def test_several_fields_and_arrays_of_other_shapes(on_gpus):
    def check(comm):
        pattern = regular(comm)
        halo = halocline.jax.HaloExchange(comm, pattern, axes=(-2, -1), deadline=20)
        arrays = [values((*extra, *pattern.shape), 3 * comm.rank + at, dtype) for at, (extra, dtype) in enumerate([((2, 3), jnp.float32), ((), jnp.int32)])]
        found = jax.jit(lambda *arrays: halo(*arrays))(*arrays)
        for array, result in zip(arrays, found):
            copy = np.array(array)
            hc.HaloExchange(comm, [(pattern, hc.Field(copy, axes=(copy.ndim - 2, copy.ndim - 1)))]).exchange()
            np.testing.assert_array_equal(result, copy)
        batched = jax.vmap(halo)(arrays[0])
        np.testing.assert_array_equal(batched, found[0])

    on_gpus(check)


def test_checked_mode_names_the_calls(on_gpus):
    def check(comm):
        pattern = regular(comm)
        halo = halocline.jax.HaloExchange(comm, pattern, checked=True, deadline=10)
        x = values(pattern.shape, comm.rank)
        np.testing.assert_array_equal(jax.jit(halo)(x), on_the_host(comm, pattern, x))
        if comm.size == 1:
            return
        call = halo if comm.rank else halo.reduce
        with pytest.raises((hc.HaloError, jax.errors.JaxRuntimeError), match="exchange|reduce") as raised:
            jax.block_until_ready(jax.jit(call)(x))
        if isinstance(raised.value, jax.errors.JaxRuntimeError):
            with pytest.raises(hc.HaloError, match="exchange|reduce"):
                halo.raise_failure()

    on_gpus(check)
