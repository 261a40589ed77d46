"""``python -m halocline.compat.ghex program.py [arguments]`` runs a program written for GHEX."""

import runpy
import sys

from halocline.compat.ghex import install

if len(sys.argv) < 2:
    sys.exit("usage: python -m halocline.compat.ghex program.py [arguments]")
sys.argv = sys.argv[1:]
install()
runpy.run_path(sys.argv[0], run_name="__main__")
