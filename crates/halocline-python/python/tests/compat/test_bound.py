"""What the interface of GHEX does for fields of GPUs, by fields of the host: binding them when they first come together."""

import sys
import threading

import numpy as np
import pytest

import halocline as hc
from halocline.compat.ghex import _exchange, unstructured
from halocline.compat.ghex._bound import REMEMBERED, Bound
from halocline.compat.ghex.context import _Begun, make_context


class Case:
    def __init__(self, comm):
        self.comm = comm
        self.pattern = hc.RegularGrid((4 * comm.size,), periodic=(True,)).decompose(comm).pattern(1)
        self.begun = _Begun()
        self.bound = Bound(comm.duplicate(), self.begun)

    def array(self, by):
        array = np.arange(4.0 * self.comm.rank - 1, 4 * self.comm.rank + 5) % (4 * self.comm.size) + by
        array[[0, -1]] = -1
        return array

    def exchange(self, *arrays, streams=()):
        fields = [(self.pattern, hc.Field(array, domain=self.comm.rank)) for array in arrays]
        return self.bound.begin(fields, streams)

    def check(self, array, by):
        whole = 4 * self.comm.size
        want = np.arange(4.0 * self.comm.rank - 1, 4 * self.comm.rank + 5) % whole + by
        np.testing.assert_array_equal(array, want)


def test_fields_are_bound_once_whatever_stands_for_them():
    def rank(comm):
        case = Case(comm)
        arrays = [case.array(10), case.array(20)]
        for count in range(5):
            for array in arrays:
                array[[0, -1]] = -1
            case.exchange(*[array[:] for array in arrays], streams=(None,) if count % 2 else ()).wait()
            case.check(arrays[0], 10)
            case.check(arrays[1], 20)
            comm.barrier()
        assert case.bound._binds == 1

    hc.run_threads(2, rank)


def test_what_one_rank_has_forgotten_all_bind_again():
    def rank(comm):
        case = Case(comm)
        arrays = [case.array(10 * number) for number in range(3)]
        for turn in range(3):
            if turn == 1 and comm.rank == 0:
                case.bound._known.clear()
            if turn == 2 and comm.rank == 1:
                # It has another array where the other rank knows what it has.
                arrays[1] = case.array(10)
            for number, array in enumerate(arrays):
                array[[0, -1]] = -1
                case.exchange(array).wait()
                case.check(array, 10 * number)
                comm.barrier()
        assert case.bound._binds == 3 + 3 + 1

    hc.run_threads(2, rank)


def test_so_many_are_remembered_and_no_more():
    def rank(comm):
        case = Case(comm)
        for number in range(3 * REMEMBERED):
            array = case.array(number)
            case.exchange(array).wait()
            case.check(array, number)
        assert len(case.bound._known) == REMEMBERED and case.bound._binds == 3 * REMEMBERED
        assert len(case.begun.pendings) <= 2

    hc.run_threads(2, rank)


def test_an_array_in_flight_with_others_is_waited_for():
    def rank(comm):
        case = Case(comm)
        one, two = case.array(1), case.array(2)
        for _ in range(10):
            for array in (one, two):
                array[[0, -1]] = -1
            comm.barrier()
            first = case.exchange(one)
            second = case.exchange(one, two)
            third = case.exchange(two)
            for pending in (third, second, first):
                pending.wait()
            case.check(one, 1)
            case.check(two, 2)
            comm.barrier()

    hc.run_threads(2, rank)


def test_what_is_refused_is_refused_on_all_ranks():
    def rank(comm):
        case = Case(comm)
        array = np.zeros(3) if comm.rank else case.array(0)
        with pytest.raises(hc.HaloValueError if comm.rank else hc.RefusedElsewhereError):
            case.exchange(array)
        array = case.array(5)
        case.exchange(array).wait()
        case.check(array, 5)

    hc.run_threads(2, rank)


