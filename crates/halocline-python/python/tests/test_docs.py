"""What the documentation shows is what runs."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]


def programs():
    pages = {"README": "README.md", "PyPI": "crates/halocline-python/README.md", "memory": "docs/memory.md"}
    for name, path in pages.items():
        text = (ROOT / path).read_text()
        for number, program in enumerate(re.findall(r"```python\n(.*?)```", text, re.DOTALL)):
            yield f"{name} {number}", program
    page = (ROOT / "docs/python.md").read_text()
    indented = re.search(r"\n((?:    .*\n|\n)+)", page).group(1)
    yield "docs/python.md", re.sub(r"^    ", "", indented, flags=re.MULTILINE)


LAUNCHERS = {
    "alone": [],
    "launched": [sys.executable, "-m", "halocline", "launch", "-n", "4", "--"],
    "mpirun": ["mpirun", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1", "-n", "4"],
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("name, program", list(programs()), ids=lambda x: x if len(x) < 20 else "")
def test_programs(name, program, launcher):
    if launcher == "mpirun" and shutil.which("mpirun") is None:
        pytest.skip("there is no mpirun")
    root = {f"OMPI_ALLOW_RUN_AS_ROOT{confirm}": "1" for confirm in ("", "_CONFIRM")}
    command = [*LAUNCHERS[launcher], sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ | root)
    assert done.returncode == 0, (name, command, done.stderr)
