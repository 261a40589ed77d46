"""Compiled programs: stencils of DaCe and GT4Py, or any C function, called with checked arguments.

A program is loaded from a shared library and a manifest, a JSON file that says what it takes. Each call checks every argument before
the program is entered, and releases the GIL while the program runs::

    import numpy as np
    from halocline import program

    heat = program.load("libheat.so")          # with libheat.so.json
    t = np.zeros((20, 30))
    heat(t, dt=0.1)

    step = heat.prepare(t, dt=0.1)             # checks once
    for k in range(10):
        step(dt=0.1 * k)                       # numbers may change
"""

import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, final

from . import Communicator

__all__ = [
    "BuildFolder",
    "Entry",
    "FieldProgram",
    "PreparedCall",
    "Program",
    "build",
    "cache_gt4py",
    "compile_sdfg",
    "from_gt4py",
    "from_sdfg",
    "install",
    "load",
    "uninstall",
]

def load(library: str | os.PathLike[str], manifest: str | None = None) -> Program:
    """Loads a library and the manifest beside it: ``libheat.so.json`` for ``libheat.so``. ``manifest`` gives its text instead.

    The manifest is believed: a library that takes other arguments than its manifest says crashes, as with ``ctypes``. A library is opened
    once per file and process; each program has states of its own.

    Raises ``ProgramError`` if the library or the manifest beside it cannot be read, ``HaloValueError`` if the manifest is wrong."""

def from_sdfg(compiled: Any) -> Program:
    """The program of a ``CompiledSDFG`` of DaCe: what ``sdfg.compile()`` returns.

    It takes the arguments of ``CompiledSDFG.__call__``, by name or in the order of ``compiled.sdfg.arglist()``: arrays, then scalars and
    symbols. Symbols that follow from the shapes of arrays may be left out. It has states of its own, so that ``compiled`` stays as it is: one
    for each set of values of the symbols that memory allocated by its ``init``, or code in it, depends on.

    Calls check the indices that the program accesses in loops, unless they are in branches or depend on values of arrays.

    A value that the program returns is the array argument ``__return``, which the caller gives.

    Raises ``HaloTypeError`` for an argument that no program can take, such as a structure or a callback."""

def compile_sdfg(
    sdfg: Any,
    *,
    comm: Communicator | None = None,
    cache: str | os.PathLike[str] | None = None,
    timeout: float | None = None,
) -> Program:
    """The program of an SDFG of DaCe, which is built once for all processes that share a cache; see :func:`build`.

    The key has the SDFG, the versions of DaCe and of the compiler, DaCe's configuration, and the processor of this process. A program for
    GPUs takes its architecture from DaCe's option ``compiler.cuda.cuda_arch``: the build sees no GPU. The SDFG stays as it is.

    Raises what DaCe raises, and what :func:`build` does."""

def build(
    name: str,
    parts: Mapping[str, str | bytes],
    builder: Callable[[BuildFolder], Any],
    *,
    comm: Communicator | None = None,
    cache: str | os.PathLike[str] | None = None,
    timeout: float | None = None,
) -> Entry:
    """The entry of a program in the cache, which ``builder`` makes if there is none.

    ``parts`` is all that decides the result: sources, the compiler and its version, flags, the processor or GPU that the program is for.
    Their order counts. ``builder`` gets a :class:`BuildFolder` and returns the path of the library, or a tuple of files that begins with
    it. One process builds a program at a time, and the others wait for it, without the GIL.

    ``comm``: the call is collective. One rank builds, and ranks whose cache is another folder receive the program. ``cache``: the folder
    (``programs`` in ``HALOCLINE_CACHE`` by default). ``timeout``: how many seconds to wait for the build of another process (1800 by
    default).

    Raises what ``builder`` raises, ``BuildTimeoutError`` if another process takes too long, and ``ProgramError`` if the cache cannot be
    written or the build of another rank has failed."""

def cache_gt4py(*, cache: str | os.PathLike[str] | None = None, timeout: float | None = None) -> None:
    """Makes GT4Py's DaCe backend take its programs from the cache, in this process and from now on. One process lowers a program to an SDFG,
    and one builds its library, for all processes that share the cache. GT4Py's own checks, bindings and calls stay as they are (GT4Py 1.1
    is tested).

    The key of a lowering has the parsed program with the field operators that it calls (of a field operator that is called itself, its IR),
    the types of the arguments, static arguments and domains, the offset provider, the options of the backend, DaCe's configuration, and
    the versions of GT4Py, DaCe, SymPy, NetworkX, NumPy and Python. The numbers in the tables of connectivities are part of it if the
    program uses one of them: GT4Py makes constants of them. If the options hold Python functions, such as hooks of the optimisation, each
    process lowers by itself; the library is still shared.

    Call it before the first program is compiled. Raises ``ImportError`` without GT4Py or DaCe."""

class BuildFolder:
    """The folder of a build. It is empty at first, and removed after the build.

    ``path`` is where the builder writes its files. ``environ`` has the variables for its commands: they see no GPU, and their temporary
    files are removed with the folder."""

    path: pathlib.Path
    environ: dict[str, str]

    def __init__(self, path: str | os.PathLike[str], environ: Mapping[str, str]) -> None: ...

    def run(self, *command: str | os.PathLike[str]) -> str:
        """Runs a command in the folder, with these variables. Returns what it prints. Raises ``ProgramError`` if it fails or
        cannot be run."""

