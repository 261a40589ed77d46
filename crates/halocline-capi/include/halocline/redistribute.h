/* Moving fields between two distributions of the cells, and putting a field together. Included by halocline.h, which has the rules
 * that hold for all calls. */
#ifndef HALOCLINE_REDISTRIBUTE_H
#define HALOCLINE_REDISTRIBUTE_H

#include "core.h"
#include "exchange.h"
#include "mesh.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Moves all cells from one distribution, the first, to another, the second. */
typedef struct halocline_redistribute {
  uint64_t id;
} halocline_redistribute;

/* Stores the redistribution between two decompositions of one grid, each with the halo of its arrays. Owned cells move; halo cells stay
 * unchanged. All ranks pass the same. Collective. */
halocline_status halocline_redistribute_regular(halocline_comm comm, halocline_decomposition from,
                                                const halocline_halo *from_halo, halocline_decomposition to,
                                                const halocline_halo *to_halo, halocline_redistribute *redistribute);

/* Stores the redistribution between two sets of unstructured domains; each rank passes its own. Collective. */
halocline_status halocline_redistribute_unstructured(halocline_comm comm, const halocline_cells *from, size_t from_count,
                                                     const halocline_cells *to, size_t to_count,
                                                     halocline_redistribute *redistribute);

/* Stores the reverse: from the second distribution to the first. */
halocline_status halocline_redistribute_back(halocline_redistribute redistribute, halocline_redistribute *back);

/* Binds fields: `from` on the domains that the cells leave, `to` on those where they go. Each exchange of the object reads owned cells of
 * `from` and writes owned cells of `to`. The n-th field given for a domain goes to the n-th field of each other domain. `options`
 * may be NULL. Collective. */
halocline_status halocline_redistribute_bind(halocline_comm comm, halocline_redistribute redistribute,
                                             const halocline_field *from, size_t from_count, const halocline_field *to,
                                             size_t to_count, const halocline_bind_options *options,
                                             halocline_halo_exchange *halo);

/* Frees a redistribution. */
halocline_status halocline_redistribute_free(halocline_redistribute *redistribute);

/* Stores, on rank `root`, a field of the whole grid, or of all cells in the order of their ids: C order, without gaps. The others
 * get the null handle. `fields` has one field for each domain of this rank, in the order of the domains. Collective over the
 * communicator of `pattern`. */
halocline_status halocline_gather_to(halocline_pattern pattern, size_t root, const halocline_field *fields, size_t count,
                                     halocline_field *whole);

/* Writes the owned cells of a distributed field to a NumPy file if `path` ends in ".npy", or to a Zarr version 3 array if it ends in
 * ".zarr", in the order of halocline_gather_to. Rank 0 writes. Collective over the communicator of `pattern`. */
halocline_status halocline_save(halocline_pattern pattern, const char *path, const halocline_field *fields, size_t count);

#ifdef __cplusplus
}
#endif

#endif
