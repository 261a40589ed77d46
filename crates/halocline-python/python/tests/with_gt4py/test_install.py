"""``install``: programs of GT4Py and DaCe as they are, called by Halocline."""

import contextlib
import copy
import gc
import importlib
import subprocess
import sys
import textwrap
import weakref
from pathlib import Path

import dace
import numpy as np
import pytest
from conftest import E2V, connectivity, copied, field, line, plane, same
from gt4py.next.instrumentation import hooks, metrics
from gt4py.next.program_processors.runners import dace as backends
from programs import E2VDim, Edge, K, Vertex
from programs import choose, gradient, heat, laplacian, shallow_water
from test_refused import HEAT

import halocline as hc
from halocline import _gt4py, _install, program

pytestmark = pytest.mark.filterwarnings("ignore")


def with_backend(source):
    return source.with_backend(backends.run_dace_cpu)


@pytest.fixture
def installed():
    program.install()
    yield
    program.uninstall()


@pytest.fixture
def counted(monkeypatch):
    """How many programs Halocline made."""
    count = []
    make = _gt4py.make
    monkeypatch.setattr(_gt4py, "make", lambda *given: count.append(given) or make(*given))
    return count


def without_gt4py(monkeypatch):
    """GT4Py cannot call a program itself."""
    from gt4py.next.program_processors.runners.dace.workflow.compilation import CompiledDaceProgram

    def fail(self):
        raise AssertionError("GT4Py has called the program")

    monkeypatch.setattr(CompiledDaceProgram, "fast_call", fail)


def test_unchanged_programs_take_the_path_with_the_same_results(monkeypatch, counted):
    theirs = with_backend(shallow_water)
    given = (plane(), plane(), plane(), 0.1, 9.81, *(plane(1, (6, 5)) for _ in range(3)))
    wanted = tuple(map(copied, given))
    theirs(*wanted, offset_provider={})
    ours = with_backend(shallow_water)
    program.install()
    try:
        without_gt4py(monkeypatch)
        for _ in range(4):
            got = tuple(map(copied, given))
            ours(*got, offset_provider={})
            assert same(got, wanted)
            ours(*got[:5], new_u=got[5], new_h=got[7], new_v=got[6])
            # Compiled before: its variants are taken over.
            theirs(*got, offset_provider={})
            assert same(got, wanted)
        assert len(counted) == 2
    finally:
        program.uninstall()
    with pytest.raises(AssertionError, match="GT4Py has called the program"):
        theirs(*wanted, offset_provider={})


def test_calls_of_field_operators_take_the_path(monkeypatch, installed):
    without_gt4py(monkeypatch)
    operator = with_backend(laplacian)
    a, out = plane(value=2.0), plane(1, (6, 5))
    for _ in range(3):
        operator(a, out=out, offset_provider={})
        assert (out.ndarray == 0).all()
    with pytest.raises(hc.HaloValueError, match="argument a of program .* has indices 0 to 8"):
        operator(a, out=plane(0, (6, 5)), offset_provider={})


def test_bound_arguments_take_the_path(monkeypatch, installed):
    without_gt4py(monkeypatch)
    bound = with_backend(heat).with_bound_args(dt=0.0)
    t, out = plane(), plane(1, (6, 5))
    bound(t, result=out, offset_provider={})
    assert np.array_equal(out.ndarray, t.ndarray[1:7, 1:6])


def test_a_bound_call_keeps_its_program_and_a_program_is_collected(installed):
    t, new, wanted = plane(), plane(1, (6, 5)), plane(1, (6, 5))
    call = with_backend(heat).__call__
    gc.collect()
    call(t, 0.1, new, offset_provider={})
    ours = with_backend(heat)
    ours(t, 0.1, wanted, offset_provider={})
    assert same(new, wanted)
    known = weakref.ref(ours)
    del ours
    gc.collect()
    assert known() is None


def test_a_copy_of_a_program_has_calls_of_its_own(installed):
    ours = with_backend(heat)
    t, new, wanted = plane(), plane(1, (6, 5)), plane(1, (6, 5))
    ours(t, 0.1, wanted, offset_provider={})
    calls, copied = ours.__dict__["_halocline_calls"], copy.copy(ours)
    del ours
    gc.collect()
    for _ in range(3):
        copied(t, 0.1, new, offset_provider={})
        assert same(new, wanted)
    assert copied.__dict__["_halocline_calls"] is not calls


