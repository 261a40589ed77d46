"""The manifest of a program that DaCe compiled, from what DaCe knows of it."""

import json
import re

from . import _core
from ._errors import HaloTypeError


def from_sdfg(compiled):
    """The program of a ``CompiledSDFG`` of DaCe: what ``sdfg.compile()`` returns. The stub says more."""
    try:
        from dace.codegen.compiled_sdfg import CompiledSDFG
    except ImportError:
        CompiledSDFG = None
    if CompiledSDFG is None or not isinstance(compiled, CompiledSDFG):
        raise HaloTypeError(f"compiled: a CompiledSDFG of DaCe (sdfg.compile()) is wanted, not {type(compiled).__name__}")
    # The arguments of the library. The SDFG may have changed since it was compiled.
    arguments = getattr(compiled, "_typedict", None)
    return _core._load_program(compiled.filename, json.dumps(manifest(compiled.sdfg, arguments)))


def manifest(sdfg, arguments=None):
    """The manifest of a compiled SDFG, as a dictionary. ``arguments``: descriptors by name, in the order of the library's parameters."""
    from dace import data

    arguments = sdfg.arglist() if arguments is None else arguments
    try:
        written = sdfg.read_and_write_sets()[1]
    except AttributeError:  # Another version of DaCe: every array counts as written.
        written = set(arguments)
    arrays = {name: descriptor for name, descriptor in arguments.items() if type(descriptor) is data.Array}
    described = {name: _array(sdfg, name, array, name in written) for name, array in arrays.items()}
    derived = _symbols(described.values())
    for name, descriptor in arguments.items():
        if name in arrays:
            continue
        if type(descriptor) is not data.Scalar:
            raise HaloTypeError(
                f"argument {name} of program {sdfg.name} is a {type(descriptor).__name__} of DaCe; arrays and scalars can be passed: give its parts as such"
            )
        scalar = {"kind": "scalar", "name": name, "type": _type(sdfg, name, descriptor)}
        described[name] = {**scalar, "optional": True} if name in derived else scalar
    init = init_parameters(sdfg, sorted(map(str, sdfg.free_symbols)))
    symbols = _types_of_symbols(sdfg, (_names_in_sizes(arrays.values()) | set(init)) - set(arguments))
    _add_accesses(sdfg, arrays, described, set(symbols), written)
    return {
        "format": 1,
        "program": sdfg.name,
        "interface": "dace",
        "arguments": [described[name] for name in arguments],
        "symbols": [{"name": name, "type": type_} for name, type_ in symbols.items()],
        "parameters": list(arguments),
        "init": init,
    }


def _add_accesses(sdfg, arrays, described, symbols, written):
    """Says what the program accesses that its arrays may lack, although they have their shapes."""
    from . import _accesses

    integers = {name for name, argument in described.items() if argument["kind"] == "scalar" and "int" in argument["type"]}
    for name, all_ in _accesses.accesses(sdfg, set(arrays)).items():
        shape = arrays[name].shape
        beyond = [access.beyond(shape) for access in all_]
        # A scalar that the program writes may have another value by then.
        entries = _accesses.described(beyond, [{"start": 0}] * len(shape), symbols | integers - set(written))
        if entries:
            described[name]["accesses"] = entries


def init_parameters(sdfg, names):
    """Those of these parameters of ``init``, in their order, that are passed to it: none if it does not depend on them.

    Memory that it allocates may depend on them, or code that it runs. The last ones that nothing depends on are left out."""
    from dace import dtypes
    from dace.sdfg import nodes

    kept = (dtypes.AllocationLifetime.Persistent, dtypes.AllocationLifetime.Global, dtypes.AllocationLifetime.External)
    names = [name for name in names if name in set(map(str, sdfg.free_symbols)) and not name.startswith("__dace")]
    memory = [(of, array) for of, _, array in sdfg.arrays_recursive() if array.transient and array.lifetime in kept]
    if any(of is not sdfg and array.free_symbols for of, array in memory):
        # Their symbols have other names outside.
        return names
    used = {str(symbol) for _, array in memory for symbol in array.free_symbols}
    code = [block.as_string for of in sdfg.all_sdfgs_recursive() for block in of.init_code.values()]
    code += [node.code_init.as_string for node, _ in sdfg.all_nodes_recursive() if isinstance(node, nodes.Tasklet)]
    used.update(re.findall(r"[A-Za-z_]\w*", " ".join(code)))
    count = max((at for at, name in enumerate(names, 1) if name in used), default=0)
    return names[:count]


def _symbols(arguments):
    """The symbols that are sizes of these arguments."""
    dimensions = [dimension for argument in arguments for dimension in argument["dimensions"]]
    return {dimension[part] for dimension in dimensions for part in ("extent", "stride") if isinstance(dimension[part], str)}


def _names_in_sizes(arrays):
    import sympy

    sizes = (sympy.sympify(part) for array in arrays for part in (*array.shape, *array.strides))
    return {str(symbol) for size in sizes for symbol in size.free_symbols}


def _types_of_symbols(sdfg, names):
    """The types of symbols that the program itself does not take, by name."""
    import numpy

    return {name: numpy.dtype(sdfg.symbols[name].type).name for name in sorted(names) if name in sdfg.symbols}


def _array(sdfg, name, array, is_written):
    from dace import dtypes

    where = f"argument {name} of program {sdfg.name}"
    parts = zip(array.shape, array.strides)
    dimensions = [{"extent": quantity(shape, where), "stride": quantity(stride, where)} for shape, stride in parts]
    if any(offset != 0 for offset in getattr(array, "offset", ())):
        raise HaloTypeError(f"{where} has an offset; give an array without one")
    return {
        "kind": "array",
        "name": name,
        "type": _type(sdfg, name, array),
        "device": "gpu" if array.storage == dtypes.StorageType.GPU_Global else "cpu",
        "access": "write" if is_written else "read",
        "dimensions": dimensions,
    }


def _type(sdfg, name, descriptor):
    import numpy
    from dace import dtypes

    of = descriptor.dtype
    if type(of) is not dtypes.typeclass or of.type is None:
        raise HaloTypeError(f"argument {name} of program {sdfg.name} is of type {of}; give a number or an array of numbers")
    return numpy.dtype(of.type).name


def quantity(expression, where):
    """An integer or an expression of a manifest."""
    import sympy

    expression = sympy.sympify(expression)
    if expression.is_Integer:
        return int(expression)
    return _text(expression, where)


def _text(expression, where):
    def inner(part):
        text = _text(part, where)
        return text if part.is_Symbol or part.is_Integer and part >= 0 else f"({text})"

    if expression.is_Integer or expression.is_Symbol:
        return str(expression)
    if expression.is_Add:
        return " + ".join(map(inner, expression.args))
    if expression.is_Mul:
        return "*".join(map(inner, expression.args))
    if expression.is_Pow and expression.exp.is_Integer and 0 < expression.exp <= 8:
        return "*".join([inner(expression.base)] * int(expression.exp))
    if type(expression).__name__ == "int_floor":
        return " // ".join(map(inner, expression.args))
    raise HaloTypeError(f"{where} has the size {expression}; sizes are sums, products and int_floor of symbols")
