"""Programs that DaCe compiles, called through ``halocline.program`` and by DaCe itself."""

import copy
import functools
import shutil

import numpy as np
import pytest

import halocline as hc
from halocline import _install, _sdfg, program

dace = pytest.importorskip("dace", reason="DaCe is not installed")
pytestmark = pytest.mark.skipif(shutil.which("cmake") is None, reason="DaCe compiles with cmake, which is not installed")

N = dace.symbol("N")
M = dace.symbol("M", dtype=dace.int64)


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    """DaCe's build folder, and no file in the user's home."""
    with dace.config.set_temporary("default_build_folder", value=str(tmp_path_factory.mktemp("dacecache"))):
        yield


@dace.program
def mixed(
    A: dace.float64[N, M],
    B: dace.float64[N, M],
    C: dace.float32[20],
    a: dace.float64,
    k: dace.int32,
    flag: dace.bool,
):
    B[:] = a * A + B + k + flag
    C[:] = C + 1


@pytest.fixture(scope="module")
def compiled(folder):
    return mixed.to_sdfg().compile()


def fields(rows=5, columns=8):
    random = np.random.default_rng(1)
    return random.random((rows, columns)), random.random((rows, columns)), np.zeros(20, "f4")


def test_the_results_are_those_of_dace(compiled):
    (A, B, C), (A2, B2, C2) = fields(), fields()
    called = program.from_sdfg(compiled)
    called(A, B, C, a=2.5, k=3, flag=True)
    compiled(A=A2, B=B2, C=C2, a=2.5, k=3, flag=True, N=5, M=8)
    assert np.array_equal(B, B2) and np.array_equal(C, C2)
    assert called.states == 1


def test_an_sdfg_that_changed_since_it_was_compiled_has_the_arguments_of_its_library(compiled, monkeypatch):
    (A2, B2, C2) = fields()
    compiled(A=A2, B=B2, C=C2, a=2.5, k=3, flag=True, N=5, M=8)
    monkeypatch.setattr(compiled, "_sdfg", copy.deepcopy(compiled.sdfg))
    compiled.sdfg.add_array("AA", [N], dace.float64)
    state = compiled.sdfg.add_state_before(compiled.sdfg.start_state)
    state.add_mapped_tasklet("more", {"i": "0:N"}, {}, "out = 0", {"out": dace.Memlet("AA[i]")}, external_edges=True)
    assert "AA" in compiled.sdfg.arglist()
    called = program.from_sdfg(compiled)
    assert "AA" not in called.arguments
    A, B, C = fields()
    called(A, B, C, a=2.5, k=3, flag=True)
    assert np.array_equal(B, B2) and np.array_equal(C, C2)


def test_dace_calls_its_programs_of_gpus_with_arrays_of_the_host(compiled, monkeypatch):
    assert not _install._launches_kernels(compiled.filename)
    # What DaCe generates for GPUs launches kernels; there may be none here.
    monkeypatch.setattr(_install, "_launches_kernels", lambda library: library == compiled.filename)
    assert _install._of_sdfg(compiled) is False
    monkeypatch.setattr(_install, "_has_gpu_arrays", lambda sdfg: True)
    assert _install._of_sdfg(compiled).arguments == program.from_sdfg(compiled).arguments


@dace.program
def one_of_two(a: dace.float64[N], b: dace.float64[N], takes_b: dace.int32):
    if takes_b > 0:
        a += b
    else:
        a += 1.0


def test_dace_takes_lists_and_arrays_that_are_left_out():
    compiled = one_of_two.to_sdfg().compile()

    def result(b, takes_b):
        a = np.arange(4.0)
        compiled(a=a, b=b, takes_b=np.int32(takes_b), N=4)
        return a.tolist()

    wanted = [result(None, 0), result([1.0, 2.0, 3.0, 4.0], 1)]
    program.install()
    try:
        assert [result(None, 0), result([1.0, 2.0, 3.0, 4.0], 1)] == wanted == [[1, 2, 3, 4], [1, 3, 5, 7]]
        with pytest.raises(hc.HaloTypeError, match="argument b of program .*one_of_two has elements of type float32"):
            result(np.ones(4, np.float32), 1)
    finally:
        program.uninstall()


