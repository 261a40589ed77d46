"""What GHEX 0.9 gets wrong, or dies of: here it is right, or an error that says what is wrong."""

import gc
import threading

import numpy as np
import pytest

import halocline as hc
from halocline.compat import ghex
from halocline.compat.ghex import unstructured
from halocline.compat.ghex.context import make_context
from halocline.compat.ghex.structured import regular
from halocline.compat.ghex.structured.cartesian_sets import ProductSet, UnitRange
from halocline.compat.ghex.util import Architecture

RANKS = 2
CELLS = 5


class Line:
    """A periodic line of cells, so many a rank, with one halo cell at either side."""

    def __init__(self, comm, trailing=()):
        self.context = make_context(comm)
        self.rank, self.size = comm.rank, comm.size
        extents = (CELLS, *trailing)
        whole = ProductSet(UnitRange(0, CELLS * self.size), *(UnitRange(0, extent) for extent in trailing))
        own = ProductSet(UnitRange(CELLS * self.rank, CELLS * (self.rank + 1)), *whole.args[1:])
        self.domain = regular.DomainDescriptor(self.rank, own)
        ndim = len(extents)
        halos = regular.HaloGenerator(whole, (1,) + (0,) * (ndim - 1), (True,) + (False,) * (ndim - 1))
        self.pattern = regular.make_pattern(self.context, halos, [self.domain])
        self.offsets, self.extents = (1,) + (0,) * (ndim - 1), (CELLS + 2, *trailing)
        self.communication = regular.make_communication_object(self.context)
        numbers = np.arange(-1, CELLS + 1) + CELLS * self.rank
        self.whole = (numbers % (CELLS * self.size)).reshape((-1,) + (1,) * (ndim - 1)) + 100.0 * np.arange(
            np.prod(trailing, dtype=int)
        ).reshape(trailing)

    def fill(self, array, by=0):
        array[...] = self.whole + by
        array[0] = array[-1] = -1
        return array

    def new(self, by=0):
        return self.fill(np.zeros(self.extents), by)

    def buffer(self, array):
        return self.pattern(regular.make_field_descriptor(self.domain, array, self.offsets, self.extents))

    def check(self, array, by=0):
        np.testing.assert_array_equal(array, (self.whole + by).astype(array.dtype))


def views(extents):
    """Views of larger arrays, of every kind."""
    doubled = np.zeros([2 * extent for extent in extents])
    every = tuple(slice(None, None, 2) for _ in extents)
    back = tuple(slice(None, None, -1) for _ in extents)
    yield "every second element", doubled[every]
    yield "backwards", np.zeros(extents)[back]
    yield "every second element, backwards", doubled[every][back]
    yield (
        "a part of a larger array",
        np.zeros([extent + 3 for extent in extents])[tuple(slice(2, 2 + e) for e in extents)],
    )
    yield "transposed", np.zeros(extents[::-1]).T
    yield "an element of a record", np.zeros(extents, dtype=[("a", "f4"), ("b", "f8")])["b"]


@pytest.mark.parametrize("trailing", [(), (3,), (2, 3)])
def test_arrays_of_any_strides_get_right_halos(trailing):
    def rank(comm):
        line = Line(comm, trailing)
        for name, array in views(line.extents):
            line.fill(array)
            line.communication.exchange([line.buffer(array)]).wait()
            assert (array == line.whole).all(), name

    hc.run_threads(RANKS, rank)


def test_unstructured_arrays_of_any_strides_get_right_halos():
    def rank(comm):
        context = make_context(comm)
        ids = [2 * comm.rank, 2 * comm.rank + 1, (2 * comm.rank + 2) % (2 * comm.size)]
        domain = unstructured.DomainDescriptor(comm.rank, ids, [2])
        pattern = unstructured.make_pattern(context, unstructured.HaloGenerator(), [domain])
        communication = unstructured.make_communication_object(context)
        for extents in [(3,), (3, 4), (3, 2, 2)]:
            expected = np.array(ids, float).reshape((-1,) + (1,) * (len(extents) - 1)) + np.zeros(extents)
            for name, array in views(extents):
                array[...] = expected
                array[2] = -1
                buffer = pattern(unstructured.make_field_descriptor(domain, array))
                communication.exchange(buffer).wait()
                assert (array == expected).all(), (name, extents)

    hc.run_threads(RANKS, rank)


