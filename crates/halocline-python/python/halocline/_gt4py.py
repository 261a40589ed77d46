"""Programs that GT4Py compiled with its DaCe backend: their argument list, and what they were compiled for."""

import importlib.metadata
import json
import re
import types

from . import _core
from ._errors import HaloTypeError, HaloValueError, ProgramError
from ._sdfg import init_parameters

KNOWN = ("1.1.9",)
"""Versions of GT4Py whose inner interfaces are as they are used here."""

TIME, LEVEL = "gt_compute_time", "gt_metrics_level"


def check_version():
    """Raises a ``ProgramError`` if the installed GT4Py is not known."""
    try:
        version = importlib.metadata.version("gt4py")
    except importlib.metadata.PackageNotFoundError:
        raise ProgramError(f"GT4Py is not installed; install one of the versions {', '.join(KNOWN)}") from None
    if version not in KNOWN:
        raise ProgramError(f"GT4Py {version} is installed, whose inner interfaces are not known here; install one of {', '.join(KNOWN)}")


def from_gt4py(program, *, offset_provider=None, **static):
    """The program of a GT4Py program or field operator. The stub says more."""
    check_version()
    from gt4py.next.ffront import decorator

    if not isinstance(program, (decorator.Program, decorator.FieldOperator)):
        raise HaloTypeError(f"program: a program or field operator of GT4Py is wanted, not {type(program).__name__}")
    name = program.definition_stage.definition.__name__
    if isinstance(program, decorator.ProgramWithBoundArgs):
        raise HaloTypeError(f"program: {name} has bound arguments; give the program without them")
    if program.backend is None:
        raise HaloTypeError(f"program: {name} has no backend; choose one with with_backend(run_dace_cpu)")
    provider = {} if offset_provider is None else offset_provider
    pool, key = _compiled(program, provider, static, name)
    of_pool = pool.compiled_programs[key]
    fun = of_dace(of_pool)
    if fun is None:
        raise HaloTypeError(f"program: {name} has the backend {program.backend.name}; a DaCe backend is wanted (run_dace_cpu)")
    return make(pool, key, fun, provider)


def _compiled(program, provider, static, name):
    """The pool of a program's variants, and the key of the variant that is asked for; it is compiled, unless it is."""
    from gt4py.next import common
    from gt4py.next.otf import arguments

    if "_compiled_programs" not in program.__dict__ and static and not program.compilation_options.static_params:
        program.compile(offset_provider=provider, **{parameter: [value] for parameter, value in static.items()})
    pool = program._compiled_programs
    mapping = pool.argument_descriptor_mapping
    if pool._is_generic:
        raise HaloTypeError(f"program: {name} takes arguments of any type; call it in a program")
    if mapping.get(arguments.FieldDomainDescriptor):
        raise HaloTypeError(f"program: {name} is compiled for the domains of its fields; call it through install()")
    fixed = mapping.get(arguments.StaticArg, ())
    if set(fixed) != set(static):
        is_for, given = (", ".join(sorted(names)) or "no parameter" for names in (fixed, static))
        raise HaloValueError(f"static: program {name} is compiled for values of {is_for}, values of {given} are given; give those of {is_for}")
    key = (tuple(static[parameter] for parameter in fixed), common.hash_offset_provider_items_by_id(provider), None)
    # The key has the identity of connectivities: while they are kept, no other one gets it.
    vars(pool).setdefault("_halocline_providers", {})[key] = dict(provider)
    if not pool._is_existing_key(key):
        values = {parameter: arguments.StaticArg(value=value) for parameter, value in static.items()}
        pool._compile_variant(argument_descriptors={arguments.StaticArg: values} if values else {}, offset_provider=provider)
    if key not in pool.compiled_programs:
        pool._finish_compilation_job(key)
    return pool, key


def of_dace(compiled):
    """The ``CompiledDaceProgram`` of what a DaCe backend compiles a program to; ``None`` for another backend."""
    from gt4py.next.program_processors.runners.dace.workflow.compilation import CompiledDaceProgram

    ours = getattr(compiled, "halocline_original", None)
    if ours is not None:
        compiled = ours
    code, cells = getattr(compiled, "__code__", None), getattr(compiled, "__closure__", None)
    if code is None or not cells or "fun" not in code.co_freevars:
        return None
    fun = cells[code.co_freevars.index("fun")].cell_contents
    return fun if isinstance(fun, CompiledDaceProgram) else None


