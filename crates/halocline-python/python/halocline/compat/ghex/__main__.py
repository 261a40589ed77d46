"""``python -m halocline.compat.ghex program.py [arguments]`` runs a program written for GHEX."""

import os
import runpy
import sys

from halocline.compat.ghex import install

if len(sys.argv) < 2:
    sys.exit("usage: python -m halocline.compat.ghex program.py [arguments]")
sys.argv = sys.argv[1:]
# As for any script: modules beside it are found.
sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
install()
runpy.run_path(sys.argv[0], run_name="__main__")
