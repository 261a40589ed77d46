"""``help()``, ``?`` and ``inspect.signature`` show what the stub says."""

import ast
import inspect
import pickle
import pydoc
import re
from pathlib import Path

import pytest

import halocline as hc

STUB = ast.parse(Path(hc.__file__).with_suffix(".pyi").read_text())


def is_public(node):
    return isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_")


def public():
    """Public names of the stub with their nodes; of overloads the last one, which has the documentation."""
    found = {}
    for node in filter(is_public, STUB.body):
        found[node.name] = node
        for member in filter(is_public, node.body if isinstance(node, ast.ClassDef) else []):
            found[f"{node.name}.{member.name}"] = member
    return found


def thing_of(name):
    thing = hc
    for part in name.split("."):
        thing = inspect.getattr_static(thing, part)
    return getattr(thing, "__func__", thing)


PUBLIC = public()
CALLABLE = [name for name, node in PUBLIC.items() if isinstance(node, ast.FunctionDef) and not node.decorator_list]
CLASSES = [name for name, node in PUBLIC.items() if isinstance(node, ast.ClassDef) and "Error" not in name]


@pytest.mark.parametrize("name", PUBLIC)
def test_help_shows_the_whole_documentation_of_every_public_name(name):
    text = ast.get_docstring(PUBLIC[name])
    assert text, f"the stub does not document {name}"
    assert inspect.getdoc(thing_of(name)) == text


def test_help_shows_the_documentation_of_the_package():
    assert inspect.getdoc(hc) == ast.get_docstring(STUB)


def parameters(function):
    """Names, kinds and defaults of the parameters that the stub has."""
    arguments = function.args
    positional = arguments.posonlyargs + arguments.args
    defaults = [None] * (len(positional) - len(arguments.defaults)) + arguments.defaults
    pairs = [(argument.arg, default, False) for argument, default in zip(positional, defaults)]
    pairs += [(argument.arg, default, True) for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults)]
    no_default = inspect.Parameter.empty
    return [
        (name, no_default if default is None else ast.literal_eval(default), keyword)
        for name, default, keyword in pairs
        if name not in ("self", "cls")
    ]


def parameters_at_runtime(thing):
    signature = inspect.signature(thing)
    by_keyword = inspect.Parameter.KEYWORD_ONLY
    found = [(name, given.default, given.kind is by_keyword) for name, given in signature.parameters.items()]
    return [parameter for parameter in found if parameter[0] != "self"]


@pytest.mark.parametrize("name", CALLABLE)
def test_signatures_are_those_of_the_stub(name):
    assert parameters_at_runtime(thing_of(name)) == parameters(PUBLIC[name])


@pytest.mark.parametrize("name", CLASSES)
def test_signatures_of_classes_are_those_of_the_stub(name):
    made = [node for node in PUBLIC[name].body if isinstance(node, ast.FunctionDef) and node.name == "__new__"]
    for node in made:
        assert parameters_at_runtime(getattr(hc, name)) == parameters(node)


def test_help_of_a_class_shows_its_signature_its_options_and_its_methods():
    # From Python 3.14 on each parameter has a line of its own.
    shown = re.sub(r"[\s|]+", " ", pydoc.render_doc(hc.HaloExchange, renderer=pydoc.plaintext)).replace("( ", "(")
    assert "HaloExchange(comm, fields, *, link='auto', deadline=None," in shown
    for text in ("``stream_waits``: streams wait for peers", "exchange(self, /, *, wait=True, set=0, streams=None)", "``set``: the index of a set"):
        assert text in shown, text


def test_all_is_what_the_stub_has():
    names = {node.name for node in STUB.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    assert sorted(hc.__all__) == sorted(name for name in names if not name.startswith("_"))
    for name in hc.__all__:
        assert getattr(hc, name).__module__ == "halocline", name
    for function in (hc.init, hc.zeros, hc.run_threads):
        assert pickle.loads(pickle.dumps(function)) is function
