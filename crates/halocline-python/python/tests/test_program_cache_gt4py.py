"""Programs of GT4Py that are built once and kept: ``halocline.program.cache_gt4py``."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("dace", reason="DaCe is not installed")
gtx = pytest.importorskip("gt4py.next", reason="GT4Py is not installed")
pytestmark = pytest.mark.skipif(shutil.which("cmake") is None, reason="DaCe compiles with cmake, which is not installed")

from gt4py.next.program_processors.runners import dace as backends  # noqa: E402

from halocline import _cache_gt4py, program  # noqa: E402

I, J = gtx.Dimension("I"), gtx.Dimension("J")


@gtx.field_operator
def added(a: gtx.Field[[I, J], gtx.float64], b: gtx.Field[[I, J], gtx.float64]) -> gtx.Field[[I, J], gtx.float64]:
    return a + 2.0 * b


@gtx.program
def add(a: gtx.Field[[I, J], gtx.float64], b: gtx.Field[[I, J], gtx.float64], out: gtx.Field[[I, J], gtx.float64]):
    added(a, b, out=out)


def run():
    domain = gtx.domain({I: 3, J: 4})
    a, b, out = (gtx.as_field(domain, np.full((3, 4), value)) for value in (1.0, 2.0, 0.0))
    add.with_backend(backends.run_dace_cpu).compile(offset_provider={})(a, b, out=out, offset_provider={})
    assert (out.asnumpy() == 5.0).all()


@pytest.fixture
def cache(tmp_path):
    program.cache_gt4py(cache=tmp_path / "cache")
    yield tmp_path / "cache"
    _cache_gt4py.uncache_gt4py()


def entries(cache):
    return list((cache / "entries").glob("*/*/entry.json"))


def test_a_program_is_built_once_for_all_processes(cache, tmp_path):
    run()
    assert len(entries(cache)) == 2
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import dace
from test_program_cache_gt4py import program, run
program.cache_gt4py(cache={str(cache)!r})
dace.SDFG.compile = dace.SDFG.to_json = None
run()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert len(entries(cache)) == 2


def test_gt4py_and_dace_are_as_they_were_afterwards(tmp_path):
    from dace.config import Config
    from gt4py.next.backend import Backend
    from gt4py.next.otf.recipes import OTFCompileWorkflow

    def current():
        return OTFCompileWorkflow.__call__, Backend.compile, type(Config._data).load_schema

    before = current()
    for _ in range(2):
        program.cache_gt4py(cache=tmp_path)
        assert not any(now is then for now, then in zip(current(), before))
    _cache_gt4py.uncache_gt4py()
    assert current() == before and "__call__" not in vars(OTFCompileWorkflow)


def test_a_new_thread_of_dace_has_the_same_configuration(cache):
    import threading

    from dace.config import Config

    found = []
    thread = threading.Thread(target=lambda: found.append((Config._data._config_metadata, Config.get("compiler"))))
    thread.start()
    thread.join()
    assert found == [(Config._data._config_metadata, Config.get("compiler"))]
