/* Packets between neighbours on a line or a ring of ranks. Included by halocline.h, which has the rules that hold for all calls. */
#ifndef HALOCLINE_NEIGHBORS_H
#define HALOCLINE_NEIGHBORS_H

#include "core.h"
#include "packet.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The neighbours of a rank, and the rounds in flight with them. Left is towards rank 0, right towards the last rank. */
typedef struct halocline_neighbors {
  uint64_t id;
} halocline_neighbors;

/* A round in flight. */
typedef struct halocline_round {
  uint64_t id;
} halocline_round;

/* A series of rounds. One thread uses it at a time. */
typedef struct halocline_session {
  uint64_t id;
} halocline_session;

/* Stores the neighbours. `ring`: 1 if rank 0 is the right neighbour of the last rank. A rank alone in a ring is its own neighbour
 * on both sides; it gets the memory of the payloads that it sends. Received payloads lie in memory of `resource`. All ranks call
 * it in the same order; does not block. */
halocline_status halocline_neighbors_create(halocline_comm comm, int32_t ring, halocline_resource resource,
                                            halocline_neighbors *neighbors);

/* Stores the ranks of the neighbours; -1: there is none, or it is this rank itself. */
halocline_status halocline_neighbors_ranks(halocline_neighbors neighbors, int64_t *left, int64_t *right);

/* Stores what this rank has sent and received so far. Set `size` of `statistics`. */
halocline_status halocline_neighbors_statistics(halocline_neighbors neighbors, halocline_packet_statistics *statistics);

/* Starts a round of operation `id` and returns: sends a packet to each side, or none (NULL). Never blocks. The neighbours start a
 * round of the same id; ranks may start different ids in any order. An id can be used again once its round was taken. */
halocline_status halocline_neighbors_start(halocline_neighbors neighbors, uint32_t id, const halocline_packet *left,
                                           const halocline_packet *right, halocline_round *round);

/* Starts a round and stores what came from each side: the null handle if nothing came. Blocks. */
halocline_status halocline_neighbors_exchange(halocline_neighbors neighbors, uint32_t id, const halocline_packet *left,
                                              const halocline_packet *right, halocline_received *from_left,
                                              halocline_received *from_right);

/* Gives up: all rounds of all ranks fail with this rank and the reason `why`. Does not block. */
halocline_status halocline_neighbors_abort(halocline_neighbors neighbors, const char *why);

/* Frees the neighbours. Rounds in flight go on. A neighbour that waits for a round that this rank has not started gets
 * HALOCLINE_ERROR_FAILED. */
halocline_status halocline_neighbors_free(halocline_neighbors *neighbors);

/* Waits for a round and stores what came from each side: the null handle if nothing came. They are given once: a later call is
 * HALOCLINE_ERROR_ARGUMENT. Blocks. */
halocline_status halocline_round_wait(halocline_round round, halocline_received *from_left, halocline_received *from_right);

/* Stores 1 if halocline_round_wait would return at once, else 0. Never blocks. */
halocline_status halocline_round_is_complete(halocline_round round, int32_t *complete);

/* Calls `done` once, with `context`, when the round is over. */
halocline_status halocline_round_on_completion(halocline_round round, halocline_done done, void *context);

/* Frees a round. One that is in flight goes on. */
halocline_status halocline_round_free(halocline_round *round);

/* The sides, combined by |. */
enum { HALOCLINE_LEFT = 1, HALOCLINE_RIGHT = 2 };

/* Stores a series of rounds of operation `id`. The neighbours open one, too. Each direction ends on its own. Does not communicate. */
halocline_status halocline_session_open(halocline_neighbors neighbors, uint32_t id, halocline_session *session);

/* Starts the next round: sends a packet to each side, or none (NULL). `last` has the sides to which nothing follows any more;
 * their packet is NULL. Never blocks. halocline_session_wait follows. */
halocline_status halocline_session_start(halocline_session session, const halocline_packet *left,
                                         const halocline_packet *right, int32_t last);

/* Waits for the round and stores what came from each side, and in `ended` (may be NULL) the sides that send nothing any more. Without a
 * round in flight HALOCLINE_ERROR_ARGUMENT. Blocks. */
halocline_status halocline_session_wait(halocline_session session, halocline_received *from_left,
                                        halocline_received *from_right, int32_t *ended);

/* Stores 1 if halocline_session_wait would return at once, else 0. Without a round in flight HALOCLINE_ERROR_ARGUMENT. Never blocks. */
halocline_status halocline_session_is_complete(halocline_session session, int32_t *complete);

/* Calls `done` once, with `context`, when the round in flight is over; halocline_session_wait has what came. Without a round in flight
 * HALOCLINE_ERROR_ARGUMENT. */
halocline_status halocline_session_on_completion(halocline_session session, halocline_done done, void *context);

/* Stores 1 once all directions have ended, else 0. */
halocline_status halocline_session_is_over(halocline_session session, int32_t *over);

/* Ends what this rank sends, and receives until the neighbours have ended, too; what they still send is dropped. Blocks. */
halocline_status halocline_session_finish(halocline_session session);

/* Frees a session. If it is not over, neighbours that expect more of this rank get HALOCLINE_ERROR_FAILED. Does not block. */
halocline_status halocline_session_free(halocline_session *session);

#ifdef __cplusplus
}
#endif

#endif
