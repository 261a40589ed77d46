"""Workers of dask as ranks: ``halocline launch -n 3 -- dask worker ...``. Each worker is a process and a rank of one job."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")
pd = pytest.importorskip("pandas", reason="pandas is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

WORKERS = 3


@pytest.fixture
def client(tmp_path):
    scheduler_file = tmp_path / "scheduler.json"
    python = [sys.executable, "-m"]
    quiet = ["--no-dashboard", "--scheduler-file", str(scheduler_file)]
    # The workers find the functions of this file.
    options = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}}
    scheduler = subprocess.Popen([*python, "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", *quiet], **options)
    try:
        until = time.monotonic() + 60
        while not scheduler_file.exists() and time.monotonic() < until:
            assert scheduler.poll() is None
            time.sleep(0.05)
        worker = [*python, "distributed.cli.dask_worker", "--no-nanny", "--nthreads", "2", *quiet]
        launcher = subprocess.Popen([*python, "halocline", "launch", "-n", str(WORKERS), "--no-prefix", "--", *worker], **options)
        try:
            with distributed.Client(scheduler_file=str(scheduler_file), timeout=60) as client:
                client.wait_for_workers(WORKERS, timeout=60)
                yield client
                client.shutdown()
            assert launcher.wait(60) == 0
        finally:
            launcher.kill()
            launcher.wait()
    finally:
        scheduler.kill()
        scheduler.wait()


def rank_of_worker():
    import halocline as hc

    return hc.init().rank


def rolling_mean(part):
    import halocline as hc

    return hc.rolling(part, "time", "90m", aggregate={"value": ["mean", "count"]}, comm=hc.init())


def total_so_far(part):
    """A running sum over the ranks, by the sums of the ranks before."""
    import halocline as hc

    comm = hc.init()
    sums = comm.all_gather(part["value"].sum().tobytes())
    before = sum(np.frombuffer(one)[0] for one in sums[: comm.rank])
    return before + part["value"].cumsum()


def test_partitions_on_workers_exchange_rows(client):
    addresses = list(client.scheduler_info()["workers"])
    ranks = client.gather([client.submit(rank_of_worker, workers=[at], pure=False) for at in addresses])
    assert sorted(ranks) == list(range(WORKERS))
    by_rank = [address for _, address in sorted(zip(ranks, addresses))]

    random = np.random.default_rng(3)
    times = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.sort(random.integers(0, 40 * 86400, 30_000)), unit="s")
    frame = pd.DataFrame({"time": times, "value": random.normal(size=30_000)})
    bounds = [0, 14_000, 14_010, 30_000]
    parts = [client.scatter(frame[a:b], workers=[at]) for a, b, at in zip(bounds, bounds[1:], by_rank)]

    def on_all(function):
        # One task on each worker: they wait for each other.
        calls = zip(parts, by_rank)
        return pd.concat(client.gather([client.submit(function, part, workers=[at], pure=False) for part, at in calls]))

    for _ in range(3):
        found = on_all(rolling_mean)
        # pandas ends a window at its row, and here are rows of equal times.
        last = ~frame["time"].duplicated(keep="last")
        expected = frame.set_index("time")["value"].rolling("90min")
        np.testing.assert_allclose(found["value_mean"][last], expected.mean().to_numpy()[last], rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(found["value_count"][last], expected.count().to_numpy()[last])
    np.testing.assert_allclose(on_all(total_so_far), frame["value"].cumsum(), rtol=1e-9, atol=1e-9)
