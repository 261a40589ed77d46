"""What goes wrong is a typed error that says what would be right; misuse by threads is refused, never wrong data."""

import inspect
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from child import mpi_environment

import halocline as hc


def bound(comm, **options):
    pattern = hc.RegularGrid((8, 8), periodic=(True, True)).decompose(comm).pattern(1)
    array = np.zeros(pattern.shape)
    return pattern, array, hc.HaloExchange(comm, [(pattern, array)], **options)


def test_the_hierarchy():
    errors = {n: c for n, c in vars(hc).items() if inspect.isclass(c) and issubclass(c, Exception)}
    assert len(errors) == 19 and all(issubclass(c, hc.HaloError) for c in errors.values())
    assert all(c.__module__ == "halocline" and c.__doc__ for c in errors.values())
    assert issubclass(hc.HaloValueError, ValueError) and issubclass(hc.HaloTypeError, TypeError)
    assert issubclass(hc.ExchangeTimeoutError, TimeoutError)
    assert issubclass(hc.CommunicatorTimeoutError, TimeoutError)
    assert issubclass(hc.BuildTimeoutError, TimeoutError) and issubclass(hc.BuildTimeoutError, hc.ProgramError)
    assert issubclass(hc.MemoryShortageError, MemoryError) and issubclass(hc.RowError, hc.HaloValueError)
    assert issubclass(hc.UnreachableError, hc.HaloValueError)
    from halocline import _errors

    assert {n for n, c in vars(_errors).items() if inspect.isclass(c)} == set(errors)


def test_grids_that_cannot_be():
    comm = hc.init()
    for make, text in [
        (lambda: hc.RegularGrid((4, 4), periodic=(True,)), "flags"),
        (lambda: hc.RegularGrid(()).decompose(comm), "axes"),
        (lambda: hc.RegularGrid((0,)).decompose(comm), "axis"),
        (lambda: hc.RegularGrid((4,)).decompose(9), "9"),
        (lambda: hc.RegularGrid((4,)).decompose_into((2, 2), 4), "axes|axis"),
        (lambda: hc.RegularGrid((4,)).decompose_at([[5]], 2), "5"),
        (lambda: hc.RegularGrid((4,)).decompose_boxes([(0, (0,), (3,))], 1), "cell"),
        (lambda: hc.RegularGrid((4,)).decompose(1).pattern(1), "comm="),
        (lambda: hc.RegularGrid((4,)).decompose(comm).pattern(-1), "width"),
        (lambda: hc.RegularGrid((4,)).decompose(comm).pattern([1, 1]), "axes|axis"),
        (lambda: hc.RegularGrid((4,)).decompose(comm).pattern(1, neighbours="some"), "faces"),
        (lambda: hc.RegularGrid((4,)).decompose(comm).pattern("1"), "halo"),
    ]:
        with pytest.raises(hc.HaloValueError, match=text):
            make()
    with pytest.raises(hc.HaloTypeError, match="Communicator"):
        hc.RegularGrid((4,)).decompose("comm")


def test_options_that_there_are_not():
    comm = hc.init()
    for option, text in [
        ({"link": "fast"}, "mailbox"),
        ({"deadline": -1.0}, "seconds"),
        ({"deadline": float("nan")}, "seconds"),
    ]:
        with pytest.raises(hc.HaloValueError, match=text):
            bound(comm, **option)
    with pytest.raises(hc.HaloValueError, match="transport"):
        hc.init("carrier pigeon")
    with pytest.raises(hc.HaloValueError, match="at least 1"):
        hc.run_threads(0, print)
    with pytest.raises(hc.HaloTypeError, match="mpi4py"):
        hc.Communicator("world")


def test_what_is_no_communicator_is_refused():
    class Lookalike:
        handle = 7

    for wrong in (True, False, Lookalike(), 1.5, None):
        with pytest.raises(hc.HaloTypeError, match="communicator of mpi4py"):
            hc.Communicator(wrong)


