/* Index lists: the cells that ranks own, unique ids. Included by halocline.h, which has the rules that hold for all calls. */
#ifndef HALOCLINE_INDEX_LISTS_H
#define HALOCLINE_INDEX_LISTS_H

#include "core.h"
#include "field.h"
#include "pattern.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes index lists of fields that have one dimension without gaps, and elements of HALOCLINE_I32, _U32, _I64 or _U64. All fields of a
 * call lie on the host, or in memory of one GPU. The results stay there.
 *
 * An object makes one list at a time, with memory that it keeps for the next. halocline_index_lists_owned and _unique on a GPU run after
 * all earlier work of `stream`, whose later work sees the list, and the host does not wait. Exceptions are the first list of an object,
 * for which kernels are loaded and, once, compiled, and a list that needs more memory than those before. For fields of the host pass the null
 * handle {0}; the list is complete when the call returns. */
typedef struct halocline_index_lists {
  uint64_t id;
} halocline_index_lists;

/* Stores an object without memory. */
halocline_status halocline_index_lists_create(halocline_index_lists *lists);

/* Stores in `indices` the positions of the cells that each of `ranks` owns, rank after rank, each rank's in ascending order. `owners` has
 * the rank of each cell, below `size`, the number of ranks. `ranks` ascend. As many positions are stored as fit; the elements behind the
 * list stay as they are. */
halocline_status halocline_index_lists_owned(halocline_index_lists lists, halocline_field owners, size_t size, const size_t *ranks,
                                             size_t rank_count, halocline_field indices, halocline_stream stream);

/* Stores in `unique` the ids that occur in `ids`, each once, in ascending order. Both have elements of one type. On a GPU the object keeps
 * memory of twice the bytes of `ids`. */
halocline_status halocline_index_lists_unique(halocline_index_lists lists, halocline_field ids, halocline_field unique,
                                              halocline_stream stream);

/* Stores the number of elements of each part of the last list: one for each rank of halocline_index_lists_owned, one of
 * halocline_index_lists_unique, none before the first list. Waits until the list is made. HALOCLINE_ERROR_ARGUMENT if a cell's owner was no
 * rank, or if the list was longer than its field. */
halocline_status halocline_index_lists_counts(halocline_index_lists lists, size_t *counts, size_t capacity, size_t *count);

/* Frees the object. Does not wait: memory that a GPU uses is freed later. */
halocline_status halocline_index_lists_free(halocline_index_lists *lists);

/* Stores the pattern of one unstructured domain of each rank: `ids` has the global id of each cell in local order, owned and halo, and
 * `owners` the rank that owns it. Of fields of a GPU the host gets the ids, and the number and the positions of the halo cells; the owners
 * stay there. Blocks. Collective. */
halocline_status halocline_pattern_of_owners(halocline_comm comm, uint64_t number, halocline_field ids, halocline_field owners,
                                             halocline_stream stream, halocline_pattern *pattern);

#ifdef __cplusplus
}
#endif

#endif
