"""GHEX's and icon4py's interfaces with fields of GPUs."""

import os

import numpy as np
import pytest

import halocline as hc
from halocline.compat import ghex, icon4py
from halocline.compat.ghex import unstructured
from halocline.compat.ghex.context import make_context
from halocline.compat.ghex.structured import regular
from halocline.compat.ghex.structured.cartesian_sets import ProductSet, UnitRange
from halocline.compat.ghex.util import Architecture

ROUNDS = 6


def ring(rank, size, owned=32):
    count = owned * size
    ids = np.arange(rank * owned, (rank + 1) * owned)
    return np.concatenate([ids, [(ids[0] - 1) % count, (ids[-1] + 1) % count]]), owned


class Rows:
    """Fields on a ring of cells, with levels, that grow."""

    def __init__(self, mine, comm, levels=5):
        self.mine, (self.ids, self.owned) = mine, ring(comm.rank, comm.size)
        self.want = self.ids[:, None] + np.arange(levels) / 8
        begin = self.want.copy()
        begin[self.owned :] = -1
        grow = np.zeros_like(begin)
        grow[: self.owned] = 1000
        self.field, self.grow = mine.array(begin), mine.array(grow)
        self.seen = mine.array(np.zeros((ROUNDS, *begin.shape)))

    def check(self):
        self.mine.synchronise()
        seen = self.mine.host(self.seen)
        for count in range(ROUNDS):
            np.testing.assert_array_equal(seen[count], self.want + 1000 * (count + 1), err_msg=f"round {count}")


def test_the_configuration_of_ghex_tells_of_gpus(cupy_engine):
    assert ghex.__config__["gpu"] is True and ghex.config()["gpu_mode"] == "cuda"


@pytest.mark.parametrize("is_scheduled", [True, False])
def test_the_interface_of_ghex(together, main_engine, is_scheduled):
    def rank(comm):
        mine = main_engine(comm.rank)
        arch = Architecture.CPU if mine.device is None else Architecture.GPU
        with mine.here():
            context = make_context(comm)
            ids, owned = ring(comm.rank, comm.size)
            domain = unstructured.DomainDescriptor(comm.rank, ids, list(range(owned, len(ids))))
            pattern = unstructured.make_pattern(context, unstructured.HaloGenerator(), [domain])
            object_ = unstructured.make_communication_object(context)
            for name, (stream, given) in mine.streams().items():
                rows = [Rows(mine, comm), Rows(mine, comm, 3)]
                buffers = [pattern(unstructured.make_field_descriptor(domain, row.field, arch=arch)) for row in rows]
                mine.synchronise()
                for count in range(ROUNDS):
                    with mine.on(stream):
                        mine.spin(count % 3)
                        for row in rows:
                            mine.add(row.field, row.grow)
                        if is_scheduled:
                            handle = object_.schedule_exchange(given, buffers)
                            mine.spin(1)
                            handle.schedule_wait(given)
                            assert isinstance(object_.has_scheduled_exchange(), bool)
                        else:
                            # Its contract: the data are complete.
                            mine.synchronise()
                            object_.exchange(*buffers).wait()
                        mine.spin(count % 2)
                        for row in rows:
                            mine.copy(row.seen[count], row.field)
                for row in rows:
                    row.check()
                if mine.device is not None:
                    # Nothing is bound, unless peers are on other nodes: the links are the pattern's.
                    is_by_messages = os.environ.get("HALOCLINE_NODE_AWARE") == "off"
                    assert (pattern._device_links is None) == (pattern._bound is not None) == is_by_messages

    together(rank)