def test_what_else_mpi4py_has_is_no_communicator():
    """MPI took their handles for those of communicators, and the process ended."""
    code = """
try:
    from mpi4py import MPI
except (ImportError, RuntimeError) as error:
    raise SystemExit(f"SKIPPED: {error}")
import halocline as hc
for wrong in (MPI.INT, MPI.INFO_NULL, MPI.SUM, MPI.ERRORS_RETURN, MPI.GROUP_EMPTY, MPI.REQUEST_NULL, MPI.WIN_NULL):
    try:
        hc.Communicator(wrong)
    except hc.HaloTypeError as error:
        assert type(wrong).__name__ in str(error)
    else:
        raise AssertionError(wrong)
hc.Communicator(MPI.COMM_SELF).barrier()
"""

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=mpi_environment())
    if "SKIPPED" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, (done.returncode, done.stderr)


def test_what_one_rank_refuses_is_an_error_on_all():
    def run(comm):
        pattern, array, _ = bound(comm)
        wrong = np.zeros((2, 2)) if comm.rank == 1 else array
        with pytest.raises(hc.HaloError) as caught:
            hc.HaloExchange(comm, [(pattern, wrong)])
        unreadable = [1, 2] if comm.rank == 2 else array
        with pytest.raises(hc.HaloError) as second:
            hc.HaloExchange(comm, [(pattern, unreadable)])
        with pytest.raises(hc.HaloError) as third:
            hc.RegularGrid((4, 4)).decompose(comm).pattern("x" if comm.rank == 0 else 1)
        # Nothing is out of step.
        hc.HaloExchange(comm, [(pattern, array)]).exchange()
        return [type(error.value) for error in (caught, second, third)]

    elsewhere, value, kind = hc.RefusedElsewhereError, hc.HaloValueError, hc.HaloTypeError
    assert hc.run_threads(3, run) == [
        [elsewhere, elsewhere, value],
        [value, elsewhere, elsewhere],
        [elsewhere, kind, elsewhere],
    ]


def wrong_types(comm, pattern):
    """Collective calls with an argument that is none, by name: what each makes of a good or a wrong one."""
    array = np.zeros(pattern.shape)
    domain = hc.UnstructuredDomain(comm.rank, [comm.rank], [])
    grid = hc.RegularGrid((8, 8)).decompose(comm)
    whole = np.zeros(grid.pattern(0).shape)
    moved = hc.Redistribute.regular(comm, (grid, 0), (grid, 0))
    move = lambda **options: moved.bind(comm, [whole], [whole.copy()], **options)  # noqa: E731
    return {
        "patterns": (lambda given: hc.PatternLinks(comm, given), [pattern], [None]),
        "name": (lambda given: hc.HaloExchange(comm, [(pattern, array)], name=given), "name", 5),
        "deadline": (lambda given: hc.HaloExchange(comm, [(pattern, array)], deadline=given), 9.0, "x"),
        "link": (lambda given: hc.HaloExchange.alternatives(comm, [[(pattern, array)]], link=given), "auto", 3),
        "inline": (lambda given: hc.HaloExchange(comm, [(pattern, array)], inline=given), False, "no"),
        "stream_waits": (lambda given: hc.HaloExchange(comm, [(pattern, array)], stream_waits=given), False, "no"),
        "ll": (lambda given: hc.HaloExchange(comm, [(pattern, array)], ll=given), "never", 1.5),
        "checked": (lambda given: hc.PatternLinks(comm, [pattern], checked=given), False, "no"),
        "domains": (lambda given: hc.Pattern.unstructured(comm, given), [domain], [3]),
        "neighbours": (lambda given: grid.pattern(1, neighbours=given), "all", 3),
        "target": (lambda given: hc.Redistribute.unstructured(comm, [domain], given), [domain], 3),
        "ll of a redistribution": (lambda given: move(ll=given), 64, 2.5),
        "inline of a redistribution": (lambda given: move(inline=given), True, 2),
        "source": (lambda given: moved.bind(comm, given, [whole.copy()]), [whole], 3),
    }


