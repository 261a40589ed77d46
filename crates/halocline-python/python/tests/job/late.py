"""Two ranks of MPI. One waits for the other to join, is interrupted, and joins again once the other is there: that takes up what it left."""

import signal
import time

import numpy as np
from mpi4py import MPI

import halocline as hc

world = MPI.COMM_WORLD
interrupts = []


def interrupt(*_):
    interrupts.append(time.monotonic())
    raise KeyboardInterrupt


signal.signal(signal.SIGALRM, interrupt)


def given():
    return hc.Communicator(world)


def found():
    return hc.init("mpi")


# Both are of the same ranks, so that either goes on with what the other has left. What init() has joined once, it gives again: last.
for first, join in ((given, given), (found, given), (given, found)):
    for rounds in range(2):
        if world.rank == 1:
            # It comes only after that: without an interruption the other waits for good.
            world.recv(source=0)
            continue
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        try:
            (first if rounds == 0 else join)()
        except KeyboardInterrupt:
            took = time.monotonic() - interrupts.pop()
        else:
            raise SystemExit("a join without the other rank has ended")
        if took > 1:
            raise SystemExit(f"the wait went on for {took:.1f} s after the signal")
        world.send(rounds, dest=1)
    comm = join()
    grid = hc.RegularGrid((16,), periodic=(True,)).decompose(comm)
    pattern = grid.pattern(halo=1)
    (domain,) = pattern.domains
    array = np.full(pattern.shape, comm.rank, "f8")
    hc.HaloExchange(comm, [(pattern, array)]).exchange()
    assert array[0] == array[-1] == 1 - comm.rank
