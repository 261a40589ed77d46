"""Rolling statistics beside polars, in turns, on the same rows and cores; results are compared.

    cargo build --release -p halocline-table --example rolling_times
    pip install polars pyarrow
    python bench/rolling/beside_polars.py --rows 10000000 --window 1000 --threads 2 --ranks 1

polars reads POLARS_MAX_THREADS, which this script sets to threads times ranks.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--rows", type=int, default=10_000_000)
arguments.add_argument("--window", type=int, default=1000, help="rows of a window")
arguments.add_argument("--threads", type=int, default=2, help="threads of a rank")
arguments.add_argument("--ranks", type=int, default=1, help="ranks, as threads of one process")
arguments.add_argument("--repeat", type=int, default=5)
arguments.add_argument("--statistics", default="mean,sum,min,max,std,median")
arguments.add_argument("--nulls", action="store_true", help="every 13th value is null")
arguments.add_argument("--program", default="target/release/examples/rolling_times")
given = arguments.parse_args()
os.environ["POLARS_MAX_THREADS"] = str(given.threads * given.ranks)

import numpy as np  # noqa: E402  (polars reads the variable when it is imported)
import polars as pl  # noqa: E402

random = np.random.default_rng(7)
value = pl.Series("value", random.normal(20.0, 5.0, given.rows))
frame = pl.DataFrame({"time": pl.Series(np.arange(given.rows, dtype=np.int64) * 1_000_000).cast(pl.Datetime("us")), "value": value})
if given.nulls:
    frame = frame.with_columns(pl.when(pl.int_range(pl.len()) % 13 != 0).then("value").alias("value"))
frame = frame.with_columns(pl.col("time").set_sorted())


def in_polars(kind: str, statistic: str):
    column = pl.col("value")
    if kind == "time":
        return getattr(column, f"rolling_{statistic}_by")("time", f"{given.window}s")
    return getattr(column, f"rolling_{statistic}")(given.window)


def difference(ours: pl.Series, theirs: pl.Series) -> float:
    """The largest relative difference; infinite where nulls differ."""
    if (ours.is_null() != theirs.is_null()).any():
        return float("inf")
    a, b = ours.drop_nulls().to_numpy(), theirs.drop_nulls().to_numpy()
    return float(np.max(np.abs(a - b) / np.maximum(np.abs(b), 1e-300), initial=0.0))


with tempfile.TemporaryDirectory() as folder:
    data, result = Path(folder, "data.arrow"), Path(folder, "result.arrow")
    frame.rechunk().write_ipc(data, compression="uncompressed", compat_level=pl.CompatLevel.oldest())
    program = subprocess.Popen(
        [given.program, str(data), str(given.threads), str(given.ranks)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
    )

    def ask(line: str) -> dict:
        program.stdin.write(line + "\n")
        program.stdin.flush()
        answer = program.stdout.readline()
        if not answer:
            sys.exit(f"{given.program} has ended")
        return json.loads(answer)

    print(f"polars {pl.__version__}, {given.rows} rows, windows of {given.window} rows, "
          f"{given.ranks} ranks of {given.threads} threads; medians of {given.repeat} runs in turn")
    print("| window | statistic | polars s | halocline s | ratio | exchange s | rows received | largest relative difference |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for kind, window in [("time", f"{given.window}s"), ("rows", str(given.window))]:
        for statistic in given.statistics.split(","):
            expression, times, answers = in_polars(kind, statistic), [], []
            for _ in range(given.repeat):
                start = time.perf_counter()
                expected = frame.select(expression)["value"]
                times.append(time.perf_counter() - start)
                answers.append(ask(f"{window} {statistic}"))
            ask(f"write {result}")
            found = pl.read_ipc(result).to_series()
            theirs = statistics.median(times)
            ours = statistics.median(answer["seconds"] for answer in answers)
            exchange = statistics.median(answer["exchange"] for answer in answers)
            print(f"| {kind} | {statistic} | {theirs:.3f} | {ours:.3f} | {ours / theirs:.2f} | {exchange:.4f} | "
                  f"{answers[-1]['rows_received']} | {difference(found, expected):.1e} |", flush=True)
    program.stdin.close()
    program.wait()
