"""What an exchange of JAX arrays refuses, and ranks that do different things."""

import gc
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import halocline as hc

jax = pytest.importorskip("jax", reason="jax is not installed")

import halocline.jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from halocline import _jax_primitive  # noqa: E402
from jax_patterns import alone, check_gradients, exchanged, narrow, values  # noqa: E402, F401

FILLED = [6, 1, 2, 3, 4, 5, 6, 1]


# --- what is refused -------------------------------------------------------------------------------------------------


def test_arrays_that_are_refused(alone):
    _, _, halo = alone
    cases = [
        (np.zeros(8), "HaloTypeError", r"fields\[0\]: an array of JAX is wanted, not ndarray; jax.numpy.asarray\(\) makes one"),
        (None, "HaloTypeError", r"an array of JAX is wanted, not NoneType"),
        (jnp.zeros(7), "HaloValueError", r"fields\[0\]: has \(7,\) cells along the axes of its pattern, where domain 0 has \(8,\)"),
        (jnp.zeros(()), "HaloValueError", r"an array of shape \(\) has no axes \(0,\) for those of its pattern"),
        (jax.random.split(jax.random.key(0), 8), "HaloTypeError", r"give jax.random.key_data\(array\)"),
        (jnp.zeros(8, jnp.int4), "HaloTypeError", r"elements of int4 have less than a byte .* give array.astype\(jnp.int8\)"),
    ]
    for call in (halo, halo.reduce):
        for array, error, text in cases:
            with pytest.raises(getattr(hc, error), match=text):
                call(array)
            if isinstance(array, jax.Array):
                with pytest.raises(getattr(hc, error), match=text):
                    jax.jit(call)(array)
    assert halo(jnp.arange(8)).tolist() == FILLED


def test_one_bad_array_of_several_is_named(alone):
    _, _, halo = alone
    with pytest.raises(hc.HaloTypeError, match=r"fields\[1\]: an array of JAX is wanted, not list"):
        halo(jnp.zeros(8), [[0.0] * 8], jnp.zeros(8))
    with pytest.raises(hc.HaloValueError, match=r"fields\[1\]: has \(9,\) cells"):
        jax.grad(lambda x: halo(x, jnp.zeros(9))[0].sum())(jnp.zeros(8))


def test_a_bool_has_no_sum(alone):
    _, _, halo = alone
    for compile in (lambda function: function, jax.jit):
        with pytest.raises(hc.HaloTypeError, match=r"fields\[1\]: elements of bool have no sum; give array.astype\(jnp.int32\)"):
            compile(halo.reduce)(jnp.zeros(8), jnp.zeros(8, bool))


def test_counts_that_are_refused(alone):
    comm, pattern, halo = alone
    with pytest.raises(hc.HaloValueError, match="fields: there are none; give one array or more"):
        halo()
    two = halocline.jax.HaloExchange(comm, [pattern, pattern])
    with pytest.raises(hc.HaloValueError, match="fields: 1 are given for 2 patterns; give one for each pattern"):
        two(jnp.zeros(8))
    with pytest.raises(hc.HaloValueError, match=r"1 domains of its pattern, and 2 arrays are given; give a list with one array for each"):
        halo([jnp.zeros(8), jnp.zeros(8)])
    assert [y.tolist() for y in halo([jnp.arange(8)])] == [FILLED]


def test_arguments_that_are_refused_on_all_ranks():
    def rank(comm):
        pattern = narrow(comm)
        bad = [
            (pattern, {"axes": (0, -1)}, hc.HaloValueError, "axes: .* count from both ends"),
            ([pattern, 3], {}, hc.HaloTypeError, r"patterns\[1\]: a Pattern is wanted, not 3"),
        ]
        for patterns, options, error, text in bad:
            with pytest.raises(error if comm.rank else hc.RefusedElsewhereError, match=text):
                halocline.jax.HaloExchange(comm, *((patterns,) if comm.rank else (pattern,)), **(options if comm.rank else {}))
        with pytest.raises(hc.HaloValueError, match=r"axes: \(0, 1\) are 2, and the pattern of fields\[0\] has 1 axes"):
            halocline.jax.HaloExchange(comm, pattern, axes=(0, 1))(jnp.zeros(pattern.shape))

    hc.run_threads(2, rank)
    with pytest.raises(hc.HaloTypeError, match="comm: a Communicator is wanted, not 3"):
        halocline.jax.HaloExchange(3, [])


