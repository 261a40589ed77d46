"""MPI is finalised before the objects are used or dropped: an error, and no harm."""

import sys

import numpy as np
from mpi4py import MPI

import halocline as hc

comm = hc.Communicator(MPI.COMM_WORLD)
pattern = hc.RegularGrid((16,), periodic=(True,)).decompose(comm).pattern(1)
halo = hc.HaloExchange(comm, [(pattern, np.zeros(pattern.shape))], link="message" if comm.size > 1 else "auto")
halo.exchange()
rank = comm.rank
MPI.Finalize()
try:
    hc.Communicator(0x44000000)
except hc.MpiError as error:
    assert "finalised" in str(error) or "MPI_Finalize" in str(error), error
else:
    sys.exit("a communicator after MPI_Finalize")
if rank == 0:
    print("finalised")
