/* Collective calls, duplicates and splits: as processes, or as threads with `collectives N`. */
#include "fixture.h"

/* The call failed as on the other ranks, with both texts in its message, and the communicator works on. */
static void all_name(halocline_comm comm, size_t size, halocline_status status, const char *one, const char *other) {
  const char *message = halocline_error_message();
  if (status != HALOCLINE_ERROR_COMMUNICATION || strstr(message, one) == NULL || strstr(message, other) == NULL) {
    fprintf(stderr, "wanted \"%s\" and \"%s\": %s: %s\n", one, other, halocline_status_name(status), message);
    exit(1);
  }
  uint64_t ranks = 1;
  OK(halocline_comm_all_reduce(comm, &ranks, 1, HALOCLINE_U64, HALOCLINE_SUM));
  TRUE(ranks == size);
}

static void numbers(halocline_comm comm, size_t rank, size_t size) {
  double sums[2] = {1.0, (double)rank};
  OK(halocline_comm_all_reduce(comm, sums, 2, HALOCLINE_F64, HALOCLINE_SUM));
  TRUE(sums[0] == (double)size && sums[1] == (double)(size * (size - 1) / 2));
  float least = (float)rank - 3;
  OK(halocline_comm_all_reduce(comm, &least, 1, HALOCLINE_F32, HALOCLINE_MIN));
  TRUE(least == -3);
  int32_t negative = -(int32_t)rank;
  OK(halocline_comm_all_reduce(comm, &negative, 1, HALOCLINE_I32, HALOCLINE_MIN));
  TRUE(negative == 1 - (int32_t)size);
  uint32_t wraps = UINT32_MAX;
  OK(halocline_comm_all_reduce(comm, &wraps, 1, HALOCLINE_U32, HALOCLINE_SUM));
  TRUE(wraps == (uint32_t)0 - (uint32_t)size);
  int64_t largest = (int64_t)rank;
  OK(halocline_comm_all_reduce(comm, &largest, 1, HALOCLINE_I64, HALOCLINE_MAX));
  TRUE(largest == (int64_t)size - 1);
  double one_nan = rank == size - 1 ? strtod("nan", NULL) : 1.0;
  OK(halocline_comm_all_reduce(comm, &one_nan, 1, HALOCLINE_F64, HALOCLINE_MAX));
  TRUE(one_nan != one_nan);
  OK(halocline_comm_all_reduce(comm, &one_nan, 0, HALOCLINE_F64, HALOCLINE_MAX));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "operation is 3", halocline_comm_all_reduce(comm, &largest, 1, HALOCLINE_I64, HALOCLINE_PRODUCT));
}

static void from_each_root(halocline_comm comm, size_t rank, size_t size) {
  for (size_t root = 0; root < size; root++) {
    char word[4] = "no";
    if (rank == root) strcpy(word, "yes");
    OK(halocline_comm_broadcast(comm, root, word, sizeof word));
    TRUE(strcmp(word, "yes") == 0);
  }
  for (size_t bytes = 1; bytes < 300000; bytes *= 17) {
    unsigned char *own = malloc(bytes), *all = malloc(bytes * size);
    memset(own, (int)rank + 1, bytes);
    OK(halocline_comm_all_gather(comm, own, bytes, all));
    for (size_t at = 0; at < bytes * size; at++) TRUE(all[at] == at / bytes + 1);
    free(own), free(all);
  }
  OK(halocline_comm_all_gather(comm, NULL, 0, NULL));
  for (int times = 0; times < 100; times++) OK(halocline_comm_barrier(comm));
}

