"""Variants of GT4Py's programs, and fields, that a program of Halocline does not take."""

import types

import pytest
from conftest import gt4py_program, made, plane
from programs import I, J

import halocline as hc
from halocline import _gt4py, program


def test_variants_that_have_no_program_of_their_own_are_refused(monkeypatch):
    from gt4py.next.otf import arguments

    for is_generic, mapping, text in [
        (True, {}, "program: heat takes arguments of any type; call it in a program"),
        (False, {arguments.FieldDomainDescriptor: ["t"]}, r"program: heat is compiled for the domains of its fields; call it through install\(\)"),
    ]:
        pool = types.SimpleNamespace(_is_generic=is_generic, argument_descriptor_mapping=mapping)
        with pytest.raises(hc.HaloTypeError, match=text):
            _gt4py._compiled(types.SimpleNamespace(_compiled_programs=pool), {}, {}, "heat")
    monkeypatch.setattr(_gt4py, "of_dace", lambda compiled: None)
    with pytest.raises(hc.HaloTypeError, match=r"program: heat has the backend .*; a DaCe backend is wanted \(run_dace_cpu\)"):
        program.from_gt4py(gt4py_program("heat"))


def test_a_domain_without_an_end_is_refused():
    class Endless:
        ndarray = plane().ndarray
        domain = types.SimpleNamespace(dims=(I, J), ranges=(types.SimpleNamespace(start=0, stop=None),) * 2)

    with pytest.raises(hc.HaloValueError, match=r"argument t of program heat has an infinite domain in dimension I.*; give a field with memory"):
        made("heat")(Endless(), 0.1, plane(1, (6, 5)))
