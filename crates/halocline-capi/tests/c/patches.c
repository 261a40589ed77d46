/* Grids of patches: the cubed sphere beside its geometry, folds, poles, joined patches, and what is refused. */
#include "sphere.h"

/* Every quantity on the cubed sphere, with halos up to a whole tile. */
static void cubed_sphere(halocline_comm comm, size_t size) {
  const halocline_quantity quantities[] = {HALOCLINE_QUANTITY_INIT, HALOCLINE_QUANTITY_CORNERS_INIT,
                                           HALOCLINE_QUANTITY_CELL_VECTORS_INIT, HALOCLINE_QUANTITY_C_GRID_INIT,
                                           HALOCLINE_QUANTITY_D_GRID_INIT};
  sphere of = {.n = 5};
  halocline_patch_grid grid;
  halocline_patch_decomposition blocks;
  OK(halocline_patch_grid_cubed_sphere(of.n, &grid));
  OK(halocline_patch_decompose(grid, size, &blocks));
  for (size_t quantity = 0; quantity < 5; quantity++) {
    for (size_t width = 1; width <= of.n; width += 2) {
      of.quantity = quantities[quantity];
      tiles made = make_tiles(comm, blocks, &of.quantity, width);
      values expected = {&of, own_on_sphere, after_on_sphere, 1e-7, 0};
      exchange_by_every_path(comm, &made, &expected);
      free_tiles(&made);
    }
  }
  OK(halocline_patch_decomposition_free(&blocks));
  OK(halocline_patch_grid_free(&grid));
}

/* Points of tiles are where the geometry of this program has them. */
static void points(void) {
  enum { WRONG = HALOCLINE_ERROR_ARGUMENT };
  const double places[3][2] = {{0.5, 0.5}, {0.125, 1}, {-0.25, 0.75}};
  double found[3];
  for (size_t tile = 0; tile < 6; tile++) {
    for (size_t number = 0; number < 3; number++) {
      OK(halocline_cubed_sphere_point(tile, places[number], found));
      TRUE(is_near((vector){found[0], found[1], found[2]}, point_of(tile, places[number])));
    }
  }
  REFUSED(WRONG, "there is no tile 6; the cubed sphere has tiles 0 to 5", halocline_cubed_sphere_point(6, places[0], found));
  const double outside[2] = {0.5, -0.75};
  REFUSED(WRONG, "the coordinate along axis 1 of a point of tile 2 is -0.75", halocline_cubed_sphere_point(2, outside, found));
  REFUSED(WRONG, "point is NULL", halocline_cubed_sphere_point(0, places[0], NULL));
  REFUSED(WRONG, "along is NULL", halocline_cubed_sphere_point(0, NULL, found));
}

/* One patch that is periodic along its rows, and folded or poles at its ends. */
typedef struct {
  int64_t rows, columns;
  halocline_quantity quantity;
  /* HALOCLINE_SEAM_FOLD_CELL, _FOLD_CORNER or _POLE. */
  int32_t north;
} globe;

/* A number for each place of each component. Coordinates count half cells: whole numbers. */
static double number_of(size_t component, int64_t y, int64_t x) { return (double)((int64_t)component * 100000 + y * 1000 + x + 1); }

static int64_t wrapped(int64_t x, int64_t columns) { return ((x % (2 * columns)) + 2 * columns) % (2 * columns); }

static double own_on_globe(const void *grid, const place *at) {
  const globe *of = grid;
  const int64_t y = llround(2 * coordinate(&of->quantity, at, 0)), x = llround(2 * coordinate(&of->quantity, at, 1));
  /* The high faces of the last column are the low ones of the first. */
  return number_of(at->component, y, wrapped(x, of->columns));
}

/* Behind the northern side, coordinates continue from the fold, or from the pole, on the other side of the Earth. A value on the line itself
 * is that of its partner with the lower index. */
