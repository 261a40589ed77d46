"""GT4Py's DaCe backend, whose programs come from the cache of compiled programs. The stub, ``program.pyi``, says more.

A program has two entries. The first is its lowering: the SDFG that GT4Py makes of its IR, and GT4Py's Python code that binds the arguments.
The second is the library of this SDFG, which several lowerings may share. One process makes each, and the others wait for it.
"""

import dataclasses
import enum
import functools
import hashlib
import json
import pickle
from collections.abc import Callable, Mapping

from ._cache import build, built, configuration, described, loaded, version_of, versions_of_python
from ._gt4py import check_version

_originals = {}
"""What was replaced, by class and name; ``None`` where it was inherited."""


def cache_gt4py(*, cache=None, timeout=None):
    check_version()
    import sympy.tensor.tensor  # noqa: F401  SymPy would import it while the first program is loaded.
    from gt4py.next.backend import Backend
    from gt4py.next.otf import workflow
    from gt4py.next.otf.recipes import OTFCompileWorkflow

    options = {"cache": cache, "timeout": timeout}

    def compile_program(compile):
        def compile_cached(self, program, compile_time_args):
            compiled = _compiled_source(self, program, compile_time_args, options)
            return compile(self, program, compile_time_args) if compiled is None else compiled

        return compile_cached

    def compile_ir(self, inp):
        if not _is_of_dace(self):
            return workflow.NamedStepSequence.__call__(self, inp)
        source = _Source(inp.data.id, lambda: parts_of(self, _text_or_none(inp.data), inp.args), lambda: inp)
        return _compiled(self, source, {}, options)

    _replace(Backend, "compile", compile_program)
    _replace(OTFCompileWorkflow, "__call__", lambda _: compile_ir)
    _read_schema_once()


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


def _read_schema_once():
    """Each new thread of DaCe parses the schema of its configuration, and GT4Py compiles in threads. The parser takes 40 ms each time, longer
    than all the rest of the start of a process that builds nothing."""
    import yaml
    from dace.config import Config

    data = type(Config._data)

    @functools.cache
    def pickled(path):
        with open(path) as file:
            return pickle.dumps(yaml.load(file, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))

    def load_schema(self, filename=None):
        self._config_metadata = pickle.loads(pickled(self._metadata_filename if filename is None else filename))

    _replace(data, "load_schema", lambda _: load_schema)
    pickled(Config._data._metadata_filename)


def _is_of_dace(workflow):
    from gt4py.next.otf.recipes import OTFCompileWorkflow
    from gt4py.next.program_processors.runners.dace.workflow import compilation

    return type(workflow) is OTFCompileWorkflow and type(workflow.compilation) is compilation.DaCeCompiler


def _compiled_source(backend, program, compile_time_args, options):
    """The compiled program of a program in Python, without its IR if there is an entry; ``None`` if it has to be compiled from the IR."""
    from gt4py.next.backend import DEFAULT_TRANSFORMS, Transforms
    from gt4py.next.ffront import stages
    from gt4py.next.otf import arguments, toolchain

    executor = backend.executor
    workflow = getattr(executor, "step", executor)
    if not (_is_of_dace(workflow) and backend.transforms is DEFAULT_TRANSFORMS and type(program) is stages.DSLProgramDef):
        return None
    # GT4Py has parsed the program when it was decorated, and keeps that.
    parsed = backend.transforms.func_to_past(toolchain.ConcreteArtifact(program, arguments.CompileTimeArgs.empty())).data
    text = text_of_parsed(parsed)
    if text is None:
        return None

    def lower():
        # Not those of the backend: they know a table by its text, which leaves numbers out, and may return the IR for another one.
        return Transforms()(toolchain.ConcreteArtifact(program, compile_time_args))

    # Where GT4Py keeps what it has compiled.
    kept = getattr(executor, "cache", {})
    source = _Source(parsed.past_node.id, lambda: parts_of(workflow, text, compile_time_args), lower)
    return _compiled(workflow, source, kept, options)


@dataclasses.dataclass(frozen=True)
class _Source:
    """A program to compile."""

    name: str
    parts: Callable
    """Returns what decides the lowering; ``None`` if that is not known."""
    ir: Callable
    """Returns the IR. Called if the program has to be lowered."""


def _compiled(workflow, source, kept, options):
    """The compiled program of a source. ``kept`` has the programs of this process."""
    from gt4py.next.program_processors.runners.dace.workflow import common, compilation

    compiler = workflow.compilation
    with common.dace_context(device_type=compiler.device_type, cmake_build_type=compiler.cmake_build_type):
        parts = source.parts()
        key = None if parts is None else hashlib.blake2b(repr(sorted(parts.items())).encode()).hexdigest()
        if key in kept:
            return kept[key]
        if parts is None:
            lowering = _Lowering.of_project(workflow.bindings(workflow.translation(source.ir())))
        else:
            entry = build(source.name, parts, lambda folder: _lower(workflow, source.ir(), folder), **options)
            lowering = _Lowering.of_file(entry.library)
        entry = built(lambda: lowering.description, lowering.sdfg, **options)
        compiled = loaded(entry, lambda sdfg: compilation.CompiledDaceProgram(sdfg, compiler.bind_func_name, lowering.bindings))
    made = workflow.decoration(compiled)
    if key is not None:
        kept[key] = made
    return made


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


def parts_of(workflow, program, args):
    """All that decides the lowering of a program with this text; ``None`` if it cannot be said in words that are the same in each process,
    as of a Python function."""
    from gt4py.next import common
    from gt4py.next.program_processors.runners.dace.workflow import bindings, translation

    translator, binder = _translator(workflow), workflow.bindings
    is_known = type(translator) is translation.DaCeTranslator and getattr(binder, "func", None) is bindings.bind_sdfg
    if program is None or not is_known:
        return None
    arguments = {field.name: getattr(args, field.name) for field in dataclasses.fields(args)}
    offsets = arguments.pop("offset_provider")
    try:
        return {
            "lowering of GT4Py": program,
            "arguments": _text(arguments),
            "offsets": _text(common.offset_provider_to_type(offsets)),
            "connectivities": _contents(offsets, program),
            "backend": _text((translator, binder.args, binder.keywords)),
            "configuration": configuration() + _text(_configuration_of_gt4py()),
            "versions": "\n".join([version_of("gt4py"), version_of("dace"), versions_of_python()]),
        }
    except _NotPlainError:
        return None


def text_of_parsed(parsed):
    """What decides the IR of a parsed program: the program, and the field operators that it calls. ``None`` as for :func:`parts_of`."""
    from gt4py.next import common
    from gt4py.next.ffront import fbuiltins, transform_utils
    from gt4py.next.ffront.decorator import FieldOperator
    from gt4py.next.ffront.gtcallable import GTCallable

    # GT4Py has put the values of all others into the operators.
    operators, others = {}, {}
    for name, value in transform_utils._get_closure_vars_recursively(parsed.closure_vars).items():
        if type(value) is FieldOperator:
            operators[name] = value.foast_stage.foast_node
        elif isinstance(value, GTCallable):
            return None
        elif isinstance(value, (fbuiltins.FieldOffset, common.Dimension)):
            others[name] = value
    return _text_or_none({"program": parsed.past_node, "grid": parsed.grid_type, "operators": operators, "offsets and dimensions": others})


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


class _NotPlainError(Exception):
    """A value has no text that is the same in each process."""


def _text(value):
    return json.dumps(_plain(value))


def _text_or_none(value):
    try:
        return _text(value)
    except _NotPlainError:
        return None


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
