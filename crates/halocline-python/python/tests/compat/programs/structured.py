"""Regular grids of 1 to 3 dimensions: asymmetric halos, periodic and not, several domains a rank, every dtype and order."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from common import DTYPES, Findings, main, untouched, values
from ghex.context import make_context
from ghex.structured import regular
from ghex.structured.cartesian_sets import ProductSet, UnitRange

# Shape of the grid, where it begins, halos, periodicity, domains a rank.
CASES: list[Any] = [
    ((40,), (0,), (1,), (True,), 1),
    ((40,), (5,), ((2, 1),), (False,), 2),
    ((33, 34), (0, 0), (1, 2), (True, True), 1),
    ((33, 34), (3, -4), ((1, 2), (0, 3)), (True, False), 2),
    ((32, 35), (0, 0), ((0, 2), (1, 0)), (False, False), 1),
    ((32, 16, 12), (0, 0, 0), (1, 1, 1), (True, True, True), 1),
    ((33, 16, 12), (1, 2, 3), ((2, 1), (0, 1), (3, 2)), (True, False, True), 2),
]
FORMS = ["list", "one", "two", "three"]


def cut(shape: tuple[int, ...], number: int) -> list[tuple[tuple[int, int], ...]]:
    """Blocks, as many as asked for, of different sizes: the first axis is cut, and the second if there is one."""
    second = 2 if len(shape) > 1 and number % 2 == 0 else 1
    blocks = [number // second, second, 1, 1][: len(shape)]
    axes = []
    for extent, parts in zip(shape, blocks):
        # Thicker and thinner in turn.
        cuts = [at * extent // parts + (at % 2 if 0 < at < parts else 0) for at in range(parts + 1)]
        axes.append(list(zip(cuts, cuts[1:])))
    return list(itertools.product(*axes))


def widths(halos: Any) -> list[tuple[int, int]]:
    return [halo if isinstance(halo, tuple) else (halo, halo) for halo in halos]


class Domain:
    """A domain and what its arrays hold."""

    def __init__(self, number: int, box: Any, case: Any) -> None:
        shape, first, halos, periodic, _ = case
        self.box, self.halos, self.grid = box, widths(halos), shape
        moved = [UnitRange(start + by, stop + by) for (start, stop), by in zip(box, first)]
        self.descriptor = regular.DomainDescriptor(number, ProductSet(*moved))
        self.extents = tuple(stop - start + low + high for (start, stop), (low, high) in zip(box, self.halos))
        self.offsets = tuple(low for low, _ in self.halos)
        # Of each cell of the array: its number in the grid, and whether there is such a cell.
        there, numbers = np.ones(self.extents, bool), np.zeros(self.extents, np.int64)
        owned = np.ones(self.extents, bool)
        for axis, ((start, stop), (low, high)) in enumerate(zip(box, self.halos)):
            along = np.arange(start - low, stop + high)
            column = (-1,) + (1,) * (len(shape) - axis - 1)
            there &= (np.full(along.shape, periodic[axis]) | ((along >= 0) & (along < shape[axis]))).reshape(column)
            owned &= ((along >= start) & (along < stop)).reshape(column)
            numbers = numbers * shape[axis] + (along % shape[axis]).reshape(column)
        self.there, self.owned, self.numbers = there, owned, numbers

    def array(self, field: int, dtype: type, order: str) -> np.ndarray:
        array = np.full(self.extents, untouched(dtype), dtype=dtype, order=order)  # type: ignore[call-overload]
        array[self.owned] = values(self.numbers, field, dtype)[self.owned]
        return array  # type: ignore[no-any-return]

    def expected(self, field: int, dtype: type) -> np.ndarray:
        return np.where(self.there, values(self.numbers, field, dtype), untouched(dtype)).astype(dtype)


def run(comm: Any) -> Findings:
    context, findings = make_context(comm, False), Findings(comm)
    assert (context.rank(), context.size()) == (comm.rank, comm.size)
    for number, case in enumerate(CASES):
        one_case(context, comm, findings, number, case)
    return findings


def one_case(context: Any, comm: Any, findings: Findings, number: int, case: Any) -> None:
    shape, first, halos, periodic, per_rank = case
    boxes = cut(shape, comm.size * per_rank)
    mine = range(comm.rank * per_rank, (comm.rank + 1) * per_rank)
    domains = [Domain(at, boxes[at], case) for at in mine]
    whole = ProductSet(*(UnitRange(by, by + extent) for by, extent in zip(first, shape)))
    halo_generator = regular.HaloGenerator(whole, halos, periodic)
    pattern = regular.make_pattern(context, halo_generator, [domain.descriptor for domain in domains])
    communication = regular.make_communication_object(context)
    for dtype, order in itertools.product(DTYPES, "CF"):
        form = FORMS[(number + ord(order)) % len(FORMS)] if per_rank == 1 else "list"
        fields = {"one": 1, "two": 2, "three": 3}.get(form, 2)
        arrays = [[domain.array(field, dtype, order) for domain in domains] for field in range(fields)]
        descriptors = [
            regular.make_field_descriptor(domain.descriptor, array, domain.offsets, domain.extents)
            for row in arrays
            for domain, array in zip(domains, row)
        ]
        buffers = [pattern(descriptor) for descriptor in descriptors]
        handle = communication.exchange(buffers) if form == "list" else communication.exchange(*buffers)
        handle.progress()
        handle.wait()
        assert handle.is_ready()
        for field, row in enumerate(arrays):
            for domain, array in zip(domains, row):
                name = f"case {number}, field {field}, {dtype.__name__} in {order} order"
                findings.add(name, array, domain.expected(field, dtype))


if __name__ == "__main__":
    main(run)
