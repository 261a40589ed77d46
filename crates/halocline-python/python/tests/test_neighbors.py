"""Neighbour exchange: rounds, ids, sessions, callbacks, tasks, failures."""

import asyncio
import gc
import threading
import time

import numpy as np
import pytest
from child import ends_well

import halocline as hc


def packet(rank, round, size):
    return hc.Packet(f"{rank} {round}".encode(), np.full(size, rank + round, "u1"))


def check(came, rank, round, size):
    assert came.metadata == f"{rank} {round}".encode()
    np.testing.assert_array_equal(np.asarray(came.payload), np.full(size, (rank + round) % 256, "u1"))


def sides(comm, line, packet):
    left, right = line.neighbors
    return {"left": packet if left is not None else None, "right": packet if right is not None else None}


@pytest.mark.parametrize("periodic", [False, True])
def test_packets_of_all_sizes_go_to_both_sides(ranks, periodic):
    def run(comm):
        line = comm.neighbor_exchange(periodic)
        left, right = line.neighbors
        if comm.size > 1:
            want = [comm.rank - 1, comm.rank + 1]
            want = [rank % comm.size if periodic else rank if 0 <= rank < comm.size else None for rank in want]
            assert [left, right] == want
        for round, size in enumerate([0, 1, 100, 4096, 65536, 65537, 3_000_001]):
            came = line.exchange(**sides(comm, line, packet(comm.rank, round, size)))
            for rank, one in zip((left, right), came):
                assert (rank is None) == (one is None)
                if one is not None:
                    check(one, rank, round, size)
        counts = line.statistics
        assert counts["rounds"] == 7
        if comm.size > 1:
            neighbors = 2 - (left is None) - (right is None)
            assert counts["sent"]["packets"] == counts["received"]["packets"] == 7 * neighbors
            assert counts["sent"]["host"] == (1 + 100 + 4096 + 65536 + 65537 + 3_000_001) * neighbors
            assert counts["sent"]["device"] == 0

    hc.run_threads(ranks, run)


def test_both_sides_of_a_ring_of_two_are_told_apart():
    def run(comm):
        line = comm.neighbor_exchange(periodic=True)
        left, right = line.exchange(left=b"to the left", right=b"to the right")
        assert (bytes(left.payload), bytes(right.payload)) == (b"to the right", b"to the left")

    for ranks in (1, 2, 3):
        hc.run_threads(ranks, run)


def test_operations_are_independent_and_ids_are_used_again():
    def run(comm):
        line = comm.neighbor_exchange()
        side = "right" if comm.rank == 0 else "left"
        order = [3, 1, 2**32 - 1]
        for turn in range(20):
            ids = order if comm.rank == 0 else order[::-1]
            rounds = {id: line.start(**{side: f"{turn} {id}".encode()}, id=id) for id in ids}
            for id, round in rounds.items():
                assert round.id == id
                came = round.wait()
                assert bytes(came[1 - comm.rank].payload) == f"{turn} {id}".encode()
                # Again: the same.
                assert round.wait() is came and round.is_ready()

    hc.run_threads(2, run)


def test_an_id_is_busy_until_its_round_was_taken():
    def run(comm):
        line = comm.neighbor_exchange()
        round = line.start(id=4)
        if comm.rank == 0:
            with pytest.raises(hc.InFlightError, match="^id: operation 4 has a round that was not taken, or a session; wait for it"):
                line.start(id=4)
        round.wait()
        line.exchange(id=4)
        # One that is dropped goes on, and gives its id back once it is over.
        del round
        line.start(id=4)
        gc.collect()
        comm.barrier()
        while True:
            try:
                line.exchange(id=4)
                break
            except hc.InFlightError:
                pass

    hc.run_threads(2, run)


def test_sessions_end_each_direction_on_its_own():
    def run(comm):
        line = comm.neighbor_exchange()
        with line.session(7) as session:
            assert session.id == 7 and not session.is_over
            if comm.rank == 0:
                came = [session.round(right=f"{n}".encode())[1] for n in range(3)]
                assert [one if one in (None, "last") else bytes(one.payload) for one in came] == [b"a", "last", "last"]
                assert session.round(right="last") == ("last", "last")
                with pytest.raises(hc.HaloValueError, match="^right: the session of operation 7 has sent its last packet"):
                    session.round(right=b"more")
            else:
                came = [session.round(left=turn)[0] for turn in (b"a", "last", None, None)]
                assert [bytes(one.payload) for one in came[:3]] == [b"0", b"1", b"2"] and came[3] == "last"
            assert session.is_over
        with pytest.raises(hc.HaloValueError, match="the session of operation 7 was finished; open another one"):
            session.round()
        # The id is free.
        line.exchange(id=7)
        with pytest.raises(hc.HaloValueError, match="^left: a packet, an object with bytes, None or 'last' is wanted, not 'end'$"):
            line.session(7).round(left="end")

    hc.run_threads(2, run)


