"""Times calls of GT4Py programs of 5, 10 and 20 fields: by GT4Py on its DaCe backend, by DaCe, and by Halocline. ``run`` installs what it needs.

Run it with ``python -O``, as GT4Py advises, and with ``python``: GT4Py leaves its checks out with the first. A program adds its fields over a
domain of one cell, so that the call is what costs. All ways take turns in one run; a figure is the median in microseconds. ``installed`` ways
call GT4Py's own program objects after ``halocline.program.install()``. "Fresh" calls take 16 sets of fields in turn, more than a program
knows; the fields share one domain object, or each has its own. With ``--csv`` the figures are appended to a file.
"""

import argparse
import csv
import importlib.util
import itertools
import os
import sys
import tempfile
from pathlib import Path

FIELDS = (5, 10, 20)
FRESH = 16

SOURCE = """
import gt4py.next as gtx
from gt4py.next import float64

I, J = gtx.Dimension("I"), gtx.Dimension("J")

@gtx.field_operator
def add({parameters}) -> gtx.Field[[I, J], float64]:
    return {sum}

@gtx.program
def program_{count}({parameters}, out: gtx.Field[[I, J], float64]):
    add({names}, out=out)
"""


def program_of(folder, count):
    """The program of so many fields, the last of them its result; GT4Py reads the source of a file."""
    names = [f"f{i}" for i in range(count - 1)]
    path = folder / f"fields_{count}.py"
    parameters = ", ".join(f"{name}: gtx.Field[[I, J], float64]" for name in names)
    # Renamed: several processes may write it.
    written = path.with_suffix(f".{os.getpid()}")
    written.write_text(SOURCE.format(parameters=parameters, names=", ".join(names), sum=" + ".join(names), count=count))
    written.replace(path)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module, getattr(module, f"program_{count}")


def sequential_backend():
    """GT4Py's DaCe backend, for programs without a region of OpenMP: its start costs more than a prepared call."""
    import dace
    from gt4py.next.program_processors.runners.dace import make_dace_backend
    from gt4py.next.program_processors.runners.dace.transformations.auto_optimize import GT4PyAutoOptHook

    def make_sequential(sdfg):
        for node, _ in sdfg.all_nodes_recursive():
            if isinstance(node, dace.nodes.MapEntry):
                node.map.schedule = dace.ScheduleType.Sequential

    hooks = {GT4PyAutoOptHook.TopLevelDataFlowPost: make_sequential}
    return make_dace_backend(gpu=False, cached=False, optimization_args={"optimization_hooks": hooks})


def row(folder, count):
    import gt4py.next as gtx
    import numpy as np
    from timing import medians, repeated

    from halocline import _gt4py, program

    module, source = program_of(folder, count)
    backend = sequential_backend()

    def domain():
        return gtx.domain({module.I: (0, 1), module.J: (0, 1)})

    def fields(of):
        return [gtx.as_field(of(), np.ones((1, 1))) for _ in range(count)]

    shared = domain()
    known = fields(domain)
    offsets = {}
    of_gt4py = source.with_backend(backend)
    of_gt4py(*known[:-1], out=known[-1], offset_provider=offsets)
    # GT4Py's own call, also after `install`.
    original = type(of_gt4py).__call__
    ours = program.from_gt4py(of_gt4py)
    installed = source.with_backend(backend)
    program.install()
    (of_pool,) = of_gt4py._compiled_programs.compiled_programs.values()
    fun = _gt4py.of_dace(of_pool)
    prepared = ours.prepare(*known)
    sets = {"shared domain": [fields(lambda: shared) for _ in range(FRESH)], "own domains": [fields(domain) for _ in range(FRESH)]}

    def fresh(call, kind):
        endless = itertools.cycle(sets[kind])

        def calls(times):
            for given in itertools.islice(endless, times):
                call(*given, offset_provider=offsets)

        return calls

    ways = {
        "GT4Py" if __debug__ else "GT4Py -O": repeated(lambda: original(of_gt4py, *known[:-1], out=known[-1], offset_provider=offsets)),
        "DaCe fast_call": repeated(fun.fast_call),
        "seen before": repeated(lambda: ours(*known[:-1], out=known[-1], offset_provider=offsets)),
        "fresh": fresh(ours, "shared domain"),
        "fresh, own domains": fresh(ours, "own domains"),
        "prepared": repeated(prepared),
        "installed, seen before": repeated(lambda: installed(*known[:-1], out=known[-1], offset_provider=offsets)),
        "installed, fresh": fresh(installed, "shared domain"),
    }
    for name, way in ways.items():
        last = [known, *sets["shared domain"], *sets["own domains"]]
        for given in last:
            given[-1].ndarray[:] = -1
        way(FRESH)
        done = [given[-1].ndarray[0, 0] for given in last if given[-1].ndarray[0, 0] != -1]
        assert done and set(done) == {count - 1}, name
    # Short turns, which other work on the machine seldom interrupts.
    found = medians(ways, rounds=150, calls=80)
    program.uninstall()
    parameters = len(fun.sdfg_argtypes)
    return f"{count} ({parameters})", found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fields", type=int, nargs="+", default=FIELDS)
    parser.add_argument("--csv", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # Read when GT4Py is imported.
        os.environ["GT4PY_BUILD_CACHE_DIR"] = folder
        # Threads that wait for each other on a busy machine would be what is measured.
        os.environ["OMP_NUM_THREADS"] = "1"
        try:
            import gt4py.next  # noqa: F401
        except ImportError as error:
            print(f"\nGT4Py is not measured: {error}")
            return
        from timing import show

        how = "python" if __debug__ else "python -O"
        table = dict(row(Path(folder), count) for count in asked.fields)
        show(f"GT4Py programs with {how}, microseconds a call:", table)
        if asked.csv:
            with asked.csv.open("a", newline="") as file:
                writer = csv.writer(file)
                for name, found in table.items():
                    writer.writerows([how, name, way, f"{median:.3f}"] for way, median in found.items())


if __name__ == "__main__":
    main()
