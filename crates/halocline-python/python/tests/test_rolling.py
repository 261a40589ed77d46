"""Rolling windows over tables of several ranks are those of the whole table."""

import datetime

import numpy as np
import pytest

import halocline as hc

pl = pytest.importorskip("polars", reason="polars is not installed")
pd = pytest.importorskip("pandas", reason="pandas is not installed")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from repeats import seeds  # noqa: E402
from windows import assert_equal, by_polars, frame_of, parts, statistics  # noqa: E402

CLOSED = ["left", "right", "both", "none"]


def over(tables, *arguments, **options):
    """The results of ranks, in order; a rank for each table."""
    return hc.run_threads(len(tables), lambda comm: hc.rolling(tables[comm.rank], *arguments, comm=comm, **options))


@pytest.mark.parametrize("ranks", [1, 2, 4, 5])
@pytest.mark.parametrize("closed", CLOSED)
@pytest.mark.parametrize("group", [None, "group"])
@pytest.mark.parametrize("with_nan", [False, True])
def test_windows_of_time_are_those_of_polars(ranks, closed, group, with_nan):
    for seed in seeds(4):
        random = np.random.default_rng([seed, ranks])
        frame = frame_of(random, int(random.integers(0, 150)), with_nan=with_nan)
        window, offset = [("5s", None), ("700ms", None), ("3s", "-9s"), ("2s", "1s")][seed % 4]
        found = over(
            parts(random, frame, ranks), "time", window, closed=closed, offset=offset, group=group, columns=["value", "number"],
            aggregate=statistics(hc), min_samples=0, threads=1,
        )
        expected = by_polars(frame, window, closed, offset, group)
        assert_equal(pl.concat(found), expected)


@pytest.mark.parametrize("ranks", [1, 3, 4])
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("group", [None, "group"])
def test_windows_of_rows_are_those_of_polars(ranks, center, group):
    for seed in seeds(5):
        rows = [1, 2, 5, 8, 40][seed % 5]
        random = np.random.default_rng([seed, ranks])
        frame = frame_of(random, int(random.integers(1, 120)))
        found = pl.concat(
            over(parts(random, frame, ranks), "time", rows, center=center, group=group, aggregate={"value": ["mean", "max"], "number": "sum"})
        )
        value, number = pl.col("value"), pl.col("number").cast(pl.Int64)
        asked = {
            "value_mean": value.rolling_mean(rows, center=center),
            "value_max": value.rolling_max(rows, center=center),
            "number_sum": number.rolling_sum(rows, center=center),
        }
        if group is not None:
            asked = {name: one.over(group) for name, one in asked.items()}
        assert_equal(found, frame.select(*([group] if group else []), "time", **asked))


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("closed", CLOSED)
def test_windows_are_those_of_pandas(ranks, closed):
    in_pandas = {"none": "neither"}.get(closed, closed)
    for seed in seeds(3):
        random = np.random.default_rng([seed, ranks])
        # Of equal times pandas ends a window at its row.
        frame = frame_of(random, 100, with_ties=False).to_pandas().drop(columns="name")
        tables = [part.to_pandas() for part in parts(random, pl.from_pandas(frame), ranks)]
        for window, center in [("5s", False), ("3s", True), (6, False)]:
            found = pd.concat(over(tables, "time", window, closed=closed, center=center, aggregate={"value": ["mean", "count"]}))
            on = "time" if isinstance(window, str) else None
            expected = frame[["time", "value"] if on else ["value"]].rolling(window, on=on, closed=in_pandas, center=center)
            np.testing.assert_allclose(found["value_mean"], expected.mean()["value"], rtol=1e-9)
            assert list(found.columns) == ["time", "value_mean", "value_count"] and len(found) == len(frame)


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("window", ["5s", "700ms", 3, 8])
def test_windows_of_groups_with_ties_are_those_of_pandas(ranks, window):
    names = ["sum", "mean", "min", "max", "std", "count"]
    for seed in seeds(3):
        random = np.random.default_rng([seed, ranks])
        # pandas has NaN for null.
        frame = frame_of(random, int(random.integers(1, 150)), with_nan=True).to_pandas()
        frame["value"] = frame["value"].astype("f8")
        tables = [part.to_pandas() for part in parts(random, pl.from_pandas(frame), ranks)]
        found = pd.concat(over(tables, "time", window, group="group", aggregate={"value": names}, min_samples=1))
        groups = frame.groupby("group")
        if isinstance(window, str):
            theirs = groups.rolling(window, on="time")["value"].agg(names).reset_index(drop=True)
            # Of rows of one time pandas ends each window at its row: the last window has them all.
            theirs = theirs.groupby([frame["group"], frame["time"]]).transform(lambda rows: rows.iloc[-1])
        else:
            theirs = groups["value"].rolling(window, min_periods=1).agg(names).reset_index(drop=True)
        for name in names:
            ours = found[f"value_{name}"].astype("f8")
            if name == "count":
                # Without a value `min_samples` makes it null.
                ours = ours.fillna(0)
            # The online sums of pandas keep an error of the values that have left the window.
            np.testing.assert_allclose(ours, theirs[name], rtol=1e-7, atol=1e-7, err_msg=name)


