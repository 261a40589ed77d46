"""Sessions of rounds in tasks of asyncio."""

import asyncio
import gc
import weakref

import pytest

import halocline as hc


def payload(turn):
    return turn if turn in (None, "last") else bytes(turn.payload)


def sides(comm, turn):
    """What a rank sends to the sides where it has a neighbour."""
    return {"left": turn if comm.rank > 0 else None, "right": turn if comm.rank + 1 < comm.size else None}


def test_rounds_are_awaited(ranks):
    def run(comm):
        line = comm.neighbor_exchange()

        async def main():
            async with line.session(3) as session:
                for turn in range(100):
                    came = await session.start(**sides(comm, b"%d" % turn))
                    want = [b"%d" % turn if side is not None else "last" for side in line.neighbors]
                    assert [payload(one) for one in came] == want
            with pytest.raises(hc.HaloValueError, match="the session of operation 3 was finished; open another one"):
                session.start()
            # The id is free.
            await line.start(id=3)

        asyncio.run(main())

    hc.run_threads(ranks, run)


def test_several_sessions_at_once():
    def run(comm):
        line = comm.neighbor_exchange(periodic=True)

        async def one(id):
            async with line.session(id) as session:
                for turn in range(30):
                    from_left, from_right = await session.start(right=b"%d %d" % (id, turn))
                    assert payload(from_left) == b"%d %d" % (id, turn) and from_right is None

        async def main():
            order = [4, 5, 6, 7] if comm.rank % 2 else [7, 6, 5, 4]
            await asyncio.gather(*map(one, order))

        asyncio.run(main())

    hc.run_threads(3, run)


@pytest.mark.parametrize("is_async", [True, False])
def test_a_rank_that_only_receives_iterates(is_async):
    def run(comm):
        line = comm.neighbor_exchange()
        session = line.session()
        if comm.rank == 0:
            for turn in range(5):
                session.round(right=b"%d" % turn)
            session.finish()
            return

        async def steps():
            return [came async for came in session]

        came = asyncio.run(steps()) if is_async else list(session)
        assert [payload(left) for left, _ in came] == [b"0", b"1", b"2", b"3", b"4", "last"]
        assert all(right == "last" for _, right in came) and session.is_over
        session.finish()
        assert list(session) == []

    hc.run_threads(2, run)


def test_cancelling_leaves_the_round_in_flight():
    def run(comm):
        line = comm.neighbor_exchange()
        session = line.session()
        side = "right" if comm.rank == 0 else "left"
        for turn in range(60):
            if comm.rank == 0:
                round = session.start(**{side: b"%d" % turn})

                async def main():
                    async def wait():
                        return await round

                    task = asyncio.ensure_future(wait())
                    for _ in range(turn % 4):
                        await asyncio.sleep(0)
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task
                    assert not round.is_ready()
                    with pytest.raises(hc.InFlightError):
                        session.start()

                asyncio.run(main())
            comm.barrier()
            if comm.rank == 1:
                round = session.start(**{side: b"%d" % turn})
            if turn % 3 == 0:
                # The session has it, also where the round was dropped.
                del round
                came = session.wait()
            else:
                came = round.wait()
                assert round.wait() is came and round.is_ready()
            assert payload(came[1 - comm.rank]) == b"%d" % turn
            with pytest.raises(hc.InFlightError, match="was taken before"):
                session.wait()
        session.finish()

    hc.run_threads(2, run)


def test_a_step_that_is_cancelled_gives_its_packets_to_the_next_one():
    def run(comm):
        line = comm.neighbor_exchange()
        session = line.session()
        if comm.rank == 0:
            comm.barrier()
            for turn in range(3):
                session.round(right=b"%d" % turn)
            session.finish()
            return

        async def main():
            async def step():
                return await session.__anext__()

            task = asyncio.ensure_future(step())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.get_running_loop().run_in_executor(None, comm.barrier)
            return [payload(left) async for left, _ in session]

        assert asyncio.run(main()) == [b"0", b"1", b"2", "last"]

    hc.run_threads(2, run)


def test_a_block_that_raises_gives_the_session_up():
    def run(comm):
        line = comm.neighbor_exchange()

        async def main():
            async with line.session() as session:
                await session.start()
                if comm.rank == 0:
                    raise ZeroDivisionError("zero")
                round = session.start()
                try:
                    await round
                finally:
                    # It stays so.
                    with pytest.raises(hc.PacketExchangeError, match="a last turn to both sides"):
                        round.wait()

        with pytest.raises(ZeroDivisionError if comm.rank == 0 else hc.PacketExchangeError, match="zero|a last turn to both sides"):
            asyncio.run(main())
        # Other operations go on.
        comm.barrier()
        line.exchange(id=5)

    hc.run_threads(2, run)


def test_finish_async_ends_both_directions():
    def run(comm):
        line = comm.neighbor_exchange()

        async def main():
            session = line.session()
            await session.start(**sides(comm, b"x"))
            await session.finish_async()
            assert session.is_over
            await session.finish_async()

        asyncio.run(main())

    hc.run_threads(3, run)


def test_a_deadline_ends_an_await():
    def run(comm):
        line = comm.neighbor_exchange(deadline=0.2)
        if comm.rank == 0:

            async def main():
                await line.session(5).start()

            with pytest.raises(hc.CommunicatorTimeoutError, match="in operation 5 for rank 1, its right neighbour"):
                asyncio.run(main())
        comm.barrier()

    hc.run_threads(2, run)


def test_nothing_is_kept():
    def run(comm):
        line = comm.neighbor_exchange(periodic=True)
        session = line.session()
        gone = weakref.ref(session)

        async def main():
            round = session.start(right=b"x")
            round.add_done_callback(lambda round: None)
            await round
            return weakref.ref(round)

        of_round = asyncio.run(main())
        session.finish()
        del session
        line.exchange()
        gc.collect()
        line.exchange()
        gc.collect()
        assert gone() is None and of_round() is None

    hc.run_threads(1, run)
