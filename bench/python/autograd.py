"""Time that PyTorch's autograd adds to an exchange and to its gradient: medians, in microseconds.

Each pair is timed in turn, in one run. Without autograd: copies into a bound array, the exchange (for the gradient: a reduce), and a copy
of the result. With autograd: the same work by ``halocline.torch``, in a graph. "The same, and no copies" compares with the exchange alone,
"the same less an empty one's" with a reduce and a backward pass through copies instead of exchanges. Run it alone and under
``halocline launch -n 2``; it needs PyTorch.
"""

import argparse
import statistics
import time

import numpy as np
import torch

import halocline as hc
import halocline.torch


class WithoutAutograd:
    """The work alone, on one bound object."""

    def __init__(self, comm, pattern, shape, fields):
        self.arrays = [hc.zeros(shape, comm=comm) for _ in range(fields)]
        self.buffers = [torch.from_numpy(array) for array in self.arrays]
        self.halo = hc.HaloExchange(comm, [(pattern, array) for array in self.arrays])

    def run(self, tensors, operation):
        for buffer, tensor in zip(self.buffers, tensors):
            buffer.copy_(tensor)
        operation()
        return [buffer.clone() for buffer in self.buffers]

    def exchange(self, tensors):
        return self.run(tensors, self.halo.exchange)

    def reduce(self, tensors):
        return self.run(tensors, self.halo.reduce)


def time_of(call, rounds):
    start = time.perf_counter()
    for _ in range(rounds):
        call()
    return (time.perf_counter() - start) / rounds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=500, help="calls of one sample")
    parser.add_argument("--samples", type=int, default=31, help="samples of each, in turn")
    parser.add_argument("--most", type=float, help="fail if halocline.torch adds more microseconds to a call or to an empty backward pass")
    options = parser.parse_args()
    torch.set_num_threads(1)
    comm = hc.init()
    worst = 0.0
    for cells, fields in ((8, 1), (64, 1), (64, 4)):
        pattern = hc.RegularGrid((cells, cells), periodic=(True, True)).decompose(comm).pattern(1)
        plain = WithoutAutograd(comm, pattern, pattern.shape, fields)
        halo = halocline.torch.HaloExchange(comm, pattern)
        tensors = [torch.ones(pattern.shape, dtype=torch.float64) for _ in range(fields)]
        leaves = [tensor.clone().requires_grad_() for tensor in tensors]

        def graph():
            return halo(*leaves)

        def without_graph():
            with torch.no_grad():
                halo(*leaves)

        results = graph()
        results = [results] if isinstance(results, torch.Tensor) else results

        def backward():
            torch.autograd.grad(results, leaves, tensors, retain_graph=True)

        # What the engine costs without an exchange.
        copies = [leaf.clone() for leaf in leaves]

        def engine():
            torch.autograd.grad(copies, leaves, tensors, retain_graph=True)

        bounded = ("a call in a graph", "the same less an empty one's")
        both = [
            ("a call, no_grad", without_graph, lambda: plain.exchange(tensors)),
            ("a call in a graph", graph, lambda: plain.exchange(tensors)),
            ("the same, and no copies", graph, plain.halo.exchange),
            ("a backward pass", backward, lambda: plain.reduce(tensors)),
            ("the same less an empty one's", backward, lambda: (plain.reduce(tensors), engine())),
        ]
        for name, ours, alone in both:
            pairs = []
            for _ in range(options.samples):
                pair = []
                for call in (ours, alone):
                    comm.barrier()
                    pair.append(time_of(call, options.rounds))
                pairs.append(pair)
            with_it, without = (1e6 * statistics.median(times) for times in zip(*pairs))
            figures = np.array([with_it, without, 1e6 * statistics.median(a - b for a, b in pairs)])
            figures = np.max([np.frombuffer(part) for part in comm.all_gather(figures.tobytes())], axis=0)
            worst = max(worst, figures[2] if name in bounded else 0.0)
            if comm.rank == 0:
                with_it, without, more = figures
                print(
                    f"{comm.size} ranks, {comm.transport}, {fields} x {cells}x{cells}, {name:28} with autograd {with_it:6.2f} us, "
                    f"without {without:6.2f} us, ratio {with_it / without:5.2f}, more {more:6.2f} us"
                )
    if options.most is not None and worst > options.most:
        raise SystemExit(f"autograd adds {worst:.2f} us, allowed are {options.most}")


if __name__ == "__main__":
    main()
