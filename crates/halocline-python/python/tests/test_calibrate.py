"""The gradient through 20 steps of the ocean is the derivative, on any number of ranks, and finds the diffusivities again."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

EXAMPLE = Path(__file__).parent.parent / "examples" / "calibrate.py"
TRUTH = [600.0, 1000.0, 800.0]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What each number of ranks has found."""
    folder, results = tmp_path_factory.mktemp("calibration"), {}
    for ranks in (1, 2, 4):
        file = folder / f"{ranks}.json"
        launch = ["-m", "halocline", "launch", "-n", ranks, "--no-prefix", "--", sys.executable] if ranks > 1 else []
        command = [sys.executable, *launch, EXAMPLE, "--json", file, *(["--check"] if ranks == 1 else [])]
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        results[ranks] = json.loads(file.read_text()) | {"said": done.stdout}
    return results


def test_the_gradient_equals_central_finite_differences(results):
    np.testing.assert_allclose(results[1]["history"][0]["gradient"], results[1]["differences"], rtol=1e-6)


@pytest.mark.parametrize("ranks", [2, 4])
def test_gradients_are_the_same_on_all_numbers_of_ranks(results, ranks):
    assert results[ranks]["ranks"] == ranks
    one, many = ([np.array(entry["gradient"]) for entry in results[n]["history"]] for n in (1, ranks))
    assert len(one) == len(many)
    np.testing.assert_allclose(many[0], one[0], rtol=1e-12)
    # Later ones vanish: what is rounded is the sum that they are.
    for ours, theirs in zip(many, one):
        assert np.all(np.abs(ours - theirs) <= 1e-12 * np.abs(one[0]))


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_true_diffusivities_are_found(results, ranks):
    history = results[ranks]["history"]
    np.testing.assert_allclose(history[-1]["diffusivity"], TRUTH, rtol=0.02)
    assert history[-1]["misfit"] < history[0]["misfit"] / 15
    lines = results[ranks]["said"].splitlines()
    assert lines[0].startswith("20 steps (14.6 days)") and len([line for line in lines if line.split()[0].isdigit()]) == 1 + len(history)


def test_a_plot_is_drawn(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    file = tmp_path / "calibration.png"
    command = [sys.executable, EXAMPLE, "--steps", "2", "--iterations", "1", "--plot", file]
    subprocess.run([*map(str, command)], check=True, capture_output=True, timeout=300)
    assert file.read_bytes().startswith(b"\x89PNG")
