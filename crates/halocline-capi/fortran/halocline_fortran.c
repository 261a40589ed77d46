/* Calls that take Fortran arrays. Compiled with the C compiler that belongs to the Fortran compiler of the program: it has the layout of
 * the descriptors of arrays (Fortran 2018, 18.5). */
#include <halocline.h>

#include <ISO_Fortran_binding.h>
#include <stdlib.h>
#include <string.h>

/* `reserved` of a packet that was given an array of Fortran without a size or with gaps. */
enum { HALOCLINE_PACKET_UNUSABLE = 0x464f5254 };

/* The most dimensions of a Fortran array; compilers may allow more. */
enum { MOST_DIMENSIONS = 15 };

/* halocline_array_shape of the module halocline_programs. */
typedef struct array_shape {
  ptrdiff_t extents[MOST_DIMENSIONS];
  ptrdiff_t strides[MOST_DIMENSIONS];
} array_shape;

halocline_status halocline_fortran_field(const CFI_cdesc_t *array, halocline_field *field);
halocline_status halocline_fortran_field_along(const CFI_cdesc_t *array, const int *dimensions, int count,
                                               halocline_field *field);
halocline_status halocline_fortran_broadcast(halocline_comm comm, int root, const CFI_cdesc_t *array);
halocline_status halocline_fortran_all_gather(halocline_comm comm, const CFI_cdesc_t *array, const CFI_cdesc_t *gathered);
halocline_status halocline_fortran_all_reduce(halocline_comm comm, const CFI_cdesc_t *array, int32_t operation);
halocline_status halocline_fortran_pack(halocline_halo_exchange halo, size_t peer, const CFI_cdesc_t *message);
halocline_status halocline_fortran_unpack(halocline_halo_exchange halo, size_t peer, const CFI_cdesc_t *message);
halocline_status halocline_fortran_write(halocline_field field, halocline_stream stream, const CFI_cdesc_t *array);
halocline_status halocline_fortran_read(halocline_field field, halocline_stream stream, const CFI_cdesc_t *array);
halocline_packet halocline_fortran_packet(const CFI_cdesc_t *metadata, const CFI_cdesc_t *payload);
halocline_argument halocline_fortran_argument(const CFI_cdesc_t *array, array_shape *shape);

/* The element type of an array; 0 if its elements are no plain bytes. */
static int32_t element_of(const CFI_cdesc_t *array) {
  static const int32_t whole[9] = {[1] = HALOCLINE_I8, [2] = HALOCLINE_I16, [4] = HALOCLINE_I32, [8] = HALOCLINE_I64};
  switch (array->type) {
    case CFI_type_float:
      return HALOCLINE_F32;
    case CFI_type_double:
      return HALOCLINE_F64;
    case CFI_type_float_Complex:
      return HALOCLINE_C64;
    case CFI_type_double_Complex:
      return HALOCLINE_C128;
    case CFI_type_Bool:
      return HALOCLINE_BOOL;
    case CFI_type_int8_t:
    case CFI_type_int16_t:
    case CFI_type_int32_t:
    case CFI_type_int64_t:
      return whole[array->elem_len];
    default:
      return array->elem_len <= 256 ? HALOCLINE_OPAQUE(array->elem_len) : 0;
  }
}

/* Why the memory of an array cannot be used; NULL if it can. */
static const char *unusable(const CFI_cdesc_t *array) {
  if (array->base_addr == NULL) return "the array is not allocated or associated; allocate it before the call";
  if (array->rank > 0 && array->dim[array->rank - 1].extent < 0) {
    return "the array has an assumed size, which the call cannot know; pass a section with bounds, such as a(1:n)";
  }
  return NULL;
}

/* A field of an array; without `axes` its first dimensions are the axes of the pattern. */
static halocline_status field_of(const CFI_cdesc_t *array, const size_t *axes, size_t axis_count, halocline_field *field) {
  if (unusable(array) != NULL) return halocline_refuse(unusable(array));
  size_t extents[CFI_MAX_RANK];
  ptrdiff_t strides[CFI_MAX_RANK];
  for (int dimension = 0; dimension < array->rank; dimension++) {
    extents[dimension] = (size_t)array->dim[dimension].extent;
    strides[dimension] = array->dim[dimension].sm;
  }
  halocline_layout layout = HALOCLINE_LAYOUT_INIT;
  layout.dimensions = (size_t)array->rank;
  layout.extents = extents;
  layout.strides = strides;
  layout.axes = axes;
  layout.axis_count = axis_count;
  layout.element = element_of(array);
  halocline_memory memory = HALOCLINE_MEMORY_INIT;
  memory.base = array->base_addr;
  return halocline_field_create(&memory, &layout, field);
}

