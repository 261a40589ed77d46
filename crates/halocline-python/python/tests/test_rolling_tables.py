"""A result of ``halocline.rolling`` is of the kind of its table. Rows are not copied on the way."""

import sys
import types

import numpy as np
import pytest

import halocline as hc

pl = pytest.importorskip("polars", reason="polars is not installed")
pd = pytest.importorskip("pandas", reason="pandas is not installed")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

FRAME = pl.DataFrame({"t": [1, 2, 3, 5, 8], "v": [1.0, None, 3.0, 4.0, 5.0], "text": list("abcde")})
SUMS = [1.0, 1.0, 3.0, 4.0, 5.0]


def rolling(table, by="t", window="2i", **options):
    return hc.rolling(table, by, window, **{"aggregate": {"v": "sum"}, **options})


def test_polars_gives_polars():
    found = rolling(FRAME)
    assert isinstance(found, pl.DataFrame) and found.equals(pl.DataFrame({"t": FRAME["t"], "v_sum": SUMS}))
    assert isinstance(rolling(FRAME, aggregate=None).table, pl.DataFrame)


def test_pyarrow_gives_pyarrow():
    table = FRAME.to_arrow()
    for given in (table, table.combine_chunks(), pa.concat_tables([table[:2], table[2:2], table[2:]]), table.to_batches()[0]):
        found = rolling(given)
        assert isinstance(found, pa.Table) and found.to_pydict() == {"t": table["t"].to_pylist(), "v_sum": SUMS}
    reader = pa.RecordBatchReader.from_batches(table.schema, iter(table.to_batches(max_chunksize=2)))
    assert rolling(reader)["v_sum"].to_pylist() == SUMS


def test_any_stream_of_arrow_gives_pyarrow():
    class Foreign:
        def __arrow_c_stream__(self, requested_schema=None):
            return FRAME.__arrow_c_stream__(requested_schema)

    found = rolling(Foreign())
    assert isinstance(found, pa.Table) and found["v_sum"].to_pylist() == SUMS


def test_pandas_gives_pandas_with_its_index():
    frame = FRAME.to_pandas()
    frame.index = [7, 7, 3, 1, 0]
    found = rolling(frame)
    pd.testing.assert_frame_equal(found, pd.DataFrame({"t": frame["t"], "v_sum": SUMS}, index=frame.index))
    times = frame.set_index(pd.to_datetime(frame["t"], unit="s").rename("time"))
    found = rolling(times, "time", "2s")
    pd.testing.assert_frame_equal(found, times[["v"]].rolling("2s").sum().rename(columns={"v": "v_sum"}))
    assert found.index.equals(times.index)
    context = rolling(times, "time", "2s", aggregate=None)
    assert context.table.index.name == "time" and list(context.table.columns) == ["t", "v", "text"]


def test_pandas_keeps_the_types_of_keys():
    frame = pd.DataFrame({"g": pd.Categorical(["a", "a", "b"]), "t": pd.array([1, 2, 3], "Int16"), "v": [1.0, 2.0, np.nan]})
    found = rolling(frame, group="g", aggregate=["sum", "count"])
    assert found.dtypes.to_dict() == {"g": frame["g"].dtype, "t": frame["t"].dtype, "v_sum": "f8", "v_count": "u8"}
    assert found["v_count"].tolist() == [1, 2, 0] and np.isnan(found["v_sum"].iloc[2])
    two = frame.set_index(["g", "t"])
    found = rolling(two, group="g")
    assert list(found.columns) == ["v_sum"] and found.index.equals(two.index)


def test_columns_that_are_not_needed_may_be_of_any_type():
    frame = FRAME.with_columns(wide=pl.col("t").cast(pl.Int128), any=pl.Series([object()] * 5, dtype=pl.Object))
    assert rolling(frame)["v_sum"].to_list() == SUMS
    mixed = FRAME.to_pandas().assign(any=[object(), 3, "x", None, 2.5])
    mixed[7] = 1.0
    assert rolling(mixed)["v_sum"].tolist() == SUMS


def test_a_rank_may_have_no_rows_of_any_kind():
    for empty in (FRAME[:0], FRAME[:0].to_arrow(), FRAME.to_pandas().iloc[:0], FRAME.to_arrow().schema.empty_table()):
        found = rolling(empty, columns="text", aggregate={"v": ["mean", "std"]})
        assert len(found) == 0 and type(found) is type(empty)


def test_own_rows_of_arrow_are_not_copied():
    table = FRAME.drop_nulls().to_arrow().combine_chunks()
    context = rolling(table, aggregate=None)
    address = lambda rows: rows["v"].chunk(0).buffers()[1].address  # noqa: E731
    assert address(context.table) == address(table)
    column = np.arange(1000.0)
    shared = pa.table({"t": np.arange(1000), "v": column})
    assert address(rolling(shared, aggregate=None).table) == column.ctypes.data


