"""Time of exchanges of JAX arrays, beside the same work without JAX: medians, in microseconds.

Without JAX: a copy into a bound array, the exchange (for the gradient: also a reduce), and a copy of the result. With JAX: the same by
``halocline.jax``, in a compiled function of one exchange or in one of 100, in a loop. The empty function has no exchange. Each is timed in
turn, in one run. Run it alone and under ``halocline launch -n 2``; it needs JAX.
"""

import argparse
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

import halocline as hc
import halocline.jax

jax.config.update("jax_enable_x64", True)
LOOPS = 100


def time_of(call, rounds):
    start = time.perf_counter()
    for _ in range(rounds):
        call()
    return (time.perf_counter() - start) / rounds


def cases(comm, cells):
    """By name: a call, and the number of exchanges in it."""
    pattern = hc.RegularGrid((cells, cells), periodic=(True, True)).decompose(comm).pattern(1)
    halo, x = halocline.jax.HaloExchange(comm, pattern), jnp.ones(pattern.shape)
    array, given = hc.zeros(pattern.shape, comm=comm), np.ones(pattern.shape)
    bound = hc.HaloExchange(comm, [(pattern, array)])

    def without(*operations):
        for operation in operations:
            array[:] = given
            operation()
            array.copy()

    def looped(x):
        return jax.lax.fori_loop(0, LOOPS, lambda _, y: halo(y), x)

    compiled = {
        "an empty function": (jax.jit(lambda x: x), 1),
        "a function of one exchange": (jax.jit(halo), 1),
        "an exchange of a loop": (jax.jit(looped), LOOPS),
        "an exchange of a loop, and its gradient": (jax.jit(jax.grad(lambda x: looped(x).sum())), LOOPS),
        "a call outside functions": (halo, 1),
    }
    yield "an exchange without JAX", lambda: without(bound.exchange), 1
    yield "the same and a reduce", lambda: without(bound.exchange, bound.reduce), 1
    for name, (function, count) in compiled.items():
        yield name, lambda function=function: function(x).block_until_ready(), count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100, help="calls of one sample")
    parser.add_argument("--samples", type=int, default=21, help="samples of each, in turn")
    options = parser.parse_args()
    comm = hc.init()
    for cells in (8, 64, 512):
        all_cases = list(cases(comm, cells))
        for _, call, _ in all_cases:
            call()
        samples = {name: [] for name, _, _ in all_cases}
        for _ in range(options.samples):
            for name, call, count in all_cases:
                comm.barrier()
                rounds = max(1, options.rounds // count)
                samples[name].append(1e6 * time_of(call, rounds) / count)
        for name, times in samples.items():
            slowest = max(float(part) for part in comm.all_gather(repr(statistics.median(times)).encode()))
            if comm.rank == 0:
                print(f"{comm.size} ranks, {comm.transport}, {cells}x{cells}, {name:40} {slowest:8.2f} us")


if __name__ == "__main__":
    main()
