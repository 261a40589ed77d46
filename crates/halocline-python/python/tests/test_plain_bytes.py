"""Elements that are plain bytes: ranks that give them different meanings get an error."""

import numpy as np
import pytest

import halocline as hc


#: Elements of one size that mean different things, and what an error calls them.
UNLIKE = [
    ("M8[s]", "M8[ms]", "datetime64[s]", "datetime64[ms]"),
    ("M8[s]", "m8[s]", "datetime64[s]", "timedelta64[s]"),
    ("M8[s]", "f8", "datetime64[s]", "float64"),
    ([("a", "i4"), ("b", "f4")], [("a", "f4"), ("b", "i4")], "[('a', 'i4'), ('b', 'f4')]", "[('a', 'f4'), ('b', 'i4')]"),
    ([("a", "i4"), ("b", "f4")], [("a", "i4"), ("c", "f4")], "('b', 'f4')", "('c', 'f4')"),
    ("S8", "U2", "S8", "U2"),
    ("S8", [("a", "f8")], "S8", "[('a', 'f8')]"),
]


@pytest.mark.parametrize("ours, theirs, one, other", UNLIKE)
def test_plain_bytes_that_mean_something_else_are_refused(ours, theirs, one, other):
    def run(comm):
        pattern = hc.RegularGrid((8,), periodic=(True,)).decompose(comm).pattern(1)
        array = np.zeros(pattern.shape, [ours, theirs][comm.rank])
        with pytest.raises(hc.HaloValueError) as caught:
            hc.HaloExchange(comm, [(pattern, array)])
        assert one in str(caught.value) and other in str(caught.value)
        # The communicator goes on.
        alike = np.zeros(pattern.shape, ours)
        hc.HaloExchange(comm, [(pattern, alike)]).exchange()

    hc.run_threads(2, run)


@pytest.mark.parametrize("ours, theirs, one, other", UNLIKE)
def test_plain_bytes_that_mean_something_else_fail_an_unbound_exchange(ours, theirs, one, other):
    def run(comm):
        pattern = hc.RegularGrid((8,), periodic=(True,)).decompose(comm).pattern(1)
        links = hc.PatternLinks(comm, [pattern])
        links.exchange([(pattern, np.zeros(pattern.shape, ours))])
        with pytest.raises(hc.ExchangeFailedError, match="another element type") as caught:
            links.exchange([(pattern, np.zeros(pattern.shape, [ours, theirs][comm.rank]))])
        comm.barrier()
        return str(caught.value)

    texts = hc.run_threads(2, run)
    # The rank whose error is reported first knows no more than that.
    assert any(one in text and other in text for text in texts), texts


def test_plain_bytes_by_another_protocol_are_the_same():
    record = np.dtype([("a", "i1"), ("b", "f4")], align=True)
    packed = np.dtype([("a", "i4"), ("b", "f4")])
    parts = np.dtype([("a", "u1", (2, 2)), ("b", [("c", "i2"), ("d", "u2", 3)])])
    # As they lie, not as they are listed.
    turned = np.dtype({"names": ["b", "a"], "formats": ["f4", "i4"], "offsets": [4, 0]})
    titled = np.dtype([(("the first", "a"), "i4"), ("b", "f4")])

    class FromArray:
        def __init__(self, array):
            self.array = array
            self.__array_interface__ = array.__array_interface__

    cases = [
        (record, memoryview),
        (record, FromArray),
        (record, lambda array: array.view(np.recarray)),
        (packed, memoryview),
        (packed, FromArray),
        (packed, lambda array: array.view(turned)),
        (packed, lambda array: array.view(titled)),
        (packed, lambda array: FromArray(array.view(titled))),
        (packed, lambda array: array.view((np.record, turned))),
        (parts, FromArray),
        (parts, memoryview),
        ("M8[ms]", FromArray),
        ("g", memoryview),
        ("g", FromArray),
        ("S7", memoryview),
        ("U3", memoryview),
    ]

    def run(comm):
        pattern = hc.RegularGrid((8,), periodic=(True,)).decompose(comm).pattern(1)
        for dtype, other in cases:
            array = np.zeros(pattern.shape, dtype)
            given = array if comm.rank == 0 else other(array)
            hc.HaloExchange(comm, [(pattern, given)]).exchange()
        # Bytes that mean nothing else go with all of their size.
        array = np.zeros(pattern.shape, ["V8", "M8[ms]"][comm.rank])
        hc.HaloExchange(comm, [(pattern, array)]).exchange()

    hc.run_threads(2, run)
