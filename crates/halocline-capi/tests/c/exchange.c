/* Exchanges of a 2-D grid: as processes, or as threads with `exchange N`. Prints "ok RANKS TRANSPORT" on rank 0. */
#include "ranks.h"
#include <sched.h>
#include <stdatomic.h>

enum { NX = 12, NY = 10 };

/* The value of a cell, by its global coordinates; `phase` tells exchanges apart. */
static double value(int64_t x, int64_t y, int phase) {
  x = (x % NX + NX) % NX;
  y = (y % NY + NY) % NY;
  return phase * 1000.0 + (double)(x * NY + y);
}

static double *cell(halocline_field field, const halocline_domain *domain, size_t i, size_t j) {
  void *base;
  OK(halocline_field_base(field, &base));
  return (double *)base + i * domain->extents[1] + j;
}

static int is_owned(const halocline_domain *domain, size_t i, size_t j) {
  return i >= domain->owned.first[0] && i < domain->owned.first[0] + domain->owned.extents[0] &&
         j >= domain->owned.first[1] && j < domain->owned.first[1] + domain->owned.extents[1];
}

static void fill(halocline_pattern pattern, const halocline_domain *domain, halocline_field field, int phase) {
  for (size_t i = 0; i < domain->extents[0]; i++) {
    for (size_t j = 0; j < domain->extents[1]; j++) {
      size_t local[2] = {i, j};
      int64_t global[2];
      OK(halocline_domain_global(pattern, 0, local, global));
      *cell(field, domain, i, j) = is_owned(domain, i, j) ? value(global[0], global[1], phase) : -1.0;
    }
  }
}

/* Number of cells, halo included, that have not the value of `phase`. */
static size_t wrong(halocline_pattern pattern, const halocline_domain *domain, halocline_field field, int phase) {
  size_t wrong = 0;
  for (size_t i = 0; i < domain->extents[0]; i++) {
    for (size_t j = 0; j < domain->extents[1]; j++) {
      size_t local[2] = {i, j};
      int64_t global[2];
      OK(halocline_domain_global(pattern, 0, local, global));
      wrong += *cell(field, domain, i, j) != value(global[0], global[1], phase);
    }
  }
  return wrong;
}

static void count_release(void *context) { atomic_fetch_add((_Atomic int *)context, 1); }

static void own_memory(halocline_comm comm, halocline_pattern pattern, const halocline_domain *domain) {
  size_t bytes = domain->extents[0] * domain->extents[1] * sizeof(double);
  _Atomic int released = 0;
  halocline_memory memory = HALOCLINE_MEMORY_INIT;
  memory.base = malloc(bytes);
  memory.release = count_release;
  memory.context = (void *)&released;
  halocline_layout layout = HALOCLINE_LAYOUT_INIT;
  layout.dimensions = 2, layout.extents = domain->extents, layout.element = HALOCLINE_F64;
  halocline_field field;
  OK(halocline_field_create(&memory, &layout, &field));
  halocline_binding binding = {pattern, field};
  halocline_bind_options options = HALOCLINE_BIND_OPTIONS_INIT;
  options.name = "own memory", options.deadline = 60, options.link = HALOCLINE_LINK_MAILBOX;
  halocline_halo_exchange halo;
  OK(halocline_bind(comm, &binding, 1, &options, &halo));
  for (int phase = 1; phase < 4; phase++) {
    fill(pattern, domain, field, phase);
    OK(halocline_exchange_and_wait(halo));
    TRUE(wrong(pattern, domain, field, phase) == 0);
  }
  int32_t reclaimed = 0;
  OK(halocline_reclaim(halo, &reclaimed));
  TRUE(reclaimed == 1 && atomic_load(&released) == 0);
  OK(halocline_comm_barrier(comm));
  OK(halocline_field_free(&field));
  OK(halocline_halo_exchange_free(&halo));
  TRUE(halo.id == 0 && field.id == 0);
  /* A thread of the library may be the last that holds the memory. */
  while (atomic_load(&released) == 0) {
    sched_yield();
  }
  free(memory.base);
}