def make(pool, key, fun, provider):
    """The program of one variant in a pool."""
    from gt4py.next import common, config
    from gt4py.next.embedded import nd_array_field as fields

    variant = Variant(pool, key, fun, provider)
    if "offset_provider" in variant.parameters:
        raise HaloTypeError(
            f"program: {variant.name} has a parameter offset_provider, which names the offset provider of each call; rename the parameter"
        )
    offsets, dimensions = {}, {}
    for tag, object in provider.items():
        if isinstance(object, common.Dimension):
            dimensions[tag] = object
        elif variant.uses(tag):
            offsets[tag] = object
    names = ("NumPyArrayField", "CuPyArrayField", "NumPyArrayConnectivityField", "CuPyArrayConnectivityField")
    import numpy

    manifest = json.dumps(variant.manifest())
    description = {
        "parameters": variant.parameters,
        "leaves": variant.leaves,
        "connectivities": variant.connectivities,
        "gathers": variant.gathers(),
        "offsets": offsets,
        "dimensions": dimensions,
        "classes": tuple(getattr(fields, name) for name in names if hasattr(fields, name)),
        "metrics": {
            "config": config,
            "time": numpy.ones(1),
            "has_time": TIME in variant.arglist,
            "has_level": LEVEL in variant.arglist,
            "measure": _Measure(pool, key),
        },
    }
    return _core._field_program(fun.sdfg_program.filename, manifest, description)


class _Measure:
    """Makes a call with GT4Py's metrics, as a call through GT4Py does."""

    def __init__(self, pool, key):
        from gt4py.next.otf import compiled_program

        self.key = compiled_program.metrics_source_key(pool, key)

    def __call__(self, program, args, out, offset_provider, kwargs, level):
        from gt4py.next.ffront.decorator import ProgramCallMetricsCollector
        from gt4py.next.instrumentation import metrics

        with ProgramCallMetricsCollector():
            with metrics.metrics_source_key_setter(self.key):
                call_measured(program, args, out, offset_provider, kwargs, level)


def call_measured(program, args, out, offset_provider, kwargs, level):
    """Calls a program and adds the time that it measures to the metrics' current source."""
    import numpy
    from gt4py.next.instrumentation import metrics

    time = numpy.ones(1)
    program._call_measured(args, out, offset_provider, kwargs, level, time)
    if level >= metrics.PERFORMANCE:
        metrics.add_sample_to_current_source(metrics.COMPUTE_METRIC, time[0].item())