static void arguments_that_differ(halocline_comm comm, size_t rank, size_t size) {
  if (size == 1) {
    return;
  }
  int32_t value = 1;
  halocline_status status = halocline_comm_broadcast(comm, rank == 0 ? 0 : 1, &value, sizeof value);
  all_name(comm, size, status, "rank 0 passes root 0", "root 1");
  char word[8] = "";
  status = halocline_comm_broadcast(comm, 0, word, rank == size - 1 ? 5 : 8);
  all_name(comm, size, status, "passes root 0 (8 u8 values)", "passes root 0 (5 u8 values)");
  uint64_t values[3] = {1, 1, 1};
  status = halocline_comm_all_reduce(comm, values, rank == 0 ? 3 : 2, HALOCLINE_U64, HALOCLINE_SUM);
  all_name(comm, size, status, "rank 0 passes sum of 3 u64 values", "passes sum of 2 u64 values");
  status = halocline_comm_all_reduce(comm, values, 1, rank == 0 ? HALOCLINE_F64 : HALOCLINE_U64, HALOCLINE_SUM);
  all_name(comm, size, status, "rank 0 passes sum of 1 f64 value", "passes sum of 1 u64 value");
  status = halocline_comm_all_reduce(comm, values, 1, HALOCLINE_I64, rank == 0 ? HALOCLINE_MIN : HALOCLINE_MAX);
  all_name(comm, size, status, "rank 0 passes minimum of 1 i64 value", "passes maximum of 1 i64 value");
}

/* Rank 0 makes another call than the rest: each error names the calls and their ranks, and no rank waits for ever. */
static void calls_that_differ(halocline_comm comm, size_t rank, size_t size) {
  if (size == 1) {
    return;
  }
  halocline_comm apart;
  OK(halocline_comm_duplicate(comm, &apart));
  int32_t value = 1;
  halocline_status status = rank == 0 ? halocline_comm_all_reduce(apart, &value, 1, HALOCLINE_I32, HALOCLINE_SUM)
                                      : halocline_comm_broadcast(apart, 0, &value, sizeof value);
  /* A rank that completed without a wait fails in its next call. */
  if (status == HALOCLINE_OK) status = halocline_comm_barrier(apart);
  const char *message = halocline_error_message();
  TRUE(status != HALOCLINE_OK);
  TRUE(strstr(message, "rank 0 is in all_reduce, rank ") != NULL && strstr(message, " in broadcast;") != NULL);
  OK(halocline_comm_free(&apart));
  OK(halocline_comm_barrier(comm));
}

typedef struct {
  halocline_comm comm;
  uint64_t value;
} adder;

static void *adds(void *given) {
  adder *own = given;
  for (int times = 0; times < 50; times++) {
    uint64_t sum = own->value;
    OK(halocline_comm_all_reduce(own->comm, &sum, 1, HALOCLINE_U64, HALOCLINE_SUM));
    size_t size;
    OK(halocline_comm_size(own->comm, &size));
    TRUE(sum == own->value * size);
  }
  return NULL;
}

/* Two threads of each rank make collective calls independently of each other, each on its communicator. */
static void duplicates_interleaved_by_two_threads(halocline_comm comm) {
  adder one = {comm, 3}, other = {.value = 5};
  OK(halocline_comm_duplicate(comm, &other.comm));
  pthread_t thread;
  TRUE(pthread_create(&thread, NULL, adds, &other) == 0);
  adds(&one);
  TRUE(pthread_join(thread, NULL) == 0);
  OK(halocline_comm_free(&other.comm));
}

/* Exchanges a row of cells over these ranks by messages, which must not mix with those of other communicators. */
static void exchanges(halocline_comm comm, int phase) {
  size_t ranks;
  OK(halocline_comm_size(comm, &ranks));
  size_t extents[1] = {3 * ranks};
  halocline_grid grid = HALOCLINE_GRID_INIT;
  grid.axes = 1, grid.extents = extents;
  halocline_halo width = HALOCLINE_HALO_INIT;
  width.width = 1;
  halocline_decomposition row;
  OK(halocline_decompose(&grid, ranks, &row));
  fixture of = make_fixture(comm, row, &grid, &width);
  OK(halocline_decomposition_free(&row));
  const halocline_bind_options options = by_path(HALOCLINE_LINK_MESSAGE);
  halocline_halo_exchange halo = bind_fixture(comm, &of, &options);
  fill_fixture(&of, phase);
  OK(halocline_exchange_and_wait(halo));
  TRUE(wrong_cells(&of, phase) == 0);
  OK(halocline_halo_exchange_free(&halo));
  free_fixture(&of);
}

