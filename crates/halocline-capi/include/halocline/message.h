/* Messages that a program sends by itself, and exchanges of fields that are known only at the call. Included by halocline.h, which
 * has the rules that hold for all calls. */
#ifndef HALOCLINE_MESSAGE_H
#define HALOCLINE_MESSAGE_H

#include "core.h"
#include "exchange.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The direction of a link or a message. */
enum { HALOCLINE_SEND = 0, HALOCLINE_RECEIVE = 1 };

/* One link of this rank. */
typedef struct halocline_link {
  /* The other rank. */
  size_t peer;
  /* HALOCLINE_SEND or HALOCLINE_RECEIVE. */
  int32_t direction;
  /* HALOCLINE_LINK_PUSH, _PULL, _MAILBOX, _MESSAGE, _DEVICE_MAILBOX, _LL or _NCCL; 0: one that this header does not know. */
  int32_t path;
} halocline_link;

/* Paths between GPUs, beside those of a bind. */
enum {
  /* Packed into the receiver's GPU memory and unpacked there. */
  HALOCLINE_LINK_DEVICE_MAILBOX = 5,
  /* The low-latency protocol. */
  HALOCLINE_LINK_LL = 6
};

/* Stores the links of this rank; between two ranks, host and GPU fields have links of their own. */
halocline_status halocline_links(halocline_halo_exchange halo, halocline_link *links, size_t capacity, size_t *count);

/* Stores the bytes of the message that an exchange sends to a peer, or receives from it. Local. */
halocline_status halocline_message_bytes(halocline_halo_exchange halo, size_t peer, int32_t direction, size_t *bytes);

/* Packs the owned cells of host fields that `peer` needs into the `bytes` bytes at `message`, which the program sends by itself.
 * It begins no exchange. A message is only for the peer's halocline_unpack of the same object, or of another one of the same patterns and
 * layouts. Of several sets it packs the first; halocline_alternative chooses another. Never blocks. Errors: HALOCLINE_ERROR_BUSY while an
 * exchange of the fields is in flight. */
halocline_status halocline_pack(halocline_halo_exchange halo, size_t peer, void *message, size_t bytes);

/* Unpacks a message that `peer` has packed into the halo of host fields. As halocline_pack. */
halocline_status halocline_unpack(halocline_halo_exchange halo, size_t peer, const void *message, size_t bytes);

/* As halocline_pack, of GPU fields, in the order of a stream. `message` lies in memory that the stream's GPU reaches: its own, pinned
 * or registered memory of the host, or that of a GPU to which it has access. It stays valid until the stream has done the work, and is used
 * meanwhile only by what the stream orders. If the stream is being captured into a CUDA graph, each launch packs what the fields hold then:
 * `message` and memory of the program stay valid as long as the graph. */
halocline_status halocline_pack_on(halocline_halo_exchange halo, size_t peer, void *message, size_t bytes,
                                   halocline_stream stream);

/* Unpacks a message in the order of a stream. As halocline_pack_on. */
halocline_status halocline_unpack_on(halocline_halo_exchange halo, size_t peer, const void *message, size_t bytes,
                                     halocline_stream stream);

/* Links of patterns, for host fields that are given to each exchange. Prefer halocline_bind for fields that are known earlier: its bytes go
 * directly from field to field. */
typedef struct halocline_pattern_links {
  uint64_t id;
} halocline_pattern_links;

/* Stores the links of `count` patterns. `options` may be NULL; `link` is HALOCLINE_LINK_AUTO, _MAILBOX or _MESSAGE. `checked` counts for
 * host fields, `run_inline` and `stream_waits` for GPU fields, `ll` and `ll_bytes` for none; the others as for a bind. All ranks pass the
 * same patterns, in any order. With `streams` of a GPU, on all ranks, also for fields in its memory: refused if a peer's GPU does not
 * reach that. Collective. */
halocline_status halocline_pattern_links_create(halocline_comm comm, const halocline_pattern *patterns, size_t count,
                                                const halocline_bind_options *options, halocline_pattern_links *links);

/* Starts an exchange of `count` host fields and returns; halocline_wait ends it. All ranks give the same number of fields of the same
 * patterns and element types. Layouts and memory may differ between ranks and between exchanges. The rules of access are those of
 * halocline_exchange. `pending` may be NULL. Local: a new layout makes no rank wait for another. */
halocline_status halocline_pattern_links_exchange(halocline_pattern_links links, const halocline_binding *bindings,
                                                  size_t count, halocline_pending *pending);

/* Begins an exchange of `count` fields of the GPU of the links after all earlier work of `stream_count` streams; NULL: those of the links.
 * The host waits for no rank, except where fields of new layouts need more bytes than any before. All ranks give fields of the same
 * patterns, element types, extra dimensions and orders of dimensions: the exchange fails at ranks where they differ. New memory of known
 * layouts costs nothing. `pending` may be NULL. For captures into CUDA graphs see halocline_schedule_exchange. */
halocline_status halocline_pattern_links_schedule(halocline_pattern_links links, const halocline_binding *bindings, size_t count,
                                                  const halocline_stream *streams, size_t stream_count,
                                                  halocline_pending *pending);

/* As halocline_reclaim. */
halocline_status halocline_pattern_links_reclaim(halocline_pattern_links links, int32_t *reclaimed);

/* As halocline_links. */
halocline_status halocline_pattern_links_links(halocline_pattern_links links, halocline_link *found, size_t capacity, size_t *count);

/* As halocline_explain. */
halocline_status halocline_pattern_links_explain(halocline_pattern_links links, char *table, size_t capacity, size_t *length);

/* Frees links. An exchange in flight completes in the background. Its pending exchanges become invalid. */
halocline_status halocline_pattern_links_free(halocline_pattern_links *links);

#ifdef __cplusplus
}
#endif

#endif
