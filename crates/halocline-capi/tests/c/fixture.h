/* A regular grid over all ranks with a field of doubles on each domain, and what each cell holds after an exchange. */
#ifndef FIXTURE_H
#define FIXTURE_H

#include "ranks.h"

enum { MOST_DOMAINS = 4 };

typedef struct {
  halocline_grid grid;
  /* HALOCLINE_ALL, HALOCLINE_FACES or HALOCLINE_FACES_AND_EDGES. */
  int32_t neighbours;
  halocline_pattern pattern;
  size_t count;
  halocline_domain domains[MOST_DOMAINS];
  /* Fields of the domains. */
  halocline_field fields[MOST_DOMAINS];
} fixture;

/* The paths that all host memory of one node has. */
static const int32_t PATHS[] = {HALOCLINE_LINK_AUTO, HALOCLINE_LINK_MAILBOX, HALOCLINE_LINK_MESSAGE};
enum { PATH_COUNT = sizeof PATHS / sizeof *PATHS };

/* The pattern of a decomposition, and fields of its domains with this layout in memory of the library. `layout` gives what is not C order. */
static fixture make_fixture(halocline_comm comm, halocline_decomposition blocks, const halocline_grid *grid,
                        const halocline_halo *halo) {
  fixture made = {.grid = *grid, .neighbours = halo->neighbours};
  OK(halocline_pattern_regular(comm, blocks, halo, &made.pattern));
  OK(halocline_pattern_domains(made.pattern, &made.count));
  TRUE(made.count <= MOST_DOMAINS);
  for (size_t at = 0; at < made.count; at++) {
    made.domains[at] = (halocline_domain)HALOCLINE_DOMAIN_INIT;
    OK(halocline_pattern_domain(made.pattern, at, &made.domains[at]));
    halocline_layout layout = HALOCLINE_LAYOUT_INIT;
    layout.dimensions = grid->axes, layout.extents = made.domains[at].extents, layout.element = HALOCLINE_F64;
    halocline_field field;
    OK(halocline_field_allocate(comm, &layout, &field));
    OK(halocline_field_on_domain(field, made.domains[at].number, &made.fields[at]));
    OK(halocline_field_free(&field));
  }
  return made;
}

static void free_fixture(fixture *made) {
  for (size_t at = 0; at < made->count; at++) {
    OK(halocline_field_free(&made->fields[at]));
  }
  OK(halocline_pattern_free(&made->pattern));
}

/* Binds the fields of all domains. */
static halocline_halo_exchange bind_fixture(halocline_comm comm, const fixture *of, const halocline_bind_options *options) {
  halocline_binding bindings[MOST_DOMAINS];
  for (size_t at = 0; at < of->count; at++) {
    bindings[at] = (halocline_binding){of->pattern, of->fields[at]};
  }
  halocline_halo_exchange halo;
  OK(halocline_bind(comm, bindings, of->count, options, &halo));
  return halo;
}

static halocline_bind_options by_path(int32_t link) {
  halocline_bind_options options = HALOCLINE_BIND_OPTIONS_INIT;
  options.link = link;
  return options;
}

/* What cells without a value hold. */
static const double EMPTY = -1.0;

/* Calls `visit` with each cell of the fields: its address, how many axes it is outside the owned cells, and its value or EMPTY if it
 * is outside the grid. */
static size_t each_cell(const fixture *of, int phase, size_t (*visit)(double *cell, size_t outside, double value, const fixture *of)) {
  size_t sum = 0;
  for (size_t at = 0; at < of->count; at++) {
    const halocline_domain *domain = &of->domains[at];
    void *base;
    ptrdiff_t strides[HALOCLINE_AXES];
    size_t dimensions, cells = 1;
    OK(halocline_field_base(of->fields[at], &base));
    OK(halocline_field_describe(of->fields[at], NULL, strides, HALOCLINE_AXES, &dimensions, NULL));
    for (size_t axis = 0; axis < domain->axes; axis++) {
      cells *= domain->extents[axis];
    }
    for (size_t cell = 0; cell < cells; cell++) {
      size_t local[HALOCLINE_AXES] = {0}, rest = cell, outside = 0;
      ptrdiff_t offset = 0;
      for (size_t axis = domain->axes; axis-- > 0; rest /= domain->extents[axis]) {
        local[axis] = rest % domain->extents[axis];
        const size_t first = domain->owned.first[axis];
        outside += local[axis] < first || local[axis] >= first + domain->owned.extents[axis];
        offset += (ptrdiff_t)local[axis] * strides[axis];
      }
      int64_t global[HALOCLINE_AXES] = {0};
      OK(halocline_domain_global(of->pattern, at, local, global));
      double value = phase;
      for (size_t axis = 0; axis < domain->axes && value != EMPTY; axis++) {
        int64_t extent = (int64_t)of->grid.extents[axis];
        int is_inside = global[axis] >= 0 && global[axis] < extent;
        int is_periodic = of->grid.periodic != NULL && of->grid.periodic[axis];
        value = is_inside || is_periodic ? value * 64 + (double)(((global[axis] % extent) + extent) % extent) : EMPTY;
      }
      sum += visit((double *)((char *)base + offset), outside, value, of);
    }
  }
  return sum;
}

static size_t fill_cell(double *cell, size_t outside, double value, const fixture *of) {
  (void)of;
  *cell = outside == 0 ? value : EMPTY;
  return 0;
}

static size_t is_wrong(double *cell, size_t outside, double value, const fixture *of) {
  const size_t filled[] = {HALOCLINE_AXES, 1, 2};
  return *cell != (outside <= filled[of->neighbours] ? value : EMPTY);
}

/* Owned cells get the values of a phase above 0, halo cells none. */
static void fill_fixture(const fixture *of, int phase) { each_cell(of, phase, fill_cell); }

/* Number of cells that have not what the exchange of a phase leaves. */
static size_t wrong_cells(const fixture *of, int phase) { return each_cell(of, phase, is_wrong); }

#endif
