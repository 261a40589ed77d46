"""Times the start of 1 and of 4 processes that need one program: built by each alone, in one build folder, or once through the cache.

Each process imports what it needs and says so; then all get the program at once. A row has the time from there until the last process has
called its program and ended, the longest time of one process in that step, and the CPU time of all processes and their compilers in it, which
says more on a busy machine. The last is the time of whole processes, imports included, when they start together. The ways take turns; a figure is
the median of the rounds, in seconds. DaCe keeps compiled headers and commands in a folder of its own (DACE_BUILD_CACHE_DIR): it is empty at
the start of each round.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WORKER = Path(__file__).with_name("cold_worker.py")

WAYS = {
    "DaCe, a folder for each process": "dace-own",
    "DaCe, one folder": "dace-shared",
    "Halocline's cache, cold": "cache",
    "Halocline's cache, warm": "cache",
    "GT4Py, cold": "gt4py",
    "GT4Py, warm": "gt4py",
    "GT4Py with Halocline's cache, cold": "gt4py-cache",
    "GT4Py with Halocline's cache, warm": "gt4py-cache",
}


def run(way, processes, folder, waits):
    """Seconds until all have ended, how many failed, the longest time of the step itself in one process, and its CPU time in all."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "DACE_BUILD_CACHE_DIR": str(folder / "of-dace")}
    environ["GT4PY_BUILD_CACHE_DIR"] = str(folder / "of-gt4py")
    environ["GT4PY_BUILD_CACHE_LIFETIME"] = "PERSISTENT"
    for name in ("of-dace", "of-gt4py"):
        (folder / name).mkdir(exist_ok=True)
    begin = time.perf_counter()
    started = [
        subprocess.Popen(
            [sys.executable, WORKER, way, folder, str(number)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ, cwd=folder,
        )
        for number in range(processes)
    ]
    if waits:
        for process in started:
            assert process.stdout.readline() == "ready\n", process.communicate()[1]
        begin = time.perf_counter()
    for process in started:
        process.stdin.write("go\n")
        process.stdin.flush()
    steps, cpu, failed = [], 0.0, 0
    for process in started:
        out, error = process.communicate()
        if process.returncode != 0:
            failed += 1
            print(error.strip().splitlines()[-1][:150], file=sys.stderr)
        else:
            step, used = map(float, out.split()[-2:])
            steps.append(step)
            cpu += used
    return time.perf_counter() - begin, failed, max(steps, default=float("nan")), cpu


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["dace", "gt4py"], help="only the ways with this toolchain")
    arguments = parser.parse_args()
    rounds, found = arguments.rounds, {}
    ways = {name: way for name, way in WAYS.items() if arguments.only in (None, "gt4py" if "GT4Py" in name else "dace")}
    for number in range(rounds):
        for processes in (1, 4):
            for waits in (True, False):
                folders = {way: tempfile.TemporaryDirectory() for way in set(ways.values())}
                for name, way in ways.items():
                    took = run(way, processes, Path(folders[way].name), waits)
                    print(f"{name}, {processes} processes: {took}", file=sys.stderr, flush=True)
                    found.setdefault((name, processes, waits), []).append(took)
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    print("way,processes,s until all have the program,s of a process in that step,s of CPU in all,s of whole processes,failed processes")
    for name in ways:
        for processes in (1, 4):
            after, whole = found[name, processes, True], found[name, processes, False]
            failed = sum(failed for _, failed, _, _ in after + whole)
            medians = [statistics.median(column) for column in (
                [total for total, *_ in after], [step for _, _, step, _ in after], [cpu for *_, cpu in after], [total for total, *_ in whole],
            )]
            print(",".join([f'"{name}"', str(processes), *(f"{median:.3f}" for median in medians), f"{failed} of {2 * rounds * processes}"]))


main()
