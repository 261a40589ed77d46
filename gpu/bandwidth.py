"""Bandwidth of MPI alone: messages of 64 MB both ways at once between two ranks, in memory of the host (mpi4py, NumPy)."""

import time

import numpy
from mpi4py import MPI

BYTES, PARTS = 64 << 20, 64
comm = MPI.COMM_WORLD
peer = 1 - comm.rank
out, into = numpy.ones(BYTES, dtype=numpy.uint8), numpy.zeros(BYTES, dtype=numpy.uint8)


def median(parts):
    step, times = BYTES // parts, []
    for _ in range(15):
        comm.Barrier()
        begin = time.perf_counter()
        requests = [comm.Irecv(into[at : at + step], peer) for at in range(0, BYTES, step)]
        requests += [comm.Isend(out[at : at + step], peer) for at in range(0, BYTES, step)]
        MPI.Request.Waitall(requests)
        times.append(time.perf_counter() - begin)
    return sorted(times)[len(times) // 2]


for parts in (1, PARTS):
    time_of = median(parts)
    if comm.rank == 0:
        print(f"MPI alone, 64 MB both ways in {parts} messages each: {time_of * 1e6:.0f} us ({BYTES / time_of / 1e9:.1f} GB/s a direction)")
