"""Sets of integer points as boxes: tuples of one interval (start, stop) for each axis. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

Interval = tuple[float, float]
"""A half-open interval (start, stop) of whole or infinite numbers."""

Box = tuple[Interval, ...]


def canonical(boxes: Iterable[Box]) -> tuple[Box, ...]:
    """The union of boxes in canonical form: disjoint boxes that depend only on the set of points. The set is cut along the first axis
    where its cross-section changes; each cross-section is cut in the same way."""
    boxes = [box for box in boxes if all(start < stop for start, stop in box)]
    if not boxes:
        return ()
    if len(boxes[0]) == 1:
        return tuple(((start, stop),) for start, stop in _merged(box[0] for box in boxes))
    cuts = sorted({cut for box in boxes for cut in box[0]})
    slabs: list[tuple[Interval, tuple[Box, ...]]] = []
    for start, stop in zip(cuts, cuts[1:]):
        across = canonical(box[1:] for box in boxes if box[0][0] <= start and stop <= box[0][1])
        if slabs and slabs[-1][1] == across and slabs[-1][0][1] == start:
            slabs[-1] = ((slabs[-1][0][0], stop), across)
        elif across:
            slabs.append(((start, stop), across))
    return tuple((slab, *rest) for slab, across in slabs for rest in across)


def _merged(intervals: Iterable[Interval]) -> list[Interval]:
    merged: list[Interval] = []
    for start, stop in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], stop))
        else:
            merged.append((start, stop))
    return merged


def intersection(these: Iterable[Box], others: Iterable[Box]) -> Iterator[Box]:
    """The intersection; some of its boxes may be empty."""
    others = tuple(others)
    for one in these:
        for other in others:
            yield tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other))


def difference(these: Iterable[Box], others: Iterable[Box]) -> list[Box]:
    """The difference; disjoint if the first boxes are."""
    rest = list(these)
    for other in others:
        rest = [piece for box in rest for piece in _without(box, other)]
    return rest


def _without(box: Box, other: Box) -> Iterator[Box]:
    shared = next(intersection([box], [other]))
    if any(start >= stop for start, stop in shared):
        yield box
        return
    # The parts before and behind the shared part along each axis, limited to it along earlier axes.
    for axis, ((start, stop), (low, high)) in enumerate(zip(box, shared)):
        for piece in ((start, low), (high, stop)):
            if piece[0] < piece[1]:
                yield (*shared[:axis], piece, *box[axis + 1 :])


def size(boxes: Iterable[Box]) -> float:
    """The number of points of disjoint boxes."""
    total: float = 0
    for box in boxes:
        points: float = 1
        for start, stop in box:
            points *= stop - start
        total += points
    return total


def bounds(boxes: Iterable[Box]) -> Box:
    """The smallest box around boxes, of which there is at least one."""
    axes = zip(*boxes)
    return tuple((min(start for start, _ in axis), max(stop for _, stop in axis)) for axis in map(tuple, axes))