def test_more_threads_than_xla_has(monkeypatch):
    monkeypatch.setenv("PJRT_NPROC", "1")

    def rank(comm):
        pattern = narrow(comm)
        with pytest.raises(hc.HaloValueError, match="comm: its 3 ranks are threads .* XLA runs 2 functions at once here; set .* PJRT_NPROC=3"):
            halocline.jax.HaloExchange(comm, pattern)

    hc.run_threads(3, rank)


def test_a_pattern_of_another_communicator():
    def rank(comm):
        pattern = narrow(comm)
        alone = comm.split(comm.rank)
        halo = halocline.jax.HaloExchange(alone, pattern)
        for compile in (lambda function: function, jax.jit):
            with pytest.raises(hc.HaloValueError, match="communicator"):
                compile(halo)(jnp.zeros(pattern.shape))

    hc.run_threads(2, rank)


@pytest.mark.parametrize("compile", [lambda function: function, jax.jit], ids=["eager", "jit"])
def test_arrays_that_differ_between_ranks_are_an_error_on_all(compile):
    def rank(comm):
        pattern = narrow(comm)
        halo = halocline.jax.HaloExchange(comm, pattern)
        with pytest.raises(hc.HaloError, match="float32|f32"):
            compile(halo)(values(pattern.shape, 0, jnp.float64 if comm.rank else jnp.float32))
        x = values(pattern.shape, comm.rank)
        assert np.array_equal(compile(halo)(x), exchanged(comm, pattern, x))

    hc.run_threads(2, rank)


def test_an_array_that_was_donated(alone):
    _, _, halo = alone
    x = jnp.arange(8.0)
    jax.jit(lambda x: x + 1, donate_argnums=0)(x)
    with pytest.raises(hc.HaloValueError, match=r"fields\[0\]: the array was deleted, or donated to a compiled function \(donate_argnums\)"):
        halo(x)
    with pytest.raises(RuntimeError, match="deleted"):
        # JAX finds it before the function runs.
        jax.jit(halo)(x)


def test_arrays_of_several_devices(alone):
    _, _, halo = alone
    mesh = jax.sharding.Mesh(jax.devices("cpu"), "i")
    x = jax.device_put(jnp.arange(8.0), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i")))
    with pytest.raises(hc.HaloTypeError, match=r"fields\[0\]: the array is on 2 devices; an exchange takes arrays of one device"):
        halo(x)
    with pytest.raises(hc.HaloTypeError, match="an exchange takes arrays of one device, as each rank holds its own part"):
        jax.jit(halo)(x)
    assert halo(jax.device_put(x, jax.devices("cpu")[1])).tolist() == FILLED


def test_arrays_of_other_devices(alone):
    """An array of an unknown device stands for it, and the lowering for another platform."""
    _, _, halo = alone

    class Device:
        platform = "tpu"

        def __repr__(self):
            return "tpu:0"

    class OnTpu:
        class sharding:
            device_set = {Device()}

        @staticmethod
        def is_deleted():
            return False

    with pytest.raises(hc.HaloTypeError, match=r"fields\[0\]: the array is on tpu:0; halocline.jax exchanges arrays of the CPU and of CUDA GPUs"):
        halocline.jax.check_memory("fields[0]", OnTpu)
    with pytest.raises(hc.HaloTypeError, match="halocline.jax exchanges arrays of the CPU and of CUDA GPUs"):
        jax.jit(halo).trace(jnp.arange(8.0)).lower(lowering_platforms=("tpu",))


def test_a_function_for_a_gpu_has_buffers_there(alone, monkeypatch):
    """Only compiled; gpu/test_jax_on_gpus.py runs such functions."""
    comm, pattern, _ = alone
    made = []

    class Bound:
        number = 77

        def __init__(self, comm, options, slots, axes, arrays, gpu, compare):
            made.append(gpu)

    monkeypatch.setattr(halocline.jax, "Bound", Bound)
    halo = halocline.jax.HaloExchange(comm, pattern)
    function = jax.jit(lambda x: halo.reduce(halo(x))).trace(jnp.arange(8.0))
    text = function.lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("@halocline_exchange") == 2 and text.count("exchange = 77") == 2, text
    function.lower(lowering_platforms=("cpu",))
    assert made == [jax.devices("cpu")[0].local_hardware_id, None]


def test_another_version_of_xla():
    for version in ((1, 0), (0, 0), (0, 99), (-1, -1)):
        text = f"jaxlib has version {version[0]}.{version[1]} of XLA's foreign function interface; halocline.jax supports 0.1 to 0.4"
        with pytest.raises(hc.HaloTypeError, match=text):
            hc._core._xla_handler(*version)


def test_a_jaxlib_without_headers(monkeypatch, tmp_path):
    monkeypatch.setattr(jax.ffi, "include_dir", lambda: str(tmp_path))
    with pytest.raises(hc.HaloError, match="jaxlib lacks a header that halocline.jax needs; install the one of PyPI: .*c_api.h"):
        _jax_primitive._interface_version()


def test_a_process_without_the_cpu_device():
    code = """
import halocline as hc, halocline.jax, jax
def devices(platform):
    raise RuntimeError("Unknown backend cpu")
jax.devices = devices
comm = hc.run_threads(1, lambda comm: comm)[0]
try:
    halocline.jax.HaloExchange(comm, [])
except hc.HaloError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "halocline.jax needs JAX's CPU device; add cpu to JAX_PLATFORMS: Unknown backend cpu" in done.stdout, done


def test_a_jax_without_what_orders_calls():
    code = """
import jax._src.effects as effects
import jax
del effects.remat_allowed_effects
try:
    import halocline.jax
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "halocline.jax does not work with JAX" in done.stdout, done


def test_a_python_without_jax(tmp_path):
    (tmp_path / "jax.py").write_text("raise ModuleNotFoundError(name='jax')")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])}
    done = subprocess.run([sys.executable, "-c", "import halocline.jax"], capture_output=True, text=True, timeout=120, env=environment)
    assert "ModuleNotFoundError: halocline.jax needs JAX 0.6 or later: pip install jax" in done.stderr, done


