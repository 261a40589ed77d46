"""Tensors of GPUs that autograd keeps: their version counters tell it what an exchange writes."""

import pytest
from test_compat_on_gpus import ring
from test_scheduled import Case

from halocline.compat.ghex import unstructured
from halocline.compat.ghex.context import make_context


def scheduled(halo, stream):
    pending = halo.schedule_exchange(stream)
    return lambda: pending.schedule_wait(stream)


def scheduled_of_the_object(halo, stream):
    halo.schedule_exchange(stream)
    return lambda: halo.schedule_wait(stream)


def on_the_host(halo, stream):
    return halo.exchange(wait=False, streams=[stream]).wait


def polled(halo, stream):
    pending = halo.schedule_exchange(stream)

    def end():
        while not pending.is_ready():
            pass

    return end


WAYS = {way.__name__: way for way in (scheduled, scheduled_of_the_object, on_the_host, polled)}


@pytest.fixture
def torch_engine(main_engine):
    if main_engine.name != "torch":
        pytest.skip("of PyTorch alone")
    return main_engine


def check(mine, tensor, begin):
    """Of what is kept before, during and after an exchange, autograd refuses the first two."""
    torch = mine.torch

    def product():
        weight = torch.ones_like(tensor, requires_grad=True)
        return weight, (weight * tensor).sum()

    _, before = product()
    end = begin()
    _, during = product()
    end()
    weight, after = product()
    after.backward()
    assert torch.equal(weight.grad, tensor)
    for loss in (before, during):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


@pytest.mark.parametrize("way", WAYS)
def test_an_exchanged_tensor_that_autograd_has_kept_has_no_gradient(together, torch_engine, way):
    def rank(comm):
        mine = torch_engine(comm.rank)
        with mine.here():
            case = Case(comm, mine)
            halo = case.bind()
            stream, given = list(mine.streams().values())[-1]
            with mine.on(stream):
                for _ in range(3):
                    case.spin()
                    check(mine, case.field, lambda: WAYS[way](halo, given))
            mine.synchronise()

    together(rank)


@pytest.mark.parametrize("is_scheduled", [True, False])
def test_through_the_interface_of_ghex(together, torch_engine, is_scheduled):
    def rank(comm):
        mine = torch_engine(comm.rank)
        with mine.here():
            ids, owned = ring(comm.rank, comm.size)
            domain = unstructured.DomainDescriptor(comm.rank, ids, list(range(owned, len(ids))))
            context = make_context(comm)
            pattern = unstructured.make_pattern(context, unstructured.HaloGenerator(), [domain])
            object_ = unstructured.make_communication_object(context)
            tensor = mine.array([float(number) for number in ids])
            info = pattern(unstructured.make_field_descriptor(domain, tensor))
            stream, given = list(mine.streams().values())[-1]

            def begin():
                if not is_scheduled:
                    mine.synchronise()
                    return object_.exchange(info).wait
                handle = object_.schedule_exchange(given, info)
                return lambda: handle.schedule_wait(given)

            with mine.on(stream):
                for _ in range(3):
                    check(mine, tensor, begin)
            mine.synchronise()

    together(rank)
