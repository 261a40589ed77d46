"""A global ocean in Python, with NumPy or CuPy. Its results equal those of ``halocline run ocean`` to the last bit.

The temperature of a FESOM model is carried by its currents on 5,839 triangles and 47 layers: alone, under ``halocline launch`` or under
an MPI launcher, ``python ocean.py --steps 40 --save temperature.npy``. Each number is computed by the same operations in the same order as
there, so that the results are equal in each language and on any number of ranks.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np

import halocline as hc

DATA = Path(__file__).resolve().parents[4] / "data" / "fesom-pi"
RADIUS = 6_367_500.0
"""Radius of the Earth, m."""
DIFFUSIVITY = 1000.0
"""Diffusivity along the layers for a triangle of 100 km, m^2/s."""
VERTICAL_DIFFUSIVITY = 1e-5
SAFETY = 0.8
"""The time step, as a share of the longest stable one."""

Array = Any
"""An array of NumPy or CuPy."""


def total(values: Array, axis: int = -1) -> Array:
    """A sum in order from first to last, for reproducible rounding."""
    return np.take(np.add.accumulate(values, axis), -1, axis)


# --- geometry: vectors are rows of three ---------------------------------------------------------------------------


def dot(a: Array, b: Array) -> Array:
    return a[..., 0] * b[..., 0] + a[..., 1] * b[..., 1] + a[..., 2] * b[..., 2]


def cross(a: Array, b: Array) -> Array:
    (ax, ay, az), (bx, by, bz) = np.moveaxis(a, -1, 0), np.moveaxis(b, -1, 0)
    return np.stack([ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx], -1)


def unit(a: Array) -> Array:
    return a / np.sqrt(dot(a, a))[..., None]


def on_sphere(longitude: float, latitude: float) -> list[float]:
    # By the C library, one value at a time: NumPy's functions may round differently.
    lon, lat = math.radians(longitude), math.radians(latitude)
    return [math.cos(lat) * math.cos(lon), math.cos(lat) * math.sin(lon), math.sin(lat)]


def triple(a: Array, b: Array, c: Array) -> Array:
    return dot(a, cross(b - a, c - a))


class Shapes:
    """Triangles in their tangent planes: x to the model's east, y to its north."""

    def __init__(self, corners: Array) -> None:
        """``corners``: (triangles, 3, 3)."""
        a, b, c = np.moveaxis(corners, 1, 0)
        middle = unit(0.0 + a + b + c)
        pole = np.array(on_sphere(-40.0, 75.0))
        east = unit(cross(np.broadcast_to(pole, middle.shape), middle))
        north = cross(middle, east)
        points = np.stack([dot(corners, east[:, None]), dot(corners, north[:, None])], -1) * RADIUS
        edges = points[:, [1, 2, 0]] - points
        self.area = 0.5 * (edges[:, 0, 0] * edges[:, 1, 1] - edges[:, 0, 1] * edges[:, 1, 0])
        following, last = edges[:, [1, 2, 0]], edges[:, [2, 0, 1]]
        twice = (2.0 * self.area)[:, None]
        # The gradient of the function that is 1 at a corner, and the median-dual face to the next corner.
        self.gradients = np.stack([-following[..., 1] / twice, following[..., 0] / twice], -1)
        self.faces = np.stack(
            [(following[..., 1] - last[..., 1]) / 6.0, (last[..., 0] - following[..., 0]) / 6.0], -1
        )

        tops = triple(a, b, c).tolist()
        bottoms = (1.0 + dot(a, b) + dot(b, c) + dot(c, a)).tolist()
        angles = np.array([2.0 * math.atan2(top, bottom) for top, bottom in zip(tops, bottoms)])
        self.on_the_sphere = angles * RADIUS * RADIUS


# --- the model's files ---------------------------------------------------------------------------------------------