static double after_on_globe(const void *grid, const place *at) {
  const globe *of = grid;
  const int is_fold_of_cells = of->north == HALOCLINE_SEAM_FOLD_CELL, is_pole = of->north == HALOCLINE_SEAM_POLE;
  const int64_t line = 2 * of->rows - (is_fold_of_cells ? 1 : 0);
  int64_t y = llround(2 * coordinate(&of->quantity, at, 0)), x = llround(2 * coordinate(&of->quantity, at, 1));
  const double sign = of->quantity.components == 2 ? -1 : 1;
  x = wrapped(x, of->columns);
  if (y < 0 && is_pole) {
    return sign * number_of(at->component, -y, wrapped(x + of->columns, of->columns));
  }
  /* Of high faces the line y = 0 lies outside. */
  if (y < of->quantity.places[at->component][0]) {
    return UNFILLED;
  }
  const int64_t partner = wrapped(is_pole ? x + of->columns : 2 * of->columns - x + (is_fold_of_cells ? 2 : 0), of->columns);
  /* High faces are numbered from 2 on: the face at 0 is the last one. */
  const int is_high = of->quantity.places[at->component][1] == HALOCLINE_ALONG_HIGH_FACES;
  const int64_t index = is_high ? wrapped(x - 2, of->columns) : x, partner_index = is_high ? wrapped(partner - 2, of->columns) : partner;
  if (y > line || (y == line && partner_index < index)) {
    return sign * number_of(at->component, 2 * line - y, partner);
  }
  return number_of(at->component, y, x);
}

static void exchange_on_globe(halocline_comm comm, halocline_patch_grid grid, size_t size, const globe *of) {
  halocline_patch_decomposition blocks;
  OK(halocline_patch_decompose(grid, size, &blocks));
  for (size_t width = 1; width < 4; width++) {
    tiles made = make_tiles(comm, blocks, &of->quantity, width);
    values expected = {of, own_on_globe, after_on_globe, 0, 0};
    exchange_tiles(comm, &made, &expected, HALOCLINE_LINK_AUTO);
    free_tiles(&made);
  }
  OK(halocline_patch_decomposition_free(&blocks));
}

/* T, U and V points across a fold of either pivot: the components of a velocity change their sign. */
static void folds(halocline_comm comm, size_t size) {
  const halocline_quantity at_t = HALOCLINE_QUANTITY_INIT;
  halocline_quantity velocity = HALOCLINE_QUANTITY_CELL_VECTORS_INIT;
  velocity.places[0][0] = HALOCLINE_ALONG_HIGH_FACES, velocity.places[1][1] = HALOCLINE_ALONG_HIGH_FACES;
  const int32_t kinds[] = {HALOCLINE_SEAM_FOLD_CELL, HALOCLINE_SEAM_FOLD_CORNER};
  for (int32_t pivot = HALOCLINE_PIVOT_CELL; pivot <= HALOCLINE_PIVOT_CORNER; pivot++) {
    globe of = {.rows = 8, .columns = 12, .quantity = at_t, .north = kinds[pivot]};
    halocline_patch_grid grid;
    OK(halocline_patch_grid_tripolar(8, 12, pivot, &grid));
    exchange_on_globe(comm, grid, size, &of);
    of.quantity = velocity;
    exchange_on_globe(comm, grid, size, &of);
    OK(halocline_patch_grid_free(&grid));
  }
}

static void poles(halocline_comm comm, size_t size) {
  const halocline_quantity scalars = HALOCLINE_QUANTITY_INIT, vectors = HALOCLINE_QUANTITY_CELL_VECTORS_INIT;
  globe of = {.rows = 8, .columns = 12, .quantity = scalars, .north = HALOCLINE_SEAM_POLE};
  halocline_patch_grid grid;
  OK(halocline_patch_grid_latitude_longitude(8, 12, &grid));
  exchange_on_globe(comm, grid, size, &of);
  of.quantity = vectors;
  exchange_on_globe(comm, grid, size, &of);
  OK(halocline_patch_grid_free(&grid));
}

/* Values after the transfers of this rank, which are made by hand. */
typedef struct {
  const halocline_patch_transfer *transfers;
  size_t count;
  halocline_patch_decomposition blocks;
  halocline_quantity quantity;
} by_hand;

static double own_by_hand(const void *grid, const place *at) {
  (void)grid;
  return (double)((((int64_t)at->patch * 2 + (int64_t)at->component) * 64 + at->at[0]) * 64 + at->at[1] + 1);
}

