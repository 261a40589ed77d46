"""Compiled programs: a small C library, compiled here, called through ``halocline.program``."""

import ast
import inspect
import json
import shutil
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

import halocline as hc
from halocline import program

COMPILER = shutil.which("cc")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler (cc) is installed")

SCALE = """
    void scale(double *a, int n, int s, double factor) {
        for (int i = 0; i < n; i++) a[i * s] *= factor;
    }"""


def dimension(**parts):
    return {"name": "I", **parts}


def array(name, type="float64", dimensions=(), **more):
    return {"kind": "array", "name": name, "type": type, "dimensions": list(dimensions), **more}


def scalar(name, type, **more):
    return {"kind": "scalar", "name": name, "type": type, **more}


SCALE_MANIFEST = {
    "format": 1,
    "program": "scale",
    "interface": "c",
    "arguments": [array("a", dimensions=[dimension(extent="n", stride="s")]), scalar("factor", "float64")],
    "symbols": [{"name": "n", "type": "int32"}, {"name": "s", "type": "int32"}],
    "parameters": ["a", "n", "s", "factor"],
}


@pytest.fixture
def build(tmp_path):
    def build(code, manifest):
        source, library = tmp_path / "code.c", tmp_path / "libcode.so"
        source.write_text(code)
        subprocess.run([COMPILER, "-O1", "-w", "-shared", "-fPIC", "-o", library, source], check=True, timeout=60)
        (tmp_path / "libcode.so.json").write_text(json.dumps(manifest))
        return library

    return build


@pytest.fixture
def scale(build):
    return program.load(build(SCALE, SCALE_MANIFEST))


def test_a_program_says_what_it_takes(scale):
    assert (scale.name, scale.arguments, scale.states) == ("scale", ("a", "factor"), 0)
    assert str(scale.library).endswith("libcode.so")
    assert repr(scale) == "<halocline.program.Program scale(a, factor)>"


def test_arrays_are_passed_in_place_with_their_strides(scale):
    a = np.arange(6.0)
    scale(a[::2], 10)
    scale(a[::-1], factor=2)
    scale(factor=0.5, a=a[1:1])
    assert a.tolist() == [0, 2, 40, 6, 80, 10]


@pytest.mark.parametrize("number", [2, 2.0, True + 1, np.float32(2), np.float16(2), np.int8(2), np.array(2.0)])
def test_numbers_of_python_and_numpy_are_taken(scale, number):
    a = np.ones(2)
    scale(a, number)
    assert a.tolist() == [2, 2]


class Converts:
    """Something that is a number if this function returns one."""

    def __init__(self, convert):
        self.convert = convert

    def __float__(self):
        return self.convert()


class Interface:
    """Another library's array."""

    def __init__(self, array):
        self.array = array
        self.described = 0

    @property
    def shape(self):
        return self.array.shape

    @property
    def __array_interface__(self):
        self.described += 1
        return self.array.__array_interface__


class Steady(Interface):
    """An array whose library never moves its memory."""


Steady.__module__ = "cupy.like"


def test_a_steady_array_is_described_once_while_it_keeps_its_shape(scale):
    a = Steady(np.ones(6))
    for _ in range(3):
        scale(a, 2)
    assert a.described == 1
    a.array = a.array[:2]
    scale(a, 2)
    assert (a.described, a.array.tolist()) == (2, [16, 16])
    other = Steady(np.ones(2))
    scale(other, 2)
    scale(a, 2)
    assert (a.array.tolist(), other.array.tolist()) == ([32, 32], [2, 2])


def test_an_array_that_says_it_is_larger_than_memory_is_refused(scale):
    class Huge(Interface):
        @property
        def __array_interface__(self):
            return {**self.array.__array_interface__, "shape": (2**62,)}

    with pytest.raises(hc.HaloValueError, match="argument a of program scale: an array of shape .* is larger than any memory"):
        scale(Huge(np.ones(6)), 2)


