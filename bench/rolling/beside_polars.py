"""Rolling statistics beside polars and pandas, in turn, on the same rows and cores; results are compared.

    cargo build --release --bin halocline && cargo build --release -p halocline-table --example rolling_times
    pip install polars pyarrow pandas
    python bench/rolling/beside_polars.py --rows 10000000 --window 1000 --ranks 1,2,4 --cores 2

Ranks are processes over shared memory. The threads of a rank are the cores divided by the ranks, at least one. polars uses as many threads as
there are cores, pandas one.
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
arguments.add_argument("--cores", type=int, default=2)
arguments.add_argument("--ranks", default="1,2,4", help="numbers of ranks")
arguments.add_argument("--repeat", type=int, default=5)
arguments.add_argument("--statistics", default="mean,sum,min,max,std,median")
arguments.add_argument("--kinds", default="time,rows", help="kinds of windows")
arguments.add_argument("--nulls", action="store_true", help="every 13th value is null")
arguments.add_argument("--no-pandas", action="store_true")
arguments.add_argument("--target", default="target/release", help="folder of the programs")
given = arguments.parse_args()
os.environ["POLARS_MAX_THREADS"] = str(given.cores)

import numpy as np  # noqa: E402  (polars reads the variable when it is imported)
import polars as pl  # noqa: E402

random = np.random.default_rng(7)
value = pl.Series("value", random.normal(20.0, 5.0, given.rows))
frame = pl.DataFrame({"time": pl.Series(np.arange(given.rows, dtype=np.int64) * 1_000_000).cast(pl.Datetime("us")), "value": value})
if given.nulls:
    frame = frame.with_columns(pl.when(pl.int_range(pl.len()) % 13 != 0).then("value").alias("value"))
frame = frame.rechunk().with_columns(pl.col("time").set_sorted())


def in_polars(kind: str, statistic: str):
    column = pl.col("value")
    if kind == "time":
        return getattr(column, f"rolling_{statistic}_by")("time", f"{given.window}s")
    return getattr(column, f"rolling_{statistic}")(given.window)


def in_pandas(kind: str, statistic: str) -> float:
    """The seconds of one run."""
    import pandas as pd

    series = pd.Series(frame["value"].to_numpy(), index=pd.DatetimeIndex(frame["time"].to_numpy()))
    rolling = series.rolling(f"{given.window}s" if kind == "time" else given.window)
    start = time.perf_counter()
    getattr(rolling, statistic)()
    return time.perf_counter() - start


def difference(ours: pl.Series, theirs: pl.Series) -> float:
    """The largest relative difference; infinite where nulls differ."""
    if len(ours) != len(theirs) or (ours.is_null() != theirs.is_null()).any():
        return float("inf")
    a, b = ours.drop_nulls().to_numpy(), theirs.drop_nulls().to_numpy()
    return float(np.max(np.abs(a - b) / np.maximum(np.abs(b), 1e-300), initial=0.0))


class Ranks:
    """Ranks of `rolling_times`, each with its part of the table."""

    def __init__(self, folder: str, ranks: int):
        self.ranks, self.data, self.result = ranks, Path(folder, f"data{ranks}"), Path(folder, f"result{ranks}")
        for rank in range(ranks):
            start, end = given.rows * rank // ranks, given.rows * (rank + 1) // ranks
            part = frame.slice(start, end - start).rechunk()
            part.write_ipc(f"{self.data}.{rank}", compression="uncompressed", record_batch_size=end - start,
                           compat_level=pl.CompatLevel.oldest())
        threads = max(1, given.cores // ranks)
        command = [f"{given.target}/halocline", "launch", "--no-prefix", "-n", str(ranks), "--",
                   f"{given.target}/examples/rolling_times", str(self.data), str(threads)]
        self.program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.name = f"{ranks} x {threads}"

    def ask(self, line: str) -> dict:
        self.program.stdin.write(line + "\n")
        self.program.stdin.flush()
        answer = self.program.stdout.readline()
        if not answer:
            sys.exit("the ranks have ended")
        return json.loads(answer)

    def found(self) -> pl.Series:
        self.ask(f"write {self.result}")
        parts = [Path(f"{self.result}.{rank}") for rank in range(self.ranks)]
        result = pl.concat([pl.read_ipc(part.read_bytes()) for part in parts]).to_series()
        for part in parts:
            part.unlink()
        return result


def median(answers: list[dict], name: str) -> float:
    return statistics.median(answer[name] for answer in answers)


with tempfile.TemporaryDirectory() as folder:
    jobs = [Ranks(folder, int(ranks)) for ranks in given.ranks.split(",")]
    print(f"polars {pl.__version__}, {given.rows} rows, windows of {given.window} rows, {given.cores} cores; medians of {given.repeat} runs in turn", flush=True)
    print("| window | statistic | polars s | pandas s | ranks x threads | halocline s | ratio to polars | check s | exchange us | share of exchange | "
          "relay us | direct us | rows | bytes | largest relative difference |")
    print("| --- " * 15 + "|")
    for kind in given.kinds.split(","):
        window = f"{given.window}s" if kind == "time" else str(given.window)
        for statistic in given.statistics.split(","):
            expression, times, in_turn = in_polars(kind, statistic), [], [[] for _ in jobs]
            for _ in range(given.repeat):
                start = time.perf_counter()
                expected = frame.select(expression)["value"]
                times.append(time.perf_counter() - start)
                for job, answers in zip(jobs, in_turn):
                    routes = {route: job.ask(f"{window} {statistic} {route}") for route in ["relay", "direct"] if job.ranks > 1}
                    answer = job.ask(f"{window} {statistic}")
                    answers.append(answer | {route: routes[route]["exchange"] for route in routes})
            theirs = statistics.median(times)
            pandas = "" if given.no_pandas else f"{in_pandas(kind, statistic):.3f}"
            for job, answers in zip(jobs, in_turn):
                ours, exchange = median(answers, "seconds"), median(answers, "exchange")
                routes = [f"{median(answers, route) * 1e6:.0f}" if job.ranks > 1 else "" for route in ["relay", "direct"]]
                print(f"| {kind} | {statistic} | {theirs:.3f} | {pandas} | {job.name} | {ours:.3f} | {ours / theirs:.2f} | {median(answers, 'check'):.4f} | "
                      f"{exchange * 1e6:.0f} | {exchange / ours:.2%} | {' | '.join(routes)} | {answers[-1]['rows']} | {answers[-1]['bytes']} | "
                      f"{difference(job.found(), expected):.1e} |", flush=True)
            del expected
    for job in jobs:
        job.program.stdin.close()
        job.program.wait()
