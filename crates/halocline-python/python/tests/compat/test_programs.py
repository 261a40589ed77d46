"""Programs written for GHEX, each of which compares its fields with a NumPy oracle: over threads, over MPI, and under GHEX itself,
with equal results."""

import importlib
import json
import re
import subprocess
import sys

import pytest
from conftest import PROGRAMS, RANKS

import halocline as hc
from halocline.compat import ghex

NAMES = ["sets", "structured", "streams", "unstructured"]


@pytest.fixture
def as_ghex(monkeypatch):
    """``import ghex`` is ours, until the test is over."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "ghex" or name in (*NAMES, "common")]:
        monkeypatch.delitem(sys.modules, name)
    before = set(sys.modules)
    ghex.install()
    yield
    for name in set(sys.modules) - before:
        if name.partition(".")[0] == "ghex" or name in (*NAMES, "common"):
            del sys.modules[name]


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("name", NAMES)
def test_over_threads(as_ghex, name, ranks):
    program = importlib.import_module(name)
    found = hc.run_threads(ranks, program.run)
    assert len(found) == ranks and all(findings.fields for findings in found)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", NAMES)
def test_launched_the_same_is_found_as_by_threads(as_ghex, name, ranks):
    program = importlib.import_module(name)
    by_threads = sorted(str(findings) for findings in hc.run_threads(ranks, program.run))
    launch = [sys.executable, "-m", "halocline", "launch", "-n", str(ranks), "--no-prefix", "--"]
    ended = subprocess.run(
        [*launch, sys.executable, PROGRAMS / "launched.py", name], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert sorted(ended.stdout.splitlines()) == by_threads


def test_more_domains_than_ghex_gets_right(as_ghex, monkeypatch):
    program = importlib.import_module("unstructured")
    monkeypatch.setattr(program, "MOST", 24)
    assert len(hc.run_threads(8, program.run)) == 8


@pytest.fixture(scope="module", params=[(name, ranks) for name in NAMES for ranks in RANKS], ids=str)
def over_mpi(request, mpi4py, mpi_python):
    """A program, the number of ranks, and what they found."""
    name, ranks = request.param
    program = PROGRAMS / f"{name}.py"
    return program, ranks, mpi_python(sys.executable, ranks, "-m", "halocline.compat.ghex", program)


def test_over_mpi(over_mpi):
    _, ranks, found = over_mpi
    assert len(found) == ranks and all("fields right" in line for line in found)


def test_under_ghex_itself_the_same_is_found(over_mpi, mpi_python, ghex_python):
    program, ranks, found = over_mpi
    assert mpi_python(ghex_python, ranks, program) == found


def test_the_package_is_ghex_for_those_who_import_it_so():
    code = """
import halocline.compat.ghex as ours
ours.install()
ours.install()
import ghex, ghex.unstructured, ghex.structured.regular as regular
from ghex.context import make_context
from ghex.structured.cartesian_sets import UnitRange
from ghex.util import Architecture
assert ghex is ours and ghex.unstructured is ours.unstructured and regular is ours.structured.regular
assert ghex.__version__ == "0.9.0" and ghex.__config__ == ghex.config() and Architecture.CPU.value == "cpu"
ghex.print_config(ghex.config())
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["-h"], 0, "usage: .*program.py"),
        (["--help"], 0, "usage: .*program.py"),
        (["-m"], 2, "usage: .*program.py"),
        (["-x", "program.py"], 2, "usage: .*program.py"),
        (["nowhere.py"], 2, "cannot read the program: .*nowhere.py"),
        (["."], 1, "__main__"),
        (["raises.py"], 1, "FileNotFoundError: mine"),
        (["says.py", "-h"], 0, r"\['says.py', '-h'\] halocline.compat.ghex$"),
    ],
    ids=str,
)
def test_the_command_that_runs_a_program(tmp_path, arguments, code, said):
    (tmp_path / "raises.py").write_text("raise FileNotFoundError('mine')")
    (tmp_path / "says.py").write_text("import sys, ghex; print(sys.argv, ghex.__name__)")
    command = [sys.executable, "-m", "halocline.compat.ghex", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    text, other = (done.stderr, done.stdout) if code else (done.stdout, done.stderr)
    assert (done.returncode, other) == (code, ""), done
    assert re.search(said, text.strip()) and (code == 1 or "Traceback" not in text), text


def test_the_configuration_tells_of_gpus_once_asked(with_driver):
    code = """
import halocline.compat.ghex as ghex, halocline.compat.ghex.unstructured
from halocline._core import _gpus
print("imported")
print(ghex.__config__["gpu"], ghex.config()["gpu_mode"], _gpus())
assert ghex.__config__ is ghex.__config__
"""
    assert with_driver(code) == ["imported", "started 0", "True cuda 2"]


def test_the_configuration_is_what_the_machine_has():
    info = subprocess.run([sys.executable, "-m", "halocline", "info", "--json"], capture_output=True, text=True, check=True)
    there = bool(json.loads(info.stdout)["cuda"]["gpus"])
    assert ghex.config()["gpu"] is there and ghex.config()["gpu_mode"] == ("cuda" if there else "none")
    assert ghex.__config__ == ghex.config()
    with pytest.raises(AttributeError, match="no attribute 'configuration'"):
        ghex.configuration


@pytest.mark.parametrize("end", ["", "sys.exit()", "os.fork() and os.wait()", "halocline.init().close()"])
def test_a_pattern_that_lives_until_the_end_says_nothing(end):
    """Its end came after that of the rank, or in a forked child, and was an ignored exception."""
    code = f"""
import os, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
import halocline
import halocline.compat.ghex as ghex
from halocline.compat.ghex.context import make_context
from halocline.compat.ghex.structured import regular
from halocline.compat.ghex.structured.cartesian_sets import ProductSet, UnitRange

context = make_context(halocline.init(), True)
whole = ProductSet(UnitRange(0, 8))
domain = regular.DomainDescriptor(0, whole)
pattern = regular.make_pattern(context, regular.HaloGenerator(whole, (1,), (True,)), [domain])
communication = regular.make_communication_object(context)
field = np.zeros(10)
communication.exchange([pattern(regular.make_field_descriptor(domain, field, (1,), (10,)))]).wait()
{end}
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_it_does_not_take_the_place_of_a_ghex_that_is_imported(monkeypatch):
    monkeypatch.setitem(sys.modules, "ghex", pytest)
    with pytest.raises(hc.HaloError, match="already"):
        ghex.install()
