"""``help()`` says what the stub says: of all public names the first sentence."""

import ast
import inspect
import pickle
import re
from pathlib import Path

import pytest

import halocline as hc

STUB = ast.parse(Path(hc.__file__).with_suffix(".pyi").read_text())


def documented():
    """What has a docstring in the stub."""
    for node in STUB.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_"):
            members = node.body if isinstance(node, ast.ClassDef) else []
            functions = [member for member in members if isinstance(member, ast.FunctionDef) and member.name[0] != "_"]
            for path in [(node,), *((node, function) for function in functions)]:
                text = ast.get_docstring(path[-1])
                if text is not None:
                    yield ".".join(part.name for part in path), text


def first_sentence(text):
    text = " ".join(text.split())
    found = re.match(r".*?\.(?=\s|$)", text)
    return found[0] if found else text


DOCUMENTED = dict(documented())


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_public_name_says_what_it_is(name):
    thing = hc
    for part in name.split("."):
        thing = inspect.getattr_static(thing, part)
    thing = getattr(thing, "__func__", thing)
    assert thing.__doc__, f"{name} has no docstring; the stub has: {DOCUMENTED[name]}"
    assert first_sentence(thing.__doc__) == first_sentence(DOCUMENTED[name])


def test_all_is_what_the_stub_has():
    public = {node.name for node in STUB.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    assert sorted(hc.__all__) == sorted(name for name in public if not name.startswith("_"))
    for name in hc.__all__:
        assert getattr(hc, name).__module__ == "halocline", name
    for function in (hc.init, hc.zeros, hc.run_threads):
        assert pickle.loads(pickle.dumps(function)) is function