def test_two_threads_at_once_are_refused():
    """The calls of one thread wait for each other; those of another thread do not."""

    def rank(comm):
        pattern = narrow(comm)
        halo = halocline.jax.HaloExchange(comm, pattern, deadline=300)
        x = values(pattern.shape, comm.rank)
        halo(x)
        if comm.rank == 0:
            # Is in flight until the other rank calls.
            waiting = jax.jit(halo)
            thread = threading.Thread(target=lambda: waiting(x).block_until_ready())
            thread.start()
            with pytest.raises(hc.InFlightError, match="another thread exchanges such arrays with this object; wait for it, or give each"):
                while True:
                    refuse_if_busy(halo, thread)
            comm.barrier()
            thread.join()
        else:
            comm.barrier()
            halo(x)

    def refuse_if_busy(halo, thread):
        """A call, once the thread has begun its own: the bound object counts it."""
        (bound,) = halo._bound.values()
        if bound.halo.pending is not None and bound.halo.pending.epoch == 2:
            halo(jnp.zeros(halo._slots.patterns[0].shape))
        assert thread.is_alive()

    hc.run_threads(2, rank)


# --- failures of compiled functions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("checked", [False, True])
def test_a_dropped_object_is_named(alone, checked):
    comm, pattern, _ = alone
    compiled = jax.jit(halocline.jax.HaloExchange(comm, pattern, checked=checked).__call__).lower(jnp.arange(8.0)).compile()
    gc.collect()
    with pytest.raises(jax.errors.JaxRuntimeError, match="ClosedError: the halocline.jax.HaloExchange of this compiled function was dropped"):
        jax.block_until_ready(compiled(jnp.arange(8.0)))
    halocline.jax.forget_token()


def test_a_closed_communicator():
    kept = []

    def rank(comm):
        pattern = narrow(comm)
        halo = halocline.jax.HaloExchange(comm, pattern)
        compiled = jax.jit(halo)
        compiled(jnp.zeros(pattern.shape))
        halo(jnp.zeros(pattern.shape))
        kept.append((halo, compiled, pattern.shape))

    hc.run_threads(1, rank)
    halo, compiled, shape = kept[0]
    halo._comm.close()
    with pytest.raises(hc.ClosedError, match="the communicator was closed"):
        halo(jnp.zeros(shape))
    with pytest.raises(jax.errors.JaxRuntimeError, match="ClosedError: the communicator was closed"):
        jax.block_until_ready(compiled(jnp.zeros(shape)))
    with pytest.raises(hc.ClosedError, match="the communicator was closed"):
        halo.raise_failure()
    halo.raise_failure()