def test_other_sizes_have_other_states_and_are_checked(compiled):
    called = program.from_sdfg(compiled)
    for rows in (5, 6, 5):
        A, B, C = fields(rows)
        expected = 2 * A + B
        called(A=A, B=B, C=C, a=2, k=0, flag=False, N=rows)
        assert np.array_equal(B, expected)
    A, B, C = fields()
    with pytest.raises(hc.HaloValueError, match="argument N of program .* is 6, but the arrays' dimensions make it 5"):
        called(A, B, C, a=2, k=0, flag=False, N=6)
    with pytest.raises(hc.HaloValueError, match="argument B .* extent 4 in dimension 0, the program takes 5 .N."):
        called(A, B[:4], C, a=2, k=0, flag=False)
    with pytest.raises(hc.HaloValueError, match="argument A .* element stride"):
        called(np.asfortranarray(A), B, C, a=2, k=0, flag=False)
    with pytest.raises(hc.HaloValueError, match="argument C .* extent 19 in dimension 0, the program takes 20"):
        called(A, B, C[:19], a=2, k=0, flag=False)
    with pytest.raises(hc.HaloTypeError, match="argument k .* is 3.7; give an integer of type int32"):
        called(A, B, C, a=2, k=3.7, flag=False)
    with pytest.raises(hc.HaloValueError, match="argument B .* is read-only"):
        B.flags.writeable = False
        called(A, B, C, a=2, k=0, flag=False)
    # The program only reads A.
    A.flags.writeable = False
    called(A, B.copy(), C, a=2, k=0, flag=False)


def test_twenty_arrays_arrive_in_dace_order():
    names = [f"x{i}" for i in range(20)]
    sdfg = dace.SDFG("twenty")
    state = sdfg.add_state()
    for i, name in enumerate(names):
        sdfg.add_array(name, (N,), dace.float64)
        state.add_mapped_tasklet(
            f"add{i}",
            {"j": "0:N"},
            {"a": dace.Memlet(f"{name}[j]")},
            f"b = a + {i}",
            {"b": dace.Memlet(f"{name}[j]")},
            external_edges=True,
        )
    called = program.from_sdfg(sdfg.compile())
    arrays = {name: np.zeros(7) for name in names}
    called(**arrays)
    assert [array[0] for array in arrays.values()] == list(range(20))
    call = called.prepare(**arrays)
    call()
    assert [array[6] for array in arrays.values()] == [2 * i for i in range(20)]


# Loops that run further than an array.

@dace.program
def copied(a: dace.float64[N], b: dace.float64[M]):
    for i in dace.map[0:N]:
        b[i] = a[i]


@dace.program
def first_twenty(a: dace.float64[N], b: dace.float64[N]):
    for t in range(2):
        for i in dace.map[0:20]:
            b[i] = a[i] + t


@dace.program
def up_to(a: dace.float64[N], b: dace.float64[N], k: dace.int32):
    for i in range(1, k):
        b[i] = a[i - 1]


@dace.program
def one(a: dace.float64[N], b: dace.float64[N], k: dace.int32):
    b[k] = a[k]


@dace.program
def maybe(a: dace.float64[N], b: dace.float64[N], k: dace.int32):
    if k < 4:
        b[k] = a[k]


@dace.program
def left_early(a: dace.float64[N], b: dace.float64[N], k: dace.int32):
    for i in range(k):
        if i == 3:
            break
        b[i] = a[i]


@dace.program
def other_value(a: dace.float64[N], b: dace.float64[N], k: dace.int32):
    last = k
    if k > 4:
        last = 4
    b[0:last] = a[0:last]


@functools.cache
def made(function):
    return program.from_sdfg(function.to_sdfg().compile())


@pytest.mark.parametrize(
    "function, sizes, numbers, text",
    [
        (copied, (5, 4), {}, r"argument b of program .*copied has indices 0 to 4 .* in dimension 0, the program accesses 0 to 5 .N."),
        (first_twenty, (19, 19), {}, "argument . of program .*first_twenty has indices 0 to 19 .* accesses 0 to 20"),
        (up_to, (5, 5), {"k": 6}, "argument b of program .*up_to has indices 0 to 5 .* accesses 1 to 6 .k."),
        (up_to, (0, 0), {"k": 2}, "argument . of program .*up_to has indices 0 to 0 "),
        (one, (5, 5), {"k": 5}, "argument . of program .*one has indices 0 to 5 .* accesses 5 .k. to 6"),
        (one, (5, 5), {"k": -1}, "accesses -1 .k. to 0"),
    ],
)
def test_an_array_that_loops_leave_is_refused(function, sizes, numbers, text):
    called = made(function)
    a, b = (np.arange(float(size)) for size in sizes)
    with pytest.raises(hc.HaloValueError, match=text):
        called(a, b, **numbers)


