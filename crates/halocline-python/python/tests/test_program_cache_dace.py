"""Programs of DaCe that are built once and kept: ``halocline.program.compile_sdfg``."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import halocline as hc
from halocline import _cache, program
from halocline._cache import _renumbered, _text_of

dace = pytest.importorskip("dace", reason="DaCe is not installed")
pytestmark = pytest.mark.skipif(shutil.which("cmake") is None, reason="DaCe compiles with cmake, which is not installed")

N = dace.symbol("N")


@dace.program
def scaled(A: dace.float64[N], B: dace.float64[N], a: dace.float64):
    B[:] = a * A + N


# DaCe puts the name of the module before it.
NAME = f"{__name__}_scaled"


def made():
    return scaled.to_sdfg()


def call(scale):
    a, b = np.arange(5.0), np.zeros(5)
    scale(a, b, a=2.0)
    assert np.array_equal(b, 2 * a + 5)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache with the program."""
    folder = tmp_path_factory.mktemp("cache")
    call(program.compile_sdfg(made(), cache=folder))
    return folder


def test_the_program_is_not_built_again(cache, monkeypatch):
    monkeypatch.setattr(dace.SDFG, "compile", lambda *_, **__: pytest.fail("it is built again"))
    loaded = program.compile_sdfg(made(), cache=cache)
    call(loaded)
    assert loaded.name == NAME and loaded.arguments == ("A", "B", "N", "a")
    # The entry knows the library, the stub by which DaCe loads it, the SDFG twice, and the manifest.
    names = {path.name for path in loaded.library.parents[1].rglob("*")}
    libraries = {f"lib{NAME}.so", f"lib{NAME}.so.json", f"libdacestub_{NAME}.so"}
    assert names == {"build", *libraries, "program.sdfgz", "program.pickle", "FOLDER_MODE", "entry.json"}


def test_another_process_makes_the_same_key(cache):
    code = f"""
import dace, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_program_cache_dace import made, program
dace.SDFG.compile = None
print(program.compile_sdfg(made(), cache={str(cache)!r}).library)
"""
    again = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert again.stdout.strip() == str(program.compile_sdfg(made(), cache=cache).library)


def test_what_decides_the_result_decides_the_key(cache, tmp_path, monkeypatch):
    monkeypatch.setattr(dace.SDFG, "compile", lambda *_, **__: (_ for _ in ()).throw(RuntimeError("a build")))
    other = made()
    other.arrays["A"].may_alias = True
    with pytest.raises(RuntimeError, match="a build"):
        program.compile_sdfg(other, cache=cache)
    with dace.config.set_temporary("compiler", "cpu", "args", value="-O1 -fPIC"):
        with pytest.raises(RuntimeError, match="a build"):
            program.compile_sdfg(made(), cache=cache)
    program.compile_sdfg(made(), cache=cache)


def test_the_entry_is_a_build_folder_of_dace(cache):
    from dace.codegen.compiler import load_precompiled_sdfg

    folder = program.compile_sdfg(made(), cache=cache).library.parents[1]
    a, b = np.arange(5.0), np.zeros(5)
    load_precompiled_sdfg(folder)(A=a, B=b, a=2.0, N=5)
    assert np.array_equal(b, 2 * a + 5)


def test_ranks_share_a_build(tmp_path, monkeypatch):
    built, build = [], dace.SDFG.compile
    monkeypatch.setattr(dace.SDFG, "compile", lambda *args, **named: built.append(1) or build(*args, **named))

    def rank(comm, sdfg):
        call(program.compile_sdfg(sdfg, comm=comm, cache=tmp_path / str(comm.rank)))

    # DaCe makes SDFGs in one thread at a time.
    sdfgs = [made(), made()]
    hc.run_threads(2, lambda comm: rank(comm, sdfgs[comm.rank]))
    assert built == [1]


def test_what_is_no_sdfg_is_refused(tmp_path):
    with pytest.raises(hc.HaloTypeError, match="sdfg: an SDFG of DaCe is wanted, not function"):
        program.compile_sdfg(call, cache=tmp_path)


def test_a_program_for_gpus_needs_an_architecture(tmp_path):
    sdfg = made()
    sdfg.arrays["A"].storage = dace.StorageType.GPU_Global
    with dace.config.set_temporary("compiler", "cuda", "cuda_arch", value=""):
        with pytest.raises(hc.HaloValueError, match="_scaled runs on GPUs, and its build sees none"):
            program.compile_sdfg(sdfg, cache=tmp_path)


def test_the_key_of_a_program_for_gpus_has_the_compiler_of_kernels(tmp_path, monkeypatch):
    keys = []
    monkeypatch.setattr(_cache, "_build", lambda describe, *options: keys.append(describe()[1]))
    _cache._version_of_compiler.cache_clear()
    description = {"name": "heat", "sdfg": "", "uses_gpu": True}
    nvcc = tmp_path / "nvcc"
    monkeypatch.setenv("CUDACXX", str(nvcc))
    with dace.config.set_temporary("compiler", "cuda", "cuda_arch", value="90"):
        for version in ("12.8", "13.0"):
            nvcc.write_text(f"#!/bin/sh\necho release {version}\n")
            nvcc.chmod(0o755)
            _cache.built(lambda: description, None)
            _cache._version_of_compiler.cache_clear()
    assert [key["compiler of kernels"].split("\n")[1] for key in keys] == ["release 12.8", "release 13.0"]
    _cache.built(lambda: {**description, "uses_gpu": False}, None)
    assert "compiler of kernels" not in keys[2]


def test_names_that_differ_by_uuids_alone_are_the_same():
    first, second = (f"{number}fae8a6c_e912_11f1_b947_02fc00000001" for number in (1, 2))
    kept = f"array_{second}"
    texts = [_renumbered(f"a_{one} b_{two} c_{one}", str) for one, two in ((first, second), (second, first))]
    assert texts == ["a_uuid 0 b_uuid 1 c_uuid 0"] * 2
    assert _renumbered(f"a_{first} b_{second}", lambda: kept) == f"a_uuid 0 b_{second}"
    assert _renumbered("no-uuid 12345678-1234", str) == "no-uuid 12345678-1234"


@pytest.mark.parametrize("name", ["hash", "guid", "build_folder", "_meta_a"])
def test_names_of_the_program_decide_the_key(name):
    def made(value):
        sdfg = dace.SDFG("constant")
        sdfg.add_array("A", [4], dace.float64)
        sdfg.add_constant(name, dace.float64(value))
        state = sdfg.add_state()
        tasklet = state.add_tasklet("set", {}, {"out"}, f"out = {name}")
        state.add_edge(tasklet, "out", state.add_write("A"), None, dace.Memlet("A[0]"))
        return _text_of(sdfg)

    assert made(3.0) == made(3.0) != made(4.0)
