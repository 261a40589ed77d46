"""A triangle mesh partitioned by METIS. Ranks are threads; each smooths a field in an asyncio task."""

import asyncio

import numpy as np

import halocline as hc


def triangles(n: int) -> tuple[int, np.typing.NDArray[np.int64]]:
    vertex = np.arange((n + 1) ** 2).reshape(n + 1, n + 1)
    a, b, c, d = vertex[:-1, :-1], vertex[1:, :-1], vertex[:-1, 1:], vertex[1:, 1:]
    squares = np.stack([np.stack([a, b, c], -1), np.stack([d, c, b], -1)], 2)
    return vertex.size, squares.reshape(-1, 3)


def run(comm: hc.Communicator) -> float:
    vertices, connectivity = triangles(40)
    mesh = hc.Mesh(vertices, connectivity)
    partition = hc.Partition.metis(mesh.element_graph(common=2), comm.size)
    halos = mesh.halos(partition, comm.rank, depth=1)
    pattern = hc.Pattern.unstructured(comm, [halos.vertices])

    owned = halos.owned_vertices
    field = hc.zeros(len(halos.vertices.cells), comm=comm)
    field[:owned] = np.sin(halos.vertices.cells[:owned].astype(float))
    edges = halos.edge_vertices.astype(int)
    degree = np.bincount(edges.ravel(), minlength=len(field))
    halo = hc.HaloExchange(comm, [(pattern, field)])

    async def smooth() -> None:
        for _ in range(50):
            await halo.exchange_async()
            around = np.bincount(edges[:, 0], field[edges[:, 1]], len(field))
            around += np.bincount(edges[:, 1], field[edges[:, 0]], len(field))
            field[:owned] = 0.5 * (field + around / degree)[:owned]

    asyncio.run(smooth())
    return float(np.abs(field[:owned]).max(initial=0.0))


def main() -> None:
    whole, parts = (max(hc.run_threads(ranks, run)) for ranks in (1, 4))
    print(f"one rank {whole:.12f}, four ranks {parts:.12f}")
    assert np.isclose(whole, parts, rtol=1e-12)


if __name__ == "__main__":
    main()