class Model:
    """Mesh and state, the same on every rank."""

    def __init__(self, folder: Path) -> None:
        nodes = (folder / "nod2d.out").read_text().split()
        self.nodes = np.array([on_sphere(float(x), float(y)) for x, y in zip(nodes[2::4], nodes[3::4])])
        triangles = np.array((folder / "elem2d.out").read_text().split()[1:], int).reshape(-1, 3) - 1
        clockwise = triple(*(self.nodes[triangles[:, corner]] for corner in range(3))) < 0
        triangles[clockwise] = triangles[clockwise][:, [0, 2, 1]]
        self.triangles = triangles
        depths = (folder / "aux3d.out").read_text().split()
        interfaces = np.array(depths[1 : 1 + int(depths[0])], float)
        self.thickness = interfaces[:-1] - interfaces[1:]
        self.layers = len(self.thickness)
        self.wet = np.load(folder / "nlevels.npy").astype(int) - 1
        self.depth = interfaces[0] - interfaces[self.wet]
        layer = np.arange(self.layers)
        is_wet = layer < self.wet[:, None]
        self.u, self.v = (np.where(is_wet, np.load(folder / f"{name}.npy"), 0.0).astype(float) for name in "uv")
        node_wet = np.load(folder / "nlevels_nod2D.npy").astype(int) - 1
        self.temperature = np.where(layer < node_wet[:, None], np.load(folder / "temp.npy"), 0.0).astype(float)
        self.mesh = hc.Mesh(len(self.nodes), triangles)

    def potential(self) -> Array:
        """The potential whose gradient, subtracted from the velocities, makes each column's transport free of divergence (conjugate
        gradients)."""
        shapes = Shapes(self.nodes[self.triangles])
        x, y = total(self.u * self.thickness), total(self.v * self.thickness)
        right = np.zeros(len(self.nodes))
        dx, dy = shapes.gradients[..., 0], shapes.gradients[..., 1]
        np.add.at(right, self.triangles.ravel(), (shapes.area[:, None] * (dx * x[:, None] + dy * y[:, None])).ravel())

        scale = (shapes.area * self.depth)[:, None]
        couplings = -scale * (dx * dx[:, [1, 2, 0]] + dy * dy[:, [1, 2, 0]])
        diagonal = np.zeros(len(self.nodes))
        np.add.at(diagonal, self.triangles.ravel(), (couplings + couplings[:, [2, 0, 1]]).ravel())
        first, second = self.triangles, self.triangles[:, [1, 2, 0]]
        ends = np.stack([first, second], -1).ravel()

        def apply(values: Array) -> Array:
            flow = couplings * (values[first] - values[second])
            product = np.zeros_like(values)
            np.add.at(product, ends, np.stack([flow, -flow], -1).ravel())
            return product

        def balanced(values: Array) -> Array:
            return values - total(values) / len(values)

        target = 1e-13 * 1e-13 * total(right * right)
        result, direction, residual, last = np.zeros_like(right), np.zeros_like(right), balanced(right), math.inf
        for _ in range(3000):
            if total(residual * residual) <= target:
                break
            better = residual / diagonal
            slope = total(residual * better)
            direction = better + slope / last * direction
            last = slope
            product = apply(direction)
            curvature = total(direction * product)
            if not (curvature > 0.0 and slope > 0.0):
                break
            step = slope / curvature
            result = result + step * direction
            residual = balanced(residual - step * product)
        return result


# --- one rank ------------------------------------------------------------------------------------------------------