@pytest.mark.parametrize(
    "function, sizes, numbers, wanted",
    [
        (copied, (4, 5), {}, [0, 1, 2, 3, 9]),
        (first_twenty, (20, 20), {}, list(range(1, 21))),
        (up_to, (5, 5), {"k": 5}, [9, 0, 1, 2, 3]),
        # Loops that do not run, and branches.
        (up_to, (2, 2), {"k": -7}, [9, 9]),
        (maybe, (2, 2), {"k": 7}, [9, 9]),
        (left_early, (3, 3), {"k": 7}, [0, 1, 2]),
        (other_value, (4, 4), {"k": 7}, [0, 1, 2, 3]),
    ],
)
def test_arrays_that_loops_do_not_leave_are_taken(function, sizes, numbers, wanted):
    a, b = np.arange(float(sizes[0])), np.full(sizes[1], 9.0)
    made(function)(a, b, **numbers)
    assert b.tolist() == wanted


# States.


@dace.program
def triangle(a: dace.float64[N], b: dace.float64[M], n: dace.int32):
    for i in range(n):
        for j in range(i, 3):
            b[j] += a[i]


@dace.program
def nested_triangle(a: dace.float64[N], b: dace.float64[M], n: dace.int32):
    for i in range(n):
        for j in range(i, 3):
            for k in range(2 - i, 2):
                b[j] += a[k]


@pytest.mark.parametrize("function", [triangle, nested_triangle])
def test_rows_for_which_an_inner_loop_is_empty_are_not_accessed(function):
    a, b, wanted = np.array([1.0, 2.0, 3.0]), np.zeros(3), np.zeros(3)
    made(function)(a, b, n=20)
    function.f(a, wanted, 3)
    assert np.array_equal(b, wanted)


def test_a_map_that_dace_has_tiled_is_taken():
    from dace.transformation.dataflow import MapTiling

    @dace.program
    def tiled(a: dace.float64[N], b: dace.float64[N]):
        for i in dace.map[0:N]:
            b[i] = 2 * a[i]

    sdfg = tiled.to_sdfg()
    assert sdfg.apply_transformations(MapTiling, options={"tile_sizes": [8]}) == 1
    a, b = np.arange(21.0), np.zeros(21)
    program.from_sdfg(sdfg.compile())(a, b)
    assert np.array_equal(b, 2 * a)


def timed(lifetime=None, init_code=None):
    """An SDFG with the symbol K for a time step, and memory of N elements with this lifetime."""
    sdfg = dace.SDFG(f"timed_{lifetime and lifetime.name}_{init_code is not None}")
    sdfg.add_symbol("K", dace.int32)
    sdfg.add_symbol("A", dace.int32)
    sdfg.add_array("a", (N,), dace.float64)
    sdfg.add_transient("memory", (N,), dace.float64, lifetime=lifetime or dace.AllocationLifetime.Scope)
    first = sdfg.add_state("first")
    state = sdfg.add_state_after(first, "second")
    for where, source, target, code in [(first, "a", "memory", "y = x + A"), (state, "memory", "a", "y = x + K")]:
        inner = {"x": dace.Memlet(f"{source}[j]")}, code, {"y": dace.Memlet(f"{target}[j]")}
        where.add_mapped_tasklet(f"to_{target}", {"j": "0:N"}, *inner, external_edges=True)
    if init_code:
        sdfg.append_init_code(init_code)
    return program.from_sdfg(sdfg.compile())


@pytest.mark.parametrize(
    "given, states",
    [
        ({}, 1),
        # N decides the memory, and comes last: all before it are passed.
        ({"lifetime": dace.AllocationLifetime.Persistent}, 3),
        ({"init_code": "if (A == 77) printf(\"%d\", A);"}, 1),
        ({"init_code": "if (K == 77) printf(\"%d\", K);"}, 3),
    ],
)
def test_a_symbol_that_init_does_not_need_makes_no_state(given, states):
    called = timed(**given)
    a = np.zeros(3)
    for k in (1, 2, 3, 2, 1):
        called(a, A=1, K=k)
    assert a.tolist() == [14] * 3
    assert called.states == states


def test_arguments_that_cannot_be_described():
    def refused(add, text):
        sdfg = dace.SDFG("odd")
        add(sdfg)
        with pytest.raises(hc.HaloTypeError) as caught:
            _sdfg.manifest(sdfg)
        assert text in str(caught.value)

    pair = dace.vector(dace.float64, 2)
    refused(lambda sdfg: sdfg.add_array("a", [3], pair), "argument a of program odd is of type ")
    refused(lambda sdfg: sdfg.add_array("a", [3], dace.float64, offset=[1]), "argument a of program odd has an offset; give an array without one")
    refused(lambda sdfg: sdfg.add_stream("s", dace.float64), "argument s of program odd is a Stream of DaCe; arrays and scalars can be passed")
    with pytest.raises(hc.HaloTypeError, match=r"argument a has the size sqrt\(rows\); sizes are sums, products and int_floor of symbols"):
        _sdfg.quantity("sqrt(rows)", "argument a")
    refused(lambda sdfg: sdfg.add_scalar("x", pair), "; give a number or an array of numbers")
