"""A process of ``test_cached.py``: ``tables_child.py FOLDER TABLES``, where ``TABLES`` is ``ab`` or ``b``.

It calls one program with each table, and prints whether the last result is right. The tables have one shape, and GT4Py's text of both is the same:
it leaves out the rows in the middle. The largest index of a table decides the domain of the program's temporary."""

import os
import sys
from pathlib import Path

folder, names = Path(sys.argv[1]), sys.argv[2]
os.environ["GT4PY_BUILD_CACHE_DIR"] = str(folder)
os.environ["OMP_NUM_THREADS"] = "1"

import gt4py.next as gtx  # noqa: E402
import numpy as np  # noqa: E402
from gt4py.next.program_processors.runners.dace import make_dace_backend  # noqa: E402

from halocline import program  # noqa: E402

program.cache_gt4py(cache=folder / "cache")

Vertex, Edge = gtx.Dimension("Vertex"), gtx.Dimension("Edge")
V2EDim = gtx.Dimension("V2E", kind=gtx.DimensionKind.LOCAL)
V2E = gtx.FieldOffset("V2E", source=Edge, target=(Vertex, V2EDim))
ROWS = 2000


@gtx.field_operator
def two_of(e: gtx.Field[[Edge], gtx.float64]) -> gtx.Field[[Vertex], gtx.float64]:
    t = 2.0 * e + 1.0
    return t(V2E[0]) + t(V2E[1])


@gtx.program
def of_edges(e: gtx.Field[[Edge], gtx.float64], result: gtx.Field[[Vertex], gtx.float64]):
    two_of(e, out=result)


def table(largest):
    rows = np.random.default_rng(5).integers(0, largest, (ROWS, 2)).astype(np.int32)
    rows[:5], rows[-5:] = 3, 4
    return rows


backend = make_dace_backend(
    gpu=False, cached=False, auto_optimize=False, async_sdfg_call=False, use_max_domain_range_on_unstructured_shift=True
)
called = of_edges.with_backend(backend)
values = np.random.default_rng(1).random(ROWS)
for name in names:
    rows = table({"a": 20, "b": ROWS}[name])
    result = gtx.zeros({Vertex: ROWS}, dtype=np.float64)
    called(gtx.as_field([Edge], values), result, offset_provider={"V2E": gtx.as_connectivity([Vertex, V2EDim], Edge, rows)})
print(np.array_equal(result.asnumpy(), (2.0 * values + 1.0)[rows].sum(axis=1)))
