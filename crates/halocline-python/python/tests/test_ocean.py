"""Real input: the ocean of ``halocline run ocean``, carried by NumPy, comes out the same to the last bit."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from repeats import repeats

EXAMPLE = Path(__file__).parent.parent / "examples" / "ocean.py"
STEPS = repeats(40, 8)


def run(*command):
    ended = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ocean")


@pytest.fixture(scope="module")
def truth(folder):
    """What the command computes, on two ranks, and has compared with one."""
    file = folder / "truth.npy"
    output = run("-m", "halocline", "run", "ocean", "--steps", STEPS, "--ranks", 2, "--no-plot", "--json", "--save", file)
    assert '"max_abs_diff":0.0,' in output
    return np.load(file)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_ocean_by_numpy_is_that_of_the_command(folder, truth, ranks):
    file = folder / f"of_{ranks}.npy"
    launch = ["-m", "halocline", "launch", "-n", ranks, "--no-prefix", "--", sys.executable] if ranks > 1 else []
    output = run(*launch, EXAMPLE, "--steps", STEPS, "--save", file)
    assert f"{STEPS} steps by {ranks} ranks on the host" in output
    mine = np.load(file)
    assert mine.shape == truth.shape == (3140, 47) and mine.dtype == truth.dtype
    assert mine.tobytes() == truth.tobytes(), np.abs(mine - truth).max()
    # It has moved.
    model = np.load(EXAMPLE.parents[4] / "data" / "fesom-pi" / "temp.npy")
    assert np.abs(mine - model).max() > 0.1