@pytest.mark.parametrize("given, error, text", HEAT)
def test_wrong_arguments_are_refused(installed, given, error, text):
    ours = with_backend_once(heat)
    t, out = plane(), plane(1, (6, 5))
    for _ in range(3):
        ours(t, 0.1, out, offset_provider={})
    with pytest.raises(error, match=text):
        ours(*given, offset_provider={})


_once = {}


def with_backend_once(source):
    return _once.setdefault(source.__name__, with_backend(source))


def test_replaced_connectivities_are_never_stale(installed, counted):
    ours = with_backend(gradient)
    values, inverse = field(Vertex, K, extents=(4, 3)), field(Edge, extents=(5,))
    tables = [connectivity(Edge, E2VDim, Vertex, table) for table in (E2V.ndarray, E2V.ndarray[::-1], E2V.ndarray[:, ::-1])]
    provider = {}
    for turn in range(9):
        table = tables[turn % 3]
        # The same dictionary, changed between calls.
        provider["E2V"] = table
        for _ in range(3):
            out = field(Edge, K, extents=(5, 3))
            ours(values, inverse, out, offset_provider=provider)
            pairs = values.ndarray[table.ndarray]
            assert np.array_equal(out.ndarray, (pairs[:, 1] - pairs[:, 0]) * inverse.ndarray[:, None])
    assert len(counted) == 3


def test_a_program_that_is_dropped_takes_its_variants_along(installed):
    ours = with_backend(heat)
    t, out = plane(), plane(1, (6, 5))
    for _ in range(4):
        ours(t, 0.1, out, offset_provider={})
    (variant,) = ours._compiled_programs.compiled_programs.values()
    watched = weakref.ref(variant.program)
    del ours, variant
    gc.collect()
    assert watched() is None


def test_static_arguments_choose_their_variant(installed):
    ours = with_backend(choose).with_static_params("which")
    a = line(7)
    for which in (1, 2, 1, 3, 2, 1):
        out = line(6)
        ours(a, which, out, offset_provider={})
        assert np.array_equal(out.ndarray, a.ndarray[:6] + 1 if which == 1 else a.ndarray[1:])


def test_static_domains_choose_their_variant(installed):
    ours = with_backend(heat).with_compilation_options(static_domains=True)
    for start in (0, 3, 0, 3):
        t, out = plane(start), plane(start + 1, (6, 5))
        for _ in range(3):
            ours(t, 0.0, out, offset_provider={})
            assert np.array_equal(out.ndarray, t.ndarray[1:7, 1:6])


def test_other_backends_are_called_by_gt4py(installed):
    t, out = plane(), plane(1, (6, 5))
    heat.with_backend(None)(t, 0.0, out, offset_provider={})
    assert np.array_equal(out.ndarray, t.ndarray[1:7, 1:6])


@pytest.mark.parametrize("level, names", [(metrics.MINIMAL, {"total"}), (metrics.PERFORMANCE, {"total", "compute"})])
def test_metrics_are_collected_as_by_gt4py(installed, monkeypatch, level, names):
    from gt4py.next import config

    ours = with_backend(heat)
    direct = program.from_gt4py(ours)
    t, out = plane(), plane(1, (6, 5))
    for _ in range(3):
        ours(t, 0.1, out, offset_provider={})
    monkeypatch.setattr(config, "COLLECT_METRICS_LEVEL", level)
    metrics.sources.clear()
    for call in (ours, direct):
        for count in range(1, 4):
            call(t, 0.1, out, offset_provider={})
        (source,) = metrics.sources.values()
        assert set(source.metrics) == names
        assert all(len(metric.samples) == count and 0 < min(metric.samples) < 1 for metric in source.metrics.values())
        metrics.sources.clear()


@contextlib.contextmanager
def watched_calls():
    """The programs that GT4Py's hook of calls sees meanwhile."""
    seen = []

    @contextlib.contextmanager
    def watch(program, args, offset_provider, enable_jit, kwargs):
        seen.append(program)
        yield

    hooks.program_call_context.register(watch)
    try:
        yield seen
    finally:
        hooks.program_call_context.remove(watch)


