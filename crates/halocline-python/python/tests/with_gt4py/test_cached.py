"""Programs that are lowered and built once for all processes: ``halocline.program.cache_gt4py``."""

import shutil
import subprocess
import sys
from pathlib import Path

import gt4py.next as gtx
import numpy as np
import programs
import pytest
from conftest import connectivity
from gt4py.next.backend import Transforms
from gt4py.next.iterator.ir_utils import ir_makers
from gt4py.next.otf import arguments, toolchain
from gt4py.next.program_processors.runners.dace import make_dace_backend, run_dace_cpu_cached
from gt4py.next.program_processors.runners.dace.transformations.auto_optimize import GT4PyAutoOptHook
from gt4py.next.type_system import type_translation

from halocline import _cache_gt4py, program

needs_a_compiler = pytest.mark.skipif(shutil.which("cmake") is None, reason="DaCe compiles with cmake, which is not installed")

SOURCE = """
import gt4py.next as gtx

I, J = gtx.Dimension("I"), gtx.Dimension("J")
Plane = gtx.Field[[I, J], gtx.float64]


@gtx.field_operator
def laplacian(a: Plane) -> Plane:
    return a(I + 1) + a(I - 1) + a(J + 1) + a(J - 1) - 4.0 * a


@gtx.field_operator
def diffused(t: Plane, dt: gtx.float64) -> Plane:
    return t + dt * laplacian(t)


@gtx.program
def diffuse(t: Plane, dt: gtx.float64, result: Plane):
    diffused(t, dt, out=result)
"""


class Folder:
    """A folder for processes that share a cache."""

    def __init__(self, path):
        self.path = path
        (path / "marks").mkdir()
        self.write(SOURCE)

    def write(self, source):
        (self.path / "diffusion.py").write_text(source)

    def start(self, way):
        child = Path(__file__).with_name("cached_child.py")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        return subprocess.Popen([sys.executable, "-W", "ignore", child, self.path, way], cwd=self.path, **pipes)

    def run(self, *ways):
        """Starts processes at once, and returns their results."""
        children = [self.start(way) for way in ways]
        for child in children:
            assert child.stdout.readline() == "ready\n"
        for child in children:
            child.stdin.write("go\n")
            child.stdin.flush()
        results = [child.communicate()[0] for child in children]
        assert [child.returncode for child in children] == [0] * len(children)
        return results

    @property
    def lowered(self):
        """How many processes have lowered the program."""
        return len(list((self.path / "marks").iterdir()))

    @property
    def entries(self):
        return len(list((self.path / "cache" / "entries").glob("*/*/entry.json")))


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


@needs_a_compiler
def test_four_cold_processes_lower_a_program_once(folder):
    results = folder.run(*["cached"] * 4)
    assert folder.lowered == 1 and folder.entries == 2
    # Bit by bit, and no less.
    assert set(results) == set(folder.run("gt4py")) and len(set(results)) == 1


@needs_a_compiler
def test_a_changed_field_operator_that_others_call_is_lowered_again(folder):
    before = folder.run("cached")
    folder.write(SOURCE.replace("4.0 * a", "3.0 * a"))
    assert folder.run("cached") != before
    assert folder.lowered == 2 and folder.entries == 4


@needs_a_compiler
def test_the_value_of_a_constant_counts(folder):
    source = "from gt4py.eve.utils import FrozenNamespace\nconstants = FrozenNamespace(factor=4.0)\n" + SOURCE.replace("4.0 * a", "constants.factor * a")
    folder.write(source)
    before = folder.run("cached")
    assert before == folder.run("gt4py")
    folder.write(source.replace("factor=4.0", "factor=3.0"))
    assert folder.run("cached") == folder.run("gt4py") != before
    assert folder.entries == 4


@needs_a_compiler
def test_a_field_operator_that_is_called_itself_is_lowered_once(folder):
    results = folder.run("operator") + folder.run("operator")
    assert folder.lowered == 1 and folder.entries == 2
    assert set(results) == set(folder.run("gt4py"))


@needs_a_compiler
def test_another_comment_is_no_other_program(folder):
    before = folder.run("cached")
    folder.write("# Moves all lines." + SOURCE)
    assert folder.run("cached") == before
    assert folder.lowered == 1


@needs_a_compiler
def test_a_killed_lowering_leaves_nothing(folder):
    child = folder.start("stop")
    child.stdin.write("go\n")
    child.stdin.flush()
    assert [child.stdout.readline() for _ in range(2)] == ["ready\n", "lowers\n"]
    assert folder.entries == 0
    child.kill()
    child.wait()
    assert folder.run("cached") == folder.run("gt4py")
    assert folder.entries == 2
    assert [list((folder.path / "cache" / name).glob("*")) for name in ("builds", "claims")] == [[], []]


