"""The manifest of a program that DaCe compiled, from what DaCe knows of it."""

import json

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
    return _core._load_program(compiled.filename, json.dumps(manifest(compiled.sdfg)))


def manifest(sdfg):
    """The manifest of a compiled SDFG, as a dictionary."""
    from dace import data

    arguments = sdfg.arglist()
    try:
        written = sdfg.read_and_write_sets()[1]
    except AttributeError:  # Another version of DaCe: every array counts as written.
        written = set(arguments)
    arrays = {name: descriptor for name, descriptor in arguments.items() if type(descriptor) is data.Array}
    described = {name: _array(sdfg, name, array, name in written) for name, array in arrays.items()}
    derived = {
        part
        for array in described.values()
        for dimension in array["dimensions"]
        for part in (dimension["extent"], dimension["stride"])
        if isinstance(part, str)
    }
    for name, descriptor in arguments.items():
        if name in arrays:
            continue
        if type(descriptor) is not data.Scalar:
            raise HaloTypeError(
                f"argument {name} of program {sdfg.name} is a {type(descriptor).__name__} of DaCe; arrays and scalars can be passed"
            )
        scalar = {"kind": "scalar", "name": name, "type": _type(sdfg, name, descriptor)}
        described[name] = {**scalar, "optional": True} if name in derived else scalar
    return {
        "format": 1,
        "program": sdfg.name,
        "interface": "dace",
        "arguments": [described[name] for name in arguments],
        "symbols": _symbols(sdfg, arrays.values(), arguments),
        "parameters": list(arguments),
        "init": sorted(name for name in map(str, sdfg.free_symbols) if not name.startswith("__dace")),
    }


def _symbols(sdfg, arrays, arguments):
    """Symbols of sizes and of the begin that the program itself does not take."""
    import numpy
    import sympy

    sizes = (sympy.sympify(part) for array in arrays for part in (*array.shape, *array.strides))
    names = {str(symbol) for size in sizes for symbol in size.free_symbols} | set(map(str, sdfg.free_symbols))
    rest = sorted(name for name in names if name not in arguments and not name.startswith("__dace") and name in sdfg.symbols)
    return [{"name": name, "type": numpy.dtype(sdfg.symbols[name].type).name} for name in rest]


def _array(sdfg, name, array, is_written):
    from dace import dtypes

    where = f"argument {name} of program {sdfg.name}"
    parts = zip(array.shape, array.strides)
    dimensions = [{"extent": quantity(shape, where), "stride": quantity(stride, where)} for shape, stride in parts]
    if any(offset != 0 for offset in getattr(array, "offset", ())):
        raise HaloTypeError(f"{where} has an offset; arrays without one can be passed")
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
        raise HaloTypeError(f"argument {name} of program {sdfg.name} is of type {of}; numbers can be passed")
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
