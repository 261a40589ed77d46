"""Runs a program of this folder as a rank of ``halocline launch``, without MPI. Argument: its name."""

import importlib
import sys

import halocline as hc
from halocline.compat import ghex

ghex.install()
found = str(importlib.import_module(sys.argv[1]).run(hc.init()))
# In one piece: ranks write beside each other.
sys.stdout.write(found + "\n")
sys.stdout.flush()
