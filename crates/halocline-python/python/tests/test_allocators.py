"""Garbage collections within an allocator of the program, while the operation that asks for memory is locked."""

import pytest
from child import ends_well

# Rank 0 receives into memory of an allocator, which collects garbage: what GARBAGE makes.
PROGRAM = """
    import ctypes, gc
    gc.disable()
    dropped, said = [], []
    class Finalized:
        def __del__(self):
            dropped.append(True)
    class Resource:
        def __init__(self):
            self.garbage, self.within, self.blocks = [], lambda: None, {{}}
        def allocate(self, size):
            if self.garbage:
                cycle = [self.garbage, Finalized()]
                cycle.append(cycle)
                self.garbage = []
                del cycle
                gc.collect()
                assert dropped == [True]
                self.within()
            block = (ctypes.c_char * size)()
            self.blocks[ctypes.addressof(block)] = block
            return ctypes.addressof(block)
        def deallocate(self, address, size):
            del self.blocks[address]
    def run(comm):
        resource = Resource()
        memory = resource if comm.rank == 0 else hc.HostMemory(comm)
        line, other = comm.neighbor_exchange(memory=memory), comm.neighbor_exchange()
        side = "right" if comm.rank == 0 else "left"
        big = b"x" * 200_000
        garbage = [{garbage}]
        if comm.rank == 0:
            resource.garbage.append(garbage)
            {within}
        del garbage
        came = line.exchange(**{{side: big}})
        assert bytes(came[1 - comm.rank].payload) == big
        if comm.rank == 0:
            assert dropped == [True]
        # What was dropped is over; its id is free again.
        del came
        comm.barrier()
        {after}
    hc.run_threads(2, run)
    print(*said, "over")
"""

GARBAGE = {
    "a round of the same exchange": ("line.start(id=7)", "while True:\n            try:\n                line.exchange(id=7)\n                break\n            except hc.InFlightError:\n                pass"),
    "a round with a payload": ("line.start(**{side: big}, id=7)", "pass"),
    "a received packet": ("line.exchange(**{side: big}, id=7)", "pass"),
    "a session": ("line.session(8)", "line.exchange(id=7)"),
    "another exchange": ("comm.neighbor_exchange()", "line.exchange(id=7)"),
    "a sparse all-to-all": ("hc.SparseAlltoall(comm, [1 - comm.rank], sources=[1 - comm.rank])", "line.exchange(id=7)"),
    "a duplicate of the communicator": ("comm.duplicate()", "line.exchange(id=7)"),
    "fields in flight": ("bound(comm).exchange(wait=False)", "line.exchange(id=7)"),
}


@pytest.mark.parametrize("what", GARBAGE)
def test_a_garbage_collection_in_an_allocator_drops(what):
    garbage, after = GARBAGE[what]
    ends_well(PROGRAM.format(garbage=garbage, within="pass", after=after), says="over", timeout=30)


@pytest.mark.parametrize(
    "call, text",
    [
        ("comm.close()", "an allocator that receives payloads cannot close a communicator itself"),
        ("line.exchange()", "cannot use neighbour exchanges or sparse all-to-alls itself"),
        ("comm.neighbor_exchange()", "cannot make collective calls itself"),
        ("hc.SparseAlltoall(comm, [], sources=[])", "cannot make collective calls itself"),
        ("comm.sparse_alltoall({})", "cannot make collective calls itself"),
        ("comm.barrier()", "cannot make collective calls itself"),
        ("comm.agree()", "cannot make collective calls itself"),
    ],
)
def test_calls_within_an_allocator_that_would_wait_for_it_are_refused(call, text):
    within = f"""
            def within():
                try:
                    {call}
                except hc.HaloValueError as refused:
                    said.append({text!r} in str(refused))
            resource.within = within"""
    ends_well(PROGRAM.format(garbage="None", within=within.strip(), after="pass"), says="True over", timeout=30)
