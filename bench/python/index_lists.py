"""Index lists of CuPy arrays beside CuPy's own functions and beside a copy on the device; medians in milliseconds.

"bytes": what the list must read and write at least. "of copy": the time of a copy that reads and writes as many bytes, over the time of
the list. Each result is compared with CuPy's before it is timed.

    python bench/python/index_lists.py [--cells 100000000] [--repeats 20]
"""

import argparse
import statistics

import cupy

import halocline as hc


def median(repeats, call, lists=None):
    """Of the time of calls on the stream."""
    for _ in range(3):
        call()
    times = []
    for _ in range(repeats):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(begin, end))
    return statistics.median(times)


def copy_of(count, repeats):
    """A copy that reads and writes `count` bytes in all."""
    source = cupy.arange(count // 16, dtype="uint64")
    target = cupy.empty_like(source)
    return median(repeats, lambda: cupy.copyto(target, source))


def show(name, ours, cupys, count, repeats):
    copy = copy_of(count, repeats)
    print(f"{name:44} {ours:9.3f} {cupys:9.3f} {cupys / ours:7.2f} {count / 1e9:8.2f} {copy:9.3f} {copy / ours:8.2f}", flush=True)


def owners_of(cells, ranks, run, element):
    """Runs of equal owners, of random ranks."""
    owners = cupy.random.randint(0, ranks, (cells + run - 1) // run, dtype="int64")
    return cupy.repeat(owners, run)[:cells].astype(element)


def owned(lists, cells, repeats):
    for ranks, run, element, index in [
        (4, 1, "int32", "int32"),
        (4, 1000, "int32", "int32"),
        (1000, 1, "int32", "int32"),
        (4, 1, "int64", "int64"),
    ]:
        owners = owners_of(cells, ranks, run, element)
        found = cupy.empty(cells, dtype=index)
        lists.owned(owners, ranks, [1], found)
        [count] = lists.counts()
        wanted = cupy.nonzero(owners == 1)[0]
        assert count == wanted.size and (found[:count] == wanted).all()
        ours = median(repeats, lambda: lists.owned(owners, ranks, [1], found))
        cupys = median(repeats, lambda: cupy.nonzero(owners == 1))
        least = owners.nbytes + count * found.itemsize
        show(f"cells of 1 of {ranks} ranks, runs of {run}, {element}", ours, cupys, least, repeats)
    for ranks in (8, 256):
        owners = owners_of(cells, ranks, 1, "int32")
        found = cupy.empty(cells, dtype="int32")
        lists.owned(owners, ranks, range(ranks), found)
        wanted = cupy.argsort(owners, kind="stable")
        assert sum(lists.counts()) == cells and (found == wanted).all()
        del wanted
        ours = median(repeats, lambda: lists.owned(owners, ranks, range(ranks), found))
        cupys = median(3, lambda: cupy.argsort(owners, kind="stable"))
        show(f"cells of all of {ranks} ranks, int32", ours, cupys, owners.nbytes + found.nbytes, repeats)


def unique(lists, cells, repeats):
    for limit, element in [(cells // 4, "int32"), (cells // 4, "int64"), (1 << 62, "int64")]:
        ids = cupy.random.randint(0, limit, cells, dtype="int64").astype(element)
        wanted = cupy.unique(ids)
        found = cupy.empty_like(wanted)
        lists.unique(ids, found)
        assert lists.counts() == [wanted.size] and (found == wanted).all()
        ours = median(repeats, lambda: lists.unique(ids, found))
        cupys = median(max(repeats // 4, 3), lambda: cupy.unique(ids))
        show(f"unique ids below 2^{limit.bit_length() - 1}, {element}", ours, cupys, ids.nbytes + found.nbytes, repeats)
        del wanted


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--cells", type=int, default=100_000_000)
    arguments.add_argument("--repeats", type=int, default=20)
    given = arguments.parse_args()
    print(cupy.cuda.runtime.getDeviceProperties(0)["name"].decode(), "CuPy", cupy.__version__, f"{given.cells} cells")
    print(f"{'ms':44} {'Halocline':>9} {'CuPy':>9} {'times':>7} {'GB':>8} {'copy':>9} {'of copy':>8}")
    lists = hc.IndexLists()
    owned(lists, given.cells, given.repeats)
    unique(lists, given.cells, given.repeats)


if __name__ == "__main__":
    main()