halocline_status halocline_fortran_field(const CFI_cdesc_t *array, halocline_field *field) {
  return field_of(array, NULL, 0, field);
}

/* `dimensions` count from 1. */
halocline_status halocline_fortran_field_along(const CFI_cdesc_t *array, const int *dimensions, int count,
                                               halocline_field *field) {
  size_t axes[CFI_MAX_RANK];
  if (count < 1 || count > array->rank) {
    return halocline_refuse("count is not the number of dimensions that are axes; name at least one, and at most all of the array");
  }
  for (int axis = 0; axis < count; axis++) {
    if (dimensions[axis] < 1 || dimensions[axis] > array->rank) {
      return halocline_refuse("the array lacks a dimension that is named as an axis; dimensions count from 1");
    }
    axes[axis] = (size_t)dimensions[axis] - 1;
  }
  return field_of(array, axes, (size_t)count, field);
}

/* The bytes of the elements of an array that has a size. */
static size_t size_of(const CFI_cdesc_t *array) {
  size_t bytes = array->elem_len;
  for (int dimension = 0; dimension < array->rank; dimension++) bytes *= (size_t)array->dim[dimension].extent;
  return bytes;
}

/* Whether the elements of an array that has a size lie in memory without gaps, in their order. */
static int is_contiguous(const CFI_cdesc_t *array) {
  CFI_index_t next = (CFI_index_t)array->elem_len;
  for (int dimension = 0; dimension < array->rank; dimension++) {
    const CFI_dim_t *of = &array->dim[dimension];
    if (of->extent > 1 && of->sm != next) return 0;
    next *= of->extent;
  }
  return 1;
}

/* The elements of an array, in their order, for one call. */
typedef struct elements {
  const CFI_cdesc_t *array;
  /* The memory of the array, or a copy of it. NULL, which the library refuses, if it cannot be used. */
  char *bytes;
  size_t count;
  /* Why it cannot be used; NULL if it can. */
  const char *refused;
} elements;

/* Copies the elements of an array to a buffer that has them without gaps, or back. */
static void copy(const CFI_cdesc_t *array, char *buffer, int back) {
  CFI_index_t index[CFI_MAX_RANK] = {0};
  for (size_t left = size_of(array); left > 0; left -= array->elem_len) {
    char *element = array->base_addr;
    for (int dimension = 0; dimension < array->rank; dimension++) element += index[dimension] * array->dim[dimension].sm;
    memcpy(back ? element : buffer, back ? buffer : element, array->elem_len);
    buffer += array->elem_len;
    for (int dimension = 0; dimension < array->rank; dimension++) {
      if (++index[dimension] < array->dim[dimension].extent) break;
      index[dimension] = 0;
    }
  }
}

static elements begin(const CFI_cdesc_t *array) {
  /* Refused with the other ranks, which wait for this one. */
  if (unusable(array) != NULL) return (elements){array, NULL, array->elem_len > 0 ? array->elem_len : 1, unusable(array)};
  elements begun = {array, array->base_addr, size_of(array), NULL};
  if (begun.count > 0 && !is_contiguous(array)) {
    begun.bytes = malloc(begun.count);
    if (begun.bytes == NULL) {
      begun.refused = "there is no memory for a copy of the array, which is not contiguous; pass a contiguous one";
    } else {
      copy(array, begun.bytes, 0);
    }
  }
  return begun;
}

/* The status of a call, with the reason why its array was refused. */
static halocline_status told(halocline_status status, const char *refused) {
  return status == HALOCLINE_ERROR_ARGUMENT && refused != NULL ? halocline_refuse(refused) : status;
}

/* Ends the use of the elements; `written`: the call has stored new ones. */
static void end(elements begun, int written) {
  if (begun.bytes == NULL || begun.bytes == (char *)begun.array->base_addr) return;
  if (written) copy(begun.array, begun.bytes, 1);
  free(begun.bytes);
}

halocline_status halocline_fortran_broadcast(halocline_comm comm, int root, const CFI_cdesc_t *array) {
  elements data = begin(array);
  halocline_status status = halocline_comm_broadcast(comm, (size_t)root, data.bytes, data.count);
  end(data, status == HALOCLINE_OK);
  return told(status, data.refused);
}

