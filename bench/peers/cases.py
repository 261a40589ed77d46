"""The cases: what is exchanged, the same for every contender.

Two ranks, float64, periodic in all directions.

* A grid of 64 x 64 x 64 cells a rank, split along the first axis. Both sides of that axis are the other rank; the
  other axes wrap onto the rank itself. All 26 directions are filled.
* A square mesh of 128 x 128 cells a rank, split across the axis along which ids run fastest, so that the cells that the
  other rank wants lie scattered, one on each row. A cell's neighbours are the eight around it; the halo is the ring
  beyond the split, 256 cells. Owned cells lie by ascending id, then the halo cells.
"""

from __future__ import annotations

from dataclasses import dataclass

RANKS = 2
GRID = 64
SQUARE = 128


@dataclass(frozen=True)
class Case:
    """One row of the table. Layout "c": the last axis (the level) is contiguous; "f": the first axis (the cell)."""

    name: str
    title: str
    halo: int = 0
    levels: int = 0
    fields: int = 1
    layout: str = "c"
    units: int = 200  # timed units of a block

    @property
    def is_mesh(self) -> bool:
        return self.levels > 0

    def arguments(self) -> list[str]:
        """The case as arguments of `halocline bench halo`."""
        if self.is_mesh:
            place = ["--mesh", "square", "--cells", str(SQUARE), "--levels", str(self.levels)]
        else:
            place = ["--grid", f"{GRID}x{GRID}x{GRID}", "--halo", str(self.halo)]
        shape = ["--fields", str(self.fields), "--dtype", "f64", "--layout", self.layout]
        return place + shape + ["--ranks", str(RANKS), "--iters", str(self.units)]


CASES = [
    Case("grid", "64^3 a rank, halo 1, 1 field, C order", halo=1, units=400),
    Case("grid-f", "the same, F order", halo=1, layout="f", units=400),
    Case("grid-8", "64^3, halo 1, 8 fields", halo=1, fields=8, units=150),
    Case("grid-wide-8", "64^3, halo 3, 8 fields", halo=3, fields=8, units=100),
    Case("mesh", "unstructured 128^2, 1 level", levels=1, units=2000),
    Case("mesh-65", "unstructured 128^2, 65 levels", levels=65, units=300),
    Case("mesh-65-f", "the same, level-major", levels=65, layout="f", units=300),
    Case("mesh-65-8", "unstructured 128^2, 65 levels, 8 fields", levels=65, fields=8, units=100),
    Case("mesh-65-8-f", "the same, level-major", levels=65, fields=8, layout="f", units=100),
]


def by_name(name: str) -> Case:
    """The case of that name; KeyError if there is none."""
    return {case.name: case for case in CASES}[name]
