/* Exchanges in flight: many at once, polled, waited for twice, refused, freed; and the failures that end them. */
#include "fixture.h"
#include <sched.h>
#include <stdatomic.h>

/* A periodic row of cells, four for each rank. */
static halocline_decomposition row_of(size_t size, halocline_grid *grid) {
  static const int32_t periodic[1] = {1};
  static const size_t extents[] = {0, 4, 8, 12, 16, 20, 24, 28, 32};
  *grid = (halocline_grid)HALOCLINE_GRID_INIT;
  grid->axes = 1, grid->extents = &extents[size], grid->periodic = periodic;
  halocline_decomposition blocks;
  OK(halocline_decompose(grid, size, &blocks));
  return blocks;
}

static fixture row_fixture(halocline_comm comm, size_t size) {
  halocline_grid grid;
  halocline_decomposition blocks = row_of(size, &grid);
  halocline_halo halo = HALOCLINE_HALO_INIT;
  halo.width = 1;
  fixture made = make_fixture(comm, blocks, &grid, &halo);
  OK(halocline_decomposition_free(&blocks));
  return made;
}

static void many_objects_in_another_order_on_each_rank(halocline_comm comm, size_t rank, size_t size) {
  enum { OBJECTS = 3 };
  fixture fixtures[OBJECTS];
  halocline_halo_exchange halos[OBJECTS];
  for (size_t at = 0; at < OBJECTS; at++) {
    fixtures[at] = row_fixture(comm, size);
    halocline_bind_options options = by_path(PATHS[at % PATH_COUNT]);
    halos[at] = bind_fixture(comm, &fixtures[at], &options);
  }
  for (int phase = 1; phase < 10; phase++) {
    halocline_pending pending[OBJECTS];
    for (size_t at = 0; at < OBJECTS; at++) {
      fill_fixture(&fixtures[at], phase);
    }
    for (size_t at = 0; at < OBJECTS; at++) {
      size_t which = (at * (1 + rank % 2) + rank) % OBJECTS;
      OK(halocline_exchange(halos[which], &pending[which]));
    }
    for (size_t at = OBJECTS; at-- > 0;) {
      OK(halocline_wait(pending[at]));
      TRUE(wrong_cells(&fixtures[at], phase) == 0);
    }
  }
  for (size_t at = 0; at < OBJECTS; at++) {
    OK(halocline_halo_exchange_free(&halos[at]));
    free_fixture(&fixtures[at]);
  }
}

static void polled_and_waited_for_twice(halocline_comm comm, size_t size) {
  for (size_t path = 0; path < PATH_COUNT; path++) {
    fixture of = row_fixture(comm, size);
    halocline_bind_options options = by_path(PATHS[path]);
    halocline_halo_exchange halo = bind_fixture(comm, &of, &options);
    halocline_pending first, second;
    fill_fixture(&of, 1);
    OK(halocline_exchange(halo, &first));
    int32_t ready = 0;
    while (!ready) {
      OK(halocline_is_ready(first, &ready));
    }
    TRUE(wrong_cells(&of, 1) == 0);
    OK(halocline_wait(first));
    fill_fixture(&of, 2);
    OK(halocline_exchange(halo, &second));
    TRUE(first.epoch == 1 && second.epoch == 2);
    /* The first is over; this says nothing of the second. */
    OK(halocline_wait(first));
    OK(halocline_wait(second));
    TRUE(wrong_cells(&of, 2) == 0);
    OK(halocline_wait(second));
    OK(halocline_halo_exchange_free(&halo));
    free_fixture(&of);
  }
}

/* An exchange that cannot complete, because rank 0 begins it only after the others have looked. */
static void a_second_begin_is_refused(halocline_comm comm, size_t rank, size_t size) {
  if (size == 1) {
    return;
  }
  fixture of = row_fixture(comm, size);
  halocline_halo_exchange halo = bind_fixture(comm, &of, NULL), other = bind_fixture(comm, &of, NULL);
  const int is_neighbour = rank == 1 || rank == size - 1;
  halocline_pending pending;
  fill_fixture(&of, 1);
  if (rank != 0) {
    OK(halocline_exchange(halo, &pending));
    if (is_neighbour) {
      REFUSED(HALOCLINE_ERROR_BUSY, "", halocline_exchange(halo, NULL));
      REFUSED(HALOCLINE_ERROR_BUSY, "", halocline_exchange(other, NULL));
      int32_t ready = 1, reclaimed = 1;
      OK(halocline_is_ready(pending, &ready));
      OK(halocline_reclaim(halo, &reclaimed));
      TRUE(ready == 0 && reclaimed == 0);
    }
  }
  OK(halocline_comm_barrier(comm));
  if (rank == 0) {
    OK(halocline_exchange(halo, &pending));
  }
  OK(halocline_wait(pending));
  TRUE(wrong_cells(&of, 1) == 0);
  /* Nothing is in flight: the other object has its turn. */
  fill_fixture(&of, 2);
  OK(halocline_exchange_and_wait(other));
  TRUE(wrong_cells(&of, 2) == 0);
  OK(halocline_halo_exchange_free(&other));
  OK(halocline_halo_exchange_free(&halo));
  free_fixture(&of);
}

