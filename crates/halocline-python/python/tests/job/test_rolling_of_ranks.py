"""Rolling windows over a table of the ranks of a job: run by every rank, alone, under ``halocline launch`` or an MPI launcher."""

import sys
from pathlib import Path

import numpy as np
import pytest

import halocline as hc

pl = pytest.importorskip("polars", reason="polars is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

sys.path.insert(0, str(Path(__file__).parents[1]))
from windows import assert_equal, by_polars, frame_of, parts, statistics  # noqa: E402


def own_of(comm, seed, rows):
    """The whole table, this rank's rows, and the number of the first."""
    random = np.random.default_rng(seed)
    frame = frame_of(random, rows)
    pieces = parts(random, frame, comm.size)
    return frame, pieces[comm.rank], sum(map(len, pieces[: comm.rank]))


@pytest.mark.parametrize("route", ["auto", "relay", "direct"])
@pytest.mark.parametrize("seed, window, offset", [(1, "5s", None), (2, "1h", None), (3, "2s", "-8s"), (4, "3s", "1s")])
@pytest.mark.parametrize("group", [None, "group"])
def test_windows_of_time_are_those_of_the_whole_table(comm, route, seed, window, offset, group):
    frame, own, first = own_of(comm, seed, 300)
    found = hc.rolling(
        own, "time", window, closed="both", offset=offset, group=group, columns=["value", "number"], aggregate=statistics(hc),
        min_samples=0, threads=1, route=route, comm=comm,
    )
    assert_equal(found, by_polars(frame, window, "both", offset, group)[first : first + len(own)])


def test_windows_of_rows_longer_than_the_rows_of_a_rank(comm):
    frame, own, first = own_of(comm, 5, 50)
    found = hc.rolling(own, "time", 40, aggregate={"number": "mean"}, comm=comm)
    expected = frame.select("time", number_mean=pl.col("number").rolling_mean(40))
    assert_equal(found, expected[first : first + len(own)])


def test_a_function_of_the_program(comm):
    frame, own, first = own_of(comm, 6, 20_000)
    tables = [own, own.to_arrow(), own.to_pandas()]
    expected = frame["number"].cast(pl.Int64).rolling_sum(500)[first : first + len(own)]
    for table in tables:
        found = hc.rolling(
            table, "time", 500, columns="number", comm=comm,
            aggregate=lambda rows: pl.DataFrame(rows)["number"].cast(pl.Int64).rolling_sum(500),
        )
        assert found.equals(expected)


def test_rows_that_are_not_sorted_are_named(comm):
    if comm.size == 1:
        pytest.skip("there is one rank")
    table = pl.DataFrame({"t": [comm.size - comm.rank], "v": [1.0]})
    with pytest.raises(hc.RowError) as raised:
        hc.rolling(table, "t", "2i", comm=comm)
    assert (raised.value.rank, raised.value.row, raised.value.column) == (1, 0, "t")
    comm.barrier()
