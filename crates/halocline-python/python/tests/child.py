"""Runs programs of their own, for what would end or fork the process of the tests."""

import os
import subprocess
import sys
import textwrap


PROLOGUE = """
import numpy as np
import halocline as hc

def bound(comm):
    pattern = hc.RegularGrid((64,), periodic=(True,)).decompose(comm).pattern(2)
    array = hc.zeros(pattern.shape, comm=comm)
    return hc.HaloExchange(comm, [(pattern, array)])
"""


def mpi_environment():
    """In which a process alone may use MPI."""
    return {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def script(body):
    return [sys.executable, "-X", "faulthandler", "-c", PROLOGUE + textwrap.dedent(body)]


def run(body, timeout=60, **options):
    return subprocess.run(script(body), capture_output=True, text=True, timeout=timeout, **options)


def ends_well(body, says="", **options):
    done = run(body, **options)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    assert done.stdout.strip() == says and not done.stderr, (done.stdout, done.stderr)
