"""Times calls in turn."""

import gc
import statistics
import time


def medians(ways, *, rounds=60, calls=400):
    """Microseconds a call of each way, a function of a number of calls: the median of rounds in which all take turns."""
    times = {name: [] for name in ways}
    for call in ways.values():
        call(20)
    gc.disable()
    try:
        for _ in range(rounds):
            for name, call in ways.items():
                count = calls if name not in SLOW else max(calls // 40, 5)
                begin = time.perf_counter_ns()
                call(count)
                times[name].append((time.perf_counter_ns() - begin) / count / 1000)
    finally:
        gc.enable()
    return {name: statistics.median(found) for name, found in times.items()}


SLOW = {"DaCe __call__", "GT4Py"}
"""Ways that cost a hundred microseconds or more."""


def repeated(call):
    """The way that makes one call again and again."""

    def calls(count):
        for _ in range(count):
            call()

    return calls


def show(title, table):
    """Prints rows of medians, by their names."""
    columns = list(next(iter(table.values())))
    print(f"\n{title}\n")
    print("| " + " | ".join(["arrays (C parameters)", *columns]) + " |")
    print("| --- " * (len(columns) + 1) + "|")
    for row, found in table.items():
        print("| " + " | ".join([row, *(f"{found[name]:.2f}" for name in columns)]) + " |")
