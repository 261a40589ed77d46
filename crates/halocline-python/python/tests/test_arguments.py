"""Arguments of impossible values and lengths, and what one rank alone is given wrong."""

import re
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import halocline as hc

NUMBERS = [2**70, -(2**70), -1, 2**63, 2**64 - 1, 2**64]
COMM = hc.init()
GRID = hc.RegularGrid((8, 8))
CUT = GRID.decompose(COMM)
PATTERN = CUT.pattern(1)
MESH = hc.Mesh(3, [[0, 1, 2]])


def array():
    return np.zeros(PATTERN.shape)


def bound(**options):
    return hc.HaloExchange(COMM, [(PATTERN, array())], **options)


def unstructured(*domain):
    return hc.Pattern.unstructured(COMM, [hc.UnstructuredDomain(*domain)])


# What takes a number that these are not.
TAKE_NUMBERS = {
    "RegularGrid": lambda n: hc.RegularGrid((n, 3)).decompose(COMM).pattern(1),
    "domains_per_rank": lambda n: hc.RegularGrid((3, 4), domains_per_rank=n).decompose(COMM),
    "decompose": lambda n: GRID.decompose(n),
    "decompose_into": lambda n: GRID.decompose_into((n, 1), COMM),
    "decompose_at": lambda n: GRID.decompose_at([[n], [0]], COMM),
    "boxes, rank": lambda n: GRID.decompose_boxes([(n, (0, 0), (8, 8))], COMM),
    "boxes, first": lambda n: GRID.decompose_boxes([(0, (n, 0), (8, 8))], COMM),
    "boxes, cells": lambda n: GRID.decompose_boxes([(0, (0, 0), (n, 8))], COMM),
    "halo": lambda n: CUT.pattern(n),
    "halo of an axis": lambda n: CUT.pattern((n, 1)),
    "halo of a side": lambda n: CUT.pattern(((n, 1), (1, 1))),
    "narrowed": lambda n: PATTERN.narrowed(n),
    "HaloExchange.narrowed": lambda n: bound().narrowed(n),
    "halo id": lambda n: unstructured(0, [1], [n]),
    "from_indices": lambda n: hc.Pattern.unstructured(COMM, [hc.UnstructuredDomain.from_indices(0, [0], [n])]),
    "from_owners": lambda n: hc.Pattern.unstructured(COMM, [hc.UnstructuredDomain.from_owners(0, COMM, [0], [n])]),
    "with_levels": lambda n: hc.Pattern.unstructured(COMM, [hc.UnstructuredDomain(0, [0], []).with_levels([n])]),
    "Graph, offsets": lambda n: hc.Graph([0, n], [0]),
    "Graph": lambda n: hc.Graph([0, 1], [n]),
    "Partition": lambda n: hc.Partition([0, n], 1),
    "block": lambda n: hc.Partition.block(n, 1),
    "metis": lambda n: hc.Partition.metis(hc.Graph([0, 1, 2], [1, 0]), n),
    "Mesh": lambda n: hc.Mesh(n, [[0, 1, 2]]),
    "Mesh, connectivity": lambda n: hc.Mesh(3, [[0, 1, n]]),
    "Mesh, offsets": lambda n: hc.Mesh(3, [0, 1, 2], offsets=[0, n]),
    "domains_by_vertex": lambda n: MESH.domains_by_vertex(hc.Partition.block(3, 1), n),
    "halos, part": lambda n: MESH.halos(hc.Partition.block(1, 1), n, 1),
    "Field, domain": lambda n: hc.HaloExchange(COMM, [(PATTERN, hc.Field(array(), domain=n))]),
    "Field, axes": lambda n: hc.Field(array(), axes=(0, n)),
    "Field, origin": lambda n: hc.HaloExchange(COMM, [(PATTERN, hc.Field(array(), origin=(n, 0)))]),
    "empty": lambda n: hc.empty((n,)),
    "empty, device": lambda n: hc.empty(3, "float64", COMM, n),
    "set": lambda n: bound().exchange(set=n),
    "alternative": lambda n: bound().alternative(n),
    "message_bytes": lambda n: bound().message_bytes(n, "send"),
    "pack": lambda n: bound().pack(n, bytearray(8)),
    "unpack": lambda n: bound().unpack(n, bytearray(8)),
    "broadcast": lambda n: COMM.broadcast(n, b""),
    "run_threads": lambda n: hc.run_threads(n, lambda comm: None),
}