def test_regular_grids_of_ghex_and_temporaries(together, main_engine):
    def rank(comm):
        mine = main_engine(comm.rank)
        arch = Architecture.CPU if mine.device is None else Architecture.GPU
        with mine.here():
            context = make_context(comm)
            shape = (8 * comm.size, 6, 5)
            inner = ProductSet(UnitRange(8 * comm.rank, 8 * comm.rank + 8), UnitRange(0, 6), UnitRange(0, 5))
            grid = ProductSet(*(UnitRange(0, n) for n in shape))
            generator = regular.HaloGenerator(grid, (1, 1, 1), (True, True, True))
            domain = regular.DomainDescriptor(comm.rank, inner)
            pattern = regular.make_pattern(context, generator, [domain])
            object_ = regular.make_communication_object(context)
            truth = np.arange(np.prod(shape), dtype=float).reshape(shape)
            at = [np.arange(first - 1, first + n + 1) % total for first, n, total in zip(domain.first(), (8, 6, 5), shape)]
            want = truth[np.ix_(*at)]
            begin = np.full(want.shape, -1.0)
            begin[1:-1, 1:-1, 1:-1] = want[1:-1, 1:-1, 1:-1]
            stream, given = list(mine.streams().values())[-1]
            for _ in range(12):
                # New arrays each time, whose descriptors nobody holds.
                arrays = [mine.array(begin + 7 * number) for number in range(3)]
                mine.synchronise()
                handle = object_.schedule_exchange(
                    given,
                    [
                        pattern(regular.make_field_descriptor(domain, array, (1, 1, 1), array.shape, arch=arch))
                        for array in arrays
                    ],
                )
                handle.schedule_wait(given)
                mine.synchronise()
                for number, array in enumerate(arrays):
                    np.testing.assert_array_equal(mine.host(array), want + 7 * number)
                del arrays, array, handle
            if mine.device is not None:
                # Host fields beside those of a GPU are an exchange of their own, behind one handle.
                host, array = begin + 90, mine.array(begin + 7)
                own = regular.make_field_descriptor(domain, host, (1, 1, 1), host.shape)
                other = regular.make_field_descriptor(domain, array, (1, 1, 1), array.shape, arch=arch)
                mine.synchronise()
                object_.schedule_exchange(given, [pattern(own), pattern(other)]).wait()
                np.testing.assert_array_equal(host, want + 90)
                np.testing.assert_array_equal(mine.host(array), want + 7)
                with pytest.raises(hc.HaloTypeError, match="Architecture.GPU"):
                    regular.make_field_descriptor(domain, mine.array(begin), (1, 1, 1), begin.shape)

    together(rank)


class DecompositionInfo:
    def __init__(self, rank, size, wrap):
        self.ids, self.owned = ring(rank, size)
        self._global_index = {"Cell": wrap(self.ids)}
        self._owner_mask = {"Cell": wrap(np.arange(len(self.ids)) < self.owned)}

    def global_index(self, dim):
        return self._global_index[dim]

    def owner_mask(self, dim):
        return self._owner_mask[dim]


class Field:
    def __init__(self, ndarray):
        self.ndarray = ndarray


@pytest.mark.parametrize("form", ["stream", "default", "block", "start", "old"])
def test_the_protocol_of_icon4py(together, main_engine, form):
    if main_engine.name == "torch":
        pytest.skip("icon4py has fields of NumPy and CuPy")

    def rank(comm):
        mine = main_engine(comm.rank)
        with mine.here():
            exchange = icon4py.create_exchange(DecompositionInfo(comm.rank, comm.size, mine.array), comm)
            rows = Rows(mine, comm)
            number = 0 if form in ("default", "block") else -1
            stream, given = list(mine.streams().values())[number]
            if form == "default":
                given = icon4py.DEFAULT_STREAM
            mine.synchronise()
            with mine.on(stream):
                for count in range(ROUNDS):
                    mine.spin(count % 3)
                    mine.add(rows.field, rows.grow)
                    field = Field(rows.field)
                    if form == "block":
                        exchange.exchange("Cell", field, stream=icon4py.BLOCK)
                    elif form == "start":
                        result = exchange.start("Cell", field, stream=given)
                        mine.spin(1)
                        assert isinstance(result.is_ready(), bool)
                        result.finish(given)
                    elif form == "old":
                        exchange(field, dim="Cell", stream=given)
                    else:
                        exchange.exchange("Cell", field, stream=given)
                    mine.spin(count % 2)
                    mine.copy(rows.seen[count], rows.field)
            rows.check()

    together(rank)