def test_an_array_that_may_move_is_described_in_each_call(scale):
    a = Interface(np.ones(6))
    first = a.array
    scale(a, 2)
    a.array = np.ones(6)
    scale(a, 3)
    assert (first.tolist(), a.array.tolist()) == ([2] * 6, [3] * 6)
    call = scale.prepare(a, 2)
    call()
    a.array = np.ones(6)
    with pytest.raises(hc.HaloValueError, match="argument a of program scale was moved, resized, reshaped, retyped or made read-only after the call was prepared; prepare it again"):
        call()


@pytest.mark.parametrize(
    "arguments, error, text",
    [
        ((), hc.HaloTypeError, "program scale lacks argument a; it takes a, factor"),
        ((np.ones(2),), hc.HaloTypeError, "lacks argument factor"),
        ((np.ones(2), 1, 2), hc.HaloTypeError, "takes 2 arguments, 3 are given"),
        ((np.ones(2, "f4"), 1), hc.HaloTypeError, "elements of type float32, the program takes float64"),
        ((np.ones(2, ">f8"), 1), hc.HaloTypeError, "argument a of program scale has elements of type >f8, which cannot be passed to a program; convert the array"),
        ((np.ones((2, 2)), 1), hc.HaloValueError, "has 2 dimensions, the program takes 1 .I."),
        ((7, 1), hc.HaloTypeError, "argument a of program scale is the number 7; give an array of float64"),
        (([1.0], 1), hc.HaloTypeError, "argument a of program scale: an array .* is wanted"),
        ((None, 1), hc.HaloTypeError, "program scale lacks argument a; it takes a, factor"),
        ((np.ones(2), "x"), hc.HaloTypeError, "argument factor of program scale: a number is wanted, not 'x'"),
        ((np.ones(2), None), hc.HaloTypeError, "lacks argument factor"),
        ((np.ones(2), np.ones(1)), hc.HaloTypeError, "factor of program scale is an array of 1 dimensions"),
        ((np.ones(2), 1 << 70), hc.HaloValueError, "argument factor of program scale: .* is out of the range of 64-bit integers"),
        ((np.ones(2), 1j), hc.HaloTypeError, "argument factor of program scale: a number is wanted, not complex"),
        ((np.array([None]), 1), hc.HaloTypeError, "argument a of program scale has elements of type object, which .*; convert the array"),
        ((np.zeros(2, "i4,f8"), 1), hc.HaloTypeError, "argument a of program scale has elements of type .*f0.*, which cannot be passed"),
        ((np.ma.ones(2), 1), hc.HaloTypeError, "argument a of program scale: a masked array is two arrays"),
        ((np.ones(2), Converts(lambda: 1 / 0)), ZeroDivisionError, "division by zero"),
        ((np.ones(2), Converts(lambda: "x")), hc.HaloTypeError, "argument factor of program scale: a number is wanted, not .*Converts"),
    ],
)
def test_wrong_arguments_are_refused(scale, arguments, error, text):
    for call in (scale, scale.prepare):
        with pytest.raises(error, match=text):
            call(*arguments)


def test_wrong_names_are_refused(scale):
    a = np.ones(2)
    with pytest.raises(hc.HaloTypeError, match="has no argument b; it takes a, factor"):
        scale(a, 1, b=2)
    with pytest.raises(hc.HaloTypeError, match="argument a of program scale is given twice"):
        scale(a, 1, a=a)
    with pytest.raises(hc.HaloTypeError, match="program scale lacks argument a; it takes a, factor"):
        scale(factor=1)


def test_read_only_and_unaligned_arrays_are_refused(scale):
    a = np.ones(3)
    a.flags.writeable = False
    with pytest.raises(hc.HaloValueError, match="is read-only, and the program writes it"):
        scale(a, 1)
    unaligned = np.zeros(17, "u1")[1:].view("f8")
    with pytest.raises(hc.HaloValueError, match="float64 needs a multiple of 8; copy the array"):
        scale(unaligned, 1)