/* The first value of a component that a domain holds. */
static halocline_patch_block block_of(const by_hand *of, uint64_t domain, size_t component) {
  halocline_patch_block block = HALOCLINE_PATCH_BLOCK_INIT;
  OK(halocline_patch_decomposition_block(of->blocks, domain, &of->quantity, component, &block));
  return block;
}

static double after_by_hand(const void *grid, const place *at) {
  const by_hand *of = grid;
  for (size_t number = 0; number < of->count; number++) {
    const halocline_patch_transfer *moved = &of->transfers[number];
    const halocline_patch_block to = block_of(of, moved->to, moved->to_component);
    if (to.patch != at->patch || moved->to_component != at->component) continue;
    const halocline_patch_block from = block_of(of, moved->from, moved->from_component);
    place source = {from.patch, moved->from_component, {0, 0}};
    int is_within = 1;
    for (size_t axis = 0; axis < 2; axis++) {
      const int64_t step = at->at[axis] - (int64_t)to.first[axis] - moved->target[axis], extent = (int64_t)moved->extents[axis];
      const size_t along = moved->is_swapped ? 1 - axis : axis;
      is_within &= step >= 0 && step < extent;
      source.at[along] = (int64_t)from.first[along] + moved->source[along] + (moved->is_flipped[axis] ? extent - 1 - step : step);
    }
    if (is_within) {
      return (moved->is_negated ? -1 : 1) * own_by_hand(NULL, &source);
    }
  }
  const halocline_patch_block whole = block_of(of, at->patch, at->component);
  const int is_held = at->at[0] >= 0 && at->at[1] >= 0 && at->at[0] < (int64_t)whole.extents[0] && at->at[1] < (int64_t)whole.extents[1];
  return is_held ? own_by_hand(NULL, at) : UNFILLED;
}

/* What an exchange moves is what the transfers of each rank say. One block for each patch: a place is in one domain alone. */
static void transfers(halocline_comm comm, size_t rank, size_t size) {
  halocline_patch_grid grid, filled;
  OK(halocline_patch_grid_cubed_sphere(4, &grid));
  OK(halocline_patch_grid_corners_through(grid, 1, &filled));
  const size_t blocks_of_patches[12] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  by_hand of = {.quantity = HALOCLINE_QUANTITY_C_GRID_INIT};
  OK(halocline_patch_decompose_into(filled, blocks_of_patches, size, &of.blocks));
  uint64_t first, end;
  OK(halocline_patch_decomposition_domains_of(of.blocks, rank, &first, &end));
  const halocline_halo width = width_of(2);
  OK(halocline_patch_transfers(of.blocks, rank, &of.quantity, &width, NULL, 0, &of.count));
  halocline_patch_transfer *list = malloc(of.count * sizeof *list);
  OK(halocline_patch_transfers(of.blocks, rank, &of.quantity, &width, list, of.count, &of.count));
  size_t negated = 0, swapped = 0;
  for (size_t number = 0; number < of.count; number++) {
    negated += list[number].is_negated == 1, swapped += list[number].is_swapped == 1;
    TRUE(list[number].from_rank == rank || list[number].to_rank == rank);
    TRUE((list[number].to_rank == rank) == (list[number].to >= first && list[number].to < end));
  }
  TRUE(negated > 0 && swapped > 0);
  of.transfers = list;
  tiles made = make_tiles(comm, of.blocks, &of.quantity, 2);
  TRUE(made.count == 2 * (end - first));
  values expected = {&of, own_by_hand, after_by_hand, 0, 0};
  exchange_tiles(comm, &made, &expected, HALOCLINE_LINK_AUTO);
  free_tiles(&made);
  free(list);
  OK(halocline_patch_decomposition_free(&of.blocks));
  OK(halocline_patch_grid_free(&filled));
  OK(halocline_patch_grid_free(&grid));
}

