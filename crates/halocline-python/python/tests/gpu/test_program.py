"""A compiled program of a GPU on the caller's stream, between what the array libraries compute and an exchange. ``nvcc`` compiles
``heat.cu``, which ``gpu/build`` puts beside these tests. Nothing but the end of a test waits on the host."""

import gc
import json
import os
import shutil
import subprocess
import weakref
from pathlib import Path

import libraries
import numpy as np
import pytest

import halocline as hc
from halocline import program

DT, ROUNDS = 0.1, 5
PLACES = [parent / part for parent in Path(__file__).resolve().parents[2:6] for part in ("heat.cu", "gpu/heat.cu")]
SOURCE = next((place for place in PLACES if place.exists()), None)
NVCC = shutil.which("nvcc") or shutil.which("nvcc", path=os.environ.get("CUDA_HOME", "/usr/local/cuda") + "/bin")
pytestmark = pytest.mark.skipif(SOURCE is None or NVCC is None, reason="there is no nvcc, or no heat.cu")


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    built = tmp_path_factory.mktemp("heat") / "libheat.so"
    arguments = ["-O3", "-std=c++17", "-shared", "-Xcompiler", "-fPIC", "-arch=native", "-o", built, SOURCE]
    subprocess.run([NVCC, *arguments], check=True, timeout=50)
    return built


def load(library, **more):
    return program.load(library, json.dumps(json.loads(SOURCE.with_suffix(".json").read_text()) | more))


def start(shape):
    return np.fromfunction(lambda i, j: (i * 31 + j * 17) % 97 / 97, shape)


def stepped(t):
    """A step on the host, in the same order of operations."""
    total = (t[:-2, 1:-1] + t[2:, 1:-1]) + (t[1:-1, :-2] + t[1:-1, 2:])
    result = t.copy()
    result[1:-1, 1:-1] = t[1:-1, 1:-1] + DT * (total - 4.0 * t[1:-1, 1:-1])
    return result


@pytest.mark.parametrize("streams", ["caller", "internal", "default"])
def test_every_kind_of_stream_orders_a_program(library, cupy_engine, streams):
    mine, shape = cupy_engine(0), (40, 70)
    heat = load(library, streams=streams)
    with mine.here():
        for stream, given in mine.streams().values():
            grow, t, seen = (mine.array(np.ones(shape)), mine.array(start(shape)), mine.array(np.zeros((ROUNDS, *shape))))
            prepared = heat.prepare(t, DT, stream=given)
            mine.synchronise()
            with mine.on(stream):
                for count in range(ROUNDS):
                    mine.spin(2)
                    mine.add(t, grow)
                    if count % 2:
                        prepared()
                    else:
                        heat(t, dt=DT, stream=given)
                    mine.copy(seen[count], t)
            mine.synchronise()
            expected = start(shape)
            for count in range(ROUNDS):
                expected = stepped(expected + 1)
                np.testing.assert_array_equal(mine.host(seen)[count], expected, err_msg=f"round {count}")


def test_program_exchange_program_on_one_stream(library, together, main_engine):
    if main_engine is libraries.OnHost:
        pytest.skip("the program is one of a GPU")

    def rank(comm):
        mine = main_engine(comm.rank)
        grid = hc.RegularGrid((36, 50), periodic=(True, True)).decompose(comm)
        pattern = grid.pattern(1)
        (domain,) = pattern.domains
        with mine.here():
            whole = start((36, 50))
            index = np.array([domain.to_global((i, 0))[0] for i in range(domain.shape[0])])
            columns = np.array([domain.to_global((0, j))[1] for j in range(domain.shape[1])])
            t = mine.array(whole[np.ix_(index % 36, columns % 50)])
            halo = hc.HaloExchange(comm, [(pattern, t)], deadline=20)
            stream, given = list(mine.streams().values())[-1]
            heat = load(library, streams="caller")
            step = heat.prepare(t, DT, stream=given)
            mine.synchronise()
            comm.barrier()
            with mine.on(stream):
                for _ in range(12):
                    mine.spin(0.5)
                    step()
                    halo.schedule_exchange(given).schedule_wait(given)
            mine.synchronise()
            for _ in range(12):
                whole = stepped(np.pad(whole, 1, mode="wrap"))[1:-1, 1:-1]
            owned = mine.host(t)[domain.owned]
            expected = whole[np.ix_(index % 36, columns % 50)][domain.owned]
            np.testing.assert_array_equal(owned, expected)

    together(rank)


def test_the_arrays_of_a_call_are_held_until_the_stream_has_passed(library, cupy_engine):
    mine = cupy_engine(0)
    heat = load(library)
    with mine.here():
        stream, given = list(mine.streams().values())[-1]
        small, *others = (mine.array(start((20, 20))) for _ in range(5))
        heat(small, DT, stream=given)
        mine.synchronise()
        # The program knows the last arrays of each argument again, so that it holds them, too.
        t = mine.array(start((40, 70)))
        held = weakref.ref(t)
        with mine.on(stream):
            mine.spin(60)
        heat(t, DT, stream=given)
        heat(small, DT, stream=given)
        del t
        gc.collect()
        assert held() is not None
        mine.synchronise()
        for other in others:
            heat(other, DT, stream=given)
        gc.collect()
        assert held() is None
        mine.synchronise()


def test_a_stream_of_another_gpu_is_refused(library, cupy_engine):
    import cupy

    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("there is one GPU")
    heat = load(library)
    with cupy.cuda.Device(1):
        other = cupy.cuda.Stream(non_blocking=True)
    with cupy.cuda.Device(0):
        t = cupy.asarray(start((20, 20)))
        with pytest.raises(hc.HaloError, match="belongs to device 1"):
            heat(t, DT, stream=other)
