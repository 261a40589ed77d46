/* A mesh of squares, and exchanges of fields of unstructured domains whose cells get their global ids. */
#ifndef SQUARES_H
#define SQUARES_H

#include "ranks.h"

/* A mesh of NX x NY squares. */
enum { NX = 9, NY = 7, CELLS = NX * NY, VERTICES = (NX + 1) * (NY + 1), MOST_CELLS = 4096 };

static halocline_mesh squares(void) {
  static _Thread_local uint32_t corners[CELLS][4];
  for (uint32_t x = 0; x < NX; x++) {
    for (uint32_t y = 0; y < NY; y++) {
      uint32_t first = x * (NY + 1) + y;
      uint32_t *own = corners[x * NY + y];
      own[0] = first, own[1] = first + 1, own[2] = first + NY + 2, own[3] = first + NY + 1;
    }
  }
  halocline_mesh mesh;
  OK(halocline_mesh_create(VERTICES, CELLS, 4, &corners[0][0], 0, &mesh));
  return mesh;
}

static double *memory_of(halocline_field field) {
  void *base;
  OK(halocline_field_base(field, &base));
  return base;
}

static halocline_field field_of(halocline_comm comm, size_t cells) {
  halocline_layout layout = HALOCLINE_LAYOUT_INIT;
  layout.dimensions = 1, layout.extents = &cells, layout.element = HALOCLINE_F64;
  halocline_field field;
  OK(halocline_field_allocate(comm, &layout, &field));
  return field;
}

/* Fills owned cells with their ids plus `phase`, all others with -1. */
static void fill(halocline_pattern pattern, halocline_field field, double phase) {
  static _Thread_local uint64_t ids[MOST_CELLS];
  static _Thread_local size_t owned[MOST_CELLS];
  size_t cells, count;
  OK(halocline_domain_ids(pattern, 0, ids, MOST_CELLS, &cells));
  OK(halocline_domain_owned(pattern, 0, owned, MOST_CELLS, &count));
  double *memory = memory_of(field);
  for (size_t cell = 0; cell < cells; cell++) {
    memory[cell] = -1;
  }
  for (size_t at = 0; at < count; at++) {
    memory[owned[at]] = (double)ids[owned[at]] + phase;
  }
}

/* Number of local cells that do not have their ids plus `phase`. */
static size_t wrong(halocline_pattern pattern, halocline_field field, double phase) {
  static _Thread_local uint64_t ids[MOST_CELLS];
  size_t cells, wrong = 0;
  OK(halocline_domain_ids(pattern, 0, ids, MOST_CELLS, &cells));
  for (size_t cell = 0; cell < cells; cell++) {
    wrong += memory_of(field)[cell] != (double)ids[cell] + phase;
  }
  return wrong;
}

/* Exchanges a field of a pattern; afterwards all local cells have their ids. */
static void exchanges(halocline_comm comm, halocline_pattern pattern) {
  halocline_domain domain = HALOCLINE_DOMAIN_INIT;
  OK(halocline_pattern_domain(pattern, 0, &domain));
  halocline_binding binding = {pattern, field_of(comm, domain.extents[0])};
  fill(pattern, binding.field, 1);
  halocline_halo_exchange halo;
  OK(halocline_bind(comm, &binding, 1, NULL, &halo));
  OK(halocline_exchange_and_wait(halo));
  TRUE(wrong(pattern, binding.field, 1) == 0);
  OK(halocline_halo_exchange_free(&halo));
  OK(halocline_field_free(&binding.field));
}

#endif