/* Each cell gives all its copies back: an owned cell becomes its value times one plus its degree. */
static void reduced(halocline_comm comm, halocline_pattern pattern, const halocline_domain *domain) {
  halocline_layout layout = HALOCLINE_LAYOUT_INIT;
  layout.dimensions = 2, layout.extents = domain->extents, layout.element = HALOCLINE_F64;
  halocline_field field;
  OK(halocline_field_allocate(comm, &layout, &field));
  halocline_binding binding = {pattern, field};
  halocline_bind_options options = HALOCLINE_BIND_OPTIONS_INIT;
  options.deadline = 60;
  halocline_halo_exchange halo;
  OK(halocline_bind(comm, &binding, 1, &options, &halo));
  size_t cells = domain->extents[0] * domain->extents[1], count = 0;
  uint32_t *degree = malloc(cells * sizeof(uint32_t));
  OK(halocline_degree(halo, 0, NULL, 0, &count));
  TRUE(count == cells);
  OK(halocline_degree(halo, 0, degree, cells, &count));
  for (int keep = 0; keep < 2; keep++) {
    fill(pattern, domain, field, keep);
    OK(halocline_exchange_and_wait(halo));
    halocline_pending pending;
    if (keep) OK(halocline_schedule_reduce(halo, 0, HALOCLINE_SUM, keep, NULL, 0, &pending));
    else OK(halocline_reduce(halo, 0, HALOCLINE_SUM, keep, &pending));
    OK(halocline_wait(pending));
    TRUE(pending.epoch == 2 * (uint64_t)keep + 2);
    for (size_t i = 0; i < domain->extents[0]; i++) {
      for (size_t j = 0; j < domain->extents[1]; j++) {
        size_t local[2] = {i, j};
        int64_t global[2];
        OK(halocline_domain_global(pattern, 0, local, global));
        uint32_t copies = degree[i * domain->extents[1] + j];
        TRUE(is_owned(domain, i, j) || copies == 0);
        double one = value(global[0], global[1], keep);
        TRUE(*cell(field, domain, i, j) == (is_owned(domain, i, j) ? one * (1 + copies) : keep ? one : 0.0));
      }
    }
  }
  /* Each halo cell asks for one number: those of an owned cell get 0 to its degree. Their squares tell them apart. */
  double sums[2] = {0, 0};
  for (size_t i = 0; i < domain->extents[0]; i++) {
    for (size_t j = 0; j < domain->extents[1]; j++) *cell(field, domain, i, j) = is_owned(domain, i, j) ? 0 : 1;
  }
  OK(halocline_fetch_and_op(halo, HALOCLINE_SUM));
  for (size_t i = 0; i < domain->extents[0]; i++) {
    for (size_t j = 0; j < domain->extents[1]; j++) {
      uint32_t copies = degree[i * domain->extents[1] + j];
      double found = *cell(field, domain, i, j);
      for (uint32_t number = 0; number < copies; number++) sums[0] += number * number;
      if (is_owned(domain, i, j)) {
        TRUE(found == copies);
      } else {
        sums[1] += found * found;
      }
    }
  }
  OK(halocline_comm_all_reduce(comm, sums, 2, HALOCLINE_F64, HALOCLINE_SUM));
  TRUE(sums[0] == sums[1]);
  TRUE(halocline_fetch_and_op(halo, HALOCLINE_XOR) == HALOCLINE_ERROR_ARGUMENT);
  TRUE(strstr(halocline_error_message(), "which have no xor") != NULL);
  TRUE(halocline_fetch_and_op(halo, 8) == HALOCLINE_ERROR_ARGUMENT);
  TRUE(strstr(halocline_error_message(), "operation is 8; pass HALOCLINE_SUM") != NULL);
  TRUE(halocline_reduce(halo, 0, 8, 0, NULL) == HALOCLINE_ERROR_ARGUMENT);
  TRUE(strstr(halocline_error_message(), "operation is 8; pass HALOCLINE_SUM") != NULL);
  TRUE(halocline_reduce(halo, 0, HALOCLINE_XOR, 0, NULL) == HALOCLINE_ERROR_ARGUMENT);
  TRUE(halocline_reduce(halo, 0, HALOCLINE_SUM, 2, NULL) == HALOCLINE_ERROR_ARGUMENT);
  TRUE(halocline_reduce(halo, 1, HALOCLINE_SUM, 0, NULL) == HALOCLINE_ERROR_ARGUMENT);
  TRUE(halocline_schedule_reduce(halo, 0, 8, 0, NULL, 0, NULL) == HALOCLINE_ERROR_ARGUMENT);
  TRUE(halocline_schedule_reduce(halo, 0, HALOCLINE_SUM, 2, NULL, 0, NULL) == HALOCLINE_ERROR_ARGUMENT);
  TRUE(halocline_schedule_reduce(halo, 0, HALOCLINE_SUM, 0, NULL, 1, NULL) == HALOCLINE_ERROR_ARGUMENT);
  TRUE(halocline_degree(halo, 1, degree, cells, &count) == HALOCLINE_ERROR_ARGUMENT);
  TRUE(strstr(halocline_error_message(), "field is 1; the object has 1 fields") != NULL);
  TRUE(halocline_degree(halo, 0, degree, cells - 1, &count) == HALOCLINE_ERROR_ARGUMENT);
  free(degree);
  OK(halocline_comm_barrier(comm));
  OK(halocline_halo_exchange_free(&halo));
  OK(halocline_field_free(&field));
}

