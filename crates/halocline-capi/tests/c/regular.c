/* Regular grids: every path, dimension, width, border and decomposition. */
#include "scene.h"

/* Exchanges over every path, each three times. */
static void exchanges(halocline_comm comm, halocline_decomposition blocks, const halocline_grid *grid,
                      const halocline_halo *halo) {
  for (size_t path = 0; path < PATH_COUNT; path++) {
    scene of = make_scene(comm, blocks, grid, halo);
    halocline_bind_options options = by_path(PATHS[path]);
    halocline_halo_exchange bound = bind_scene(comm, &of, &options);
    for (int phase = 1; phase < 4; phase++) {
      fill_scene(&of, phase);
      OK(halocline_exchange_and_wait(bound));
      TRUE(wrong_cells(&of, phase) == 0);
    }
    OK(halocline_halo_exchange_free(&bound));
    free_scene(&of);
  }
}

static void dimensions_and_borders(halocline_comm comm, size_t size) {
  const size_t extents[HALOCLINE_AXES] = {3 * size, 4, 3, 2};
  for (size_t axes = 1; axes <= HALOCLINE_AXES; axes++) {
    for (int32_t borders = 0; borders < 4; borders++) {
      const int32_t periodic[HALOCLINE_AXES] = {borders & 1, borders >> 1, borders & 1, borders >> 1};
      halocline_grid grid = HALOCLINE_GRID_INIT;
      grid.axes = axes, grid.extents = extents, grid.periodic = borders == 0 ? NULL : periodic;
      halocline_decomposition blocks;
      OK(halocline_decompose(&grid, size, &blocks));
      halocline_halo halo = HALOCLINE_HALO_INIT;
      halo.width = 1;
      exchanges(comm, blocks, &grid, &halo);
      OK(halocline_decomposition_free(&blocks));
    }
  }
}

static void widths_and_neighbours(halocline_comm comm, size_t size) {
  const size_t extents[3] = {4 * size, 5, 4}, low[3] = {2, 0, 1}, high[3] = {1, 3, 0};
  const int32_t periodic[3] = {1, 1, 0};
  halocline_grid grid = HALOCLINE_GRID_INIT;
  grid.axes = 3, grid.extents = extents, grid.periodic = periodic;
  const size_t in_slabs[3] = {size, 1, 1};
  halocline_decomposition blocks;
  OK(halocline_decompose_into(&grid, in_slabs, size, &blocks));
  for (int32_t neighbours = HALOCLINE_ALL; neighbours <= HALOCLINE_FACES_AND_EDGES; neighbours++) {
    halocline_halo halo = HALOCLINE_HALO_INIT;
    halo.width = 2, halo.neighbours = neighbours;
    exchanges(comm, blocks, &grid, &halo);
  }
  halocline_halo one_sided = HALOCLINE_HALO_INIT;
  one_sided.axes = 3, one_sided.low = low, one_sided.high = high;
  exchanges(comm, blocks, &grid, &one_sided);
  /* Wider than a block: halo cells come from several ranks. */
  halocline_halo wide = HALOCLINE_HALO_INIT;
  wide.width = 5;
  exchanges(comm, blocks, &grid, &wide);
  halocline_halo none = HALOCLINE_HALO_INIT;
  exchanges(comm, blocks, &grid, &none);
  OK(halocline_decomposition_free(&blocks));
}

static void decompositions(halocline_comm comm, size_t size) {
  const size_t extents[2] = {4 * size, 6};
  const int32_t periodic[2] = {0, 1}, staggered_axes[2] = {1, 0};
  halocline_grid grid = HALOCLINE_GRID_INIT;
  grid.axes = 2, grid.extents = extents, grid.periodic = periodic;
  halocline_halo halo = HALOCLINE_HALO_INIT;
  halo.width = 1;
  halocline_decomposition blocks, staggered;

  /* Several domains of each rank. */
  grid.domains_per_rank = 3;
  OK(halocline_decompose(&grid, size, &blocks));
  exchanges(comm, blocks, &grid, &halo);
  OK(halocline_decomposition_free(&blocks));
  grid.domains_per_rank = 1;

  /* Explicit cuts: the first block has one row, the last one the rest. */
  size_t cuts[8], counts[2] = {size - 1, 0};
  for (size_t cut = 0; cut + 1 < size; cut++) {
    cuts[cut] = cut + 1;
  }
  OK(halocline_decompose_at(&grid, counts, cuts, size, &blocks));
  exchanges(comm, blocks, &grid, &halo);
  OK(halocline_decomposition_free(&blocks));

  /* Boxes: rank 0 has two of them. */
  size_t owners[9], firsts[18], boxes[18];
  for (size_t box = 0; box <= size; box++) {
    owners[box] = box == size ? 0 : box;
    firsts[2 * box] = box == size ? 0 : 4 * box, firsts[2 * box + 1] = box == 0 ? 2 : 0;
    boxes[2 * box] = 4, boxes[2 * box + 1] = box == size ? 2 : box == 0 ? 4 : 6;
  }
  OK(halocline_decompose_boxes(&grid, size + 1, owners, firsts, boxes, size, &blocks));
  exchanges(comm, blocks, &grid, &halo);
  OK(halocline_decomposition_free(&blocks));

  /* The points between cells: the last block owns one more. */
  OK(halocline_decompose(&grid, size, &blocks));
  OK(halocline_decomposition_staggered(blocks, staggered_axes, &staggered));
  size_t points[HALOCLINE_AXES];
  OK(halocline_decomposition_describe(staggered, NULL, points, NULL, NULL, NULL));
  TRUE(points[0] == extents[0] + 1 && points[1] == extents[1]);
  halocline_grid of_points = grid;
  of_points.extents = points;
  exchanges(comm, staggered, &of_points, &halo);
  OK(halocline_decomposition_free(&staggered));
  OK(halocline_decomposition_free(&blocks));
}

static void run(halocline_comm comm, size_t rank, size_t size) {
  (void)rank;
  dimensions_and_borders(comm, size);
  widths_and_neighbours(comm, size);
  decompositions(comm, size);
}
