"""Index lists of CuPy arrays beside CuPy's own functions, in the order of streams."""

import numpy as np
import pytest

import halocline as hc

cupy = pytest.importorskip("cupy")
import libraries  # noqa: E402

pytestmark = pytest.mark.skipif(not libraries.gpus(), reason="there is no GPU")
SIZES = [0, 1, 31, 4095, 4096, 4097, 100_000, 5_000_001]
TYPES = ["int32", "uint32", "int64", "uint64"]


@pytest.mark.parametrize("element", TYPES)
def test_the_cells_of_ranks(element):
    lists = hc.IndexLists()
    for cells in SIZES:
        for size, ranks in [(1, [0]), (9, [3]), (9, [0, 2, 8]), (900, range(1, 900)), (4, [])]:
            owners = cupy.random.randint(0, size, cells, dtype="int64").astype(element)
            found = cupy.full(cells, 7, "int64" if cells % 2 else "int32")
            lists.owned(owners, size, ranks, found)
            wanted = [cupy.flatnonzero(owners == rank) for rank in (ranks if cells <= 4096 else list(ranks)[:20])]
            counts = lists.counts()
            assert counts[: len(wanted)] == [cells.size for cells in wanted]
            if wanted:
                wanted = cupy.concatenate(wanted)
                assert (found[: wanted.size] == wanted).all()
            assert (found[sum(counts) :] == 7).all()


@pytest.mark.parametrize("element", TYPES)
def test_unique_ids(element):
    lists = hc.IndexLists()
    for cells in SIZES:
        for limit in (1, 50, 2**31 - 1, 2**62):
            limit = min(limit, 2**31 - 1) if element.endswith("32") else limit
            ids = cupy.random.randint(0, limit, cells, dtype="int64")
            ids = (ids - limit // 2 if element.startswith("int") else ids).astype(element)
            wanted = cupy.unique(ids)
            found = cupy.zeros(wanted.size, element)
            lists.unique(ids, found)
            assert lists.counts() == [wanted.size] and (found == wanted).all()


def test_lists_follow_their_streams():
    """Owners that a slow stream writes; the next list, on another stream, uses the same memory of the object."""
    lists = hc.IndexLists()
    spin = cupy.RawKernel(libraries.SPIN, "spin")
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    owners, found = [cupy.zeros(100_000, "int32") for _ in range(2)], [cupy.zeros(100_000, "int32") for _ in range(2)]
    cupy.cuda.get_current_stream().synchronize()
    for turn in range(20):
        for stream, own, list_of in zip(streams, owners, found):
            with stream:
                spin((1,), (1,), (libraries.CYCLES // 10,))
                own[: 1000 * turn] = 1
            lists.owned(own, 2, [1], list_of, stream=stream)
        assert lists.counts() == [1000 * turn]
    for stream, list_of in zip(streams, found):
        stream.synchronize()
        assert (list_of[:19_000] == cupy.arange(19_000)).all()


def test_wrong_owners_and_short_arrays():
    lists = hc.IndexLists()
    owners, found = cupy.zeros(10_000, "int32"), cupy.full(10_000, -1, "int64")
    owners[7000:] = -3
    lists.owned(owners, 2, [0], found)
    with pytest.raises(hc.HaloError, match="the owner of cell 7000 is -3"):
        lists.counts()
    lists.owned(owners[:7000], 2, [0], found[:100])
    with pytest.raises(hc.HaloError, match="7000 elements, its array 100"):
        lists.counts()
    assert (found[:100] == cupy.arange(100)).all()
    with pytest.raises(hc.HaloError, match="host"):
        lists.owned(owners, 2, [0], np.zeros(10_000, "int64"))


def test_a_domain_of_arrays_on_a_gpu(together):
    def rank(comm):
        cupy.cuda.Device(libraries.device_of(comm.rank)).use()
        ids = cupy.arange(1000 * comm.rank - 1, 1000 * comm.rank + 1000) % (1000 * comm.size)
        owners = (ids // 1000).astype("int32")
        cupy.cuda.get_current_stream().synchronize()
        domain = hc.IndexLists().domain(comm.rank, comm, ids, owners)
        halo = np.flatnonzero(owners.get() != comm.rank)
        assert domain == hc.UnstructuredDomain.from_indices(comm.rank, ids.get(), halo)

    together(rank)