@final
class Entry:
    """A program in the cache. :func:`build` returns one. With a manifest beside the library, :func:`load` loads it."""

    @property
    def program(self) -> str:
        """The name of the program."""

    @property
    def folder(self) -> os.PathLike[str]:
        """The folder with the files. They do not change."""

    @property
    def library(self) -> os.PathLike[str]:
        """The path of the library."""

    @property
    def files(self) -> tuple[os.PathLike[str], ...]:
        """The paths of all files that the build gave."""

    @property
    def key(self) -> str:
        """The hash of all that decides the result, 64 hexadecimal digits."""

def from_gt4py(program: Any, *, offset_provider: Any = None, **static: Any) -> FieldProgram:
    """The program of a GT4Py program or field operator with a DaCe backend (``run_dace_cpu`` and the like).

    It is compiled, unless it is. ``offset_provider`` holds the offsets and connectivities, ``static`` values for which it is compiled, by the
    name of the parameter. The result takes the arguments of the GT4Py program.

    The tables of connectivities must not change afterwards.

    Raises ``HaloTypeError`` if it is no GT4Py program with a DaCe backend, or has a parameter ``offset_provider``, and ``ProgramError`` if
    the installed version of GT4Py is not known."""

def install() -> None:
    """From now on Halocline calls the programs of GT4Py with a DaCe backend, and DaCe's ``CompiledSDFG``, in place of these.

    Programs stay as they are, and their results are the same. Each call checks its arguments, and raises the errors of
    :class:`FieldProgram` and :class:`Program`. GT4Py compiles variants, and collects metrics, as before. A second call does nothing.

    Raises ``ProgramError`` if neither is installed, or a version of GT4Py that is not known."""

def uninstall() -> None:
    """Undoes :func:`install`."""

@final
class Program:
    """A compiled program. :func:`load` makes one.

    Threads may call it at the same time: each call has its own frame, and a state that no other call uses."""

    def __call__(self, *args: Any, stream: Any = None, **kwargs: Any) -> None:
        """Checks the arguments and calls the program; it returns when the program does.

        A program of a GPU runs in the order of ``stream``: after everything that the stream was given before, and before everything that
        it is given later. The call does not wait for the GPU, unless the program does (:attr:`synchronises`). ``stream`` is what
        :meth:`halocline.HaloExchange.schedule_exchange` takes: a stream of CuPy or PyTorch, ``halocline.Stream``, ``None`` for the default
        stream of the arrays' GPU. The program holds the arrays until the stream has passed. Keep the stream until then.

        Arrays are NumPy arrays, or objects with ``__cuda_array_interface__`` (CuPy), ``__array_interface__``, ``__dlpack__`` or the buffer
        protocol. They are passed without a copy. Numbers are those of Python or NumPy, or host arrays without dimensions; an integer
        takes an integral value only. ``None`` stands for an optional number.

        No other thread may write the arrays during the call.

        Raises ``HaloTypeError`` or ``HaloValueError`` for a wrong argument before the program is entered, and ``ProgramError`` if the
        program fails."""

    def prepare(self, *args: Any, stream: Any = None, **kwargs: Any) -> PreparedCall:
        """Checks the arguments once, for many calls. The prepared call holds the arrays, and calls the program on ``stream`` if it is one
        of a GPU. The state for the stream is made now, which may wait for the GPU."""

    @property
    def name(self) -> str:
        """The name of the program."""

    @property
    def library(self) -> os.PathLike[str]:
        """The path of the library, without links."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the arguments in their order."""

    @property
    def synchronises(self) -> bool:
        """Whether the program waits for the GPU before it returns, as its manifest says."""

    @property
    def states(self) -> int:
        """How many states the program has made: one for each set of values of the symbols of its ``init``, and for each call at the
        same time; on a GPU for each stream whose calls are in flight. A program without an ``init`` has none."""

@final
class FieldProgram:
    """A compiled GT4Py program, which takes fields. :func:`from_gt4py` makes one.

    Threads may call it at the same time."""

    def __call__(self, *args: Any, out: Any = None, offset_provider: Any = None, stream: Any = None, **kwargs: Any) -> None:
        """Checks the arguments and calls the program; it returns when the program does.

        It takes the arguments of the GT4Py program, by position or by name: fields, tuples of them, numbers. ``offset_provider`` has to
        give the objects that the program was compiled with, and may be left out. A call with fields that came before, in one of the
        last four such calls, is known: its fields are not checked again, its numbers are. Fields are held weakly.

        A program of a GPU runs on ``stream``, as :meth:`Program.__call__` says. A call with a stream collects no metrics. ``stream`` is an
        argument if the program has a parameter of that name.

        Raises ``HaloTypeError`` or ``HaloValueError`` for a wrong argument before the program is entered, and ``ProgramError`` if the
        program fails."""

    def prepare(self, *args: Any, out: Any = None, offset_provider: Any = None, stream: Any = None, **kwargs: Any) -> PreparedCall:
        """Checks the arguments once, for many calls. The prepared call holds the fields' arrays, and the values of fields without
        dimensions. It collects no metrics. ``stream`` is that of :meth:`Program.prepare`."""

    @property
    def name(self) -> str:
        """The name of the program."""

    @property
    def library(self) -> os.PathLike[str]:
        """The path of the library, without links."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the parameters in their order."""

    @property
    def states(self) -> int:
        """How many states the program has made."""

@final
class PreparedCall:
    """A call with arguments that were checked. :meth:`Program.prepare` makes one. One thread at a time may call it."""

    def __call__(self, *args: NoReturn, **scalars: float) -> None:
        """Calls the program. Numbers that are given by name are checked as in the first call, and hold for the later calls, too. If one is
        refused, all stay as they were.

        Raises ``HaloValueError`` if an array was resized, reshaped, moved or made read-only since, ``InFlightError`` if another thread is calling it."""
