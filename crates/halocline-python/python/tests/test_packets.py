"""Packets: what may be a payload, and what a receiver gets."""

import array
import ctypes
import gc
import weakref

import numpy as np
import pytest

import halocline as hc

COMM = hc.init()


def through(packet):
    """The packet after a trip to this rank's own left, on a ring of one."""
    return COMM.neighbor_exchange(periodic=True).exchange(right=packet)[0]


def bytes_of(payload):
    return np.asarray(payload).tobytes()


def test_presence_and_emptiness_are_told_apart():
    line = COMM.neighbor_exchange(periodic=True)
    assert line.exchange() == (None, None)
    nothing, empty = line.exchange(left=hc.Packet(b"", b""), right=hc.Packet(b"m"))
    assert nothing.metadata == b"m" and nothing.payload is None
    assert empty.metadata == b"" and len(empty.payload) == 0
    assert np.asarray(empty.payload).shape == (0,)


@pytest.mark.parametrize(
    "payload",
    [
        b"abcdef",
        bytearray(b"abcdef"),
        memoryview(b"abcdef"),
        array.array("h", [1, -2, 3]),
        (ctypes.c_double * 3)(1, 2, 3),
        np.arange(24.0).reshape(2, 3, 4),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.array([], "f4"),
        np.array(3.5),
        np.array(["2001-01-01"], "M8[s]"),
        np.zeros(2, [("a", "i4"), ("b", "f8")]),
        hc.zeros((3, 3), comm=COMM),
    ],
    ids=lambda payload: type(payload).__name__,
)
def test_payloads_of_all_kinds(payload):
    packet = hc.Packet(payload=payload)
    assert packet.payload is payload
    want = payload.tobytes("A") if isinstance(payload, np.ndarray) else bytes(memoryview(payload))
    assert bytes_of(through(packet).payload) == want
    # Alone it means the same.
    assert bytes_of(through(payload).payload) == want


def test_a_read_only_array_can_be_sent():
    values = np.arange(5)
    values.flags.writeable = False
    assert bytes_of(through(values).payload) == values.tobytes()


def test_a_received_payload_is_an_array_and_can_be_sent_on():
    values = np.arange(1000.0)
    came = COMM.neighbor_exchange(periodic=True)
    first = came.exchange(right=hc.Packet(b"once", values))[0]
    view = np.asarray(first.payload).view("f8")
    np.testing.assert_array_equal(view, values)
    assert first.payload.nbytes == len(first.payload) == 8000 and first.payload.device is None
    assert bytes(first.payload) == values.tobytes()
    with pytest.raises(AttributeError, match="numpy.asarray"):
        first.payload.__cuda_array_interface__
    again = came.exchange(left=hc.Packet(b"twice", first.payload))[1]
    assert (again.metadata, bytes_of(again.payload)) == (b"twice", values.tobytes())
    # The whole packet, too, and to both sides.
    left, right = came.exchange(left=again, right=again)
    assert left.metadata == right.metadata == b"twice" and bytes_of(left.payload) == bytes_of(right.payload)
    assert repr(first) == "Packet(4 bytes of metadata, a payload of 8000 bytes)"
    assert repr(first.payload) == "Payload(8000 bytes of host memory)"
    assert repr(hc.Packet(b"m")) == "Packet(1 bytes of metadata)"


def test_a_payload_lives_as_long_as_its_views():
    def run(comm):
        line = comm.neighbor_exchange()
        sent = np.full(200_000, comm.rank, "u1")
        packets = line.exchange(*([None, sent] if comm.rank == 0 else [sent, None]))
        view = np.asarray(packets[1 - comm.rank].payload)
        assert view.flags.writeable
        del packets
        gc.collect()
        np.testing.assert_array_equal(view, np.full(200_000, 1 - comm.rank))
        view[:] = 7

    hc.run_threads(2, run)


def test_the_payload_is_kept_alive_and_given_back():
    def run(comm):
        line = comm.neighbor_exchange()
        values = np.arange(100_000.0)
        gone = weakref.ref(values)
        side = "right" if comm.rank == 0 else "left"
        round = line.start(**{side: values})
        with pytest.raises(ValueError, match="is referenced"):
            values.resize(10)
        del values
        came = round.wait()[1 - comm.rank]
        np.testing.assert_array_equal(np.asarray(came.payload).view("f8"), np.arange(100_000.0))
        del round, came
        line.exchange()
        gc.collect()
        line.exchange()
        assert gone() is None

    hc.run_threads(2, run)


WRONG = {
    "a str": (lambda: hc.Packet(payload="text"), hc.HaloTypeError, r"^payload: an array .* is wanted, not 'text'$"),
    "no bytes": (lambda: hc.Packet(metadata="text"), hc.HaloTypeError, "^metadata: a bytes object is wanted, not 'text'$"),
    "steps": (
        lambda: hc.Packet(payload=np.arange(10)[::2]),
        hc.HaloValueError,
        "^payload: the array is not contiguous; give a contiguous one$",
    ),
    "backwards": (lambda: hc.Packet(payload=np.arange(10)[::-1]), hc.HaloValueError, "not contiguous"),
    "objects": (lambda: hc.Packet(payload=np.array([{}])), hc.HaloTypeError, "^payload: .*object"),
    "other order": (lambda: hc.Packet(payload=np.arange(3).astype(">i4")), hc.HaloTypeError, "byte order"),
    "a stream": (
        lambda: hc.Packet(payload=b"x", stream=None),
        hc.HaloValueError,
        "^stream: the payload is not in GPU memory, so no stream writes it; leave `stream` out$",
    ),
    "a number": (lambda: through(5), hc.HaloTypeError, "^right: an array .* is wanted, not 5$"),
    "sent": (
        lambda: COMM.neighbor_exchange().exchange(left=b"x"),
        hc.HaloValueError,
        "^left: rank 0 of 1 has no neighbour to the left; send nothing there, or make the exchange with periodic=True$",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_arguments_are_named(what):
    call, error, text = WRONG[what]
    # `stream=None` is the null stream, which only a payload on a GPU has.
    if what == "a stream":
        call = lambda: hc.Packet(payload=b"x", stream=hc.Stream(0))  # noqa: E731
    with pytest.raises(error, match=text):
        call()
