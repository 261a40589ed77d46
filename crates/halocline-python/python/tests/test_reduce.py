"""The reverse of an exchange."""

import asyncio

import halocline as hc
import numpy as np
import pytest


def ring(dtype: str, *, keep: int = 1) -> tuple[np.ndarray, hc.HaloExchange]:
    """Three owned cells on a ring, with a halo cell at each side."""
    comm = hc.init()
    pattern = hc.RegularGrid((3,), periodic=(True,)).decompose(comm).pattern(halo=keep)
    array = np.zeros(pattern.shape, dtype)
    return array, hc.HaloExchange(comm, [(pattern, array)])


def test_halo_cells_are_added_to_their_owners_and_cleared() -> None:
    array, halo = ring("float64")
    array[:] = [0.5, 1, 2, 3, 0.25]
    halo.reduce("sum")
    assert array.tolist() == [0, 1.25, 2, 3.5, 0]


def test_sum_is_the_default_and_a_halo_can_be_kept() -> None:
    array, halo = ring("int32")
    array[:] = [7, 1, 2, 3, 9]
    halo.reduce(keep=True)
    assert array.tolist() == [7, 10, 2, 10, 9]


@pytest.mark.parametrize(
    ("op", "dtype", "expected"),
    [
        ("product", "int64", [5 * 4, 2, 7 * 6]),
        ("min", "uint16", [4, 2, 6]),
        ("max", "float32", [5, 2, 7]),
        ("and", "int8", [5 & 4, 2, 7 & 6]),
        ("or", "int8", [5 | 4, 2, 7 | 6]),
        ("xor", "uint64", [5 ^ 4, 2, 7 ^ 6]),
        ("replace", "complex128", [5, 2, 7]),
    ],
)
def test_operations(op: str, dtype: str, expected: list[int]) -> None:
    array, halo = ring(dtype)
    array[:] = [7, 4, 2, 6, 5]
    halo.reduce(op)
    assert array.tolist() == [0, *expected, 0]


def test_a_scheduled_reduce_of_host_fields_starts_at_once() -> None:
    array, halo = ring("float64")
    array[:] = [0.5, 1, 2, 3, 0.25]
    pending = halo.schedule_reduce("sum", keep=True)
    pending.wait()
    assert pending.epoch == 1 and array.tolist() == [0.5, 1.25, 2, 3.5, 0.25]
    halo.schedule_reduce("max").wait()
    assert array.tolist() == [0, 1.25, 2, 3.5, 0]


def test_a_pending_reduce_is_waited_for_or_awaited() -> None:
    array, halo = ring("float64")
    array[:] = 1
    pending = halo.reduce("sum", wait=False)
    pending.wait()
    assert pending.epoch == 1 and array.tolist() == [0, 2, 1, 2, 0]
    array[:] = 1

    async def main() -> None:
        await halo.reduce("sum", wait=False)

    asyncio.run(main())
    assert array.tolist() == [0, 2, 1, 2, 0]


def test_one_of_several_sets_is_reduced() -> None:
    comm = hc.init()
    pattern = hc.RegularGrid((3,), periodic=(True,)).decompose(comm).pattern(halo=1)
    levels = [np.ones(pattern.shape), np.ones(pattern.shape)]
    halo = hc.HaloExchange.alternatives(comm, [[(pattern, level)] for level in levels])
    halo.reduce("sum", set=1)
    assert levels[0].tolist() == [1, 1, 1, 1, 1] and levels[1].tolist() == [0, 2, 1, 2, 0]


def test_halo_cells_fetch_the_values_before_them() -> None:
    counts, halo = ring("int64")
    counts[:] = [2, 10, 20, 30, 4]
    halo.fetch_and_op()
    assert counts.tolist() == [30, 14, 20, 32, 10]
    halo.fetch_and_op("max")
    assert counts.tolist() == [32, 14, 20, 32, 14]
    with pytest.raises(hc.HaloValueError, match='op: "mean" is none of sum'):
        halo.fetch_and_op("mean")
    doubles, other = ring("float64")
    with pytest.raises(hc.HaloError, match="have no xor; choose"):
        other.fetch_and_op("xor")
    assert doubles.tolist() == [0, 0, 0, 0, 0]


def test_what_one_rank_refuses_all_refuse() -> None:
    def rank(comm: hc.Communicator) -> str:
        pattern = hc.RegularGrid((3 * comm.size,), periodic=(True,)).decompose(comm).pattern(halo=1)
        array = np.ones(pattern.shape)
        halo = hc.HaloExchange(comm, [(pattern, array)])
        with pytest.raises(hc.HaloError) as refused:
            halo.fetch_and_op("mean" if comm.rank == 0 else "sum")
        with pytest.raises(hc.HaloError, match="fetches by .*, another by .*; give all ranks the same operation"):
            halo.fetch_and_op("max" if comm.rank == 0 else "sum")
        assert array.tolist() == [1, 1, 1, 1, 1]
        return str(refused.value)

    own, other = hc.run_threads(2, rank)
    assert own.startswith('op: "mean" is none of') and other.startswith('rank 0 refused: op: "mean"')


def test_the_degree_counts_the_copies_of_each_cell() -> None:
    _, halo = ring("float64", keep=2)
    (degree,) = halo.degree()
    assert degree.dtype == np.uint32 and degree.tolist() == [0, 0, 1, 2, 1, 0, 0]


def test_wrong_operations_are_refused_and_take_no_epoch() -> None:
    _, halo = ring("float64")
    with pytest.raises(ValueError, match="op: \"add\" is none of sum, product, min, max, and, or, xor, replace"):
        halo.reduce("add")  # type: ignore[call-overload]
    with pytest.raises(hc.HaloError, match="elements of float64, which have no xor"):
        halo.reduce("xor")
    assert halo.pending is None
