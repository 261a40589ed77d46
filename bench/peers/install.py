"""Installs the peers: packages from Debian, GHEX from PyPI into a virtual environment, and Halocline's Python package beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

# GHEX is compiled here (some minutes); numpy, mpi4py and petsc4py are Debian's, as they have to share one MPI.
PACKAGES = (
    "libopenmpi-dev openmpi-bin libboost-dev g++ python3-dev python3-venv python3-numpy python3-mpi4py python3-petsc4py"
).split()
GHEX = ["--no-binary", "ghex", "ghex==0.9.0"]
PYTHON = "/usr/bin/python3"


def install(folder: Path) -> None:
    """CalledProcessError or SystemExit if something cannot be had."""
    apt = shutil.which("apt-get")
    if apt is None:
        raise SystemExit(f"There is no apt-get here. Wanted are {' '.join(PACKAGES)}, and ghex==0.9.0 by pip.")
    root = [] if os.geteuid() == 0 else ["sudo"]
    _call([*root, apt, "update", "--quiet"])
    _call([*root, apt, "install", "--yes", "--quiet", "--no-install-recommends", *PACKAGES])
    venv = folder / "venv"
    # The system's Python, since Debian's packages are made for it.
    _call([PYTHON, "-m", "venv", "--system-site-packages", str(venv)])
    _call([str(venv / "bin" / "pip"), "install", *GHEX])
    install_halocline(folder)


def install_halocline(folder: Path) -> None:
    """The Python package as it is here."""
    bin, wheels = folder / "venv" / "bin", folder / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    _call([str(bin / "pip"), "install", "--quiet", "maturin>=1.9,<2"])
    crate = Path(__file__).resolve().parent.parent.parent / "crates" / "halocline-python" / "Cargo.toml"
    wanted = ["--release", "--auditwheel", "skip", "--interpreter", str(bin / "python"), "--out", str(wheels)]
    _call([str(bin / "maturin"), "build", "--manifest-path", str(crate), *wanted])
    _call([str(bin / "pip"), "install", "--force-reinstall", "--no-deps", *map(str, wheels.glob("*.whl"))])


def _call(command: list[str]) -> None:
    print("+", " ".join(command), flush=True)
    subprocess.run(command, check=True)