@pytest.mark.parametrize("refusal", ["unreachable", "other", "several GPUs"])
def test_only_where_a_gpu_is_out_of_reach_or_a_rank_has_several_are_fields_bound(monkeypatch, refusal):
    """The links of GPU fields, of a pattern whose fields here are those of the host."""
    made = []

    def links(comm, patterns, **options):
        if not options:
            return hc.PatternLinks(comm, patterns)
        made.append(comm.rank)
        if comm.rank == 0:
            raise (hc.UnreachableError if refusal == "unreachable" else hc.DeviceError)("there is none")
        raise hc.RefusedElsewhereError("rank 0 refused")

    monkeypatch.setattr(_exchange, "PatternLinks", links)

    def rank(comm):
        case = Case(comm)
        ids = np.arange(4 * comm.rank - 1, 4 * comm.rank + 5) % (4 * comm.size)
        domain = unstructured.DomainDescriptor(comm.rank, ids, [0, 5])
        pattern = unstructured.make_pattern(make_context(comm), unstructured.HaloGenerator(), [domain])
        if refusal == "several GPUs":
            pattern._make_links({0, 1} if comm.rank else {0})
        elif refusal == "other":
            with pytest.raises(hc.RefusedElsewhereError if comm.rank else hc.DeviceError):
                pattern._make_links({0})
        else:
            pattern._make_links({0})
        assert pattern._device_links is None and (pattern._bound is None) == (refusal == "other")
        if refusal != "other":
            array = case.array(30)
            given = pattern(unstructured.make_field_descriptor(domain, array))
            pattern._begin_given(given._fields, ()).wait()
            case.check(array, 30)

    hc.run_threads(2, rank)
    assert sorted(made) == ([] if refusal == "several GPUs" else [0, 1])


def test_threads_of_a_rank_share_what_is_in_flight():
    """What one waited for another took, and what a third had begun was lost."""
    before = sys.getswitchinterval()

    def rank(comm):
        cases, failed = [Case(comm) for _ in range(4)], []
        for case in cases:
            case.bound._begun = case.begun = cases[0].begun

        def work(case):
            try:
                arrays = [case.array(10 * at) for at in range(3)]
                for _ in range(60):
                    # Again while they are in flight: then the oldest of any thread is waited for.
                    for pending in [case.exchange(array) for array in arrays + arrays]:
                        pending.wait()
                for at, array in enumerate(arrays):
                    case.check(array, 10 * at)
            except BaseException as error:
                failed.append(error)
                comm.close()

        threads = [threading.Thread(target=work, args=(case,)) for case in cases]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed, failed

    sys.setswitchinterval(1e-6)
    try:
        hc.run_threads(2, rank)
    finally:
        sys.setswitchinterval(before)


class Failed:
    """What began earlier, and has failed since."""

    def _is_over(self):
        raise hc.ClosedError("closed")


def test_an_exchange_is_begun_whatever_became_of_earlier_ones():
    def rank(comm):
        case = Case(comm)
        case.begun.pendings.append(Failed())
        array = case.array(1)
        case.exchange(array).wait()
        case.check(array, 1)

    hc.run_threads(2, rank)


class Meanwhile:
    """What began earlier; while it is looked at another thread begins an exchange."""

    def __init__(self, begin):
        self.begun, self.thread = [], threading.Thread(target=lambda: self.begun.append(begin()))

    def _is_over(self):
        if self.thread.ident is None:
            self.thread.start()
            # So long that it has begun, where nothing keeps it from that.
            self.thread.join(0.5)
        return False


def test_what_another_thread_begins_meanwhile_is_not_lost():
    def rank(comm):
        case, other = Case(comm), Case(comm)
        other.bound._begun = other.begun = case.begun
        array = other.array(2)
        meanwhile = Meanwhile(lambda: other.exchange(array))
        case.begun.pendings.append(meanwhile)
        case.exchange(case.array(1)).wait()
        meanwhile.thread.join()
        assert meanwhile.begun[0] in case.begun.pendings

    hc.run_threads(1, rank)
