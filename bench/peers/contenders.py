"""The contenders: how each is found, how one of its blocks is started, and how its answer is read."""

from __future__ import annotations

import glob
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from cases import RANKS, Case

HERE = Path(__file__).resolve().parent
LONGEST_BLOCK_S = 120
# Cores whose cache-line round trip is shorter count as near; `halocline bench` has the same limit.
NEAR_NS = 250.0
# A block does not count if other programs used a larger share of the two cores.
BUSY = 0.05


@dataclass(frozen=True)
class Block:
    """One block of one contender: the median over its units of the slower rank's time."""

    us: float
    stamp_ns: float | None  # a cache line's round trip between the cores just before
    others: float  # share of the two cores' time that other programs used
    copy_us: float | None = None  # the copying pass in the same process
    path: str = ""
    version: str = ""

    @property
    def cores(self) -> str | None:
        """ "near", "far", or "busy" if other programs ran; None if the ranks share no cache line."""
        if self.others > BUSY:
            return "busy"
        if self.stamp_ns is None:
            return None
        return "near" if self.stamp_ns < NEAR_NS else "far"


class Failed(Exception):
    """A block failed; the text is the contender's error."""


class Missing(Exception):
    """A contender is not installed; the text says how to install it."""


@dataclass(frozen=True)
class Setting:
    """The environment that all contenders share."""

    folder: Path  # the virtual environment and harness.so
    halocline: Path
    cpus: list[int]


class Contender:
    """A name, and how to run one block of a case."""

    name: str
    ours = False

    def look(self, setting: Setting) -> None:
        """Raises Missing if it cannot run here."""
        raise NotImplementedError

    def block(self, setting: Setting, case: Case) -> Block:
        raise NotImplementedError


class Peer(Contender):
    """A script of this folder, one process a rank under mpirun."""

    def __init__(self, name: str, script: str, modules: str, how: str, ours: bool = False) -> None:
        self.name, self.script, self.modules, self.how, self.ours = name, script, modules, how, ours
        self.python = ""

    def look(self, setting: Setting) -> None:
        here = setting.folder / "venv" / "bin" / "python"
        # The first that has the modules: the environment made by --install, this Python, the system's.
        for python in [str(here), sys.executable, "/usr/bin/python3"]:
            if shutil.which(python) and _imports(python, f"numpy, mpi4py.MPI, {self.modules}"):
                self.python = python
                break
        if not self.python:
            raise Missing(self.how)
        if not _mpirun():
            raise Missing("apt-get install openmpi-bin")

    def block(self, setting: Setting, case: Case) -> Block:
        arguments = [case.name, str(setting.folder / "harness.so")]
        lines, others = run_peer(self.python, self.script, arguments, setting.cpus)
        answer = _only(lines, lambda line: line.get("case") == case.name)
        us, stamp = answer["median_ns"] / 1e3, answer["ping_before_ns"]
        return Block(us=us, stamp_ns=stamp, others=others, version=answer["version"])


def run_peer(python: str, script: str, arguments: list[str], cpus: list[int]) -> tuple[list[dict], float]:
    """Runs a script of this folder, one process a rank; as `_run`. Its last argument is the CPUs."""
    rank = [python, str(HERE / script), *arguments, ",".join(map(str, cpus))]
    return _run([_mpirun(), "-n", str(RANKS), "--bind-to", "none", *rank], cpus)


class Halocline(Contender):
    """`halocline bench halo`, which verifies, stamps, and also measures the copying pass."""

    ours = True

    def __init__(self, name: str, options: list[str], over_mpi: bool = False) -> None:
        self.name, self.options, self.over_mpi = name, options, over_mpi

    def look(self, setting: Setting) -> None:
        if not setting.halocline.exists():
            raise Missing("cargo build --release --package halocline-cli")
        if self.over_mpi and not _mpirun():
            raise Missing("apt-get install openmpi-bin")

    def block(self, setting: Setting, case: Case) -> Block:
        command = [str(setting.halocline), "bench", "halo", *case.arguments(), "--rounds", "1", "--json", *self.options]
        if self.over_mpi:
            command = _pinned_under_mpirun(command, setting.cpus)
        transport = "mpi" if self.over_mpi else "shm"
        lines, others = _run(command, setting.cpus)
        passes = _only(lines, lambda line: line.get("row") == "copying pass")
        answer = _only(lines, lambda line: line.get("row") not in ("copying pass", "empty exchange"))
        if answer["transport"] != transport:
            raise Failed(f"it was measured over {answer['transport']}, not {transport}")
        stamp = answer["blocks"][0]["round_trip_ns"]
        return Block(us=answer["us"], stamp_ns=stamp, others=others, copy_us=passes["us"], path=answer["path"])


