/* Fields of Fortran arrays. Compiled with the C compiler that belongs to the Fortran compiler of the program: it has the layout of the
 * descriptors of arrays (Fortran 2018, 18.5). */
#include <halocline.h>

#include <ISO_Fortran_binding.h>

halocline_status halocline_fortran_field(const CFI_cdesc_t *array, halocline_field *field);
halocline_status halocline_fortran_field_along(const CFI_cdesc_t *array, const int *dimensions, int count,
                                               halocline_field *field);

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
    case CFI_type_int8_t:
    case CFI_type_int16_t:
    case CFI_type_int32_t:
    case CFI_type_int64_t:
      return whole[array->elem_len];
    default:
      return array->elem_len <= 256 ? HALOCLINE_OPAQUE(array->elem_len) : 0;
  }
}

/* A field of an array; without `axes` its first dimensions are the axes of the pattern. */
static halocline_status field_of(const CFI_cdesc_t *array, const size_t *axes, size_t axis_count, halocline_field *field) {
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

/* `dimensions` count from 1; one that the array lacks is refused with the layout. */
halocline_status halocline_fortran_field_along(const CFI_cdesc_t *array, const int *dimensions, int count,
                                               halocline_field *field) {
  size_t axes[CFI_MAX_RANK];
  size_t axis_count = count < 0 ? 0 : count > CFI_MAX_RANK ? CFI_MAX_RANK : (size_t)count;
  for (size_t axis = 0; axis < axis_count; axis++) axes[axis] = (size_t)dimensions[axis] - 1;
  return field_of(array, axes, axis_count, field);
}