/* A ring of four cells on each rank: the first and the last one have a copy at a neighbour. */
static void operations(halocline_comm comm, size_t size) {
  static const struct {
    int32_t operation, first, last;
  } cases[] = {{HALOCLINE_SUM, 10 + 7, 6 + 12},    {HALOCLINE_MIN, 7, 6},           {HALOCLINE_MAX, 10, 12},
               {HALOCLINE_PRODUCT, 10 * 7, 6 * 12}, {HALOCLINE_REPLACE, 7, 12},      {HALOCLINE_AND, 10 & 7, 6 & 12},
               {HALOCLINE_OR, 10 | 7, 6 | 12},      {HALOCLINE_XOR, 0xA ^ 0x7, 0x6 ^ 0xC}};
  const size_t extents[1] = {4 * size}, cells[1] = {6};
  const int32_t periodic[1] = {1};
  halocline_grid grid = HALOCLINE_GRID_INIT;
  grid.axes = 1, grid.extents = extents, grid.periodic = periodic;
  halocline_decomposition blocks;
  OK(halocline_decompose(&grid, size, &blocks));
  halocline_halo width = HALOCLINE_HALO_INIT;
  width.width = 1;
  halocline_pattern pattern;
  OK(halocline_pattern_regular(comm, blocks, &width, &pattern));
  halocline_layout layout = HALOCLINE_LAYOUT_INIT;
  layout.dimensions = 1, layout.extents = cells, layout.element = HALOCLINE_I32;
  halocline_field field;
  OK(halocline_field_allocate(comm, &layout, &field));
  halocline_binding binding = {pattern, field};
  halocline_halo_exchange halo;
  OK(halocline_bind(comm, &binding, 1, NULL, &halo));
  void *base;
  OK(halocline_field_base(field, &base));
  int32_t *found = base;
  const int32_t given[6] = {12, 10, 3, 5, 6, 7};
  for (size_t at = 0; at < sizeof cases / sizeof *cases; at++) {
    for (int way = 0; way < 3; way++) {
      memcpy(found, given, sizeof given);
      halocline_pending pending;
      if (way == 2) {
        OK(halocline_fetch_and_op(halo, cases[at].operation));
      } else {
        if (way == 1) OK(halocline_schedule_reduce(halo, 0, cases[at].operation, 1, NULL, 0, &pending));
        else OK(halocline_reduce(halo, 0, cases[at].operation, 1, &pending));
        OK(halocline_wait(pending));
      }
      TRUE(found[1] == cases[at].first && found[2] == 3 && found[3] == 5 && found[4] == cases[at].last);
      /* Kept, or what the neighbour's cell had before. */
      TRUE(found[0] == (way == 2 ? 6 : 12) && found[5] == (way == 2 ? 10 : 7));
    }
  }
  OK(halocline_halo_exchange_free(&halo));
  OK(halocline_field_free(&field));
  OK(halocline_pattern_free(&pattern));
  OK(halocline_decomposition_free(&blocks));
}

/* Senders write into the halos, or receivers read the owned cells: all links of the object do. */
static void in_place(halocline_comm comm, halocline_pattern pattern, const halocline_domain *domain, size_t size) {
  static const int32_t paths[2] = {HALOCLINE_LINK_PUSH, HALOCLINE_LINK_PULL};
  halocline_layout layout = HALOCLINE_LAYOUT_INIT;
  layout.dimensions = 2, layout.extents = domain->extents, layout.element = HALOCLINE_F64;
  halocline_field field;
  OK(halocline_field_allocate(comm, &layout, &field));
  halocline_binding binding = {pattern, field};
  for (int at = 0; at < 2; at++) {
    halocline_bind_options options = HALOCLINE_BIND_OPTIONS_INIT;
    options.link = paths[at];
    halocline_halo_exchange halo;
    OK(halocline_bind(comm, &binding, 1, &options, &halo));
    halocline_link links[16];
    size_t count;
    OK(halocline_links(halo, links, 16, &count));
    TRUE((count == 0) == (size == 1));
    for (size_t link = 0; link < count; link++) TRUE(links[link].path == paths[at]);
    fill(pattern, domain, field, at + 1);
    OK(halocline_exchange_and_wait(halo));
    TRUE(wrong(pattern, domain, field, at + 1) == 0);
    OK(halocline_comm_barrier(comm));
    OK(halocline_halo_exchange_free(&halo));
  }
  OK(halocline_field_free(&field));
}

