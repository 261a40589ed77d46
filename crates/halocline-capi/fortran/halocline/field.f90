! Fields and streams: the functions of halocline/field.h, which has their contracts. Included by halocline.f90.
module halocline_fields
  use halocline_types
  implicit none
  public

  interface
    function halocline_field_create(memory, layout, field) bind(c) result(status)
      import
      type(halocline_memory), intent(in) :: memory
      type(halocline_layout), intent(in) :: layout
      type(halocline_field), intent(out) :: field
      integer(c_int32_t) :: status
    end function

    ! A field of a Fortran array of any type and rank. The array has the attribute target, is not copied for the call (pass it
    ! whole, or a section of one that is a target), and stays allocated until the field and its exchanges are freed.
    function halocline_field_of(array, field) bind(c, name="halocline_fortran_field") result(status)
      import
      type(*), dimension(..), target, intent(in) :: array
      type(halocline_field), intent(out) :: field
      integer(c_int32_t) :: status
    end function

    ! The same, with the dimensions of `array` that are the axes of the pattern, counted from 1: [2] for levels first, cells last.
    function halocline_field_along(array, dimensions, count, field) bind(c, name="halocline_fortran_field_along") &
      result(status)
      import
      type(*), dimension(..), target, intent(in) :: array
      integer(c_int), intent(in) :: dimensions(*)
      integer(c_int), value :: count
      type(halocline_field), intent(out) :: field
      integer(c_int32_t) :: status
    end function

    function halocline_field_allocate(comm, layout, field) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      type(halocline_layout), intent(in) :: layout
      type(halocline_field), intent(out) :: field
      integer(c_int32_t) :: status
    end function

    function halocline_field_allocate_cuda(device, layout, field) bind(c) result(status)
      import
      integer(c_int32_t), value :: device
      type(halocline_layout), intent(in) :: layout
      type(halocline_field), intent(out) :: field
      integer(c_int32_t) :: status
    end function

    function halocline_field_view(field, base, layout, view) bind(c) result(status)
      import
      type(halocline_field), value :: field
      type(c_ptr), value :: base
      type(halocline_layout), intent(in) :: layout
      type(halocline_field), intent(out) :: view
      integer(c_int32_t) :: status
    end function

    function halocline_field_on_domain(field, number, assigned) bind(c) result(status)
      import
      type(halocline_field), value :: field
      integer(c_int64_t), value :: number
      type(halocline_field), intent(out) :: assigned
      integer(c_int32_t) :: status
    end function

    function halocline_field_base(field, base) bind(c) result(status)
      import
      type(halocline_field), value :: field
      type(c_ptr), intent(out) :: base
      integer(c_int32_t) :: status
    end function

    ! `source` is the c_loc of a contiguous array; halocline_write_field takes the array itself.
    function halocline_field_write(field, stream, source, bytes) bind(c) result(status)
      import
      type(halocline_field), value :: field
      type(halocline_stream), value :: stream
      type(c_ptr), value :: source
      integer(c_size_t), value :: bytes
      integer(c_int32_t) :: status
    end function

    ! Copies an array of any type and rank, in Fortran order, into a field in memory of a GPU. The first dimension of the field is
    ! contiguous then, and it has no gaps.
    function halocline_write_field(field, stream, array) bind(c, name="halocline_fortran_write") result(status)
      import
      type(halocline_field), value :: field
      type(halocline_stream), value :: stream
      type(*), dimension(..), target, intent(in) :: array
      integer(c_int32_t) :: status
    end function

    function halocline_field_read(field, stream, target, bytes) bind(c) result(status)
      import
      type(halocline_field), value :: field
      type(halocline_stream), value :: stream
      type(c_ptr), value :: target
      integer(c_size_t), value :: bytes
      integer(c_int32_t) :: status
    end function

    ! The reverse of halocline_write_field.
    function halocline_read_field(field, stream, array) bind(c, name="halocline_fortran_read") result(status)
      import
      type(halocline_field), value :: field
      type(halocline_stream), value :: stream
      type(*), dimension(..), target, intent(inout) :: array
      integer(c_int32_t) :: status
    end function

    function halocline_field_describe(field, extents, strides, capacity, dimensions, element) bind(c) result(status)
      import
      type(halocline_field), value :: field
      integer(c_size_t), intent(inout), optional :: extents(*)
      integer(c_ptrdiff_t), intent(inout), optional :: strides(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: dimensions
      integer(c_int32_t), intent(out), optional :: element
      integer(c_int32_t) :: status
    end function

    function halocline_field_free(handle) bind(c) result(status)
      import
      type(halocline_field), intent(inout) :: handle
      integer(c_int32_t) :: status
    end function

    function halocline_stream_cuda(device, cuda_stream, stream) bind(c) result(status)
      import
      integer(c_int32_t), value :: device
      type(c_ptr), value :: cuda_stream
      type(halocline_stream), intent(out) :: stream
      integer(c_int32_t) :: status
    end function

    function halocline_stream_free(handle) bind(c) result(status)
      import
      type(halocline_stream), intent(inout) :: handle
      integer(c_int32_t) :: status
    end function
  end interface
end module
