"""Index lists of NumPy arrays."""

import numpy as np
import pytest

import halocline as hc

TYPES = ["int32", "uint32", "int64", "uint64"]


@pytest.fixture
def lists():
    return hc.IndexLists()


@pytest.mark.parametrize("element", TYPES)
@pytest.mark.parametrize("index", TYPES)
def test_the_cells_of_ranks(lists, element, index):
    random = np.random.default_rng(3)
    for cells in (0, 1, 1000):
        owners = random.integers(0, 7, cells).astype(element)
        found = np.full(cells, 77_777, index)
        lists.owned(owners, 7, [0, 2, 6], found)
        wanted = [np.flatnonzero(owners == rank) for rank in (0, 2, 6)]
        assert lists.counts() == [cells.size for cells in wanted]
        count = sum(lists.counts())
        assert (found[:count] == np.concatenate(wanted)).all() and (found[count:] == 77_777).all()


@pytest.mark.parametrize("element", TYPES)
def test_unique_ids(lists, element):
    low = -50 if element.startswith("int") else 0
    ids = np.random.default_rng(4).integers(low, 50, 1000).astype(element)
    found = np.zeros(1000, element)
    lists.unique(ids, found)
    wanted = np.unique(ids)
    assert lists.counts() == [wanted.size] and (found[: wanted.size] == wanted).all()


def test_no_list_has_no_counts(lists):
    assert lists.counts() == []
    assert repr(lists) == "IndexLists()"


def test_arrays_that_nobody_can_write_are_read(lists):
    owners, found = np.zeros(3, "int32"), np.zeros(3, "int64")
    owners.setflags(write=False)
    lists.owned(owners, 1, [0], found)
    assert lists.counts() == [3]
    with pytest.raises(hc.HaloValueError, match="indices: .*read-only"):
        lists.owned(found, 1, [0], owners)


def test_a_domain_of_ids_and_owners(lists):
    def rank(comm):
        ids = np.arange(6 * comm.rank - 1, 6 * comm.rank + 6) % (6 * comm.size)
        owners = (ids // 6).astype("int32")
        domain = hc.IndexLists().domain(comm.rank, comm, ids, owners)
        assert domain == hc.UnstructuredDomain.from_indices(comm.rank, ids, [0])
        pattern = hc.Pattern.unstructured(comm, [domain])
        t = np.where(owners == comm.rank, ids, -1).astype(float)
        hc.HaloExchange(comm, [(pattern, t)]).exchange()
        assert (t == ids).all()

    hc.run_threads(3, rank)


def test_refused_arguments(lists):
    owners, found = np.zeros(4, "int32"), np.zeros(4, "int64")
    wrong = [
        (lambda: lists.owned(np.zeros((2, 2), "int32"), 1, [0], found), "one dimension"),
        (lambda: lists.owned(np.zeros(8, "int32")[::2], 1, [0], found), "without gaps"),
        (lambda: lists.owned(owners.astype(float), 1, [0], found), "int32"),
        (lambda: lists.owned(owners, 1, [1], found), "no rank 1"),
        (lambda: lists.owned(owners, 3, [1, 0], found), "ascending"),
        (lambda: lists.unique(owners, found), "one type"),
        (lambda: lists.unique(owners, owners), "share memory"),
        (lambda: lists.domain(0, hc.init(), found, owners[:2]), "owner of each cell"),
    ]
    for call, words in wrong:
        with pytest.raises(hc.HaloError, match=words):
            call()
    with pytest.raises(hc.HaloTypeError, match="owners: "):
        lists.owned(None, 1, [0], found)
    lists.owned(np.array([0, 5], "int32"), 5, [0], found)
    with pytest.raises(hc.HaloError, match="the owner of cell 1 is 5"):
        lists.counts()
    lists.owned(owners, 1, [0], found[:3])
    with pytest.raises(hc.HaloError, match="4 elements, its array 3"):
        lists.counts()