def test_what_is_dropped_before_the_wait_is_kept_alive():
    def rank(comm):
        line = Line(comm)
        arrays = [line.new() for _ in range(3)]

        def begin():
            context = make_context(comm)
            other = Line(comm)
            other.context = context
            return other.communication.exchange([other.buffer(array[:]) for array in arrays])

        handle = begin()
        gc.collect()
        handle.wait()
        for array in arrays:
            line.check(array)

    hc.run_threads(RANKS, rank)


def test_an_exchange_waits_for_one_of_the_same_array_that_nobody_holds_any_more():
    waits = threading.Event()

    def signalling(begin_later):
        def begin(*of):
            waits.set()
            return begin_later(*of)

        return begin

    def rank(comm):
        # Each has a context of its own.
        first, second = Line(comm), Line(comm)
        array = first.new()
        if comm.rank == 1:
            assert waits.wait(20)
        second.pattern._begin_later = signalling(second.pattern._begin_later)
        first.communication.exchange([first.buffer(array)])
        if comm.rank == 0:
            first = None
            gc.collect()
        second.communication.exchange([second.buffer(array)]).wait()
        second.check(array)

    hc.run_threads(RANKS, rank)


def test_an_array_that_only_the_exchange_knows_is_no_danger():
    def rank(comm):
        line = Line(comm)
        for _ in range(50):
            line.communication.exchange(line.buffer(line.new()))
            gc.collect()
        array = line.new()
        line.communication.exchange(line.buffer(array)).wait()
        line.check(array)

    hc.run_threads(RANKS, rank)


def test_what_one_rank_refuses_is_an_error_on_all():
    def rank(comm):
        context = make_context(comm)
        domain = unstructured.DomainDescriptor(comm.rank, [comm.rank], [])
        domains = [domain, domain] if comm.rank == 1 else [domain]
        with pytest.raises(hc.HaloValueError if comm.rank == 1 else hc.RefusedElsewhereError, match="twice"):
            unstructured.make_pattern(context, unstructured.HaloGenerator(), domains)

    hc.run_threads(RANKS, rank)


def test_an_array_smaller_than_its_extents_is_refused_and_nothing_is_out_of_step_then():
    def rank(comm):
        line = Line(comm)
        small = np.zeros(CELLS)
        with pytest.raises(hc.HaloValueError, match=r"\(5,\) is smaller than the extents \(7,\)"):
            regular.make_field_descriptor(line.domain, small, (1,), (CELLS + 2,))
        with pytest.raises(hc.HaloValueError, match="owns .* cells, which are not within an array of .* from"):
            regular.make_field_descriptor(line.domain, small, (1,), (CELLS,))
        with pytest.raises(hc.HaloValueError, match="give one for each dimension"):
            regular.make_field_descriptor(line.domain, np.zeros((7, 2)), (1, 0), (7, 2))
        with pytest.raises(hc.HaloValueError, match="first dimension is 7"):
            unstructured.make_field_descriptor(unstructured.DomainDescriptor(0, range(7), []), np.zeros(6))
        # It holds the owned cells, but not the halo: that is seen when it is exchanged, on the rank that does it.
        without = regular.make_field_descriptor(line.domain, small, (0,), (CELLS,))
        for begun in range(3):
            if comm.rank == begun % 2:
                with pytest.raises(hc.HaloError):
                    line.communication.exchange(line.pattern(without))
            array = line.new(begun)
            line.communication.exchange(line.buffer(array)).wait()
            line.check(array, begun)

    hc.run_threads(RANKS, rank)


def test_a_larger_array_is_taken_up_to_its_extents():
    def rank(comm):
        line = Line(comm)
        array = np.full(CELLS + 6, -3.0)
        line.fill(array[: CELLS + 2])
        line.communication.exchange(line.buffer(array)).wait()
        line.check(array[: CELLS + 2])
        assert (array[CELLS + 2 :] == -3).all()

    hc.run_threads(RANKS, rank)


def test_mixed_dtypes_and_layouts_are_right():
    def rank(comm):
        line = Line(comm, (3,))
        dtypes = ["f8", "f4", "i8", "i2", "c16", "u1"]
        arrays = [line.fill(np.zeros(line.extents, dtype, order="CF"[at % 2])) for at, dtype in enumerate(dtypes[:-1])]
        line.communication.exchange([line.buffer(array) for array in arrays]).wait()
        for array in arrays:
            line.check(array)

    hc.run_threads(RANKS, rank)


@pytest.mark.parametrize("dtype", ["O", ">f8"])
def test_elements_that_cannot_be_sent_are_refused(dtype):
    domain = unstructured.DomainDescriptor(0, [0, 1], [])
    with pytest.raises(hc.HaloTypeError):
        unstructured.make_field_descriptor(domain, np.zeros(2, dtype))


