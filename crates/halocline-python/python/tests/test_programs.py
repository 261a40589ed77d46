"""Whole programs of several processes, which a program of Python starts: several at a time, with failures."""

import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

pl = pytest.importorskip("polars", reason="polars is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

HERE = Path(__file__).resolve().parent
CSV = HERE.parents[3] / "data/seattle-temps/seattle-temps.csv"


def launch(ranks, *program, **options):
    command = [sys.executable, "-m", "halocline", "launch", "-n", str(ranks), "--no-prefix", "--", sys.executable, *map(str, program)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


@pytest.mark.skipif(not CSV.exists(), reason="the repository's data is not here")
def test_programs_beside_each_other_compute_what_one_process_does(tmp_path):
    frame = pl.read_csv(CSV).with_columns(pl.col("date").str.to_datetime("%Y/%m/%d %H:%M"))
    temp = pl.col("temp")
    rows = frame.rolling("date", period="5d").agg(
        temp_mean=temp.mean(), temp_max=temp.max(), temp_median=temp.median()
    ).with_columns(total=frame["temp"].cum_sum())
    months = frame.group_by(month=pl.col("date").dt.month()).agg(temp.mean()).sort("month")
    step = frame["temp"].diff().abs().max()

    def job(ranks):
        folder = tmp_path / str(ranks)
        folder.mkdir()
        done = launch(ranks, HERE / "programs/station.py", CSV, folder)
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"largest step {step}\n" and not done.stderr
        whole = {what: pl.concat([pl.read_ipc(folder / f"{what}_{rank}.arrow") for rank in range(ranks)]) for what in ("rows", "months")}
        found = whole["rows"]
        assert found["date"].equals(frame["date"]) and found["temp_max"].equals(rows["temp_max"])
        for name in ("temp_mean", "temp_median", "total"):
            np.testing.assert_allclose(found[name], rows[name], rtol=1e-12)
        np.testing.assert_allclose(whole["months"].sort("month"), months, rtol=1e-12)

    with ThreadPoolExecutor(3) as jobs:
        list(jobs.map(job, [1, 2, 5]))


def test_a_rank_that_raises_ends_the_program_of_all():
    body = """
        import halocline as hc
        comm = hc.init(deadline=60)
        with comm.neighbor_exchange().session() as session:
            for turn in range(100):
                if (comm.rank, turn) == (1, 30):
                    raise ZeroDivisionError("rank 1 has divided by zero")
                session.round()
    """
    done = launch(3, "-c", textwrap.dedent(body))
    assert done.returncode != 0 and "ZeroDivisionError: rank 1 has divided by zero" in done.stderr, done


def test_a_rank_that_is_killed_is_named_by_the_others():
    body = f"""
        import os
        import numpy as np
        import halocline as hc
        comm = hc.init(deadline=60)
        ring = comm.neighbor_exchange(periodic=True)
        try:
            for turn in range(100):
                if (comm.rank, turn) == (2, 30):
                    os.kill(os.getpid(), {signal.SIGKILL})
                ring.exchange(right=np.zeros(100_000), left=b"x")
        except (hc.CommunicatorError, hc.PacketExchangeError) as error:
            print(comm.rank, error, flush=True)
    """
    done = launch(3, "-c", textwrap.dedent(body))
    assert done.returncode != 0
    lines = sorted(line for line in done.stdout.splitlines())
    # The launcher may end a rank before it has said so.
    assert all(line[0] in "01" and "rank 2" in line for line in lines), done
