"""MPI is finalised before the objects are used and dropped: what needs it raises ``MpiError``, and nothing is harmed."""

import asyncio
import os

import numpy as np
from mpi4py import MPI

import halocline as hc
from halocline.compat.ghex import unstructured
from halocline.compat.ghex.context import make_context


async def awaited():
    await halo.exchange_async()


comm = hc.Communicator(MPI.COMM_WORLD)
grid = hc.RegularGrid((16,), periodic=(True,)).decompose(comm)
pattern = grid.pattern(halo=1)
arrays = [np.zeros(pattern.shape) for _ in range(4)]
halo, begun, left = (hc.HaloExchange(comm, [(pattern, array)]) for array in arrays[:3])
links = hc.PatternLinks(comm, [pattern])
context = make_context(comm)
domain = unstructured.DomainDescriptor(comm.rank, [comm.rank, (comm.rank + 1) % comm.size], [1])
of_ghex = unstructured.make_pattern(context, unstructured.HaloGenerator(), [domain])
buffer = of_ghex(unstructured.make_field_descriptor(domain, np.zeros(2)))
communication = unstructured.make_communication_object(context)
communication.exchange(buffer).wait()
halo.exchange()
links.exchange([(pattern, arrays[3])])
begun.exchange()
# The other rank does not begin it: it is in flight when MPI comes to its end, and so is one that nobody waits for.
if comm.rank == 0:
    pending = begun.exchange(wait=False)
    left.exchange(wait=False)
duplicate = comm.duplicate()
MPI.Finalize()

uses = [lambda: hc.Communicator(0x44000000), lambda: make_context(MPI.COMM_WORLD)]
if os.environ.get("HALOCLINE_NODE_AWARE") == "off" and comm.size > 1:
    uses += [
        comm.barrier,
        lambda: comm.all_reduce([1]),
        lambda: grid.pattern(halo=2),
        lambda: hc.HaloExchange(comm, [(pattern, arrays[0])]),
        lambda: hc.PatternLinks(comm, [pattern]),
        halo.exchange,
        # A failure is for good.
        halo.exchange,
        lambda: halo.exchange(wait=False),
        lambda: asyncio.run(awaited()),
        lambda: links.exchange([(pattern, arrays[3])]),
        lambda: communication.exchange(buffer).wait(),
        lambda: unstructured.make_pattern(context, unstructured.HaloGenerator(), [domain]),
    ]
    if comm.rank == 0:
        uses += [pending.wait, pending.is_ready]
for number, use in enumerate(uses):
    try:
        use()
    except hc.MpiError as error:
        assert "final" in str(error).lower(), error
    else:
        raise AssertionError(f"use {number} after MPI_Finalize")
comm.close()
if comm.rank == 0:
    print("finalised")