def test_an_argument_of_a_wrong_type_is_an_error_on_all_ranks():
    def run(all_ranks):
        comm = all_ranks.with_deadline(20.0)
        pattern, _, halo = bound(comm)
        for name, (call, good, wrong) in wrong_types(comm, pattern).items():
            with pytest.raises(hc.HaloError) as caught:
                call(wrong if comm.rank == 1 else good)
            want = hc.HaloTypeError if comm.rank == 1 else hc.RefusedElsewhereError
            assert type(caught.value) is want, (name, caught.value)
            assert re.search(rf"\b{name.split()[0]}(\[0\])?: ", str(caught.value)), (name, caught.value)
            call(good)
        halo.exchange()

    hc.run_threads(2, run)


def test_which_messages_use_the_ll_protocol():
    option = "ll"
    comm = hc.run_threads(1, lambda c: c)[0]
    pattern, array, _ = bound(comm)
    for given in (None, "auto", "never", 1, 2**40, np.int64(4096)):
        hc.HaloExchange(comm, [(pattern, array)], **{option: given}).exchange()
        hc.HaloExchange.alternatives(comm, [[(pattern, array)]], **{option: given}).exchange()
    for given in (0, -1, 2**70, 2**200, "1M", "", "Never"):
        with pytest.raises(hc.HaloValueError, match=f"{option}: a number of bytes, from 1, 'never' or 'auto' is wanted"):
            hc.HaloExchange(comm, [(pattern, array)], **{option: given})
    for given in (True, 4096.0, [1], b"auto"):
        with pytest.raises(hc.HaloTypeError, match=f"{option}: a number of bytes"):
            hc.HaloExchange(comm, [(pattern, array)], **{option: given})


def test_ranks_agree_on_what_one_of_them_failed_in():
    class Own(Exception):
        pass

    def run(comm):
        comm.agree()
        failed = Own("no such file")
        for error, wanted in [(failed, Own), (KeyboardInterrupt(), KeyboardInterrupt), (3, hc.HaloTypeError), (Own, hc.HaloTypeError)]:
            with pytest.raises(wanted if comm.rank == 1 else hc.RefusedElsewhereError) as caught:
                comm.agree(error if comm.rank == 1 else None)
            if error is failed:
                assert (caught.value is failed) if comm.rank == 1 else "no such file" in str(caught.value)
        comm.agree(None)

    hc.run_threads(3, run)


def test_arguments_of_collectives_of_the_communicator():
    comm = hc.run_threads(1, lambda c: c)[0]
    for call, error in [
        (lambda: comm.all_reduce([-1]), hc.HaloValueError),
        (lambda: comm.all_reduce([2**64]), hc.HaloValueError),
        (lambda: comm.all_reduce(3), hc.HaloTypeError),
        (lambda: comm.all_reduce([1], 3), hc.HaloTypeError),
        (lambda: comm.broadcast(0, "x"), hc.HaloTypeError),
        (lambda: comm.broadcast(-1, b"x"), hc.HaloValueError),
        (lambda: comm.all_gather("x"), hc.HaloTypeError),
    ]:
        with pytest.raises(error):
            call()
    for values, message in [
        (3.5, r"^values: a sequence of numbers is wanted, not 3\.5"),
        ([3.5, 1j], r"^values\[1\]: a number is wanted, not complex$"),
        ([-1], r"^values\[0\]: a whole number from 0 is wanted, not -1$"),
    ]:
        with pytest.raises(hc.HaloError, match=message):
            comm.all_reduce(values)
    assert comm.all_reduce([1]) == [1]