def test_lengths_in_all_forms():
    frame = pl.DataFrame({"t": [0, 1, 2, 5, 6, 9], "v": [1.0, 2, 3, 4, 5, 6]})
    seconds = frame.with_columns(pl.from_epoch("t", time_unit="s"))

    def sums(table, window, **options):
        return pl.concat(over([table[:2], table[2:]], "t", window, aggregate={"v": "sum"}, **options))["v_sum"].to_list()

    delta = datetime.timedelta(seconds=3)
    expected = [1, 3, 6, 4, 9, 6]
    for window in ("3s", delta, pd.Timedelta("3s"), np.timedelta64(3, "s"), np.timedelta64(3000, "ms")):
        assert sums(seconds, window) == expected
    assert sums(frame, "3i") == expected
    assert sums(frame, (1, 1)) == [None, 6, 9, 12, 15, None]
    assert sums(frame, (1, 1), min_samples=1) == [3, 6, 9, 12, 15, 11]
    assert sums(frame, ("1i", "1i"), closed="both") == [3, 6, 5, 9, 9, 6]
    assert sums(frame, 2, offset=1) == [3, 5, 7, 9, 11, None]
    assert sums(frame, 2, offset=-1) == [None, None, 3, 5, 7, 9]
    assert sums(seconds, delta, offset=-2 * delta, min_samples=0) == [0, 0, 0, 6, 5, 9]
    assert sums(frame, 3, route="relay") == sums(frame, 3, route="direct") == [None, None, 6, 9, 12, 15]


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "Europe/Zurich"])
def test_units_and_time_zones(unit, zone):
    time = pl.datetime_range(
        datetime.datetime(2024, 3, 30), datetime.datetime(2024, 4, 2), "1h", time_unit=unit, time_zone=zone, eager=True
    )
    frame = pl.DataFrame({"time": time, "v": np.arange(len(time)) % 7})
    found = pl.concat(over([frame[:30], frame[30:31], frame[31:]], "time", "12h", aggregate={"v": "sum"}))
    assert_equal(found, frame.rolling("time", period="12h").agg(v_sum=pl.col("v").sum()))


def test_dates_and_keys_of_integers():
    days = pl.date_range(datetime.date(2024, 2, 1), datetime.date(2024, 3, 20), eager=True)
    frame = pl.DataFrame({"day": days, "v": np.arange(len(days), dtype="u1")})
    found = pl.concat(over([frame[:9], frame[9:]], "day", "5d", aggregate="max"))
    assert_equal(found, frame.rolling("day", period="5d").agg(v_max=pl.col("v").max()))


@pytest.mark.parametrize("kind", [pl.String, pl.Categorical, pl.Enum([f"station {n}" for n in range(4)])], ids=str)
def test_groups_of_text(kind):
    random = np.random.default_rng(3)
    frame = frame_of(random, 80).with_columns(pl.col("name").cast(kind))
    found = pl.concat(over(parts(random, frame, 4), "time", "5s", group=["name"], aggregate={"number": "sum"}))
    expected = frame.rolling("time", period="5s", group_by="name").agg(number_sum=pl.col("number").cast(pl.Int64).sum())
    assert found.schema["name"] == kind
    assert_equal(found, expected)


