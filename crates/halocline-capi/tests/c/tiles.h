/* Fields of a quantity on all domains of this rank, and what their values are after an exchange. */
#ifndef TILES_H
#define TILES_H

#include "ranks.h"
#include <math.h>

enum { MOST_FIELDS = 16 };

/* A value of a field: the patch, the component, and its index in the patch. */
typedef struct {
  size_t patch;
  size_t component;
  int64_t at[2];
} place;

typedef struct {
  halocline_quantity quantity;
  halocline_pattern pattern;
  size_t count;
  size_t components[MOST_FIELDS];
  halocline_domain domains[MOST_FIELDS];
  /* The patch of each domain, and the values that it holds. */
  halocline_patch_block blocks[MOST_FIELDS];
  halocline_field fields[MOST_FIELDS];
  halocline_binding bindings[MOST_FIELDS];
} tiles;

/* What halo cells hold that no exchange has filled. */
static const double UNFILLED = -1e30;

static halocline_halo width_of(size_t width) {
  halocline_halo halo = HALOCLINE_HALO_INIT;
  halo.width = width;
  return halo;
}

/* The pattern of a quantity, and a field of doubles on each domain of each component. */
static tiles make_tiles(halocline_comm comm, halocline_patch_decomposition blocks, const halocline_quantity *quantity,
                        size_t width) {
  tiles made = {.quantity = *quantity};
  const halocline_halo halo = width_of(width);
  OK(halocline_pattern_patches(comm, blocks, quantity, &halo, &made.pattern));
  for (size_t component = 0; component < quantity->components; component++) {
    halocline_pattern of = made.pattern;
    if (quantity->components > 1) {
      OK(halocline_pattern_component(made.pattern, component, &of));
    }
    size_t domains;
    OK(halocline_pattern_domains(of, &domains));
    for (size_t index = 0; index < domains; index++, made.count++) {
      TRUE(made.count < MOST_FIELDS);
      halocline_domain *domain = &made.domains[made.count];
      halocline_patch_block *block = &made.blocks[made.count];
      *domain = (halocline_domain)HALOCLINE_DOMAIN_INIT;
      *block = (halocline_patch_block)HALOCLINE_PATCH_BLOCK_INIT;
      made.components[made.count] = component;
      OK(halocline_pattern_domain(of, index, domain));
      OK(halocline_patch_decomposition_block(blocks, domain->number, quantity, component, block));
      TRUE(domain->axes == 2 && domain->extents[0] == block->extents[0] + 2 * width);
      halocline_layout layout = HALOCLINE_LAYOUT_INIT;
      layout.dimensions = 2, layout.extents = domain->extents, layout.element = HALOCLINE_F64;
      halocline_field field;
      OK(halocline_field_allocate(comm, &layout, &field));
      OK(halocline_field_on_domain(field, domain->number, &made.fields[made.count]));
      OK(halocline_field_free(&field));
      made.bindings[made.count] = (halocline_binding){of, made.fields[made.count]};
    }
  }
  return made;
}

static void free_tiles(tiles *made) {
  for (size_t at = 0; at < made->count; at++) {
    OK(halocline_field_free(&made->fields[at]));
    /* The domains of a component share its pattern. */
    const int is_last = at + 1 == made->count || made->bindings[at + 1].pattern.id != made->bindings[at].pattern.id;
    if (is_last && made->quantity.components > 1) {
      OK(halocline_pattern_free(&made->bindings[at].pattern));
    }
  }
  OK(halocline_pattern_free(&made->pattern));
}

/* Calls `visit` with each element of the fields, its place, and whether the domain holds it: it is no halo cell. */
static void each_value(const tiles *of, void (*visit)(double *, const place *, int is_held, void *), void *context) {
  for (size_t field = 0; field < of->count; field++) {
    const halocline_domain *domain = &of->domains[field];
    const halocline_patch_block *block = &of->blocks[field];
    void *base;
    OK(halocline_field_base(of->fields[field], &base));
    for (size_t i = 0; i < domain->extents[0]; i++) {
      for (size_t j = 0; j < domain->extents[1]; j++) {
        const size_t local[2] = {i, j};
        place at = {block->patch, of->components[field], {0, 0}};
        int is_held = 1;
        for (size_t axis = 0; axis < 2; axis++) {
          const size_t first = domain->owned.first[axis];
          is_held &= local[axis] >= first && local[axis] < first + domain->owned.extents[axis];
          at.at[axis] = (int64_t)(block->first[axis] + local[axis]) - (int64_t)first;
        }
        visit((double *)base + i * domain->extents[1] + j, &at, is_held, context);
      }
    }
  }
}

/* Values before and after an exchange. */
typedef struct {
  const void *grid;
  /* The value of a place that a domain holds. */
  double (*own)(const void *grid, const place *at);
  /* The value of any place after an exchange; UNFILLED if it has none. */
  double (*after)(const void *grid, const place *at);
  double tolerance;
  size_t wrong;
} values;

static void fill_value(double *value, const place *at, int is_held, void *context) {
  const values *of = context;
  *value = is_held ? of->own(of->grid, at) : UNFILLED;
}

static void check_value(double *value, const place *at, int is_held, void *context) {
  values *of = context;
  const double wanted = of->after(of->grid, at);
  (void)is_held;
  if (!(fabs(*value - wanted) <= of->tolerance)) {
    of->wrong++;
    fprintf(stderr, "patch %zu, component %zu, (%ld, %ld): %g, not %g\n", at->patch, at->component, (long)at->at[0],
            (long)at->at[1], *value, wanted);
  }
}

/* Exchanges the fields over a path, and checks all their values. */
static void exchange_tiles(halocline_comm comm, const tiles *of, values *values, int32_t link) {
  halocline_bind_options options = HALOCLINE_BIND_OPTIONS_INIT;
  options.link = link;
  halocline_halo_exchange halo;
  OK(halocline_bind(comm, of->bindings, of->count, &options, &halo));
  for (int round = 0; round < 2; round++) {
    each_value(of, fill_value, values);
    OK(halocline_exchange_and_wait(halo));
    each_value(of, check_value, values);
    TRUE(values->wrong == 0);
  }
  OK(halocline_halo_exchange_free(&halo));
}

/* The same by every path that all host memory of one node has. */
static void exchange_by_every_path(halocline_comm comm, const tiles *of, values *values) {
  const int32_t paths[] = {HALOCLINE_LINK_AUTO, HALOCLINE_LINK_MAILBOX, HALOCLINE_LINK_MESSAGE};
  for (size_t path = 0; path < sizeof paths / sizeof *paths; path++) {
    exchange_tiles(comm, of, values, paths[path]);
  }
}

/* Where values of a component lie along an axis, in cells from the low side of the patch. */
static double coordinate(const halocline_quantity *of, const place *at, size_t axis) {
  static const double firsts[] = {0.5, 0.0, 1.0};
  return (double)at->at[axis] + firsts[of->places[at->component][axis]];
}

#endif
