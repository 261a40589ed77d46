/* The sparse all-to-all: each rank sends any number of packets to a few ranks. Included by halocline.h, which has the rules that
 * hold for all calls. */
#ifndef HALOCLINE_SPARSE_H
#define HALOCLINE_SPARSE_H

#include "core.h"
#include "packet.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A sparse all-to-all in progress. It serves one exchange. */
typedef struct halocline_sparse {
  uint64_t id;
} halocline_sparse;

/* Begins the operation: the ranks `sources` send to this one, this one sends to `destinations`. Neither names this rank, or a rank
 * twice. NULL for `sources`, on all ranks: they are discovered; if only some ranks pass NULL, all get HALOCLINE_ERROR_COMMUNICATION.
 * A rank that has no sources, where the others pass theirs, passes the address of a variable, and 0. Sets of two ranks that
 * contradict each other are an error on both. Received payloads lie in memory of `resource`. Collective. */
halocline_status halocline_sparse_create(halocline_comm comm, const size_t *sources, size_t source_count,
                                         const size_t *destinations, size_t destination_count,
                                         halocline_resource resource, halocline_sparse *sparse);

/* Adds a packet for a destination. Packets to one rank arrive in the order of their insertion. Never blocks. */
halocline_status halocline_sparse_insert(halocline_sparse sparse, size_t destination, const halocline_packet *packet);

/* Says that this rank inserts no more packets. Repeated calls do nothing. Never blocks. */
halocline_status halocline_sparse_finish(halocline_sparse sparse);

/* Blocks until all packets of all sources are here and those of this rank were sent. After halocline_sparse_finish. */
halocline_status halocline_sparse_wait(halocline_sparse sparse);

/* halocline_sparse_finish and halocline_sparse_wait, and faster. */
halocline_status halocline_sparse_finish_and_wait(halocline_sparse sparse);

/* Stores 1 if halocline_sparse_wait would return at once, else 0. Never blocks. */
halocline_status halocline_sparse_is_complete(halocline_sparse sparse, int32_t *complete);

/* Calls `done` once, with `context`, when the operation is complete or has failed. */
halocline_status halocline_sparse_on_completion(halocline_sparse sparse, halocline_done done, void *context);

/* Stores the ranks that send to this one, ascending. */
halocline_status halocline_sparse_sources(halocline_sparse sparse, size_t *sources, size_t capacity, size_t *count);

/* Stores the ranks to which this one sends, ascending. */
halocline_status halocline_sparse_destinations(halocline_sparse sparse, size_t *destinations, size_t capacity, size_t *count);

/* Stores what this rank has sent and received so far. Set `size` of `statistics`. */
halocline_status halocline_sparse_statistics(halocline_sparse sparse, halocline_packet_statistics *statistics);

/* Stores the packets of a source, in the order of their insertion there, once the operation is complete. They are given once; free each. */
halocline_status halocline_sparse_extract(halocline_sparse sparse, size_t source, halocline_received *packets, size_t capacity,
                                          size_t *count);

/* Frees the operation. If this rank has not finished, the other ranks get HALOCLINE_ERROR_FAILED. Does not block. */
halocline_status halocline_sparse_free(halocline_sparse *sparse);

#ifdef __cplusplus
}
#endif

#endif