static void splits(halocline_comm comm, size_t rank, size_t size) {
  /* Ranks of one color in the order of their keys, here the reverse. Rank 0 takes no part. */
  halocline_comm part, half;
  OK(halocline_comm_split(comm, rank == 0 ? HALOCLINE_NO_COLOR : 1, -(int64_t)rank, &part));
  TRUE((part.id == 0) == (rank == 0));
  if (rank > 0) {
    size_t place, ranks;
    OK(halocline_comm_rank(part, &place));
    OK(halocline_comm_size(part, &ranks));
    TRUE(place == size - 1 - rank && ranks == size - 1);
    /* A split of the split: each rank alone. */
    halocline_comm alone;
    OK(halocline_comm_split(part, (int64_t)rank, 0, &alone));
    OK(halocline_comm_size(alone, &ranks));
    TRUE(ranks == 1);
    exchanges(alone, 4);
    OK(halocline_comm_free(&alone));
  }
  OK(halocline_comm_free(&part));
  /* Both halves exchange while the parent is used. */
  OK(halocline_comm_split(comm, (int64_t)rank % 2, 0, &half));
  for (int phase = 1; phase < 4; phase++) {
    exchanges(half, phase + (int)rank % 2);
    exchanges(comm, phase + 5);
  }
  OK(halocline_comm_free(&half));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "color", halocline_comm_split(comm, -7, 0, &half));
}

/* What one rank failed to do, all ranks learn, each with its own message or that of the lowest rank that has one. */
static void failures_that_all_share(halocline_comm comm, size_t rank, size_t size) {
  OK(halocline_comm_agree(comm, NULL));
  halocline_status status = halocline_comm_agree(comm, rank == size - 1 ? "cannot read /no/file" : NULL);
  TRUE(status == (rank == size - 1 ? HALOCLINE_ERROR_ARGUMENT : HALOCLINE_ERROR_ELSEWHERE));
  TRUE(strstr(halocline_error_message(), "cannot read /no/file") != NULL);
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "not UTF-8", halocline_comm_agree(comm, "\xff"));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "error is empty; say what has failed", halocline_comm_agree(comm, ""));
  OK(halocline_comm_barrier(comm));
}

static void describes_itself(halocline_comm comm) {
  double seconds = -1;
  OK(halocline_comm_deadline(comm, &seconds));
  TRUE(seconds == 0);
  halocline_comm limited;
  OK(halocline_comm_with_deadline(comm, 12.5, &limited));
  OK(halocline_comm_deadline(limited, &seconds));
  TRUE(seconds == 12.5);
  OK(halocline_comm_free(&limited));
  halocline_mapping_statistics found = HALOCLINE_MAPPING_STATISTICS_INIT;
  found.malformed = 7;
  OK(halocline_comm_mappings(comm, &found));
  TRUE(found.size == sizeof found && found.malformed == 0 && found.pinned <= found.entries);
  found.size = sizeof found - 8;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "`size` of the halocline_mapping_statistics", halocline_comm_mappings(comm, &found));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "is NULL", halocline_comm_mappings(comm, NULL));
}

static void run(halocline_comm comm, size_t rank, size_t size) {
  numbers(comm, rank, size);
  from_each_root(comm, rank, size);
  arguments_that_differ(comm, rank, size);
  calls_that_differ(comm, rank, size);
  duplicates_interleaved_by_two_threads(comm);
  splits(comm, rank, size);
  failures_that_all_share(comm, rank, size);
  describes_itself(comm);
}