def test_hooks_are_called_as_by_gt4py(installed):
    ours = with_backend(heat)
    t, out = plane(), plane(1, (6, 5))
    for _ in range(3):
        ours(t, 0.1, out, offset_provider={})
    with watched_calls() as seen:
        ours(t, 0.1, out, offset_provider={})
    ours(t, 0.1, out, offset_provider={})
    assert seen == [ours]


def test_hooks_of_before_the_first_call_are_called(installed):
    ours = with_backend(heat)
    t, out = plane(), plane(1, (6, 5))
    with watched_calls() as seen:
        for _ in range(4):
            ours(t, 0.1, out, offset_provider={})
    assert seen == 4 * [ours]


def test_nothing_happens_at_import_and_a_second_call_does_nothing():
    code = """
        from halocline import program
        import sys
        assert not {"gt4py", "dace", "sympy"} & set(sys.modules)
        from gt4py.next.ffront.decorator import Program
        from dace.codegen.compiled_sdfg import CompiledSDFG
        before = Program.__call__, CompiledSDFG.__call__
        program.install()
        program.install()
        assert CompiledSDFG.__call__ is not before[1]
        program.uninstall()
        program.uninstall()
        assert (Program.__call__, CompiledSDFG.__call__) == before
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_an_unknown_version_is_refused(monkeypatch):
    monkeypatch.setattr(_gt4py.importlib.metadata, "version", lambda name: "2.0.0")
    with pytest.raises(hc.ProgramError, match="GT4Py 2.0.0 is installed, .*; install one of 1.1.9"):
        program.install()
    assert not _install._originals


def test_the_lines_of_the_guide_run(tmp_path, monkeypatch):
    page = Path(__file__).resolve().parents[5] / "docs/programs.md"
    if not page.exists():
        pytest.skip("the repository's documents are not here")
    block = page.read_text().split("### GT4Py")[1].split("```python notest\n")[1].split("```")[0]
    # GT4Py reads the source of a file.
    (tmp_path / "guide_of_gt4py.py").write_text(block)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        module = importlib.import_module("guide_of_gt4py")
    finally:
        program.uninstall()
    t, result = module.t.ndarray, module.result.ndarray
    shifted = t[2:, 1:-1] + t[:-2, 1:-1] + t[1:-1, 2:] + t[1:-1, :-2]
    assert np.allclose(result, t[1:-1, 1:-1] + 0.1 * (shifted - 4 * t[1:-1, 1:-1]))


# DaCe.

N = dace.symbol("N")


@dace.program
def axpy(a: dace.float64, x: dace.float64[N], y: dace.float64[N]):
    y[:] = a * x + y


@dace.program
def returning(x: dace.float64[N]):
    return x + 1


@pytest.fixture(scope="module")
def sdfgs(tmp_path_factory):
    with dace.config.set_temporary("default_build_folder", value=str(tmp_path_factory.mktemp("dacecache"))):
        yield {"axpy": axpy.to_sdfg().compile(), "returning": returning.to_sdfg().compile()}


def test_programs_of_dace_take_the_path(sdfgs, monkeypatch, installed):
    compiled = sdfgs["axpy"]
    x, y = np.arange(5.0), np.ones(5)
    monkeypatch.setattr(type(compiled), "fast_call", lambda *args, **kwargs: pytest.fail("DaCe has called the program"))
    # DaCe takes more names than the program has.
    compiled(a=2.0, x=x, y=y, N=5, unknown=3)
    assert np.array_equal(y, 2 * x + 1)
    compiled(2.0, x, y, N=5)
    assert np.array_equal(y, 4 * x + 1)
    with pytest.raises(hc.HaloValueError, match="argument y of program .* has extent 4"):
        compiled(a=2.0, x=x, y=y[:4], N=5)
    with pytest.raises(hc.HaloTypeError, match="argument x of program .* has elements of type float32"):
        compiled(a=2.0, x=x.astype("f4"), y=y, N=5)
    with pytest.raises(hc.HaloTypeError, match="program .* lacks argument y; it takes"):
        compiled(a=2.0, x=x, N=5)


def test_programs_that_return_values_are_called_by_dace(sdfgs, installed):
    assert np.array_equal(sdfgs["returning"](x=np.arange(3.0), N=3), [1, 2, 3])
