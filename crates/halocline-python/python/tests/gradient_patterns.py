"""Patterns for the tests of ``halocline.torch`` and ``halocline.jax``."""

import numpy as np
import pytest

import halocline as hc

RANKS = [1, 2, 3]


def regular(comm):
    """Periodic along one axis; cells beyond the border of the other belong to no message."""
    return hc.RegularGrid((6, 3), periodic=(True, False)).decompose_into((comm.size, 1), comm).pattern([(1, 2), (1, 1)])


def faces(comm):
    return hc.RegularGrid((6, 3), periodic=(True, True)).decompose_into((comm.size, 1), comm).pattern(1, neighbours="faces")


def narrow(comm):
    return hc.RegularGrid((6,), periodic=(True,)).decompose(comm).pattern(2).narrowed(1)


def unstructured(comm):
    """Cells of a ring, owned by turns, with all others as the halo, in an order of their own."""
    cells = np.random.default_rng(comm.rank).permutation(6)
    return hc.Pattern.unstructured(comm, [hc.UnstructuredDomain.from_owners(comm.rank, comm, cells, cells % comm.size)])


PATTERNS = [regular, faces, narrow, unstructured]


@pytest.fixture(params=RANKS)
def ranks(request):
    return request.param


@pytest.fixture(params=PATTERNS, ids=lambda make: make.__name__)
def make_pattern(request):
    return request.param
