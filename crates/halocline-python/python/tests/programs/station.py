"""A year of temperatures, sorted by time over the ranks: rolling windows, a running sum, and a mean for each month.

``station.py CSV FOLDER``: each rank reads its part of the file, and writes its results to FOLDER.
"""

import asyncio
import sys
from pathlib import Path

import numpy as np
import polars as pl

import halocline as hc


def read(path, rank, size):
    frame = pl.read_csv(path).with_columns(pl.col("date").str.to_datetime("%Y/%m/%d %H:%M"))
    bounds = [len(frame) * at // size for at in (rank, rank + 1)]
    return frame[bounds[0] : bounds[1]]


def running_sum(comm, line, frame):
    """The sum of all temperatures up to a row. A rank adds its own to what the ranks before it have, and passes that on."""
    own, before = frame["temp"].sum(), 0.0
    with line.session(7) as session:
        for turn in range(comm.size - 1):
            goes_on = turn == comm.rank and comm.rank + 1 < comm.size
            from_left, _ = session.round(right=np.array([before + own]) if goes_on else None)
            if isinstance(from_left, hc.Packet):
                (before,) = np.asarray(from_left.payload).view("f8")
    return before + frame["temp"].cum_sum()


async def largest_step(comm, line, frame):
    """The largest change from one row to the next, also across the border: the last row of the rank to the left."""
    has_right = comm.rank + 1 < comm.size
    round = line.start(right=frame["temp"][-1:].to_numpy() if has_right else None, id=8)
    # Meanwhile.
    largest = frame["temp"].diff().abs().max()
    from_left, _ = await round
    if from_left is None:
        return largest
    (before,) = np.asarray(from_left.payload).view("f8")
    return max(largest, abs(frame["temp"][0] - before))


def means_of_months(comm, frame):
    """Rank ``month % size`` computes a month, of rows that are on several ranks."""
    mine, sends = [], {}
    for (month,), rows in frame.group_by(pl.col("date").dt.month(), maintain_order=True):
        to = month % comm.size
        if to == comm.rank:
            mine.append(rows)
            continue
        sends.setdefault(to, []).append(hc.Packet(b"%d" % month, rows.write_ipc(None, compression="zstd").getvalue()))
    for packets in comm.sparse_alltoall(sends).values():
        mine += [pl.read_ipc(bytes(packet.payload)) for packet in packets]
    if not mine:
        return frame[:0].group_by(month=pl.col("date").dt.month()).agg(pl.col("temp").mean())
    return pl.concat(mine).group_by(month=pl.col("date").dt.month()).agg(pl.col("temp").mean())


def main(path, folder):
    comm = hc.init(deadline=60)
    frame = read(path, comm.rank, comm.size)
    line = comm.neighbor_exchange()
    found = hc.rolling(frame, "date", "5d", aggregate={"temp": ["mean", "max", "median"]}, comm=comm)
    found = found.with_columns(total=running_sum(comm, line, frame))
    found.write_ipc(folder / f"rows_{comm.rank}.arrow")
    means_of_months(comm, frame).write_ipc(folder / f"months_{comm.rank}.arrow")
    steps = comm.all_gather(np.float64(asyncio.run(largest_step(comm, line, frame))).tobytes())
    if comm.rank == 0:
        print("largest step", max(np.frombuffer(step)[0] for step in steps))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
