"""What ranks of a job do together: run by every rank, alone, under ``halocline launch`` or an MPI launcher."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

import halocline as hc

sys.path.insert(0, str(Path(__file__).parent.parent))
from oracle import all_layouts, expected, start  # noqa: E402

WANTED = os.environ.get("HALOCLINE_TEST_SIZE")


def test_the_communicator(comm):
    assert WANTED is None or comm.size == int(WANTED)
    assert comm.all_gather(str(comm.rank).encode()) == [str(r).encode() for r in range(comm.size)]
    assert comm.transport == os.environ.get("HALOCLINE_TEST_TRANSPORT", comm.transport)
    if os.environ.get("HALOCLINE_TEST_COMM") == "mpi4py":
        from mpi4py import MPI

        assert (comm.rank, comm.size) == (MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size)
        with pytest.raises(hc.HaloTypeError, match="mpi4py"):
            hc.Communicator(MPI)
        if comm.size > 1:
            half = MPI.COMM_WORLD.Split(comm.rank % 2)
            both = half.Create_intercomm(0, MPI.COMM_WORLD, 1 - comm.rank % 2)
            with pytest.raises(hc.HaloValueError, match="intercommunicator"):
                hc.Communicator(both)
            both.Free()
            half.Free()
    else:
        assert hc.init() is comm


def test_split(comm):
    half = comm.split(comm.rank % 2, -comm.rank)
    members = [rank for rank in reversed(range(comm.size)) if rank % 2 == comm.rank % 2]
    assert (half.size, members[half.rank], half.transport) == (len(members), comm.rank, comm.transport)
    assert half.all_gather(bytes([comm.rank])) == [bytes([rank]) for rank in members]
    assert (comm.split(None) is None) and (comm.split(0).rank == comm.rank)
    # The halves exchange at the same time.
    pattern = hc.RegularGrid((3 * half.size,), periodic=(True,)).decompose(half).pattern(1)
    (domain,) = pattern.domains
    array = start(domain, (3 * half.size,))
    hc.HaloExchange(half, [(pattern, array)]).exchange()
    np.testing.assert_array_equal(array, expected(domain, (3 * half.size,), (True,)))


@pytest.mark.parametrize("link", ["auto", "mailbox", "message"])
@pytest.mark.parametrize("library", [False, True])
def test_regular(comm, link, library):
    shape, periodic = (13, 10), (True, False)
    pattern = hc.RegularGrid(shape, periodic=periodic).decompose(comm).pattern([(1, 2), (2, 1)])
    (domain,) = pattern.domains
    arrays = list(all_layouts(start(domain, shape)))
    if library:
        arrays = [("library", hc.zeros(pattern.shape, comm=comm))]
        arrays[0][1][...] = start(domain, shape)
    if link == "mailbox" and any(way == "message" for _, _, way in ways_of(comm, pattern)):
        pytest.skip("ranks that share no memory have no mailboxes")
    halo = hc.HaloExchange(comm, [(pattern, array) for _, array in arrays], link=link)
    for turn in range(3):
        for _, array in arrays:
            array[...] = start(domain, shape)
        [halo.exchange, halo.exchange(wait=False).wait if turn == 1 else halo.exchange, halo.exchange][turn]()
        for name, array in arrays:
            np.testing.assert_array_equal(array, expected(domain, shape, periodic), err_msg=name)
        comm.barrier()


def ways_of(comm, pattern):
    links = hc.PatternLinks(comm, [pattern])
    ways = sorted(set(way for _, _, way in links.links))
    everywhere = comm.all_gather(",".join(ways).encode())
    return [(0, "send", way) for ways in everywhere for way in ways.decode().split(",")]


def test_unstructured_and_unbound(comm):
    cells = 8 * comm.size
    owned = np.arange(8 * comm.rank, 8 * comm.rank + 8)
    halo = np.array([(owned[0] - 1) % cells, (owned[-1] + 1) % cells])
    if comm.size == 1:
        halo = halo[:0]
    pattern = hc.Pattern.unstructured(comm, [hc.UnstructuredDomain(comm.rank, owned, halo)])
    ids = np.concatenate([owned, halo])
    links = hc.PatternLinks(comm, [pattern])
    for levels in (1, 5, 3, 5):
        want = ids[:, None] + np.arange(levels) / 8
        fields = []
        for order in "CF":
            array = np.array(want, order=order)
            array[8:] = -1
            fields.append((pattern, array))
        pending = links.schedule_exchange(fields)
        pending.schedule_wait()
        for _, array in fields:
            np.testing.assert_array_equal(array, want)


def test_tasks(comm):
    pattern = hc.RegularGrid((24,), periodic=(True,)).decompose(comm).pattern(1)
    (domain,) = pattern.domains
    array = start(domain, (24,))
    halo = hc.HaloExchange(comm, [(pattern, array)])

    async def main():
        for _ in range(100):
            array[[0, -1]] = -1
            await halo.exchange_async()
            np.testing.assert_array_equal(array, expected(domain, (24,), (True,)))

    asyncio.run(main())


def test_what_one_rank_refuses(comm):
    pattern = hc.RegularGrid((16,), periodic=(True,)).decompose(comm).pattern(1)
    array = np.zeros(3) if comm.rank == comm.size - 1 else np.zeros(pattern.shape)
    with pytest.raises(hc.HaloError) as caught:
        hc.HaloExchange(comm, [(pattern, array)])
    mine = comm.rank == comm.size - 1
    assert isinstance(caught.value, hc.HaloValueError if mine else hc.RefusedElsewhereError)


def test_redistribution(comm):
    n = comm.size
    grid = hc.RegularGrid((2 * n, 3 * n))
    rows, columns = grid.decompose_into((n, 1), comm), grid.decompose_into((1, n), comm)
    truth = np.arange(6.0 * n * n).reshape(2 * n, 3 * n)
    mine, target = truth[2 * comm.rank :][:2].copy(), np.zeros((2 * n, 3))
    hc.Redistribute.regular(comm, (rows, 0), (columns, 0)).bind(comm, [mine], [target]).exchange()
    np.testing.assert_array_equal(target, truth[:, 3 * comm.rank :][:, :3])


def test_a_trace(comm, tmp_path_factory):
    import json

    folder = comm.broadcast(0, str(tmp_path_factory.mktemp("trace")).encode()).decode()
    path = folder + "/trace.json"
    pattern = hc.RegularGrid((24,), periodic=(True,)).decompose(comm).pattern(1)
    halo = hc.HaloExchange(comm, [(pattern, np.zeros(pattern.shape))])
    with hc.trace(path, comm):
        halo.exchange()
    comm.barrier()
    events = json.loads(Path(path).read_text())["traceEvents"]
    exchanges = [e["pid"] for e in events if e["name"] == "exchange"]
    assert sorted(exchanges) == list(range(comm.size))


def test_many_rounds_with_overlap(comm):
    pattern = hc.RegularGrid((32, 32), periodic=(True, True)).decompose(comm).pattern(1)
    (domain,) = pattern.domains
    a = hc.zeros((*pattern.shape, 4), comm=comm)
    halo = hc.HaloExchange(comm, [(pattern, a)])
    inside = domain.owned
    for step in range(200):
        a[inside] = (comm.rank + 1) * 1000 + step
        pending = halo.exchange(wait=False)
        np.sin(a[inside])
        pending.wait()
        fractions = a % 1000
        assert (fractions == step).all(), step
        comm.barrier()


def test_parts_of_a_job(comm):
    """Communicators of mpi4py that are not the world's, side by side."""
    if os.environ.get("HALOCLINE_TEST_COMM") != "mpi4py":
        pytest.skip("without mpi4py there is one communicator")
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    part = world.Split(world.rank % 2, -world.rank)
    mine, again = hc.Communicator(part), hc.Communicator(world.Dup())
    assert (mine.rank, mine.size) == (part.rank, part.size) and again.size == comm.size
    for one in (mine, again):
        pattern = hc.RegularGrid((24,), periodic=(True,)).decompose(one).pattern(1)
        (domain,) = pattern.domains
        array = start(domain, (24,))
        hc.HaloExchange(one, [(pattern, array)]).exchange()
        np.testing.assert_array_equal(array, expected(domain, (24,), (True,)))
    with pytest.raises(hc.HaloValueError, match="another communicator"):
        pattern = hc.RegularGrid((24,)).decompose(mine).pattern(1)
        hc.HaloExchange(again, [(pattern, np.zeros(pattern.shape))])
    mine.close()
    again.close()
    part.Free()


def test_a_forked_child_of_a_rank_is_alone(comm):
    """It has no part in the job: neither by the communicator of MPI, nor by what tells ranks of theirs."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(30)
            said = []
            if os.environ.get("HALOCLINE_TEST_COMM") == "mpi4py":
                from mpi4py import MPI

                try:
                    said.append(repr(hc.Communicator(MPI.COMM_WORLD)))
                except hc.ForkedError:
                    said.append("refused")
            alone = hc.init()
            said.append(f"{alone.rank} of {alone.size}")
            os.write(writing, ", ".join(said).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode().removeprefix("refused, ")
    assert (said, os.waitpid(child, 0)[1]) == ("0 of 1", 0)
    comm.barrier()
