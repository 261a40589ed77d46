"""The sparse all-to-all: both forms, orders, discovery, failures."""

import asyncio
import threading

import numpy as np
import pytest

import halocline as hc


def test_packets_come_from_known_and_from_discovered_sources(ranks):
    def run(comm):
        # To the next rank and to the one after that.
        steps = [step for step in (1, 2) if step < comm.size]
        for known in (True, False):
            for size in (0, 1, 65537, 2_000_001):
                sends = {
                    (comm.rank + step) % comm.size: [
                        hc.Packet(bytes([part]), np.full(size, comm.rank, "u1")) for part in range(step + 1)
                    ]
                    for step in steps
                }
                sources = sorted((comm.rank - step) % comm.size for step in steps)
                came = comm.sparse_alltoall(sends, sources=sources if known else None)
                assert list(came) == sources
                for source, packets in came.items():
                    step = (comm.rank - source) % comm.size
                    assert [packet.metadata for packet in packets] == [bytes([part]) for part in range(step + 1)]
                    for packet in packets:
                        np.testing.assert_array_equal(np.asarray(packet.payload), np.full(size, source))

    hc.run_threads(ranks, run)


def test_a_single_packet_bare_bytes_and_edges_without_packets():
    def run(comm):
        if comm.rank == 0:
            assert comm.sparse_alltoall({1: b"bare", 2: []}, sources=[]) == {}
        else:
            came = comm.sparse_alltoall({}, sources=np.array([0]))
            assert [bytes(packet.payload) for packet in came[0]] == ([b"bare"] if comm.rank == 1 else [])

    hc.run_threads(3, run)


