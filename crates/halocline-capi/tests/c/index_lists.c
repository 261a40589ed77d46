/* Index lists of fields of the host: as processes, or as threads with `index_lists N`. */
#include "ranks.h"

enum { EACH = 6, CELLS = EACH + 1 };

static halocline_field field_of(halocline_comm comm, int32_t element, size_t cells) {
  halocline_layout layout = HALOCLINE_LAYOUT_INIT;
  layout.dimensions = 1, layout.extents = &cells, layout.element = element;
  halocline_field field;
  OK(halocline_field_allocate(comm, &layout, &field));
  return field;
}

static void *memory_of(halocline_field field) {
  void *base;
  OK(halocline_field_base(field, &base));
  return base;
}

/* The cells of a block, and before them the last one of the block before, on a ring of blocks. */
static void numbered(halocline_field ids, halocline_field owners, size_t rank, size_t size) {
  for (size_t cell = 0; cell < CELLS; cell++) {
    size_t id = (rank * EACH + size * EACH - 1 + cell) % (size * EACH);
    ((int64_t *)memory_of(ids))[cell] = (int64_t)id;
    ((int32_t *)memory_of(owners))[cell] = (int32_t)(id / EACH);
  }
}

static void lists_of_owners(halocline_comm comm, size_t rank, size_t size) {
  halocline_field ids = field_of(comm, HALOCLINE_I64, CELLS), owners = field_of(comm, HALOCLINE_I32, CELLS);
  halocline_field indices = field_of(comm, HALOCLINE_U64, CELLS), few = field_of(comm, HALOCLINE_U64, 2);
  halocline_stream none = {0};
  halocline_index_lists lists;
  numbered(ids, owners, rank, size);
  OK(halocline_index_lists_create(&lists));
  size_t counts[2], count, before = (rank + size - 1) % size;
  OK(halocline_index_lists_counts(lists, counts, 2, &count));
  TRUE(count == 0);
  OK(halocline_index_lists_owned(lists, owners, size, &rank, 1, indices, none));
  OK(halocline_index_lists_counts(lists, counts, 2, &count));
  const uint64_t *found = memory_of(indices);
  TRUE(count == 1 && counts[0] == (size == 1 ? CELLS : EACH) && found[0] == (size == 1 ? 0 : 1));
  OK(halocline_index_lists_owned(lists, owners, size, &before, 1, indices, none));
  OK(halocline_index_lists_counts(lists, counts, 2, &count));
  TRUE(counts[0] == (size == 1 ? CELLS : 1) && found[0] == 0);
  /* What does not fit is counted, and refused when the counts are asked for. */
  OK(halocline_index_lists_owned(lists, owners, size, &rank, 1, few, none));
  TRUE(halocline_index_lists_counts(lists, counts, 2, &count) == HALOCLINE_ERROR_ARGUMENT);
  TRUE(halocline_index_lists_owned(lists, owners, rank, &rank, 1, indices, none) == HALOCLINE_ERROR_ARGUMENT);
  TRUE(halocline_index_lists_owned(lists, owners, size, NULL, 1, indices, none) == HALOCLINE_ERROR_ARGUMENT);
  TRUE(halocline_index_lists_unique(lists, owners, indices, none) == HALOCLINE_ERROR_ARGUMENT);
  OK(halocline_index_lists_free(&lists));
  TRUE(halocline_index_lists_counts(lists, counts, 2, &count) == HALOCLINE_ERROR_HANDLE);
  OK(halocline_field_free(&ids));
  OK(halocline_field_free(&owners));
  OK(halocline_field_free(&indices));
  OK(halocline_field_free(&few));
}

static void unique_ids(halocline_comm comm) {
  halocline_field ids = field_of(comm, HALOCLINE_I32, CELLS), unique = field_of(comm, HALOCLINE_I32, CELLS);
  const int32_t given[CELLS] = {5, -3, 5, 0, -3, 9, 5};
  memcpy(memory_of(ids), given, sizeof given);
  halocline_index_lists lists;
  OK(halocline_index_lists_create(&lists));
  OK(halocline_index_lists_unique(lists, ids, unique, (halocline_stream){0}));
  size_t found, count;
  OK(halocline_index_lists_counts(lists, &found, 1, &count));
  const int32_t *sorted = memory_of(unique);
  TRUE(found == 4 && sorted[0] == -3 && sorted[1] == 0 && sorted[2] == 5 && sorted[3] == 9);
  OK(halocline_index_lists_free(&lists));
  OK(halocline_field_free(&ids));
  OK(halocline_field_free(&unique));
}

/* The pattern fills the cell of the block before. */
static void pattern_of_owners(halocline_comm comm, size_t rank, size_t size) {
  halocline_field ids = field_of(comm, HALOCLINE_I64, CELLS), owners = field_of(comm, HALOCLINE_I32, CELLS);
  halocline_stream none = {0};
  halocline_binding binding;
  halocline_pattern refused;
  numbered(ids, owners, rank, size);
  if (size > 1) {
    OK(halocline_pattern_of_owners(comm, rank, ids, owners, none, &binding.pattern));
    binding.field = field_of(comm, HALOCLINE_F64, CELLS);
    double *values = memory_of(binding.field);
    for (size_t cell = 0; cell < CELLS; cell++) {
      values[cell] = cell == 0 ? -1 : (double)((int64_t *)memory_of(ids))[cell];
    }
    halocline_halo_exchange halo;
    OK(halocline_bind(comm, &binding, 1, NULL, &halo));
    OK(halocline_exchange_and_wait(halo));
    TRUE(values[0] == (double)((int64_t *)memory_of(ids))[0]);
    OK(halocline_halo_exchange_free(&halo));
    OK(halocline_field_free(&binding.field));
    OK(halocline_pattern_free(&binding.pattern));
  }
  /* An owner that is no rank, on one rank, is an error on all. */
  if (rank == 0) {
    ((int32_t *)memory_of(owners))[3] = -1;
  }
  TRUE(halocline_pattern_of_owners(comm, rank, ids, owners, none, &refused) ==
       (rank == 0 ? HALOCLINE_ERROR_ARGUMENT : HALOCLINE_ERROR_ELSEWHERE));
  OK(halocline_field_free(&ids));
  OK(halocline_field_free(&owners));
}

static void run(halocline_comm comm, size_t rank, size_t size) {
  lists_of_owners(comm, rank, size);
  unique_ids(comm);
  pattern_of_owners(comm, rank, size);
}
