"""A process of ``test_cached.py``: ``cached_child.py FOLDER WAY``, where ``WAY`` is ``cached``, ``operator`` (cached, the operator
called itself), ``gt4py`` or ``stop`` (in the lowering).

It imports ``diffusion.py`` of the folder, waits for a line, runs the program and prints its results as hexadecimal digits. A file in ``marks``
notes each lowering."""

import os
import signal
import sys
from pathlib import Path

folder, way = Path(sys.argv[1]), sys.argv[2]
os.environ["GT4PY_BUILD_CACHE_DIR"] = str(folder)
os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(folder))

import gt4py.next as gtx  # noqa: E402
import numpy as np  # noqa: E402
from diffusion import I, J, diffuse, diffused  # noqa: E402
from gt4py.next.program_processors.runners import dace as backends  # noqa: E402
from gt4py.next.program_processors.runners.dace.workflow.translation import DaCeTranslator  # noqa: E402

if way != "gt4py":
    from halocline import program

    program.cache_gt4py(cache=folder / "cache")

original = DaCeTranslator.__call__


def lower(self, inp):
    (folder / "marks" / str(os.getpid())).touch()
    if way == "stop":
        print("lowers", flush=True)
        signal.pause()
    return original(self, inp)


DaCeTranslator.__call__ = lower

random = np.random.default_rng(7)
t = gtx.as_field(gtx.domain({I: 8, J: 7}), random.random((8, 7)))
result = gtx.zeros(gtx.domain({I: (1, 7), J: (1, 6)}), dtype=np.float64)
called = diffuse.with_backend(backends.run_dace_cpu)
print("ready", flush=True)
sys.stdin.readline()
if way == "operator":
    diffused.with_backend(backends.run_dace_cpu)(t, 0.1, out=result, offset_provider={})
else:
    called(t, 0.1, result, offset_provider={})
print(result.asnumpy().tobytes().hex())