/* The halo of one cell within arrays that have two, and the numbers of domains of both components. */
static void narrowed_and_numbered(halocline_comm comm, size_t size) {
  halocline_patch_grid grid;
  halocline_patch_decomposition blocks;
  OK(halocline_patch_grid_cubed_sphere(4, &grid));
  OK(halocline_patch_decompose(grid, size, &blocks));
  const halocline_quantity quantity = HALOCLINE_QUANTITY_CELL_VECTORS_INIT;
  const halocline_halo one = width_of(1);
  tiles made = make_tiles(comm, blocks, &quantity, 2);
  halocline_pattern narrow;
  OK(halocline_pattern_narrowed(made.pattern, &one, &narrow));
  size_t count, filled = 0;
  OK(halocline_pattern_domains(narrow, &count));
  TRUE(count == made.count);
  halocline_binding bindings[MOST_FIELDS];
  halocline_field fields[MOST_FIELDS];
  for (size_t at = 0; at < count; at++) {
    halocline_domain domain = HALOCLINE_DOMAIN_INIT;
    OK(halocline_pattern_domain(narrow, at, &domain));
    /* Both components of a domain follow each other. */
    const halocline_domain *of = &made.domains[at / 2 + (at % 2) * (count / 2)];
    TRUE(domain.number == 2 * of->number + at % 2 && domain.extents[0] == of->extents[0]);
    OK(halocline_field_on_domain(made.fields[at / 2 + (at % 2) * (count / 2)], domain.number, &fields[at]));
    bindings[at] = (halocline_binding){narrow, fields[at]};
  }
  halocline_halo_exchange halo;
  OK(halocline_bind(comm, bindings, count, NULL, &halo));
  for (size_t at = 0; at < count; at++) {
    void *base;
    OK(halocline_field_base(made.fields[at], &base));
    double *cells = base;
    const halocline_domain *domain = &made.domains[at];
    for (size_t cell = 0; cell < domain->extents[0] * domain->extents[1]; cell++) {
      const size_t i = cell / domain->extents[1], j = cell % domain->extents[1];
      const int is_owned = i >= 2 && j >= 2 && i < 2 + domain->owned.extents[0] && j < 2 + domain->owned.extents[1];
      cells[cell] = is_owned ? 1 : 0;
    }
  }
  OK(halocline_exchange_and_wait(halo));
  for (size_t at = 0; at < made.count; at++) {
    void *base;
    OK(halocline_field_base(made.fields[at], &base));
    const halocline_domain *domain = &made.domains[at];
    const double *cells = base;
    for (size_t j = 0; j < domain->extents[1]; j++) {
      TRUE(cells[j] == 0);
      filled += cells[domain->extents[1] + j] != 0;
    }
    /* Behind corners of three tiles nothing is filled. */
    TRUE(cells[domain->extents[1] + 2] != 0);
  }
  TRUE(filled >= made.count * made.domains[0].owned.extents[1]);
  OK(halocline_halo_exchange_free(&halo));
  for (size_t at = 0; at < count; at++) {
    OK(halocline_field_free(&fields[at]));
  }
  OK(halocline_pattern_free(&narrow));
  free_tiles(&made);
  OK(halocline_patch_decomposition_free(&blocks));
  OK(halocline_patch_grid_free(&grid));
}

/* Two patches: the eastern side of patch 0 is the southern one of patch 1, read in the opposite direction. */
static const size_t JOINED[4] = {4, 6, 5, 4};

static double after_joined(const void *grid, const place *at) {
  const int64_t i = at->at[0], j = at->at[1], rows = (int64_t)JOINED[2 * at->patch], columns = (int64_t)JOINED[2 * at->patch + 1];
  place source = *at;
  if (at->patch == 0 && j >= columns && i >= 0 && i < rows) {
    source = (place){1, 0, {j - columns, 3 - i}};
  } else if (at->patch == 1 && i < 0 && j >= 0 && j < columns) {
    source = (place){0, 0, {3 - j, 6 + i}};
  } else if (i < 0 || j < 0 || i >= rows || j >= columns) {
    return UNFILLED;
  }
  return own_by_hand(grid, &source);
}

