"""Tensors of PyTorch that autograd has saved: an exchange increments their version counters, so that a gradient is an error and never
silently wrong."""

import asyncio
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest

import halocline as hc

torch = pytest.importorskip("torch", reason="torch is not installed")

CHANGED = "modified by an inplace operation"


@pytest.fixture
def alone():
    comm = hc.run_threads(1, lambda comm: comm)[0]
    return comm, hc.RegularGrid((6,), periodic=(True,)).decompose(comm).pattern(1)


def tensor_of(values=range(8)):
    return torch.tensor(list(values), dtype=torch.float64)


def product(tensor):
    """A weight, and what is computed of it with a tensor, which autograd keeps."""
    weight = torch.ones(len(tensor), dtype=torch.float64, requires_grad=True)
    return weight, (weight * tensor).sum()


def awaited(pending):
    async def task():
        await pending

    asyncio.run(task())


def polled(pending):
    while not pending.is_ready():
        pending.progress()


def bound(comm, pattern, tensor):
    return hc.HaloExchange(comm, [(pattern, tensor)])


def of_ghex(comm):
    from halocline.compat import ghex
    from halocline.compat.ghex.structured import cartesian_sets, regular

    context = ghex.context.make_context(comm)
    cells = cartesian_sets.UnitRange(0, 6) * cartesian_sets.UnitRange(0, 1)
    domain = regular.DomainDescriptor(0, cells)
    halos = regular.HaloGenerator(cells, [1, 0], (True, False))
    pattern = regular.make_pattern(context, halos, [domain])

    def info(tensor):
        return pattern(regular.make_field_descriptor(domain, tensor.view(8, 1), [1, 0], [8, 1]))

    return regular.make_communication_object(context), info


def by_object(begin, end):
    """A way of a bound object."""

    def way(comm, pattern, tensor):
        halo = bound(comm, pattern, tensor)
        pending = begin(halo)
        return lambda: end(halo, pending)

    return way


def by_links(begin, end):
    """A way of the unbound form."""

    def way(comm, pattern, tensor):
        links = hc.PatternLinks(comm, [pattern])
        pending = begin(links, [(pattern, tensor)])
        return lambda: end(links, pending)

    return way


def by_ghex(begin, end):
    """A way of the interface of GHEX."""

    def way(comm, pattern, tensor):
        communication, info = of_ghex(comm)
        handle = begin(communication, info(tensor))
        return lambda: end(handle)

    return way


def narrowed(comm, pattern, tensor):
    return bound(comm, pattern, tensor).narrowed(1).exchange(wait=False).wait


def alternative(comm, pattern, tensor):
    sets = [[(pattern, tensor_of())], [(pattern, tensor)]]
    halo = hc.HaloExchange.alternatives(comm, sets)
    halo.alternative(1).exchange(wait=False)
    return halo.wait


def one_set(comm, pattern, tensor):
    halo = hc.HaloExchange.alternatives(comm, [[(pattern, np.zeros(8))], [(pattern, tensor)]])
    return halo.exchange(set=1, wait=False).wait


def as_field(comm, pattern, tensor):
    return bound(comm, pattern, hc.Field(tensor)).exchange(wait=False).wait


def detached(comm, pattern, tensor):
    """Shares its counter with what it comes from, and is held by the exchange alone."""
    bound(comm, pattern, tensor.detach())
    return bound(comm, pattern, tensor.detach()).exchange(wait=False).wait


WAYS = {
    "wait": by_object(lambda halo: halo.exchange(wait=False), lambda halo, pending: pending.wait()),
    "wait of the object": by_object(lambda halo: halo.exchange(wait=False), lambda halo, pending: halo.wait()),
    "the last one": by_object(lambda halo: halo.exchange(wait=False), lambda halo, pending: halo.pending.wait()),
    "polled": by_object(lambda halo: halo.exchange(wait=False), lambda halo, pending: polled(pending)),
    "scheduled": by_object(lambda halo: halo.schedule_exchange(), lambda halo, pending: pending.schedule_wait()),
    "scheduled, of the object": by_object(lambda halo: halo.schedule_exchange(), lambda halo, pending: halo.schedule_wait()),
    "a task": by_object(lambda halo: halo.exchange_async(), lambda halo, pending: awaited(pending)),
    "narrowed": narrowed,
    "alternative": alternative,
    "one set": one_set,
    "a field": as_field,
    "detached": detached,
    "unbound": by_links(lambda links, fields: links.exchange(fields, wait=False), lambda links, pending: pending.wait()),
    "unbound, of the links": by_links(lambda links, fields: links.exchange(fields, wait=False), lambda links, pending: links.wait()),
    "unbound, scheduled": by_links(lambda links, fields: links.schedule_exchange(fields), lambda links, pending: pending.schedule_wait()),
    "unbound, a task": by_links(lambda links, fields: links.exchange_async(fields), lambda links, pending: awaited(pending)),
    "GHEX": by_ghex(lambda communication, info: communication.exchange(info), lambda handle: handle.wait()),
    "GHEX, scheduled": by_ghex(
        lambda communication, info: communication.schedule_exchange(None, info), lambda handle: handle.schedule_wait(None)
    ),
}


@pytest.fixture(params=WAYS)
def way(request):
    return WAYS[request.param]


