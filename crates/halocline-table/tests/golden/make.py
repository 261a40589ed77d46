"""Writes golden.json: results of polars and pandas for windows of small tables.

    pip install polars==2.1.0 pandas==3.1.1 numpy==2.4.6
    python make.py
"""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl

random = np.random.default_rng(20)


def table(rows: int, groups: int, gaps: list, missing: bool, with_nan: bool) -> pl.DataFrame:
    """Rows sorted by group and time, in microseconds; equal times where a gap is 0."""
    group = np.sort(random.integers(0, groups, rows))
    steps = random.choice(gaps, rows)
    time = np.concatenate([np.cumsum(steps[group == g]) for g in range(groups)])
    value = np.round(random.normal(0, 50, rows), 3)
    frame = pl.DataFrame({"group": [f"g{g}" for g in group], "time": time, "value": value})
    if with_nan:
        frame = frame.with_columns(pl.when(pl.int_range(pl.len()) % 9 == 4).then(math.nan).otherwise("value").alias("value"))
    if missing:
        frame = frame.with_columns(pl.when(pl.int_range(pl.len()) % 5 != 2).then("value").alias("value"))
    return frame.with_columns(pl.col("time").cast(pl.Int64))


tables = {
    "ties": table(20, 1, [0, 0, 1, 2, 7], missing=True, with_nan=False),
    "nan": table(20, 1, [0, 1, 3], missing=True, with_nan=True),
    "groups": table(20, 3, [0, 1, 2], missing=True, with_nan=False),
    "apart": table(20, 1, [1, 2, 3, 9], missing=False, with_nan=False),
}
cases = []


def number(value):
    if value is None:
        return None
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def add(engine, name, statistic, values, **window):
    cases.append({"engine": engine, "table": name, "statistic": statistic, **window, "expected": [number(v) for v in values]})


def stamped(name: str) -> pl.DataFrame:
    return tables[name].with_columns(pl.col("time").cast(pl.Datetime("us")))


CLOSED = ["left", "right", "both", "none"]
# polars: windows of time, by DataFrame.rolling, with offsets and groups. Its sum of no value is 0.
for name in ["ties", "groups"]:
    for period, offset in [("1us", None), ("3us", None), ("1000s", None), ("4us", "-9us"), ("4us", "1us"), ("6us", "-3us"), ("2us", "0us")]:
        for closed in CLOSED:
            by = "group" if name == "groups" else None
            rolled = stamped(name).rolling("time", period=period, offset=offset, closed=closed, group_by=by)
            column = pl.col("value")
            found = rolled.agg(
                column.sum().alias("sum"), column.mean().alias("mean"), column.min().alias("min"), column.max().alias("max"),
                column.count().alias("count"), column.first().alias("first"), column.last().alias("last"), column.var().alias("var"),
                column.std(ddof=0).alias("std0"), column.median().alias("median"),
            )
            for statistic in ["sum", "mean", "min", "max", "count", "first", "last", "var", "std0", "median"]:
                add("polars DataFrame.rolling", name, statistic, found[statistic].to_list(), period=period, offset=offset, closed=closed, min_samples=0)
# polars: rolling_*_by, with NaN and a least number of values.
for name in ["ties", "nan"]:
    for period in ["2us", "5us"]:
        for closed in CLOSED:
            for statistic in ["sum", "mean", "min", "max", "var"]:
                for least in [1, 3]:
                    call = getattr(pl.col("value"), f"rolling_{statistic}_by")
                    found = stamped(name).select(call("time", period, closed=closed, min_samples=least))["value"]
                    add("polars rolling_by", name, statistic, found.to_list(), period=period, closed=closed, min_samples=least)
# polars: quantiles.
for quantile in [0.0, 0.1, 0.25, 0.5, 0.9, 1.0]:
    for interpolation in ["nearest", "higher", "lower", "midpoint", "linear", "equiprobable"]:
        call = pl.col("value").rolling_quantile_by("time", "6us", quantile=quantile, interpolation=interpolation)
        add("polars rolling_by", "ties", "quantile", stamped("ties").select(call)["value"].to_list(), period="6us", closed="right",
            min_samples=1, quantile=quantile, interpolation=interpolation)
# polars: windows of rows.
for name in ["ties", "nan"]:
    for rows in [1, 3, 4]:
        for centered in [False, True]:
            for statistic in ["sum", "mean", "min", "max", "std"]:
                for least in [None, 1]:
                    call = getattr(pl.col("value"), f"rolling_{statistic}")
                    found = tables[name].select(call(rows, center=centered, min_samples=least))["value"]
                    add("polars rolling", name, statistic, found.to_list(), rows=rows, centered=centered, closed="right", min_samples=least)
# pandas: centred and closed windows. No equal times where a window is not centred: pandas ends it at its row.
for name in ["ties", "apart"]:
    frame = tables[name].drop_nulls().to_pandas()
    series = pd.Series(frame["value"].to_numpy(), index=pd.to_datetime(frame["time"], unit="us"))
    tables[f"{name} for pandas"] = tables[name].drop_nulls()
    for centered in [True] if name == "ties" else [True, False]:
        for period in ["4us", "5us", "10us"]:
            for closed in CLOSED:
                rolling = series.rolling(period, center=centered, closed="neither" if closed == "none" else closed, min_periods=1)
                for statistic in ["sum", "mean", "min", "max", "median", "var"]:
                    found = [None if math.isnan(v) else v for v in getattr(rolling, statistic)()]
                    add("pandas rolling", f"{name} for pandas", statistic, found, period=period, centered=centered, closed=closed, min_samples=1)
    for rows in [1, 3, 4]:
        for centered in [False, True]:
            for closed in CLOSED:
                rolling = pd.Series(frame["value"]).rolling(
                    rows, center=centered, closed="neither" if closed == "none" else closed, min_periods=1)
                found = [None if math.isnan(v) else v for v in rolling.sum()]
                add("pandas rolling", f"{name} for pandas", "sum", found, rows=rows, centered=centered, closed=closed, min_samples=1)

with Path(__file__).with_name("golden.json").open("w") as file:
    file.write(f'{{"polars": "{pl.__version__}", "pandas": "{pd.__version__}",\n"tables": {{\n')
    file.write(",\n".join(
        f"{json.dumps(name)}: " + json.dumps({c: [number(v) for v in frame[c].to_list()] for c in frame.columns})
        for name, frame in tables.items()))
    file.write("\n},\n\"cases\": [\n")
    file.write(",\n".join(json.dumps(case) for case in cases))
    file.write("\n]}\n")
print(f"{len(cases)} cases")
