"""How a program written for GHEX is started: by name, as a module, as a command, from standard input; and what its children find."""

import os
import subprocess
import sys

import pytest

SAYS = "import sys, ghex, ghex.structured.regular; print(sys.argv, ghex.__name__, __name__)"
OURS = "halocline.compat.ghex"


def run(arguments, folder, stdin=""):
    command = [sys.executable, *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, cwd=folder)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("arguments", "stdin", "argv"),
    [
        (["says.py", "-v", "a"], "", ["says.py", "-v", "a"]),
        (["-c", SAYS, "-v", "a"], "", ["-c", "-v", "a"]),
        (["-m", "says", "-v", "a"], "", ["{folder}/says.py", "-v", "a"]),
        (["-", "-v", "a"], SAYS, ["-", "-v", "a"]),
        ([], SAYS, [""]),
    ],
    ids=["program", "-c", "-m", "-", "stdin"],
)
def test_it_starts_programs_as_python_does(tmp_path, arguments, stdin, argv):
    (tmp_path / "says.py").write_text(SAYS)
    said = run(["-m", OURS, *arguments], tmp_path, stdin)
    assert said == f"{[argument.format(folder=tmp_path) for argument in argv]} {OURS} __main__"


CHILDREN = """
import multiprocessing, subprocess, sys
INSTALL
import ghex
def work(_):
    import ghex.unstructured
    return ghex.__name__
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(work, [0]))
"""


@pytest.mark.parametrize("way", ["command", "install"])
def test_children_that_are_spawned_find_it(tmp_path, way):
    install = "" if way == "command" else f"import {OURS}; {OURS}.install()"
    (tmp_path / "spawns.py").write_text(CHILDREN.replace("INSTALL", install))
    assert run([*(["-m", OURS] if way == "command" else []), "spawns.py"], tmp_path) == f"['{OURS}']"


def test_children_that_are_other_programs_find_it(tmp_path):
    (tmp_path / "says.py").write_text(SAYS)
    code = "import subprocess, sys; subprocess.run([sys.executable, 'says.py'], check=True)"
    assert run(["-m", OURS, "-c", code], tmp_path) == f"['says.py'] {OURS} __main__"


@pytest.mark.parametrize("way", ["command", "install"])
def test_the_version_of_the_distribution_is_told(tmp_path, way):
    code = "import importlib.metadata; print(importlib.metadata.version('ghex'))"
    if way == "install":
        said = run(["-c", f"import {OURS}; {OURS}.install(); {code}"], tmp_path)
    else:
        said = run(["-m", OURS, "-c", code], tmp_path)
    assert said == "0.9.0"


def test_what_the_package_has_for_it_says_the_version_of_the_interface():
    import halocline.compat.ghex as ghex

    path = os.path.join(ghex._INSTALLED, f"ghex-{ghex.__version__}.dist-info", "METADATA")
    assert f"Version: {ghex.__version__}\n" in open(path).read()
