"""Halos by NumPy alone: what each cell of a domain with its halo is in the global grid."""

import itertools

import numpy as np


def numbered(shape):
    """A global field whose cells are all different."""
    return np.arange(1, np.prod(shape) + 1, dtype="float64").reshape(shape)


def expected(domain, shape, periodic, faces_only=False, unfilled=-1.0):
    """What the array of a domain holds after an exchange of ``numbered(shape)``: ``unfilled`` where nothing is received."""
    truth = numbered(shape)
    axes = []
    for first, owned, (low, high), cells, wraps in zip(
        domain.first, domain.owned_shape, domain.halo, shape, periodic
    ):
        at = np.arange(first - low, first + owned + high)
        inside = (at >= first) & (at < first + owned)
        there = np.ones(at.shape, bool) if wraps else (at >= 0) & (at < cells)
        axes.append((at % cells, there, inside))
    result = truth[np.ix_(*[at for at, _, _ in axes])].copy()
    filled = np.ones(result.shape, bool)
    outside = np.zeros(result.shape, int)
    for axis, (_, there, inside) in enumerate(axes):
        index = [None] * len(axes)
        index[axis] = slice(None)
        filled &= there[tuple(index)]
        outside += ~inside[tuple(index)]
    if faces_only:
        filled &= outside <= 1
    result[~filled] = unfilled
    return result


def start(domain, shape, unfilled=-1.0):
    """The array of a domain before: its owned cells, and a halo that is not filled."""
    array = np.full(domain.shape, unfilled)
    owned = tuple(slice(first, first + n) for first, n in zip(domain.first, domain.owned_shape))
    array[domain.owned] = numbered(shape)[owned]
    return array


def all_layouts(array):
    """The same values in memory of every layout: C, Fortran, with gaps, downwards, permuted."""
    yield "C", np.array(array, order="C")
    yield "F", np.array(array, order="F")
    wide = np.full([2 * n + 3 for n in array.shape], -7.0)
    gaps = wide[tuple(slice(1, 1 + 2 * n, 2) for n in array.shape)]
    gaps[...] = array
    yield "gaps", gaps
    for flips in itertools.product([1, -1], repeat=array.ndim):
        down = np.array(array[tuple(slice(None, None, f) for f in flips)], order="C")
        yield f"flipped {flips}", down[tuple(slice(None, None, f) for f in flips)]
