"""Heat spreads on a periodic grid: run it alone, under ``halocline launch -n 4 -- python`` or ``mpirun -n 4 python``."""

import numpy as np

import halocline as hc


def main() -> None:
    comm = hc.init()
    grid = hc.RegularGrid((256, 192), periodic=(True, True))
    pattern = grid.decompose(comm).pattern(halo=1)
    (domain,) = pattern.domains

    # Two time levels in memory that neighbours can access, bound together and chosen by index.
    levels = [hc.zeros(pattern.shape, "float64", comm) for _ in range(2)]
    halo = hc.HaloExchange.alternatives(comm, [[(pattern, level)] for level in levels])

    inside = domain.owned
    assert domain.first is not None
    x, y = (np.arange(first, first + n) for first, n in zip(domain.first, domain.owned_shape))
    levels[0][inside] = np.exp(-((x[:, None] - 100) ** 2 + (y - 90) ** 2) / 200)
    before = float(levels[0][inside].sum())

    for step in range(100):
        t, new = levels[step % 2], levels[(step + 1) % 2]
        halo.exchange(set=step % 2)
        around = t[2:, 1:-1] + t[:-2, 1:-1] + t[1:-1, 2:] + t[1:-1, :-2]
        new[inside] = t[inside] + 0.2 * (around - 4 * t[inside])

    sums = np.array([before, float(levels[0][inside].sum())])
    total = np.sum([np.frombuffer(part) for part in comm.all_gather(sums.tobytes())], axis=0)
    assert np.isclose(*total), "heat is lost"
    if comm.rank == 0:
        print(halo.explain())
        print(f"{comm.size} ranks over {comm.transport}: the heat is {total[1]:.6f}")


if __name__ == "__main__":
    main()