halocline_status halocline_fortran_all_gather(halocline_comm comm, const CFI_cdesc_t *array, const CFI_cdesc_t *gathered) {
  size_t ranks;
  halocline_status status = halocline_comm_size(comm, &ranks);
  if (status != HALOCLINE_OK) return status;
  elements data = begin(array), all = begin(gathered);
  const char *refused = data.refused != NULL ? data.refused : all.refused;
  /* Every rank takes part in the call, also one whose array has another size. */
  if (refused == NULL && all.count != data.count * ranks) {
    refused = "gathered has not the size of data times the number of ranks; give it that size";
  }
  status = halocline_comm_all_gather(comm, data.bytes, data.count, refused == NULL ? all.bytes : NULL);
  end(all, status == HALOCLINE_OK);
  end(data, 0);
  return told(status, refused);
}

halocline_status halocline_fortran_all_reduce(halocline_comm comm, const CFI_cdesc_t *array, int32_t operation) {
  elements values = begin(array);
  size_t count = array->elem_len > 0 ? values.count / array->elem_len : 0;
  halocline_status status = halocline_comm_all_reduce(comm, values.bytes, count, element_of(array), operation);
  end(values, status == HALOCLINE_OK);
  return told(status, values.refused);
}

halocline_status halocline_fortran_pack(halocline_halo_exchange halo, size_t peer, const CFI_cdesc_t *message) {
  elements packed = begin(message);
  halocline_status status = halocline_pack(halo, peer, packed.bytes, packed.count);
  end(packed, status == HALOCLINE_OK);
  return told(status, packed.refused);
}

halocline_status halocline_fortran_unpack(halocline_halo_exchange halo, size_t peer, const CFI_cdesc_t *message) {
  elements packed = begin(message);
  halocline_status status = halocline_unpack(halo, peer, packed.bytes, packed.count);
  end(packed, 0);
  return told(status, packed.refused);
}

halocline_status halocline_fortran_write(halocline_field field, halocline_stream stream, const CFI_cdesc_t *array) {
  elements written = begin(array);
  halocline_status status = halocline_field_write(field, stream, written.bytes, written.count);
  end(written, 0);
  return told(status, written.refused);
}

halocline_status halocline_fortran_read(halocline_field field, halocline_stream stream, const CFI_cdesc_t *array) {
  elements read = begin(array);
  halocline_status status = halocline_field_read(field, stream, read.bytes, read.count);
  end(read, status == HALOCLINE_OK);
  return told(status, read.refused);
}

/* Stores the memory of an array, or marks the packet as one that the library refuses. */
static void store(const CFI_cdesc_t *array, halocline_packet *packet, const void **memory, size_t *bytes) {
  if (unusable(array) != NULL || (!is_contiguous(array) && size_of(array) != 0)) {
    packet->reserved = HALOCLINE_PACKET_UNUSABLE;
  } else {
    *memory = array->base_addr;
    *bytes = size_of(array);
  }
}

halocline_packet halocline_fortran_packet(const CFI_cdesc_t *metadata, const CFI_cdesc_t *payload) {
  halocline_packet packet = HALOCLINE_PACKET_INIT;
  if (metadata != NULL) store(metadata, &packet, &packet.metadata, &packet.metadata_bytes);
  if (payload != NULL) {
    store(payload, &packet, &packet.payload, &packet.payload_bytes);
    packet.has_payload = 1;
  }
  return packet;
}

/* An array without a size, or with more dimensions than the standard has, gets elements of type 0, which the library refuses. */
halocline_argument halocline_fortran_argument(const CFI_cdesc_t *array, array_shape *shape) {
  halocline_argument argument = HALOCLINE_ARGUMENT_INIT;
  argument.kind = HALOCLINE_ARGUMENT_ARRAY;
  argument.base = array->base_addr;
  if (unusable(array) != NULL || array->rank > MOST_DIMENSIONS) return argument;
  for (int dimension = 0; dimension < array->rank; dimension++) {
    shape->extents[dimension] = array->dim[dimension].extent;
    shape->strides[dimension] = array->dim[dimension].sm;
  }
  argument.dimensions = (size_t)array->rank;
  argument.extents = shape->extents;
  argument.strides = shape->strides;
  argument.element = element_of(array);
  return argument;
}