@pytest.mark.parametrize("what", TAKE_NUMBERS)
@pytest.mark.parametrize("number", NUMBERS)
def test_impossible_numbers_are_typed_errors(what, number):
    if number > 0 and what == "block" and number < 2**64:
        pytest.skip("so many cells there may be, elsewhere")
    with pytest.raises(hc.HaloError):
        TAKE_NUMBERS[what](number)


@pytest.mark.parametrize("number", [2**70, -1, -(2**70)])
def test_numbers_that_are_no_numbers_of_64_bits_are_typed_errors(number):
    for call in [
        lambda: hc.Stream(number),
        lambda: hc.UnstructuredDomain(number, [0], []),
        lambda: unstructured(0, [number], []),
        lambda: hc.Partition([0, 0], number),
        lambda: hc.Partition.block(4, number),
        lambda: MESH.element_graph(number),
        lambda: MESH.halos(hc.Partition.block(1, 1), 0, number),
        lambda: hc.Partition([0, 0], number).counts,
        lambda: COMM.all_reduce([number]),
        lambda: COMM.all_reduce([1], number),
    ]:
        with pytest.raises(hc.HaloError):
            call()


@pytest.mark.parametrize("number", [2**32, 2**40, 2**63, 2**64 - 1])
def test_more_ranks_than_are_numbered_are_refused(number):
    """What was made of them ended the process."""
    with pytest.raises(hc.HaloValueError, match=r"at most 2\^32 - 1"):
        hc.Partition([0, 1], number)


