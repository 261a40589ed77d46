"""What ``halocline.rolling`` refuses: on all ranks, with the rank, the row and the values."""

import datetime
import threading

import numpy as np
import pytest
from child import ends_well

import halocline as hc

pl = pytest.importorskip("polars", reason="polars is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

FRAME = pl.DataFrame({"g": [1, 1, 2], "t": [1, 2, 3], "v": [1.0, 2.0, 3.0], "s": ["a", "b", "c"]})


def failures(tables, *arguments, **options):
    """The exceptions of all ranks."""

    def run(comm):
        with pytest.raises(hc.HaloError) as raised:
            hc.rolling(tables[comm.rank], *arguments, comm=comm, **options)
        # The communicator is of use.
        comm.barrier()
        return raised.value

    return hc.run_threads(len(tables), run)


def test_rows_that_are_not_sorted_are_named_on_all_ranks():
    for error in failures([FRAME, FRAME], "t", "5i"):
        assert type(error) is hc.RowError and isinstance(error, hc.HaloValueError)
        assert (error.rank, error.row, error.column) == (1, 0, "t")
        assert str(error).startswith("table: rows are not sorted: row 0 of rank 1 has t = 1, after 3 in row 2 of rank 0;")
    late = FRAME.with_columns(t=pl.Series([7, 6, 8]))
    for error in failures([FRAME, late, late[:0]], "t", 3, aggregate="mean", columns="v"):
        assert (error.rank, error.row, error.column) == (1, 1, "t")
    for error in failures([FRAME, FRAME], "t", "5i", group="g"):
        assert (error.rank, error.row, error.column) == (1, 0, "g")


def test_the_order_of_nulls_and_categories_is_said():
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    text = 'sort the whole table by its groups (nulls first, in pandas na_position="first"; categories are compared by value), then by the key'
    nulls = pd.DataFrame({"g": ["b", None, "a"], "t": [1, 2, 3], "v": [1.0, 2.0, 3.0]})
    sizes = pd.Categorical(["small", "large", "small"], categories=["small", "large"], ordered=True)
    for frame, sound in [
        (nulls.sort_values(["g", "t"]), nulls.sort_values(["g", "t"], na_position="first")),
        (nulls.assign(g=sizes).sort_values(["g", "t"]), nulls.assign(g=sizes.astype(str)).sort_values(["g", "t"])),
    ]:
        for error in failures([frame, frame[:0]], "t", "5i", group="g", aggregate={"v": "sum"}):
            assert error.column == "g" and text in str(error)
        assert hc.rolling(sound, "t", "5i", group="g", aggregate={"v": "sum"})["v_sum"].to_list()


def test_keys_without_a_value_are_named_on_all_ranks():
    gap = FRAME.with_columns(t=pl.Series([4, None, 5]))
    for error in failures([FRAME[:0], FRAME, gap], "t", "5i"):
        assert type(error) is hc.RowError and (error.rank, error.row, error.column) == (2, 1, "t")
        assert "has no \"t\" (null)" in str(error)


@pytest.mark.parametrize("group", ["t", ["g", "g"], ["g", "t"]])
@pytest.mark.parametrize("library", ["polars", "pandas", "pyarrow"])
@pytest.mark.parametrize("aggregate", [None, {"v": "sum"}])
def test_a_column_that_is_named_twice_is_refused(library, group, aggregate):
    if library == "pandas":
        pytest.importorskip("pandas", reason="pandas is not installed")
    table = {"polars": lambda: FRAME, "pandas": FRAME.to_pandas, "pyarrow": FRAME.to_arrow}[library]()
    for error in failures([table, table], "t", "5i", group=group, aggregate=aggregate):
        assert type(error) is hc.HaloValueError
        twice = "g" if group == ["g", "g"] else "t"
        assert str(error).startswith(f'group: column "{twice}" is named twice among the key and the groups;')


@pytest.mark.parametrize(
    "arguments, options, error, text",
    [
        (("x", "5i"), {}, hc.HaloValueError, '^table: rank 0 has no column "x"; its columns are "g", "t", "v", "s"$'),
        (("t", "5i"), {"aggregate": {"x": "sum"}}, hc.HaloValueError, '^table: rank 0 has no column "x"'),
        (("t", "5i"), {"group": "v"}, hc.HaloTypeError, '^group: column "v" of rank 0 is Float64, it cannot name groups'),
        (("v", "5i"), {}, hc.HaloTypeError, '^by: column "v" of rank 0 is Float64, it cannot be the key'),
        (("t", "5s"), {}, hc.HaloValueError, "^window: the window 5s .* does not fit column \"t\" of rank 0, .*\"5i\""),
        (("t", "5i"), {"aggregate": "mean"}, hc.HaloTypeError, '^aggregate: column "s" is Utf8View, it has no mean'),
        (("t", "0s"), {}, hc.HaloValueError, "^window: the window 0s has no length"),
        (("t", 0), {}, hc.HaloValueError, "^window: the window 0 rows has no length"),
        (("t", -2), {}, hc.HaloValueError, r"^window: a number of rows, at least 0 and below 2\*\*32, is wanted, not -2$"),
        (("t", 1 << 80), {}, hc.HaloValueError, "^window: .* rows are too many$"),
        (("t", "-3i"), {}, hc.HaloValueError, "^window: the window -3i has no length"),
        (("t", "1mo"), {}, hc.HaloValueError, "^window: \"1mo\" is no duration: months"),
        (("t", 2.5), {}, hc.HaloTypeError, "^window: a duration .* is wanted, not 2.5$"),
        (("t", True), {}, hc.HaloTypeError, "^window: a duration .* is wanted, not True$"),
        (("t", (1, 2, 3)), {}, hc.HaloValueError, "^window: two lengths are wanted, before and after, not 3$"),
        (("t", ("1s", 2)), {}, hc.HaloValueError, "^window: .* mixes rows, time and units"),
        (("t", (1, None)), {}, hc.HaloTypeError, r"^window\[1\]: a duration .* is wanted, not None$"),
        (("t", "5i"), {"offset": "1s"}, hc.HaloValueError, "^offset: the window 5i, offset 1s mixes"),
        (("t", 5), {"offset": 1 << 40}, hc.HaloValueError, "^offset: .* rows are too many"),
        (("t", "5i"), {"offset": "1i", "center": True}, hc.HaloValueError, "^offset: a centred window .* give an offset or center=True$"),
        (("t", np.timedelta64(1, "M")), {}, hc.HaloValueError, "timedelta64.* is no length of a window: give weeks, days"),
        (("t", np.timedelta64("NaT", "s")), {}, hc.HaloValueError, "timedelta64.*NaT.* is no length of a window"),
        (("t", 5), {"closed": "neither"}, hc.HaloValueError, "^closed: there is no 'neither'; choose 'left', 'right', 'both' or 'none'$"),
        (("t", 5), {"route": "air"}, hc.HaloValueError, "^route: there is no 'air'"),
        (("t", 5), {"center": "yes"}, hc.HaloTypeError, "^center: True or False is wanted, not 'yes'$"),
        (("t", 5), {"threads": 0}, hc.HaloValueError, "^threads: an aggregation with 0 threads"),
        (("t", 5), {"deadline": -1}, hc.HaloValueError, "^deadline: a number of seconds, from 0, is wanted, not -1$"),
        (("t", 5), {"group": 3}, hc.HaloTypeError, "^group: a sequence of strings is wanted, not 3$"),
        (("t", 5), {"aggregate": "average"}, hc.HaloValueError, "^aggregate: there is no 'average'; choose 'sum', 'mean',"),
        (("t", 5), {"aggregate": ["sum", 3]}, hc.HaloTypeError, r"^aggregate\[1\]: the name of a statistic or a halocline.Statistic is wanted, not 3$"),
        (("t", 5), {"aggregate": {"v": ["sum", "x"]}}, hc.HaloValueError, r"^aggregate\[\"v\"\]\[1\]: there is no 'x'"),
        (("t", 5), {"aggregate": {"v": "quantile"}}, hc.HaloValueError, "^aggregate.*: 'quantile' needs q, from 0 to 1"),
        (("t", 5), {"aggregate": {3: "sum"}}, hc.HaloTypeError, "^aggregate: a str is wanted, not 3$"),
        (("t", 5), {"aggregate": {"v": ["sum", "sum"]}}, hc.HaloValueError, '^aggregate: two columns of the result are named "v_sum"'),
    ],
)
def test_wrong_arguments_are_errors_on_all_ranks(arguments, options, error, text):
    for raised in failures([FRAME, FRAME[:0]], *arguments, **options):
        assert isinstance(raised, error), repr(raised)
        with pytest.raises(error, match=text):
            raise raised


def test_an_argument_that_one_rank_refuses_is_an_error_elsewhere():
    def run(comm):
        with pytest.raises(hc.HaloError) as raised:
            hc.rolling(FRAME if comm.rank else 3, "t", "5i", comm=comm)
        return raised.value

    refused, elsewhere = hc.run_threads(2, run)
    assert type(refused) is hc.HaloTypeError and str(refused).startswith("table: ")
    assert type(elsewhere) is hc.RefusedElsewhereError and "rank 0" in str(elsewhere) and "table: " in str(elsewhere)


def test_ranks_that_differ_are_told():
    for error in failures([FRAME, FRAME.with_columns(v=pl.Series([1, 2, 3])).with_columns(t=pl.col("t") + 9)], "t", "5i"):
        assert isinstance(error, hc.HaloValueError) and str(error).startswith("table: rank 1 has columns [g Int64, t Int64, v Int64,")

    def run(comm):
        with pytest.raises(hc.HaloValueError, match="^window: rank 1 asks for 6i .*, rank 0 for 5i"):
            hc.rolling(FRAME, "t", f"{5 + comm.rank}i", comm=comm)

    hc.run_threads(2, run)


@pytest.mark.parametrize(
    "name, options, error, text",
    [
        ("mode", {}, hc.HaloValueError, "^name: there is no 'mode'"),
        ("quantile", {}, hc.HaloValueError, "^q: 'quantile' needs a number from 0 to 1$"),
        ("quantile", {"q": 1.5}, hc.HaloValueError, "^q: a number from 0 to 1 is wanted, not 1.5$"),
        ("quantile", {"q": "x"}, hc.HaloTypeError, "^q: a number is wanted, not 'x'$"),
        ("quantile", {"q": 0.5, "interpolation": "cubic"}, hc.HaloValueError, "^interpolation: there is no 'cubic'"),
        ("mean", {"q": 0.5}, hc.HaloValueError, "^q: it is a parameter of 'quantile', not of 'mean'$"),
        ("median", {"interpolation": "lower"}, hc.HaloValueError, "^interpolation: it is a parameter of 'quantile', not of 'median'$"),
        ("sum", {"ddof": 0}, hc.HaloValueError, "^ddof: it is a parameter of 'var' and 'std', not of 'sum'$"),
        ("var", {"ddof": 256}, hc.HaloValueError, r"^ddof: a whole number below 2\*\*8 is wanted"),
    ],
)
def test_wrong_parameters_of_statistics(name, options, error, text):
    with pytest.raises(error, match=text):
        hc.Statistic(name, **options)


def test_results_of_functions_need_a_row_for_each_row():
    for function, error, text in [
        (lambda rows: rows[:1], hc.HaloValueError, "^aggregate: 1 rows for the 3 rows of the context; give a row for each"),
        (lambda rows: 3.5, hc.HaloTypeError, "^aggregate: a table, .* with a row for each of 3 rows is wanted, not float$"),
        (lambda rows: {"a": 1, "b": 2, "c": 3}, hc.HaloTypeError, "^aggregate: a table, .* is wanted, not dict$"),
        (lambda rows: 1 / 0, ZeroDivisionError, "division"),
    ]:
        with pytest.raises(error, match=text):
            hc.rolling(FRAME, "t", "5i", aggregate=function)
    context = hc.rolling(FRAME, "t", "5i", columns="v")
    with pytest.raises(hc.HaloValueError, match='^aggregate: the rows of the window have no column "s", they have "t", "v"'):
        context.aggregate({"s": "count"})


def test_a_rank_that_does_not_come_misses_the_deadline():
    is_late = threading.Event()

    def run(comm):
        if comm.rank == 1:
            assert is_late.wait(60)
            with pytest.raises(hc.CommunicatorError):
                hc.rolling(FRAME, "t", "5i", deadline=0.2, comm=comm)
            return
        with pytest.raises(hc.CommunicatorTimeoutError, match="rank 1"):
            hc.rolling(FRAME, "t", "5i", deadline=0.2, comm=comm)
        is_late.set()

    hc.run_threads(2, run)


def test_a_closed_communicator_and_one_of_another_kind():
    with pytest.raises(hc.HaloTypeError, match="^comm: a halocline.Communicator is wanted, not 3$"):
        hc.rolling(FRAME, "t", "5i", comm=3)

    def run(comm):
        comm.close()
        with pytest.raises(hc.ClosedError):
            hc.rolling(FRAME, "t", "5i", comm=comm)

    hc.run_threads(1, run)


def test_ctrl_c_ends_a_wait():
    ends_well(
        """
        import os, signal, threading
        import polars as pl
        from halocline._core import ThreadGroup
        comm, other = ThreadGroup(2).ranks
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            hc.rolling(pl.DataFrame({"t": [1]}), "t", 3, comm=comm)
        except KeyboardInterrupt:
            print("interrupted")
        """,
        says="interrupted",
    )


def test_lengths_of_numpy_are_exact():
    days = [datetime.datetime(year, 1, 1) for year in (1700, 2000, 2020)]
    frame = pl.DataFrame({"t": pl.Series(days, dtype=pl.Datetime("ms")), "v": [1, 2, 4]})
    for window in (np.timedelta64(219000, "D"), datetime.timedelta(days=219000), "219000d"):
        assert hc.rolling(frame, "t", window, aggregate={"v": "sum"})["v_sum"].to_list() == [1, 3, 7]
