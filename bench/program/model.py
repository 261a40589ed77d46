"""A step of a shallow-water model: two GT4Py programs and an exchange, before and after ``halocline.program.install()``.

    python bench/program/model.py
    python -m halocline launch -n 4 -- python -O bench/program/model.py --trace model.json
    python -m halocline launch -n 2 -- python bench/program/model.py --gpu --cells 512

``run`` installs what it needs. With ``--gpu`` each rank has a GPU; CuPy and nvcc have to be there.

Waves on a periodic grid: the first program computes new velocities from the height's gradient, the second one the new height from their
divergence. Only the height is exchanged: each rank computes the velocities that its height needs itself. Both ways compute the same run
from the same start, in turn; all fields are compared bit by bit at the end.
"""

import argparse
import collections
import os
import tempfile
import time
from pathlib import Path

SOURCE = '''
import gt4py.next as gtx
from gt4py.next import float64, int32

I, J = gtx.Dimension("I"), gtx.Dimension("J")
Ioff = gtx.FieldOffset("Ioff", source=I, target=(I,))
Joff = gtx.FieldOffset("Joff", source=J, target=(J,))
Field = gtx.Field[[I, J], float64]


@gtx.field_operator
def accelerate(h: Field, u: Field, v: Field, c: float64) -> tuple[Field, Field]:
    return u - c * (h(Ioff[1]) - h), v - c * (h(Joff[1]) - h)


@gtx.program
def velocities(h: Field, u: Field, v: Field, c: float64, new_u: Field, new_v: Field, ni: int32, nj: int32):
    accelerate(h, u, v, c, out=(new_u, new_v), domain={I: (-1, ni), J: (-1, nj)})


@gtx.field_operator
def converge(h: Field, u: Field, v: Field, c: float64) -> Field:
    return h - c * (u - u(Ioff[-1]) + v - v(Joff[-1]))


@gtx.program
def height(h: Field, u: Field, v: Field, c: float64, new_h: Field, ni: int32, nj: int32):
    converge(h, u, v, c, out=new_h, domain={I: (0, ni), J: (0, nj)})
'''


IN_FLIGHT = 32
"""Exchanges of a model that the GPU may be behind the host; an object allows 64."""