@pytest.mark.parametrize("make", ["vertex_graph()", "element_graph(1)", "halos(hc.Partition([0], 1), 0, 1)"])
def test_a_mesh_of_more_vertices_than_memory_is_refused(make):
    """It ended the process."""
    code = f"""
import resource
import halocline as hc
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
mesh = hc.Mesh(2**31, [[0, 1, 2]])
try:
    mesh.{make}
except hc.HaloValueError as error:
    assert "memory" in str(error), error
else:
    raise AssertionError("it was made")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, (done.returncode, done.stderr)


@pytest.mark.parametrize("flag", [True, False])
def test_flags_are_no_numbers(flag):
    for call in (lambda: CUT.pattern(flag), lambda: GRID.decompose(flag)):
        with pytest.raises(hc.HaloError):
            call()


# What takes whole numbers, each with numbers that it takes.
TAKE_NUMBERS_OF_ANY_KIND = {
    "RegularGrid": (lambda n: hc.RegularGrid(n).shape, (8, 6)),
    "domains_per_rank": (lambda n: hc.RegularGrid((8, 6), domains_per_rank=n[0]).decompose(COMM).domains, (2,)),
    "decompose": (lambda n: GRID.decompose(n[0]).domains, (4,)),
    "decompose_into": (lambda n: GRID.decompose_into(n, 4).blocks_per_axis, (4, 1)),
    "decompose_at": (lambda n: GRID.decompose_at([n, n], 9).domains, (3, 5)),
    "boxes": (lambda n: GRID.decompose_boxes([(n[0], n[:2], n[2:])], COMM).domains, (0, 0, 8, 8)),
    "halo": (lambda n: CUT.pattern(n[0]).shape, (3,)),
    "halo of axes": (lambda n: CUT.pattern(n).shape, (3, 1)),
    "halo of sides": (lambda n: CUT.pattern([n, n]).domains[0].halo, (2, 1)),
    "narrowed": (lambda n: bound().narrowed(n).links, (1, 0)),
    "axes": (lambda n: hc.Field(array(), axes=n).shape, (1, 0)),
    "origin": (lambda n: bound_at(n).links, (1, 1)),
    "domain": (lambda n: hc.Field(array(), domain=n[0]).domain, (7,)),
    "with_levels": (lambda n: hc.UnstructuredDomain(0, [0, 1], [2]).with_levels(n).id, (2, 3)),
    "set": (lambda n: bound().exchange(set=n[0]), (0,)),
    "all_reduce": (lambda n: COMM.all_reduce(n), (3, 5)),
}

AS_NUMBERS = {
    "a list": list,
    "a tuple of NumPy's": lambda numbers: tuple(map(np.int32, numbers)),
    "an array": np.array,
    "an array of bytes": lambda numbers: np.array(numbers, np.uint8),
    "a strided array": lambda numbers: np.repeat(np.array(numbers), 2)[::2],
}


def bound_at(origin):
    return hc.HaloExchange(COMM, [(PATTERN, hc.Field(array(), origin=origin))])


@pytest.mark.parametrize("kind", AS_NUMBERS)
@pytest.mark.parametrize("what", TAKE_NUMBERS_OF_ANY_KIND)
def test_whole_numbers_of_any_kind_are_taken(what, kind):
    call, numbers = TAKE_NUMBERS_OF_ANY_KIND[what]
    assert call(AS_NUMBERS[kind](numbers)) == call(numbers)


@pytest.mark.parametrize("what", [what for what in TAKE_NUMBERS_OF_ANY_KIND if what != "all_reduce"])
@pytest.mark.parametrize("kind", [list, np.array], ids=["a list", "an array"])
def test_numbers_with_a_fraction_are_refused(what, kind):
    call, numbers = TAKE_NUMBERS_OF_ANY_KIND[what]
    with pytest.raises((hc.HaloTypeError, hc.HaloValueError)):
        call(kind(list(map(float, numbers))))


@pytest.mark.parametrize("junk", [8, 8.0, None, "88", {8: 8}, {8}, np.array(8), iter((8, 8)), object()], ids=repr)
def test_what_is_no_sequence_is_no_shape(junk):
    with pytest.raises(hc.HaloTypeError):
        hc.RegularGrid(junk)


def test_flags_of_numpy_are_taken():
    for flags in (np.array([True, False]), (np.True_, np.False_)):
        assert hc.RegularGrid((8, 8), periodic=flags).periodic == (True, False)
        assert CUT.staggered(flags).shape == (9, 8)


TAKE_SEQUENCES = {
    "RegularGrid": lambda s: hc.RegularGrid(s),
    "periodic": lambda s: hc.RegularGrid((8, 8), periodic=s),
    "decompose_into": lambda s: GRID.decompose_into(s, COMM),
    "decompose_at": lambda s: GRID.decompose_at(s, COMM),
    "decompose_at, an axis": lambda s: GRID.decompose_at([s, [0]], COMM),
    "boxes": lambda s: GRID.decompose_boxes(s, COMM),
    "boxes, first": lambda s: GRID.decompose_boxes([(0, s, (8, 8))], COMM),
    "staggered": lambda s: CUT.staggered(s),
    "halo": lambda s: CUT.pattern(s),
    "domains": lambda s: hc.Pattern.unstructured(COMM, s),
    "owned": lambda s: unstructured(0, s, []),
    "halo ids": lambda s: unstructured(0, [], s),
    "with_levels": lambda s: hc.UnstructuredDomain(0, [0], []).with_levels(s),
    "Graph": lambda s: hc.Graph(s, [0]),
    "Partition": lambda s: hc.Partition(s, 1),
    "Mesh": lambda s: hc.Mesh(3, s),
    "Mesh, a row": lambda s: hc.Mesh(3, [s]),
    "axes": lambda s: hc.Field(array(), axes=s),
    "origin": lambda s: hc.Field(array(), origin=s),
    "empty": lambda s: hc.empty(s),
    "HaloExchange": lambda s: hc.HaloExchange(COMM, s),
    "alternatives": lambda s: hc.HaloExchange.alternatives(COMM, s),
    "PatternLinks": lambda s: hc.PatternLinks(COMM, s),
    "unbound": lambda s: hc.PatternLinks(COMM, [PATTERN]).exchange(s),
    "broadcast": lambda s: COMM.broadcast(0, s),
    "all_gather": lambda s: COMM.all_gather(s),
    "all_reduce": lambda s: COMM.all_reduce(s),
    "Redistribute": lambda s: hc.Redistribute.unstructured(COMM, s, s),
}


@pytest.mark.parametrize("what", TAKE_SEQUENCES)
def test_sequences_longer_than_any_memory_are_typed_errors(what):
    """They ended the process: memory was taken for as many entries as they say they have."""
    for sequence in (range(2**40), range(2**61), range(2**70)):
        with pytest.raises(hc.HaloError):
            TAKE_SEQUENCES[what](sequence)


class Interface:
    def __init__(self, **changes):
        self.held = array()
        self.__array_interface__ = {**self.held.__array_interface__, **changes}


def test_interfaces_of_impossible_lengths_are_typed_errors():
    for changes in ({"shape": range(2**40)}, {"strides": range(2**61)}, {"shape": (2**70,)}, {"shape": (-1, 2)}):
        with pytest.raises(hc.HaloError):
            hc.Field(Interface(**changes))


def test_interfaces_beyond_all_memory_are_typed_errors():
    shape, bytes_ = (100,), 800
    for address, strides in ((2**64 - 8, None), (2**64 - bytes_ + 1, None), (8, (-8,))):
        with pytest.raises(hc.HaloValueError, match="exceeds the address space"):
            hc.Field(Interface(shape=shape, data=(address, False), strides=strides))


class Capsule:
    """DLPack by somebody else's capsule."""

    def __init__(self, capsule, device=(1, 0)):
        self.capsule, self.device = capsule, device

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return self.device