INTEGERS = {
    "format": 1,
    "program": "add",
    "interface": "c",
    "arguments": [
        array("sum", "int64"),
        scalar("a", "int8"),
        scalar("b", "uint64"),
        scalar("c", "bool"),
        scalar("n", "int32"),
        array("window", "int8", [dimension(covers=[0, "n"])], access="read"),
    ],
    "parameters": ["sum", "a", "b", "c"],
}
ADD = "void add(long *sum, signed char a, unsigned long b, _Bool c) { *sum = a + (long)b + c; }"


def test_numbers_are_checked_for_their_type(build):
    add = program.load(build(ADD, INTEGERS))
    total, window = np.zeros((), "i8"), np.zeros(4, "i1")
    window.flags.writeable = False
    add(total, -3, 2**64 - 1, np.True_, 4, window)
    assert total == -3
    for arguments, error, text in [
        ((3.7, 1, 0, 4), hc.HaloTypeError, "argument a of program add is 3.7; give an integer of type int8"),
        ((128, 1, 0, 4), hc.HaloValueError, "is 128, which int8 cannot hold; give -128 to 127"),
        ((1, -1, 0, 4), hc.HaloValueError, "is -1, which uint64 cannot hold"),
        ((1, 1, 2, 4), hc.HaloTypeError, "is 2; give true or false, 1 or 0"),
        ((1, 1, 1, 5), hc.HaloValueError, "has indices 0 to 4 .* accesses 0 to 5 .n."),
    ]:
        with pytest.raises(error, match=text):
            add(total, *arguments, window)


def test_a_prepared_call_takes_other_numbers(scale):
    a = np.ones(2)
    call = scale.prepare(a, 2)
    call()
    call(factor=5)
    call()
    with pytest.raises(hc.HaloTypeError, match="argument a of program scale is an array; prepare the call again"):
        call(a=1)
    with pytest.raises(hc.HaloTypeError, match="no argument b"):
        call(factor=7, b=1)
    with pytest.raises(hc.HaloTypeError, match="a number is wanted"):
        call(factor=a)
    call()
    assert a.tolist() == [250, 250]
    assert repr(call) == "<halocline.program.PreparedCall of scale>"


def test_a_prepared_call_keeps_its_arrays(scale):
    call = scale.prepare(np.ones(1000), 2)
    other = scale.prepare(Interface(np.ones(1000)), 2)
    for _ in range(10):
        np.ones(1000)
        call()
        other()


@pytest.mark.parametrize("change", [lambda a: a.resize(3, refcheck=False), lambda a: setattr(a, "shape", (2, 500))])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_prepared_call_refuses_an_array_that_was_resized(scale, change):
    a = np.ones(1000)
    call = scale.prepare(a, 2)
    change(a)
    with pytest.raises(hc.HaloValueError, match="argument a of program scale was resized, reshaped or made read-only"):
        call()


@pytest.mark.parametrize("change", [lambda a: a.setflags(write=False), lambda a: setattr(a, "dtype", "int64")])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_prepared_call_refuses_an_array_of_a_subclass_that_got_another_type_or_access(scale, change):
    class Subclass(np.ndarray):
        pass

    a = np.ones(6).view(Subclass)
    call = scale.prepare(a, 2)
    call()
    before = a.tobytes()
    change(a)
    with pytest.raises(hc.HaloValueError, match="argument a of program scale was .* retyped or made read-only after the call was prepared"):
        call()
    assert a.tobytes() == before


def test_a_prepared_call_refuses_an_array_that_is_resized_while_another_one_is_described(build):
    code = "void copy(double *a, const double *b, int n) { for (int i = 0; i < n; i++) a[i] = b[i]; }"
    manifest = {**SCALE_MANIFEST, "program": "copy", "parameters": ["a", "b", "n"], "symbols": [{"name": "n", "type": "int32"}]}
    one = [dimension(extent="n", stride=1)]
    manifest["arguments"] = [array("a", dimensions=one), array("b", dimensions=one, access="read")]
    copy, a, resizes = program.load(build(code, manifest)), np.zeros(4), False

    class Resizing(Interface):
        @property
        def __array_interface__(self):
            if resizes:
                a.resize(2_000_000, refcheck=False)
            return self.array.__array_interface__

    call = copy.prepare(a, Resizing(np.ones(4)))
    call()
    assert a.tolist() == [1] * 4
    resizes = True
    with pytest.raises(hc.HaloValueError, match="argument a of program copy was resized"):
        call()


