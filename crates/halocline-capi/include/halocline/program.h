/* Compiled programs. Included by halocline.h, which has the rules that hold for all calls.
 *
 * A program is a function in a shared library: of C, or what DaCe and GT4Py compile. Its manifest, a JSON file beside the library, says
 * which arguments it takes. Every call checks them: their number, types, shapes and places, and that the arrays have the indices that the
 * manifest says the program accesses. */
#ifndef HALOCLINE_PROGRAM_H
#define HALOCLINE_PROGRAM_H

#include "core.h"
#include "field.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A compiled program. Threads may call it at the same time. */
typedef struct halocline_program {
  uint64_t id;
} halocline_program;

/* A call whose arguments were checked. One thread at a time may use it. */
typedef struct halocline_prepared {
  uint64_t id;
} halocline_prepared;

/* What is given for an argument. */
enum {
  /* Nothing, for an argument that follows from the others. */
  HALOCLINE_ARGUMENT_ABSENT = 0,
  /* An array: `base` and the fields after it. */
  HALOCLINE_ARGUMENT_ARRAY = 1,
  /* `integer`, also for a boolean: 0 or 1. */
  HALOCLINE_ARGUMENT_INTEGER = 2,
  /* The bits of `integer` as a uint64_t. */
  HALOCLINE_ARGUMENT_UNSIGNED = 3,
  /* `real`. */
  HALOCLINE_ARGUMENT_REAL = 4
};

/* One argument of a call. Initialise it with HALOCLINE_ARGUMENT_INIT. */
typedef struct halocline_argument {
  /* The address of the element whose indices are all the first. */
  void *base;
  /* The number of dimensions, and of elements of the lists below. */
  size_t dimensions;
  /* The number of indices in each dimension. */
  const ptrdiff_t *extents;
  /* The distance of neighbours in each dimension, in bytes; may be negative. NULL: C order. */
  const ptrdiff_t *strides;
  /* The first index of each dimension. NULL: 0. */
  const ptrdiff_t *origin;
  /* The number for HALOCLINE_ARGUMENT_INTEGER and _UNSIGNED. */
  int64_t integer;
  /* The number for HALOCLINE_ARGUMENT_REAL. */
  double real;
  /* HALOCLINE_ARGUMENT_ARRAY or another kind. */
  int32_t kind;
  /* The type of an array's elements, such as HALOCLINE_F64. */
  int32_t element;
  /* Where an array is: HALOCLINE_HOST or HALOCLINE_CUDA. */
  int32_t space;
  /* The number of the GPU. */
  int32_t device;
  /* 1: the program must not write the array. */
  int32_t read_only;
  /* 0. */
  int32_t reserved;
} halocline_argument;

#define HALOCLINE_ARGUMENT_INIT {NULL, 0, NULL, NULL, NULL, 0, 0.0, 0, 0, 0, 0, 0, 0}

/* Loads a library and its manifest, and stores the program. `manifest` is the text of a manifest; NULL: the file beside the library
 * (libheat.so.json for libheat.so). The library stays open until the process ends. The manifest is believed: a library that takes other
 * arguments than it says crashes. An exception that leaves the program ends the process. Errors: HALOCLINE_ERROR_PROGRAM. */
halocline_status halocline_program_load(const char *library, const char *manifest, halocline_program *program);

/* Stores the position of the argument of that name in the list of a call. */
halocline_status halocline_program_position(halocline_program program, const char *argument, size_t *position);

/* Checks `count` arguments, in the order of the manifest, and calls the program. Without a stream (`{0}`) it returns when the
 * program does; a program of GPUs needs one. With a stream the program runs after everything that the stream was given before, and
 * the call does not wait for it: the arrays must stay valid, and nothing else may access them outside of the stream's order, until
 * the stream has passed the call. Errors: HALOCLINE_ERROR_ARGUMENT for an argument, before the program is entered;
 * HALOCLINE_ERROR_PROGRAM if the program fails. */
halocline_status halocline_program_call(halocline_program program, const halocline_argument *arguments, size_t count,
                                        halocline_stream stream);

/* Checks the arguments once, for many calls, and stores the prepared call. The arrays must stay valid until it is freed. */
halocline_status halocline_program_prepare(halocline_program program, const halocline_argument *arguments, size_t count,
                                           halocline_prepared *prepared);

/* Changes the number at a position for the calls that follow. If it is refused, they keep the one before. */
halocline_status halocline_prepared_set(halocline_prepared prepared, size_t position, const halocline_argument *number);

/* Calls the program, as halocline_program_call does. Errors: HALOCLINE_ERROR_BUSY while another thread uses the prepared call. */
halocline_status halocline_prepared_call(halocline_prepared prepared, halocline_stream stream);

/* Frees a program. Its prepared calls keep what they need. */
halocline_status halocline_program_free(halocline_program *program);

/* Frees a prepared call. */
halocline_status halocline_prepared_free(halocline_prepared *prepared);

#ifdef __cplusplus
}
#endif

#endif