def test_bad_capsules_of_dlpack_are_typed_errors():
    consumed = np.zeros(3).__dlpack__()
    np.from_dlpack(Capsule(consumed))
    import datetime  # noqa: F401

    import _datetime

    for capsule in (consumed, _datetime.datetime_CAPI, None, 7):
        with pytest.raises(hc.HaloTypeError):
            hc.Field(Capsule(capsule))
    for device in (None, ("cpu", 0), (2**70, 0), 1):
        with pytest.raises(hc.HaloError):
            hc.Field(Capsule(np.zeros(3).__dlpack__(), device))


@pytest.mark.parametrize("refusal", [BufferError, RuntimeError, TypeError, ValueError])
def test_what_an_array_says_instead_of_a_capsule_is_a_typed_error(refusal):
    class Refuses(Capsule):
        def __dlpack__(self, **_):
            raise refusal("not this one")

    error = hc.HaloValueError if refusal is ValueError else hc.HaloTypeError
    with pytest.raises(error, match="not this one") as caught:
        hc.Field(Refuses(None))
    assert type(caught.value.__cause__) is refusal


def test_sums_are_pythons_whole_numbers():
    most = 2**64 - 1
    assert hc.run_threads(3, lambda comm: comm.all_reduce([most, comm.rank, 2**32])) == [[3 * most, 3, 3 * 2**32]] * 3
    assert hc.run_threads(2, lambda comm: comm.all_reduce([most], "max")) == [[most]] * 2
    assert hc.run_threads(2, lambda comm: comm.all_reduce([])) == [[], []]


def narrow(comm):
    pattern = hc.RegularGrid((12,), periodic=(True,)).decompose(comm).pattern(2)
    return hc.HaloExchange(comm, [(pattern, np.zeros(pattern.shape))])


@pytest.mark.parametrize(
    "call",
    [
        lambda comm, bad: narrow(comm).narrowed("1" if bad else 1),
        lambda comm, bad: narrow(comm).narrowed(1, neighbours=7 if bad else "all"),
        lambda comm, bad: narrow(comm).narrowed(1, neighbours="none" if bad else "all"),
        lambda comm, bad: hc.trace(7 if bad else "/tmp/never-written.json", comm).__enter__(),
    ],
)
@pytest.mark.parametrize("bad", [0, 1])
def test_a_bad_argument_of_one_rank_is_an_error_on_all(call, bad):
    """The others waited for it."""

    def rank(comm):
        comm = comm.with_deadline(10)
        is_bad = comm.rank == bad
        with pytest.raises((hc.HaloValueError, hc.HaloTypeError) if is_bad else hc.RefusedElsewhereError):
            call(comm, is_bad)
        comm.barrier()

    hc.run_threads(2, rank)


