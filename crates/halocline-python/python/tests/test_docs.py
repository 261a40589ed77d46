"""Each Python block of the README and the guide runs as it stands."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
PAGES = [ROOT / "README.md", ROOT / "crates/halocline-python/README.md", *sorted((ROOT / "docs").rglob("*.md"))]

LIBRARIES = ["jax", "pandas", "polars", "pyarrow", "torch"]
"""What does not exist for every Python, or is large."""


def blocks(page):
    """The Python blocks of a page: the words behind ``python``, and the program."""
    text = page.read_text()
    return re.findall(r"^```python([^\n]*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def programs():
    for page in PAGES:
        for number, (words, program) in enumerate(blocks(page)):
            # A block marked `notest` needs a GPU, or a package that is not installed.
            if "notest" not in words:
                missing = [name for name in LIBRARIES if re.search(rf"^import {name}\b", program, re.MULTILINE) and importlib.util.find_spec(name) is None]
                marks = pytest.mark.skipif(bool(missing), reason=f"{' and '.join(missing)} is not installed")
                yield pytest.param(program, id=f"{page.relative_to(ROOT)} {number}", marks=marks)


LAUNCHERS = {
    "alone": [],
    "launched": [sys.executable, "-m", "halocline", "launch", "-n", "4", "--"],
    "mpirun": ["mpirun", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1", "-n", "4"],
}


def run(program, launcher, folder):
    root = {f"OMPI_ALLOW_RUN_AS_ROOT{confirm}": "1" for confirm in ("", "_CONFIRM")}
    command = [*LAUNCHERS[launcher], sys.executable, "-c", program]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, env=os.environ | root)
    assert done.returncode == 0, (command, done.stderr)


@pytest.mark.parametrize("launcher", ["alone", "launched"])
@pytest.mark.parametrize("program", list(programs()))
def test_programs_run(program, launcher, tmp_path):
    run(program, launcher, tmp_path)


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun")
def test_the_readme_runs_under_mpirun(tmp_path):
    for _, program in blocks(PAGES[0]):
        run(program, "mpirun", tmp_path)


def test_programs_that_cannot_run_here_compile():
    for page in PAGES:
        for number, (_, program) in enumerate(blocks(page)):
            compile(program, f"{page} {number}", "exec")