def test_a_session_of_a_rank_alone_on_a_ring():
    ring = hc.init().neighbor_exchange(periodic=True)
    for _ in range(2):
        with ring.session(4) as session:
            from_left, from_right = session.round(left=b"l", right=b"r")
            assert (bytes(from_left.payload), bytes(from_right.payload)) == (b"r", b"l")
            assert session.round(left=None, right="last") == ("last", None)
            from_left, from_right = session.round(left=b"more")
            assert from_left == "last" and bytes(from_right.payload) == b"more"
            assert session.round(left="last") == ("last", "last")


def test_a_session_that_is_given_up_is_an_error_for_the_neighbours():
    def run(comm):
        line = comm.neighbor_exchange()
        with pytest.raises(ZeroDivisionError if comm.rank == 0 else hc.PacketExchangeError, match="zero|a last turn to both sides"):
            with line.session() as session:
                session.round()
                if comm.rank == 0:
                    raise ZeroDivisionError("zero")
                session.round()

    hc.run_threads(2, run)


def test_a_session_that_is_reopened_after_its_drop_is_told_what_it_waits_for():
    def run(comm):
        line = comm.neighbor_exchange()
        if comm.rank == 0:
            session = line.session(3)
            session.start()
            del session
            gc.collect()
            for reopen in (line.session, lambda id: line.exchange(id=id)):
                with pytest.raises(hc.InFlightError, match="^id: operation 3 has a session that was dropped and is still ending; "):
                    reopen(3)
            comm.barrier()
        else:
            # The neighbour has not begun.
            comm.barrier()
            with pytest.raises(hc.PacketExchangeError, match="rank 0 has dropped its session of operation 3"):
                with line.session(3) as session:
                    while True:
                        session.round()
        # Another id is free at once.
        with line.session(4) as session:
            session.round(left="last", right="last")

    hc.run_threads(2, run)


def test_a_task_awaits_rounds():
    def run(comm):
        line = comm.neighbor_exchange(periodic=True)

        async def main():
            for turn in range(200):
                round = line.start(right=packet(comm.rank, turn, 10), id=turn % 3)
                left, right = await round
                assert right is None
                check(left, (comm.rank - 1) % comm.size, turn, 10)
                assert await round == (left, right)
            both = [line.start(right=b"%d" % id, id=id) for id in range(5)]
            came = await asyncio.gather(*both)
            assert [bytes(left.payload) for left, _ in came] == [b"0", b"1", b"2", b"3", b"4"]

        asyncio.run(main())

    hc.run_threads(3, run)


def test_cancelling_leaves_the_round_in_flight():
    def run(comm):
        line = comm.neighbor_exchange()
        side = "right" if comm.rank == 0 else "left"
        for turn in range(50):
            if comm.rank == 0:
                round = line.start(**{side: b"%d" % turn})

                async def main():
                    async def wait():
                        return await round

                    task = asyncio.ensure_future(wait())
                    for _ in range(turn % 4):
                        await asyncio.sleep(0)
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task

                asyncio.run(main())
            comm.barrier()
            if comm.rank == 1:
                round = line.start(**{side: b"%d" % turn})
            assert bytes(round.wait()[1 - comm.rank].payload) == b"%d" % turn

    hc.run_threads(2, run)


def test_a_callback_is_called_once_by_a_call_from_python():
    def run(comm):
        line = comm.neighbor_exchange()
        called = []

        def done(round):
            called.append((round.id, threading.get_ident(), round.is_ready()))

        rounds = [line.start(id=id) for id in range(3)]
        for round in rounds:
            round.add_done_callback(done)
        comm.barrier()
        until = time.monotonic() + 30
        while len(called) < 3 and time.monotonic() < until:
            line.statistics
        # Over already: at once.
        rounds[0].add_done_callback(done)
        # Both ranks are threads of this process: the call of either may run the callbacks of both.
        comm.barrier()
        assert sorted(id for id, _, _ in called) == [0, 0, 1, 2] and all(ready for _, _, ready in called)
        for round in rounds:
            round.wait()
        with pytest.raises(hc.HaloTypeError, match="^function: a callable is wanted, not 3$"):
            round.add_done_callback(3)

    hc.run_threads(2, run)


def test_a_loop_runs_the_callback_of_a_round_that_ends_meanwhile():
    def run(comm):
        line = comm.neighbor_exchange()
        if comm.rank == 1:
            comm.barrier()
            line.exchange()
            return

        async def main():
            called = asyncio.Event()
            loop = asyncio.get_running_loop()
            round = line.start()
            round.add_done_callback(lambda round: loop.call_soon_threadsafe(called.set))
            await asyncio.get_running_loop().run_in_executor(None, comm.barrier)
            await asyncio.wait_for(called.wait(), 30)
            round.wait()

        asyncio.run(main())

    hc.run_threads(2, run)


