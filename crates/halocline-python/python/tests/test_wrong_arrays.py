"""What looks like an array, and is none, or none any more: an error of the package."""

import numpy as np
import pytest

import halocline as hc


def alone():
    comm = hc.run_threads(1, lambda comm: comm)[0]
    return comm, hc.RegularGrid((6,), periodic=(True,)).decompose(comm).pattern(1)


class Masked(np.ma.MaskedArray):
    """Of a module that is not NumPy's."""


def test_masked_arrays_of_other_classes_are_refused():
    comm, pattern = alone()
    masked = Masked(np.zeros(8), mask=[True] + 7 * [False])
    for use in (hc.Field, lambda array: hc.HaloExchange(comm, [(pattern, array)])):
        with pytest.raises(hc.HaloTypeError, match="masked"):
            use(masked)