class Variant:
    """What a variant of a program takes: its parameters and their leaves (fields and scalars), and its connectivities."""

    def __init__(self, pool, key, fun, provider):
        from gt4py.next.otf import arguments

        self.sdfg = fun.sdfg_program.sdfg
        # As it was compiled: the list is never made again.
        self.arglist = dict(zip(fun.sdfg_program._typedict, fun.sdfg_argtypes))
        self.name = self.sdfg.name
        self.parameters, self.leaves, self.types = {}, {}, {}
        definition = pool.program_type.definition
        for name, type_ in {**definition.pos_or_kw_args, **definition.kw_only_args}.items():
            self.parameters[name] = self._tree(name, type_)
        mapping = pool.argument_descriptor_mapping or {}
        described = [(kind, path) for kind, paths in mapping.items() for path in paths]
        self.domains = {}
        for (kind, path), value in zip(described, key[0]):
            leaf = path.replace("[", "_").replace("]", "")
            if kind is arguments.FieldDomainDescriptor:
                self.domains[leaf] = value
            else:
                self._fix(leaf, value)
        prefix = "gt_conn_"
        self.connectivities = {name: provider[name[len(prefix) :]] for name in self.arglist if name.startswith(prefix)}
        self.used_tags = _used_tags(pool)

    def uses(self, tag):
        return self.used_tags is None or tag in self.used_tags or f"gt_conn_{tag}" in self.connectivities

    def _tree(self, name, type_):
        from gt4py.next.type_system import type_specifications as ts

        if isinstance(type_, ts.NamedCollectionType):
            return {part: self._tree(f"{name}_{at}", of) for at, (part, of) in enumerate(zip(type_.keys, type_.types))}
        if isinstance(type_, ts.TupleType):
            return [self._tree(f"{name}_{at}", of) for at, of in enumerate(type_.types)]
        self.types[name] = type_
        self.leaves[name] = tuple(type_.dims) if isinstance(type_, ts.FieldType) else True
        return None

    def _fix(self, leaf, value):
        """Notes the value that a scalar, or a tuple of scalars, was compiled for."""
        if isinstance(value, tuple):
            for at, part in enumerate(value):
                self._fix(f"{leaf}_{at}", part)
        else:
            self.leaves[leaf] = [value]

    def manifest(self):
        """The manifest of the program, as a dictionary. ``FieldProgram`` gives the arguments in this order."""
        self.written = set(self.sdfg.read_and_write_sets()[1])
        arguments = [self._leaf(name, type_) for name, type_ in self.types.items()]
        arguments += [self._connectivity(name) for name in self.connectivities]
        if TIME in self.arglist:
            arguments.append({"kind": "array", "name": TIME, "type": "float64", "dimensions": [{"extent": 1, "stride": 1}]})
        if LEVEL in self.arglist:
            arguments.append({"kind": "scalar", "name": LEVEL, "type": "int32"})
        self._add_accesses(arguments)
        self._note_places(arguments)
        symbols = _drop_unused_symbols(arguments, set(self.arglist))
        return {
            "format": 1,
            "program": self.name,
            "interface": "dace",
            "arguments": arguments,
            "symbols": [{"name": name, "type": "int32"} for name in sorted(symbols)],
            "parameters": list(self.arglist),
            "init": init_parameters(self.sdfg, self.arglist),
        }

    def _add_accesses(self, arguments):
        from ._accesses import accesses, described

        arrays = {argument["name"]: argument for argument in arguments if argument["kind"] == "array"}
        integers = {argument["name"] for argument in arguments if argument["kind"] == "scalar" and "int" in argument["type"]}
        symbols = integers | _symbols(arguments)
        for name, all_ in accesses(self.sdfg, set(arrays) - {TIME}).items():
            dimensions = arrays[name]["dimensions"]
            if name in self.connectivities:
                dimensions = [{"start": 0, "stop": dimension["extent"]} for dimension in dimensions]
            entries = described(all_, dimensions, symbols)
            if entries:
                arrays[name]["accesses"] = entries

    def _note_places(self, arguments):
        """Notes which leaf gives a symbol its value: its position, the dimension and the part, or ``None`` for a scalar."""
        self.places = {}
        leaves = [argument for argument in arguments if argument["name"] in self.types]
        self.starts = {argument["name"]: [one.get("start") for one in argument.get("dimensions", ())] for argument in leaves}
        for position, argument in enumerate(leaves):
            if argument["kind"] == "scalar" and "int" in argument["type"]:
                self.places[argument["name"]] = (position, 0, None)
            for at, dimension in enumerate(argument.get("dimensions", ())):
                for part in ("start", "stop"):
                    if isinstance(dimension.get(part), str):
                        self.places[dimension[part]] = (position, at, part)

    def gathers(self):
        """The indices of fields that connectivities decide, for calls to check: those whose rows follow from the domains."""
        from ._accesses import gathers

        found = []
        for gather in gathers(self.sdfg, self.connectivities):
            start = self.starts.get(gather.array, ())[gather.dimension : gather.dimension + 1]
            if start and start[0] is not None:
                found.append(self._gather(gather, start[0]))
        return [gather for gather in found if gather is not None]

    def _gather(self, gather, start):
        import sympy

        start = next((symbol for symbol in gather.offset.free_symbols if symbol.name == start), start)
        shift = sympy.sympify(start) + gather.offset
        rows, columns = gather.of_table.sides
        over = [self._span(one) for one in gather.of_table.over]
        if not shift.is_Integer or rows is None or columns is None or None in over:
            return None
        first, end = columns.first, columns.end
        rows = self._span(rows)
        if rows is None or not (first.is_Integer and end.is_Integer):
            return None
        image = image_of(self.connectivities[gather.table], int(first), int(end))
        whole = image.of_rows(0, None)
        if whole is None:
            return None
        field = list(self.types).index(gather.array)
        return {
            "leaf": field,
            "dimension": gather.dimension,
            "shift": int(shift),
            "whole": whole,
            "rows": rows,
            "over": over,
            "image": image.of_rows,
            "offset": gather.table.removeprefix("gt_conn_"),
        }

    def _span(self, range_):
        """A range as two ends: the place of a symbol, if any, and what is added to its value; ``None`` if it depends on more."""
        ends = []
        for end in (range_.first, range_.end):
            symbols = list(end.free_symbols)
            rest = end - sum(symbols)
            if len(symbols) > 1 or not rest.is_Integer or symbols and symbols[0].name not in self.places:
                return None
            ends.append((self.places[symbols[0].name] if symbols else None, int(rest)))
        return tuple(ends)

    def _leaf(self, name, type_):
        from gt4py.next.type_system import type_specifications as ts

        if isinstance(type_, ts.FieldType) and type_.dims:
            return self._field(name, type_)
        scalar = type_.dtype if isinstance(type_, ts.FieldType) else type_
        return {"kind": "scalar", "name": name, "type": scalar.kind.name.lower()}

    def _field(self, name, type_):
        from gt4py.next.program_processors.runners.dace import sdfg_args

        array = self.arglist.get(name)
        dimensions = []
        for at, dimension in enumerate(type_.dims):
            start, stop = (symbol(name, dimension).name for symbol in (sdfg_args.range_start_symbol, sdfg_args.range_stop_symbol))
            parts = {"name": dimension.value}
            if array is not None:
                parts |= self._range(array.shape[at], start, stop) | self._stride(array.strides[at])
            if name in self.domains:
                range_ = self.domains[name].ranges[at]
                parts |= {"start": range_.start, "stop": range_.stop}
            dimensions.append(parts)
        return {
            "kind": "array",
            "name": name,
            "type": type_.dtype.kind.name.lower(),
            "device": self._device(array),
            "access": "write" if name in self.written else "read",
            "dimensions": dimensions,
        }

    def _device(self, array):
        """Where a field lies; one that the program does not use lies where the others do."""
        from dace import dtypes

        arrays = [other for other in self.arglist.values() if hasattr(other, "storage")] if array is None else [array]
        return "gpu" if any(other.storage == dtypes.StorageType.GPU_Global for other in arrays) else "cpu"

    def _range(self, extent, start, stop):
        """The first and the last index of a dimension whose extent is this: symbols, or numbers that were compiled in."""
        import sympy

        extent = sympy.sympify(extent)
        names = {symbol.name for symbol in extent.free_symbols}
        if {start, stop} <= names:
            return {"start": start, "stop": stop}
        if stop in names:
            begin = sympy.simplify(next(symbol for symbol in extent.free_symbols if symbol.name == stop) - extent)
            return {"start": int(begin), "stop": stop}
        return {"extent": int(extent)} if extent.is_Integer else {}

    def _stride(self, stride):
        import sympy

        stride = sympy.sympify(stride)
        return {"stride": int(stride) if stride.is_Integer else str(stride)}

    def _connectivity(self, name):
        import numpy

        array = self.arglist[name]
        sizes = [self._stride(size)["stride"] for size in array.shape]
        dimensions = [{"extent": size, **self._stride(stride)} for size, stride in zip(sizes, array.strides)]
        return {
            "kind": "array",
            "name": name,
            "type": numpy.dtype(array.dtype.type).name,
            "device": self._device(array),
            "access": "read",
            "dimensions": dimensions,
        }


