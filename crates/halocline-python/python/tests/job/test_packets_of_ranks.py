"""Packets between the ranks of a job: run by every rank, alone, under ``halocline launch`` or an MPI launcher."""

import asyncio
import ctypes
import multiprocessing
import os

import numpy as np
import pytest

import halocline as hc

SIZES = [0, 1, 4096, 65536, 65537, 5_000_001]


def payload(rank, size):
    return np.full(size, rank + 1, "u1")


def check(packet, rank, size):
    assert packet.metadata == b"%d" % rank
    np.testing.assert_array_equal(np.asarray(packet.payload), payload(rank, size))


@pytest.mark.parametrize("periodic", [False, True])
def test_rounds(comm, periodic):
    line = comm.neighbor_exchange(periodic)
    has_left, has_right = (rank is not None or periodic for rank in line.neighbors)
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    for turn in range(3):
        for size in SIZES:
            packet = hc.Packet(b"%d" % comm.rank, payload(comm.rank, size))
            round = line.start(packet if has_left else None, packet if has_right else None, id=turn)
            from_left, from_right = asyncio.run(awaited(round)) if turn == 1 else round.wait()
            assert (from_left is not None, from_right is not None) == (has_left, has_right)
            if has_left:
                check(from_left, left, size)
            if has_right:
                check(from_right, right, size)


async def awaited(round):
    return await round


def test_operations_in_opposite_orders(comm):
    line = comm.neighbor_exchange(periodic=True)
    ids = [2, 5, 9] if comm.rank % 2 else [9, 5, 2]
    rounds = {id: line.start(right=b"%d" % id, id=id) for id in ids}
    for id, round in rounds.items():
        assert bytes(round.wait()[0].payload) == b"%d" % id


def test_a_session(comm):
    line = comm.neighbor_exchange()
    got = []
    with line.session(1) as session:
        # Nothing goes to the left, five packets go to the right.
        for turn in range(6):
            right = "last" if turn == 5 or comm.rank + 1 == comm.size else b"%d" % turn
            came, _ = session.round(left="last" if turn == 0 else None, right=right if turn == 0 or comm.rank + 1 < comm.size else None)
            if came not in ("last", None):
                got.append(int(bytes(came.payload)))
        assert came == "last"
    assert got == ([] if comm.rank == 0 else [0, 1, 2, 3, 4])


@pytest.mark.parametrize("known", [True, False])
def test_a_sparse_alltoall(comm, known):
    to, source = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for size in SIZES:
        sends = {to: [hc.Packet(b"%d" % comm.rank, payload(comm.rank, size))] * 3} if comm.size > 1 else {}
        sources = ([source] if comm.size > 1 else []) if known else None
        came = comm.sparse_alltoall(sends, sources=sources)
        assert {source: len(packets) for source, packets in came.items()} == ({source: 3} if comm.size > 1 else {})
        for packets in came.values():
            for packet in packets:
                check(packet, source, size)


class Resource:
    def __init__(self):
        self.blocks = {}

    def allocate(self, size):
        block = (ctypes.c_char * size)()
        self.blocks[ctypes.addressof(block)] = block
        return ctypes.addressof(block)

    def deallocate(self, address, size):
        del self.blocks[address]


def test_memory_of_the_program(comm):
    resource = Resource()
    line = comm.neighbor_exchange(periodic=True, memory=resource)
    for size in SIZES:
        # It comes while this rank is in other calls.
        round = line.start(right=payload(comm.rank, size))
        comm.barrier()
        view = np.asarray(round.wait()[0].payload)
        np.testing.assert_array_equal(view, payload((comm.rank - 1) % comm.size, size))
        assert size == 0 or comm.size == 1 or view.ctypes.data in resource.blocks
        del round, view
    line.exchange()
    line.exchange()
    assert not resource.blocks


def test_a_limit_that_spills(comm):
    memory = hc.HostMemory(comm, limit=1000, spill=True)
    line = comm.neighbor_exchange(periodic=True, memory=memory)
    came, _ = line.exchange(right=payload(comm.rank, 100_000))
    np.testing.assert_array_equal(np.asarray(came.payload), payload((comm.rank - 1) % comm.size, 100_000))
    assert memory.statistics["spilled"] == (100_000 if comm.size > 1 else 0)


def double(values):
    return 2 * values


@pytest.mark.skipif(os.environ.get("HALOCLINE_TEST_TRANSPORT") == "mpi", reason="a process of MPI does not start others")
def test_beside_a_pool_of_processes(comm):
    """As dask or joblib do: each rank has workers of its own, which give it what it sends."""
    line = comm.neighbor_exchange(periodic=True)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        values = pool.apply(double, (np.arange(5) + comm.rank,))
        came, _ = line.exchange(right=values)
        got = np.asarray(came.payload).view(values.dtype)
        np.testing.assert_array_equal(pool.apply(double, (got,)), 4 * (np.arange(5) + (comm.rank - 1) % comm.size))
