"""MPI is finalised before the objects are used and dropped: an error, and no harm."""

import os

import numpy as np
from mpi4py import MPI

import halocline as hc

comm = hc.Communicator(MPI.COMM_WORLD)
pattern = hc.RegularGrid((16,), periodic=(True,)).decompose(comm).pattern(1)
halo = hc.HaloExchange(comm, [(pattern, np.zeros(pattern.shape))])
halo.exchange()
MPI.Finalize()
try:
    hc.Communicator(0x44000000)
except hc.MpiError as error:
    assert "final" in str(error).lower(), error
else:
    raise AssertionError("a communicator after MPI_Finalize")
if os.environ.get("HALOCLINE_NODE_AWARE") == "off":
    for use in (comm.barrier, halo.exchange):
        try:
            use()
        except hc.HaloError:
            pass
        else:
            raise AssertionError(f"{use} after MPI_Finalize")
if comm.rank == 0:
    print("finalised")