def test_an_exception_of_a_callback_is_reported_and_the_next_one_runs():
    ends_well(
        """
        import sys
        reported = []
        sys.unraisablehook = lambda args: reported.append(str(args.exc_value))
        line = hc.init().neighbor_exchange()
        round = line.start()
        def fail(round):
            raise ValueError("mine")
        round.add_done_callback(fail)
        round.add_done_callback(lambda round: reported.append(round.wait()))
        print(reported)
        """,
        says="['mine', (None, None)]",
    )


def test_a_deadline_names_the_missing_neighbour():
    def run(comm):
        line = comm.neighbor_exchange(deadline=0.2)
        if comm.rank == 0:
            with pytest.raises(hc.CommunicatorTimeoutError, match="rank 0 has waited .* in operation 5 for rank 1, its right neighbour"):
                line.exchange(id=5)

            async def wait():
                await line.start(id=6)

            # It is final.
            with pytest.raises(hc.CommunicatorTimeoutError):
                asyncio.run(wait())
        comm.barrier()
        if comm.rank == 1:
            with pytest.raises(hc.PacketExchangeError, match="rank 0 has given up the neighbour exchange"):
                line.exchange(id=5)

    hc.run_threads(2, run)


@pytest.mark.parametrize("arguments", [
    {"memory": 5},
    {"periodic": "x"},
    {"deadline": "soon"},
], ids=lambda arguments: next(iter(arguments)))
@pytest.mark.parametrize("periodic", [False, True])
def test_a_rank_whose_arguments_are_refused_is_the_cause_on_all_ranks(arguments, periodic):
    name = next(iter(arguments))

    def run(comm):
        if comm.rank == 0:
            with pytest.raises(hc.HaloError, match=f"^{name}: .* is wanted, not ") as own:
                comm.neighbor_exchange(**{"periodic": periodic, **arguments})
            cause = str(own.value)
        else:
            line = comm.neighbor_exchange(periodic=periodic)
            with pytest.raises(hc.RefusedElsewhereError) as elsewhere:
                # Payloads that a neighbour would have to fetch. A rank that is further away may complete a round before it hears.
                for _ in range(comm.size):
                    line.exchange(left=np.zeros(100_000))
            cause = str(elsewhere.value).removeprefix("rank 0 refused: ")
        assert comm.all_gather(cause.encode()) == [cause.encode()] * comm.size
        # All have begun equally many.
        comm.neighbor_exchange().exchange()

    for ranks in (2, 3, 4):
        hc.run_threads(ranks, run)


def test_lines_that_differ_are_found_out():
    def run(comm):
        line = comm.neighbor_exchange(periodic=comm.rank == 0)
        with pytest.raises(hc.PacketExchangeError, match="a ring|a line"):
            while True:
                line.exchange()

    hc.run_threads(2, run)


def test_closing_ends_waits_and_later_calls():
    def run(comm):
        line = comm.neighbor_exchange()
        if comm.rank == 0:
            round = line.start()
            session = line.session(1)
            closer = threading.Timer(0.2, comm.close)
            closer.start()
            with pytest.raises(hc.ClosedError, match="the communicator was closed"):
                round.wait()
            closer.join()
            for call in (line.exchange, lambda: line.statistics, session.round, lambda: comm.neighbor_exchange()):
                with pytest.raises(hc.ClosedError):
                    call()
        else:
            with pytest.raises((hc.PacketExchangeError, hc.CommunicatorError)):
                line.exchange(id=3)

    hc.run_threads(2, run)


def test_a_forked_child_is_told():
    ends_well(
        """
        import os, warnings
        warnings.simplefilter("ignore")
        comm = hc.init()
        line = comm.neighbor_exchange(periodic=True)
        round = line.start(right=b"x")
        came = line.exchange(right=b"y", id=1)[0]
        session = line.session(2)
        sparse = hc.SparseAlltoall(comm, [])
        if os.fork() == 0:
            uses = (line.exchange, round.wait, round.is_ready, session.round, sparse.wait, lambda: bytes(came.payload))
            for use in uses:
                try:
                    use()
                except hc.ForkedError:
                    pass
                else:
                    raise AssertionError(use)
            del line, round, came, session, sparse
            os._exit(0)
        assert os.wait()[1] == 0
        assert bytes(round.wait()[0].payload) == b"x"
        print("notified")
        """,
        says="notified",
    )


@pytest.mark.parametrize("waits", ["line.exchange()", "line.start().wait()", "line.session().round()", "asyncio.run(wait())"])
def test_ctrl_c_ends_a_wait(waits):
    ends_well(
        f"""
        import asyncio, os, signal, threading
        from halocline._core import ThreadGroup
        comm, other = ThreadGroup(2).ranks
        def begin(comm, lines):
            lines.append(comm.neighbor_exchange())
        lines = []
        begin(comm, lines), begin(other, lines)
        line = lines[0]
        async def wait():
            await line.start()
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            {waits}
        except KeyboardInterrupt:
            print("interrupted")
        """,
        says="interrupted",
    )