static void joined(halocline_comm comm, size_t size) {
  const halocline_seam seam = {HALOCLINE_SEAM_JOIN_REVERSED, {0, 1, 1}, {1, 0, 0}};
  halocline_patch_grid grid;
  OK(halocline_patch_grid_create(JOINED, 2, &seam, 1, &grid));
  size_t extents[4], count, ranks, blocks_of_patches[4];
  halocline_seam found;
  OK(halocline_patch_grid_extents(grid, extents, 4, &count));
  TRUE(count == 4 && memcmp(extents, JOINED, sizeof extents) == 0);
  OK(halocline_patch_grid_seams(grid, &found, 1, &count));
  TRUE(count == 1 && found.kind == seam.kind && found.one.patch == 0 && found.one.axis == 1 && found.one.is_high == 1);
  TRUE(found.other.patch == 1 && found.other.axis == 0 && found.other.is_high == 0);

  const size_t wanted[4] = {2, 2, 1, 1};
  halocline_patch_decomposition blocks;
  uint64_t domains;
  OK(halocline_patch_decompose_into(grid, wanted, size, &blocks));
  OK(halocline_patch_grid_free(&grid));
  OK(halocline_patch_decomposition_describe(blocks, &ranks, &domains, blocks_of_patches, 4, &count));
  TRUE(ranks == size && domains == 5 && count == 4 && memcmp(blocks_of_patches, wanted, sizeof wanted) == 0);
  halocline_patch_block block = HALOCLINE_PATCH_BLOCK_INIT;
  OK(halocline_patch_decomposition_block(blocks, 3, NULL, 0, &block));
  TRUE(block.patch == 0 && block.first[0] == 2 && block.first[1] == 3 && block.extents[0] == 2 && block.extents[1] == 3);
  TRUE(block.owner == 3 * size / 5);

  const halocline_quantity cells = HALOCLINE_QUANTITY_INIT;
  tiles made = make_tiles(comm, blocks, &cells, 2);
  OK(halocline_patch_decomposition_free(&blocks));
  values expected = {NULL, own_by_hand, after_joined, 0, 0};
  exchange_by_every_path(comm, &made, &expected);
  free_tiles(&made);

  OK(halocline_patch_grid_lat_lon_cap(2, &grid));
  size_t of_caps[10];
  const size_t caps[10] = {6, 2, 6, 2, 2, 2, 2, 6, 2, 6};
  OK(halocline_patch_grid_extents(grid, of_caps, 10, &count));
  TRUE(count == 10 && memcmp(of_caps, caps, sizeof caps) == 0);
  OK(halocline_patch_grid_seams(grid, NULL, 0, &count));
  TRUE(count == 8);
  OK(halocline_patch_grid_free(&grid));
}

