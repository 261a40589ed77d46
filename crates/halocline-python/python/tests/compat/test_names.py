"""The names of GHEX: parameters may be given by them."""

import inspect
import json
import subprocess

import numpy as np

import halocline as hc
from halocline.compat.ghex import unstructured
from halocline.compat.ghex.context import make_context
from halocline.compat.ghex.structured import cartesian_sets, regular

BOX = cartesian_sets.ProductSet(cartesian_sets.UnitRange(0, 8))

PARAMETERS = {
    "context.make_context": ["comm", "thread_safe"],
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


def test_sets_of_a_kind_without_a_member():
    assert cartesian_sets.UnitRange.universe() == cartesian_sets.UnitRange(-np.inf, np.inf)
    assert cartesian_sets.UnitRange.empty_set().empty and cartesian_sets.UnitRange(0, 3).empty_set().empty
