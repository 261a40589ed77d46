"""Which objects are streams, and where there are none."""

import numpy as np
import pytest

import halocline as hc


def bound(comm):
    pattern = hc.RegularGrid((8, 8), periodic=(True, True)).decompose(comm).pattern(1)
    array = np.zeros(pattern.shape)
    return pattern, array, hc.HaloExchange(comm, [(pattern, array)])


def test_streams_of_known_libraries_are_asked_once_which_attribute_it_is():
    """A method that is called, or an attribute that is not there, costs more than all else of an exchange."""
    asked = []

    class OfCupy:
        __module__ = "cupy.cuda.stream"

        def __init__(self, ptr, says=None):
            self.ptr, self.says = ptr, ptr if says is None else says

        def __cuda_stream__(self):
            asked.append(self.ptr)
            return (0, self.says)

    class OfTorch:
        __module__ = "torch.cuda.streams"
        cuda_stream = 7

        def __getattr__(self, name):
            asked.append(name)
            raise AttributeError(name)

    class Odd(OfCupy):
        pass

    class OfNobody(OfCupy):
        __module__ = "mine"

    *_, halo = bound(hc.init())
    for make, times in [
        (lambda at: OfCupy(at), 1),
        # What looks for the method, and for the attribute of CuPy.
        (lambda at: OfTorch(), 2),
        (lambda at: Odd(at, 5), 10),
        (lambda at: OfNobody(at), 10),
    ]:
        asked.clear()
        for at in range(10, 15):
            stream = make(at)
            halo.schedule_exchange(stream).schedule_wait(stream)
        assert len(asked) == times, asked
    # One that has it no more is asked again.
    gone = OfCupy(3)
    del gone.ptr
    with pytest.raises(AttributeError):
        halo.schedule_exchange(gone)


def test_streams():
    comm = hc.init()
    _, _, halo = bound(comm)

    class Cuda:
        def __cuda_stream__(self):
            return (0, 7)

    class CuPy:
        ptr = 7

    class Torch:
        cuda_stream = 7

    class New:
        def __cuda_stream__(self):
            return (1, 7)

    for stream in (None, Cuda(), CuPy(), Torch(), hc.Stream(7), [Cuda(), None]):
        pending = halo.schedule_exchange(stream=stream)
        assert isinstance(pending, hc.Pending)
        pending.schedule_wait(stream)
        assert pending.is_ready()
        halo.schedule_wait(stream=stream)
        halo.exchange(streams=[stream] if not isinstance(stream, list) else stream)
    for wrong in (7, "7", object(), New()):
        with pytest.raises(hc.HaloTypeError, match="__cuda_stream__"):
            halo.schedule_exchange(stream=wrong)
        with pytest.raises(hc.HaloTypeError, match="__cuda_stream__"):
            halo.schedule_wait(wrong)
        with pytest.raises(hc.HaloTypeError, match="__cuda_stream__"):
            bound(comm)[2].schedule_wait(wrong)  # nothing is in flight
    with pytest.raises(hc.HaloTypeError, match=r"None.*\.ptr \(CuPy\).*\.cuda_stream \(PyTorch\).*halocline\.Stream"):
        halo.schedule_exchange(stream=3)
    assert halo.exchange(wait=False).epoch == halo.pending.epoch


def test_a_trace_of_a_device_that_there_is_not(tmp_path):
    comm = hc.run_threads(1, lambda c: c)[0]
    halo = bound(comm)[2]
    with hc.trace(tmp_path / "trace.json", comm) as trace:
        with pytest.raises(hc.HaloValueError, match="stream: the exchange has no field in GPU memory"):
            trace.on_device(halo, rounds=3)
        with pytest.raises(hc.HaloTypeError, match="no stream"):
            trace.on_device(halo, 3, rounds=3)
    with pytest.raises(hc.HaloValueError, match="over"):
        trace.on_device(halo, rounds=3)
