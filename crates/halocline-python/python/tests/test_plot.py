"""Pictures: what is drawn is what there is, and bad input is refused. Without matplotlib they say so."""

import subprocess
import sys

import numpy as np
import pytest

import halocline as hc
from halocline import plot


@pytest.fixture
def matplotlib():
    return pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'halocline[plot]'")


def on_rank_0(ranks, draw):
    return hc.run_threads(ranks, draw)[0]


def test_importing_it_does_not_import_matplotlib():
    code = "import sys, halocline.plot; sys.exit('matplotlib' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_matplotlib_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'halocline\[plot\]'"):
        plot.partition([[0, 0]], [0])


def test_a_pattern_is_a_heat_map_of_what_is_sent(matplotlib, tmp_path):
    def draw(comm):
        pattern = hc.RegularGrid((8, 6)).decompose_into((3, 1), comm).pattern(1)
        return plot.pattern(pattern, comm)

    figure = on_rank_0(3, draw)
    (image,) = figure.axes[0].images
    sent = np.ma.filled(image.get_array().astype(float), 0)
    np.testing.assert_array_equal(sent, [[0, 6, 0], [6, 0, 6], [0, 6, 0]])
    assert [text.get_text() for text in figure.axes[0].texts] == ["6"] * 4
    figure.savefig(tmp_path / "pattern.png")
    assert (tmp_path / "pattern.png").read_bytes().startswith(b"\x89PNG")


def test_domains_are_rectangles_where_they_lie(matplotlib):
    def draw(comm):
        pattern = hc.RegularGrid((8, 6, 2)).decompose_into((2, 1, 1), comm).pattern(1)
        return plot.domains(pattern, comm, axes=(1, 0))

    figure = on_rank_0(2, draw)
    boxes = [(*patch.get_xy(), patch.get_width(), patch.get_height()) for patch in figure.axes[0].patches]
    assert boxes == [(0, 0, 6, 4), (0, 4, 6, 4)]
    assert len({patch.get_facecolor() for patch in figure.axes[0].patches}) == 2

    row = on_rank_0(3, lambda comm: plot.domains(hc.RegularGrid((9,)).decompose(comm).pattern(1), comm))
    assert [patch.get_x() for patch in row.axes[0].patches] == [0, 3, 6]


def test_only_two_axes_and_places_can_be_drawn(matplotlib):
    def draw(comm):
        pattern = hc.RegularGrid((8, 6)).decompose(comm).pattern(1)
        with pytest.raises(hc.HaloValueError, match=r"axes \[0, 2\] of a grid of 2 axes; give two different ones, from 0"):
            plot.domains(pattern, comm, axes=(0, 2))
        ids = hc.UnstructuredDomain(comm.rank, [comm.rank], [])
        with pytest.raises(hc.HaloValueError, match="only domains of a regular grid have places; draw others with partition"):
            plot.domains(hc.Pattern.unstructured(comm, [ids]), comm)

    hc.run_threads(2, draw)


def test_a_partition_is_drawn_by_points_or_polygons(matplotlib):
    points = np.array([[0, 0], [1, 0], [0, 1], [1, 1]])
    figure = plot.partition(points, hc.Partition([0, 0, 1, 2], 3))
    (scatter,) = figure.axes[0].collections
    np.testing.assert_array_equal(scatter.get_offsets(), points)
    assert len(np.unique(scatter.get_facecolors(), axis=0)) == 3
    figure = plot.partition(points, [0, 1], connectivity=[[0, 1, 2], [1, 3, 2]])
    assert len(figure.axes[0].collections[0].get_paths()) == 2
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["rank 0", "rank 1"]
    for places, owners, connectivity, text in [
        ([[0, 0, 0]], [0], None, r"\(1, 3\); \(n, 2\) is wanted, two coordinates for each point"),
        (points, [0], None, "for 4 points"),
        (points, [0], [[0, 1, 2], [1, 3, 2]], "for 2 polygons"),
        (points, [0], [[0, 1, 4]], "vertices 0 to 4 in the connectivity, but 4 points; give positions"),
    ]:
        with pytest.raises(hc.HaloValueError, match=text):
            plot.partition(places, owners, connectivity=connectivity)


SQUARE = [[0, 0], [1, 0], [0, 1], [1, 1]]
COMM = hc.init()
PATTERN = hc.RegularGrid((8, 6)).decompose(COMM).pattern(1)

JUNK_MESHES = {
    "points": ("xy", [0, 1], None),
    "points, ragged": ([[0, 0], [1]], [0, 1], None),
    "points of letters": ([["a", "b"]], [0], None),
    "points, none": (None, [0], None),
    "owners": (SQUARE, "abcd", None),
    "owners, ragged": (SQUARE, [[0], [0, 1]], None),
    "owners with a fraction": (SQUARE, [0.5, 0, 0, 0], None),
    "owners, an object": (SQUARE, object(), None),
    "connectivity": (SQUARE, [0, 1], "abc"),
    "connectivity, flat": (SQUARE, [0, 1, 1], [0, 1, 2]),
    "connectivity, ragged": (SQUARE, [0, 1], [[0, 1, 2], [1, 2]]),
    "connectivity with a fraction": (SQUARE, [0], [[0, 1, 2.5]]),
}


@pytest.mark.parametrize("what", JUNK_MESHES)
def test_meshes_of_another_kind_are_refused(matplotlib, what):
    points, owners, connectivity = JUNK_MESHES[what]
    with pytest.raises(hc.HaloError):
        plot.partition(points, owners, connectivity=connectivity)


@pytest.mark.parametrize("draw", [plot.pattern, plot.domains])
@pytest.mark.parametrize("junk", [None, 3, "pattern", object()], ids=str)
def test_what_is_no_pattern_or_communicator_is_refused(matplotlib, draw, junk):
    with pytest.raises(hc.HaloTypeError, match="Communicator"):
        draw(PATTERN, junk)
    with pytest.raises(hc.HaloTypeError, match="Pattern"):
        draw(junk, COMM)


@pytest.mark.parametrize("axes", [3, "01", (0,), (0, 1, 0), (0, 0), (0, -1), (0.0, 1.0), (None, 1), ()], ids=str)
def test_axes_that_cannot_be_are_refused(matplotlib, axes):
    with pytest.raises(hc.HaloError, match="ax[ie]s"):
        plot.domains(PATTERN, COMM, axes=axes)


def test_what_one_rank_gives_wrong_is_an_error_on_all(matplotlib):
    """The others waited for it."""

    def draw(comm):
        comm = comm.with_deadline(20)
        pattern = hc.RegularGrid((8, 6)).decompose(comm).pattern(1)
        wanted = hc.HaloTypeError if comm.rank == 1 else hc.RefusedElsewhereError
        with pytest.raises(wanted):
            plot.pattern(3 if comm.rank == 1 else pattern, comm)
        with pytest.raises(wanted):
            plot.domains(pattern, comm, axes="ab" if comm.rank == 1 else (0, 1))
        plot.domains(pattern, comm)

    hc.run_threads(2, draw)


def test_a_pattern_of_more_ranks_than_the_communicator_has_is_refused(matplotlib):
    pattern = hc.run_threads(2, lambda comm: hc.RegularGrid((8, 6)).decompose(comm).pattern(1))[0]
    with pytest.raises(hc.HaloValueError, match="rank 1"):
        plot.pattern(pattern, COMM)
