"""Tables for tests of ``halocline.rolling``, divided among ranks, and what polars says of the whole table."""

import numpy as np
import polars as pl

SECOND = 1_000_000
STATISTICS = {
    "sum": lambda column: column.sum(),
    "mean": lambda column: column.mean(),
    # With a NaN the result is NaN, as of `rolling_min` of polars.
    "min": lambda column: column.nan_min(),
    "max": lambda column: column.nan_max(),
    "count": lambda column: column.count(),
    "std": lambda column: column.std(),
    "var": lambda column: column.var(ddof=0),
    "first": lambda column: column.first(),
    "last": lambda column: column.last(),
    "median": lambda column: column.median(),
    "quantile_0.3": lambda column: column.quantile(0.3),
}


def frame_of(random, rows, with_ties=True, with_nan=False):
    """Rows sorted by group and time, with equal times, gaps and nulls."""
    steps = random.choice([0, 1, 1, 2, 30] if with_ties else [1, 1, 2, 30], rows) * SECOND // 2
    values = random.normal(10, 3, rows).round(3)
    if with_nan:
        values[random.random(rows) < 0.1] = np.nan
    frame = pl.DataFrame(
        {
            "group": np.sort(random.integers(0, 4, rows)).astype("i4"),
            "time": pl.Series(np.cumsum(steps), dtype=pl.Int64).cast(pl.Datetime("us")),
            "value": pl.Series(values).set(pl.Series(random.random(rows) < 0.1, dtype=pl.Boolean), None),
            "number": pl.Series(random.integers(-100, 100, rows), dtype=pl.Int32),
        }
    )
    return frame.with_columns(name=pl.format("station {}", "group"))


def parts(random, frame, ranks):
    """The rows of each rank; some have none."""
    cuts = np.sort(random.integers(0, len(frame) + 1, ranks - 1))
    if ranks > 2 and random.random() < 0.3:
        # Several ranks without rows, at an end.
        cuts[: ranks // 2] = random.choice([0, cuts[ranks // 2]])
    bounds = [0, *cuts.tolist(), len(frame)]
    return [frame.slice(start, end - start) for start, end in zip(bounds, bounds[1:])]


def statistics(halocline):
    """The argument ``aggregate`` for all of ``STATISTICS``."""
    special = {
        "var": halocline.Statistic("var", ddof=0),
        "quantile_0.3": halocline.Statistic("quantile", q=0.3),
    }
    return [special.get(name, name) for name in STATISTICS]


def by_polars(frame, window, closed="right", offset=None, group=None):
    """All statistics of windows of time of a whole table."""
    columns = [column for column in ("value", "number")]
    asked = [of(pl.col(column)).alias(f"{column}_{name}") for column in columns for name, of in STATISTICS.items()]
    return frame.rolling("time", period=window, offset=offset, closed=closed, group_by=group).agg(asked)


def assert_equal(found, expected):
    """Floating-point columns to 1e-9, others exactly."""
    assert found.columns == expected.columns
    for name in found.columns:
        ours, theirs = found[name], expected[name]
        assert len(ours) == len(theirs), name
        assert ours.is_null().equals(theirs.is_null()), (name, ours, theirs)
        if ours.dtype.is_float():
            np.testing.assert_allclose(
                ours.drop_nulls().to_numpy(), theirs.drop_nulls().to_numpy().astype("f8"), rtol=1e-9, atol=1e-9, err_msg=name
            )
        else:
            assert ours.drop_nulls().to_list() == theirs.drop_nulls().to_list(), name