class _Image:
    """The elements in some columns of a connectivity's table, which never change."""

    def __init__(self, connectivity, first, end):
        self.columns = connectivity.asnumpy()[:, first:end]
        self.skip = connectivity.skip_value
        self.known = {}

    def of_rows(self, first, end):
        """The lowest and the highest element in these rows, without skipped ones; ``None`` without any, or if the table lacks a row."""
        if (first, end) not in self.known:
            if len(self.known) >= 8:
                self.known.clear()
            self.known[first, end] = self._of_rows(first, end)
        return self.known[first, end]

    def _of_rows(self, first, end):
        if first < 0 or (end is not None and end > len(self.columns)):
            return None
        rows = self.columns[first:end]
        rows = rows if self.skip is None else rows[rows != self.skip]
        return (int(rows.min()), int(rows.max())) if rows.size else None


_images = {}


def image_of(connectivity, first, end):
    """The image of these columns, which is made once for a connectivity."""
    import weakref

    key = (id(connectivity), first, end)
    if key not in _images:
        weakref.finalize(connectivity, _images.pop, key, None)
        _images[key] = _Image(connectivity, first, end)
    return _images[key]


PARTS = ("start", "stop", "extent", "stride")


def _symbols(arguments):
    """The symbols that dimensions give values."""
    dimensions = [dimension for argument in arguments for dimension in argument.get("dimensions", ())]
    return {dimension[part] for dimension in dimensions for part in PARTS if isinstance(dimension.get(part), str)}


def _drop_unused_symbols(arguments, parameters):
    """Takes symbols out of dimensions that neither the program nor an access uses. Returns the others that are no arguments."""
    texts = " ".join(json.dumps(argument.get("accesses", ())) for argument in arguments)
    used = parameters | set(re.findall(r"[A-Za-z_]\w*", texts))
    for argument in arguments:
        for dimension in argument.get("dimensions", ()):
            for part in PARTS:
                if isinstance(dimension.get(part), str) and dimension[part] not in used:
                    del dimension[part]
    return _symbols(arguments) - {argument["name"] for argument in arguments}


def _used_tags(pool):
    """The tags of the offsets that a program uses; ``None`` if that is not known."""
    from gt4py.next.ffront import fbuiltins, source_utils, transform_utils

    try:
        closure = source_utils.get_closure_vars_from_function(pool.definition_stage.definition)
        used = transform_utils._get_closure_vars_recursively(closure).values()
    except (AttributeError, NotImplementedError):
        return None
    if any(isinstance(value, types.ModuleType) for value in used):
        return None
    return {value.value for value in used if isinstance(value, fbuiltins.FieldOffset)}
