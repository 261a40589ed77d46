/* Bound exchanges. Included by halocline.h, which has the rules that hold for all calls. */
#ifndef HALOCLINE_EXCHANGE_H
#define HALOCLINE_EXCHANGE_H

#include "core.h"
#include "pattern.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A field and the pattern that it is bound to. */
typedef struct halocline_binding {
  /* Which cells travel. */
  halocline_pattern pattern;
  /* The memory whose cells they are. */
  halocline_field field;
} halocline_binding;

/* How links move bytes. */
enum {
  /* For host fields the fastest of the paths that the memory allows, measured by the bind; for GPU fields the first possible one of:
   * low-latency for small messages, push, mailbox on the receiver's GPU, mailbox, message. */
  HALOCLINE_LINK_AUTO = 0,
  /* Senders write into the receivers' halos. Refused where memory is out of reach. */
  HALOCLINE_LINK_PUSH = 1,
  /* Receivers read the senders' owned cells. Refused where memory is out of reach. */
  HALOCLINE_LINK_PULL = 2,
  /* Through buffers of the receivers in shared memory. Refused between ranks that share none. */
  HALOCLINE_LINK_MAILBOX = 3,
  /* Through messages of the transport. Always possible. */
  HALOCLINE_LINK_MESSAGE = 4,
  /* GPU fields through messages of NCCL in the order of streams, also where memory is in reach; host fields as HALOCLINE_LINK_AUTO. Refused
   * without NCCL 2.14, for ranks with fields on several GPUs, and for links of patterns. */
  HALOCLINE_LINK_NCCL = 7
};

/* Options of a bind. An option set here wins over its environment variable. */
typedef struct halocline_bind_options {
  /* sizeof(halocline_bind_options). */
  size_t size;
  /* The name of the object in traces and reports. NULL: its fields make the name. */
  const char *name;
  /* Seconds that an exchange may take before the object fails; 0: no limit. They count from its begin, of GPU fields from when their
   * streams reach it, also while no caller waits. */
  double deadline;
  /* The streams whose work writes owned cells or reads the halo of GPU fields: halocline_exchange runs after their earlier work. NULL: the
   * default stream of each GPU. */
  const halocline_stream *streams;
  /* The number of elements of `streams`. */
  size_t stream_count;
  /* With `ll` HALOCLINE_ON: the most bytes of a message that uses the low-latency protocol. Otherwise 0. */
  size_t ll_bytes;
  /* HALOCLINE_LINK_AUTO or another link. The same on all ranks. */
  int32_t link;
  /* Whether each exchange is verified, which is slow: HALOCLINE_DEFAULT (the variable HALOCLINE_CHECK), _ON or _OFF. The same on all
   * ranks. Reduces are not checked, nor are GPU fields of links of patterns. A capture into a CUDA graph of a checked object is refused. */
  int32_t checked;
  /* 1: scheduled exchanges run on the streams given to them, not beside them. */
  int32_t run_inline;
  /* Whether streams, and never kernels, wait for peers: HALOCLINE_DEFAULT (the variable HALOCLINE_STREAM_WAITS), _ON or _OFF. */
  int32_t stream_waits;
  /* Which messages between GPUs use the low-latency protocol: HALOCLINE_DEFAULT (the variable HALOCLINE_LL, else small ones),
   * HALOCLINE_ON (up to `ll_bytes`) or HALOCLINE_OFF. */
  int32_t ll;
  /* 0. */
  int32_t reserved;
} halocline_bind_options;

#define HALOCLINE_BIND_OPTIONS_INIT {sizeof(halocline_bind_options), NULL, 0.0, NULL, 0, 0, HALOCLINE_LINK_AUTO, 0, 0, 0, 0, 0}

/* Binds `count` fields to their patterns and stores the object. The n-th field given for a domain of a pattern is exchanged with the
 * n-th field of every other domain of that pattern. Both have the same element type and extra dimensions; strides may differ.
 * `options` may be NULL.
 * Collective over `comm`, with which all patterns were made. */
