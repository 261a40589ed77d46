"""Calibrates the diffusivity of the ocean of ``ocean.py`` from observed temperatures, by gradient descent through the simulation.

The observations are synthetic: temperatures at every fifth node after 20 steps (15 days) of a simulation with known diffusivities, one for
each of three bands of latitude, with noise. The calibration starts from a wrong guess. Each iteration simulates, compares with the
observations, and runs the simulation backwards for the gradient. The exchanges of ``halocline.torch`` carry the gradient from rank to rank.

    python calibrate.py --plot calibration.png
    halocline launch -n 4 -- python calibrate.py

It needs PyTorch. The gradient is the same on any number of ranks, to rounding; ``--check`` compares it with finite differences.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import ocean
import torch

import halocline as hc
import halocline.torch

BANDS = ["south of 30 S", "the tropics", "north of 30 N"]
TRUTH = [600.0, 1000.0, 800.0]
"""The diffusivity of each band, for a triangle of 100 km, m^2/s."""
GUESS = [300.0, 300.0, 300.0]
MOST = 1200.0
"""The time step is stable up to here."""
OBSERVED = 5
"""One node of so many is observed."""
NOISE = 0.005
"""Standard deviation of an observation, K."""


class Twin:
    """A simulation whose diffusivity is unknown, and observations of the true one."""

    def __init__(self, comm: hc.Communicator, folder: Path, steps: int) -> None:
        model, domains, part, self.step = ocean.prepare(comm, folder)
        self.comm, self.steps, self.part = comm, steps, part
        cells, elements = domains.vertices.cells.astype(int), domains.elements.cells.astype(int)
        middle = ocean.unit(model.nodes[model.triangles[elements]].sum(1))
        bands = np.digitize(np.degrees(np.arcsin(middle[:, 2])), [-30.0, 30.0])
        # Diffusivity grows with the size of a triangle.
        self.growth = torch.from_numpy(part.diffusivity / ocean.DIFFUSIVITY)
        self.bands = torch.from_numpy(bands)
        part.on(torch)

        self.on_nodes = halocline.torch.HaloExchange(comm, hc.Pattern.unstructured(comm, [domains.vertices]), name="temperature")
        self.on_triangles = halocline.torch.HaloExchange(comm, hc.Pattern.unstructured(comm, [domains.elements]), name="gradients")
        self.shape = len(cells), part.layers
        self.start = torch.from_numpy(model.temperature[cells])

        is_observed = torch.from_numpy(cells[: part.owned] % OBSERVED == 0)
        self.is_observed = torch.asarray(part.is_water) & is_observed[:, None]
        self.observations = self.sum_of_ranks(self.is_observed.sum(dtype=torch.float64))
        noise = np.random.default_rng(1).normal(0.0, NOISE, (len(model.nodes), part.layers))
        with torch.no_grad():
            self.observed = self.simulate(torch.tensor(TRUTH, dtype=torch.float64)) + torch.from_numpy(noise[cells[: part.owned]])

    def simulate(self, diffusivity: Any) -> Any:
        """The temperature of owned nodes after all steps. Collective."""
        self.part.diffusivity = diffusivity[self.bands] * self.growth
        temperature = self.on_nodes(self.start)
        for _ in range(self.steps):
            east, north = (torch.zeros(len(self.bands), self.part.layers, dtype=torch.float64) for _ in range(2))
            self.part.gradients(temperature, east, north)
            east, north = self.on_triangles(east, north)
            later = torch.zeros(self.shape, dtype=torch.float64)
            self.part.advance(self.step, temperature, east, north, later)
            temperature = self.on_nodes(later)
        return temperature[: self.part.owned]

    def misfit(self, diffusivity: Any) -> Any:
        """This rank's share of the mean square of the differences. Collective."""
        difference = torch.where(self.is_observed, self.simulate(diffusivity) - self.observed, 0.0)
        return (difference * difference).sum() / self.observations

    def evaluate(self, diffusivity: list[float]) -> float:
        """The misfit of all ranks. Collective."""
        with torch.no_grad():
            return self.sum_of_ranks(self.misfit(torch.tensor(diffusivity, dtype=torch.float64)))

    def gradient(self, diffusivity: list[float]) -> tuple[float, list[float]]:
        """The misfit of all ranks, and its derivative by each diffusivity. Collective."""
        parameters: Any = torch.tensor(diffusivity, dtype=torch.float64, requires_grad=True)
        misfit = self.misfit(parameters)
        misfit.backward()
        # Each rank has the derivative of all misfits by its own copy of the parameters.
        return self.sum_of_ranks(misfit), self.comm.all_reduce(parameters.grad.tolist())

    def sum_of_ranks(self, value: Any) -> float:
        (total,) = self.comm.all_reduce([value.item()])
        return float(total)


