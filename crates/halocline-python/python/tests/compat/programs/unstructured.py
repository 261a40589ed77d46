"""Unstructured grids: several domains a rank, cells in any order, levels in either order, every dtype, halos in part."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from common import DTYPES, Findings, main, untouched, values
from ghex import unstructured
from ghex.context import make_context

CELLS = 360
REACH = 3
"""A cell's neighbours are so many cells before and after it, in a ring."""

MOST = 16
"""Domains in all: with 24, GHEX 0.9 leaves halo cells as they were."""

# Domains a rank, levels (0: one-dimensional arrays), whether cells are shuffled.
CASES = [(1, 0, False), (1, 4, True), (3, 5, True), (2, 1, False)]


class Domain:
    """Consecutive cells of the ring and their neighbours, and what arrays of them hold."""

    def __init__(self, number: int, domains: int, levels: int, shuffled: bool) -> None:
        first, end = (at * CELLS // domains for at in (number, number + 1))
        owned = np.arange(first, end)
        around = np.concatenate([np.arange(first - REACH, first), np.arange(end, end + REACH)]) % CELLS
        self.ids = np.concatenate([owned, np.setdiff1d(around, owned)])
        if shuffled:
            np.random.default_rng(number).shuffle(self.ids)
        self.is_owned = np.isin(self.ids, owned)
        self.halo = np.flatnonzero(~self.is_owned)
        self.levels = levels
        self.descriptor = unstructured.DomainDescriptor(number, self.ids.tolist(), self.halo.tolist())
        assert self.descriptor.domain_id() == number
        assert self.descriptor.size() == len(self.ids)
        assert self.descriptor.inner_size() == end - first
        assert list(self.descriptor.indices()) == self.ids.tolist()

    def full(self, field: int, dtype: type) -> np.ndarray:
        numbers = self.ids
        if self.levels:
            numbers = numbers[:, None] * self.levels + np.arange(self.levels)
        return values(numbers, field, dtype)

    def array(self, field: int, dtype: type, order: str) -> np.ndarray:
        array = np.array(self.full(field, dtype), order=order)  # type: ignore[call-overload]
        array[self.halo] = untouched(dtype)
        return array  # type: ignore[no-any-return]

    def expected(self, field: int, dtype: type, is_filled: np.ndarray) -> np.ndarray:
        expected = self.full(field, dtype)
        expected[~(self.is_owned | is_filled)] = untouched(dtype)
        return expected


def run(comm: Any) -> Findings:
    context, findings = make_context(comm, False), Findings(comm)
    for number, (per_rank, levels, shuffled) in enumerate(CASES):
        per_rank = min(per_rank, MOST // comm.size)
        mine = range(comm.rank * per_rank, (comm.rank + 1) * per_rank)
        domains = [Domain(at, comm.size * per_rank, levels, shuffled) for at in mine]
        everything = unstructured.make_pattern(
            context, unstructured.HaloGenerator(), [domain.descriptor for domain in domains]
        )
        exchange_all(context, findings, f"case {number}", everything, domains, [])
        # Of the halo, only the cells with even ids, on one domain a rank: GHEX wants ids that all its domains have.
        if per_rank == 1:
            odd = domains[0].ids[domains[0].halo]
            even = odd[odd % 2 == 0]
            in_part = unstructured.make_pattern(
                context, unstructured.HaloGenerator.from_gids(even.tolist()), [domains[0].descriptor]
            )
            exchange_all(context, findings, f"case {number} in part", in_part, domains, even)
    return findings


def exchange_all(context: Any, findings: Findings, name: str, pattern: Any, domains: Any, only: Any) -> None:
    communication = unstructured.make_communication_object(context)
    for (at, dtype), order in itertools.product(enumerate(DTYPES), "CF"):
        fields = 1 + at % 3
        arrays = [[domain.array(field, dtype, order) for domain in domains] for field in range(fields)]
        descriptors = [
            unstructured.make_field_descriptor(domain.descriptor, array)
            for row in arrays
            for domain, array in zip(domains, row)
        ]
        buffers = [pattern(descriptor) for descriptor in descriptors]
        if len(buffers) <= 3 and order == "C":
            handle = communication.exchange(*buffers)
        else:
            handle = communication.exchange(buffers)
        handle.wait()
        for field, row in enumerate(arrays):
            for domain, array in zip(domains, row):
                filled = np.isin(domain.ids, only) if len(only) else np.ones(len(domain.ids), bool)
                what = f"{name}, field {field}, {dtype.__name__} in {order} order"
                findings.add(what, array, domain.expected(field, dtype, filled))


if __name__ == "__main__":
    main(run)