def test_the_steps():
    def run(comm):
        other = 1 - comm.rank
        exchange = hc.SparseAlltoall(comm, [other], sources=[other])
        assert exchange.sources == exchange.destinations == [other]
        assert repr(exchange) == f"SparseAlltoall(sources=[{other}], destinations=[{other}])"
        with pytest.raises(hc.HaloValueError, match="finish it before waiting for it"):
            exchange.wait()
        with pytest.raises(hc.InFlightError, match="the operation is not complete"):
            exchange.extract(other)
        with pytest.raises(hc.HaloValueError, match=rf"^destination: rank {comm.rank} is no destination"):
            exchange.insert(comm.rank, b"x")
        with pytest.raises(hc.HaloValueError, match=rf"^source: rank {comm.rank} is no source"):
            exchange.extract(comm.rank)

        def insert(first):
            for number in range(first, 40, 2):
                exchange.insert(other, hc.Packet(bytes([number]), b"x" * number))

        threads = [threading.Thread(target=insert, args=(first,)) for first in range(2)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        exchange.finish()
        with pytest.raises(hc.HaloValueError, match="^destination: a packet for rank . was inserted after the operation was finished"):
            exchange.insert(other, b"late")
        exchange.wait()
        assert exchange.is_ready()
        packets = exchange.extract(other)
        order = [packet.metadata[0] for packet in packets]
        # Each thread's in its order.
        assert [n for n in order if n % 2 == 0] == list(range(0, 40, 2)) and [n for n in order if n % 2] == list(range(1, 40, 2))
        assert all(len(packet.payload) == packet.metadata[0] for packet in packets)
        assert exchange.extract(other) == []
        counts = exchange.statistics
        assert counts["sent"] == counts["received"] == {
            "packets": 40, "metadata": 40, "host": sum(range(40)), "pinned": 0, "device": 0,
        }

    hc.run_threads(2, run)


def test_a_task_awaits_it():
    def run(comm):
        other = 1 - comm.rank

        async def main():
            for turn in range(50):
                exchange = hc.SparseAlltoall(comm, [other], sources=[other])
                exchange.insert(other, b"%d" % turn)
                exchange.finish()
                await exchange
                assert [bytes(packet.payload) for packet in exchange.extract(other)] == [b"%d" % turn]

        asyncio.run(main())

    hc.run_threads(2, run)


def test_wrong_ranks_are_named():
    comm = hc.init()
    for call, text in [
        (lambda: comm.sparse_alltoall({0: b"x"}), "^destinations: rank 0 names itself as a destination"),
        (lambda: comm.sparse_alltoall({5: b"x"}), "^destinations: rank 5 is named as a destination, but"),
        (lambda: comm.sparse_alltoall({}, sources=[7]), "^sources: rank 7 is named as a source, but"),
        (lambda: comm.sparse_alltoall({-1: b"x"}), "^sends: a whole number from 0 is wanted, not -1$"),
    ]:
        with pytest.raises(hc.HaloValueError, match=text):
            call()
    for call, text in [
        (lambda: comm.sparse_alltoall([b"x"]), "^sends: a mapping from destinations to packets is wanted"),
        (lambda: comm.sparse_alltoall({1: None}), r"^sends\[1\]: a packet or an object with bytes is wanted, not None$"),
        (lambda: comm.sparse_alltoall({1: [b"x", "y"]}), r"^sends\[1\]\[1\]: an array .* is wanted, not 'y'$"),
        (lambda: hc.SparseAlltoall(comm, 3), "^destinations: a sequence of whole numbers is wanted, not 3"),
        (lambda: hc.SparseAlltoall(comm, []).insert(1, None), "^packet: a packet or an object with bytes is wanted, not None$"),
    ]:
        with pytest.raises(hc.HaloTypeError, match=text):
            call()


def test_sets_that_do_not_match_are_found_out():
    def run(comm):
        exchange = hc.SparseAlltoall(comm, [1] if comm.rank == 0 else [], sources=[])
        exchange.finish()
        try:
            exchange.wait()
            found = None
        except hc.PacketExchangeError as error:
            found = str(error)
        # A rank that has left cannot answer.
        comm.barrier()
        return found

    waiting, naming_nobody = hc.run_threads(2, run)
    found = "mismatched sets: rank 0 names rank 1 as a destination"
    assert found in waiting
    # It has nothing to wait for: it may complete before it hears of rank 0.
    assert naming_nobody is None or found in naming_nobody


REFUSED = "^sends: a mapping from destinations to packets is wanted, not 'wrong'$"


def test_a_rank_whose_arguments_are_refused_fails_the_discovery_of_all():
    def run(comm):
        for sends, refusal in [
            ("wrong", REFUSED),
            ({0: ["no bytes"]}, r"^sends\[0\]\[0\]: an array .* is wanted, not 'no bytes'$"),
            ({0: b"x", comm.size: b"x"}, "^destinations: rank . is named as a destination, but the communicator has ranks 0 to .; name only these$"),
        ]:
            if comm.rank == comm.size - 1:
                with pytest.raises(hc.HaloError, match=refusal) as own:
                    comm.sparse_alltoall(sends)
                cause = str(own.value).removeprefix("destinations: ")
            else:
                # Some of them exchange nothing with the rank that refuses.
                with pytest.raises(hc.RefusedElsewhereError) as elsewhere:
                    comm.sparse_alltoall({1 - comm.rank: b"from a neighbour"} if comm.rank < 2 and comm.size > 2 else {})
                cause = str(elsewhere.value).removeprefix(f"rank {comm.size - 1} refused: ")
            assert comm.all_gather(cause.encode()) == [cause.encode()] * comm.size
        # The communicator goes on.
        other = (comm.rank + 1) % comm.size
        assert list(comm.sparse_alltoall({other: b"x"})) == [(comm.rank - 1) % comm.size]

    for ranks in (2, 3, 5):
        hc.run_threads(ranks, run)


def test_two_ranks_that_refuse_keep_their_own_errors():
    def run(comm):
        if comm.rank == 0:
            with pytest.raises(hc.RefusedElsewhereError, match="^rank 1 refused: sends"):
                comm.sparse_alltoall({1: b"x"})
        else:
            with pytest.raises(hc.HaloTypeError, match=REFUSED):
                comm.sparse_alltoall("wrong")

    hc.run_threads(3, run)


def test_a_rank_whose_arguments_are_refused_fails_those_that_name_it():
    def run(comm):
        if comm.rank == 2:
            with pytest.raises(hc.HaloTypeError, match=REFUSED):
                comm.sparse_alltoall("wrong", sources=[1])
        elif comm.rank == 3:
            # It has nothing to do with the refusal.
            assert comm.sparse_alltoall({}, sources=[]) == {}
        else:
            with pytest.raises(hc.RefusedElsewhereError, match="^rank 2 refused: sends: a mapping from"):
                # A payload that the receiver would have to fetch.
                comm.sparse_alltoall({2: np.zeros(100_000)} if comm.rank == 0 else {}, sources=[2] if comm.rank == 1 else [])
        other = comm.rank ^ 1
        assert list(comm.sparse_alltoall({other: b"x"}, sources=[other])) == [other]

    hc.run_threads(4, run)


@pytest.mark.parametrize("known", [True, False])
def test_the_steps_refuse_their_arguments_for_all(known):
    def run(comm):
        if comm.rank == 1:
            with pytest.raises(hc.HaloTypeError, match="^memory"):
                hc.SparseAlltoall(comm, [0], sources=[0] if known else None, memory=3)
        else:
            with pytest.raises(hc.RefusedElsewhereError, match="^rank 1 refused: memory: "):
                exchange = hc.SparseAlltoall(comm, [1], sources=[1] if known else None)
                exchange.finish()
                exchange.wait()

    hc.run_threads(2, run)


def test_an_operation_that_is_dropped_is_an_error_for_those_that_wait():
    def run(comm):
        other = 1 - comm.rank
        exchange = hc.SparseAlltoall(comm, [other], sources=[other])
        if comm.rank == 0:
            del exchange
            comm.barrier()
            return
        exchange.finish()
        with pytest.raises(hc.PacketExchangeError, match="rank 0 has given up the operation: .*dropped before it was finished"):
            exchange.wait()
        comm.barrier()

    hc.run_threads(2, run)


def test_a_deadline_names_the_missing_rank():
    def run(comm):
        within = comm.with_deadline(0.2)
        if comm.rank == 0:
            exchange = hc.SparseAlltoall(within, [], sources=[1])
            exchange.finish()
            with pytest.raises(hc.CommunicatorTimeoutError, match="rank 0 has waited .* in a sparse all-to-all for"):
                exchange.wait()
        else:
            late = hc.SparseAlltoall(comm, [0], sources=[])
        comm.barrier()
        if comm.rank == 1:
            late.finish()
            with pytest.raises(hc.PacketExchangeError, match="rank 0 has given up the operation"):
                late.wait()

    hc.run_threads(2, run)
