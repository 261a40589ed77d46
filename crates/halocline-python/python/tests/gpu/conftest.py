"""Tests of fields in the memory of GPUs, by two ranks: threads of this process, or those of a job (``HALOCLINE_TEST_SIZE``)."""

import faulthandler
import importlib.util
import os
import sys
from pathlib import Path

import pytest

import halocline as hc

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]
import libraries  # noqa: E402

RANKS = int(os.environ.get("HALOCLINE_TEST_SIZE", 2))
TIMEOUT = 60


@pytest.fixture(autouse=True)
def in_time():
    """Nothing hangs: the stacks are shown, and the process ends."""
    faulthandler.dump_traceback_later(TIMEOUT, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="session")
def job():
    if not libraries.IS_JOB:
        return None
    if os.environ.get("HALOCLINE_TEST_COMM") == "mpi4py":
        from mpi4py import MPI

        return hc.Communicator(MPI.COMM_WORLD)
    return hc.init()


@pytest.fixture
def together(job):
    """Calls a function as every rank, and shows what it returns, in lines that begin with "= "."""

    def call(rank):
        if job is None:
            results = hc.run_threads(RANKS, lambda comm: rank(in_step(comm)))
        else:
            results = [of_job(job, rank)]
        for result in results:
            if result is not None:
                print(f"\n= {result}")

    return call


def in_step(comm):
    comm = comm.with_deadline(15)
    comm.barrier()
    return comm


def of_job(job, rank):
    """A test that fails on one rank fails on all, and leaves nothing behind that the next one could meet."""
    result, error = None, None
    try:
        result = rank(in_step(job.duplicate()))
    except Exception as raised:
        error = raised
    texts = job.with_deadline(30).all_gather(str(error or "").encode())
    if error is not None:
        raise error
    for number, text in enumerate(texts):
        assert not text, f"rank {number}: {text.decode()}"
    return result


@pytest.fixture(params=libraries.ENGINES)
def engine(request):
    return _engine(request.param)


@pytest.fixture(params=["numpy", "cupy", "torch"])
def main_engine(request):
    return _engine(request.param)


@pytest.fixture
def cupy_engine():
    return _engine("cupy")


def _engine(name):
    if name == "numpy":
        if libraries.gpus():
            pytest.skip("the host's arrays are tested where there is no GPU")
    elif not libraries.gpus():
        pytest.skip("there is no GPU, or no CuPy")
    elif importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    return libraries.ENGINES[name]


@pytest.fixture(scope="session", autouse=True)
def kernels_are_there():
    """Each library has loaded its kernels on each device before streams wait for anything."""
    for name in ("cupy", "torch"):
        if libraries.gpus() and importlib.util.find_spec(name) is not None:
            for device in range(libraries.gpus()):
                libraries.ENGINES[name](device)
