"""``python -m halocline.compat.ghex program.py [arguments]`` runs a program written for GHEX."""

import os
import runpy
import sys
import types
from typing import NoReturn

from halocline.compat.ghex import _INSTALLED, install

USAGE = "usage: python -m halocline.compat.ghex [-m module | -c command | program.py | -] [arguments]"


def fail(why: str) -> NoReturn:
    print(why, file=sys.stderr)
    sys.exit(2)


def run_text(text: str | bytes, name: str) -> None:
    """Runs the program as the module `__main__`, so that pickle finds its definitions."""
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    exec(compile(text, name, "exec"), main.__dict__)


def run(arguments: list[str]) -> None:
    kind = arguments[0] if arguments else ""
    if kind in ("-m", "-c"):
        if len(arguments) < 2:
            fail(USAGE)
        # As in python: `-c` stays in `sys.argv`, a module's name is replaced by its file.
        sys.argv = [kind, *arguments[2:]] if kind == "-c" else arguments[1:]
        sys.path[0] = "" if kind == "-c" else os.getcwd()
        install()
        if kind == "-c":
            run_text(arguments[1], "<string>")
        else:
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif kind in ("", "-"):
        sys.argv, sys.path[0] = arguments or [""], ""
        install()
        run_text(sys.stdin.buffer.read(), "<stdin>")
    elif kind.startswith("-"):
        fail(USAGE)
    else:
        sys.argv = arguments
        if not os.path.isdir(kind):
            try:
                open(kind, "rb").close()
            except OSError as error:
                fail(f"python -m halocline.compat.ghex: cannot read the program: {error}")
        # As for any script, modules beside it can be imported.
        sys.path[0] = os.path.dirname(os.path.abspath(kind))
        install()
        runpy.run_path(kind, run_name="__main__")


if sys.argv[1:2] in (["-h"], ["--help"]):
    print(f"{USAGE}\n\nRuns a program written for GHEX, as python does, with this package in place of GHEX.")
    sys.exit()
# Child processes also import this package as GHEX.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_INSTALLED, os.environ.get("PYTHONPATH")]))
run(sys.argv[1:])