class Model:
    """The fields of a rank, twice, and the programs of a step."""

    def __init__(self, comm, source, cells, gpu):
        import gt4py.next as gtx
        import halocline as hc
        import numpy as np
        from gt4py.next.program_processors.runners import dace as backends

        backend = backends.run_dace_gpu if gpu else backends.run_dace_cpu
        self.gpu = gpu
        self.pending = collections.deque()

        side = int(comm.size**0.5)
        grid = hc.RegularGrid((cells * side, cells * (comm.size // side)), periodic=(True, True))
        pattern = grid.decompose(comm).pattern(halo=1)
        (own,) = pattern.domains
        self.ni, self.nj = own.owned_shape
        domain = gtx.domain({source.I: (-1, self.ni + 1), source.J: (-1, self.nj + 1)})
        # Level k of each field; a step reads one and writes the other.
        self.h, self.u, self.v = ([gtx.zeros(domain, allocator=backend) for _ in range(2)] for _ in range(3))
        self.halo = hc.HaloExchange.alternatives(comm, [[(pattern, h.ndarray)] for h in self.h], name="height")
        x, y = (np.arange(first - 1, first + n + 1) for first, n in zip(own.first, own.owned_shape))
        begin = 1 + 0.1 * np.exp(-((x[:, None] - cells / 2) ** 2 + (y - cells / 2) ** 2) / 50)
        if gpu:
            import cupy

            begin = cupy.asarray(begin)
        self.h[0].ndarray[...] = begin
        self.exchange(0)
        offsets = {"Ioff": source.I, "Joff": source.J}
        compiled = [of.with_backend(backend).compile(offset_provider=offsets) for of in (source.velocities, source.height)]
        self.velocities, self.height = compiled
        self.offsets = offsets

    def step(self, k):
        old, new = k % 2, (k + 1) % 2
        h, u, v, c = self.h, self.u, self.v, 0.1
        self.velocities(h[old], u[old], v[old], c, u[new], v[new], self.ni, self.nj, offset_provider=self.offsets)
        self.height(h[old], u[new], v[new], c, h[new], self.ni, self.nj, offset_provider=self.offsets)
        self.exchange(new)

    def exchange(self, level):
        """On a GPU in the order of the default stream, on which GT4Py's programs run. The host waits only for what is many steps old."""
        if self.gpu:
            pending = self.halo.schedule_exchange(None, set=level)
            pending.schedule_wait(None)
            self.pending.append(pending)
            if len(self.pending) > IN_FLIGHT:
                self.pending.popleft().wait()
        else:
            self.halo.exchange(set=level)

    def result(self):
        return [level.asnumpy().tobytes() for of in (self.h, self.u, self.v) for level in of]


def timed(model, comm, start, steps):
    """Microseconds a step of the slowest rank: in all, and until the host has given it to the GPU."""
    import numpy as np

    comm.barrier()
    begin = time.perf_counter()
    for k in range(start, start + steps):
        model.step(k)
    on_host = time.perf_counter() - begin
    if model.gpu:
        import cupy

        cupy.cuda.runtime.deviceSynchronize()
    mine = np.array([time.perf_counter() - begin, on_host]) / steps * 1e6
    return np.max([np.frombuffer(part) for part in comm.all_gather(mine.tobytes())], axis=0)


def measure(comm, source, given):
    """The times of both ways and whether their fields are equal to the last bit."""
    import numpy as np
    from halocline import program

    steps = given.steps
    before = Model(comm, source, given.cells, given.gpu)
    before.step(0)
    program.install()
    after = Model(comm, source, given.cells, given.gpu)
    after.step(0)
    times = {"before": [], "after": []}
    for turn in range(given.rounds):
        start = 1 + turn * steps
        program.uninstall()
        times["before"].append(timed(before, comm, start, steps))
        program.install()
        times["after"].append(timed(after, comm, start, steps))
    program.uninstall()
    equal = comm.all_gather(b"1" if before.result() == after.result() else b"0")
    assert before.h[0].ndarray.std() > 0, "the waves are lost"
    return {way: np.median(of, axis=0) for way, of in times.items()}, all(part == b"1" for part in equal)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--cells", type=int, default=32, help="cells of a rank along an axis")
    arguments.add_argument("--steps", type=int, default=200, help="steps of a round")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--gpu", action="store_true", help="fields and programs of GPUs, a GPU for each rank")
    arguments.add_argument("--trace", help="write a trace of 20 steps")
    given = arguments.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")

    import halocline as hc

    if given.gpu:
        # DaCe's programs use the first GPU of a process.
        gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7").split(",")
        own = int(os.environ.get("HALOCLINE_RANK", 0)) % len(gpus)
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[own:] + gpus[:own])
    comm = hc.init()
    with tempfile.TemporaryDirectory() as folder:
        # Read when GT4Py is imported. Ranks do not share it: GT4Py's own builds of one program at once fail.
        os.environ["GT4PY_BUILD_CACHE_DIR"] = folder
        import importlib.util

        path = Path(folder) / "shallow_water.py"
        path.write_text(SOURCE)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        source = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(source)
        times, is_equal = measure(comm, source, given)
        if given.trace:
            from halocline import program

            program.install()
            model = Model(comm, source, given.cells, given.gpu)
            with hc.trace(given.trace, comm):
                for k in range(20):
                    model.step(k)
    if comm.rank == 0:
        where = "GPUs" if given.gpu else comm.transport
        print(f"{comm.size} ranks over {where}, {given.cells} x {given.cells} cells a rank, {'python' if __debug__ else 'python -O'}; us a step, and on the host")
        for name, way in (("GT4Py", "before"), ("installed", "after")):
            print(f"| {name} | {times[way][0]:.1f} | {times[way][1]:.1f} |")
        print("| ratio | {:.2f} | {:.2f} |".format(*(times["after"] / times["before"])))
        print(f"fields equal to the last bit: {'yes' if is_equal else 'NO'}")
    assert is_equal


if __name__ == "__main__":
    main()
