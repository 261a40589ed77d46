"""Programs that DaCe compiles, called through ``halocline.program`` and by DaCe itself."""

import shutil

import numpy as np
import pytest

import halocline as hc
from halocline import program

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
