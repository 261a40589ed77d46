"""Reduces and fetches of fields in GPU memory: in the order of streams, and with the bits of fields of the host."""

import libraries
import numpy as np
import pytest

import halocline as hc

SHAPE = (12, 9)


class Case:
    """A field of a rank: halo cells copy some owned cells several times, and sums of the values depend on the order."""

    def __init__(self, comm, engine, step):
        self.comm, self.engine = comm, engine
        self.pattern = hc.RegularGrid(SHAPE, periodic=(True, True)).decompose(comm).pattern(2)
        random = np.random.default_rng(100 * step + comm.rank)
        self.begin = random.standard_normal(self.pattern.shape) * 10.0 ** random.integers(-8, 8, self.pattern.shape)
        self.field, self.other = engine.array(self.begin), engine.array(self.begin)
        engine.synchronise()

    def on_the_host(self, combine):
        """What becomes of twice these values there."""
        copy = 2 * self.begin
        combine(hc.HaloExchange(self.comm, [(self.pattern, copy)], deadline=20))
        return copy

    def double(self):
        """In the order of the current stream, late."""
        self.engine.spin(3)
        self.engine.add(self.field, self.other)

    def check(self, expected):
        self.engine.synchronise()
        assert self.engine.host(self.field).tobytes() == expected.tobytes()


@pytest.mark.parametrize("op", ["sum", "product", "max", "replace"])
@pytest.mark.parametrize("form", ["scheduled", "waited for"])
def test_a_reduce_has_the_bits_of_the_host(together, main_engine, form, op):
    def rank(comm):
        mine = main_engine(comm.rank)
        with mine.here():
            for step, keep in enumerate([False, True]):
                case = Case(comm, mine, step)
                stream, given = list(mine.streams().values())[-1]
                halo = hc.HaloExchange(comm, [(case.pattern, case.field)], streams=[given], deadline=20)
                with mine.on(stream):
                    case.double()
                    if form == "scheduled":
                        halo.schedule_reduce(op, given, keep=keep).schedule_wait(given)
                    else:
                        halo.reduce(op, keep=keep)
                case.check(case.on_the_host(lambda halo, keep=keep: halo.reduce(op, keep=keep)))

    together(rank)


@pytest.mark.parametrize("op", ["sum", "product", "max", "replace"])
def test_a_fetch_follows_the_streams_and_has_the_bits_of_the_host(together, main_engine, op):
    def rank(comm):
        mine = main_engine(comm.rank)
        with mine.here():
            case = Case(comm, mine, 3)
            stream, given = list(mine.streams().values())[-1]
            halo = hc.HaloExchange(comm, [(case.pattern, case.field)], streams=[given], deadline=20)
            with mine.on(stream):
                case.double()
                halo.fetch_and_op(op)
            case.check(case.on_the_host(lambda halo: halo.fetch_and_op(op)))
        return f"{mine.name}: {op}, {comm.size} ranks"

    together(rank)