def test_handles_are_of_one_exchange_each():
    begun_one, may_begin_two = threading.Event(), threading.Event()

    def rank(comm):
        line = Line(comm)
        one, two = line.new(0), line.new(1000)
        if comm.rank == 1:
            begun_one.wait()
            line.communication.exchange(line.buffer(one)).wait()
            may_begin_two.wait()
            line.communication.exchange(line.buffer(two)).wait()
        else:
            first = line.communication.exchange(line.buffer(one))
            second = line.communication.exchange(line.buffer(two))
            assert not first.is_ready() and not second.is_ready()
            begun_one.set()
            first.wait()
            line.check(one)
            assert first.is_ready() and not second.is_ready()
            may_begin_two.set()
            second.wait()
            first.wait()
            second.progress()
        line.check(one)
        line.check(two, 1000)

    hc.run_threads(RANKS, rank)


def test_many_may_be_begun_before_any_is_waited_for():
    def rank(comm):
        line = Line(comm)
        others = [regular.make_communication_object(line.context) for _ in range(2)]
        arrays = [line.new(100 * at) for at in range(9)]
        handles = [others[at % 2].exchange(line.buffer(array)) for at, array in enumerate(arrays)]
        # The same arrays again, while they may be in flight.
        handles += [line.communication.exchange(line.buffer(array)) for array in arrays]
        for handle in reversed(handles):
            handle.wait()
        for at, array in enumerate(arrays):
            line.check(array, 100 * at)

    hc.run_threads(RANKS, rank)


def test_fields_of_several_patterns_go_in_one_call():
    def rank(comm):
        line, plane = Line(comm), Line(comm, (3,))
        one, two, three = line.new(), plane.new(), line.new(5)
        buffers = [line.buffer(one), plane.buffer(two), line.buffer(three)]
        handle = line.communication.exchange(*buffers)
        handle.wait()
        assert handle.is_ready()
        line.check(one)
        plane.check(two)
        line.check(three, 5)

    hc.run_threads(RANKS, rank)


def test_several_threads_of_a_rank_exchange_with_patterns_of_their_own():
    def rank(comm):
        lines = [Line(comm) for _ in range(3)]
        failed = []

        def work(line):
            try:
                for round_ in range(100):
                    array = line.new(round_)
                    line.communication.exchange(line.buffer(array)).wait()
                    line.check(array, round_)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(line,)) for line in lines]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed, failed

    hc.run_threads(RANKS, rank)


def test_scheduled_exchanges_are_there_for_each_kind_of_stream():
    class OfCuda:
        def __cuda_stream__(self):
            return (0, 0)

    class OfCupy:
        ptr = 0

    def rank(comm):
        line = Line(comm)
        for at, stream in enumerate([None, OfCuda(), OfCupy()]):
            array, other = line.new(at), line.new(at + 1)
            handle = line.communication.schedule_exchange(stream, [line.buffer(array), line.buffer(other)])
            handle.schedule_wait(stream)
            line.check(array, at)
            line.check(other, at + 1)
            assert handle.is_ready() and not line.communication.has_scheduled_exchange()
            line.communication.schedule_exchange(stream, line.buffer(line.new()), line.buffer(line.new())).wait()
        with pytest.raises(TypeError, match="__cuda_stream__"):
            line.communication.schedule_exchange("stream", line.buffer(array))
        with pytest.raises(hc.HaloTypeError, match="b3.*b2.*patterns"):
            line.communication.schedule_exchange(None, b0=line.buffer(array), b3=line.buffer(array))
        # Nothing was begun by that.
        line.communication.exchange(line.buffer(line.fill(array))).wait()
        line.check(array)

    hc.run_threads(RANKS, rank)


class OnGpu:
    __cuda_array_interface__ = {"shape": (2,), "typestr": "<f8", "data": (4096, False), "version": 3}


def test_fields_lie_where_they_are_said_to():
    domain = unstructured.DomainDescriptor(0, [0, 1], [])
    with pytest.raises(hc.HaloTypeError, match="GPU"):
        unstructured.make_field_descriptor(domain, np.zeros(2), arch=Architecture.GPU)
    with pytest.raises(hc.HaloTypeError, match="Architecture"):
        unstructured.make_field_descriptor(domain, np.zeros(2), arch="cpu")
    # Nothing lies at that address, GPU or not.
    with pytest.raises(hc.HaloError):
        unstructured.make_field_descriptor(domain, OnGpu())