static void refused_grids(void) {
  enum { WRONG = HALOCLINE_ERROR_ARGUMENT };
  halocline_patch_grid grid = {0}, none = {0};
  halocline_patch_decomposition blocks;
  const size_t extents[4] = {4, 6, 5, 6}, empty[2] = {4, 0};
  halocline_seam seam = {HALOCLINE_SEAM_JOIN, {0, 1, 1}, {1, 1, 0}};
  points();
  REFUSED(WRONG, "grid is NULL", halocline_patch_grid_cubed_sphere(4, NULL));
  REFUSED(WRONG, "patch 0 has 0 cells along axis 0", halocline_patch_grid_cubed_sphere(0, &grid));
  REFUSED(WRONG, "more than 2^60 cells", halocline_patch_grid_lat_lon_cap(SIZE_MAX, &grid));
  REFUSED(WRONG, "pivot is 2; set it to HALOCLINE_PIVOT_CELL", halocline_patch_grid_tripolar(4, 6, 2, &grid));
  REFUSED(WRONG, "has 7 cells; the number must be even", halocline_patch_grid_tripolar(4, 7, HALOCLINE_PIVOT_CELL, &grid));
  REFUSED(WRONG, "must be even", halocline_patch_grid_latitude_longitude(4, 7, &grid));
  REFUSED(WRONG, "a grid of 0 patches", halocline_patch_grid_create(NULL, 0, NULL, 0, &grid));
  REFUSED(WRONG, "extents is NULL, and has 4 elements", halocline_patch_grid_create(NULL, 2, NULL, 0, &grid));
  REFUSED(WRONG, "more than the address space holds", halocline_patch_grid_create(extents, SIZE_MAX, NULL, 0, &grid));
  REFUSED(WRONG, "seams is NULL, and has 1 elements", halocline_patch_grid_create(extents, 2, NULL, 1, &grid));
  REFUSED(WRONG, "patch 0 has 0 cells along axis 1", halocline_patch_grid_create(empty, 1, NULL, 0, &grid));
  REFUSED(WRONG, "which is 4 cells long", halocline_patch_grid_create(extents, 2, &seam, 1, &grid));
  seam.other.patch = 2;
  REFUSED(WRONG, "seam 0 names the low side of axis 1 of patch 2", halocline_patch_grid_create(extents, 2, &seam, 1, &grid));
  seam.other = seam.one;
  REFUSED(WRONG, "set `kind` to HALOCLINE_SEAM_FOLD_CELL, HALOCLINE_SEAM_FOLD_CORNER or HALOCLINE_SEAM_POLE",
          halocline_patch_grid_create(extents, 2, &seam, 1, &grid));
  seam.kind = HALOCLINE_SEAM_POLE;
  REFUSED(WRONG, "join its two sides with each other, not reversed (HALOCLINE_SEAM_JOIN)", halocline_patch_grid_create(extents, 2, &seam, 1, &grid));
  seam.kind = 5;
  REFUSED(WRONG, "seam 0: kind is 5; set it to HALOCLINE_SEAM_JOIN", halocline_patch_grid_create(extents, 2, &seam, 1, &grid));
  seam.kind = HALOCLINE_SEAM_JOIN, seam.one.is_high = 7;
  REFUSED(WRONG, "is_high of a side is 7", halocline_patch_grid_create(extents, 2, &seam, 1, &grid));
  REFUSED(HALOCLINE_ERROR_HANDLE, "the halocline_patch_grid is null", halocline_patch_decompose(none, 1, &blocks));
  OK(halocline_patch_grid_latitude_longitude(4, 6, &grid));
  REFUSED(WRONG, "use the grid without `halocline_patch_grid_corners_through`", halocline_patch_grid_corners_through(grid, 0, &none));
  size_t few[1], count;
  REFUSED(WRONG, "extents has a capacity of 1 elements, 2 are needed", halocline_patch_grid_extents(grid, few, 1, &count));
  OK(halocline_patch_grid_free(&grid));
}

/* The arguments of all ranks are wrong; each learns its own reason, or that of another rank. */
#define REFUSED_COLLECTIVELY(text, call)                                                                                     \
  do {                                                                                                                       \
    halocline_status returned_ = (call);                                                                                     \
    TRUE(returned_ == HALOCLINE_ERROR_ARGUMENT || returned_ == HALOCLINE_ERROR_ELSEWHERE);                                   \
    REFUSED(returned_, text, returned_);                                                                                     \
  } while (0)

