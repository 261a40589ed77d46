"""A function of the fields of all ranks, for ``gradcheck``: every rank has all of the input, perturbs it in the same order, and gets all of
the output."""

import numpy as np
import torch


def gathered(comm, values):
    """The values of all ranks, one after the other."""
    parts = comm.all_gather(values.detach().contiguous().numpy().tobytes())
    return torch.cat([torch.from_numpy(np.frombuffer(part, values.numpy().dtype).copy()) for part in parts])


class Take(torch.autograd.Function):
    """This rank's part of what all ranks have. The gradient of the whole has the gradients of all parts."""

    @staticmethod
    def forward(ctx, whole, comm, part):
        ctx.of = comm, part
        return whole[part].clone()

    @staticmethod
    def backward(ctx, grad):
        return Gather.apply(grad, *ctx.of), None, None


class Gather(torch.autograd.Function):
    """What all ranks have, of their parts."""

    @staticmethod
    def forward(ctx, mine, comm, part):
        ctx.of = comm, part
        return gathered(comm, mine.detach())

    @staticmethod
    def backward(ctx, grad):
        return Take.apply(grad, *ctx.of), None, None


def global_function(comm, function, shapes, dtype=torch.float64):
    """The function of all ranks' fields, which are ``shapes`` here, and an input for it, the same on all ranks."""
    sizes = [int(np.prod(shape)) for shape in shapes]
    (mine, *_), everywhere = [sum(sizes)], [int(size) for size in comm.all_gather(str(sum(sizes)).encode())]
    first = sum(everywhere[: comm.rank])
    part = slice(first, first + mine)

    def of_all(whole):
        flat = Take.apply(whole, comm, part)
        fields = [values.view(shape) for values, shape in zip(flat.split(sizes), shapes)]
        results = function(*fields)
        results = [results] if isinstance(results, torch.Tensor) else results
        return Gather.apply(torch.cat([result.reshape(-1) for result in results]), comm, part)

    random = np.random.default_rng(7)
    whole = torch.from_numpy(random.standard_normal((2, sum(everywhere))))
    whole = torch.complex(*whole).to(dtype) if dtype.is_complex else whole[0].to(dtype)
    return of_all, whole.requires_grad_()
