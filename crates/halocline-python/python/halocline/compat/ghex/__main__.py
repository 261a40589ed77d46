"""``python -m halocline.compat.ghex program.py [arguments]`` runs a program written for GHEX."""

import os
import runpy
import sys

from halocline.compat.ghex import install

USAGE = "usage: python -m halocline.compat.ghex program.py [arguments]"

if sys.argv[1:2] in (["-h"], ["--help"]):
    print(f"{USAGE}\n\nRuns a program written for GHEX, as python does, with this package in the place of GHEX.")
    sys.exit()
if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
    print(USAGE, file=sys.stderr)
    sys.exit(2)
sys.argv = sys.argv[1:]
if not os.path.isdir(sys.argv[0]):
    try:
        open(sys.argv[0], "rb").close()
    except OSError as error:
        print(f"python -m halocline.compat.ghex: cannot read the program: {error}", file=sys.stderr)
        sys.exit(2)
# As for any script: modules beside it are found.
sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
install()
runpy.run_path(sys.argv[0], run_name="__main__")
