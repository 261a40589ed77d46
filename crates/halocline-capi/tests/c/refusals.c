/* Arguments of one rank that do not fit those of the others: an error on all ranks, and the communicator works on. */
#include "fixture.h"

/* The call is refused on this rank: by itself with one of the texts, or because another rank was refused. */
#define REFUSED_SOMEWHERE(text, call)                                                                                        \
  do {                                                                                                                       \
    halocline_status status_ = (call);                                                                                       \
    if ((status_ != HALOCLINE_ERROR_ARGUMENT && status_ != HALOCLINE_ERROR_ELSEWHERE) ||                                     \
        strstr(halocline_error_message(), text) == NULL) {                                                                   \
      fprintf(stderr, "%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #call, halocline_status_name(status_),                      \
              halocline_error_message());                                                                                    \
      exit(1);                                                                                                               \
    }                                                                                                                        \
    still_works(comm);                                                                                                       \
  } while (0)

static void still_works(halocline_comm comm) {
  size_t size;
  OK(halocline_comm_size(comm, &size));
  int64_t ranks = 1;
  OK(halocline_comm_all_reduce(comm, &ranks, 1, HALOCLINE_I64, HALOCLINE_SUM));
  TRUE(ranks == (int64_t)size);
}

static halocline_grid grid_of(const size_t *extents) {
  static const int32_t periodic[2] = {1, 1};
  halocline_grid grid = HALOCLINE_GRID_INIT;
  grid.axes = 2, grid.extents = extents, grid.periodic = periodic;
  return grid;
}

/* Two fields of a pattern; rank 0 binds what does not fit. */
static void binds(halocline_comm comm, size_t rank, size_t size) {
  const size_t extents[2] = {3 * size, 4};
  halocline_grid grid = grid_of(extents);
  halocline_decomposition blocks;
  OK(halocline_decompose(&grid, size, &blocks));
  halocline_halo width = HALOCLINE_HALO_INIT;
  width.width = 1;
  fixture of = make_fixture(comm, blocks, &grid, &width), other = make_fixture(comm, blocks, &grid, &width);
  halocline_halo_exchange halo;
  halocline_binding bindings[2] = {{of.pattern, of.fields[0]}, {of.pattern, other.fields[0]}};
  const int is_odd = rank == 0;

  /* Another number of fields. */
  if (size > 1) {
    REFUSED_SOMEWHERE("field", halocline_bind(comm, bindings, is_odd ? 1 : 2, NULL, &halo));
  }
  /* Another element type, and another size of the elements. */
  for (size_t type = 0; type < 2 && size > 1; type++) {
    halocline_layout layout = HALOCLINE_LAYOUT_INIT;
    layout.dimensions = 2, layout.extents = of.domains[0].extents, layout.element = type == 0 ? HALOCLINE_I64 : HALOCLINE_F32;
    halocline_binding odd = {of.pattern, {0}};
    OK(halocline_field_allocate(comm, &layout, &odd.field));
    REFUSED_SOMEWHERE("rank", halocline_bind(comm, is_odd ? &odd : bindings, 1, NULL, &halo));
    OK(halocline_field_free(&odd.field));
  }
  /* A field that is too small, and one with too few dimensions. */
  for (size_t dimensions = 1; dimensions < 3; dimensions++) {
    size_t small[2] = {of.domains[0].extents[0] - 1, of.domains[0].extents[1]};
    halocline_layout layout = HALOCLINE_LAYOUT_INIT;
    layout.dimensions = dimensions, layout.extents = small, layout.element = HALOCLINE_F64;
    halocline_binding odd = {of.pattern, {0}};
    OK(halocline_field_allocate(comm, &layout, &odd.field));
    REFUSED_SOMEWHERE("", halocline_bind(comm, is_odd ? &odd : bindings, 1, NULL, &halo));
    OK(halocline_field_free(&odd.field));
  }
  /* Another link, and checked mode on one rank alone. */
  if (size > 1) {
    halocline_bind_options options = by_path(is_odd ? HALOCLINE_LINK_MESSAGE : HALOCLINE_LINK_MAILBOX);
    REFUSED_SOMEWHERE("", halocline_bind(comm, bindings, 1, &options, &halo));
    options = by_path(HALOCLINE_LINK_AUTO), options.checked = is_odd ? HALOCLINE_ON : HALOCLINE_OFF;
    REFUSED_SOMEWHERE("", halocline_bind(comm, bindings, 1, &options, &halo));
  }
  /* The field of another domain, and a freed field. */
  halocline_field assigned;
  OK(halocline_field_on_domain(of.fields[0], 1000, &assigned));
  halocline_binding strange = {of.pattern, assigned};
  REFUSED_SOMEWHERE("1000", halocline_bind(comm, &strange, 1, NULL, &halo));
  halocline_field freed = assigned;
  OK(halocline_field_free(&assigned));
  strange.field = freed;
  halocline_status status = halocline_bind(comm, is_odd ? &strange : bindings, 1, NULL, &halo);
  TRUE(status == (is_odd ? HALOCLINE_ERROR_HANDLE : HALOCLINE_ERROR_ELSEWHERE));
  TRUE(strstr(halocline_error_message(), "freed") != NULL);
  still_works(comm);
  /* What fits is bound after all of them. */
  halo = bind_fixture(comm, &of, NULL);
  fill_fixture(&of, 1);
  OK(halocline_exchange_and_wait(halo));
  TRUE(wrong_cells(&of, 1) == 0);
  OK(halocline_halo_exchange_free(&halo));
  free_fixture(&other);
  free_fixture(&of);
  OK(halocline_decomposition_free(&blocks));
}

/* Three cells of a ring on each rank, of which the given ids are owned too, or are in the halo. */
static halocline_status ring_with(halocline_comm comm, size_t rank, const uint64_t *owned, const uint64_t *in_halo,
                                  uint64_t number) {
  uint64_t ids[4] = {3 * rank, 3 * rank + 1, 3 * rank + 2, owned ? *owned : 0};
  halocline_cells cells = HALOCLINE_CELLS_INIT;
  cells.number = number, cells.count = owned ? 4 : 3, cells.ids = ids;
  cells.halo_count = in_halo ? 1 : 0, cells.halo_ids = in_halo;
  halocline_pattern pattern;
  halocline_status status = halocline_pattern_unstructured(comm, &cells, 1, &pattern);
  if (status == HALOCLINE_OK) {
    OK(halocline_pattern_free(&pattern));
  }
  return status;
}

static void patterns(halocline_comm comm, size_t rank, size_t size) {
  const int is_odd = rank == size - 1;
  const uint64_t unowned = 987654, of_first = 1, own = 3 * rank;
  REFUSED_SOMEWHERE("987654", ring_with(comm, rank, NULL, is_odd ? &unowned : NULL, rank));
  REFUSED_SOMEWHERE("id", ring_with(comm, rank, NULL, is_odd ? &own : NULL, rank));
  if (size > 1) {
    REFUSED_SOMEWHERE("id 1", ring_with(comm, rank, is_odd ? &of_first : NULL, NULL, rank));
    REFUSED_SOMEWHERE("domain", ring_with(comm, rank, NULL, NULL, is_odd ? 0 : rank));
  }
  OK(ring_with(comm, rank, NULL, NULL, rank));

  const size_t extents[2] = {3 * size, 4}, wider[2] = {3 * size, 6};
  halocline_grid grid = grid_of(extents), other = grid_of(wider);
  halocline_decomposition blocks, others, of_more_ranks, too_many;
  OK(halocline_decompose(&grid, size, &blocks));
  OK(halocline_decompose(&other, size, &others));
  OK(halocline_decompose(&grid, size + 1, &of_more_ranks));
  halocline_halo one = HALOCLINE_HALO_INIT, two = HALOCLINE_HALO_INIT;
  one.width = 1, two.width = 2;
  halocline_pattern pattern;
  REFUSED_SOMEWHERE("ranks", halocline_pattern_regular(comm, of_more_ranks, &one, &pattern));
  if (size > 1) {
    REFUSED_SOMEWHERE("", halocline_pattern_regular(comm, is_odd ? others : blocks, &one, &pattern));
    REFUSED_SOMEWHERE("", halocline_pattern_regular(comm, blocks, is_odd ? &two : &one, &pattern));
  }
  const size_t sides[3] = {1, 1, 1};
  halocline_halo of_three_axes = HALOCLINE_HALO_INIT;
  of_three_axes.axes = 3, of_three_axes.low = sides, of_three_axes.high = sides;
  REFUSED_SOMEWHERE("ax", halocline_pattern_regular(comm, blocks, &of_three_axes, &pattern));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "", halocline_decompose(&grid, 100000, &too_many));
  OK(halocline_decomposition_free(&of_more_ranks));
  OK(halocline_decomposition_free(&others));
  OK(halocline_decomposition_free(&blocks));
}

/* Ranks that gather to different roots. */
static void gathers(halocline_comm comm, size_t rank, size_t size) {
  halocline_cells cells = HALOCLINE_CELLS_INIT;
  const uint64_t id = rank;
  cells.number = rank, cells.count = 1, cells.ids = &id;
  halocline_pattern pattern;
  OK(halocline_pattern_unstructured(comm, &cells, 1, &pattern));
  const size_t one = 1;
  halocline_layout layout = HALOCLINE_LAYOUT_INIT;
  layout.dimensions = 1, layout.extents = &one, layout.element = HALOCLINE_F64;
  halocline_field field, whole;
  OK(halocline_field_allocate(comm, &layout, &field));
  if (size > 1) {
    REFUSED_SOMEWHERE("has another root than rank 0; all ranks must give the same",
                      halocline_gather_to(pattern, rank == size - 1, &field, 1, &whole));
  }
  REFUSED_SOMEWHERE("does not exist", halocline_gather_to(pattern, size, &field, 1, &whole));
  REFUSED_SOMEWHERE("path is empty; pass the path of a file", halocline_save(pattern, "", &field, 1));
  REFUSED_SOMEWHERE("\"t.nc\" names no format; save to a name that ends in .npy or .zarr", halocline_save(pattern, "t.nc", &field, 1));
  OK(halocline_field_free(&field));
  OK(halocline_pattern_free(&pattern));
}

static void run(halocline_comm comm, size_t rank, size_t size) {
  gathers(comm, rank, size);
  binds(comm, rank, size);
  patterns(comm, rank, size);
}
