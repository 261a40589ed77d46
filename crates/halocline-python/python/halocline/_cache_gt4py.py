"""GT4Py's DaCe backend, whose programs come from the cache of compiled programs. The stub, ``program.pyi``, says more.

A program has two entries. The first is its lowering: the SDFG that GT4Py makes of its IR, and GT4Py's Python code that binds the arguments.
The second is the library of this SDFG, which several lowerings may share. One process makes each, and the others wait for it.
"""

import contextlib
import dataclasses
import enum
import functools
import json
import platform
import threading
from collections.abc import Mapping

from ._cache import build, built, configuration, described, version_of

_originals = {}
"""What was replaced, by class and name; ``None`` where it was inherited."""


def cache_gt4py(*, cache=None, timeout=None):
    from dace.data import Array
    from gt4py.next.otf import workflow
    from gt4py.next.otf.recipes import OTFCompileWorkflow

    def compile_cached(self, inp):
        compiled = _compiled(self, inp, {"cache": cache, "timeout": timeout})
        return workflow.NamedStepSequence.__call__(self, inp) if compiled is None else self.decoration(compiled)

    _replace(OTFCompileWorkflow, "__call__", lambda _: compile_cached)
    _replace(Array, "validate", _unless_checked)


def uncache_gt4py():
    """GT4Py and DaCe as they were."""
    for (owner, name), original in _originals.items():
        if original is None:
            delattr(owner, name)
        else:
            setattr(owner, name, original)
    _originals.clear()


def _replace(owner, name, replacement):
    original = _originals.setdefault((owner, name), owner.__dict__.get(name))
    setattr(owner, name, replacement(original))


def _compiled(workflow, inp, options):
    """The compiled program; ``None`` if it is not for DaCe."""
    from dace.codegen.compiler import load_precompiled_sdfg
    from gt4py.next.program_processors.runners.dace.workflow import common, compilation

    compiler = workflow.compilation
    if type(compiler) is not compilation.DaCeCompiler:
        return None
    with common.dace_context(device_type=compiler.device_type, cmake_build_type=compiler.cmake_build_type):
        parts = parts_of(workflow, inp)
        if parts is None:
            lowering = _Lowering.of_project(workflow.bindings(workflow.translation(inp)))
        else:
            entry = build(inp.data.id, parts, functools.partial(_lower, workflow, inp), **options)
            lowering = _Lowering.of_file(entry.library)
        entry = built(lambda: lowering.description, lowering.sdfg, **options)
        # As the code generator left it: it has the arguments of the library.
        with _checked():
            compiled = load_precompiled_sdfg(entry.folder)
    return compilation.CompiledDaceProgram(compiled, compiler.bind_func_name, lowering.bindings)


class _Loading(threading.local):
    is_checked = False


_loading = _Loading()


@contextlib.contextmanager
def _checked():
    """For an SDFG that was checked when it was built: DaCe does not ask SymPy again whether its strides and sizes may be negative, which is
    half of the start of a process that builds nothing."""
    _loading.is_checked = True
    try:
        yield
    finally:
        _loading.is_checked = False


def _unless_checked(validate):
    def validate_unless_checked(self):
        if not _loading.is_checked:
            validate(self)

    return validate_unless_checked


# The lowering.


@dataclasses.dataclass(frozen=True)
class _Lowering:
    description: dict
    """Of the SDFG, for the cache."""

    bindings: object
    """GT4Py's ``BindingSource``."""

    sdfg: object
    """A function that returns the SDFG."""

    @classmethod
    def of_project(cls, project):
        import dace

        sdfg = dace.SDFG.from_json(project.program_source.source_code)
        return cls(described(sdfg), project.binding_source, lambda: sdfg)

    @classmethod
    def of_file(cls, path):
        import dace
        from gt4py.next.otf import stages

        kept = json.loads(path.read_text())
        bindings = stages.BindingSource(kept["bindings"], library_deps=())
        return cls(kept["description"], bindings, lambda: dace.SDFG.from_json(json.loads(path.with_name(_SDFG).read_text())))


_SDFG = "lowered.sdfg"


