"""Writes the CUDA program that DaCe generates for the heat step of ``heat.cu``, and its headers, to a folder:
``python dace_heat.py FOLDER``. Its arguments are those of ``heat.json``.

Needs DaCe (2.0.0b1 is tested), no GPU and no nvcc. ``gpu/program`` compiles it on a machine with both.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import dace

N, M = (dace.symbol(name, dace.int32) for name in "NM")


@dace.program
def heat(t: dace.float64[N, M], u: dace.float64[N, M], dt: dace.float64):
    for i, j in dace.map[1 : N - 1, 1 : M - 1]:
        u[i, j] = t[i, j] + dt * ((t[i - 1, j] + t[i + 1, j]) + (t[i, j - 1] + t[i, j + 1]) - 4.0 * t[i, j])
    for i, j in dace.map[1 : N - 1, 1 : M - 1]:
        t[i, j] = u[i, j]


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    dace.Config.set("compiler", "cuda", "backend", value="cuda")
    sdfg = heat.to_sdfg()
    for name in ("t", "u"):
        sdfg.arrays[name].storage = dace.StorageType.GPU_Global
    sdfg.apply_gpu_transformations()
    # Scratch memory of the program's state.
    sdfg.arrays["u"].transient = True
    sdfg.arrays["u"].lifetime = dace.AllocationLifetime.Persistent
    for state in sdfg.states():
        # The program does not wait for the GPU.
        state.nosync = True
    signature, init = sdfg.signature(with_types=False), sdfg.init_signature()
    if (signature, init) != ("t, M, N, dt", "int M, int N"):
        sys.exit(f"the program takes {signature}, its init {init}: not what heat.json says")
    for code in sdfg.generate_code():
        # The main program of DaCe's own build is not needed.
        if code.linkable and code.language in ("cpp", "cu"):
            (folder / f"{code.name}.{code.language}").write_text(code.clean_code.replace('#include "../../include/hash.h"', ""))
    # The headers name each other by these paths.
    for part in ("runtime/include", "external/moodycamel"):
        shutil.copytree(Path(dace.__file__).parent / part, folder / part, dirs_exist_ok=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as cache:
        dace.Config.set("default_build_folder", value=cache)
        main(Path(sys.argv[1]))