def test_the_columns_of_the_result():
    frame = pl.DataFrame({"g": [1, 1], "t": [1, 2], "a": [1.0, 2], "b": [3, 4]})

    def columns(**options):
        (found,) = over([frame], "t", "5i", **options)
        return found.columns

    assert columns(aggregate="mean") == ["t", "g_mean", "a_mean", "b_mean"]
    assert columns(aggregate=["min", hc.Statistic("max")], group="g", columns="b") == ["g", "t", "b_min", "b_max"]
    named = hc.Statistic("quantile", q=0.9, interpolation="nearest", result="high")
    assert columns(aggregate={"a": ["first", named], "t": "count"}) == ["t", "a_first", "high", "t_count"]
    assert repr(named) == "Statistic('quantile', q=0.9, interpolation='nearest', result=\"high\")"
    assert repr(hc.Statistic("std")) == "Statistic('std', ddof=1)" and repr(hc.Statistic("median")) == "Statistic('median')"


def test_a_function_computes_with_the_engine_of_the_program():
    random = np.random.default_rng(5)
    frame = frame_of(random, 120)
    expected = frame.rolling("time", period="5s", group_by="group").agg(x=pl.col("value").mean())

    def by_frame(rows):
        return rows.rolling("time", period="5s", group_by="group").agg(x=pl.col("value").mean())

    tables = parts(random, frame, 4)
    assert_equal(pl.concat(over(tables, "time", "5s", group="group", aggregate=by_frame)), expected)
    # A column.
    found = over(tables, "time", 4, aggregate=lambda rows: rows["number"].cast(pl.Int64).rolling_sum(4))
    assert pl.concat(found).equals(frame["number"].cast(pl.Int64).rolling_sum(4))
    # An array, with the columns that are needed alone.
    found = over(tables, "time", 4, columns="number", aggregate=lambda rows: (rows.columns, rows["number"].to_numpy())[1])
    np.testing.assert_array_equal(np.concatenate(found), frame["number"])
    # pandas, with the key in the index.
    whole = frame.to_pandas().set_index("time")[["value"]]
    bounds = np.cumsum([0, *map(len, tables)])
    own = [whole.iloc[start:end] for start, end in zip(bounds, bounds[1:])]
    found = pd.concat(over(own, "time", 7, aggregate=lambda rows: rows.rolling(7).mean()))
    pd.testing.assert_frame_equal(found, whole.rolling(7).mean(), check_freq=False)
    # pyarrow.
    found = over([table.to_arrow() for table in tables], "time", 2, columns=[], aggregate=lambda rows: rows)
    assert pa.concat_tables(found).equals(frame.select("time").to_arrow())


def test_the_context_tells_the_rows_apart():
    frame = pl.DataFrame({"t": np.arange(12), "v": np.arange(12.0)})
    bounds = [0, 4, 4, 9, 12]
    tables = [frame[start:end] for start, end in zip(bounds, bounds[1:])]
    contexts = over(tables, "t", (2, 1))
    for rank, context in enumerate(contexts):
        start, end = bounds[rank], bounds[rank + 1]
        if start == end:
            assert len(context) == 0 and context.windows().shape == (0, 2) and len(context.own(context.table)) == 0
            continue
        low, high = max(start - 2, 0), min(end + 1, 12)
        assert context.table.equals(frame[low:high]) and len(context) == high - low
        assert context.own_rows == slice(start - low, end - low)
        np.testing.assert_array_equal(context.mask, (np.arange(low, high) >= start) & (np.arange(low, high) < end))
        assert (context.first_row, context.total_rows) == (start, 12)
        assert context.own(context.table).equals(tables[rank])
        windows = context.windows()
        assert windows.dtype == np.int64
        for row, (first, stop) in zip(range(start, end), windows.tolist()):
            assert (first, stop) == (max(row - 2, 0) - low, min(row + 2, 12) - low)
        sums = context.aggregate({"v": "sum"}, min_samples=1)
        rows = context.table["v"].to_numpy()
        assert sums["v_sum"].to_list() == [rows[first:stop].sum() for first, stop in windows]
        assert pa.table(context).num_rows == len(context)
        assert context.traffic["rows_received"] == len(context) - (end - start)
        assert repr(context) == f"RollingContext({high - low} rows, own rows {start - low}:{end - low})"
    assert {context.traffic["route"] for context in contexts} <= {"relay", "direct"}
