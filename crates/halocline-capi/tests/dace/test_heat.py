"""``examples/dace``: tasklets of DaCe programs that exchange halos through the C interface.

HALOCLINE_PREFIX names the folder that ``tools/install`` has filled.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[4] / "examples/dace"
PREFIX = Path(os.environ["HALOCLINE_PREFIX"])


def run(folder, *command):
    """Runs a command in a folder of its own, where DaCe puts what it builds."""
    as_root = {f"OMPI_ALLOW_RUN_AS_ROOT{confirm}": "1" for confirm in ("", "_CONFIRM")}
    environment = {**os.environ, **as_root, "PYTHONPATH": str(EXAMPLE)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500)


def succeeds(folder, *command):
    result = run(folder, *command)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_the_program_equals_numpy_alone(tmp_path):
    printed = succeeds(tmp_path, sys.executable, EXAMPLE / "heat.py")
    assert printed == "200 steps on 1 ranks, equal to NumPy alone\n"


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_program_on_launched_ranks_equals_numpy_alone(tmp_path, ranks):
    launch = [PREFIX / "bin/halocline", "launch", "-n", str(ranks), "--no-prefix", "--"]
    printed = succeeds(tmp_path, *launch, sys.executable, EXAMPLE / "heat.py")
    assert printed == f"200 steps on {ranks} ranks, equal to NumPy alone\n"


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun")
def test_the_program_under_mpirun_equals_numpy_alone(tmp_path):
    launch = ["mpirun", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1", "-n", "2"]
    printed = succeeds(tmp_path, *launch, sys.executable, EXAMPLE / "heat.py")
    assert printed == "200 steps on 2 ranks, equal to NumPy alone\n"


WRONG_HANDLE = """
import heat, numpy as np
program = heat.sdfg_of_heat(heat.BEGIN_ON_HOST, heat.END_ON_HOST).compile()
program(t=np.zeros((8, 8)), u=np.zeros((8, 8)), halo=np.uint64(7), steps=np.int32(1), NX=8, NY=8)
"""


def test_a_call_that_fails_ends_the_program_with_its_message(tmp_path):
    result = run(tmp_path, sys.executable, "-c", WRONG_HANDLE)
    assert result.returncode == -signal.SIGABRT, result.stdout + result.stderr
    assert "the halocline_halo_exchange 0x7 was not made by this library" in result.stderr


def test_on_gpus_the_tasklets_call_the_library_with_the_stream_of_the_kernels(tmp_path):
    succeeds(tmp_path, sys.executable, EXAMPLE / "heat.py", "--generate-for-gpus", "code")
    host = (tmp_path / "code/heat.cpp").read_text()
    kernels = (tmp_path / "code/heat_cuda.cu").read_text()
    step = host[host.index("for (_ = 0;") : host.index("DACE_EXPORTED void __program_heat")]
    # In this order: begin, interior, wait, boundary.
    order = re.findall(r"halocline_schedule_exchange|halocline_schedule_wait|__dace_runkernel", step)
    assert order[:4] == ["halocline_schedule_exchange", "__dace_runkernel", "halocline_schedule_wait", "__dace_runkernel"]
    stream = "__state->gpu_context->streams[0]"
    assert step.count(f"cudaStream_t __dace_current_stream = {stream};") == 2
    assert step.count("halocline::stream::cuda(0, __dace_current_stream)") == 2
    launches = re.findall(r"cudaLaunchKernel\(.*\)", kernels)
    assert len(launches) == 6 and all(launch.endswith(f"0, {stream})") for launch in launches), launches
    assert "Synchronize" not in step, "the host waits for the GPU"