def calibrate(twin: Twin, iterations: int, tell: Any) -> list[dict[str, Any]]:
    """Gradient descent. The first step changes each diffusivity by 10 percent. The length of each later step comes from the last two
    gradients of the band (Barzilai and Borwein). Collective."""
    history: list[dict[str, Any]] = []
    place, last_place, last_gradient = np.array(GUESS), np.zeros(3), np.zeros(3)
    for iteration in range(iterations + 1):
        misfit, listed = twin.gradient(place.tolist())
        history.append({"misfit": misfit, "diffusivity": place.tolist(), "gradient": listed})
        tell(iteration, history[-1])
        gradient = np.array(listed)
        step = -0.1 * place * np.sign(gradient)
        if iteration > 0:
            moved, turned = place - last_place, gradient - last_gradient
            is_convex = moved * turned > 0
            step = np.where(is_convex, -gradient * moved / np.where(is_convex, turned, 1.0), step)
        last_place, last_gradient = place, gradient
        # At most to half and to double the diffusivity.
        place = np.clip(place + step, 0.5 * place, np.minimum(2.0 * place, MOST))
    return history


def differences(twin: Twin, diffusivity: list[float]) -> list[float]:
    """The gradient by central finite differences. Collective."""
    result = []
    for band, value in enumerate(diffusivity):
        width = 1e-4 * value
        ends = []
        for sign in (1.0, -1.0):
            moved = list(diffusivity)
            moved[band] = value + sign * width
            ends.append(twin.evaluate(moved))
        result.append((ends[0] - ends[1]) / (2.0 * width))
    return result


def plot(path: Path, history: list[dict[str, Any]]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), dpi=120, layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot([1000.0 * root(entry["misfit"]) for entry in history], color="black", marker="o", markersize=3)
    left.axhline(1000.0 * NOISE, color="grey", linestyle="--", linewidth=1)
    left.annotate("noise of the observations", (0, 1000.0 * NOISE), (0, -4), textcoords="offset points", va="top", color="dimgrey")
    left.set_ylabel("misfit (root mean square), mK")
    left.set_ylim(bottom=0)
    for band, (name, truth) in enumerate(zip(BANDS, TRUTH)):
        colour = f"C{band}"
        right.plot([entry["diffusivity"][band] for entry in history], color=colour, marker="o", markersize=3)
        right.axhline(truth, color=colour, linestyle="--", linewidth=1)
        right.annotate(name, (len(history) - 1, truth), (0, -4), textcoords="offset points", ha="right", va="top", color=colour)
    right.set_ylabel("diffusivity, m²/s (dashed: the truth)")
    right.set_ylim(bottom=0)
    for axes in (left, right):
        axes.set_xlabel("iteration")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


def root(value: float) -> float:
    return float(np.sqrt(value))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20, help="of the simulation")
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--data", type=Path, default=ocean.DATA, help="where the model's files are")
    parser.add_argument("--check", action="store_true", help="compare the first gradient with finite differences")
    parser.add_argument("--plot", type=Path, help="where to draw misfit and diffusivity (needs matplotlib)")
    parser.add_argument("--json", type=Path, help="where to write misfit, diffusivity and gradient of each iteration")
    options = parser.parse_args()
    torch.set_num_threads(1)
    comm = hc.init()
    twin = Twin(comm, options.data, options.steps)

    def say(text: str) -> None:
        if comm.rank == 0:
            print(text, flush=True)

    def tell(iteration: int, entry: dict[str, Any]) -> None:
        columns = [f"{root(entry['misfit']):12.5f}"]
        columns += [f"{value:14.1f}" for value in entry["diffusivity"]] + [f"{value:12.2e}" for value in entry["gradient"]]
        say(f"{iteration:9}" + "".join(columns))

    days = options.steps * twin.step / 86400
    say(f"{options.steps} steps ({days:.1f} days) by {comm.size} ranks, {twin.observations:.0f} observations")
    say(f"{'iteration':>9}{'misfit, K':>12}" + "".join(f"{band:>14}" for band in BANDS) + f"{'gradient':>36}")
    history = calibrate(twin, options.iterations, tell)
    say(f"{'truth':>9}{NOISE:12.5f}" + "".join(f"{value:14.1f}" for value in TRUTH))
    result: dict[str, Any] = {"ranks": comm.size, "history": history}
    if options.check:
        result["differences"] = differences(twin, GUESS)
        error = max(abs(a / b - 1) for a, b in zip(history[0]["gradient"], result["differences"]))
        say(f"the first gradient equals finite differences to {error:.1e}")
    if comm.rank == 0 and options.json is not None:
        options.json.write_text(json.dumps(result))
    if comm.rank == 0 and options.plot is not None:
        plot(options.plot, history)


if __name__ == "__main__":
    main()
