/* Patterns, and the domains that a program computes with. Included by halocline.h, which has the rules that hold for all calls. */
#ifndef HALOCLINE_PATTERN_H
#define HALOCLINE_PATTERN_H

#include "core.h"
#include "grid.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which halo cells are filled. The others stay unchanged. */
enum {
  /* All halo cells, including corners. */
  HALOCLINE_ALL = 0,
  /* Cells outside the domain along one axis only. */
  HALOCLINE_FACES = 1,
  /* Cells outside along one or two axes. */
  HALOCLINE_FACES_AND_EDGES = 2
};

/* The width of a halo, in cells. Set `width`, or `axes`, `low` and `high`. */
typedef struct halocline_halo {
  /* sizeof(halocline_halo). */
  size_t size;
  /* The width along each axis and at both sides; 0 if `axes` is set. */
  size_t width;
  /* The number of elements of `low` and `high`; 0: `width` holds. */
  size_t axes;
  /* The width at the low side of each axis. */
  const size_t *low;
  /* The width at the high side of each axis. */
  const size_t *high;
  /* HALOCLINE_ALL, HALOCLINE_FACES or HALOCLINE_FACES_AND_EDGES. */
  int32_t neighbours;
} halocline_halo;

#define HALOCLINE_HALO_INIT {sizeof(halocline_halo), 0, 0, NULL, NULL, HALOCLINE_ALL}

/* Stores the pattern of a regular grid. All ranks pass the same decomposition and halo. Collective. */
halocline_status halocline_pattern_regular(halocline_comm comm, halocline_decomposition decomposition,
                                           const halocline_halo *halo, halocline_pattern *pattern);

/* Stores the pattern that fills only the narrower halo `to`. Domains and fields stay the same. All ranks pass the same. Collective
 * over the communicator of `pattern`. */
halocline_status halocline_pattern_narrowed(halocline_pattern pattern, const halocline_halo *to, halocline_pattern *narrowed);

/* Stores the number of domains of this rank. */
halocline_status halocline_pattern_domains(halocline_pattern pattern, size_t *count);

/* A box of cells. Beyond the axes of the domain it has the one cell 0. */
typedef struct halocline_box {
  /* The local index of its first cell. */
  size_t first[HALOCLINE_AXES];
  /* Its number of cells along each axis. */
  size_t extents[HALOCLINE_AXES];
} halocline_box;

/* A domain of this rank. Local indices count in an array of `extents`, halo included. */
typedef struct halocline_domain {
  /* sizeof(halocline_domain). */
  size_t size;
  /* The number of axes; 1 for an unstructured domain. */
  size_t axes;
  /* The number of the domain, as in halocline_field_on_domain. In a pattern of vectors on patches, component c of domain d has the number
   * 2 d + c, and d in the pattern of one component. */
  uint64_t number;
  /* The number of owned cells. */
  uint64_t owned_count;
  /* The extents of the smallest array that holds owned and halo cells; 1 beyond the axes. */
  size_t extents[HALOCLINE_AXES];
  /* The owned cells; none if halo cells of an unstructured domain lie among them: see halocline_domain_owned. */
  halocline_box owned;
} halocline_domain;

#define HALOCLINE_DOMAIN_INIT {sizeof(halocline_domain), 0, 0, 0, {0, 0, 0, 0}, {{0, 0, 0, 0}, {0, 0, 0, 0}}}

/* Stores the shape of this rank's domain `index`, which counts from 0 in the order of the domains' numbers. Set `size` of `domain`. */
halocline_status halocline_pattern_domain(halocline_pattern pattern, size_t index, halocline_domain *domain);

/* Stores the owned cells whose stencil of `width` cells to each side reads no halo cell: those to compute while the exchange is in
 * flight. At a side without a halo it reaches to the end of the owned cells, where a stencil may leave the array. An extent of 0 if there
 * are none. This call and the next two are refused for an unstructured domain that has halo cells among its owned ones. */
halocline_status halocline_domain_interior(halocline_pattern pattern, size_t index, size_t width, halocline_box *cells);

/* Stores the owned cells that are not of the interior, in disjoint boxes: at most two for each axis. */
halocline_status halocline_domain_boundary(halocline_pattern pattern, size_t index, size_t width, halocline_box *boxes,
                                           size_t capacity, size_t *count);

/* Stores the halo cells in disjoint boxes: at most two for each axis. */
halocline_status halocline_domain_halo(halocline_pattern pattern, size_t index, halocline_box *boxes, size_t capacity,
                                       size_t *count);

/* Stores the global coordinates of a local index, an element for each axis. Those of halo cells beyond a periodic border are
 * negative, or not below the extents of the grid. On a grid of patches they count in the domain's patch, also behind its sides. */
halocline_status halocline_domain_global(halocline_pattern pattern, size_t index, const size_t *local, int64_t *global);

/* Stores the local index of global coordinates, an element for each axis, and 1 in `found`; 0 in `found` if the domain does not hold the
 * cell. */
halocline_status halocline_domain_local(halocline_pattern pattern, size_t index, const int64_t *global, size_t *local,
                                        int32_t *found);

/* Frees a pattern. */
halocline_status halocline_pattern_free(halocline_pattern *pattern);

#ifdef __cplusplus
}
#endif

#endif
