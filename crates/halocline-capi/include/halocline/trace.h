/* Traces: a timeline of all ranks. Included by halocline.h, which has the rules that hold for all calls. */
#ifndef HALOCLINE_TRACE_H
#define HALOCLINE_TRACE_H

#include "core.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A trace that is being recorded. */
typedef struct halocline_trace {
  uint64_t id;
} halocline_trace;

/* Starts to record what each rank does: exchanges, packing, copies and waits, in any thread. A rank has one trace at a time: until it is
 * ended or freed, another one is HALOCLINE_ERROR_BUSY. `path` is the file that rank 0 writes at the end; it may differ on the other
 * ranks. If rank 0 cannot write it, no trace begins: rank 0 gets HALOCLINE_ERROR_ARGUMENT, the others HALOCLINE_ERROR_ELSEWHERE.
 * Collective. */
halocline_status halocline_trace_begin(halocline_comm comm, const char *path, halocline_trace *trace);

/* Ends the trace. Rank 0 writes the events of all ranks to its file, in the trace event format that Perfetto (ui.perfetto.dev) and
 * chrome://tracing read. A rank records at most 131072 events; the trace ends on all ranks where the first rank has reached that
 * number, and `events_left_out` in the file says how many are missing. If the file cannot be written, rank 0 gets
 * HALOCLINE_ERROR_ARGUMENT. Collective over the communicator of the begin. */
halocline_status halocline_trace_end(halocline_trace trace);

/* Frees a trace. One that was not ended is dropped without a file; that is local, and the end fails on the other ranks once this rank
 * has left. */
halocline_status halocline_trace_free(halocline_trace *trace);

#ifdef __cplusplus
}
#endif

#endif