WAIT = """
    void wait_for(int *flags) {
        __atomic_store_n(&flags[0], 1, __ATOMIC_SEQ_CST);
        while (!__atomic_load_n(&flags[1], __ATOMIC_SEQ_CST)) ;
    }"""
WAIT_MANIFEST = {
    "format": 1,
    "program": "wait_for",
    "interface": "c",
    "arguments": [array("flags", "int32", [dimension(extent=2, stride=1)])],
    "parameters": ["flags"],
}


@pytest.mark.parametrize("how", ["call", "prepare"])
def test_an_array_that_a_number_resizes_is_passed_as_it_is_then(scale, how):
    a = np.ones(4)

    class Number:
        def __float__(self):
            a.resize(2_000_000, refcheck=False)
            return 2.0

    call = scale if how == "call" else lambda *given: scale.prepare(*given)()
    call(a, Number())
    assert a[0] == 2.0 and a[-1] == 0.0


def test_an_argument_may_be_named_stream(build):
    code = "void fill(double *stream, int n) { for (int i = 0; i < n; i++) stream[i] = 7; }"
    manifest = {**SCALE_MANIFEST, "program": "fill", "parameters": ["stream", "n"], "symbols": [{"name": "n", "type": "int32"}]}
    manifest["arguments"] = [array("stream", dimensions=[dimension(extent="n", stride=1)])]
    fill = program.load(build(code, manifest))
    a, b = np.zeros(3), np.zeros(3)
    fill(stream=a)
    fill.prepare(stream=b)()
    assert a.tolist() == b.tolist() == [7, 7, 7]


def test_the_gil_is_released_and_a_prepared_call_is_for_one_thread(build):
    wait = program.load(build(WAIT, WAIT_MANIFEST))
    flags = np.zeros(2, "i4")
    call = wait.prepare(flags)
    thread = threading.Thread(target=call)
    thread.start()
    # Without the GIL's release this would wait for ever.
    while not flags[0]:
        pass
    try:
        with pytest.raises(hc.InFlightError, match="this prepared call of program wait_for is being made, by another thread or"):
            call()
    finally:
        flags[1] = 1
        thread.join()


STATES = """
    #include <stdlib.h>
    int *__dace_init_p(int n) { if (n < 0) return 0; int *s = malloc(4); *s = n; return s; }
    void __program_p(int *s, int *out, int n) { *out = *s; }
    int __dace_exit_p(int *s) { free(s); return 0; }
    int __dace_gpu_last_error(int *s) { return *s == 9 ? 700 : 0; }"""
STATES_MANIFEST = {
    "format": 1,
    "program": "p",
    "arguments": [array("out", "int32"), scalar("n", "int32")],
    "parameters": ["out", "n"],
    "init": ["n"],
}


def test_states_and_errors_of_a_program(build):
    p = program.load(build(STATES, STATES_MANIFEST))
    out = np.zeros((), "i4")
    for n in (3, 4, 3):
        p(out, n)
        assert out == n
    assert p.states == 2
    with pytest.raises(hc.ProgramError, match=r"__dace_init_p\(n=-1\) returned NULL"):
        p(out, -1)
    with pytest.raises(hc.ProgramError, match="its last GPU error is 700"):
        p(out, 9)


