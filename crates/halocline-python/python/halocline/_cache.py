"""The cache of compiled programs: builds by functions of the program, and by DaCe. The stub, ``program.pyi``, says more."""

import contextlib
import functools
import hashlib
import importlib
import importlib.metadata
import json
import os
import pathlib
import pickle
import platform
import re
import shutil
import subprocess
import threading

from . import _core
from ._errors import HaloTypeError, HaloValueError, ProgramError
from ._sdfg import manifest


class BuildFolder:
    """The folder of a build. It is empty at first, and removed after the build.

    ``path`` is where the builder writes its files. ``environ`` has the variables for its commands: they see no GPU, and their temporary
    files are removed with the folder."""

    __slots__ = ("environ", "path")

    def __init__(self, path, environ):
        self.path = pathlib.Path(path)
        self.environ = {**os.environ, **environ}

    def run(self, *command):
        """Runs a command in the folder, with these variables. Returns what it prints. Raises ``ProgramError`` if it fails or
        cannot be run."""
        if not command:
            raise HaloTypeError("command: the name of a command is wanted, then its arguments")
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
        try:
            ended = subprocess.run(command, cwd=self.path, env=self.environ, **options)
        except OSError as error:
            raise ProgramError(f"{command[0]} cannot be run: {error}; install it, or give its path") from error
        if ended.returncode != 0:
            raise ProgramError(f"{command[0]} has failed with status {ended.returncode}:\n{ended.stdout}")
        return ended.stdout

    def __repr__(self):
        return f"<halocline.program.BuildFolder {self.path}>"


def build(name, parts, builder, *, comm=None, cache=None, timeout=None):
    return _build(lambda: (name, parts, builder), comm, cache, timeout)


def _build(describe, comm, cache, timeout):
    """``describe`` returns the name, the parts and the builder. What it raises on one rank fails the build on all."""

    def described():
        name, parts, builder = describe()
        if not callable(builder):
            raise HaloTypeError(f"builder: a function is wanted, not {type(builder).__name__}")
        return name, parts, lambda path, environ: builder(BuildFolder(path, environ))

    return _core._build_program(described, comm, cache, timeout)


def compile_sdfg(sdfg, *, comm=None, cache=None, timeout=None):
    entry = built_sdfg(sdfg, comm=comm, cache=cache, timeout=timeout)
    return _core._load_program(entry.library)


def built_sdfg(sdfg, *, comm=None, cache=None, timeout=None):
    """The entry of an SDFG: a build folder of DaCe without sources, with a manifest beside the library."""
    return built(lambda: described(sdfg), lambda: sdfg, comm=comm, cache=cache, timeout=timeout)


def described(sdfg):
    """What :func:`built` has to know of an SDFG; JSON can hold it."""
    try:
        import dace
    except ImportError:
        dace = None
    if dace is None or not isinstance(sdfg, dace.SDFG):
        raise HaloTypeError(f"sdfg: an SDFG of DaCe is wanted, not {type(sdfg).__name__}")
    text = hashlib.blake2b(_text_of(sdfg).encode()).hexdigest()
    return {"name": sdfg.name, "sdfg": text, "uses_gpu": _uses_gpu(sdfg)}


def built(get_description, get_sdfg, *, comm=None, cache=None, timeout=None):
    """The entry of the SDFG with a description; ``get_sdfg`` returns it if it has to be built."""

    def describe():
        description = get_description()
        name, uses_gpu = description["name"], description["uses_gpu"]
        parts = {
            "sdfg": description["sdfg"],
            "dace": version_of("dace"),
            "python": versions_of_python(),
            "files": FILES,
            "configuration": configuration(),
            "compiler": _version_of_compiler(_host_compiler()),
            "target": _target(name, uses_gpu),
        }
        if uses_gpu:
            # Without one CMake says so.
            compiler = _compiler_of_kernels()
            parts["compiler of kernels"] = _version_of_compiler(compiler) if compiler else "none"
        return name, parts, lambda folder: _compile(get_sdfg(), folder, uses_gpu)

    return _build(describe, comm, cache, timeout)


