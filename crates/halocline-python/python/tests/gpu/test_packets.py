"""Packets that arrive in memory of GPUs: of the library, and of allocators of CuPy and RMM."""

import asyncio

import numpy as np
import pytest

import halocline as hc

SIZES = [1, 1000, 16_385, 300_000, 5_000_001]


class Resource:
    """A memory resource as those of RMM, of ``cudaMalloc``."""

    def __init__(self, cupy, device):
        self.cupy, self.device, self.blocks = cupy, device, {}

    def allocate(self, size, stream=None):
        with self.cupy.cuda.Device(self.device):
            block = self.cupy.cuda.Memory(size)
        self.blocks[block.ptr] = block
        return block.ptr

    def deallocate(self, address, size, stream=None):
        assert self.blocks.pop(address).size == size


class InUse(Resource):
    """A stream still writes the memory that it gives."""

    def __init__(self, mine):
        super().__init__(mine.cupy, mine.device)
        self.mine, self.stream = mine, mine.cupy.cuda.Stream(non_blocking=True)

    def allocate(self, size, stream=None):
        address = super().allocate(size)
        with self.cupy.cuda.Device(self.device), self.stream:
            self.mine.spin(20)
            self.cupy.cuda.runtime.memsetAsync(address, 99, size, self.stream.ptr)
        return address


def pool(mine):
    of_cupy = mine.cupy.cuda.MemoryPool()

    def allocate(size):
        with mine.here():
            return of_cupy.malloc(size)

    return allocate


MEMORIES = {
    "the library's": lambda comm, mine: hc.DeviceMemory(comm, mine.device),
    "a pool of CuPy": lambda comm, mine: hc.ForeignMemory(comm, pool(mine), device=mine.device),
    "a resource as of RMM": lambda comm, mine: hc.ForeignMemory(comm, Resource(mine.cupy, mine.device), device=mine.device),
}


def written(mine, stream, size, value):
    """A payload that a stream still writes."""
    with stream:
        values = mine.cupy.full(size, value - 1, "u1")
        mine.spin(2)
        values += 1
    return values


async def awaited(round):
    return await round


@pytest.mark.parametrize("name", MEMORIES)
def test_payloads_arrive_in_memory_of_the_gpu(together, cupy_engine, name):
    def rank(comm):
        mine = cupy_engine(comm.rank)
        left = (comm.rank - 1) % comm.size
        with mine.here():
            memory = MEMORIES[name](comm, mine)
            ring = comm.neighbor_exchange(periodic=True, memory=memory)
            stream = mine.cupy.cuda.Stream(non_blocking=True)
            for turn, size in enumerate(SIZES * 2):
                values = written(mine, stream, size, 10 * comm.rank + turn + 1)
                of_gpu = ring.start(right=hc.Packet(b"gpu", values, stream=stream))
                of_host = ring.start(right=np.full(size, 10 * comm.rank + turn + 2, "u1"), id=1)
                rounds = [of_gpu, of_host]
                came = [asyncio.run(awaited(round)) if turn % 2 else round.wait() for round in rounds]
                for more, (packet, _) in enumerate(came, 1):
                    assert packet.payload.device == mine.device and packet.payload.nbytes == size
                    array = mine.cupy.asarray(packet.payload)
                    assert array.data.ptr == packet.payload.__cuda_array_interface__["data"][0]
                    np.testing.assert_array_equal(mine.host(array), np.full(size, 10 * left + turn + more, "u1"))
                with pytest.raises(AttributeError, match="the payload is in GPU memory; use cupy.asarray"):
                    packet.payload.__array_interface__
                with pytest.raises(hc.HaloTypeError, match="the payload is in GPU memory; copy it with cupy.asnumpy"):
                    bytes(packet.payload)
                # It can be sent on.
                again, _ = ring.exchange(right=packet.payload)
                assert again.payload.device == mine.device
                mine.synchronise()
                del array, packet, came, again, of_gpu, of_host, rounds
            counts = memory.statistics
            assert counts["kind"] == "device" and counts["allocations"] >= 3 * len(SIZES)
            return f"received in memory of {name}: {counts['allocations']} payloads, at most {counts['peak']} bytes at once"

    together(rank)


def test_a_sparse_alltoall_receives_in_memory_of_the_gpu(together, cupy_engine):
    def rank(comm):
        mine = cupy_engine(comm.rank)
        with mine.here():
            stream = mine.cupy.cuda.Stream(non_blocking=True)
            others = [other for other in range(comm.size) if other != comm.rank]
            exchange = hc.SparseAlltoall(comm, others, sources=others, memory=hc.DeviceMemory(comm, mine.device))
            for size in SIZES:
                for other in others:
                    exchange.insert(other, hc.Packet(payload=written(mine, stream, size, comm.rank + 1), stream=stream))
            exchange.finish()
            exchange.wait()
            for other in others:
                packets = exchange.extract(other)
                assert [packet.payload.nbytes for packet in packets] == SIZES
                for packet in packets:
                    assert packet.payload.device == mine.device
                    assert (mine.cupy.asarray(packet.payload) == other + 1).all()
            assert exchange.statistics["received"]["device"] == len(others) * sum(SIZES)
            mine.synchronise()

    together(rank)


def test_memory_that_a_stream_still_uses_is_written_afterwards(together, cupy_engine):
    def rank(comm):
        mine = cupy_engine(comm.rank)
        with mine.here():
            resource = InUse(mine)
            memory = hc.ForeignMemory(comm, resource, device=mine.device, stream=resource.stream)
            ring = comm.neighbor_exchange(periodic=True, memory=memory)
            for size in SIZES:
                for payload in (np.full(size, 7, "u1"), mine.cupy.full(size, 7, "u1")):
                    packet, _ = ring.exchange(right=payload)
                    assert (mine.cupy.asarray(packet.payload) == 7).all()
                    mine.synchronise()

    together(rank)


def test_a_limit_on_memory_of_the_gpu_spills_to_the_host(together, cupy_engine):
    def rank(comm):
        mine = cupy_engine(comm.rank)
        if comm.size == 1:
            return
        with mine.here():
            memory = hc.DeviceMemory(comm, mine.device, limit=1000, spill=True)
            ring = comm.neighbor_exchange(periodic=True, memory=memory)
            for size, device in ((1000, mine.device), (300_000, None)):
                packet, _ = ring.exchange(right=mine.cupy.full(size, 7, "u1"))
                assert packet.payload.device == device
                array = np.asarray(packet.payload) if device is None else mine.host(mine.cupy.asarray(packet.payload))
                assert (array == 7).all()
                del packet, array
            assert memory.statistics["spilled"] == 300_000

    together(rank)


def test_memory_of_another_place_than_said_is_refused(together, cupy_engine):
    def rank(comm):
        mine = cupy_engine(comm.rank)
        if comm.size == 1:
            return
        with mine.here():
            line = comm.neighbor_exchange(memory=Resource(mine.cupy, mine.device))
            text = rf"it returned memory of GPU \d: say so, halocline.ForeignMemory\(comm, allocator, device=\d\)"
            with pytest.raises(hc.PacketExchangeError, match=text):
                while True:
                    line.exchange(**{"right" if comm.rank == 0 else "left": b"x" * 1000} if comm.rank < 2 else {})

    together(rank)