halocline_status halocline_bind(halocline_comm comm, const halocline_binding *bindings, size_t count,
                                const halocline_bind_options *options, halocline_halo_exchange *halo);

/* Binds `sets` sets of `count` fields each: time levels that swap, for example. `bindings` has `sets` times `count` elements, one
 * set after the other. Each exchange moves one set. The first set decides which path is fastest. Collective. */
halocline_status halocline_bind_alternatives(halocline_comm comm, const halocline_binding *bindings, size_t count,
                                             size_t sets, const halocline_bind_options *options,
                                             halocline_halo_exchange *halo);

/* Starts an exchange and returns. Owned cells are read and halo cells are written from now until its wait returns; those of GPU
 * fields after all earlier work of the object's streams. Ranks match the exchanges of an object in the order in which each begins
 * them. `pending` may be NULL, but only in a thread that may wait: another one gets HALOCLINE_ERROR_MPI (MPI_THREAD_FUNNELED), and no
 * exchange begins. Errors: HALOCLINE_ERROR_BUSY while the previous exchange of an object with host fields is in flight,
 * while 64 of an object of GPU fields alone are, or while a field is in flight in another object. */
halocline_status halocline_exchange(halocline_halo_exchange halo, halocline_pending *pending);

/* As halocline_exchange, of set `set`, counted from 0. All ranks pass the same. */
halocline_status halocline_exchange_set(halocline_halo_exchange halo, size_t set, halocline_pending *pending);

/* Starts an exchange and waits for it: halocline_exchange, then halocline_wait. Blocks. */
halocline_status halocline_exchange_and_wait(halocline_halo_exchange halo);

/* Starts the reverse of an exchange of set `set`, and returns: each halo cell is combined with the owned cell that it copies, in the
 * order of the domains' numbers, so that the result is the same to the bit on any number of ranks. `operation` is HALOCLINE_SUM, _MIN,
 * _MAX, _PRODUCT, _REPLACE, _AND, _OR or _XOR. `keep_halo` is 1 if halo cells stay as they are, 0 if they are cleared. A reduce is an
 * exchange in all other respects: it has an epoch and a wait, and all ranks begin exchanges and reduces of an object in one order.
 * Until the wait no cell may be read or written, owned cells included. `pending` may be NULL. Errors: those of
 * halocline_exchange; HALOCLINE_ERROR_ARGUMENT for an operation that the elements do not have, for fields that share owned cells, and for
 * GPU fields whose links are pulled or use NCCL, on this rank or on another. */
halocline_status halocline_reduce(halocline_halo_exchange halo, size_t set, int32_t operation, int32_t keep_halo,
                                  halocline_pending *pending);

/* Combines halo cells with the owned cells that they copy, as halocline_reduce does, and gives each halo cell the value that its owned
 * cell had just before that. The halo cells of an owned cell follow in the order of their domains' numbers. With counts in the halo and 0 in
 * the owned cells, HALOCLINE_SUM gives each halo cell the first of as many numbers that no other domain gets. Of several sets it takes the
 * first; halocline_alternative chooses another. Collective, blocks: for a program's start. What one rank refuses, all refuse. Errors: those of
 * halocline_exchange; HALOCLINE_ERROR_ARGUMENT for an operation that the elements do not have, and if ranks pass different ones. Of GPU
 * fields the call waits for all earlier work of the object's streams. */
halocline_status halocline_fetch_and_op(halocline_halo_exchange halo, int32_t operation);

/* Stores how many halo cells, of all ranks, copy each cell of field `field` of the first set: in C order, with the shape of its domain;
 * 0 for halo cells. `field` counts the host fields first, then the GPU fields, both in the order of the bind. `degree`
 * holds `capacity` numbers, or is NULL: then only their number is stored in `count`. */
halocline_status halocline_degree(halocline_halo_exchange halo, size_t field, uint32_t *degree, size_t capacity, size_t *count);

