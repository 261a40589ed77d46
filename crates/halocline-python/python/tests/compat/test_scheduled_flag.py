"""``has_scheduled_exchange``: as GHEX 0.9 built for GPUs has it (``communication_object.hpp``, ``schedule_sync_unpack`` and
``complete_schedule_exchange``), false until ``schedule_wait``, then true until ``wait``, ``is_ready`` or the next exchange."""

import numpy as np
import pytest

import halocline as hc
from halocline.compat.ghex import unstructured
from halocline.compat.ghex.context import make_context


@pytest.fixture
def line():
    return Line(hc.run_threads(1, lambda comm: comm)[0])


class Line:
    """Cells of one rank, two patterns of them, and what makes buffers."""

    def __init__(self, comm):
        context = make_context(comm)
        self.domains = [unstructured.DomainDescriptor(number, [0, 1, 0], [2]) for number in range(2)]
        self.patterns = [unstructured.make_pattern(context, unstructured.HaloGenerator(), [domain]) for domain in self.domains]
        self.communication = unstructured.make_communication_object(context)
        self.other = unstructured.make_communication_object(context)

    def buffer(self, pattern=0):
        return self.patterns[pattern](unstructured.make_field_descriptor(self.domains[pattern], np.arange(3.0)))


FORMS = {
    "one": lambda line: line.buffer(),
    "a list": lambda line: [line.buffer(), line.buffer()],
    "several patterns": lambda line: [line.buffer(0), line.buffer(1)],
}


@pytest.fixture(params=FORMS)
def buffers(request):
    return FORMS[request.param]


@pytest.fixture(params=["scheduled", "plain"])
def begin(request, line, buffers):
    communication = line.communication
    if request.param == "plain":
        return lambda: communication.exchange(buffers(line))
    return lambda: communication.schedule_exchange(None, buffers(line))


def test_it_is_false_until_schedule_wait_and_true_until_wait(line, begin):
    has = line.communication.has_scheduled_exchange
    assert has() is False
    handle = begin()
    assert has() is False
    handle.progress()
    handle.schedule_wait(None)
    assert has() is True and has() is True and not line.other.has_scheduled_exchange()
    handle.wait()
    assert has() is False
    # It is over: as in GHEX this does nothing.
    handle.schedule_wait(None)
    assert has() is False


def test_is_ready_ends_it(line, begin):
    handle = begin()
    handle.schedule_wait(None)
    while not handle.is_ready():
        pass
    assert line.communication.has_scheduled_exchange() is False


@pytest.mark.parametrize("next_is_scheduled", [True, False])
def test_the_next_exchange_ends_it(line, begin, next_is_scheduled):
    earlier = begin()
    earlier.schedule_wait(None)
    line.other.exchange(line.buffer()).wait()
    has = line.communication.has_scheduled_exchange
    assert has() is True
    buffer = line.buffer()
    later = line.communication.schedule_exchange(None, buffer) if next_is_scheduled else line.communication.exchange(buffer)
    assert has() is False
    later.schedule_wait(None)
    # That of an earlier exchange is not this one's.
    earlier.wait()
    assert has() is True
    later.wait()
    assert has() is False


def test_a_wait_without_schedule_wait_leaves_it_false(line, begin):
    begin().wait()
    assert line.communication.has_scheduled_exchange() is False