INSTALL = "bench/peers/run --install"
OURS = Halocline("halocline", ["--memory", "shared"])
CONTENDERS: list[Contender] = [
    OURS,
    Halocline("halocline-own", ["--memory", "foreign"]),
    Halocline("halocline-mpi", ["--transport", "mpi", "--link", "message"], over_mpi=True),
    Peer("halocline-ghex", "peer_compat.py", "halocline.compat.ghex", f"{INSTALL}   (or --wheel)", ours=True),
    Peer("GHEX", "peer_ghex.py", "ghex", f"{INSTALL}   (pip install --no-binary ghex ghex==0.9.0)"),
    Peer("numpy+mpi4py", "peer_numpy.py", "mpi4py.MPI", f"{INSTALL}   (apt-get install python3-numpy python3-mpi4py)"),
    Peer("C gather", "peer_gather.py", "mpi4py.MPI", f"{INSTALL}   (apt-get install python3-numpy python3-mpi4py)"),
    Peer("PetscSF", "peer_petsc.py", "petsc4py.PETSc", f"{INSTALL}   (apt-get install python3-petsc4py)"),
]


def environment() -> dict[str, str]:
    """The environment variables of every contender."""
    own = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMP_NUM_THREADS": "1",
        # Under mpirun Halocline measures MPI messages; by default it would share memory on one node.
        "HALOCLINE_NODE_AWARE": "off",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    # Debian sets this only in the development package, which is not needed here.
    builds = sorted(glob.glob("/usr/lib/petscdir/petsc3*/*-real"))
    if builds and not os.path.exists("/usr/lib/petsc") and "PETSC_DIR" not in os.environ:
        own["PETSC_DIR"] = builds[-1]
    return {**os.environ, **own}


def _mpirun() -> str | None:
    """Open MPI's mpirun: Debian's mpi4py and petsc4py are built with it."""
    return shutil.which("mpirun.openmpi") or shutil.which("mpirun")


def _imports(python: str, modules: str) -> bool:
    command = [python, "-c", f"import {modules}"]
    return subprocess.run(command, env=environment(), capture_output=True, timeout=60).returncode == 0


def _pinned_under_mpirun(command: list[str], cpus: list[int]) -> list[str]:
    ranks = [["-n", "1", "taskset", "-c", str(cpu), *command] for cpu in cpus]
    joined = ranks[0]
    for rank in ranks[1:]:
        joined = [*joined, ":", *rank]
    return [_mpirun() or "mpirun", "--bind-to", "none", *joined]


def _run(command: list[str], cpus: list[int]) -> tuple[list[dict], float]:
    """Runs it on the two cores; returns the JSON objects that it printed, and `Block.others`."""
    start, busy, own = time.monotonic(), _busy_s(cpus), _children_s()
    process = subprocess.Popen(
        command,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, cpus),
    )
    try:
        out, errors = process.communicate(timeout=LONGEST_BLOCK_S)
    except subprocess.TimeoutExpired:
        errors = _end(process)
        raise Failed(f"not done after {LONGEST_BLOCK_S} s: {_gist(errors)}") from None
    if process.returncode != 0:
        raise Failed(f"exit code {process.returncode}: {_gist(errors)}")
    of_others = (_busy_s(cpus) - busy) - (_children_s() - own)
    others = max(0.0, of_others) / (len(cpus) * (time.monotonic() - start))
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")], others


def wait_for_quiet(cpus: list[int], until: float) -> None:
    """Returns once other programs leave the cores alone, or at that time of the monotonic clock."""
    while time.monotonic() < until:
        start, busy = time.monotonic(), _busy_s(cpus)
        time.sleep(0.2)
        if (_busy_s(cpus) - busy) / (len(cpus) * (time.monotonic() - start)) <= BUSY:
            return


def _busy_s(cpus: list[int]) -> float:
    """Time in which these processors were not idle, nor taken away by the machine's host."""
    names, total = {f"cpu{cpu}" for cpu in cpus}, 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *ticks = line.split()
        if name in names:
            user, nice, system, _idle, _iowait, irq, softirq = map(int, ticks[:7])
            total += user + nice + system + irq + softirq
    return total / os.sysconf("SC_CLK_TCK")


def _children_s() -> float:
    """Processor time of all that this process has started and seen the end of."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _end(process: subprocess.Popen) -> str:
    """Ends it and its ranks, and returns what it had to say."""
    # mpirun and halocline end their ranks on a signal.
    process.terminate()
    try:
        return process.communicate(timeout=10)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()[1]


def _gist(errors: str) -> str:
    """The lines of stderr that tell something."""
    lines = [line.strip() for line in errors.splitlines()]
    telling = [line for line in lines if line and not line.startswith(("---", "oomph warning"))]
    return " | ".join(telling[:4]) or "it said nothing"


def _only(lines: list[dict], wanted) -> dict:
    for line in lines:
        if wanted(line):
            return line
    raise Failed("it printed no result")
