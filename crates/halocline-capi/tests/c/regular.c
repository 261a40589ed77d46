/* Regular grids: every path, dimension, width, border and decomposition. */
#include "fixture.h"

/* Exchanges over every path, each three times. */
static void exchanges(halocline_comm comm, halocline_decomposition blocks, const halocline_grid *grid,
                      const halocline_halo *halo) {
  for (size_t path = 0; path < PATH_COUNT; path++) {
    fixture of = make_fixture(comm, blocks, grid, halo);
    halocline_bind_options options = by_path(PATHS[path]);
    halocline_halo_exchange bound = bind_fixture(comm, &of, &options);
    for (int phase = 1; phase < 4; phase++) {
      fill_fixture(&of, phase);
      OK(halocline_exchange_and_wait(bound));
      TRUE(wrong_cells(&of, phase) == 0);
    }
    OK(halocline_halo_exchange_free(&bound));
    free_fixture(&of);
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

/* Marks the cells of boxes once more. */
static void mark(unsigned char *marks, const halocline_domain *domain, const halocline_box *boxes, size_t count) {
  for (size_t box = 0; box < count; box++) {
    for (size_t i = 0; i < boxes[box].extents[0]; i++) {
      for (size_t j = 0; j < boxes[box].extents[1]; j++) {
        marks[(boxes[box].first[0] + i) * domain->extents[1] + boxes[box].first[1] + j]++;
      }
    }
  }
}

/* Interior and boundary are the owned cells, and with the halo all cells, each once. Global and local indices are inverse. */
static void cells_of_a_domain(halocline_comm comm, size_t size) {
  enum { MOST_BOXES = 4 };
  const size_t extents[2] = {5 * size, 6};
  halocline_grid grid = HALOCLINE_GRID_INIT;
  grid.axes = 2, grid.extents = extents;
  halocline_decomposition blocks;
  OK(halocline_decompose(&grid, size, &blocks));
  halocline_halo halo = HALOCLINE_HALO_INIT;
  halo.width = 2;
  halocline_pattern pattern;
  OK(halocline_pattern_regular(comm, blocks, &halo, &pattern));
  halocline_domain domain = HALOCLINE_DOMAIN_INIT;
  OK(halocline_pattern_domain(pattern, 0, &domain));
  const size_t cells = domain.extents[0] * domain.extents[1];
  for (size_t width = 0; width < 4; width++) {
    unsigned char *owned = calloc(cells, 1), *by_parts = calloc(cells, 1);
    halocline_box interior, boxes[MOST_BOXES];
    size_t count;
    mark(owned, &domain, &domain.owned, 1);
    OK(halocline_domain_interior(pattern, 0, width, &interior));
    mark(by_parts, &domain, &interior, 1);
    OK(halocline_domain_boundary(pattern, 0, width, boxes, MOST_BOXES, &count));
    mark(by_parts, &domain, boxes, count);
    TRUE(memcmp(owned, by_parts, cells) == 0);
    OK(halocline_domain_halo(pattern, 0, boxes, MOST_BOXES, &count));
    mark(by_parts, &domain, boxes, count);
    for (size_t cell = 0; cell < cells; cell++) {
      TRUE(by_parts[cell] == 1);
      const size_t local[2] = {cell / domain.extents[1], cell % domain.extents[1]};
      int64_t global[2];
      size_t again[2];
      int32_t found;
      OK(halocline_domain_global(pattern, 0, local, global));
      OK(halocline_domain_local(pattern, 0, global, again, &found));
      const int in_grid = global[0] >= 0 && global[0] < (int64_t)extents[0] && global[1] >= 0 && global[1] < (int64_t)extents[1];
      TRUE(!in_grid || (found == 1 && again[0] == local[0] && again[1] == local[1]));
    }
    const int64_t far[2] = {-100, 0};
    size_t nowhere[2];
    int32_t found = 1;
    OK(halocline_domain_local(pattern, 0, far, nowhere, &found));
    TRUE(found == 0);
    free(owned);
    free(by_parts);
  }
  OK(halocline_pattern_free(&pattern));
  OK(halocline_decomposition_free(&blocks));
}

/* From slabs along one axis to slabs along the other, with another halo, and back. */
static void redistribution(halocline_comm comm, size_t size) {
  const size_t extents[2] = {3 * size, 2 * size}, along_x[2] = {size, 1}, along_y[2] = {1, size};
  halocline_grid grid = HALOCLINE_GRID_INIT;
  grid.axes = 2, grid.extents = extents;
  halocline_decomposition from, to;
  OK(halocline_decompose_into(&grid, along_x, size, &from));
  OK(halocline_decompose_into(&grid, along_y, size, &to));
  halocline_halo narrow = HALOCLINE_HALO_INIT, wide = HALOCLINE_HALO_INIT;
  narrow.width = 1, wide.width = 2;
  fixture before = make_fixture(comm, from, &grid, &narrow), after = make_fixture(comm, to, &grid, &wide);
  halocline_redistribute move, back;
  OK(halocline_redistribute_regular(comm, from, &narrow, to, &wide, &move));
  OK(halocline_redistribute_back(move, &back));
  halocline_halo_exchange there, returned, halo = bind_fixture(comm, &after, NULL), first_halo = bind_fixture(comm, &before, NULL);
  OK(halocline_redistribute_bind(comm, move, before.fields, 1, after.fields, 1, NULL, &there));
  OK(halocline_redistribute_bind(comm, back, after.fields, 1, before.fields, 1, NULL, &returned));
  for (int phase = 1; phase < 4; phase++) {
    fill_fixture(&before, phase);
    fill_fixture(&after, phase + 10);
    OK(halocline_exchange_and_wait(there));
    OK(halocline_exchange_and_wait(halo));
    TRUE(wrong_cells(&after, phase) == 0);
    fill_fixture(&before, phase + 20);
    OK(halocline_exchange_and_wait(returned));
    OK(halocline_exchange_and_wait(first_halo));
    TRUE(wrong_cells(&before, phase) == 0);
  }
  OK(halocline_halo_exchange_free(&first_halo));
  OK(halocline_halo_exchange_free(&halo));
  OK(halocline_halo_exchange_free(&returned));
  OK(halocline_halo_exchange_free(&there));
  OK(halocline_redistribute_free(&back));
  OK(halocline_redistribute_free(&move));
  free_fixture(&after);
  free_fixture(&before);
  OK(halocline_decomposition_free(&to));
  OK(halocline_decomposition_free(&from));
}

/* A NumPy file of the whole grid: every element has the value of its cell. */
static void saved(halocline_comm comm, size_t rank, size_t size) {
  const size_t extents[2] = {3 * size, 4};
  halocline_grid grid = HALOCLINE_GRID_INIT;
  grid.axes = 2, grid.extents = extents;
  halocline_decomposition blocks;
  OK(halocline_decompose(&grid, size, &blocks));
  halocline_halo width = HALOCLINE_HALO_INIT;
  width.width = 1;
  fixture of = make_fixture(comm, blocks, &grid, &width);
  fill_fixture(&of, 3);
  char folder[] = "/tmp/halocline-saved-XXXXXX", path[64];
  if (rank == 0) {
    TRUE(mkdtemp(folder) != NULL);
  }
  OK(halocline_comm_broadcast(comm, 0, folder, sizeof folder));
  snprintf(path, sizeof path, "%s/t.npy", folder);
  OK(halocline_save(of.pattern, path, of.fields, of.count));
  if (rank == 0) {
    FILE *file = fopen(path, "rb");
    unsigned char head[10];
    TRUE(file != NULL && fread(head, 1, sizeof head, file) == sizeof head && memcmp(head, "\x93NUMPY", 6) == 0);
    TRUE(fseek(file, head[8] + 256 * head[9], SEEK_CUR) == 0);
    for (size_t cell = 0; cell < extents[0] * extents[1]; cell++) {
      double value;
      TRUE(fread(&value, sizeof value, 1, file) == 1);
      TRUE(value == (double)((3 * 64 + cell / extents[1]) * 64 + cell % extents[1]));
    }
    TRUE(fgetc(file) == EOF && fclose(file) == 0 && remove(path) == 0 && remove(folder) == 0);
  }
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "", halocline_save(of.pattern, "t.txt", of.fields, of.count));
  free_fixture(&of);
  OK(halocline_decomposition_free(&blocks));
}

static void run(halocline_comm comm, size_t rank, size_t size) {
  cells_of_a_domain(comm, size);
  saved(comm, rank, size);
  redistribution(comm, size);
  dimensions_and_borders(comm, size);
  widths_and_neighbours(comm, size);
  decompositions(comm, size);
}
