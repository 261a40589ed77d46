"""pandas in ``halocline.rolling``: types that hold nulls, the index as the key, lengths of NumPy and pandas."""

import datetime

import numpy as np
import pytest

import halocline as hc

pd = pytest.importorskip("pandas", reason="pandas is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

# Not a float64.
LARGE = 2**53 + 1


def rolling(table, by="t", window="2i", **options):
    return hc.rolling(table, by, window, **{"aggregate": {"v": "sum"}, **options})


@pytest.mark.parametrize("kind", ["Int64", "UInt64", "int64[pyarrow]"])
def test_nullable_numbers_keep_their_type_and_digits(kind):
    frame = pd.DataFrame({"t": [1, 2, 5], "v": pd.array([LARGE, None, 2 * LARGE - 1], kind)})
    context = rolling(frame, aggregate=None)
    pd.testing.assert_frame_equal(context.table, frame)
    found = rolling(frame, window="1i", aggregate={"v": ["sum", "max", "first", "mean", "count"]})
    is_arrow = "pyarrow" in kind
    assert found["v_count"].dtype == ("uint64[pyarrow]" if is_arrow else "UInt64")
    assert found["v_mean"].dtype == ("double[pyarrow]" if is_arrow else "Float64")
    for name in ("v_sum", "v_max", "v_first"):
        assert found[name].dtype == kind and found[name].to_list() == [LARGE, pd.NA, 2 * LARGE - 1], name
    # A function of the program gets the same type.
    found = rolling(frame, aggregate=lambda rows: rows[["v"]] + 1)
    assert found["v"].dtype == kind and found["v"].to_list() == [LARGE + 1, pd.NA, 2 * LARGE]


def test_other_types_with_nulls_come_back():
    frame = pd.DataFrame(
        {
            "t": pd.array([1, 2, 3], "Int16"),
            "flag": pd.array([True, None, False], "boolean"),
            "small": pd.array([1.5, None, 2.5], "Float32"),
            "text": pd.array(["a", None, "c"], "string"),
            "kind": pd.Categorical(["x", None, "y"]),
            "at": pd.to_datetime(["2024-01-01", None, "2024-01-03"]).tz_localize("Europe/Berlin"),
            "plain": [1.0, np.nan, 3.0],
            "v": [1, 2, 3],
        }
    )
    context = rolling(frame, aggregate=None, columns=["plain", "flag", "at", "text", "small", "kind", "v"])
    assert list(context.table.columns) == list(frame.columns)
    pd.testing.assert_frame_equal(context.table, frame)


def test_whole_numbers_beside_nulls_keep_their_digits():
    """Windows without enough values: NumPy's types have no null but NaN."""
    frame = pd.DataFrame({"t": [1, 2, 3], "v": [LARGE, 2, 3], "x": [0.5, 1.5, 2.5]})
    found = rolling(frame, window=2, aggregate=["max", "mean"])
    assert found["v_max"].dtype == "Int64" and found["v_max"].to_list() == [pd.NA, LARGE, 3]
    assert found["x_max"].dtype == found["v_mean"].dtype == "float64" and np.isnan(found["x_max"].iloc[0])
    # Without nulls they are NumPy's.
    assert rolling(frame, window=2, aggregate="max", min_samples=1)["v_max"].dtype == "int64"


def test_an_index_without_a_name_is_told_what_to_do():
    frame = pd.DataFrame({"v": [1.0, 2.0]}, index=pd.date_range("2024-01-01", periods=2))
    for by in ("index", "time"):
        with pytest.raises(hc.HaloValueError, match=rf"^table: it has no column '{by}', and its index has no name; .*frame.rename_axis\('{by}'\)$"):
            rolling(frame, by, "2d")
    with pytest.raises(hc.HaloTypeError, match=r"^by: the name of the key is wanted, not None; give the index .*frame.rename_axis\(\"time\"\), by=\"time\"$"):
        rolling(frame, None, "2d")
    found = rolling(frame.rename_axis("time"), "time", "2d")
    assert found["v_sum"].to_list() == [1.0, 3.0] and found.index.name == "time"


@pytest.mark.parametrize("three", [np.int64(3), np.int32(3), np.uint8(3), np.array(3)], ids=lambda three: str(three.dtype))
def test_integers_of_numpy_are_numbers_of_rows(three):
    frame = pd.DataFrame({"t": [1, 2, 3, 4, 5], "v": [1.0, 2.0, 4.0, 8.0, 16.0]})
    assert rolling(frame, window=three, min_samples=1)["v_sum"].to_list() == [1.0, 3.0, 7.0, 14.0, 28.0]
    pd.testing.assert_frame_equal(rolling(frame, window=(three, three)), rolling(frame, window=(3, 3)))
    pd.testing.assert_frame_equal(rolling(frame, window=2, offset=three), rolling(frame, window=2, offset=3))


@pytest.mark.parametrize("wrong", [True, np.True_, np.False_, np.float64(3), np.array([3, 4]), 3.0, None, pd.NaT])
def test_other_numbers_are_refused(wrong):
    frame = pd.DataFrame({"t": [1, 2], "v": [1.0, 2.0]})
    with pytest.raises(hc.HaloTypeError, match="^window: a duration .* or a number of rows is wanted, not "):
        rolling(frame, window=wrong)


@pytest.mark.parametrize(
    "length",
    [
        np.timedelta64(2, "s"),
        np.timedelta64(2000, "ms"),
        datetime.timedelta(seconds=2),
        pd.Timedelta("2s"),
        pd.Timedelta(2_000_000_000, "ns"),
        pd.Timedelta("2s").as_unit("s"),
    ],
    ids=lambda length: f"{type(length).__name__} {length}",
)
def test_timedeltas_are_lengths(length):
    times = pd.to_datetime([0, 1, 2, 10], unit="s")
    frame = pd.DataFrame({"t": times, "v": [1.0, 2.0, 4.0, 8.0]})
    assert rolling(frame, window=length)["v_sum"].to_list() == [1.0, 3.0, 6.0, 8.0]
    assert rolling(frame, window=(length, length))["v_sum"].to_list() == [7.0, 7.0, 6.0, 8.0]


def test_a_timedelta_of_pandas_keeps_its_nanoseconds():
    frame = pd.DataFrame({"t": pd.to_datetime([0, 1, 2], unit="ns"), "v": [1.0, 2.0, 4.0]})
    assert rolling(frame, window=pd.Timedelta(2, "ns"))["v_sum"].to_list() == [1.0, 3.0, 6.0]
    assert rolling(frame, window=np.timedelta64(2, "ns"))["v_sum"].to_list() == [1.0, 3.0, 6.0]


def test_the_default_of_quantiles_is_that_of_polars():
    pl = pytest.importorskip("polars", reason="polars is not installed")
    random = np.random.default_rng(7)
    frame = pl.DataFrame({"t": np.arange(300), "v": random.permutation(np.arange(300.0))})
    for q in (0.0, 0.1, 0.25, 0.3, 0.5, 0.75, 0.9, 1.0):
        for rows in (1, 2, 4, 7):
            of = {"v": [hc.Statistic("quantile", q=q, result="q"), hc.Statistic("quantile", q=q, interpolation="linear", result="l")]}
            found = rolling(frame, window=rows, aggregate=of)
            assert found["q"].equals(frame["v"].rolling_quantile(q, window_size=rows).rename("q"), null_equal=True)
            assert found["q"].drop_nulls().is_in(frame["v"].to_list()).all()
            # pandas' default is linear.
            theirs = frame.to_pandas()["v"].rolling(rows).quantile(q)
            np.testing.assert_allclose(found["l"].to_numpy(), theirs, rtol=1e-12)
        of = {"v": hc.Statistic("quantile", q=q, result="q")}
        expected = frame.rolling("t", period="6i").agg(pl.col("v").quantile(q))["v"].rename("q")
        assert rolling(frame, window="6i", aggregate=of)["q"].equals(expected)
    # The median lies in the middle, also between two values.
    expected = frame["v"].rolling_median(4)
    assert rolling(frame, window=4, aggregate={"v": "median"})["v_median"].equals(expected.rename("v_median"), null_equal=True)
