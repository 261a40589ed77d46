"""Exchanges in the order of streams. Nothing but the end of a test waits on the host: kernels of random length before and after
each exchange, on both ranks, make what is not ordered wrong."""

import os
import random
import re

import libraries
import numpy as np
import pytest
from oracle import expected, start

import halocline as hc

SHAPE, PERIODIC, HALO = (21, 12, 10), (True, False, True), 2
STEP = 1000.0
ROUNDS = 6
# Of ranks that share a process and a GPU, the default stream is one, so that what one rank waits for is behind its wait; these are it, or wait for it.
DEFAULTS = {"None", "cupy null", "per thread", "__cuda_stream__", "Numba's default", "torch's default"}
IS_SHARED = bool(os.environ.get("HALOCLINE_TEST_SHARED"))


class Case:
    """A field of a rank whose owned cells grow by ``STEP`` a round."""

    def __init__(self, comm, engine, seed=0, periodic=PERIODIC):
        self.comm, self.engine, self.periodic = comm, engine, periodic
        self.random = random.Random(seed * 100 + comm.rank)
        self.pattern = hc.RegularGrid(SHAPE, periodic=periodic).decompose(comm).pattern(HALO)
        (self.domain,) = self.pattern.domains
        self.begin = start(self.domain, SHAPE)
        self.field = engine.array(self.begin)
        grow = np.zeros(self.domain.shape)
        grow[self.domain.owned] = STEP
        self.grow = engine.array(grow)
        self.seen = engine.array(np.zeros((ROUNDS, *self.domain.shape)))
        engine.synchronise()

    def bind(self, **options):
        return hc.HaloExchange(self.comm, [(self.pattern, self.field)], deadline=20, **options)

    def expected(self, count):
        """After so many times of growth."""
        truth = expected(self.domain, SHAPE, self.periodic)
        return np.where(truth == -1, -1, truth + STEP * count)

    def spin(self):
        self.engine.spin(self.random.choice([0, 0, 0.3, 2, 6]))

    def check(self, rounds=ROUNDS):
        self.engine.synchronise()
        seen = self.engine.host(self.seen)
        for count in range(rounds):
            np.testing.assert_array_equal(seen[count], self.expected(count + 1), err_msg=f"round {count}")


@pytest.mark.parametrize(("inline", "stream_waits"), [(False, False), (True, False), (False, True)])
def test_every_kind_of_stream_orders_an_exchange(together, engine, inline, stream_waits):
    def rank(comm):
        mine = engine(comm.rank)
        with mine.here():
            for number, (name, (stream, given)) in enumerate(mine.streams().items()):
                if IS_SHARED and name in DEFAULTS:
                    continue
                case = Case(comm, mine, number)
                halo = case.bind(inline=inline, stream_waits=stream_waits, name=name)
                # Only streams of devices wait; exchanges of the host's arrays say nothing of it.
                is_refused = "not in one: `stream_waits`" in halo.explain()
                assert is_refused == (stream_waits and engine is not libraries.OnHost)
                if inline and name == "per thread":
                    continue
                with mine.on(stream):
                    for count in range(ROUNDS):
                        case.spin()
                        mine.add(case.field, case.grow)
                        pending = halo.schedule_exchange(given)
                        case.spin()
                        (pending if count % 2 else halo).schedule_wait(given)
                        case.spin()
                        mine.copy(case.seen[count], case.field)
                case.check()
                halo.wait()
        return f"{mine.name}: {', '.join(mine.streams())}; {sorted({way for _, _, way in halo.links})}"

    together(rank)


def test_an_option_wins_over_the_environment(together, engine, monkeypatch):
    monkeypatch.setenv("HALOCLINE_STREAM_WAITS", "1")

    def rank(comm):
        with engine(comm.rank).here():
            case = Case(comm, engine(comm.rank), 0)
            for chosen in (None, False):
                is_refused = "not in one: `stream_waits`" in case.bind(stream_waits=chosen).explain()
                assert is_refused == (chosen is None and engine is not libraries.OnHost)

    together(rank)


def test_several_streams_are_waited_for_and_another_one_goes_on(together, main_engine):
    def rank(comm):
        mine = main_engine(comm.rank)
        with mine.here():
            case = Case(comm, mine)
            halo = case.bind()
            streams = list(mine.streams().values())[-2:]
            (first, first_given), (second, second_given) = streams[0], streams[-1]
            for count in range(ROUNDS):
                with mine.on(first):
                    case.spin()
                    mine.add(case.field, case.grow)
                # After the second one, too: it still reads the halo.
                halo.schedule_exchange([first_given, second_given]).schedule_wait(second_given)
                with mine.on(second):
                    case.spin()
                    mine.copy(case.seen[count], case.field)
                mine.after(first, second)
            case.check()

    together(rank)