static void two_sets(halocline_comm comm, halocline_pattern pattern, const halocline_domain *domain) {
  halocline_layout layout = HALOCLINE_LAYOUT_INIT;
  layout.dimensions = 2, layout.extents = domain->extents, layout.element = HALOCLINE_F64;
  halocline_binding sets[2];
  for (int set = 0; set < 2; set++) {
    sets[set].pattern = pattern;
    OK(halocline_field_allocate(comm, &layout, &sets[set].field));
  }
  halocline_halo_exchange halo;
  OK(halocline_bind_alternatives(comm, sets, 1, 2, NULL, &halo));
  for (int step = 1; step < 7; step++) {
    fill(pattern, domain, sets[step % 2].field, step);
    halocline_pending pending;
    OK(halocline_exchange_set(halo, step % 2, &pending));
    TRUE(pending.epoch == (uint64_t)step);
    int32_t ready = 0;
    while (!ready) {
      OK(halocline_is_ready(pending, &ready));
    }
    OK(halocline_wait(pending));
    OK(halocline_wait(pending));
    TRUE(wrong(pattern, domain, sets[step % 2].field, step) == 0);
  }
  halocline_pending pending;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "set 2", halocline_exchange_set(halo, 2, &pending));
  size_t length = 0;
  OK(halocline_explain(halo, NULL, 0, &length));
  char *table = malloc(length);
  OK(halocline_explain(halo, table, length, &length));
  TRUE(strlen(table) + 1 == length && strstr(table, "rank") != NULL);
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "capacity of 1", halocline_explain(halo, table, 1, &length));
  free(table);

  halocline_halo none = HALOCLINE_HALO_INIT;
  halocline_halo_exchange narrowed;
  OK(halocline_narrowed(halo, &none, &narrowed));
  fill(pattern, domain, sets[0].field, 9);
  OK(halocline_exchange_and_wait(narrowed));
  size_t halo_cells = domain->extents[0] * domain->extents[1] - domain->owned_count;
  TRUE(wrong(pattern, domain, sets[0].field, 9) == halo_cells);
  OK(halocline_halo_exchange_free(&narrowed));
  OK(halocline_halo_exchange_free(&halo));
  OK(halocline_field_free(&sets[0].field));
  OK(halocline_field_free(&sets[1].field));
}

static void run(halocline_comm comm, size_t rank, size_t size) {
  halocline_comm own;
  size_t extents[2] = {NX, NY};
  const int32_t periodic[2] = {1, 1};
  halocline_grid grid = HALOCLINE_GRID_INIT;
  grid.axes = 2, grid.extents = extents, grid.periodic = periodic;
  halocline_decomposition blocks;
  OK(halocline_decompose(&grid, size, &blocks));
  halocline_halo width = HALOCLINE_HALO_INIT;
  width.width = 2;
  halocline_pattern pattern;
  OK(halocline_pattern_regular(comm, blocks, &width, &pattern));
  halocline_domain domain = HALOCLINE_DOMAIN_INIT;
  OK(halocline_pattern_domain(pattern, 0, &domain));
  TRUE(domain.axes == 2 && domain.number == rank);
  TRUE(domain.owned_count == domain.owned.extents[0] * domain.owned.extents[1]);
  own_memory(comm, pattern, &domain);
  two_sets(comm, pattern, &domain);
  reduced(comm, pattern, &domain);
  in_place(comm, pattern, &domain, size);
  operations(comm, size);
  /* What one rank passes wrongly is an error on all ranks. */
  halocline_halo wrong_width = HALOCLINE_HALO_INIT;
  wrong_width.size = rank == 0 ? 3 : sizeof(halocline_halo);
  halocline_pattern refused;
  REFUSED(rank == 0 ? HALOCLINE_ERROR_ARGUMENT : HALOCLINE_ERROR_ELSEWHERE, "halocline_halo",
          halocline_pattern_regular(comm, blocks, &wrong_width, &refused));
  OK(halocline_comm_duplicate(comm, &own));
  OK(halocline_comm_barrier(own));
  OK(halocline_pattern_free(&pattern));
  OK(halocline_decomposition_free(&blocks));
  OK(halocline_comm_free(&own));
}
