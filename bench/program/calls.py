"""Times calls of DaCe programs of 5, 10 and 20 arrays: by DaCe, by ctypes, and by Halocline. ``run`` installs what it needs.

Each array brings two symbols, its extent and its stride, and four scalars come with them. A program writes one element of each array, so
that the call is what costs. All ways take turns in one run; a figure is the median in microseconds.
"""

import argparse
import ctypes
import itertools
import tempfile

import dace
import numpy as np
from timing import medians, repeated, show

from halocline import program

FRESH = 256
"""Sets of arrays that calls with fresh arrays take in turn."""


def compiled(arrays):
    """A DaCe program of so many arrays."""
    sdfg = dace.SDFG(f"arrays_{arrays}")
    state = sdfg.add_state()
    for name in ("k0", "k1", "k2", "k3"):
        sdfg.add_scalar(name, dace.int32)
    for i in range(arrays):
        extent, stride = dace.symbol(f"n{i}"), dace.symbol(f"s{i}")
        sdfg.add_array(f"a{i}", (extent,), dace.float64, strides=(stride,), total_size=extent * stride)
        inputs = {"k"} if i < 4 else set()
        write = state.add_write(f"a{i}")
        # The extent is used, or DaCe would not pass it.
        tasklet = state.add_tasklet(f"t{i}", inputs, {"out"}, f"out = n{i} + s{i}" + (" + k" if inputs else ""))
        if inputs:
            state.add_edge(state.add_read(f"k{i}"), None, tasklet, "k", dace.Memlet(f"k{i}[0]"))
        state.add_edge(tasklet, "out", write, None, dace.Memlet(f"a{i}[0]"))
    return sdfg.compile()


def arguments(arrays):
    """Arguments by name: those that Halocline takes, and the symbols that DaCe needs as well."""
    fields = {f"a{i}": np.zeros(8) for i in range(arrays)}
    scalars = {f"k{i}": i for i in range(4)}
    symbols = {f"{name}{i}": value for i in range(arrays) for name, value in (("n", 8), ("s", 1))}
    return fields, scalars, symbols


def row(arrays):
    of_dace = compiled(arrays)
    ours = program.from_sdfg(of_dace)
    fields, scalars, symbols = arguments(arrays)
    # Arrays, then numbers; Halocline finds the symbols by itself.
    numbers = tuple(scalars.values())
    positional = (*(fields[name] for name in ours.arguments if name in fields), *numbers)
    everything = {**fields, **scalars, **symbols}
    of_dace(**everything)
    callargs, initargs = of_dace.construct_arguments(**everything)
    raw = ctypes.CDLL(of_dace.filename)[f"__program_{of_dace.sdfg.name}"]
    raw.restype = None
    handle = of_dace._libhandle
    converted = tuple(callargs)
    sets = [(*(np.zeros(8) for _ in fields), *numbers) for _ in range(FRESH)]
    prepared = ours.prepare(*positional)

    endless = itertools.cycle(sets)

    def fresh(count):
        for given in itertools.islice(endless, count):
            ours(*given)

    ways = {
        "DaCe __call__": repeated(lambda: of_dace(**everything)),
        "DaCe fast_call": repeated(lambda: of_dace.fast_call(callargs, initargs)),
        "raw ctypes": repeated(lambda: raw(handle, *converted)),
        "Halocline, seen before": repeated(lambda: ours(*positional)),
        "Halocline, fresh arrays": fresh,
        "Halocline, prepared": repeated(prepared),
    }
    for name, way in ways.items():
        for field in fields.values():
            field[0] = -1
        if name != "Halocline, fresh arrays":
            way(1)
            assert all(field[0] == 9 + (i if i < 4 else 0) for i, field in enumerate(fields.values())), name
    return f"{arrays} ({len(callargs)})", medians(ways)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arrays", type=int, nargs="+", default=[5, 10, 20])
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        dace.config.set_temporary("default_build_folder", value=folder),
    ):
        show("DaCe programs, microseconds a call:", dict(row(arrays) for arrays in asked.arrays))


if __name__ == "__main__":
    main()