def test_plain_exchanges_come_after_the_streams_that_are_named(together, main_engine):
    def rank(comm):
        mine = main_engine(comm.rank)
        with mine.here():
            for form in ("default", "bind", "call", "tasks"):
                case = Case(comm, mine)
                stream, given = list(mine.streams().values())[0 if form == "default" else -1]
                halo = case.bind(streams=[given]) if form == "bind" else case.bind()
                options = {"streams": [given]} if form in ("call", "tasks") else {}
                for count in range(ROUNDS):
                    with mine.on(stream):
                        case.spin()
                        mine.add(case.field, case.grow)
                    if form == "tasks":
                        wait_in_a_task(halo, options)
                    elif count % 2:
                        halo.exchange(**options)
                    else:
                        halo.exchange(wait=False, **options).wait()
                    with mine.on(stream):
                        mine.copy(case.seen[count], case.field)
                case.check()

    together(rank)


def wait_in_a_task(halo, options):
    import asyncio

    async def main():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.ensure_future(tick())
        await asyncio.wait_for(halo.exchange_async(**options), 20)
        ticking.cancel()

    asyncio.run(main())


def test_many_are_in_flight_and_alternatives_narrowed_and_mixed_fields_are_ordered(together, main_engine):
    def rank(comm):
        mine = main_engine(comm.rank)
        with mine.here():
            case = Case(comm, mine)
            fields = [case.field, mine.array(case.begin)]
            halo = hc.HaloExchange.alternatives(comm, [[(case.pattern, f)] for f in fields], deadline=20)
            stream, given = list(mine.streams().values())[-1]
            pendings = []
            in_flight = ROUNDS if mine.device is not None else 1
            with mine.on(stream):
                case.spin()
                for count in range(ROUNDS):
                    # One is made of the other, as in a time loop.
                    now, later = fields[count % 2], fields[(count + 1) % 2]
                    mine.copy(later, now)
                    mine.add(later, case.grow)
                    pendings.append(halo.schedule_exchange(given, set=(count + 1) % 2))
                    pendings[-1].schedule_wait(given)
                    mine.copy(case.seen[count], later)
            assert len(pendings) >= in_flight
            case.check()
            for pending in pendings:
                pending.wait()
                assert pending.is_ready()
            assert [p.epoch for p in pendings] == list(range(1, ROUNDS + 1))

            on_host = case.begin.copy()
            mixed = hc.HaloExchange(comm, [(case.pattern, on_host), (case.pattern, fields[0])], deadline=20)
            with mine.on(stream):
                mine.copy(fields[0], mine.array(case.begin))
            mixed.schedule_exchange(given).schedule_wait(given)
            np.testing.assert_array_equal(on_host, case.expected(0))
            mine.synchronise()
            np.testing.assert_array_equal(mine.host(fields[0]), case.expected(0))

            narrow = mixed.narrowed(1)
            fresh = mine.array(case.begin)
            mine.synchronise()
            mine.copy(fields[0], fresh)
            mine.synchronise()
            narrow.exchange()
            filled = mine.host(fields[0])
            inside = [slice(1, -1) if low else slice(None) for low, _ in case.domain.halo]
            np.testing.assert_array_equal(filled[tuple(inside)], case.expected(0)[tuple(inside)])
            comm.barrier()

    together(rank)


@pytest.mark.parametrize("ll", [2**20, "never"])
def test_small_messages_use_the_ll_protocol_where_that_is_asked_for(together, cupy_engine, ll):
    def rank(comm):
        mine = cupy_engine(comm.rank)
        with mine.here():
            case = Case(comm, mine)
            is_direct = re.search(r"^from rank \d+ +direct", case.bind(ll="never").explain(), re.MULTILINE) is not None
            halo = case.bind(ll=ll)
            text = halo.explain()
            assert ("LL" in text) == (is_direct and ll != "never"), text
            stream, given = list(mine.streams().values())[-1]
            with mine.on(stream):
                for count in range(ROUNDS):
                    case.spin()
                    mine.add(case.field, case.grow)
                    halo.schedule_exchange(given).schedule_wait(given)
                    mine.copy(case.seen[count], case.field)
            case.check()

    together(rank)


@pytest.mark.parametrize("inline", [False, True])
def test_redistributions_take_their_place_in_the_order_of_a_stream(together, main_engine, inline):
    def rank(comm):
        mine = main_engine(comm.rank)
        truth = np.arange(24.0 * 20).reshape(24, 20)
        grid = hc.RegularGrid(truth.shape)
        rows, columns = grid.decompose_into((comm.size, 1), comm), grid.decompose_into((1, comm.size), comm)
        way = hc.Redistribute.regular(comm, (rows, 0), (columns, 0))
        begin, want = (np.split(truth, comm.size, axis)[comm.rank] for axis in (0, 1))
        with mine.here():
            field, grow = mine.array(begin), mine.array(np.full(begin.shape, STEP))
            target, seen = mine.array(np.zeros(want.shape)), mine.array(np.zeros((ROUNDS, *want.shape)))
            mine.synchronise()
            stream, given = list(mine.streams().values())[-1]
            moved = way.bind(comm, [field], [target], deadline=20, inline=inline, streams=[given])
            with mine.on(stream):
                for count in range(ROUNDS):
                    mine.spin(count % 3)
                    mine.add(field, grow)
                    if count % 2:
                        moved.exchange()
                    else:
                        moved.schedule_exchange(given).schedule_wait(given)
                    mine.copy(seen[count], target)
            mine.synchronise()
            for count, shown in enumerate(mine.host(seen)):
                np.testing.assert_array_equal(shown, want + STEP * (count + 1), err_msg=f"round {count}")

    together(rank)