def test_a_deadline_ends_a_call_that_a_rank_does_not_make():
    """Also in a compiled function, and other objects work after it."""

    def rank(comm):
        pattern = narrow(comm)
        eager, compiled, other = (halocline.jax.HaloExchange(comm, pattern, deadline=deadline) for deadline in (4, 4, 300))
        x = values(pattern.shape, comm.rank)
        function = jax.jit(compiled)
        for call in (eager, function, other):
            call(x).block_until_ready()
        if comm.rank == 0:
            with pytest.raises(hc.ExchangeTimeoutError, match="deadline"):
                eager(x)
            with pytest.raises(jax.errors.JaxRuntimeError, match="ExchangeTimeoutError: .*deadline"):
                function(x).block_until_ready()
            with pytest.raises(hc.ExchangeTimeoutError, match="deadline"):
                compiled.raise_failure()
        comm.barrier()
        assert np.array_equal(other(x), exchanged(comm, pattern, x))

    hc.run_threads(2, rank)


def test_a_deadline_ends_a_backward_pass_that_a_rank_does_not_run():
    def rank(comm):
        pattern = narrow(comm)
        halo = halocline.jax.HaloExchange(comm, pattern, deadline=4)
        x = values(pattern.shape, comm.rank)
        if comm.rank == 0:
            with pytest.raises(hc.ExchangeTimeoutError):
                jax.grad(lambda x: halo(x).sum())(x)
        else:
            halo(x)
        comm.barrier()

    hc.run_threads(2, rank)


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
        halo = halocline.jax.HaloExchange(comm, pattern, checked=True, name="t")
        pulls = [jax.vjp(halo, jnp.ones(pattern.shape))[1] for _ in range(2)]
        for pull in pulls if comm.rank else reversed(pulls):
            pull(jnp.ones(pattern.shape))

    both_raise(work, r"rank 0 in backward pass of exchange 2 of t \(object 1\); rank 1 in backward pass of exchange 1 of t .*\. Make the same calls")


def test_checked_mode_names_calls_of_different_objects():
    def work(comm, pattern):
        t, u = (halocline.jax.HaloExchange(comm, pattern, checked=True) for _ in range(2))
        for each in (t, u):
            each(jnp.ones(pattern.shape))
        (u if comm.rank else t)(jnp.ones(pattern.shape))

    both_raise(work, "rank 0 in exchange 2 of object 1, .*; rank 1 in exchange 2 of object 2, ")


def test_checked_mode_names_calls_of_a_compiled_function():
    def work(comm, pattern):
        halo = halocline.jax.HaloExchange(comm, pattern, checked=True)
        x = jnp.ones(pattern.shape)
        for call in (halo, halo.reduce):
            call(x)
        function = jax.jit(lambda x: halo(halo.reduce(x)) if comm.rank else halo.reduce(halo(x)))
        with pytest.raises(jax.errors.JaxRuntimeError, match="HaloError: ranks are in different operations"):
            function(x).block_until_ready()
        halo.raise_failure()

    both_raise(work, "rank 0 in exchange 3 .*; rank 1 in reduce 3 ")


def test_checked_mode_changes_no_result():
    def rank(comm):
        pattern = narrow(comm)
        halo = halocline.jax.HaloExchange(comm, pattern, checked=True)
        check_gradients(comm, lambda x: halo.reduce(halo(x) ** 2), [pattern.shape])
        check_gradients(comm, jax.jit(jax.vmap(lambda x: halo.reduce(halo(x) ** 2))), [(2, *pattern.shape)])

    hc.run_threads(2, rank)


def test_the_environment_turns_checked_mode_on(monkeypatch):
    monkeypatch.setenv("HALOCLINE_CHECK", "1")

    def work(comm, pattern):
        halo = halocline.jax.HaloExchange(comm, pattern)
        (halo if comm.rank else halo.reduce)(jnp.ones(pattern.shape))

    both_raise(work, "rank 0 in reduce 1 .*; rank 1 in exchange 1 ")
