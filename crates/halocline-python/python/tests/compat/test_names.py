"""The names of GHEX: of its modules, of what is in them, and of parameters, which may be given by name."""

import importlib
import inspect
import json
import subprocess
import sys

import numpy as np
import pytest

import halocline as hc
from halocline.compat import ghex
from halocline.compat.ghex import pyghex, unstructured, util
from halocline.compat.ghex.context import make_context
from halocline.compat.ghex.structured import cartesian_sets, regular

BOX = cartesian_sets.ProductSet(cartesian_sets.UnitRange(0, 8))

PARAMETERS = {
    "context.make_context": ["comm", "thread_safe"],
    "util.unwrap": ["arg"],
    "util.cls_from_cpp_type_spec": ["cpp_type_spec"],
    "util.CppWrapper.__init__": ["self", "cpp_type_spec", "args", "kwargs"],
    "unstructured.make_communication_object": ["context"],
    "unstructured.make_pattern": ["context", "halo_gen", "domain_range"],
    "unstructured.make_field_descriptor": ["domain_desc", "field", "arch"],
    "unstructured.wrap_field": ["args"],
    "unstructured.DomainDescriptor.__init__": ["self", "index", "indices", "halo_indices"],
    "unstructured.HaloGenerator.__init__": ["self", "gids"],
    "unstructured.HaloGenerator.from_gids": ["gids"],
    "structured.regular.make_communication_object": ["context"],
    "structured.regular.make_pattern": ["context", "halo_gen", "domain_range"],
    "structured.regular.make_field_descriptor": ["domain_desc", "field", "offsets", "extents", "arch"],
    "structured.regular.wrap_field": ["args"],
    "structured.regular.DomainDescriptor.__init__": ["self", "id_", "sub_domain_indices"],
    "structured.regular.HaloContainer.__init__": ["self", "local", "global_"],
    "structured.regular.HaloGenerator.__init__": ["self", "glob_domain_indices", "halos", "periodicity"],
    "structured.regular.HaloGenerator.__call__": ["self", "domain"],
    "structured.cartesian_sets.is_integer_like": ["val"],
    "structured.cartesian_sets.union": ["args", "simplify", "disjoint"],
    "structured.cartesian_sets.UnitRange.__init__": ["self", "start", "stop"],
    "structured.cartesian_sets.UnitRange.empty_set": [],
    "structured.cartesian_sets.UnitRange.universe": [],
    "structured.cartesian_sets.ProductSet.__init__": ["self", "args"],
    "structured.cartesian_sets.CartesianSet.from_range": ["rng"],
    "structured.cartesian_sets.IndexSpace.__init__": ["self", "subset"],
    "structured.cartesian_sets.IndexSpace.from_sizes": ["shape"],
    "structured.cartesian_sets.IndexSpace.transform": ["self", "transformer"],
    "structured.cartesian_sets.IndexSpace.intersect": ["self", "mask"],
    "structured.cartesian_sets.IndexSpace.decompose": ["self", "parts_per_dim"],
}
"""Those of GHEX 0.9."""


def found(package, names):
    """The parameters of what is in a package, by its names."""
    import functools
    import importlib
    import inspect

    parameters = {}
    for name in names:
        parts = name.split(".")
        depth = 2 if parts[0] == "structured" else 1
        module = importlib.import_module(".".join([package, *parts[:depth]]))
        parameters[name] = list(inspect.signature(functools.reduce(getattr, parts[depth:], module)).parameters)
    return parameters


def test_parameters_are_called_as_in_ghex():
    assert found("halocline.compat.ghex", PARAMETERS) == PARAMETERS