class Part:
    """The part of a rank. ``xp`` is NumPy, or CuPy for a part in GPU memory."""

    def __init__(self, model: Model, domains: hc.MeshDomains, potential: Array) -> None:
        layers = model.layers
        ids = domains.elements.cells.astype(int)
        self.corners = domains.connectivity.astype(int).reshape(-1, 3)
        self.owned, self.owned_triangles = domains.owned_vertices, domains.owned_elements
        self.thickness, self.wet, self.layers = model.thickness, model.wet[ids], layers
        shapes = Shapes(model.nodes[model.triangles[ids]])
        self.slopes, self.faces = shapes.gradients, shapes.faces
        self.diffusivity = DIFFUSIVITY * np.sqrt(2.0 * shapes.area) / 100e3

        a, b, c = np.moveaxis(potential[model.triangles[ids]], 1, 0)
        slope = ((b - a)[:, None] * self.slopes[:, 1] + (c - a)[:, None] * self.slopes[:, 2])[..., None]
        self.is_wet = np.arange(layers) < self.wet[:, None]
        self.u = np.where(self.is_wet, model.u[ids] - slope[:, 0], 0.0)
        self.v = np.where(self.is_wet, model.v[ids] - slope[:, 1], 0.0)

        # The triangles around each owned node, in global order, and which of their corners the node is. Sums in this order do not
        # depend on the partition.
        triangle, corner = np.divmod(np.arange(self.corners.size), 3)
        node = self.corners.ravel()
        order = np.lexsort((ids[triangle], node))
        order = order[node[order] < self.owned]
        begin = np.searchsorted(node[order], np.arange(self.owned))
        slot = np.arange(len(order)) - begin[node[order]]
        self.around = np.zeros((int(slot.max()) + 1, self.owned), int)
        self.corner, self.is_there = self.around.copy(), self.around.astype(bool)
        at = slot, node[order]
        self.around[at], self.corner[at], self.is_there[at] = triangle[order], corner[order], True

        third = shapes.on_the_sphere / 3.0
        self.area, self.node_wet = np.zeros((self.owned, layers)), np.zeros(self.owned, int)
        for around, there in zip(self.around, self.is_there):
            here = self.is_wet[around] & there[:, None]
            self.area += np.where(here, third[around][:, None], 0.0)
            self.node_wet = np.maximum(self.node_wet, np.where(there, self.wet[around], 0))
        self.is_water = np.arange(layers) < self.node_wet[:, None]

        self.rise = np.zeros((self.owned, layers))
        out = self.rise.copy()
        for from_, to, here in self._flows():
            self.rise += np.where(here, from_, 0.0)
            self.rise += np.where(here, to, 0.0)
            out += np.where(here & (from_ < 0.0), np.abs(from_), 0.0)
            out += np.where(here & (to < 0.0), np.abs(to), 0.0)
        self.rise = np.add.accumulate(self.rise[:, ::-1], 1)[:, ::-1].copy()
        self.rise[:, 0] = 0.0

        # Vertical mixing through the top of a cell.
        distance = np.ones(layers)
        distance[1:] = 0.5 * (self.thickness[:-1] + self.thickness[1:])
        self.mixing = np.where(self.is_water, VERTICAL_DIFFUSIVITY * self.area / distance, 0.0)
        self.mixing[:, 0] = 0.0
        self.volume = np.where(self.is_water, self.area * self.thickness, 1.0)
        self.longest_step = self._longest_step(out, shapes.area)

    def _flows(self) -> Any:
        """The inflow of owned nodes through the two faces of each surrounding triangle, in the order of faces, m^3/s."""
        x, y = self.faces[..., 0, None], self.faces[..., 1, None]
        flow = (self.u[:, None] * x + self.v[:, None] * y) * self.thickness
        for around, corner, there in zip(self.around, self.corner, self.is_there):
            out, into = -flow[around, corner], flow[around, (corner + 2) % 3]
            is_first = (corner == 0)[:, None]
            yield np.where(is_first, out, into), np.where(is_first, into, out), self.is_wet[around] & there[:, None]

    def _longest_step(self, out: Array, area: Array) -> float:
        slopes = self.slopes
        loss = (self.diffusivity * area)[:, None] * (slopes[..., 0] * slopes[..., 0] + slopes[..., 1] * slopes[..., 1])
        for around, corner, there in zip(self.around, self.corner, self.is_there):
            here = self.is_wet[around] & there[:, None]
            out = out + np.where(here, loss[around, corner][:, None] * self.thickness, 0.0)
        below = np.zeros_like(self.rise)
        below[:, :-1] = np.where(self.is_water[:, 1:], self.rise[:, 1:], 0.0)
        mixed = self.mixing.copy()
        mixed[:, :-1] += self.mixing[:, 1:]
        loses = out + np.maximum(self.rise, 0.0) + np.maximum(-below, 0.0) + mixed
        with np.errstate(divide="ignore"):
            return SAFETY * float(np.min(np.where(self.is_water, self.volume / loses, np.inf), initial=np.inf))

    def on(self, xp: Any) -> None:
        """Moves the data of a step to the memory where it is computed."""
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(self, name, xp.asarray(value))
        self.before, self.xp = (self.corner + 2) % 3, xp

    def gradients(self, temperature: Array, east: Array, north: Array) -> None:
        """The gradient in owned triangles, K/m."""
        n = self.owned_triangles
        a, b, c = (temperature[self.corners[:n, corner]] for corner in range(3))
        for axis, gradient in enumerate((east, north)):
            second, third = (self.slopes[:n, corner, axis, None] for corner in (1, 2))
            gradient[:n] = self.xp.where(self.is_wet[:n], (b - a) * second + (c - a) * third, 0.0)

    def advance(self, seconds: float, temperature: Array, east: Array, north: Array, later: Array) -> None:
        """The temperature of owned nodes after ``seconds``."""
        where = self.xp.where
        fluxes: list[Array] = []
        for face in range(3):
            x, y = self.faces[:, face, 0, None], self.faces[:, face, 1, None]
            speed = self.u * x + self.v * y
            from_, to = (temperature[self.corners[:, end % 3]] for end in (face, face + 1))
            carried = speed * where(speed > 0.0, from_, to)
            mixed = self.diffusivity[:, None] * (east * x + north * y)
            fluxes.append((carried - mixed) * self.thickness)
        flux = self.xp.stack(fluxes, 1)
        gain = self.xp.zeros_like(self.area)
        for around, corner, before, there in zip(self.around, self.corner, self.before, self.is_there):
            here = self.is_wet[around] & there[:, None]
            gain += where(here, flux[around, before] - flux[around, corner], 0.0)

        now = temperature[: self.owned]
        above, below, rise = now[:, :-1], now[:, 1:], self.rise[:, 1:]
        through_bottom = self.xp.zeros_like(now)
        carried = rise * where(rise > 0.0, below, above)
        through_bottom[:, :-1] = where(self.is_water[:, 1:], carried + self.mixing[:, 1:] * (below - above), 0.0)
        through_top = self.xp.zeros_like(now)
        through_top[:, 1:] = through_bottom[:, :-1]
        whole = gain + (through_bottom - through_top)
        later[: self.owned] = where(self.is_water, now + seconds * whole / self.volume, gain)


