/* Regular grids and their decompositions. Included by halocline.h, which has the rules that hold for all calls. */
#ifndef HALOCLINE_GRID_H
#define HALOCLINE_GRID_H

#include "core.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most axes of a grid. */
#define HALOCLINE_AXES 4

/* A regular grid of 1 to 4 axes. Cells and domains are numbered in row-major order: the last axis runs fastest. */
typedef struct halocline_grid {
  /* sizeof(halocline_grid). */
  size_t size;
  /* The number of axes. */
  size_t axes;
  /* Cells along each axis. */
  const size_t *extents;
  /* For each axis 1 if its first cell follows the last one, else 0. NULL: no axis is periodic. */
  const int32_t *periodic;
  /* Domains of each rank; 0 counts as 1. */
  size_t domains_per_rank;
} halocline_grid;

#define HALOCLINE_GRID_INIT {sizeof(halocline_grid), 0, NULL, NULL, 1}

/* Decomposes the grid into one block for each domain so that as few faces of cells as possible are cut. Blocks along an axis differ by
 * at most one cell. Local: all ranks compute the same result. */
halocline_status halocline_decompose(const halocline_grid *grid, size_t ranks, halocline_decomposition *decomposition);

/* Decomposes the grid into `blocks[axis]` blocks along each axis. Their product is the number of ranks times the domains of each. Local. */
halocline_status halocline_decompose_into(const halocline_grid *grid, const size_t *blocks, size_t ranks,
                                          halocline_decomposition *decomposition);

/* Decomposes the grid at explicit cuts. `counts[axis]` is the number of cuts along an axis; `cuts` has those of all axes, one axis
 * after the other: the ascending positions at which a new block starts. Local. */
halocline_status halocline_decompose_at(const halocline_grid *grid, const size_t *counts, const size_t *cuts, size_t ranks,
                                        halocline_decomposition *decomposition);

/* Decomposes the grid into `count` boxes; box i is domain i. `owners[i]` is its rank, `firsts[i * axes + axis]` its first cell,
 * `extents[i * axes + axis]` its number of cells. The boxes cover the grid and do not overlap. A rank may own any number. Local. */
halocline_status halocline_decompose_boxes(const halocline_grid *grid, size_t count, const size_t *owners,
                                           const size_t *firsts, const size_t *extents, size_t ranks,
                                           halocline_decomposition *decomposition);

/* Stores the decomposition of the points between cells: one more point along each axis whose element of `axes` is 1 (and that is
 * not periodic), which the last block owns. `axes` has 0 or 1 for each axis. Local. */
halocline_status halocline_decomposition_staggered(halocline_decomposition decomposition, const int32_t *axes,
                                                   halocline_decomposition *staggered);

/* Stores the numbers of axes, ranks and domains, and for each axis the cells and the blocks. `extents` and `blocks` have
 * HALOCLINE_AXES elements, 0 beyond the axes; `blocks` is all 0 for boxes. Each pointer may be NULL. */
halocline_status halocline_decomposition_describe(halocline_decomposition decomposition, size_t *axes, size_t *extents,
                                                  size_t *ranks, uint64_t *domains, size_t *blocks);

/* Frees a decomposition. */
halocline_status halocline_decomposition_free(halocline_decomposition *decomposition);

#ifdef __cplusplus
}
#endif

#endif