static void refused_patterns(halocline_comm comm, size_t size) {
  enum { WRONG = HALOCLINE_ERROR_ARGUMENT };
  halocline_patch_grid grid;
  halocline_patch_decomposition blocks, others;
  halocline_pattern pattern, component;
  OK(halocline_patch_grid_cubed_sphere(4, &grid));
  REFUSED(WRONG, "corners filled through axis 2", halocline_patch_grid_corners_through(grid, 2, &grid));
  REFUSED(WRONG, "ranks", halocline_patch_decompose(grid, 0, &blocks));
  REFUSED(WRONG, "97 ranks for patches of 96 cells", halocline_patch_decompose(grid, 97, &blocks));
  REFUSED(WRONG, "use at most 96 ranks", halocline_patch_decompose(grid, SIZE_MAX, &blocks));
  /* A prime number of ranks, and one cell more than blocks there may be. */
  const size_t square[2] = {65536, 65536};
  halocline_patch_grid large;
  OK(halocline_patch_grid_create(square, 1, NULL, 0, &large));
  REFUSED(WRONG, "give the blocks of each patch (`halocline_patch_decompose_into`)",
          halocline_patch_decompose(large, 4294967291, &blocks));
  OK(halocline_patch_grid_free(&large));
  const size_t too_many[12] = {1, 1, 1, 1, 1, 5, 1, 1, 1, 1, 1, 1};
  REFUSED(WRONG, "5 blocks along axis 1 of patch 2", halocline_patch_decompose_into(grid, too_many, 1, &blocks));
  REFUSED(WRONG, "blocks is NULL, and has 12 elements", halocline_patch_decompose_into(grid, NULL, 1, &blocks));
  OK(halocline_patch_decompose(grid, size, &blocks));
  OK(halocline_patch_decompose(grid, size + 1, &others));
  OK(halocline_patch_grid_free(&grid));

  halocline_patch_block block = HALOCLINE_PATCH_BLOCK_INIT;
  halocline_quantity quantity = HALOCLINE_QUANTITY_C_GRID_INIT;
  uint64_t first, end;
  size_t count;
  REFUSED(WRONG, "there is no domain 1000; the decomposition has", halocline_patch_decomposition_block(blocks, 1000, NULL, 0, &block));
  REFUSED(WRONG, "component is 2; the quantity has 2", halocline_patch_decomposition_block(blocks, 0, &quantity, 2, &block));
  REFUSED(WRONG, "rank", halocline_patch_decomposition_domains_of(blocks, size, &first, &end));
  REFUSED(WRONG, "end is NULL", halocline_patch_decomposition_domains_of(blocks, 0, &first, NULL));
  block.size = 8;
  REFUSED(WRONG, "`size` of the halocline_patch_block is 8", halocline_patch_decomposition_block(blocks, 0, NULL, 0, &block));
  const halocline_halo one = width_of(1), wide = width_of(5);
  REFUSED(WRONG, "rank", halocline_patch_transfers(blocks, size, NULL, &one, NULL, 0, &count));
  REFUSED(WRONG, "it can be at most 4 wide there", halocline_patch_transfers(blocks, 0, NULL, &wide, NULL, 0, &count));

  REFUSED_COLLECTIVELY("it can be at most 4 wide there", halocline_pattern_patches(comm, blocks, NULL, &wide, &pattern));
  REFUSED_COLLECTIVELY("ranks", halocline_pattern_patches(comm, others, NULL, &one, &pattern));
  quantity.components = 3;
  REFUSED_COLLECTIVELY("components of the quantity is 3", halocline_pattern_patches(comm, blocks, &quantity, &one, &pattern));
  quantity.components = 1;
  REFUSED_COLLECTIVELY("give both (2 `components` of the quantity)", halocline_pattern_patches(comm, blocks, &quantity, &one, &pattern));
  quantity.components = 2, quantity.places[1][0] = -1;
  REFUSED_COLLECTIVELY("a place of the quantity is -1; set it to HALOCLINE_ALONG_CENTRE",
                       halocline_pattern_patches(comm, blocks, &quantity, &one, &pattern));
  OK(halocline_pattern_patches(comm, blocks, NULL, &one, &pattern));
  REFUSED(WRONG, "has components (2 `components` of the quantity)", halocline_pattern_component(pattern, 0, &component));
  OK(halocline_pattern_free(&pattern));

  /* Both components of a vector, and elements that have a sign. */
  quantity = (halocline_quantity)HALOCLINE_QUANTITY_CELL_VECTORS_INIT;
  tiles made = make_tiles(comm, blocks, &quantity, 1);
  halocline_halo_exchange halo;
  REFUSED_COLLECTIVELY("component 1 of domain", halocline_bind(comm, made.bindings, made.count / 2, NULL, &halo));
  REFUSED(WRONG, "component 2 of a pattern with 2", halocline_pattern_component(made.pattern, 2, &component));
  halocline_field whole;
  REFUSED_COLLECTIVELY("of one component (`halocline_pattern_component`)",
                       halocline_gather_to(made.pattern, 0, made.fields, made.count, &whole));
  free_tiles(&made);
  OK(halocline_patch_decomposition_free(&others));
  OK(halocline_patch_decomposition_free(&blocks));
}

static void run(halocline_comm comm, size_t rank, size_t size) {
  cubed_sphere(comm, size);
  folds(comm, size);
  poles(comm, size);
  transfers(comm, rank, size);
  narrowed_and_numbered(comm, size);
  joined(comm, size);
  refused_grids();
  refused_patterns(comm, size);
}