# What differs between two equal SDFGs: numbers of their objects, their past, and where they are built.
_WITHOUT_EFFECT = frozenset({"guid", "hash", "orig_sdfg", "transformation_hist", "cfg_list_id", "build_folder"})

# Sections of DaCe's configuration that decide a library beside that of the compiler.
_CONFIGURED = ("experimental", "frontend", "instrumentation", "library", "optimizer")


def _text_of(sdfg):
    def strip(value, is_element=False):
        """``is_element``: an element of DaCe or its attributes. The keys of other dictionaries are names of the program."""
        if isinstance(value, (list, tuple)):
            return [strip(part) for part in value]
        if not isinstance(value, dict):
            return value
        has_attributes = isinstance(value.get("type"), str) and isinstance(value.get("attributes"), dict)
        kept = value.items()
        if is_element or has_attributes:
            kept = ((key, part) for key, part in kept if key not in _WITHOUT_EFFECT and not str(key).startswith("_meta_"))
        return {key: strip(part, has_attributes and key == "attributes") for key, part in kept}

    return _renumbered(json.dumps(strip(sdfg.to_json())), lambda: " ".join(map(str, sdfg.arglist())))


# Names that GT4Py makes have UUIDs, which each process makes anew.
_UUID = re.compile(r"[0-9a-f]{8}([-_])[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{12}")


def _renumbered(text, kept):
    """The text with numbers for UUIDs, in their order, but for those in ``kept()``: arguments have the names that the library knows."""
    found = dict.fromkeys(uuid.group() for uuid in _UUID.finditer(text))
    names = kept() if found else ""
    numbers = {uuid: f"uuid {number}" for number, uuid in enumerate(uuid for uuid in found if uuid not in names)}
    return _UUID.sub(lambda uuid: numbers.get(uuid.group(), uuid.group()), text)


@functools.cache
def version_of(package):
    """The version, and the hash of all files: a copy that is being worked on keeps its version."""
    module = importlib.import_module(package)
    version = getattr(module, "__version__", "")
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        # Of an installed package, this has the hashes of all files.
        record = importlib.metadata.distribution(package).read_text("RECORD") or ""
        if f"{package}/__init__.py" in record:
            return f"{version} {hashlib.blake2b(record.encode()).hexdigest()}"
    folder = pathlib.Path(module.__file__).parent
    hashed = hashlib.blake2b()
    for path in sorted(path for path in folder.glob("**/*") if path.suffix in (".py", ".h", ".hpp", ".cuh")):
        hashed.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return f"{version} {hashed.hexdigest()}"


def versions_of_python():
    """Of Python, and of the packages whose objects an SDFG has."""
    import networkx
    import numpy
    import sympy

    packages = [f"{package.__name__} {package.__version__}" for package in (networkx, numpy, sympy)]
    return "\n".join([*packages, f"Python {platform.python_version()}"])


def configuration():
    """DaCe's configuration in this thread, as far as it decides a program."""
    from dace.config import Config

    sections = {}
    for section in _CONFIGURED:
        with contextlib.suppress(KeyError):  # Other versions of DaCe have other sections.
            sections[section] = Config.get(section)
    return json.dumps({"compiler": Config.get("compiler"), **sections}, sort_keys=True, default=str)


def _host_compiler():
    try:
        from dace.codegen.compiler_family import host_compiler
    except ImportError:  # DaCe before 2.0.
        from dace.config import Config

        return Config.get("compiler", "cpu", "executable") or os.environ.get("CXX") or "c++"
    return host_compiler()


def _compiler_of_kernels():
    """The one that CMake finds; ``None`` if there is none."""
    from dace.config import Config

    toolkits = (Config.get("compiler", "cuda", "path"), os.environ.get("CUDA_HOME"), "/usr/local/cuda")
    found = (shutil.which("nvcc", path=os.path.join(toolkit, "bin")) for toolkit in toolkits if toolkit)
    return os.environ.get("CUDACXX") or shutil.which("nvcc") or next(filter(None, found), None)