@contextmanager
def is_refused(loss):
    """Autograd finds that what it kept for this has changed."""
    yield
    with pytest.raises(RuntimeError, match=CHANGED):
        loss.backward()


def test_what_was_kept_before_an_exchange_has_no_gradient_after_it(alone, way):
    tensor = tensor_of()
    _, loss = product(tensor)
    with is_refused(loss):
        way(*alone, tensor)()


def test_what_was_kept_before_an_exchange_has_no_gradient_during_it(alone, way):
    tensor = tensor_of()
    _, loss = product(tensor)
    end = way(*alone, tensor)
    with is_refused(loss):
        pass
    end()


def test_what_was_kept_during_an_exchange_has_no_gradient_after_it(alone, way):
    tensor = tensor_of()
    end = way(*alone, tensor)
    _, loss = product(tensor)
    with is_refused(loss):
        end()


def test_what_is_kept_after_an_exchange_has_its_gradient(alone, way):
    tensor = tensor_of()
    end = way(*alone, tensor)
    end()
    weight, loss = product(tensor)
    # It is over, and stays so.
    end()
    loss.backward()
    assert weight.grad.tolist() == tensor.tolist() == [6, 1, 2, 3, 4, 5, 6, 1]


@pytest.mark.parametrize("form", ["bound", "unbound"])
def test_a_blocking_exchange(alone, form):
    comm, pattern = alone
    tensor = tensor_of()
    _, loss = product(tensor)
    with is_refused(loss):
        if form == "bound":
            bound(comm, pattern, tensor).exchange()
        else:
            hc.PatternLinks(comm, [pattern]).exchange([(pattern, tensor)])


def test_a_tensor_that_requires_a_gradient_is_told_by_its_detached_one(alone):
    comm, pattern = alone
    leaf = torch.ones(8, dtype=torch.float64, requires_grad=True)
    tensor = leaf * tensor_of()
    loss = (tensor * tensor).sum()
    with is_refused(loss):
        bound(comm, pattern, tensor.detach()).exchange()


def test_the_tensors_of_other_sets_keep_their_gradients(alone):
    comm, pattern = alone
    tensor = tensor_of()
    halo = hc.HaloExchange.alternatives(comm, [[(pattern, tensor)], [(pattern, tensor_of())], [(pattern, np.zeros(8))]])
    weight, loss = product(tensor)
    for number in (1, 2):
        halo.exchange(set=number)
        halo.wait()
        halo.exchange(set=number, wait=False)
        halo.pending.wait()
    loss.backward()
    assert weight.grad.tolist() == tensor.tolist()


def test_a_redistribution(alone):
    comm, _ = alone
    decomposition = hc.RegularGrid((8,)).decompose(comm)
    ends = hc.Redistribute.regular(comm, (decomposition, 0), (decomposition, 0))
    source, target = tensor_of(), tensor_of([0.0] * 8)
    halo = ends.bind(comm, [source], [target])
    before = source._version
    _, loss = product(target)
    with is_refused(loss):
        halo.exchange()
    assert target.tolist() == tensor_of().tolist()
    assert source._version == before, "the source is only read"


def test_messages_of_bytes():
    def rank(comm):
        pattern = hc.RegularGrid((8,)).decompose(comm).pattern(1)
        tensor, peer = tensor_of(range(6)), 1 - comm.rank
        halo = bound(comm, pattern, tensor)
        message = torch.zeros(halo.message_bytes(peer, "send"), dtype=torch.uint8)
        before = message._version
        halo.pack(peer, message)
        assert message._version > before
        _, loss = product(tensor)
        with is_refused(loss):
            halo.unpack(peer, message)

    hc.run_threads(2, rank)


def test_a_tensor_of_inference_mode_has_no_counter(alone):
    comm, pattern = alone
    with torch.inference_mode():
        tensor = tensor_of()
        bound(comm, pattern, tensor).exchange()
    assert tensor.tolist() == [6, 1, 2, 3, 4, 5, 6, 1]


def test_a_failed_exchange_has_changed_the_tensor():
    def rank(comm):
        pattern = hc.RegularGrid((8,)).decompose(comm).pattern(1)
        tensor = tensor_of(range(6))
        halo = bound(comm, pattern, tensor)
        comm.barrier()
        if comm.rank:
            return
        pending = halo.exchange(wait=False)
        _, loss = product(tensor)
        with is_refused(loss), pytest.raises(hc.ExchangeFailedError):
            pending.wait()

    hc.run_threads(2, rank)


def test_arrays_of_numpy_know_nothing_of_it(alone, monkeypatch):
    def increment_version(tensor):
        raise AssertionError(f"{tensor!r} has no version")

    comm, pattern = alone
    monkeypatch.setattr(torch.autograd.graph, "increment_version", increment_version)
    array = np.arange(8.0)
    bound(comm, pattern, array).exchange()
    bound(comm, pattern, hc.Field(array)).exchange()
    hc.PatternLinks(comm, [pattern]).exchange([(pattern, array)])
    assert array.tolist() == [6, 1, 2, 3, 4, 5, 6, 1]


def test_a_pytorch_without_increment_version_is_refused():
    code = """
import torch, halocline as hc
del torch.autograd.graph.increment_version
try:
    hc.Field(torch.zeros(8))
except hc.HaloTypeError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "PyTorch 2.1 or later" in done.stdout, done
