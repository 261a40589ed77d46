"""Patterns, tensors and what becomes of them, for the tests of ``halocline.torch``. A test module imports the fixtures that it uses."""

import numpy as np
import pytest
import torch
from global_function import global_function
from gradient_patterns import faces, make_pattern, narrow, ranks, regular, unstructured  # noqa: F401

import halocline as hc
import halocline.torch

torch.set_num_threads(1)

def values(shape, seed, dtype=torch.float64):
    """Small whole numbers: sums of them are exact."""
    return torch.from_numpy(np.random.default_rng(seed).integers(-8, 9, shape)).to(dtype)


def exchanged(comm, pattern, tensor):
    copy = tensor.detach().clone()
    hc.HaloExchange(comm, [(pattern, copy)]).exchange()
    return copy


def reduced(comm, pattern, tensor):
    copy = tensor.detach().clone()
    hc.HaloExchange(comm, [(pattern, copy)]).reduce("sum")
    return copy


def total(comm, value):
    return sum(float(part) for part in comm.all_gather(repr(float(value)).encode()))


def check_gradients(comm, function, shapes, dtype=torch.float64):
    of_all, whole = global_function(comm, function, shapes, dtype)
    # Generators of random numbers are shared by threads, so what gradcheck would choose at random is given.
    upstream = torch.linspace(-1, 1, len(whole), dtype=torch.float64).to(dtype).requires_grad_()
    assert torch.autograd.gradcheck(of_all, whole)
    assert torch.autograd.gradgradcheck(of_all, whole, upstream)


@pytest.fixture
def alone():
    comm = hc.run_threads(1, lambda comm: comm)[0]
    pattern = hc.RegularGrid((6,), periodic=(True,)).decompose(comm).pattern(1)
    return comm, pattern, halocline.torch.HaloExchange(comm, pattern)