@functools.cache
def _version_of_compiler(compiler):
    try:
        said = subprocess.run([compiler, "--version"], stdout=subprocess.PIPE, text=True, errors="replace", check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise ProgramError(f"the compiler {compiler} does not say its version: {error}; install it, or name another one in DaCe's configuration") from error
    return f"{compiler}\n{said.stdout}"


def _target(name, uses_gpu):
    """The processor that the library is for, which is the one of this process: DaCe compiles with ``-march=native``."""
    with contextlib.suppress(OSError):
        with open("/proc/cpuinfo") as lines:
            found = [line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))]
        return _gpu(name, uses_gpu) + "".join(dict.fromkeys(found))
    return _gpu(name, uses_gpu) + " ".join(os.uname())


def _uses_gpu(sdfg):
    from dace import dtypes

    on_gpu = {dtypes.StorageType.GPU_Global, dtypes.StorageType.GPU_Shared}
    schedules = set(dtypes.GPU_SCHEDULES)
    return any(array.storage in on_gpu for _, _, array in sdfg.arrays_recursive()) or any(
        getattr(node, "schedule", None) in schedules for node, _ in sdfg.all_nodes_recursive()
    )


def _gpu(name, uses_gpu):
    if not uses_gpu:
        return ""
    from dace.config import Config

    architecture = str(Config.get("compiler", "cuda", "cuda_arch") or "").strip()
    if not architecture:
        raise HaloValueError(
            f"sdfg: {name} runs on GPUs, and its build sees none: set DaCe's option compiler.cuda.cuda_arch to the architecture, "
            'such as "90"'
        )
    return f"CUDA {architecture}\n"


def _compile(sdfg, folder, uses_gpu):
    """Builds a copy in the folder. Returns the files that :func:`dace.codegen.compiler.load_precompiled_sdfg` needs, and the manifest."""
    import copy

    import dace
    from dace.codegen import compiler

    copied = copy.deepcopy(sdfg)
    copied.build_folder = str(folder.path)
    with _without_gpus(folder) if uses_gpu else contextlib.nullcontext():
        copied.compile(return_program_handle=False)
    library = pathlib.Path(compiler.get_binary_name(str(folder.path), sdfg.name))
    # The code generator may have changed the arguments.
    generated = dace.SDFG.from_file(str(folder.path / "program.sdfgz"))
    described = library.with_name(library.name + ".json")
    described.write_text(json.dumps(manifest(generated)))
    stub = library.with_name(library.name.replace("lib", "libdacestub_", 1))
    (folder.path / PICKLE).write_bytes(pickle.dumps((generated, generated.arglist())))
    return (library, described, stub, "program.sdfgz", "FOLDER_MODE", PICKLE)


FILES = b"2"
"""Counts changes of the files that an entry has."""

PICKLE = "program.pickle"
"""The SDFG as the code generator left it, and its arguments: read in a fifth of the time of DaCe's own file. Its versions are those of the
entry's key."""


def loaded(entry, make):
    """What ``make`` makes of the ``CompiledSDFG`` of an entry."""
    from dace.codegen.compiler import load_precompiled_sdfg

    with open(pathlib.Path(entry.folder) / PICKLE, "rb") as file:
        sdfg, arguments = pickle.load(file)
    # DaCe would collect them from all states, once for each of its objects.
    sdfg.arglist = arguments.copy
    try:
        return make(load_precompiled_sdfg(entry.folder, sdfg))
    finally:
        del sdfg.arglist


_ENVIRONMENT = threading.Lock()


@contextlib.contextmanager
def _without_gpus(folder):
    """Hides the GPUs from the processes that this one starts."""
    with _ENVIRONMENT:
        before = os.environ.get("CUDA_VISIBLE_DEVICES")
        os.environ["CUDA_VISIBLE_DEVICES"] = folder.environ["CUDA_VISIBLE_DEVICES"]
        try:
            yield
        finally:
            if before is None:
                del os.environ["CUDA_VISIBLE_DEVICES"]
            else:
                os.environ["CUDA_VISIBLE_DEVICES"] = before
