"""Halocline through the interface of GHEX: the very program that measures GHEX, with another import."""

from __future__ import annotations

import os

# Ranks of a node share memory, as GHEX's do by MPI.
os.environ.pop("HALOCLINE_NODE_AWARE", None)

import halocline
from halocline.compat import ghex

ghex.install()

import peer_ghex
from harness import main

if __name__ == "__main__":
    main("halocline-ghex", halocline.__version__, peer_ghex.prepare)
