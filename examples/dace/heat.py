"""The heat equation in DaCe. Tasklets of the SDFG exchange the halo through the C interface of Halocline.

    export HALOCLINE_PREFIX=/opt/halocline              # tools/install --prefix /opt/halocline
    python heat.py
    halocline launch -n 4 -- python heat.py
    python heat.py --generate-for-gpus FOLDER           # writes the CUDA code that DaCe generates; needs no GPU

The loop over time steps is part of the SDFG: no Python runs between two exchanges. At the end rank 0 computes the same
alone with NumPy and compares.
"""

import ctypes
import sys
import tempfile
from pathlib import Path

import dace
import halocline_c as c
import numpy as np
from dace.codegen import compiler

EXTENTS, STEPS = (96, 80), 200
NX, NY = (dace.symbol(name, dace.int64) for name in ("NX", "NY"))

# The C++ code of the tasklets. A call that fails throws `halocline::error`, which ends a Python program with its message.
BEGIN_ON_HOST = "halocline::check(halocline_exchange(halocline_halo_exchange{exchange}, &__state->begun));"
END_ON_HOST = "halocline::check(halocline_wait(__state->begun));"
# On GPUs DaCe declares __dace_current_stream, the stream of the program's kernels. An object has 64 exchanges in flight at most: the host
# waits for the one of 32 steps before.
BEGIN_ON_STREAM = """
const auto stream = halocline::stream::cuda(0, __dace_current_stream);
const halocline_stream after = stream.get();
const halocline_pending begun = __state->begun, earlier = {exchange, begun.epoch - 32};
if (begun.exchange == exchange && begun.epoch > 32) halocline::check(halocline_wait(earlier));
halocline::check(halocline_schedule_exchange(halocline_halo_exchange{exchange}, 0, &after, 1, &__state->begun));
"""
END_ON_STREAM = """
const auto stream = halocline::stream::cuda(0, __dace_current_stream);
halocline::check(halocline_schedule_wait(__state->begun, stream.get()));
"""


@dace.program
def warmed(here, north, south, west, east):
    return here + 0.2 * ((north + south) + (west + east) - 4.0 * here)


def sdfg_of_heat(BEGIN, END):
    """The SDFG with this code of its tasklets. `halo` is the handle of the bound exchange of `t`."""

    @dace.program
    def heat(t: dace.float64[NX, NY], u: dace.float64[NX, NY], halo: dace.uint64, steps: dace.int32):
        for _ in range(steps):
            # From here to its wait the exchange reads owned cells and writes halo cells.
            with dace.tasklet(dace.Language.CPP, side_effects=True):
                exchange << halo
                owned << t[:, :]
                filled >> t[:, :]
                BEGIN
            for i, j in dace.map[2 : NX - 2, 2 : NY - 2]:
                u[i, j] = warmed(t[i, j], t[i - 1, j], t[i + 1, j], t[i, j - 1], t[i, j + 1])
            # `u` is an input so that the wait comes after the interior.
            with dace.tasklet(dace.Language.CPP, side_effects=True):
                interior << u[:, :]
                filled >> t[:, :]
                END
            for j in dace.map[1 : NY - 1]:
                u[1, j] = warmed(t[1, j], t[0, j], t[2, j], t[1, j - 1], t[1, j + 1])
            for j in dace.map[1 : NY - 1]:
                u[NX - 2, j] = warmed(t[NX - 2, j], t[NX - 3, j], t[NX - 1, j], t[NX - 2, j - 1], t[NX - 2, j + 1])
            for i in dace.map[2 : NX - 2]:
                u[i, 1] = warmed(t[i, 1], t[i - 1, 1], t[i + 1, 1], t[i, 0], t[i, 2])
            for i in dace.map[2 : NX - 2]:
                u[i, NY - 2] = warmed(t[i, NY - 2], t[i - 1, NY - 2], t[i + 1, NY - 2], t[i, NY - 3], t[i, NY - 1])
            for i, j in dace.map[1 : NX - 1, 1 : NY - 1]:
                t[i, j] = u[i, j]

    sdfg = heat.to_sdfg()
    # The library writes `t` through its own pointer.
    sdfg.arrays["t"].may_alias = True
    for node, _ in sdfg.all_nodes_recursive():
        if isinstance(node, dace.nodes.Tasklet) and node.side_effects:
            node.environments = {c.Halocline.full_class_path()}
    return sdfg