def test_ghex_itself_has_these_parameters(ghex_python):
    code = f"{inspect.getsource(found)}\nimport json\nprint(json.dumps(found('ghex', {list(PARAMETERS)})))"
    done = subprocess.run([ghex_python, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == PARAMETERS


def test_everything_by_name():
    context = make_context(comm=hc.init(), thread_safe=True)
    domain = regular.DomainDescriptor(id_=0, sub_domain_indices=BOX)
    halos = regular.HaloGenerator(glob_domain_indices=BOX, halos=(1,), periodicity=(True,))
    pattern = regular.make_pattern(context=context, halo_gen=halos, domain_range=[domain])
    field = np.arange(10.0)
    described = regular.make_field_descriptor(domain_desc=domain, field=field, offsets=(1,), extents=(10,), arch=None)
    regular.make_communication_object(context=context).exchange([pattern(described)]).wait()
    assert (field[0], field[-1]) == (8, 1)
    cells = unstructured.DomainDescriptor(index=0, indices=[0, 1, 0], halo_indices=[2])
    pattern = unstructured.make_pattern(
        context=context, halo_gen=unstructured.HaloGenerator(gids=None), domain_range=[cells]
    )
    field = np.arange(3.0)
    described = unstructured.make_field_descriptor(domain_desc=cells, field=field, arch=None)
    unstructured.make_communication_object(context=context).exchange([pattern(described)]).wait()
    assert field.tolist() == [0, 1, 0]


def test_the_module_of_what_is_cplusplus_in_ghex():
    code = """
import halocline.compat.ghex as ours
ours.install()
import ghex, ghex.pyghex
from ghex.pyghex import config, context, expose_cpp_ptr, mpi_comm, mpi_finalize, mpi_init
from ghex.pyghex import make_co_regular, make_co_unstructured, make_pattern_regular, make_pattern_unstructured
import ghex.context
assert ghex.pyghex is ours.pyghex and context is ghex.context.context and config is ghex.config and mpi_comm is ghex.mpi_comm
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_makes_patterns_in_cplusplus_takes_what_is_not_wrapped():
    context = make_context(hc.init())
    domain, halos = regular.DomainDescriptor(0, BOX), regular.HaloGenerator(BOX, (1,), (True,))
    assert isinstance(domain, util.CppWrapper) and util.unwrap(domain) is domain and util.unwrap(3) == 3
    pattern = pyghex.make_pattern_regular(context, util.unwrap(halos), [util.unwrap(domain)])
    field = np.arange(10.0)
    described = regular.make_field_descriptor(domain, field, (1,), (10,))
    pyghex.make_co_regular(context).exchange([pattern(described)]).wait()
    assert (field[0], field[-1]) == (8, 1)
    cells = unstructured.DomainDescriptor(0, [0, 1, 0], [2])
    pyghex.make_pattern_unstructured(context, unstructured.HaloGenerator(), [cells])
    pyghex.make_co_unstructured(context)


CPLUSPLUS = "structured__regular__domain_descriptor"
REFUSED = {
    "pyghex.py_dtype_to_cpp_name": lambda: pyghex.py_dtype_to_cpp_name,
    "unstructured__halo_generator_int_int_": lambda: pyghex.unstructured__halo_generator_int_int_,
    CPLUSPLUS: lambda: util.cls_from_cpp_type_spec((CPLUSPLUS, "int", 2)),
    "CppWrapper": lambda: util.CppWrapper((CPLUSPLUS, "int", 2), 0),
    "DomainDescriptor.*__wrapped__": lambda: regular.DomainDescriptor(0, BOX).__wrapped__,
    "HaloGenerator.*__wrapped__": lambda: unstructured.HaloGenerator().__wrapped__,
    "expose_cpp_ptr": lambda: pyghex.expose_cpp_ptr(BOX),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_of_objects_of_cplusplus_is_refused_by_name(name):
    with pytest.raises(ghex.UnsupportedError, match=name):
        REFUSED[name]()


def test_what_is_not_of_ghex_is_not_refused_but_missing():
    with pytest.raises(AttributeError, match="no attribute 'exchange'"):
        pyghex.exchange
    with pytest.raises(ImportError):
        from halocline.compat.ghex.pyghex import exchange  # noqa: F401
    # Who looks for it finds none.
    assert list(inspect.signature(regular.HaloGenerator(BOX, (1,), (True,))).parameters) == ["domain"]
    assert not hasattr(regular.DomainDescriptor(0, BOX), "__wrapped__") and not hasattr(pyghex, "__path__")


def test_sets_of_a_kind_without_a_member():
    assert cartesian_sets.UnitRange.universe() == cartesian_sets.UnitRange(-np.inf, np.inf)
    assert cartesian_sets.UnitRange.empty_set().empty and cartesian_sets.UnitRange(0, 3).empty_set().empty


def test_numbers_that_sets_are_made_of():
    for number in (3, True, np.int8(-3), float("inf"), -np.inf):
        assert cartesian_sets.is_integer_like(number), number
    for other in (3.0, "3", None, float("nan"), [3]):
        assert not cartesian_sets.is_integer_like(other), other
    assert list(cartesian_sets.index_convention.__annotations__) == ["index_spaces", "origins"]


def test_all_that_a_module_says_it_has_is_there():
    for name in ("", ".context", ".util", ".pyghex", ".unstructured", ".structured.regular", ".structured.cartesian_sets"):
        module = importlib.import_module(f"halocline.compat.ghex{name}")
        assert [name for name in module.__all__ if not hasattr(module, name)] == []
