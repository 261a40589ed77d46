"""What the tests share. Under ``halocline launch`` or an MPI launcher only those run that are made for a job: ``test_job.py``."""

import os

import pytest
from driver import with_driver  # noqa: F401

import halocline as hc


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