@pytest.mark.parametrize("call", ["barrier", "wait", "pending", "bind"])
def test_close_ends_the_waits_of_other_threads(call):
    def rank(comm):
        pattern = hc.RegularGrid((12,), periodic=(True,)).decompose(comm).pattern(2)
        halo = hc.HaloExchange(comm, [(pattern, np.zeros(pattern.shape))])
        comm.barrier()
        if comm.rank == 1:
            done.wait(20)
            return None
        caught, waits = [], threading.Event()

        def wait():
            pending = halo.exchange(wait=False) if call in ("wait", "pending") else None
            waits.set()
            try:
                if call == "barrier":
                    comm.barrier()
                elif call == "wait":
                    halo.wait()
                elif call == "pending":
                    pending.wait()
                else:
                    hc.HaloExchange(comm, [(pattern, np.zeros(pattern.shape))])
            except hc.HaloError as error:
                caught.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        waits.wait()
        began = time.monotonic()
        comm.close()
        thread.join(10)
        took = time.monotonic() - began
        alive = thread.is_alive()
        done.set()
        thread.join()
        assert not alive and took < 5, took
        assert len(caught) == 1 and isinstance(caught[0], hc.ClosedError), caught
        return True

    done = threading.Event()
    try:
        hc.run_threads(2, rank)
    finally:
        done.set()


@pytest.mark.parametrize("path", [5, None, b"trace.json", ["trace.json"]], ids=repr)
def test_what_is_no_path_is_told(path):
    with pytest.raises(hc.HaloTypeError, match=re.escape(f"path: a str or an os.PathLike of a str is wanted, not {path!r}")):
        with hc.trace(path, hc.run_threads(1, lambda comm: comm)[0]):
            pass


def test_what_was_closed_interrupts_nothing_else():
    def rank(comm):
        other = hc.run_threads(1, lambda alone: alone)[0]
        other.duplicate()
        other.close()
        if comm.rank == 0:
            # Longer than a wait goes on before it asks.
            time.sleep(0.2)
        comm.barrier()
        with pytest.raises(hc.ClosedError):
            other.barrier()
        if comm.rank == 1:
            time.sleep(0.2)
        comm.barrier()

    hc.run_threads(2, rank)


def test_options_of_any_kind_are_refused_by_errors_of_ours():
    """Not even by those of Python that say something of texts, or of NumPy that say something of types."""
    comm = hc.init()
    halo = hc.HaloExchange(comm, [])
    mesh = hc.Mesh(3, [[0, 1, 2]])
    part = hc.Partition.block(1, 1)
    lone = "\ud800"
    for error, call in [
        (hc.HaloValueError, lambda: hc.init(lone)),
        (hc.HaloTypeError, lambda: hc.init(None)),
        (hc.HaloTypeError, lambda: hc.init(deadline=np.zeros(3))),
        (hc.HaloTypeError, lambda: comm.with_deadline(np.zeros(0))),
        (hc.HaloTypeError, lambda: hc.Communicator(0, deadline="soon")),
        (hc.HaloValueError, lambda: halo.message_bytes(0, lone)),
        (hc.HaloTypeError, lambda: halo.message_bytes(0, 1)),
        (hc.HaloValueError, lambda: mesh.halos(part, 0, 1, shared=lone)),
        (hc.HaloTypeError, lambda: mesh.halos(part, 0, 1, shared=None)),
        (hc.HaloTypeError, lambda: hc.zeros(3, "no such type")),
        (hc.HaloTypeError, lambda: hc.zeros(3, 5)),
        (hc.HaloTypeError, lambda: hc.zeros(3, [1, 2])),
        (hc.HaloTypeError, lambda: hc.zeros(3, lone)),
        (hc.HaloTypeError, lambda: hc.zeros(3, ())),
        (hc.HaloValueError, lambda: hc.zeros(3, order=np.zeros(2))),
        (hc.HaloValueError, lambda: hc.zeros(3, order=["C"])),
    ]:
        with pytest.raises(hc.HaloError) as caught:
            call()
        assert type(caught.value) is error, caught.value
