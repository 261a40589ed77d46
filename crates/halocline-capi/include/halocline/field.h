/* Fields: memory with a layout. Streams of GPUs. Included by halocline.h, which has the rules that hold for all calls. */
#ifndef HALOCLINE_FIELD_H
#define HALOCLINE_FIELD_H

#include "core.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The type of an element. */
enum {
  /* One byte: 0 is false, everything else is true. */
  HALOCLINE_BOOL = 1,
  HALOCLINE_I8 = 2,
  HALOCLINE_U8 = 3,
  HALOCLINE_I16 = 4,
  HALOCLINE_U16 = 5,
  /* IEEE 754 half precision. */
  HALOCLINE_F16 = 6,
  HALOCLINE_BF16 = 7,
  HALOCLINE_I32 = 8,
  HALOCLINE_U32 = 9,
  HALOCLINE_F32 = 10,
  HALOCLINE_I64 = 11,
  HALOCLINE_U64 = 12,
  HALOCLINE_F64 = 13,
  /* Two HALOCLINE_F32. */
  HALOCLINE_C64 = 14,
  /* Two HALOCLINE_F64. */
  HALOCLINE_C128 = 15
};

/* An element of any other type of 1 to 256 bytes. */
#define HALOCLINE_OPAQUE(bytes) ((int32_t)(256 + (bytes)))

/* The layout of an array. The first dimensions are the axes of the pattern, unless `axes` names others. */
typedef struct halocline_layout {
  /* sizeof(halocline_layout). */
  size_t size;
  /* The number of elements of `extents` and `strides`. */
  size_t dimensions;
  /* Elements along each dimension. */
  const size_t *extents;
  /* Bytes from an element to the next along each dimension; may be negative. NULL: C order, the last dimension contiguous. */
  const ptrdiff_t *strides;
  /* The number of elements of `axes`; 0: the first dimensions. */
  size_t axis_count;
  /* The dimensions that are the axes of the pattern, in the order of the axes. */
  const size_t *axes;
  /* The number of elements of `origin`; 0: the halo width at the low side. */
  size_t origin_count;
  /* The index of the first owned cell along each axis of a regular pattern: a larger one than the halo leaves padding. */
  const size_t *origin;
  /* The meaning of the elements where their type does not state it. Fields with different names cannot exchange. May be NULL. */
  const char *name;
  /* HALOCLINE_F64, for example. */
  int32_t element;
  /* 1: the array may have more cells at the high sides than the domain and its halo. */
  int32_t padded;
} halocline_layout;

#define HALOCLINE_LAYOUT_INIT {sizeof(halocline_layout), 0, NULL, NULL, 0, NULL, 0, NULL, NULL, 0, 0}

/* Where memory lies. */
enum { HALOCLINE_HOST = 0, HALOCLINE_CUDA = 1 };

/* Memory of the program. */
typedef struct halocline_memory {
  /* sizeof(halocline_memory). */
  size_t size;
  /* The address of element (0, 0, ...). */
  void *base;
  /* Called once, with `context`, when the library does not access the memory any more; by any thread, also by one of the library, and
   * also within a call of the library. It may free the memory; it must not throw, and must not call this library. NULL: then the memory
   * must stay valid until every exchange of the field is complete or halocline_reclaim stores 1, and the field and its exchanges
   * are freed. Not called if halocline_field_create fails. */
  void (*release)(void *context);
  /* Passed to `release`. */
  void *context;
  /* HALOCLINE_HOST or HALOCLINE_CUDA. */
  int32_t space;
  /* The number of the GPU, as CUDA_VISIBLE_DEVICES leaves them; for HALOCLINE_CUDA only. */
  int32_t device;
} halocline_memory;

#define HALOCLINE_MEMORY_INIT {sizeof(halocline_memory), NULL, NULL, NULL, HALOCLINE_HOST, 0}

/* Stores a field in memory of the program. From the begin of an exchange until its wait has returned HALOCLINE_OK, or
 * halocline_reclaim has stored 1, only the exchange may write owned cells or access halo cells. For GPU memory streams order this
 * (halocline_schedule_exchange). Halo cells may receive any bytes. Fields of the same memory are made with halocline_field_view, so that
 * their exchanges exclude each other. */
halocline_status halocline_field_create(const halocline_memory *memory, const halocline_layout *layout,
                                        halocline_field *field);

/* Stores a field in new zeroed memory of the host that as many ranks as possible access directly. The memory is freed with the field and
 * the exchanges that it is bound to. The rules of access are those of halocline_field_create. */
halocline_status halocline_field_allocate(halocline_comm comm, const halocline_layout *layout, halocline_field *field);

/* As halocline_field_allocate, in new zeroed memory of GPU `device`. Blocks until it is zeroed. All work on the memory must be complete when
 * the last of the field and the exchanges that it is bound to is freed. */
halocline_status halocline_field_allocate_cuda(int32_t device, const halocline_layout *layout, halocline_field *field);

/* Stores another field in the memory of `field`, with element (0, 0, ...) at `base`: a part of it, or all of it with another
 * layout. Refused if the layout leaves the memory. */
halocline_status halocline_field_view(halocline_field field, void *base, const halocline_layout *layout,
                                      halocline_field *view);

/* Stores the same field, assigned to domain `number`: needed where a rank has several domains. */
halocline_status halocline_field_on_domain(halocline_field field, uint64_t number, halocline_field *assigned);

/* Stores the address of element (0, 0, ...): of host memory, or of memory of the GPU. Valid until the field and the exchanges that
 * it is bound to are freed. */
halocline_status halocline_field_base(halocline_field field, void **base);

/* Copies `bytes` bytes of host memory into a field in memory of a GPU, after all earlier work of the stream; blocks until they are there. So
 * a program needs no CUDA to fill a field. `source` has the layout of the field, in the order of addresses: `bytes` is the distance from
 * the lowest byte of an element to the end of the highest, gaps included. Errors: HALOCLINE_ERROR_ARGUMENT for another number of
 * bytes, a stream of another GPU, or a field in host memory, whose elements lie at halocline_field_base; HALOCLINE_ERROR_BUSY while an
 * exchange of the field is in flight that the stream does not wait for (halocline_schedule_wait), or while another thread copies. */
halocline_status halocline_field_write(halocline_field field, halocline_stream stream, const void *source, size_t bytes);

/* Copies a field in memory of a GPU to host memory: the reverse of halocline_field_write, with the same errors. Several threads may read a
 * field at the same time. */
halocline_status halocline_field_read(halocline_field field, halocline_stream stream, void *target, size_t bytes);

/* Stores extents, byte strides, number of dimensions and element type of a field. `extents` and `strides` hold `capacity` elements
 * each; each pointer but `dimensions` may be NULL. */
halocline_status halocline_field_describe(halocline_field field, size_t *extents, ptrdiff_t *strides, size_t capacity,
                                          size_t *dimensions, int32_t *element);

/* Frees a field. Memory that an exchange needs is held until it is complete. */
halocline_status halocline_field_free(halocline_field *field);

/* Stores a stream of GPU `device`. `cuda_stream` is a cudaStream_t or CUstream, NULL for the default stream; destroy it after the
 * handle is freed and no exchange uses it. May block for a second, the first time: it initialises CUDA. */
halocline_status halocline_stream_cuda(int32_t device, void *cuda_stream, halocline_stream *stream);

/* Frees the handle, not the stream. */
halocline_status halocline_stream_free(halocline_stream *stream);

#ifdef __cplusplus
}
#endif

#endif
