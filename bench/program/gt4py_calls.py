"""Times calls of GT4Py programs of 5, 10 and 20 fields on its DaCe backend. ``run`` installs what it needs.

Run it with ``python`` and with ``python -O``: GT4Py leaves its checks out with the second. A program adds its fields over a domain of one
cell, so that the call is what costs. A figure is the median in microseconds.
"""

import importlib.util
import os
import sys
import tempfile
from pathlib import Path

FIELDS = (5, 10, 20)

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
    path.write_text(SOURCE.format(parameters=parameters, names=", ".join(names), sum=" + ".join(names), count=count))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module, getattr(module, f"program_{count}")


def row(folder, count):
    import gt4py.next as gtx
    import numpy as np
    from gt4py.next.program_processors.runners import dace as backends
    from timing import medians, repeated

    module, program = program_of(folder, count)
    domain = gtx.domain({module.I: 1, module.J: 1})
    fields = [gtx.as_field(domain, np.ones((1, 1))) for _ in range(count)]
    program = program.with_backend(backends.run_dace_cpu)
    program = program.compile(offset_provider={})

    def call():
        program(*fields[:-1], out=fields[-1], offset_provider={})

    call()
    assert fields[-1].asnumpy()[0, 0] == count - 1
    return str(count), medians({"GT4Py": repeated(call)})


def main():
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
        show(f"GT4Py programs with {how}, microseconds a call:", dict(row(Path(folder), count) for count in FIELDS))


if __name__ == "__main__":
    main()
