"""``python -m halocline``: the command."""

import signal
import sys

from ._core import _run_command


def main():
    # As in any program that is not Python's: Ctrl-C ends it, and so does a reader that goes.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _run_command(["halocline", *sys.argv[1:]], [sys.executable, "-m", "halocline"])


if __name__ == "__main__":
    sys.exit(main())
