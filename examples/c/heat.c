/* The heat equation on a 2-D grid cut into blocks, one for each rank. The interior is computed while the halos travel. At the end rank 0
 * computes the same alone and compares, bit by bit.
 *
 *     cc heat.c $(pkg-config --cflags --libs halocline) -o heat
 *     ./heat
 *     halocline launch -n 4 -- ./heat
 *     mpirun -n 4 ./heat
 */
#include <halocline.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NX = 96, NY = 80, STEPS = 200 };

/* Ends the program with the message of a call that fails. */
static void check(halocline_status status) {
  if (status != HALOCLINE_OK) {
    fprintf(stderr, "%s: %s\n", halocline_status_name(status), halocline_error_message());
    exit(1);
  }
}

/* The first temperature of a cell of the whole grid. */
static double initial(size_t x, size_t y) { return (x / 8 + y / 8) % 2 == 0 ? 1.0 : 0.0; }

/* One step for a box of cells; rows have `width` cells, halo included. */
static void step(const double *from, double *to, size_t width, const halocline_box *cells) {
  for (size_t x = cells->first[0]; x < cells->first[0] + cells->extents[0]; x++) {
    for (size_t y = cells->first[1]; y < cells->first[1] + cells->extents[1]; y++) {
      const double *t = from + x * width + y;
      to[x * width + y] = t[0] + 0.2 * (t[-(ptrdiff_t)width] + t[width] + t[-1] + t[1] - 4.0 * t[0]);
    }
  }
}

/* What a rank has: its domain, and the temperature of this step and the next. */
typedef struct {
  halocline_pattern pattern;
  halocline_domain domain;
  halocline_field fields[2];
  double *memory[2];
} rank_state;

static rank_state make_rank(halocline_comm comm) {
  rank_state rank = {.domain = HALOCLINE_DOMAIN_INIT};
  size_t ranks, extents[2] = {NX, NY};
  const int32_t periodic[2] = {1, 1};
  check(halocline_comm_size(comm, &ranks));
  halocline_grid grid = HALOCLINE_GRID_INIT;
  grid.axes = 2, grid.extents = extents, grid.periodic = periodic;
  halocline_decomposition blocks;
  check(halocline_decompose(&grid, ranks, &blocks));
  halocline_halo halo = HALOCLINE_HALO_INIT;
  halo.width = 1, halo.neighbours = HALOCLINE_FACES;
  check(halocline_pattern_regular(comm, blocks, &halo, &rank.pattern));
  check(halocline_decomposition_free(&blocks));
  check(halocline_pattern_domain(rank.pattern, 0, &rank.domain));

  halocline_layout layout = HALOCLINE_LAYOUT_INIT;
  layout.dimensions = 2, layout.extents = rank.domain.extents, layout.element = HALOCLINE_F64;
  for (int level = 0; level < 2; level++) {
    void *base;
    check(halocline_field_allocate(comm, &layout, &rank.fields[level]));
    check(halocline_field_base(rank.fields[level], &base));
    rank.memory[level] = base;
  }
  return rank;
}

static void fill(const rank_state *rank) {
  const halocline_box *owned = &rank->domain.owned;
  for (size_t x = owned->first[0]; x < owned->first[0] + owned->extents[0]; x++) {
    for (size_t y = owned->first[1]; y < owned->first[1] + owned->extents[1]; y++) {
      size_t local[2] = {x, y};
      int64_t global[2];
      check(halocline_domain_global(rank->pattern, 0, local, global));
      rank->memory[0][x * rank->domain.extents[1] + y] = initial((size_t)global[0], (size_t)global[1]);
    }
  }
}

static void simulate(halocline_comm comm, const rank_state *rank) {
  /* Two time levels, bound together: each step exchanges the one that it reads. */
  halocline_binding levels[2] = {{rank->pattern, rank->fields[0]}, {rank->pattern, rank->fields[1]}};
  halocline_bind_options options = HALOCLINE_BIND_OPTIONS_INIT;
  options.name = "temperature";
  halocline_halo_exchange halo;
  check(halocline_bind_alternatives(comm, levels, 1, 2, &options, &halo));
  halocline_box interior, boundary[4];
  size_t boxes;
  check(halocline_domain_interior(rank->pattern, 0, 1, &interior));
  check(halocline_domain_boundary(rank->pattern, 0, 1, boundary, 4, &boxes));

  size_t width = rank->domain.extents[1];
  for (size_t at = 0; at < STEPS; at++) {
    const double *from = rank->memory[at % 2];
    double *to = rank->memory[(at + 1) % 2];
    halocline_pending pending;
    check(halocline_exchange_set(halo, at % 2, &pending));
    step(from, to, width, &interior);
    check(halocline_wait(pending));
    for (size_t box = 0; box < boxes; box++) {
      step(from, to, width, &boundary[box]);
    }
  }
  check(halocline_halo_exchange_free(&halo));
}

/* The same on the whole grid, with a halo that is copied by hand. */
static double *simulate_alone(void) {
  const size_t width = NY + 2, cells = (NX + 2) * width;
  double *levels[2] = {calloc(cells, sizeof(double)), calloc(cells, sizeof(double))};
  const halocline_box all = {{1, 1}, {NX, NY}};
  for (size_t x = 0; x < NX; x++) {
    for (size_t y = 0; y < NY; y++) {
      levels[0][(x + 1) * width + y + 1] = initial(x, y);
    }
  }
  for (size_t at = 0; at < STEPS; at++) {
    double *t = levels[at % 2];
    for (size_t x = 1; x <= NX; x++) {
      t[x * width] = t[x * width + NY];
      t[x * width + NY + 1] = t[x * width + 1];
    }
    memcpy(t, t + NX * width, width * sizeof(double));
    memcpy(t + (NX + 1) * width, t + width, width * sizeof(double));
    step(t, levels[(at + 1) % 2], width, &all);
  }
  free(levels[(STEPS + 1) % 2]);
  return levels[STEPS % 2];
}

int main(void) {
  halocline_comm comm;
  size_t ranks;
  check(halocline_init(&comm));
  check(halocline_comm_size(comm, &ranks));
  rank_state rank = make_rank(comm);
  fill(&rank);
  simulate(comm, &rank);

  halocline_field whole;
  check(halocline_gather_to(rank.pattern, 0, &rank.fields[STEPS % 2], 1, &whole));
  int different = 0;
  if (whole.id != 0) {
    void *base;
    check(halocline_field_base(whole, &base));
    double *found = base, *alone = simulate_alone();
    for (size_t x = 0; x < NX; x++) {
      different |= memcmp(found + x * NY, alone + (x + 1) * (NY + 2) + 1, NY * sizeof(double));
    }
    free(alone);
    printf("heat: %d steps on %zu ranks, %s one rank\n", STEPS, ranks, different ? "DIFFERENT from" : "equal to");
    check(halocline_field_free(&whole));
  }
  for (int level = 0; level < 2; level++) {
    check(halocline_field_free(&rank.fields[level]));
  }
  check(halocline_pattern_free(&rank.pattern));
  check(halocline_comm_free(&comm));
  return different != 0;
}
