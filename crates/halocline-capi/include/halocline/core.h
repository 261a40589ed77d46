/* Versions, statuses, errors, handles. Included by halocline.h, which has the rules that hold for all calls. */
#ifndef HALOCLINE_CORE_H
#define HALOCLINE_CORE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the interface in this header: from the first release on it grows with every addition, and functions are never removed
 * or changed under one version of their symbols (HALOCLINE_0). There was no release yet. */
#define HALOCLINE_ABI_VERSION 1

/* The version of the interface that the loaded library has. It serves programs compiled with this one or a lower one. */
uint32_t halocline_abi_version(void);

/* The version of the loaded library, such as "0.1.0". Valid as long as the process. */
const char *halocline_version(void);

/* HALOCLINE_OK or the kind of an error. */
typedef int32_t halocline_status;

enum {
  /* The call has succeeded. */
  HALOCLINE_OK = 0,
  /* An argument is refused. Nothing has changed. */
  HALOCLINE_ERROR_ARGUMENT = 1,
  /* A handle is null, freed, of another type, or made up. Nothing has changed. */
  HALOCLINE_ERROR_HANDLE = 2,
  /* An exchange is in flight that has to complete first. Nothing has changed: wait, then call again. */
  HALOCLINE_ERROR_BUSY = 3,
  /* A rank died or left, ranks make different calls, or the transport failed. */
  HALOCLINE_ERROR_COMMUNICATION = 4,
  /* A deadline has passed. An exchange whose deadline has passed is unusable: free it and bind again. */
  HALOCLINE_ERROR_DEADLINE = 5,
  /* MPI cannot be used, failed, or was finalised. */
  HALOCLINE_ERROR_MPI = 6,
  /* A GPU cannot be used or failed, or memory is not where it is said to be. */
  HALOCLINE_ERROR_DEVICE = 7,
  /* The exchange has failed here and at all ranks that it connects. It is unusable: free it and bind again. */
  HALOCLINE_ERROR_FAILED = 8,
  /* Another rank refused its arguments in this collective call. Nothing has changed. */
  HALOCLINE_ERROR_ELSEWHERE = 9,
  /* Memory of the host or of a GPU, or another resource, is exhausted. */
  HALOCLINE_ERROR_MEMORY = 10,
  /* The process is a forked child of a process that uses the library. */
  HALOCLINE_ERROR_FORKED = 11,
  /* A callback made the call. */
  HALOCLINE_ERROR_CALLBACK = 12,
  /* A bug of the library. */
  HALOCLINE_ERROR_INTERNAL = 13,
  /* The library or the manifest of a compiled program cannot be used, or the program has failed: its results are not valid. */
  HALOCLINE_ERROR_PROGRAM = 14
};

/* The message of the last call of this thread that failed; "" before the first. It says what happened, where, and what to do.
 * Valid until the next call of this thread that fails, or until the thread ends. Calls that succeed keep it. */
const char *halocline_error_message(void);

/* Makes `message` the message of this thread's last call that failed, and returns HALOCLINE_ERROR_ARGUMENT. For layers over this interface
 * that refuse an argument themselves. */
halocline_status halocline_refuse(const char *message);

/* The name of a status in this header, such as "HALOCLINE_ERROR_BUSY"; NULL for a number that is none. Valid as long as the process. */
const char *halocline_status_name(halocline_status status);

/* For options that an environment variable or the library decides by default. */
enum { HALOCLINE_DEFAULT = 0, HALOCLINE_ON = 1, HALOCLINE_OFF = 2 };

/* A group of ranks. */
typedef struct halocline_comm {
  uint64_t id;
} halocline_comm;

/* A regular grid cut into domains. */
typedef struct halocline_decomposition {
  uint64_t id;
} halocline_decomposition;

/* Which cells each domain sends to and receives from the others. */
typedef struct halocline_pattern {
  uint64_t id;
} halocline_pattern;

/* Memory with a layout. */
typedef struct halocline_field {
  uint64_t id;
} halocline_field;

/* Fields bound to patterns. */
typedef struct halocline_halo_exchange {
  uint64_t id;
} halocline_halo_exchange;

/* A stream of a GPU. */
typedef struct halocline_stream {
  uint64_t id;
} halocline_stream;

/* One exchange of a bound object. A value without memory of its own: there is nothing to free. */
typedef struct halocline_pending {
  /* The handle of the object that began it. */
  uint64_t exchange;
  /* Counts the exchanges of the object, from 1. */
  uint64_t epoch;
} halocline_pending;

#ifdef __cplusplus
}
#endif

#endif
