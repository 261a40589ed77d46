"""Programs written for GHEX, and what they need to run."""

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
LAUNCHER = os.environ.get("HALOCLINE_TEST_LAUNCHER") or shutil.which("mpirun") or shutil.which("mpiexec")
RANKS = [int(ranks) for ranks in os.environ.get("HALOCLINE_TEST_RANKS", "1,2,4,8").split(",")]


def pytest_configure(config):
    # The programs import each other as scripts do.
    sys.path.insert(0, str(PROGRAMS))


@functools.cache
def python_with(*modules):
    """A Python that has these: this one, or that of ``HALOCLINE_GHEX_PYTHON``."""
    for python in filter(None, [sys.executable, os.environ.get("HALOCLINE_GHEX_PYTHON")]):
        code = f"import {', '.join(modules)}"
        if subprocess.run([python, "-c", code], capture_output=True).returncode == 0:
            return python
    return None


@pytest.fixture(scope="session")
def mpi_python():
    """Starts Python under MPI, and returns the lines of the ranks."""
    if LAUNCHER is None:
        pytest.skip("there is no mpirun here")

    def start(python, ranks, *arguments):
        command = [LAUNCHER, "-n", str(ranks), python, *map(str, arguments)]
        environment = {
            **os.environ,
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "OMPI_MCA_mpi_yield_when_idle": "1",
        }
        ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return [line for line in ended.stdout.splitlines() if line.startswith("rank ")]

    return start


@pytest.fixture(scope="session")
def mpi4py():
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed")


@pytest.fixture(scope="session")
def ghex_python():
    python = python_with("ghex.context", "mpi4py", "numpy")
    if python is None:
        pytest.skip("GHEX is not installed here; tools/test-python installs it, and HALOCLINE_GHEX_PYTHON names a Python that has it")
    return python
