"""Where payloads arrive: limits, spills, allocators of the program."""

import asyncio
import ctypes
import gc
import textwrap
import threading

import numpy as np
import pytest

import halocline as hc

SIZE = 200_000


class Resource:
    """A memory resource as those of RMM."""

    def __init__(self):
        self.blocks = {}
        self.threads = set()
        self.fails = None
        self.freed = 0

    def allocate(self, size, stream=None):
        self.threads.add(threading.get_ident())
        if self.fails is not None:
            raise self.fails
        block = (ctypes.c_char * size)()
        self.blocks[ctypes.addressof(block)] = block
        return ctypes.addressof(block)

    def deallocate(self, address, size, stream=None):
        self.threads.add(threading.get_ident())
        assert ctypes.sizeof(self.blocks.pop(address)) == size
        self.freed += 1


class Pointer:
    """As CuPy's memory pointers. Counted by lists: without the GIL a sum of two threads would lose some."""

    made = []
    gone = []

    def __init__(self, size):
        self.block = (ctypes.c_char * size)()
        self.ptr = ctypes.addressof(self.block)
        Pointer.made.append(size)

    def __del__(self):
        Pointer.gone.append(1)


def side(comm):
    return "right" if comm.rank == 0 else "left"


def sent(comm):
    return {side(comm): np.full(SIZE, comm.rank, "u1")}


def check(comm, came):
    np.testing.assert_array_equal(np.asarray(came[1 - comm.rank].payload), np.full(SIZE, 1 - comm.rank))


def test_host_memory_counts():
    def run(comm):
        memory = hc.HostMemory(comm)
        line = comm.neighbor_exchange(memory=memory)
        first = line.exchange(**sent(comm))
        second = line.exchange(**sent(comm))
        counts = memory.statistics
        assert counts == {"kind": "host", "in_use": 2 * SIZE, "peak": 2 * SIZE, "allocations": 2, "spilled": 0}
        del first, second
        assert memory.statistics["in_use"] == 0
        memory.trim()
        check(comm, line.exchange(**sent(comm)))

    hc.run_threads(2, run)


def test_a_limit_below_the_payload_is_an_error_that_names_it():
    def run(comm):
        line = comm.neighbor_exchange(memory=hc.HostMemory(comm, limit=1000))
        with pytest.raises((hc.MemoryShortageError, hc.PacketExchangeError), match="200000 bytes of host memory .* at most 1000"):
            line.exchange(**sent(comm))

    hc.run_threads(2, run)
    assert issubclass(hc.MemoryShortageError, MemoryError)


def test_a_limit_below_the_payload_spills():
    def run(comm):
        memory = hc.HostMemory(comm, limit=1000, spill=True)
        line = comm.neighbor_exchange(memory=memory)
        came = line.exchange(**sent(comm))
        check(comm, came)
        assert memory.statistics["spilled"] == SIZE and memory.statistics["in_use"] == 0

    hc.run_threads(2, run)


def test_a_receiver_waits_for_memory_to_be_given_back():
    def run(comm):
        memory = hc.HostMemory(comm, limit=SIZE, patience=60)
        line = comm.neighbor_exchange(memory=memory)
        held = line.exchange(**sent(comm))
        round = line.start(**sent(comm))
        assert not round.is_ready()
        del held
        check(comm, round.wait())
        assert memory.statistics["peak"] == SIZE

    hc.run_threads(2, run)


@pytest.mark.parametrize("payload", [4096, SIZE])
@pytest.mark.parametrize("wrapped", [True, False])
def test_a_resource_of_the_program_allocates_in_calls_from_python(wrapped, payload):
    of_ranks = set()

    def run(comm):
        of_ranks.add(threading.get_ident())
        resource = Resource()
        memory = hc.ForeignMemory(comm, resource) if wrapped else resource
        line = comm.neighbor_exchange(memory=memory)
        data = {side(comm): np.full(payload, comm.rank, "u1")}
        threads = set()

        async def awaited(round):
            threads.add(threading.get_ident())
            return await round

        for turn in range(40):
            round = line.start(**data)
            if turn % 4 == 0:
                # The payload arrives before the wait.
                comm.barrier()
            came = [round.wait, lambda: asyncio.run(awaited(round))][turn % 2]()
            view = np.asarray(came[1 - comm.rank].payload)
            assert view.ctypes.data in resource.blocks
            np.testing.assert_array_equal(view, np.full(payload, 1 - comm.rank))
            del came, view, round
        gc.collect()
        line.exchange()
        line.exchange()
        assert not resource.blocks and resource.freed == 40
        # Never a thread of the library. A call of the other rank may free memory.
        assert resource.threads <= of_ranks
        if wrapped:
            counts = memory.statistics
            assert (counts["allocations"], counts["in_use"], counts["peak"]) == (40, 0, payload)
            assert memory.allocator is resource

    hc.run_threads(2, run)
    gc.collect()


def test_an_allocator_that_returns_pointers():
    def run(comm):
        line = comm.neighbor_exchange(memory=lambda size: Pointer(size))
        for _ in range(5):
            came = line.exchange(**sent(comm))
            check(comm, came)
            del came
        line.exchange()
        other = 1 - comm.rank
        packets = comm.sparse_alltoall({other: np.full(SIZE, comm.rank, "u1")}, sources=[other], memory=lambda size: Pointer(size))
        check(comm, [packets[other][0]] * 2)

    hc.run_threads(2, run)
    gc.collect()
    hc.init().neighbor_exchange().exchange()
    assert len(Pointer.made) == len(Pointer.gone) > 0