def prepare(comm: hc.Communicator, folder: Path) -> tuple[Model, hc.MeshDomains, Part, float]:
    """The model, this rank's domains and part of it, and the time step. Collective."""
    model = Model(folder)
    partition = hc.Partition.metis(model.mesh.vertex_graph(), comm.size)
    domains = model.mesh.domains_by_vertex(partition, comm.rank)
    part = Part(model, domains, model.potential())
    (bits,) = comm.all_reduce([struct.unpack("<Q", struct.pack("<d", part.longest_step))[0]], "min")
    (step,) = struct.unpack("<d", struct.pack("<Q", bits))
    return model, domains, part, step


def simulate(comm: hc.Communicator, folder: Path, steps: int, device: int | None = None) -> tuple[Array, Array]:
    """The owned nodes of this rank, and their temperature after all steps. Collective."""
    model, domains, part, step = prepare(comm, folder)
    nodes = hc.Pattern.unstructured(comm, [domains.vertices])
    triangles = hc.Pattern.unstructured(comm, [domains.elements])
    if device is None:
        xp: Any = np
        place: Any = contextlib.nullcontext()
        stream = None
    else:
        import cupy

        xp, place = cupy, cupy.cuda.Device(device)
    with place:
        if device is not None:
            stream = xp.cuda.Stream(non_blocking=True)
        part.on(xp)

        def zeros(cells: int) -> Array:
            return hc.zeros((cells, part.layers), "float64", comm, device)

        temperatures = [zeros(len(domains.vertices.cells)) for _ in range(2)]
        east, north = (zeros(len(domains.elements.cells)) for _ in range(2))
        # One step in advance, so that kernels are loaded before a stream waits for another rank.
        part.gradients(temperatures[0], east, north)
        part.advance(step, temperatures[0], east, north, temperatures[1])
        temperatures[0][: part.owned] = xp.asarray(model.temperature[domains.vertices.cells[: part.owned]])
        if device is not None:
            place.synchronize()
        gradients = hc.HaloExchange(comm, [(triangles, east), (triangles, north)])
        temperature = hc.HaloExchange.alternatives(comm, [[(nodes, field)] for field in temperatures])

        def exchange(halo: hc.HaloExchange, which: int = 0) -> None:
            # GPU fields: only the stream waits. Host fields: `schedule_wait` blocks.
            halo.schedule_exchange(stream, set=which)
            halo.schedule_wait(stream)

        with contextlib.nullcontext() if stream is None else stream:
            exchange(temperature)
            for count in range(steps):
                now, later = count % 2, (count + 1) % 2
                part.gradients(temperatures[now], east, north)
                exchange(gradients)
                part.advance(step, temperatures[now], east, north, temperatures[later])
                exchange(temperature, later)
                if device is not None and count % 16 == 15:
                    temperature.wait()
        temperature.wait()
        if stream is not None:
            stream.synchronize()
        result = temperatures[steps % 2][: part.owned]
        mine = np.array(result) if device is None else xp.asnumpy(result)
    return domains.vertices.cells[: part.owned], mine


def save(path: Path, values: Array) -> None:
    """Writes a file that replaces an older one as a whole; on a full disk the older one stays."""
    if path.exists() and not path.is_file():
        # A pipe or a device is written directly.
        with path.open("wb") as file:
            np.save(file, values)
        return
    path = path.resolve()
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("xb") as file:
            np.save(file, values)
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--data", type=Path, default=DATA, help="where the model's files are")
    parser.add_argument("--cuda", action="store_true", help="on GPUs, with CuPy: rank r takes GPU r modulo their number")
    parser.add_argument("--save", type=Path, help="where to write the temperature: (nodes, layers), float64")
    options = parser.parse_args()
    comm = hc.init()
    device = None
    if options.cuda:
        import cupy

        device = comm.rank % cupy.cuda.runtime.getDeviceCount()
    ids, mine = simulate(comm, options.data, options.steps, device)
    pieces = comm.all_gather(ids.tobytes()), comm.all_gather(mine.tobytes())
    if comm.rank == 0:
        numbers, rows = (np.concatenate([np.frombuffer(piece, t) for piece in of]) for of, t in zip(pieces, ("u8", "f8")))
        whole = np.empty((len(numbers), mine.shape[1]))
        whole[numbers.astype(int)] = rows.reshape(whole.shape)
        where = "the host" if device is None else "GPUs"
        print(f"{options.steps} steps by {comm.size} ranks on {where}, surface from {whole[:, 0].min():.2f} to {whole[:, 0].max():.2f}")
        if options.save is not None:
            save(options.save, whole)


if __name__ == "__main__":
    main()