static void let_go(void *context) { atomic_store((_Atomic int *)context, 1); }

static void an_object_freed_in_flight_completes(halocline_comm comm, size_t size) {
  for (size_t path = 0; path < PATH_COUNT; path++) {
    fixture of = row_fixture(comm, size);
    OK(halocline_field_free(&of.fields[0]));
    double cells[6];
    _Atomic int released = 0;
    halocline_memory memory = HALOCLINE_MEMORY_INIT;
    memory.base = cells, memory.release = let_go, memory.context = (void *)&released;
    halocline_layout layout = HALOCLINE_LAYOUT_INIT;
    layout.dimensions = 1, layout.extents = of.domains[0].extents, layout.element = HALOCLINE_F64;
    OK(halocline_field_create(&memory, &layout, &of.fields[0]));
    halocline_bind_options options = by_path(PATHS[path]);
    halocline_halo_exchange halo = bind_fixture(comm, &of, &options);
    fill_fixture(&of, 1);
    halocline_pending pending;
    OK(halocline_exchange(halo, &pending));
    OK(halocline_halo_exchange_free(&halo));
    REFUSED(HALOCLINE_ERROR_HANDLE, "freed", halocline_wait(pending));
    OK(halocline_field_free(&of.fields[0]));
    /* The memory is held until the exchange is complete, in the background. */
    while (atomic_load(&released) == 0) {
      sched_yield();
    }
    /* The same cells again, to look at them. */
    memory.release = NULL;
    OK(halocline_field_create(&memory, &layout, &of.fields[0]));
    TRUE(wrong_cells(&of, 1) == 0);
    free_fixture(&of);
  }
}

static void a_deadline_ends_the_object_on_all_ranks(halocline_comm comm, size_t rank, size_t size) {
  if (size == 1) {
    return;
  }
  for (size_t path = 0; path < PATH_COUNT; path++) {
    fixture of = row_fixture(comm, size);
    halocline_bind_options options = by_path(PATHS[path]);
    options.deadline = rank == 1 ? 0.4 : 0, options.name = "late";
    halocline_halo_exchange halo = bind_fixture(comm, &of, &options);
    OK(halocline_exchange_and_wait(halo));
    OK(halocline_comm_barrier(comm));
    halocline_status status = HALOCLINE_OK;
    halocline_pending pending;
    if (rank != 0) {
      OK(halocline_exchange(halo, &pending));
    }
    if (rank == 1) {
      status = halocline_wait(pending);
      TRUE(halocline_wait(pending) == status);
    }
    OK(halocline_comm_barrier(comm));
    if (rank > 1) {
      status = halocline_wait(pending);
    }
    /* The failure reaches all ranks: they begin until they hear of it. */
    while (status == HALOCLINE_OK) {
      status = halocline_exchange_and_wait(halo);
    }
    TRUE(status == HALOCLINE_ERROR_DEADLINE && strstr(halocline_error_message(), "rank 0 missed the deadline") != NULL);
    /* It stays unusable; its memory comes back. */
    TRUE(halocline_exchange(halo, NULL) == status);
    int32_t reclaimed = 0;
    while (!reclaimed) {
      OK(halocline_reclaim(halo, &reclaimed));
    }
    OK(halocline_halo_exchange_free(&halo));
    /* Another object of the same fields works. */
    halo = bind_fixture(comm, &of, NULL);
    fill_fixture(&of, 3);
    OK(halocline_exchange_and_wait(halo));
    TRUE(wrong_cells(&of, 3) == 0);
    OK(halocline_halo_exchange_free(&halo));
    free_fixture(&of);
  }
}

static void a_peer_that_frees_its_object_is_an_error(halocline_comm comm, size_t rank, size_t size) {
  if (size == 1) {
    return;
  }
  fixture of = row_fixture(comm, size);
  halocline_halo_exchange halo = bind_fixture(comm, &of, NULL);
  OK(halocline_exchange_and_wait(halo));
  if (rank == 0) {
    OK(halocline_halo_exchange_free(&halo));
  }
  halocline_status status = HALOCLINE_OK;
  while (rank != 0 && status == HALOCLINE_OK) {
    status = halocline_exchange_and_wait(halo);
  }
  TRUE(rank == 0 || (status == HALOCLINE_ERROR_FAILED && strstr(halocline_error_message(), "rank 0") != NULL));
  OK(halocline_halo_exchange_free(&halo));
  free_fixture(&of);
}