@needs_a_compiler
def test_no_process_keeps_the_lowering_of_other_tables(tmp_path):
    def run(tables):
        child = [sys.executable, "-W", "ignore", Path(__file__).with_name("tables_child.py"), tmp_path, tables]
        return subprocess.run(child, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    assert run("ab") == "True\n"
    assert run("b") == "True\n"


# What decides a lowering.


def table(rows):
    return connectivity(programs.Edge, programs.E2VDim, programs.Vertex, rows)


E2V = table([[0, 1], [1, 2], [2, 3]])


def parts(program, *types, offsets=None, **options):
    """The parts of the key of a program."""
    backend = make_dace_backend(gpu=False, **options)
    given = tuple(type_translation.from_type_hint(hint) for hint in types)
    compiled_for = arguments.CompileTimeArgs(given, {}, offsets or {}, None, {})
    text = _cache_gt4py.text_of_parsed(program.past_stage)
    parsed = _cache_gt4py.parts_of(backend.executor.step, text, compiled_for)
    # Those of the backend keep the connectivities of the first call with tables of this shape.
    transforms = Transforms()
    lowered = transforms(toolchain.ConcreteArtifact(program.definition_stage, compiled_for))
    of_ir = _cache_gt4py.parts_of(backend.executor.step, _cache_gt4py._text(lowered.data), lowered.args)
    if parsed is None:
        assert of_ir is None
        return None
    assert parsed["lowering of GT4Py"] != of_ir["lowering of GT4Py"]
    return parsed | {f"{name} of the IR": part for name, part in of_ir.items()}


def of_gradient(offsets, **options):
    plane, line = gtx.Field[[programs.Vertex, programs.K], gtx.float64], gtx.Field[[programs.Edge], gtx.float64]
    return parts(programs.gradient, plane, line, gtx.Field[[programs.Edge, programs.K], gtx.float64], offsets=offsets, **options)


def of_heat(offsets=None, **options):
    return parts(programs.heat, programs.Plane, gtx.float64, programs.Plane, offsets=offsets, **options)


def differing(one, other):
    """The parts that differ, in both keys: of the program as it was parsed, and of its IR."""
    differ = {name for name in one if one[name] != other[name]}
    parsed = {name for name in differ if not name.endswith(" of the IR")}
    assert {name.removesuffix(" of the IR") for name in differ - parsed} == parsed
    return parsed


def test_the_key_has_all_that_decides_a_lowering():
    one = of_gradient({"E2V": E2V})
    assert differing(one, of_gradient({"E2V": table([[0, 1], [1, 2], [2, 3]])})) == set()
    assert differing(one, of_gradient({"E2V": table([[0, 1], [1, 2], [2, 4]])})) == {"connectivities"}
    longer = table([[0, 1], [1, 2], [2, 3], [3, 0]])
    assert differing(one, of_gradient({"E2V": longer})) == {"connectivities"}
    skipping = gtx.as_connectivity([programs.Edge, programs.E2VDim], programs.Vertex, E2V.asnumpy(), skip_value=-1)
    assert differing(one, of_gradient({"E2V": skipping})) == {"offsets"}
    for options in ({"unstructured_horizontal_has_unit_stride": True}, {"auto_optimize": False}, {"use_metrics": False}):
        assert differing(one, of_gradient({"E2V": E2V}, **options)) == {"backend"}
    assert differing(of_heat(), of_heat(optimization_args={"blocking_size": 8, "blocking_dim": programs.J})) == {"backend"}


def test_tables_that_a_program_does_not_use_do_not_count():
    assert differing(of_heat({"E2V": E2V}), of_heat({"E2V": table([[3, 2], [1, 0], [2, 3]])})) == set()


def test_a_table_with_any_name_counts_if_it_is_used():
    assert _cache_gt4py._contents({"Ö2V": E2V}, _cache_gt4py._text("Ö2V")) != b""


def test_the_type_of_a_literal_counts():
    single, double = (_cache_gt4py._text(ir_makers.literal("0.1", kind)) for kind in ("float32", "float64"))
    assert single != double


def test_a_python_function_among_the_options_is_not_shared():
    hooks = {GT4PyAutoOptHook.TopLevelDataFlowPre: lambda sdfg: None}
    assert of_heat(optimization_args={"optimization_hooks": hooks}) is None


def test_values_that_are_equal_in_python_but_of_other_types_differ():
    assert _cache_gt4py._text(np.int32(3)) != _cache_gt4py._text(3) != _cache_gt4py._text(3.0)
    assert _cache_gt4py._text({"b": (1, True), "a": None}) == _cache_gt4py._text({"a": None, "b": [1, True]})


def heat():
    heated = programs.heated

    @gtx.program
    def heat(t: programs.Plane, dt: gtx.float64, result: programs.Plane):
        heated(t, dt, out=result)

    return heat


def test_a_parsed_program_has_the_same_text_each_time():
    text = _cache_gt4py.text_of_parsed
    assert text(heat().past_stage) == text(heat().past_stage) is not None
    assert text(heat().with_grid_type(gtx.GridType.UNSTRUCTURED).past_stage) != text(heat().past_stage)
    assert text(programs.gradient.past_stage) != text(programs.heat.past_stage)


@needs_a_compiler
def test_a_process_loads_a_program_once(tmp_path):
    program.cache_gt4py(cache=tmp_path)
    try:
        made = []
        for _ in range(2):
            pool = programs.heat.with_backend(run_dace_cpu_cached).compile(offset_provider={})._compiled_programs
            for key in list(pool._compilation_jobs):
                pool._finish_compilation_job(key)
            made += pool.compiled_programs.values()
        assert len(made) == 2 and made[0] is made[1]
    finally:
        _cache_gt4py.uncache_gt4py()
