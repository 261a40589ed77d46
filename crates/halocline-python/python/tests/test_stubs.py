"""The stub knows what may be called how."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from typing import Any
import halocline as hc

class CuPy:
    ptr = 7

comm = hc.init()
pattern = hc.RegularGrid((8,)).decompose(comm).pattern(1)
field: Any = hc.zeros(pattern.shape, comm=comm, device=0)
field = hc.empty(pattern.shape, device=0)
host = hc.zeros(pattern.shape, comm=comm)
halo = hc.HaloExchange(comm, [(pattern, host)])
links = hc.PatternLinks(comm, [pattern])

def exchange(flag: bool) -> None:
    for pending in (halo.exchange(wait=flag), links.exchange([(pattern, host)], wait=flag)):
        if pending is not None:
            pending.schedule_wait([CuPy(), None])
    halo.exchange(wait=False).schedule_wait(CuPy())
    halo.schedule_wait([hc.Stream(0)])
    links.schedule_exchange([(pattern, host)], [CuPy()]).wait()
"""


def test_what_can_be_called_passes_mypy(tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed")
    (tmp_path / "program.py").write_text(PROGRAM)
    configuration = Path(__file__).resolve().parents[2] / "pyproject.toml"
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--config-file", configuration, "program.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