def generate_for_gpus(folder):
    """Writes the generated code. The fields lie on the GPU, and all kernels and exchanges are on one stream."""
    dace.Config.set("compiler", "cuda", "backend", value="cuda")
    dace.Config.set("compiler", "cuda", "max_concurrent_streams", value=1)
    sdfg = sdfg_of_heat(BEGIN_ON_STREAM, END_ON_STREAM)
    for name in ("t", "u"):
        sdfg.arrays[name].storage = dace.StorageType.GPU_Global
    for node, state in sdfg.all_nodes_recursive():
        if isinstance(node, dace.nodes.MapEntry):
            node.map.schedule, node.map.gpu_block_size = dace.ScheduleType.GPU_Device, (64, 1, 1)
            for inner in state.scope_subgraph(node).data_nodes():
                inner.desc(state).storage = dace.StorageType.Register
    for state in sdfg.states():
        state.nosync = True  # the program does not wait for the GPU
    folder.mkdir(parents=True, exist_ok=True)
    for code in sdfg.generate_code():
        if code.linkable:
            (folder / f"{code.name}.{code.language}").write_text(code.clean_code)


def compiled_once(library, comm, rank):
    """The program, which rank 0 compiles for all ranks."""
    sdfg = sdfg_of_heat(BEGIN_ON_HOST, END_ON_HOST)
    # Under MPI DaCe gives each rank a folder of its own.
    sdfg.build_folder = ".dacecache/heat"
    if rank == 0:
        program = sdfg.compile()
    library.halocline_comm_barrier(comm)
    return program if rank == 0 else compiler.load_precompiled_sdfg(sdfg.build_folder)


def initial(x, y):
    """The first temperature of cells, by their global coordinates."""
    return np.where((x // 8 + y // 8) % 2 == 0, 1.0, 0.0)


def alone():
    """The result on the whole grid, which is periodic in both axes."""
    t = initial(*np.indices(EXTENTS))
    for _ in range(STEPS):
        around = (np.roll(t, 1, 0) + np.roll(t, -1, 0)) + (np.roll(t, 1, 1) + np.roll(t, -1, 1))
        t = t + 0.2 * (around - 4.0 * t)
    return t


def gathered(library, pattern, field):
    """The whole grid on rank 0, `None` elsewhere."""
    whole = c.made(library.halocline_gather_to, pattern, 0, (ctypes.c_uint64 * 1)(field), 1)
    if whole == 0:
        return None
    base = c.made(library.halocline_field_base, whole, of=ctypes.c_void_p)
    values = np.ctypeslib.as_array((ctypes.c_double * (EXTENTS[0] * EXTENTS[1])).from_address(base)).reshape(EXTENTS).copy()
    library.halocline_field_free(ctypes.c_uint64(whole))
    return values


def main():
    library = c.load()
    comm = c.made(library.halocline_init)
    rank, ranks = (c.made(f, comm, of=ctypes.c_size_t) for f in (library.halocline_comm_rank, library.halocline_comm_size))

    # One block of the periodic grid for each rank, with one halo cell on each side.
    grid = c.Grid(axes=2, extents=(ctypes.c_size_t * 2)(*EXTENTS), periodic=(ctypes.c_int32 * 2)(1, 1))
    blocks = c.made(library.halocline_decompose, grid, ranks)
    pattern = c.made(library.halocline_pattern_regular, comm, blocks, c.Halo(width=1))
    domain = c.Domain()
    library.halocline_pattern_domain(pattern, 0, domain)
    # The array stays until the exchange is freed.
    t = np.zeros(domain.extents[:2])
    layout = c.Layout(dimensions=2, extents=domain.extents, element=c.F64)
    field = c.made(library.halocline_field_create, c.Memory(base=t.ctypes.data), layout)
    halo = c.made(library.halocline_bind, comm, c.Binding(pattern, field), 1, None)

    corner = (ctypes.c_int64 * 2)()
    library.halocline_domain_global(pattern, 0, (ctypes.c_size_t * 2)(1, 1), corner)
    x, y = np.indices((t.shape[0] - 2, t.shape[1] - 2))
    t[1:-1, 1:-1] = initial(x + corner[0], y + corner[1])

    program = compiled_once(library, comm, rank)
    program(t=t, u=np.zeros_like(t), halo=np.uint64(halo), steps=np.int32(STEPS), NX=t.shape[0], NY=t.shape[1])

    whole = gathered(library, pattern, field)
    if rank == 0:
        # The compiler may contract a product and a sum, which NumPy does not.
        largest = np.abs(whole - alone()).max()
        if largest > 1e-12:
            sys.exit(f"the result differs from that of NumPy alone by {largest}")
        print(f"{STEPS} steps on {ranks} ranks, equal to NumPy alone")
    for free, handle in (
        (library.halocline_halo_exchange_free, halo),
        (library.halocline_field_free, field),
        (library.halocline_pattern_free, pattern),
        (library.halocline_decomposition_free, blocks),
        (library.halocline_comm_free, comm),
    ):
        free(ctypes.c_uint64(handle))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--generate-for-gpus"]:
        with tempfile.TemporaryDirectory() as cache:
            dace.Config.set("default_build_folder", value=cache)
            generate_for_gpus(Path(sys.argv[2]))
    else:
        main()
