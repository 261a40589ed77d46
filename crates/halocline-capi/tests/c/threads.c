/* Several threads of one rank. */
#include "fixture.h"

enum { THREADS = 3 };

typedef struct {
  halocline_comm comm;
  size_t size, number;
  halocline_halo_exchange halo;
  halocline_pending pending;
} task;

/* Starts `work` on threads with a task each, and waits for them. */
static void on_threads(void *(*work)(void *), task *tasks, size_t count) {
  pthread_t threads[THREADS];
  for (size_t at = 0; at < count; at++) {
    TRUE(pthread_create(&threads[at], NULL, work, &tasks[at]) == 0);
  }
  for (size_t at = 0; at < count; at++) {
    TRUE(pthread_join(threads[at], NULL) == 0);
  }
}

/* The extents stay as long as the fixture. */
static fixture fixture_of(halocline_comm comm, size_t size, const size_t *extents) {
  static const int32_t periodic[2] = {1, 1};
  halocline_grid grid = HALOCLINE_GRID_INIT;
  grid.axes = 2, grid.extents = extents, grid.periodic = periodic;
  halocline_decomposition blocks;
  OK(halocline_decompose(&grid, size, &blocks));
  halocline_halo width = HALOCLINE_HALO_INIT;
  width.width = 1;
  fixture made = make_fixture(comm, blocks, &grid, &width);
  OK(halocline_decomposition_free(&blocks));
  return made;
}

static void *with_objects_of_its_own(void *given) {
  const task *own = given;
  for (size_t turn = 0; turn < PATH_COUNT; turn++) {
    const size_t extents[2] = {2 * own->size + own->number, 4};
    fixture of = fixture_of(own->comm, own->size, extents);
    halocline_bind_options options = by_path(PATHS[(turn + own->number) % PATH_COUNT]);
    halocline_halo_exchange halo = bind_fixture(own->comm, &of, &options);
    for (int phase = 1; phase < 10; phase++) {
      fill_fixture(&of, phase);
      OK(halocline_exchange_and_wait(halo));
      TRUE(wrong_cells(&of, phase) == 0);
    }
    OK(halocline_comm_barrier(own->comm));
    OK(halocline_halo_exchange_free(&halo));
    free_fixture(&of);
  }
  return NULL;
}

static void *waits(void *given) {
  const task *own = given;
  OK(halocline_wait(own->pending));
  return NULL;
}

/* Begins, as often as the object is busy, and waits. */
static void *begins(void *given) {
  const task *own = given;
  for (int exchange = 0; exchange < 20; exchange++) {
    halocline_pending pending;
    halocline_status status;
    do {
      status = halocline_exchange(own->halo, &pending);
    } while (status == HALOCLINE_ERROR_BUSY);
    OK(status);
    OK(halocline_wait(pending));
  }
  return NULL;
}

static void run(halocline_comm comm, size_t rank, size_t size) {
  (void)rank;
  task tasks[THREADS] = {{.size = size}};
  for (size_t at = 0; at < THREADS; at++) {
    tasks[at].size = size, tasks[at].number = at;
    OK(halocline_comm_duplicate(comm, &tasks[at].comm));
  }
  on_threads(with_objects_of_its_own, tasks, THREADS);

  const size_t extents[2] = {2 * size, 4};
  fixture of = fixture_of(comm, size, extents);
  halocline_halo_exchange halo = bind_fixture(comm, &of, NULL);
  for (int phase = 1; phase < 10; phase++) {
    /* One exchange, for which one thread waits, or all. */
    fill_fixture(&of, phase);
    halocline_pending pending;
    OK(halocline_exchange(halo, &pending));
    for (size_t at = 0; at < THREADS; at++) {
      tasks[at].pending = pending;
    }
    on_threads(waits, tasks, phase % 2 == 0 ? 1 : THREADS);
    TRUE(wrong_cells(&of, phase) == 0);
  }
  /* Threads begin exchanges of one object: one is in flight at a time. */
  fill_fixture(&of, 20);
  for (size_t at = 0; at < THREADS; at++) {
    tasks[at].halo = halo;
  }
  on_threads(begins, tasks, THREADS);
  TRUE(wrong_cells(&of, 20) == 0);
  halocline_pending last;
  OK(halocline_exchange(halo, &last));
  TRUE(last.epoch == 9 + THREADS * 20 + 1);
  OK(halocline_wait(last));
  OK(halocline_halo_exchange_free(&halo));
  free_fixture(&of);
  for (size_t at = 0; at < THREADS; at++) {
    OK(halocline_comm_free(&tasks[at].comm));
  }
}
