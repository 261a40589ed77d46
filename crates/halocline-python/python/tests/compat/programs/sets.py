"""The algebra of cartesian sets, and the halos that generators make, as sorted points."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from common import Findings, main
from ghex.structured import regular
from ghex.structured.cartesian_sets import IndexSpace, ProductSet, UnitRange, union


def points(cells: Any) -> np.ndarray:
    return np.array(sorted(set(cells)), dtype=np.int64)


def ranges() -> list[UnitRange]:
    return [UnitRange(start, stop) for start, stop in itertools.combinations(range(0, 7, 2), 2)]


def run(comm: Any) -> Findings:
    findings = Findings(comm)
    for one, other in itertools.product(ranges(), ranges()):
        these, others = set(one), set(other)
        numbers = [
            (union(one, other), these | others),
            (one.intersect(other), these & others),
            (one.without(other), these - others),
            (one.complement(other), others - these),
        ]
        for at, (found, wanted) in enumerate(numbers):
            findings.add(f"{one}, {other}, {at}", points(found), points(wanted))
            assert found.size == len(wanted) and found.empty == (not wanted)
            assert all(number in found for number in wanted)
        assert one.issubset(other) == (these <= others)
        assert (one == other) == (these == others)
        assert (union(one, other) == union(other, one)) is True
    for boxes in itertools.product(
        [ProductSet(*two) for two in itertools.product(ranges()[:4], ranges()[2:5])], repeat=2
    ):
        one, other = boxes
        these, others = set(one), set(other)
        products = [
            (union(one, other), these | others),
            (one.intersect(other), these & others),
            (one.without(other), these - others),
            (union(one, other).without(one), others - these),
            (union(one, other).translate(3, -2), {(x + 3, y - 2) for x, y in these | others}),
        ]
        for at, (found, wanted) in enumerate(products):
            findings.add(f"{one}, {other}, {at}", points(found), points(wanted))
            assert found.size == len(wanted) and found.empty == (not wanted)
    box = ProductSet(UnitRange(2, 6), UnitRange(0, 5))
    findings.add("extended", points(box.extend(1, (0, 2))), points(itertools.product(range(1, 7), range(7))))
    assert box[0, 0] == (2, 0) and box[-1, -1] == (5, 4) and box[1:3, :] == ProductSet(UnitRange(3, 5), UnitRange(0, 5))
    assert box.shape == (4, 5) and box.size == 20 and box.ndim == 2 and (3, 4) in box and (6, 4) not in box
    spaces(findings)
    halos(findings)
    return findings


def spaces(findings: Findings) -> None:
    space = IndexSpace.from_sizes(7, 5, 3)
    for at, piece in space.decompose((2, 2, 1)).items():
        findings.add(f"piece {at}", points(piece.subset["definition"]), points(piece.bounds))
        assert piece.default_origin == tuple(start for start, _ in piece.bounds.as_tuple())
    assert space.decompose((2, 2, 1))[1, 1, 0].shape == (4, 3, 3)
    moved = space.translate(1, 2, 3)
    findings.add("moved", points(moved[0:1, 0:1, 0:2]), points([(1, 2, 3), (1, 2, 4)]))


def halos(findings: Findings) -> None:
    whole = ProductSet(UnitRange(1, 9), UnitRange(0, 6))
    for widths, periodic in [((1, (2, 0)), (True, True)), (((0, 2), 1), (False, True)), ((2, 2), (False, False))]:
        generator = regular.HaloGenerator(whole, widths, periodic)
        for number, at in enumerate([(1, 5), (5, 9)]):
            domain = regular.DomainDescriptor(number, ProductSet(UnitRange(*at), UnitRange(0, 6)))
            assert domain.first() == (at[0], 0) and domain.last() == (at[1] - 1, 5) and domain.domain_id() == number
            found = generator(domain)
            local, copied = expected_halo(at, widths, periodic)
            findings.add(f"local halo {widths}, {number}", points(found.local), points(local))
            findings.add(f"global halo {widths}, {number}", points(found.global_), points(copied))


def expected_halo(at: Any, widths: Any, periodic: Any) -> tuple[set[Any], set[Any]]:
    (low, high), (left, right) = (width if isinstance(width, tuple) else (width, width) for width in widths)
    local, copied = set(), set()
    for x, y in itertools.product(range(-low, 4 + high), range(-left, 6 + right)):
        if 0 <= x < 4 and 0 <= y < 6:
            continue
        local.add((x, y))
        across = (x + at[0] - 1) % 8 + 1 if periodic[0] else x + at[0]
        copied.add((across, y % 6 if periodic[1] else y))
    return local, copied


if __name__ == "__main__":
    main(run)