def test_eight_threads_call_at_once(build):
    p = program.load(build(STATES, STATES_MANIFEST))
    wrong = []

    def calls(number):
        out = np.zeros((), "i4")
        for i in range(300):
            p(out, n=number + i % 2)
            if out != number + i % 2:
                wrong.append((number, i, int(out)))

    threads = [threading.Thread(target=calls, args=(10 * number,)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_libraries_that_cannot_be_loaded_are_refused(build, tmp_path):
    library = build(SCALE, SCALE_MANIFEST)
    with pytest.raises(hc.ProgramError, match="no symbol missing, which program missing needs"):
        program.load(library, json.dumps({**SCALE_MANIFEST, "program": "missing"}))
    with pytest.raises(hc.HaloValueError, match="the manifest given for library .*libcode.so is not valid: EOF"):
        program.load(library, "{")
    for text, why in [("[]", r"it is no JSON object \({...}\)"), ("3", "it is no JSON object .*"), (" ", "it is empty")]:
        with pytest.raises(hc.HaloValueError, match=f"the manifest given for library .*libcode.so is not valid: {why}; docs"):
            program.load(library, text)
    with pytest.raises(hc.HaloTypeError, match="library: a str or an os.PathLike of a str is wanted, not 3"):
        program.load(3)
    with pytest.raises(hc.HaloTypeError, match="manifest: a str is wanted, not dict"):
        program.load(library, SCALE_MANIFEST)
    with pytest.raises(hc.ProgramError, match="manifest .*none.so.json .* cannot be read .*; write it beside the library, or give it when"):
        program.load(tmp_path / "none.so")
    with pytest.raises(hc.HaloValueError, match="has format 2"):
        program.load(library, json.dumps({**SCALE_MANIFEST, "format": 2}))
    cut = tmp_path / "cut.so"
    cut.write_bytes(library.read_bytes()[:5000])
    with pytest.raises(hc.ProgramError, match="cut.so is truncated"):
        program.load(cut, json.dumps(SCALE_MANIFEST))
    with pytest.raises(hc.ProgramError, match="cannot be read"):
        program.load(tmp_path / "none.so")


def test_a_program_of_the_host_takes_no_stream(scale):
    a = np.ones(3)
    scale(a, 2, stream=None)
    scale.prepare(a, 2, stream=None)()
    assert a.tolist() == [4, 4, 4]
    assert scale.synchronises is False
    for call in (scale, scale.prepare):
        with pytest.raises(hc.HaloTypeError, match="program scale uses no stream of a GPU; call it without a stream"):
            call(a, 2, stream=hc.Stream(0x1234))
        with pytest.raises(hc.HaloTypeError, match="stream: str is no stream; give None"):
            call(a, 2, stream="fast")


def test_a_program_of_a_gpu_refuses_arrays_of_the_host(build):
    on_gpu = [array("a", dimensions=[dimension(extent="n", stride="s")], device="gpu"), SCALE_MANIFEST["arguments"][1]]
    manifest = SCALE_MANIFEST | {"arguments": on_gpu, "streams": "default", "synchronises": True}
    scale = program.load(build(SCALE, manifest))
    assert scale.synchronises
    for call in (scale, scale.prepare):
        with pytest.raises(hc.HaloValueError, match="argument a of program scale is in memory of the host, the program takes memory of a GPU"):
            call(np.ones(3), 2)


def test_only_an_sdfg_is_taken_for_one():
    with pytest.raises(hc.HaloTypeError, match="compiled: a CompiledSDFG of DaCe .* is wanted, not int"):
        program.from_sdfg(3)


def test_the_module_is_documented_as_its_stub_says():
    stub = ast.parse(Path(program.__file__).with_suffix(".pyi").read_text())
    of_python = {"from_gt4py", "from_sdfg", "install", "uninstall"}
    checked = 0
    for node in stub.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name not in of_python:
            thing = getattr(program, node.name)
            assert thing.__module__ == "halocline.program"
            checked += 1
            if isinstance(node, ast.ClassDef):
                assert inspect.getdoc(thing) == ast.get_docstring(node)
                members = {member.name: member for member in node.body if isinstance(member, ast.FunctionDef)}
                for name, member in members.items():
                    if name not in ("__call__", "__init__"):
                        assert inspect.getdoc(inspect.getattr_static(thing, name)) == ast.get_docstring(member), name
    assert checked == 9
    of_cache = {"BuildFolder", "Entry", "build", "cache_gt4py", "compile_sdfg"}
    assert set(program.__all__) == {"FieldProgram", "PreparedCall", "Program", "load"} | of_cache | of_python
