/* Traces: a timeline of all ranks. Included by halocline.h, which has the rules that hold for all calls. */
#ifndef HALOCLINE_TRACE_H
#define HALOCLINE_TRACE_H

#include "exchange.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A trace that is being recorded. */
typedef struct halocline_trace {
  uint64_t id;
} halocline_trace;

/* Starts to record what each rank does: exchanges, packing, copies and waits, in any thread. A rank has one trace at a time: until it is
 * ended or freed, another one is HALOCLINE_ERROR_BUSY. Events are recorded by rank, so `comm` has all ranks of the job. `path` is
 * the file that rank 0 writes at the end; it may differ on the other ranks. If rank 0 cannot write it, no trace begins: rank 0 gets HALOCLINE_ERROR_ARGUMENT, the others HALOCLINE_ERROR_ELSEWHERE.
 * Collective. */
halocline_status halocline_trace_begin(halocline_comm comm, const char *path, halocline_trace *trace);

/* Ends the trace. Rank 0 writes the events of all ranks to its file, in the trace event format that Perfetto (ui.perfetto.dev) and
 * chrome://tracing read. A rank records at most 131072 events; the trace ends on all ranks where the first rank has reached that
 * number, and `events_left_out` in the file says how many are missing. If the file cannot be written, rank 0 gets
 * HALOCLINE_ERROR_ARGUMENT; the trace is over all the same. Collective over the communicator of the begin. */
halocline_status halocline_trace_end(halocline_trace trace);

/* Frees a trace. One that was not ended is dropped without a file; that is local, and the end fails on the other ranks once this rank
 * has left. The memory for the moments of a GPU is then never freed, since a stream may still write it. */
halocline_status halocline_trace_free(halocline_trace *trace);

/* The record of a stream of a GPU in a trace. */
typedef struct halocline_device_trace {
  uint64_t id;
} halocline_device_trace;

/* The moments of a round. A round is an exchange and the work beside and after it. */
enum {
  /* The data to send are ready, and work that needs no halo may start. */
  HALOCLINE_MOMENT_BEGUN = 0,
  /* The work that needs no halo is done. */
  HALOCLINE_MOMENT_INTERIOR = 1,
  /* The stream is ordered after the exchange. */
  HALOCLINE_MOMENT_WAITED = 2,
  /* All work of the round is done. Ends the round. */
  HALOCLINE_MOMENT_DONE = 3,
};

/* Records `rounds` rounds of a stream by the clock of its GPU; more than 32768 count as 32768. Later rounds are not recorded, and the
 * whole trace ends where the first of them begins. The program marks the moments of each round on the stream. Blocks: it compiles a
 * kernel of one thread and compares the clocks, which an exchange in flight on the GPU may hold up. So call it while none is, and where
 * ranks share a GPU call halocline_comm_barrier before the next one. halocline_trace_end waits for the stream. */
halocline_status halocline_trace_on_stream(halocline_trace trace, halocline_stream stream, size_t rounds,
                                           halocline_device_trace *device_trace);

/* Marks a moment of this round, HALOCLINE_MOMENT_..., at the position that the stream has reached. Does not wait for the GPU. After the
 * end of the trace it is HALOCLINE_ERROR_ARGUMENT. */
halocline_status halocline_device_trace_stamp(halocline_device_trace device_trace, int32_t moment);

/* Also records when this round's exchange ends, on a stream of the library. Call it after the exchange was scheduled. */
halocline_status halocline_device_trace_observe(halocline_device_trace device_trace, halocline_pending pending);

/* Frees the handle. The trace keeps what was recorded. */
halocline_status halocline_device_trace_free(halocline_device_trace *device_trace);

#ifdef __cplusplus
}
#endif

#endif
