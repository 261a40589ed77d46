"""Packets that were received stay retrievable where a callback raises, or Ctrl-C ends the call that received them."""

import gc
import threading
import time

import pytest
from child import ends_well

import halocline as hc

# Each rank: until it has the packets. What a callback of either rank raises may come in a call of either.
PROGRAM = """
    import threading
    raised = []
    class Stop(BaseException):
        pass
    def stop(of):
        raised.append(of)
        raise Stop
    def once(call, *arguments):
        try:
            call(*arguments)
        except Stop:
            pass
    def until_it_succeeds(call, *arguments, **options):
        while True:
            try:
                return call(*arguments, **options)
            except Stop:
                pass
"""


def in_a_child(body, says):
    ends_well(f"{PROGRAM}{body}", says=says, timeout=20)


def test_a_round():
    in_a_child(
        """
    def run(comm):
        line = comm.neighbor_exchange()
        side = "right" if comm.rank == 0 else "left"
        for turn in range(200):
            round = until_it_succeeds(line.start, **{side: b"%d" % turn})
            once(round.add_done_callback, stop)
            came = until_it_succeeds(round.wait)
            assert bytes(came[1 - comm.rank].payload) == b"%d" % turn
            assert until_it_succeeds(round.wait) is came
    hc.run_threads(2, run)
    print(len(raised))
    """,
        says="400",
    )


def test_a_session():
    in_a_child(
        """
    def run(comm):
        line = comm.neighbor_exchange()
        session = line.session(1)
        side = "right" if comm.rank == 0 else "left"
        for turn in range(200):
            other = until_it_succeeds(line.start)
            once(other.add_done_callback, stop)
            try:
                came = session.round(**{side: b"%d" % turn})
            except Stop:
                # No round begins before these packets were taken.
                try:
                    session.round()
                    raise AssertionError("it has lost packets")
                except hc.InFlightError:
                    pass
                except Stop:
                    pass
                came = until_it_succeeds(session.wait)
            assert bytes(came[1 - comm.rank].payload) == b"%d" % turn
            until_it_succeeds(other.wait)
        until_it_succeeds(session.finish)
    hc.run_threads(2, run)
    print(len(raised))
    """,
        says="400",
    )


def test_a_sparse_alltoall():
    in_a_child(
        """
    def run(comm):
        line, other = comm.neighbor_exchange(), 1 - comm.rank
        for turn in range(100):
            exchange = hc.SparseAlltoall(comm, [other], sources=[other])
            round = until_it_succeeds(line.start)
            once(round.add_done_callback, stop)
            once(exchange.insert, other, b"%d" % turn)
            until_it_succeeds(exchange.finish)
            until_it_succeeds(exchange.wait)
            comm.barrier()
            packets = until_it_succeeds(exchange.extract, other)
            assert [bytes(packet.payload) for packet in packets] == [b"%d" % turn], packets
            until_it_succeeds(round.wait)
    hc.run_threads(2, run)
    print(len(raised))
    """,
        says="200",
    )


def test_ctrl_c_in_a_wait():
    in_a_child(
        """
    import os, signal, threading
    from halocline._core import ThreadGroup
    comm, other = ThreadGroup(2).ranks
    lines = [None, None]
    def of_other():
        lines[1] = other.neighbor_exchange()
    thread = threading.Thread(target=of_other)
    thread.start()
    line = comm.neighbor_exchange()
    thread.join()
    for use in ("round", "session"):
        if use == "round":
            waits = line.start(right=b"mine").wait
            again, theirs = waits, lambda: lines[1].exchange(left=b"theirs")
        else:
            sessions = line.session(1), lines[1].session(1)
            waits = lambda: sessions[0].round(right=b"mine")
            again, theirs = sessions[0].wait, lambda: sessions[1].round(left=b"theirs")
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            waits()
        except KeyboardInterrupt:
            pass
        thread = threading.Thread(target=theirs)
        thread.start()
        thread.join()
        print(bytes(again()[1].payload).decode())
    """,
        says="theirs\ntheirs",
    )


def test_a_callback_may_use_its_session():
    def run(comm):
        line = comm.neighbor_exchange()
        with line.session() as session:
            side, got = "right" if comm.rank == 0 else "left", []
            done = threading.Event()

            def next_round(round):
                came = round.wait()[1 - comm.rank]
                assert round.session is session and round.is_ready()
                got.append(came if came == "last" else bytes(came.payload))
                if len(got) < 5:
                    start(len(got))
                else:
                    done.set()

            def start(turn):
                session.start(**{side: b"%d" % turn if turn < 4 else "last"}).add_done_callback(next_round)

            start(0)
            until = time.monotonic() + 60
            while not done.is_set() and time.monotonic() < until:
                line.statistics
            assert got == [b"0", b"1", b"2", b"3", "last"]

    hc.run_threads(2, run)


def test_a_callback_of_a_sparse_alltoall_is_called_once():
    def run(comm):
        other, called = 1 - comm.rank, []
        exchange = hc.SparseAlltoall(comm, [other], sources=[other])
        exchange.insert(other, b"packet")
        with pytest.raises(hc.HaloTypeError, match="^function: a callable is wanted, not 3$"):
            exchange.add_done_callback(3)
        # Before and after `finish`.
        exchange.add_done_callback(called.append)
        assert called == []
        exchange.finish()
        exchange.add_done_callback(called.append)
        exchange.wait()
        # The call of another rank of this process may run it, after the other one's wait.
        until = time.monotonic() + 60
        while len(called) < 2 and time.monotonic() < until:
            exchange.is_ready()
        assert called == [exchange, exchange]
        exchange.add_done_callback(called.append)
        comm.barrier()
        assert called == [exchange] * 3
        assert [bytes(packet.payload) for packet in exchange.extract(other)] == [b"packet"]

    hc.run_threads(2, run)


def test_a_callback_keeps_no_sparse_alltoall_that_is_dropped_before_its_end():
    def run(comm):
        other = 1 - comm.rank
        exchange = hc.SparseAlltoall(comm, [other], sources=[other])
        exchange.add_done_callback(lambda _: exchange)
        if comm.rank == 0:
            del exchange
            gc.collect()
            comm.barrier()
            return
        exchange.finish()
        with pytest.raises(hc.PacketExchangeError, match="rank 0 has given up the operation: .*dropped before it was finished"):
            exchange.wait()
        comm.barrier()

    hc.run_threads(2, run)