def test_other_bad_arguments_are_refused():
    domain = unstructured.DomainDescriptor(0, [0, 1], [])
    box = regular.DomainDescriptor(0, ProductSet(UnitRange(0, 2)))
    read_only = np.zeros(2)
    read_only.flags.writeable = False
    with pytest.raises(hc.HaloValueError, match="read-only"):
        unstructured.make_field_descriptor(domain, read_only)
    for wrong in [[1, 2], None, 3]:
        with pytest.raises(hc.HaloTypeError):
            unstructured.make_field_descriptor(domain, wrong)
    with pytest.raises(hc.HaloTypeError, match="no domain of an unstructured grid"):
        unstructured.make_field_descriptor(box, np.zeros(2))
    for arguments, text in [
        (([0, 1], [2]), "domain 0: halo index 2, but it has 2 cells, from 0"),
        (([0, 1], [1, 1]), "given twice"),
        (([0, 0], []), "owns id 0 twice"),
        (([0, -1], []), "range from -1"),
        (([0.5], []), "the ids of domain 0 are a list of whole numbers, .*float64"),
    ]:
        with pytest.raises(hc.HaloError, match=text):
            unstructured.DomainDescriptor(0, *arguments)
    for box, text in [(ProductSet(UnitRange(0, 0)), "no cells"), (UnitRange(0, 2), "ProductSet")]:
        with pytest.raises(hc.HaloError, match=text):
            regular.DomainDescriptor(0, box)
    whole = ProductSet(UnitRange(0, 4), UnitRange(0, 4))
    for halos, periodic in [
        ((1,), (True, True)),
        ((1, 1), (True,)),
        ((1, -1), (True, True)),
        ((1, (1, 2, 3)), (True, True)),
    ]:
        count = f"{len(halos)} widths and {len(periodic)} periodicities for a grid of 2 dimensions; give one of each"
        with pytest.raises(hc.HaloValueError, match=f"{count}|a width is a number from 0, or a pair"):
            regular.HaloGenerator(whole, halos, periodic)
    with pytest.raises(NotImplementedError, match="there is no C\\+\\+ object of GHEX behind it that C\\+\\+ could use"):
        ghex.expose_cpp_ptr(domain)
    with pytest.raises(hc.HaloTypeError):
        make_context(3.5)


def test_what_is_not_a_buffer_of_the_pattern_is_refused():
    def rank(comm):
        line = Line(comm)
        for wrong in [3, [3], [line.new()], [line.buffer(line.new()), None]]:
            with pytest.raises(hc.HaloTypeError, match="pattern"):
                line.communication.exchange(wrong)
        with pytest.raises(hc.HaloTypeError, match="make_field_descriptor"):
            line.pattern(line.new())
        plane = Line(comm, (2,))
        with pytest.raises(hc.HaloTypeError, match="the same kind of grid"):
            line.pattern(regular.make_field_descriptor(plane.domain, plane.new(), plane.offsets, plane.extents))
        stranger = regular.DomainDescriptor(77, ProductSet(UnitRange(0, 5)))
        with pytest.raises(hc.HaloValueError, match=r"the pattern has no domain 77 on this rank; it has \["):
            line.pattern(regular.make_field_descriptor(stranger, line.new(), line.offsets, line.extents))
        assert line.communication.exchange([]).is_ready()

    hc.run_threads(RANKS, rank)


@pytest.mark.parametrize("link", ["auto", "message"])
def test_small_fields_of_a_peer_that_is_late_keep_no_other_thread_waiting(link, monkeypatch):
    """In checked mode and by messages beginning an exchange sends: the threads of both ranks need one GIL."""
    monkeypatch.setenv("HALOCLINE_CHECK", "1" if link == "auto" else "0")

    def rank(comm):
        from halocline._core import _LinkSlot as LinkSlot

        pattern = hc.RegularGrid((8,), periodic=(True,)).decompose(comm).pattern(1)
        (domain,) = pattern.domains
        slots = [LinkSlot(hc.PatternLinks(comm, [pattern], link=link)) for _ in range(2)]
        failed = []

        def work(slot, by):
            try:
                array = np.zeros(pattern.shape)
                fields = [(pattern, hc.Field(array))]
                for step in range(200):
                    array[:] = -1
                    array[domain.owned] = step + by
                    slot.begin(fields).wait()
                    assert (array == step + by).all(), (step, array)
            except BaseException as error:
                failed.append(error)
                comm.close()

        threads = [threading.Thread(target=work, args=(slot, 1000 * at)) for at, slot in enumerate(slots)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed, failed

    hc.run_threads(2, rank)