def test_two_communicators_mixed():
    one, other = hc.run_threads(1, lambda c: c)[0], hc.run_threads(1, lambda c: c)[0]
    pattern, array, _ = bound(one)
    for make in (
        lambda: hc.HaloExchange(other, [(pattern, array)]),
        lambda: hc.PatternLinks(other, [pattern]),
    ):
        with pytest.raises(hc.HaloValueError, match="another communicator"):
            make()
    # A duplicate is the same ranks.
    hc.HaloExchange(one.duplicate(), [(pattern, array)]).exchange()


def test_in_flight():
    def run(comm):
        pattern, array, halo = bound(comm)
        if comm.rank == 0:
            pending = halo.exchange(wait=False)
            assert not pending.is_ready()
            with pytest.raises(hc.InFlightError, match="exchange 1"):
                halo.exchange()
            alone = hc.run_threads(1, lambda c: c)[0]
            other = hc.RegularGrid((8, 8), periodic=(True, True)).decompose(alone).pattern(1)
            # The same memory in another object.
            view = np.zeros((10, 10))
            halves = hc.HaloExchange(alone, [(other, view)])
            assert halves.exchange(wait=False).is_ready()
        comm.barrier()
        if comm.rank == 1:
            halo.exchange()
        else:
            pending.wait()
            assert halo.pending.epoch == 1
        comm.barrier()

    hc.run_threads(2, run)


def test_memory_in_flight_in_another_object():
    def run(comm):
        pattern, array, halo = bound(comm)
        second = hc.HaloExchange(comm, [(pattern, array[:])])
        if comm.rank == 0:
            pending = halo.exchange(wait=False)
            with pytest.raises(hc.InFlightError, match="another object"):
                second.exchange()
        comm.barrier()
        if comm.rank == 1:
            pending = halo.exchange(wait=False)
        pending.wait()
        second.exchange()

    hc.run_threads(2, run)


def test_different_collective_calls_are_named_on_both_ranks():
    def run(comm):
        pattern, array, _ = bound(comm)
        with pytest.raises(hc.CommunicatorError, match="rank 0 is in bind, rank 1 in barrier") as caught:
            hc.HaloExchange(comm, [(pattern, array)]) if comm.rank == 0 else comm.barrier()
        # It stays so.
        with pytest.raises(hc.CommunicatorError) as again:
            comm.barrier()
        assert str(again.value) == str(caught.value)

    hc.run_threads(2, run)


def test_a_deadline():
    over = threading.Event()

    def run(comm):
        pattern, array, halo = bound(comm, deadline=None if comm.rank else 0.5)
        comm.barrier()
        halo.exchange()
        if comm.rank == 0:
            with pytest.raises(hc.ExchangeTimeoutError, match="rank 1") as caught:
                halo.exchange()
            error = caught.value
            assert (error.rank, error.epoch, error.peer, error.culprit) == (0, 2, 1, 1)
        comm.barrier()
        # The exchange that has returned is right, also where the failure is learned after it.
        with pytest.raises(hc.ExchangeFailedError, match="exchange 2 failed .* exchange 1 is complete") as caught:
            halo.exchange()
        assert (caught.value.rank, caught.value.epoch) == (comm.rank, 2)
        while not halo.reclaim():
            pass
        comm.barrier()
        if comm.rank == 0:
            with pytest.raises(hc.CommunicatorTimeoutError):
                comm.with_deadline(0.1).barrier()
            over.set()
        over.wait(60)

    hc.run_threads(2, run)


def test_a_rank_that_raises():
    def run(comm):
        if comm.rank == 1:
            raise KeyError("of rank 1")
        comm.barrier()

    with pytest.raises(KeyError, match="of rank 1"):
        hc.run_threads(3, run)


def test_a_rank_that_returns():
    """It has left: nobody waits for it. What it has in flight arrives."""

    def run(comm):
        pattern, array, halo = bound(comm)
        array[...] = comm.rank
        if comm.rank == 0:
            halo.exchange(wait=False)
            return "gone"
        halo.exchange()
        assert sorted(set(array.ravel())) == [0, 1]
        with pytest.raises(hc.ExchangeFailedError, match="rank 0 dropped its end"):
            halo.exchange()
        with pytest.raises(hc.CommunicatorError, match="rank 0 has left"):
            comm.with_deadline(20.0).barrier()
        return "notified"

    assert hc.run_threads(2, run) == ["gone", "notified"]


