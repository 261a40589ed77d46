"""What the tests share. Under ``halocline launch`` or an MPI launcher only those run that are made for a job: ``test_job.py``."""

import os
import shutil
import tempfile

import pytest
from counted import pytest_terminal_summary  # noqa: F401
from driver import with_driver  # noqa: F401

import halocline as hc


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """A folder of its own for each rank: of one that they share each tidies up at its end what another just has, and fails."""
    if config.option.basetemp is None:
        config.option.basetemp = tempfile.mkdtemp(prefix="halocline-pytest-")
        config.add_cleanup(lambda: shutil.rmtree(config.option.basetemp, ignore_errors=True))


@pytest.fixture(params=[1, 2, 3, 5])
def ranks(request):
    return request.param


@pytest.fixture(scope="session")
def comm():
    """This process, alone or a rank of its job."""
    kind = os.environ.get("HALOCLINE_TEST_COMM", "init")
    if kind == "mpi4py":
        from mpi4py import MPI

        return hc.Communicator(MPI.COMM_WORLD)
    return hc.init()