/* Handles of one of two sets: one exchange is in flight over both. */
static void alternatives_share_their_links(halocline_comm comm, size_t size) {
  fixture fixtures[2] = {row_fixture(comm, size), row_fixture(comm, size)};
  /* Both sets on one pattern. */
  halocline_binding sets[2] = {{fixtures[0].pattern, fixtures[0].fields[0]}, {fixtures[0].pattern, fixtures[1].fields[0]}};
  halocline_halo_exchange halo, alone[2], none;
  OK(halocline_bind_alternatives(comm, sets, 1, 2, NULL, &halo));
  for (size_t set = 0; set < 2; set++) {
    OK(halocline_alternative(halo, set, &alone[set]));
  }
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "set 2", halocline_alternative(halo, 2, &none));
  size_t number;
  OK(halocline_sets(halo, &number));
  TRUE(number == 2);
  OK(halocline_sets(alone[1], &number));
  TRUE(number == 1);
  halocline_pending latest = {1, 1};
  OK(halocline_latest(halo, &latest));
  TRUE(latest.exchange == 0 && latest.epoch == 0);
  for (int phase = 1; phase < 5; phase++) {
    const size_t set = (size_t)phase % 2;
    fill_fixture(&fixtures[set], phase);
    OK(halocline_exchange_and_wait(alone[set]));
    TRUE(wrong_cells(&fixtures[set], phase) == 0);
    fill_fixture(&fixtures[1 - set], phase + 5);
    halocline_pending pending;
    OK(halocline_exchange_set(halo, 1 - set, &pending));
    TRUE(pending.epoch == (uint64_t)phase * 2);
    /* By another handle of the same links. */
    OK(halocline_latest(alone[set], &latest));
    TRUE(latest.exchange == alone[set].id && latest.epoch == pending.epoch);
    OK(halocline_wait(latest));
    OK(halocline_wait(pending));
    TRUE(wrong_cells(&fixtures[1 - set], phase + 5) == 0);
  }
  OK(halocline_halo_exchange_free(&halo));
  /* The handles hold what they share. */
  fill_fixture(&fixtures[1], 9);
  OK(halocline_exchange_and_wait(alone[1]));
  TRUE(wrong_cells(&fixtures[1], 9) == 0);
  for (size_t set = 0; set < 2; set++) {
    OK(halocline_halo_exchange_free(&alone[set]));
    free_fixture(&fixtures[set]);
  }
}

/* A bound exchange works after its field, its pattern and its communicator were freed. */
static void an_object_holds_what_it_needs(halocline_comm comm, size_t rank, size_t size) {
  halocline_comm own;
  OK(halocline_comm_duplicate(comm, &own));
  fixture of = row_fixture(own, size);
  halocline_halo_exchange halo = bind_fixture(own, &of, NULL);
  void *base;
  OK(halocline_field_base(of.fields[0], &base));
  free_fixture(&of);
  OK(halocline_comm_free(&own));
  double *cells = base;
  for (int step = 1; step < 5; step++) {
    for (size_t cell = 1; cell < 5; cell++) {
      cells[cell] = (double)(rank * 10 + cell) * step;
    }
    OK(halocline_exchange_and_wait(halo));
    TRUE(cells[0] == (double)((rank + size - 1) % size * 10 + 4) * step);
    TRUE(cells[5] == (double)((rank + 1) % size * 10 + 1) * step);
  }
  OK(halocline_halo_exchange_free(&halo));
}

/* Rank 0 calls later than the deadline of the others allows. */
static void a_collective_call_has_a_deadline(halocline_comm comm, size_t rank, size_t size) {
  halocline_comm own, limited;
  OK(halocline_comm_duplicate(comm, &own));
  OK(halocline_comm_with_deadline(own, 0.2, &limited));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "-1", halocline_comm_with_deadline(own, -1, &own));
  OK(halocline_comm_barrier(own));
  if (size > 1 && rank != 0) {
    REFUSED(HALOCLINE_ERROR_DEADLINE, "deadline", halocline_comm_barrier(limited));
  }
  OK(halocline_comm_barrier(comm));
  OK(halocline_comm_free(&limited));
  OK(halocline_comm_free(&own));
}

static void run(halocline_comm comm, size_t rank, size_t size) {
  many_objects_in_another_order_on_each_rank(comm, rank, size);
  polled_and_waited_for_twice(comm, size);
  alternatives_share_their_links(comm, size);
  an_object_holds_what_it_needs(comm, rank, size);
  a_collective_call_has_a_deadline(comm, rank, size);
  a_second_begin_is_refused(comm, rank, size);
  an_object_freed_in_flight_completes(comm, size);
  a_deadline_ends_the_object_on_all_ranks(comm, rank, size);
  a_peer_that_frees_its_object_is_an_error(comm, rank, size);
}