def test_messages_by_hand_are_packed_and_unpacked_in_the_order_of_a_stream(together, main_engine):
    """What a GPU packs is what the host packs of the same cells."""

    def rank(comm):
        mine = main_engine(comm.rank)
        with mine.here():
            # Nothing stays within a rank, which would be no message.
            case = Case(comm, mine, periodic=(False, False, False))
            halo = case.bind()
            on_host = case.begin.copy()
            same = hc.HaloExchange(comm, [(case.pattern, on_host)], deadline=20)
            stream, given = list(mine.streams().values())[-1]
            sends = [peer for peer, direction, _ in halo.links if direction == "send"]
            receives = [peer for peer, direction, _ in halo.links if direction == "receive"]
            out = {peer: mine.array(np.zeros(halo.message_bytes(peer, "send"), "uint8")) for peer in sends}
            into = {peer: mine.array(np.zeros(halo.message_bytes(peer, "receive"), "uint8")) for peer in receives}
            mine.synchronise()
            for count in range(ROUNDS):
                on_host[case.domain.owned] += STEP
                with mine.on(stream):
                    case.spin()
                    mine.add(case.field, case.grow)
                    for peer in sends:
                        halo.pack(peer, out[peer], given)
                mine.synchronise()
                for peer in range(comm.size):
                    packed = mine.host(out[peer]).tobytes() if peer in out else b""
                    if peer in out:
                        message = bytearray(len(packed))
                        same.pack(peer, message)
                        assert packed == bytes(message)
                    # What every rank has for this one.
                    gathered = comm.all_gather(packed)
                    if peer == comm.rank:
                        arrived = gathered
                with mine.on(stream):
                    for peer in receives:
                        mine.copy(into[peer], mine.array(np.frombuffer(arrived[peer], "uint8")))
                        case.spin()
                        halo.unpack(peer, into[peer], given)
                    mine.copy(case.seen[count], case.field)
            case.check()
            for peer in sends:
                with pytest.raises(hc.HaloValueError, match="bytes"):
                    halo.pack(peer, out[peer][1:], given)
            comm.barrier()

    together(rank)


def test_what_is_dropped_in_flight_goes_on_in_its_own_memory(together, main_engine):
    """New arrays are not written by exchanges of old ones."""

    def rank(comm):
        mine = main_engine(comm.rank)
        with mine.here():
            stream, given = list(mine.streams().values())[-1]
            for number in range(4):
                case = Case(comm, mine, number)
                halo = case.bind()
                with mine.on(stream):
                    mine.spin(10)
                    mine.add(case.field, case.grow)
                    pending = halo.schedule_exchange(given)
                shape = case.field.shape
                case.field = None
                del halo, pending
                # A pool would give the memory again at once.
                fresh = [mine.array(np.full(tuple(shape), 5.0)) for _ in range(4)]
                comm.barrier()
                mine.synchronise()
                comm.barrier()
                for array in fresh:
                    assert (mine.host(array) == 5).all()

    together(rank)


def test_unstructured_fields_of_several_dtypes_and_orders(together, cupy_engine):
    def rank(comm):
        mine = cupy_engine(comm.rank)
        cupy = mine.cupy
        n = 64
        owned = np.arange(n * comm.rank, n * comm.rank + n)
        others = np.setdiff1d(np.arange(n * comm.size), owned)
        halo_ids = np.random.default_rng(comm.rank).permutation(others)[: n // 3]
        ids = np.concatenate([owned, halo_ids])
        pattern = hc.Pattern.unstructured(comm, [hc.UnstructuredDomain(comm.rank, owned, halo_ids)])
        with mine.here():
            wants, fields = [], []
            for dtype in ("float64", "float32", "int8", "int32", "bool", "complex128", "float16"):
                for order in "CF":
                    want = (ids[:, None] * 7 + np.arange(5)) % 120
                    want = np.array(want % 2 if dtype == "bool" else want, dtype, order=order)
                    field = cupy.array(want, order=order)
                    field[n:] = 0
                    wants.append(want)
                    fields.append(field)
            wide = cupy.zeros((2 * len(ids), 9), "float64")
            view = wide[::-2, 1::2]
            view[...] = cupy.asarray(wants[0][:, :4])
            view[n:] = -1
            cupy.cuda.Device().synchronize()
            halo = hc.HaloExchange(comm, [(pattern, f) for f in [*fields, view]], deadline=20)
            stream = cupy.cuda.Stream(non_blocking=True)
            halo.schedule_exchange(stream).schedule_wait(stream)
            stream.synchronize()
            for want, field in zip(wants, fields):
                np.testing.assert_array_equal(field.get(), want)
            np.testing.assert_array_equal(view.get(), wants[0][:, :4])
            assert int(cupy.count_nonzero(wide[:, ::2])) == 0

    together(rank)
