"""Grids, partitions, graphs, meshes and domains are values: compared by what they are, copied, pickled, used as keys."""

import copy
import pickle

import numpy as np
import pytest

import halocline as hc

COMM = hc.run_threads(1, lambda comm: comm)[0]

# Each twice the same, and what differs from it in one thing.
VALUES = {
    "RegularGrid": (
        lambda: hc.RegularGrid((8, 6), periodic=(True, False), domains_per_rank=2),
        [
            lambda: hc.RegularGrid((6, 8), periodic=(True, False), domains_per_rank=2),
            lambda: hc.RegularGrid((8, 6), domains_per_rank=2),
            lambda: hc.RegularGrid((8, 6), periodic=(True, False)),
        ],
    ),
    "PatchGrid": (
        lambda: hc.PatchGrid([(4, 6), (5, 4)], [("join_reversed", (0, 1, "high"), (1, 0, "low"))]),
        [
            lambda: hc.PatchGrid([(4, 6), (5, 4)], [("join", (0, 1, "high"), (1, 0, "low"))]),
            lambda: hc.PatchGrid([(4, 6), (6, 4)], [("join_reversed", (0, 1, "high"), (1, 0, "low"))]),
            lambda: hc.PatchGrid([(4, 6), (5, 4)], []),
        ],
    ),
    "PatchGrid of a cubed sphere": (
        lambda: hc.PatchGrid.cubed_sphere(4).corners_through(1),
        [lambda: hc.PatchGrid.cubed_sphere(4), lambda: hc.PatchGrid.cubed_sphere(4).corners_through(0)],
    ),
    "PatchGrid with a fold": (
        lambda: hc.PatchGrid.tripolar((4, 8), "cell"),
        [lambda: hc.PatchGrid.tripolar((4, 8), "corner"), lambda: hc.PatchGrid.latitude_longitude((4, 8))],
    ),
    "PatchGrid with a fold at corners": (lambda: hc.PatchGrid.tripolar((4, 8), "corner"), []),
    "PatchGrid with poles": (lambda: hc.PatchGrid.latitude_longitude((4, 8)), []),
    "Partition": (
        lambda: hc.Partition([0, 2, 1], 3),
        [lambda: hc.Partition([0, 2, 1], 4), lambda: hc.Partition([0, 1, 1], 3)],
    ),
    "Partition of nothing": (lambda: hc.Partition([], 3), [lambda: hc.Partition([], 2)]),
    "Graph": (
        lambda: hc.Graph([0, 1, 3, 4], [1, 0, 2, 1]),
        [lambda: hc.Graph([0, 1, 2, 2], [1, 0]), lambda: hc.Graph([0], [])],
    ),
    "Mesh of rows": (
        lambda: hc.Mesh(5, [[0, 1, 2], [1, 2, 3]]),
        [lambda: hc.Mesh(6, [[0, 1, 2], [1, 2, 3]]), lambda: hc.Mesh(5, [[0, 1], [2, 1], [2, 3]])],
    ),
    "Mesh of nothing": (lambda: hc.Mesh(5, np.empty((0, 3), int)), [lambda: hc.Mesh(4, np.empty((0, 3), int))]),
    "Mesh of any elements": (
        lambda: hc.Mesh(5, [0, 1, 2, 1, 2, 3, 4], offsets=[0, 3, 7]),
        [lambda: hc.Mesh(5, [0, 1, 2, 1, 2, 3, 4], offsets=[0, 4, 7])],
    ),
    "Mesh of solids": (
        lambda: hc.Mesh(4, [[0, 1, 2, 3]], solid=True),
        [lambda: hc.Mesh(4, [[0, 1, 2, 3]])],
    ),
    "UnstructuredDomain": (
        lambda: hc.UnstructuredDomain(3, [2**64 - 1, 5], [7]),
        [
            lambda: hc.UnstructuredDomain(4, [2**64 - 1, 5], [7]),
            lambda: hc.UnstructuredDomain(3, [2**64 - 1], [5, 7]),
            lambda: hc.UnstructuredDomain(3, [2**64 - 1, 5], [7]).with_levels([2, 3]),
        ],
    ),
    "UnstructuredDomain with levels": (
        lambda: hc.UnstructuredDomain(3, [5], [7, 8]).with_levels([1, 2, 3]),
        [lambda: hc.UnstructuredDomain(3, [5], [7, 8])],
    ),
    "UnstructuredDomain of indices": (
        lambda: hc.UnstructuredDomain.from_indices(3, [5, 6, 7], [0, 2]),
        [lambda: hc.UnstructuredDomain.from_indices(3, [5, 6, 7], [0])],
    ),
    "UnstructuredDomain of owners": (
        lambda: hc.UnstructuredDomain.from_owners(3, COMM, [5, 6], [0, 1]),
        [lambda: hc.UnstructuredDomain.from_owners(3, COMM, [5, 6], [0, 2])],
    ),
    "UnstructuredDomain of nothing": (lambda: hc.UnstructuredDomain(0, [], []), [lambda: hc.UnstructuredDomain(1, [], [])]),
}
COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{
        f"pickle {protocol}": lambda value, protocol=protocol: pickle.loads(pickle.dumps(value, protocol))
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    },
}


@pytest.mark.parametrize("what", VALUES)
@pytest.mark.parametrize("how", COPIES)
def test_a_copy_is_equal(what, how):
    value = VALUES[what][0]()
    made = COPIES[how](value)
    assert type(made) is type(value) and made == value and not made != value
    assert hash(made) == hash(value) and {value: "found"}[made] == "found"
    assert repr(made) == repr(value)


@pytest.mark.parametrize("what", VALUES)
def test_values_are_equal_by_what_they_are(what):
    make, others = VALUES[what]
    assert make() == make()
    for other in others:
        assert make() != other()
    assert make() != "a text" and make() != None  # noqa: E711


def test_meshes_are_equal_however_their_rows_were_given():
    one, other = hc.Mesh(4, [[0, 1, 2], [1, 2, 3]]), hc.Mesh(4, [0, 1, 2, 1, 2, 3], offsets=[0, 3, 6])
    assert one == other and hash(one) == hash(other)


def test_copies_make_the_same_pattern():
    def run(comm):
        cells = [10 * comm.rank, 10 * comm.rank + 1]
        neighbour = 10 * ((comm.rank + 1) % comm.size)
        for domain in (
            hc.UnstructuredDomain(comm.rank, cells, [neighbour]),
            hc.UnstructuredDomain.from_indices(comm.rank, [neighbour, *cells], [0]),
            hc.UnstructuredDomain.from_owners(comm.rank, comm, [*cells, neighbour], [comm.rank] * 2 + [(comm.rank + 1) % comm.size]),
        ):
            made = pickle.loads(pickle.dumps(domain))
            field = np.where(made.cells == neighbour, 0.0, made.cells + 0.5)
            pattern = hc.Pattern.unstructured(comm, [made])
            hc.HaloExchange(comm, [(pattern, field)]).exchange()
            assert (field == made.cells + 0.5).all()
        return True

    assert hc.run_threads(3, run) == [True] * 3


def test_junk_for_a_pickle_is_refused():
    from halocline import _core

    for halo in [("from", 0, [5]), ("from", 0, [1, 2]), ("other", 0, []), ("from", 0, [])]:
        with pytest.raises(hc.HaloValueError, match="no pickle"):
            _core._domain(0, [1, 2], *halo, [])