def test_threads_beyond_number():
    with pytest.raises(hc.HaloValueError, match="too many"):
        hc.run_threads(2**62, print)


def test_a_closed_communicator():
    comm = hc.run_threads(1, lambda c: c)[0]
    pattern, array, halo = bound(comm)
    with comm:
        halo.exchange()
    for use in (comm.barrier, comm.duplicate, lambda: bound(comm), lambda: hc.zeros(3, comm=comm)):
        with pytest.raises(hc.ClosedError):
            use()
    assert comm.rank == 0 and comm.size == 1
    comm.close()


def test_checked_mode():
    def run(comm):
        pattern, array, halo = bound(comm, checked=True, name="checked")
        array[...] = comm.rank
        halo.exchange()
        assert not np.isnan(array).any()
        pending = halo.exchange(wait=False)
        array[1:-1, 1:-1] = -5  # owned cells, while they are sent
        with pytest.raises(hc.ExchangeFailedError, match="owned|wrote|written"):
            pending.wait()
            halo.exchange()

    hc.run_threads(2, run)


def test_collectives():
    def run(comm):
        assert comm.all_gather(bytes([comm.rank])) == [b"\0", b"\1", b"\2"]
        assert comm.broadcast(1, b"x" * (comm.rank + 1)) == b"xx"
        assert comm.all_reduce([comm.rank, 5]) == [3, 15]
        assert comm.all_reduce([comm.rank], "max") == [2] and comm.all_reduce([comm.rank], "min") == [0]
        assert comm.all_reduce([0.5 * comm.rank, 1]) == [1.5, 3.0]
        assert comm.all_reduce(np.array([comm.rank], "f4"), "max") == [2.0]
        with pytest.raises(hc.HaloError, match="f64"):
            comm.all_reduce([1.5 if comm.rank else 1])
        with pytest.raises(hc.HaloValueError, match="sum"):
            comm.all_reduce([1], "mean")
        with pytest.raises(hc.HaloValueError, match="rank 7"):
            comm.broadcast(7, b"")
        assert comm.mappings()["mapped"] == 0
        assert repr(comm) == f"Communicator(thread, rank {comm.rank} of 3)" and comm.transport == "thread"

    hc.run_threads(3, run)


def test_calls_from_several_threads_are_right_or_refused():
    """Threads of one rank begin an exchange of the same object at once: one does, the others raise an error; data is right."""
    threads = 4

    def run(comm):
        pattern = hc.RegularGrid((64,), periodic=(True,)).decompose(comm).pattern(3)
        (domain,) = pattern.domains
        array = np.zeros(pattern.shape)
        halo = hc.HaloExchange(comm, [(pattern, array)])
        cells = (np.arange(pattern.shape[0]) + domain.first[0] - 3) % 64
        together = threading.Barrier(threads)

        def begin(_):
            together.wait(60)
            try:
                return halo.exchange(wait=False)
            except hc.InFlightError:
                return None

        with ThreadPoolExecutor(threads) as pool:
            for step in range(100):
                want = 64 * step + cells
                array[...] = -1
                array[domain.owned] = want[domain.owned]
                if comm.rank == 0:
                    # Not over before the other rank begins it.
                    begun = [pending for pending in pool.map(begin, range(threads)) if pending is not None]
                    assert len(begun) == 1
                comm.barrier()
                if comm.rank == 1:
                    halo.exchange()
                else:
                    list(pool.map(lambda _: begun[0].wait(), range(threads)))
                np.testing.assert_array_equal(array, want)
                comm.barrier()
        assert halo.pending.epoch == 100

    hc.run_threads(2, run)


