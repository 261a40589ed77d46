"""Time of a round of 4 KiB each way between two processes: a neighbour exchange, and Sendrecv of mpi4py; medians, in microseconds.

mpirun -n 2 python bench/python/neighbors.py            # both, in turn
python -m halocline launch -n 2 -- python bench/python/neighbors.py      # over shared memory alone
"""

import os
import statistics
import time

import numpy as np

import halocline as hc

world = None
if "OMPI_COMM_WORLD_SIZE" in os.environ or "PMI_RANK" in os.environ:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
comm = hc.init() if world is None else hc.Communicator(world)
other, side = 1 - comm.rank, "right" if comm.rank == 0 else "left"
sent, received = np.zeros(4096, "u1"), np.zeros(4096, "u1")
line = comm.neighbor_exchange()
packet = hc.Packet(b"m" * 64, sent)
calls = {"line.exchange": lambda: line.exchange(**{side: packet})}
if world is not None:
    calls["mpi4py Sendrecv"] = lambda: world.Sendrecv(sent, other, 0, received, other, 0)
times = {name: [] for name in calls}
for _ in range(31):
    for name, call in calls.items():
        start = time.perf_counter()
        for _ in range(300):
            call()
        times[name].append((time.perf_counter() - start) / 300 * 1e6)
if comm.rank == 0:
    for name, taken in times.items():
        print(f"{name:>16}: {statistics.median(taken):8.2f} us on {comm.transport}")
