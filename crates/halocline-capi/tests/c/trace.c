/* Traces: `trace FOLDER [RANKS]` writes FOLDER/trace.json with five exchanges of each rank. Prints "ok RANKS TRANSPORT" on rank 0. */
#define HAS_MAIN
#include "ranks.h"
#include <limits.h>
#include <unistd.h>

static char folder[PATH_MAX];

static const char *file(char *path, const char *name) {
  snprintf(path, 2 * PATH_MAX, "%s/%s", folder, name);
  return path;
}

static halocline_halo_exchange bound(halocline_comm comm, size_t size) {
  size_t extents[1] = {4 * size};
  const int32_t periodic[1] = {1};
  halocline_grid grid = HALOCLINE_GRID_INIT;
  grid.axes = 1, grid.extents = extents, grid.periodic = periodic;
  halocline_decomposition blocks;
  OK(halocline_decompose(&grid, size, &blocks));
  halocline_halo width = HALOCLINE_HALO_INIT;
  width.width = 1;
  halocline_pattern pattern;
  OK(halocline_pattern_regular(comm, blocks, &width, &pattern));
  size_t cells = 6;
  halocline_layout layout = HALOCLINE_LAYOUT_INIT;
  layout.dimensions = 1, layout.extents = &cells, layout.element = HALOCLINE_F64;
  halocline_field field;
  OK(halocline_field_allocate(comm, &layout, &field));
  halocline_binding binding = {pattern, field};
  halocline_bind_options options = HALOCLINE_BIND_OPTIONS_INIT;
  options.name = "traced";
  halocline_halo_exchange halo;
  OK(halocline_bind(comm, &binding, 1, &options, &halo));
  OK(halocline_field_free(&field));
  OK(halocline_pattern_free(&pattern));
  OK(halocline_decomposition_free(&blocks));
  return halo;
}

static void run(halocline_comm comm, size_t rank, size_t size) {
  char path[2 * PATH_MAX];
  halocline_halo_exchange halo = bound(comm, size);
  halocline_trace trace, refused;
  /* Not in the trace: it begins later. */
  OK(halocline_exchange_and_wait(halo));
  OK(halocline_trace_begin(comm, file(path, "trace.json"), &trace));
  for (int exchange = 0; exchange < 5; exchange++) {
    OK(halocline_exchange_and_wait(halo));
  }
  OK(halocline_trace_end(trace));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "was ended", halocline_trace_end(trace));
  OK(halocline_trace_free(&trace));
  REFUSED(HALOCLINE_ERROR_HANDLE, "is null", halocline_trace_end(trace));

  /* One that is freed without its end leaves no file. */
  OK(halocline_trace_begin(comm, file(path, "dropped.json"), &trace));
  halocline_trace copy = trace;
  OK(halocline_trace_free(&trace));
  REFUSED(HALOCLINE_ERROR_HANDLE, "freed", halocline_trace_end(copy));
  OK(halocline_comm_barrier(comm));
  TRUE(access(path, F_OK) != 0);

  /* What one rank passes wrongly is an error on all ranks. */
  REFUSED(rank == 0 ? HALOCLINE_ERROR_ARGUMENT : HALOCLINE_ERROR_ELSEWHERE, rank == 0 ? "path is NULL" : "rank 0",
          halocline_trace_begin(comm, rank == 0 ? NULL : path, &refused));
  REFUSED(rank == 0 ? HALOCLINE_ERROR_ARGUMENT : HALOCLINE_ERROR_ELSEWHERE, "cannot write the trace",
          halocline_trace_begin(comm, file(path, "none/trace.json"), &refused));
  OK(halocline_halo_exchange_free(&halo));
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: trace FOLDER [RANKS]\n");
    return 2;
  }
  snprintf(folder, sizeof folder, "%s", argv[1]);
  return run_ranks(argc - 1, argv + 1);
}