def test_the_exception_of_an_allocator_is_the_cause():
    def run(comm):
        resource = Resource()
        if comm.rank == 0:
            resource.fails = RuntimeError("the pool is empty")
        line = comm.neighbor_exchange(memory=resource)
        if comm.rank == 0:
            with pytest.raises(hc.MemoryShortageError, match="cannot allocate 200000 bytes: RuntimeError: the pool is empty") as caught:
                line.exchange(**sent(comm))
            assert caught.value.__cause__ is resource.fails
        else:
            with pytest.raises(hc.PacketExchangeError, match="the pool is empty"):
                while True:
                    line.exchange(**sent(comm))

    hc.run_threads(2, run)


def test_a_limit_and_a_spill_on_an_allocator():
    def run(comm):
        resource = Resource()
        memory = hc.ForeignMemory(comm, resource, limit=SIZE, spill=True, patience=0)
        line = comm.neighbor_exchange(memory=memory)
        first = line.exchange(**sent(comm))
        second = line.exchange(**sent(comm))
        check(comm, first)
        check(comm, second)
        assert len(resource.blocks) == 1 and memory.statistics["spilled"] == SIZE

    hc.run_threads(2, run)


def test_an_allocator_cannot_use_an_exchange_itself():
    def run(comm):
        lines = []

        def allocate(size):
            lines[0].exchange(id=9)

        lines.append(comm.neighbor_exchange(memory=allocate))
        with pytest.raises((hc.MemoryShortageError, hc.PacketExchangeError), match="cannot use neighbour exchanges"):
            while True:
                lines[0].exchange(**sent(comm))

    hc.run_threads(2, run)


def test_an_allocator_is_interrupted():
    def run(comm):
        resource = Resource()
        resource.fails = KeyboardInterrupt("now") if comm.rank == 0 else None
        line = comm.neighbor_exchange(memory=resource)
        with pytest.raises((KeyboardInterrupt, hc.PacketExchangeError), match="now"):
            while True:
                line.exchange(**sent(comm))

    hc.run_threads(2, run)


class HalfResource:
    def allocate(self, size):
        return 0


@pytest.mark.parametrize(
    "allocator, error, text",
    [
        (3, hc.HaloTypeError, "^allocator: a halocline.HostMemory, DeviceMemory or ForeignMemory, .* is wanted, not 3$"),
        (HalfResource(), hc.HaloTypeError, r"^allocator: .*HalfResource has `allocate`, but no `deallocate\(address, bytes\)`$"),
        (Resource, hc.HaloTypeError, "^allocator: "),
    ],
)
def test_what_is_no_allocator_is_refused(allocator, error, text):
    with pytest.raises(error, match=text):
        hc.ForeignMemory(hc.init(), allocator)


@pytest.mark.parametrize("given, text", [(0, "is faulty: asked for 200000 bytes, it returned address 0"), ("here", "allocate gave no address, but 'here'")])
def test_addresses_that_are_none_are_refused(given, text):
    def run(comm):
        class Wrong(Resource):
            def allocate(self, size):
                return given

        line = comm.neighbor_exchange(memory=Wrong())
        with pytest.raises(hc.PacketExchangeError, match=text):
            while True:
                line.exchange(**sent(comm))

    hc.run_threads(2, run)


def test_memory_of_a_gpu_where_there_is_none():
    comm = hc.init()
    for make in (lambda: hc.DeviceMemory(comm, 0), lambda: hc.ForeignMemory(comm, Resource(), device=0)):
        with pytest.raises(hc.DeviceError):
            make()
    with pytest.raises(hc.HaloValueError, match="^stream: host memory is in the order of no stream; give the `device`"):
        hc.ForeignMemory(comm, Resource(), stream=hc.Stream(0))
    with pytest.raises(hc.HaloTypeError, match="^device: "):
        hc.DeviceMemory(comm, "cuda:0")


def test_memory_of_another_place_than_said_is_refused(with_driver):
    """Of a driver that says of each address that it is memory of GPU 1."""
    code = """
        import halocline as hc
        def allocate(size):
            class Pointer:
                ptr = 1 << 21
            return Pointer()
        def run(comm):
            for memory in (allocate, hc.ForeignMemory(comm, allocator=allocate, device=0)):
                line = comm.neighbor_exchange(memory=memory)
                try:
                    while True:
                        line.exchange(**{"right" if comm.rank == 0 else "left": b"x" * 30_000})
                except hc.HaloError as refused:
                    if comm.rank == 0:
                        print(str(refused).partition("it returned ")[2])
                comm.barrier()
            if comm.rank == 0:
                print(hc.DeviceMemory(comm, 1), memory.statistics["kind"])
        hc.run_threads(2, run)
    """
    said = [line for line in with_driver(textwrap.dedent(code)) if not line.startswith(("started", "context"))]
    assert said[0].startswith("memory of GPU 1: say so, halocline.ForeignMemory(comm, allocator, device=1), or give a resource of"), said
    assert said[1].startswith("memory of GPU 1 instead of 0: make 0 the current device, or give device=1"), said
    assert said[2] == "DeviceMemory(device=1) device"
