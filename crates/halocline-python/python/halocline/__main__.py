"""``python -m halocline``: the command."""

import signal
import sys

from ._core import _run_command


def main():
    # As in a program that is not written in Python: Ctrl-C ends it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _run_command(["halocline", *sys.argv[1:]], [sys.executable, "-m", "halocline"])


if __name__ == "__main__":
    sys.exit(main())
