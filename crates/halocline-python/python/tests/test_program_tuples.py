"""Nested tuples of arguments, as GT4Py's programs take them: each number arrives at the parameter of its flattened name."""

import ctypes
import json
import subprocess
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import halocline as hc
from halocline import _core

# A leaf is the type of a number.
TREES = st.recursive(st.sampled_from(["float64", "int32"]), lambda part: st.lists(part, min_size=1, max_size=3), max_leaves=12)
C_TYPES = {"float64": "double", "int32": "int"}


def leaves(name, tree):
    """The flattened names and types of a parameter."""
    if isinstance(tree, str):
        return {name: tree}
    return {leaf: kind for at, part in enumerate(tree) for leaf, kind in leaves(f"{name}_{at}", part).items()}


def values(tree, numbers):
    """A number for each leaf, in nested tuples; also adds them to a list."""
    if isinstance(tree, str):
        numbers.append(len(numbers) + (0.5 if tree == "float64" else 0))
        return numbers[-1]
    return tuple(values(part, numbers) for part in tree)


def shape(tree):
    """The structure of a parameter, as the extension takes it."""
    return None if isinstance(tree, str) else [shape(part) for part in tree]


def loaded(folder, trees, order):
    """A program whose C function writes down its parameters, which have another order than the leaves; and what it writes to."""
    flat = {leaf: kind for at, tree in enumerate(trees) for leaf, kind in leaves(f"t{at}", tree).items()}
    parameters = sorted(flat, key=lambda name: order[list(flat).index(name) % len(order)])
    declared = ", ".join(f"{C_TYPES[flat[name]]} {name}" for name in parameters)
    body = "".join(f"seen[{at}] = {name}; " for at, name in enumerate(flat))
    source, library = folder / "nested.c", folder / "libnested.so"
    source.write_text(f"double seen[{len(flat)}];\nvoid nested({declared}) {{ {body}}}\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    arguments = [{"kind": "scalar", "name": name, "type": kind} for name, kind in flat.items()]
    manifest = {"format": 1, "program": "nested", "interface": "c", "arguments": arguments, "parameters": parameters}
    metrics = {"config": types.ModuleType("config"), "time": None, "has_time": False, "has_level": False, "measure": None}
    described = {"parameters": {f"t{at}": shape(tree) for at, tree in enumerate(trees)}, "leaves": dict.fromkeys(flat, True)}
    described |= {"connectivities": {}, "gathers": [], "offsets": {}, "dimensions": {}, "classes": (), "metrics": metrics}
    seen = (ctypes.c_double * len(flat)).in_dll(ctypes.CDLL(str(library)), "seen")
    return _core._field_program(library, json.dumps(manifest), described), seen


@settings(max_examples=15, deadline=None)
@given(st.lists(TREES, min_size=1, max_size=4), st.lists(st.integers(), min_size=1, max_size=20))
def test_random_trees_of_numbers_arrive(tmp_path_factory, trees, order):
    program, seen = loaded(tmp_path_factory.mktemp("nested"), trees, order)
    for repeat in range(3):  # fresh, then known
        numbers = [repeat]
        given = [values(tree, numbers) for tree in trees]
        program(*given)
        assert list(seen) == numbers[1:]
    numbers = [100]
    call = program.prepare(*(values(tree, numbers) for tree in trees))
    call()
    assert list(seen) == numbers[1:]


def test_a_tuple_of_another_shape_is_refused(tmp_path):
    program, seen = loaded(tmp_path, [["float64", ["int32", "int32"]]], [0])
    program((1.5, (2, np.int32(3))))
    assert list(seen) == [1.5, 2, 3]
    for wrong in ((1.5, 2, 3), (1.5, (2,)), 1.5, (1.5, (2, 3.5)), (1.5, (2, 2**31))):
        with pytest.raises((hc.HaloTypeError, hc.HaloValueError), match="of program nested"):
            program(wrong)
    assert list(seen) == [1.5, 2, 3]