/* Begins an exchange of set `set` after all earlier work of `stream_count` streams; NULL: those of the bind. The host does not wait for
 * it: the call blocks only while dropped GPU memory is freed, or while CUDA's queue is full. Give every stream whose work writes owned
 * cells or still reads the halo. Up to 64 exchanges of an object may be in flight, one if it has host fields, which start at the call.
 * All ranks begin the exchanges of all objects of GPU fields in the same order. `pending` may be NULL. If the streams are being
 * captured into a CUDA graph, the exchange is captured: each launch exchanges what the fields hold then. Before the capture ends, capture
 * halocline_schedule_wait of each captured exchange, too; halocline_wait refuses it. Before a launch, let its stream wait for the exchanges
 * that were begun before. Exchanges have the same order on all ranks, launched or called. The graph holds the object and the memory
 * that the library has allocated; memory of the program stays valid as long as the graph. An exchange with host fields, in checked
 * mode or over NCCL cannot be captured. */
halocline_status halocline_schedule_exchange(halocline_halo_exchange halo, size_t set, const halocline_stream *streams,
                                             size_t stream_count, halocline_pending *pending);

/* Begins a reduce of set `set` after all earlier work of streams, as halocline_schedule_exchange begins an exchange: also in captures. The
 * other arguments are those of halocline_reduce. Errors: those of both. */
halocline_status halocline_schedule_reduce(halocline_halo_exchange halo, size_t set, int32_t operation, int32_t keep_halo,
                                           const halocline_stream *streams, size_t stream_count, halocline_pending *pending);

/* Blocks until the halo is filled and owned cells may be overwritten. Calling it again returns the same. After an error other than
 * HALOCLINE_ERROR_HANDLE, _ARGUMENT, _FORKED and _CALLBACK the object is unusable; halocline_reclaim says when its memory is free. */
halocline_status halocline_wait(halocline_pending pending);

/* Stores 1 if halocline_wait would return at once, else 0. Makes progress, never blocks. */
halocline_status halocline_is_ready(halocline_pending pending, int32_t *ready);

/* Makes all later work of the stream run after the halo is filled. Never waits for GPU fields; blocks for host fields. */
halocline_status halocline_schedule_wait(halocline_pending pending, halocline_stream stream);

/* Stores 1 once the latest exchange is complete or, after a failure, once no peer can access the fields any more; else 0. Never blocks. */
halocline_status halocline_reclaim(halocline_halo_exchange halo, int32_t *reclaimed);

/* Stores the exchange that a call has begun last, complete or not: for a thread that did not begin it, or began it without `pending`. {0}
 * before the first. */
halocline_status halocline_latest(halocline_halo_exchange halo, halocline_pending *pending);

/* Stores the number of sets of fields: that of the bind, 1 for a handle of halocline_alternative. */
halocline_status halocline_sets(halocline_halo_exchange halo, size_t *sets);

/* Stores a handle of set `set` alone. It shares links and epochs with `halo`: one exchange is in flight over both at a time. */
halocline_status halocline_alternative(halocline_halo_exchange halo, size_t set, halocline_halo_exchange *alternative);

/* Stores a handle of the same fields with the narrower halo `to`, for each set. It shares links and epochs with `halo`. All ranks pass the
 * same. Collective over the communicator of the bind. */
halocline_status halocline_narrowed(halocline_halo_exchange halo, const halocline_halo *to,
                                    halocline_halo_exchange *narrowed);

/* Stores a table of this rank's links: peer, path, bytes, and the reason against a faster path. `length` counts the closing zero. */
halocline_status halocline_explain(halocline_halo_exchange halo, char *table, size_t capacity, size_t *length);

/* Frees a bound exchange. An exchange in flight completes in the background; memory is held until then. Its pending exchanges become
 * invalid. */
halocline_status halocline_halo_exchange_free(halocline_halo_exchange *halo);

#ifdef __cplusplus
}
#endif

#endif
