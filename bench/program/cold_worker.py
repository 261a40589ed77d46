"""One process of ``cold_start.py``: imports what it needs, waits for a line, gets a program and calls it. Prints how long that took, and the CPU
time of it and its compilers."""

import os
import sys
import time
from pathlib import Path

import numpy as np

way, folder, number = sys.argv[1], Path(sys.argv[2]), sys.argv[3]


def of_dace():
    """A stencil of five arrays, and a function that calls it once it is there."""
    import dace

    sdfg = dace.SDFG("stencil")
    state = sdfg.add_state()
    n = dace.symbol("n")
    names = [f"a{i}" for i in range(5)]
    for name in names:
        sdfg.add_array(name, (n,), dace.float64)
    inputs = {f"i{i}": dace.Memlet(f"a{i}[j]") for i in range(4)}
    state.add_mapped_tasklet(
        "add", {"j": "0:n"}, inputs, "o = i0 + i1 * i2 - i3", {"o": dace.Memlet("a4[j]")}, external_edges=True
    )
    arrays = {name: np.ones(8) for name in names}
    if way == "cache":
        from halocline import program

        return lambda: program.compile_sdfg(sdfg, cache=folder / "cache")(*arrays.values())
    sdfg.build_folder = str(folder / (number if way == "dace-own" else "shared"))
    return lambda: sdfg.compile()(**arrays, n=8)


def of_gt4py():
    """A program of five fields."""
    import gt4py.next as gtx
    from gt4py.next.program_processors.runners import dace as backends
    from gt4py_calls import program_of

    if way == "gt4py-cache":
        from halocline import program

        program.cache_gt4py(cache=folder / "cache")
    module, stencil = program_of(folder, 5)
    domain = gtx.domain({module.I: 1, module.J: 1})
    fields = [gtx.as_field(domain, np.ones((1, 1))) for _ in range(5)]
    stencil = stencil.with_backend(backends.run_dace_cpu)
    return lambda: stencil.compile(offset_provider={})(*fields[:-1], out=fields[-1], offset_provider={})


def spent():
    """Seconds on the clock, and of CPU, with the commands that have ended."""
    return time.perf_counter(), sum(os.times()[:4])


get = of_gt4py() if way.startswith("gt4py") else of_dace()
print("ready", flush=True)
sys.stdin.readline()
begin = spent()
get()
print(*(now - before for now, before in zip(spent(), begin)))