def _lower(workflow, inp, folder):
    """Lowers a program, and writes that to a folder."""
    # Not through GT4Py's own cache: its key lacks the options of the backend and the types of literals.
    project = workflow.bindings(_translator(workflow)(inp))
    kept = folder.path / "lowering.json"
    lowering = _Lowering.of_project(project)
    kept.write_text(json.dumps({"description": lowering.description, "bindings": lowering.bindings.source_code}))
    kept.with_name(_SDFG).write_text(json.dumps(project.program_source.source_code))
    return kept, _SDFG


def _translator(workflow):
    from gt4py.next.otf.workflow import CachedStep

    step = workflow.translation
    return step.step if type(step) is CachedStep else step


# What decides a lowering.


def parts_of(workflow, inp):
    """All that decides the lowering; ``None`` if it cannot be said in words that are the same in each process, as of a Python function."""
    from gt4py.next import common
    from gt4py.next.program_processors.runners.dace.workflow import bindings, translation

    translator, binder = _translator(workflow), workflow.bindings
    if type(translator) is not translation.DaCeTranslator or getattr(binder, "func", None) is not bindings.bind_sdfg:
        return None
    arguments = {field.name: getattr(inp.args, field.name) for field in dataclasses.fields(inp.args)}
    offsets = arguments.pop("offset_provider")
    try:
        program = _text(inp.data)
        return {
            "lowering of GT4Py": program,
            "arguments": _text(arguments),
            "offsets": _text(common.offset_provider_to_type(offsets)),
            "connectivities": _contents(offsets, program),
            "backend": _text((translator, binder.args, binder.keywords)),
            "configuration": configuration() + _text(_configuration_of_gt4py()),
            "versions": _versions(),
        }
    except _NotPlainError:
        return None


def _contents(offsets, program):
    """The tables of connectivities, if the program uses any of them: GT4Py makes constants of their sizes and of the largest index."""
    import numpy as np
    from gt4py.next import common

    tables = {name: table for name, table in offsets.items() if isinstance(table, common.Connectivity)}
    # As they are written in the text of the program.
    if not any(_text(name).strip('"') in program for name in tables):
        return b""
    contents = []
    for name, table in sorted(tables.items()):
        if not hasattr(table, "asnumpy"):
            raise _NotPlainError
        array = np.ascontiguousarray(table.asnumpy())
        contents.append(_text((name, table.domain, str(array.dtype), array.shape)).encode() + array.tobytes())
    return b"".join(contents)


def _configuration_of_gt4py():
    from gt4py.next import config

    return {"ADD_GPU_TRACE_MARKERS": config.ADD_GPU_TRACE_MARKERS}


def _versions():
    import networkx
    import numpy
    import sympy

    others = [f"{package.__name__} {package.__version__}" for package in (networkx, numpy, sympy)]
    return "\n".join([version_of("gt4py"), version_of("dace"), *others, f"Python {platform.python_version()}"])


class _NotPlainError(Exception):
    """A value has no text that is the same in each process."""


def _text(value):
    return json.dumps(_plain(value))


def _plain(value):
    """A value as JSON: the same for equal values. Lists are sequences, and objects say the kind of all other values."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    import numpy as np
    from gt4py.eve.concepts import SourceLocation, SourceLocationGroup

    if isinstance(value, (SourceLocation, SourceLocationGroup)):
        # It decides nothing but messages.
        return None
    if isinstance(value, enum.Enum):
        return {kind.__qualname__: value.name}
    if isinstance(value, str):
        return str(value)
    if isinstance(value, np.generic):
        return {kind.__qualname__: repr(value)}
    if isinstance(value, type):
        return {"type": f"{value.__module__}.{value.__qualname__}"}
    if isinstance(value, Mapping):
        return {"mapping": sorted([_text(key), _plain(part)] for key, part in value.items())}
    fields = getattr(kind, "__datamodel_fields__", None) or getattr(kind, "__dataclass_fields__", None)
    if fields is not None:
        return {kind.__qualname__: {name: _plain(getattr(value, name)) for name in fields.keys()}}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    raise _NotPlainError