def test_rows_live_as_long_as_the_context():
    def context():
        return rolling(pa.table({"t": np.arange(100_000), "v": np.arange(100_000.0)}), aggregate=None)

    contexts = [context() for _ in range(5)]
    streams = [one.__arrow_c_stream__() for one in contexts]
    del streams[::2]
    tables = [one.table for one in contexts]
    del contexts
    for table in tables:
        np.testing.assert_array_equal(table["v"], np.arange(100_000.0))


def test_cudf_gives_cudf(monkeypatch):
    """A stand-in for cuDF's class, with the methods that are used."""

    class DataFrame:
        def __init__(self, table):
            self.host = table

        def to_arrow(self, preserve_index):
            assert preserve_index is False
            return self.host

        @classmethod
        def from_arrow(cls, table):
            return cls(table)

        def __len__(self):
            return len(self.host)

        @property
        def iloc(self):
            return self.host.to_pandas().iloc

    module = types.ModuleType("cudf")
    DataFrame.__module__ = "cudf.core.dataframe"
    monkeypatch.setitem(sys.modules, "cudf", module)
    found = rolling(DataFrame(FRAME.to_arrow()))
    assert type(found) is DataFrame and found.host["v_sum"].to_pylist() == SUMS
    assert type(rolling(DataFrame(FRAME.to_arrow()), aggregate=None).table) is DataFrame
    assert rolling(DataFrame(FRAME.to_arrow()), aggregate=lambda rows: rows)["t"].tolist() == [1, 2, 3, 5, 8]


@pytest.mark.parametrize(
    "table, text",
    [
        (FRAME.lazy(), "^table: a LazyFrame has no rows before it is computed"),
        (FRAME["t"], r"^table: .* is wanted, not a single column \(polars.Series\)$"),
        (FRAME.to_pandas()["t"], r"not a single column \(pandas.Series\)$"),
        (pa.array([1, 2]), r"^table: .* is wanted, not "),
        ({"t": [1]}, "^table: a table of pyarrow, .* is wanted, not dict$"),
        (None, "^table: .* is wanted, not NoneType$"),
        (pd.DataFrame({"t": [1, 2], "v": [object(), 3]}), "^table: pandas cannot give it to Arrow: "),
        (pl.DataFrame({"t": [1], "v": [object()]}), "^table: column 'v' has objects of Python, which do not travel; drop it$"),
        (FRAME.with_columns(v=pl.col("t").cast(pl.Int128)), "^table: the table cannot be read: .*pli128"),
    ],
    ids=["lazy", "a series of polars", "a series of pandas", "an array", "a dict", "None", "objects", "objects of polars", "128 bits"],
)
def test_other_objects_are_refused(table, text):
    with pytest.raises(hc.HaloTypeError, match=text):
        rolling(table)


def test_two_columns_of_one_name_are_refused():
    for table in (pa.table([[1], [2]], names=["t", "t"]), pd.DataFrame([[1, 2]], columns=["t", "t"])):
        with pytest.raises(hc.HaloValueError, match="^table: two columns are named 't'; give each a name of its own$"):
            rolling(table)


def test_two_levels_of_an_index_of_one_name_are_refused():
    index = pd.MultiIndex.from_arrays([[1, 2], [3, 4]], names=["t", "t"])
    frame = pd.DataFrame({"v": [1.0, 2.0]}, index=index)
    with pytest.raises(hc.HaloValueError, match="^table: two levels of the index are named 't'; give each a name of its own$"):
        rolling(frame)
    # A column has that name, too: the levels are not the key.
    assert rolling(frame.assign(t=[1, 2]))["v_sum"].tolist() == [1, 3]


def test_a_producer_that_fails_is_quoted():
    class Refuses:
        def __arrow_c_stream__(self, requested_schema=None):
            raise ValueError("no rows today")

    class Wrong:
        def __arrow_c_stream__(self, requested_schema=None):
            return 3

    def batches():
        yield FRAME.to_arrow().to_batches()[0]
        raise OSError("the disk is gone")

    reader = pa.RecordBatchReader.from_batches(FRAME.to_arrow().schema, batches())
    for given, error, text in [
        (Refuses(), hc.HaloTypeError, "^table: it cannot be read: no rows today$"),
        (Wrong(), hc.HaloTypeError, "^table: it cannot be read: "),
        (reader, OSError, "the disk is gone"),
    ]:
        with pytest.raises(error, match=text):
            rolling(given)


def test_a_column_of_polars_with_nulls_alone_is_read():
    frame = FRAME.select("t", pl.Series("v", [None] * 5))
    assert frame["v"].dtype == pl.Null
    assert rolling(frame, aggregate={"v": "count"})["v_count"].to_list() == [0] * 5
