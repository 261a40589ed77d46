"""What an exchange of PyTorch tensors refuses, and ranks that do different things."""

import warnings

import numpy as np
import pytest

import halocline as hc

torch = pytest.importorskip("torch", reason="torch is not installed")

import halocline.torch  # noqa: E402
from torch_patterns import alone, check_gradients, narrow  # noqa: E402, F401


# --- what is refused -------------------------------------------------------------------------------------------------


def test_tensors_that_are_refused(alone):
    comm, pattern, halo = alone
    cases = [
        (np.zeros(8), "HaloTypeError", r"fields\[0\]: a tensor of PyTorch is wanted, not ndarray; torch.as_tensor"),
        (None, "HaloTypeError", r"a tensor of PyTorch is wanted, not NoneType"),
        (torch.zeros(7), "HaloValueError", r"fields\[0\]: has \(7,\) cells along the axes of its pattern, where domain 0 has \(8,\)"),
        (torch.zeros(()), "HaloValueError", r"a tensor of shape \(\) has no axes \(0,\)"),
        (torch.zeros(8, device="meta"), "HaloTypeError", "a tensor of device meta cannot be exchanged"),
        (torch.zeros(8).to_sparse(), "HaloTypeError", r"layout torch.sparse_coo .* give tensor.to_dense\(\)"),
    ]
    if hasattr(torch, "quantize_per_tensor"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            quantized = torch.quantize_per_tensor(torch.zeros(8), 1, 0, torch.qint8)
        cases.append((quantized, "HaloTypeError", r"tensor.dequantize\(\)"))
    for _ in range(2):
        for call in (halo, halo.reduce, halo.exchange_):
            for tensor, error, text in cases:
                with pytest.raises(getattr(hc, error), match=text):
                    call(tensor)
        # None of these took an epoch.
        assert halo(torch.arange(8)).tolist() == [6, 1, 2, 3, 4, 5, 6, 1]


def test_one_bad_tensor_of_several_is_named(alone):
    _, _, halo = alone
    with pytest.raises(hc.HaloTypeError, match=r"fields\[1\]: a tensor of PyTorch is wanted, not list"):
        halo(torch.zeros(8), [[0.0] * 8], torch.zeros(8))
    with pytest.raises(hc.HaloValueError, match=r"fields\[1\]: has \(9,\) cells"):
        halo(torch.zeros(8, requires_grad=True), torch.zeros(9))


def test_a_bool_has_no_sum(alone):
    _, _, halo = alone
    with pytest.raises(hc.HaloTypeError, match=r"fields\[1\]: elements of bool have no sum; give tensor.to\(torch.int32\)"):
        halo.reduce(torch.zeros(8), torch.zeros(8, dtype=torch.bool))


def test_counts_that_are_refused(alone):
    comm, pattern, halo = alone
    with pytest.raises(hc.HaloValueError, match="fields: there are none"):
        halo()
    two = halocline.torch.HaloExchange(comm, [pattern, pattern])
    with pytest.raises(hc.HaloValueError, match="fields: 1 are given for 2 patterns; give one for each pattern"):
        two(torch.zeros(8))
    with pytest.raises(hc.HaloValueError, match=r"fields\[0\]: this rank has 1 domains of its pattern, and 2 tensors are given"):
        halo([torch.zeros(8), torch.zeros(8)])
    assert [y.tolist() for y in halo([torch.arange(8)])] == [[6, 1, 2, 3, 4, 5, 6, 1]]


def test_arguments_that_are_refused_on_all_ranks():
    def rank(comm):
        pattern = narrow(comm)
        bad = [
            (pattern, {"axes": (0, -1)}, hc.HaloValueError, "axes: .* count from both ends"),
            (pattern, {"axes": "x"}, hc.HaloTypeError, "an axis is a whole number"),
            ([pattern, 3], {}, hc.HaloTypeError, r"patterns\[1\]: a Pattern is wanted, not 3"),
            (3, {}, hc.HaloTypeError, "patterns are a list, not 3"),
        ]
        for patterns, options, error, text in bad:
            with pytest.raises(error, match=text):
                halocline.torch.HaloExchange(comm, patterns, **options)
            with pytest.raises(error if comm.rank else hc.RefusedElsewhereError, match=text):
                halocline.torch.HaloExchange(comm, *((patterns,) if comm.rank else (pattern,)), **(options if comm.rank else {}))
        with pytest.raises(hc.HaloValueError, match=r"axes: \(0, 1\) are 2, and the pattern of fields\[0\] has 1 axes"):
            halocline.torch.HaloExchange(comm, pattern, axes=(0, 1))(torch.zeros(pattern.shape))

    hc.run_threads(2, rank)
    with pytest.raises(hc.HaloTypeError, match="comm: a Communicator is wanted, not 3"):
        halocline.torch.HaloExchange(3, [])


def test_a_rank_without_a_domain_is_refused():
    def rank(comm):
        decomposition = hc.RegularGrid((4,)).decompose_boxes([(0, (0,), (4,))], comm)
        with pytest.raises(hc.HaloValueError if comm.rank else hc.RefusedElsewhereError, match="has no domain"):
            halocline.torch.HaloExchange(comm, decomposition.pattern(1))

    hc.run_threads(2, rank)


def test_two_threads_at_once_are_refused(alone):
    _, _, halo = alone
    halo(torch.zeros(8))
    (bound,) = halo._bound.values()
    with bound.lock, pytest.raises(hc.InFlightError, match="another thread exchanges such tensors with this object; wait for it"):
        halo(torch.zeros(8))
    halo(torch.zeros(8))


def test_a_distributed_tensor_is_refused(alone):
    _, _, halo = alone
    tensor = torch.zeros(8)
    # As torch.distributed.tensor.DTensor, which needs a process group.
    tensor.to_local = lambda: tensor
    with pytest.raises(hc.HaloTypeError, match=r"fields\[0\]: a distributed tensor of PyTorch is not a field of one rank; give tensor.to_local"):
        halo(tensor)


def test_a_tensor_of_a_gpu_is_not_exchanged_in_place(alone, monkeypatch):
    """A tensor of another device stands for it."""
    _, _, halo = alone
    monkeypatch.setattr(halocline.torch, "checked_field", lambda *_: None)
    with pytest.raises(hc.HaloTypeError, match=r"fields\[0\]: a tensor of meta cannot be exchanged in place; "):
        halo.exchange_(torch.zeros(8, device="meta"))


# --- ranks that do different things ----------------------------------------------------------------------------------


def both_raise(work, text):
    """In checked mode every rank gets the same error."""

    def rank(comm):
        pattern = hc.RegularGrid((6,), periodic=(True,)).decompose(comm).pattern(1)
        with pytest.raises(hc.HaloError, match=text) as caught:
            work(comm, pattern)
        return str(caught.value)

    first, second = hc.run_threads(2, rank)
    assert first == second


def test_checked_mode_names_backward_passes_in_another_order():
    def work(comm, pattern):
        halo = halocline.torch.HaloExchange(comm, pattern, checked=True, name="t")
        x = torch.ones(pattern.shape, requires_grad=True)
        losses = [halo(x).sum() for _ in range(2)]
        for loss in losses if comm.rank else reversed(losses):
            loss.backward()

    both_raise(work, r"rank 0 in backward pass of exchange 2 of t \(object 1\); rank 1 in backward pass of exchange 1 of t .*\. Make the same calls")


def test_checked_mode_names_calls_of_different_objects():
    def work(comm, pattern):
        t, u = (halocline.torch.HaloExchange(comm, pattern, checked=True) for _ in range(2))
        (u if comm.rank else t)(torch.ones(pattern.shape))

    both_raise(work, "rank 0 in exchange 1 of object 1, .*; rank 1 in exchange 1 of object 2, ")


def test_checked_mode_names_a_backward_pass_beside_a_call():
    def work(comm, pattern):
        halo = halocline.torch.HaloExchange(comm, pattern, checked=True)
        loss = halo(torch.ones(pattern.shape, requires_grad=True)).sum()
        halo(torch.ones(pattern.shape)) if comm.rank else loss.backward()

    both_raise(work, "rank 0 in backward pass of exchange 1 of object 1; rank 1 in exchange 2 of object 1, ")


@pytest.mark.parametrize(
    ("tensors", "text"),
    [
        ([torch.ones(5), torch.ones(5, requires_grad=True)], "no gradient; rank 1 in exchange 1 .* a gradient"),
        ([torch.ones(5), torch.ones(5, dtype=torch.float64)], "'torch.float32', .*'torch.float64'"),
        ([torch.ones(5, 2), torch.ones(5, 3)], r"\[2\].*\[3\]"),
    ],
    ids=["gradients", "types", "dimensions"],
)
def test_checked_mode_names_tensors_that_differ(tensors, text):
    def work(comm, pattern):
        halocline.torch.HaloExchange(comm, pattern, checked=True)(tensors[comm.rank])

    both_raise(work, text)


def test_checked_mode_changes_no_result():
    def rank(comm):
        pattern = narrow(comm)
        halo = halocline.torch.HaloExchange(comm, pattern, checked=True)
        check_gradients(comm, lambda x: halo.reduce(halo(x) ** 2), [pattern.shape])

    hc.run_threads(2, rank)


def test_the_environment_turns_checked_mode_on(monkeypatch):
    monkeypatch.setenv("HALOCLINE_CHECK", "1")

    def work(comm, pattern):
        halo = halocline.torch.HaloExchange(comm, pattern)
        (halo if comm.rank else halo.reduce)(torch.ones(pattern.shape))

    both_raise(work, "rank 0 in reduce 1 .*; rank 1 in exchange 1 ")


def test_a_deadline_ends_a_backward_pass_that_a_rank_does_not_run():
    def rank(comm):
        pattern = hc.RegularGrid((6,), periodic=(True,)).decompose(comm).pattern(1)
        halo = halocline.torch.HaloExchange(comm, pattern, deadline=0.2)
        x = torch.ones(pattern.shape, requires_grad=comm.rank == 0)
        loss = halo(x).sum()
        if comm.rank == 0:
            with pytest.raises(hc.ExchangeTimeoutError):
                loss.backward()
        comm.barrier()

    hc.run_threads(2, rank)
