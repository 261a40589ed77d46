! Compiled programs in Fortran: the functions of halocline/program.h, which has their contracts. Compile it after halocline.f90.
!
!   status = halocline_program_load("libheat.so" // c_null_char, program=heat)
!   arguments = [halocline_array_argument(t, shape), halocline_number(0.1_c_double)]
!   status = halocline_program_prepare(heat, arguments, 2_c_size_t, step)
!   status = halocline_prepared_call(step, halocline_stream())
!
! The first dimension of an array is the first one of the manifest; strides say how it lies in memory. The indices of the manifest
! begin at 0 unless `origin` of the argument says otherwise.
module halocline_programs
  use halocline
  implicit none
  public
  private :: number_of_int, number_of_long, number_of_float, number_of_double, number_of_logical

  ! What is given for an argument.
  integer(c_int32_t), parameter :: HALOCLINE_ARGUMENT_ABSENT = 0, HALOCLINE_ARGUMENT_ARRAY = 1
  integer(c_int32_t), parameter :: HALOCLINE_ARGUMENT_INTEGER = 2, HALOCLINE_ARGUMENT_UNSIGNED = 3
  integer(c_int32_t), parameter :: HALOCLINE_ARGUMENT_REAL = 4

  ! Handles.
  type, bind(c) :: halocline_program
    integer(c_int64_t) :: id = 0
  end type
  type, bind(c) :: halocline_prepared
    integer(c_int64_t) :: id = 0
  end type

  ! One argument of a call: an array, a number, or nothing.
  type, bind(c) :: halocline_argument
    type(c_ptr) :: base = c_null_ptr
    integer(c_size_t) :: dimensions = 0
    type(c_ptr) :: extents = c_null_ptr
    type(c_ptr) :: strides = c_null_ptr
    type(c_ptr) :: origin = c_null_ptr
    integer(c_int64_t) :: integer = 0
    real(c_double) :: real = 0
    integer(c_int32_t) :: kind = HALOCLINE_ARGUMENT_ABSENT
    integer(c_int32_t) :: element = 0
    integer(c_int32_t) :: space = HALOCLINE_HOST
    integer(c_int32_t) :: device = 0
    integer(c_int32_t) :: read_only = 0
    integer(c_int32_t) :: reserved = 0
  end type

  ! The lists of an argument that is a Fortran array.
  type, bind(c) :: halocline_array_shape
    integer(c_ptrdiff_t) :: extents(15) = 0
    integer(c_ptrdiff_t) :: strides(15) = 0
  end type

  interface
    ! Both texts end with c_null_char. Without `manifest` it is the file beside the library.
    function halocline_program_load(library, manifest, program) bind(c) result(status)
      import
      character(kind=c_char), intent(in) :: library(*)
      character(kind=c_char), intent(in), optional :: manifest(*)
      type(halocline_program), intent(out) :: program
      integer(c_int32_t) :: status
    end function

    ! The name ends with c_null_char. Positions count from 0.
    function halocline_program_position(program, argument, position) bind(c) result(status)
      import
      type(halocline_program), value :: program
      character(kind=c_char), intent(in) :: argument(*)
      integer(c_size_t), intent(out) :: position
      integer(c_int32_t) :: status
    end function

    ! Without a stream: halocline_stream().
    function halocline_program_call(program, arguments, count, stream) bind(c) result(status)
      import
      type(halocline_program), value :: program
      type(halocline_argument), intent(in), optional :: arguments(*)
      integer(c_size_t), value :: count
      type(halocline_stream), value :: stream
      integer(c_int32_t) :: status
    end function

    function halocline_program_prepare(program, arguments, count, prepared) bind(c) result(status)
      import
      type(halocline_program), value :: program
      type(halocline_argument), intent(in), optional :: arguments(*)
      integer(c_size_t), value :: count
      type(halocline_prepared), intent(out) :: prepared
      integer(c_int32_t) :: status
    end function

    function halocline_prepared_set(prepared, position, number) bind(c) result(status)
      import
      type(halocline_prepared), value :: prepared
      integer(c_size_t), value :: position
      type(halocline_argument), intent(in) :: number
      integer(c_int32_t) :: status
    end function

    function halocline_prepared_call(prepared, stream) bind(c) result(status)
      import
      type(halocline_prepared), value :: prepared
      type(halocline_stream), value :: stream
      integer(c_int32_t) :: status
    end function

    function halocline_program_free(handle) bind(c) result(status)
      import
      type(halocline_program), intent(inout) :: handle
      integer(c_int32_t) :: status
    end function

    function halocline_prepared_free(handle) bind(c) result(status)
      import
      type(halocline_prepared), intent(inout) :: handle
      integer(c_int32_t) :: status
    end function

    ! An argument of a Fortran array of any rank. `shape` gets its extents and strides. Both have the attribute target and stay
    ! valid until the call is complete; for a prepared call until that is freed. An assumed-size array has no size: the call refuses
    ! it.
    function halocline_array_argument(array, shape) bind(c, name="halocline_fortran_argument") result(argument)
      import
      type(*), dimension(..), target, intent(inout) :: array
      type(halocline_array_shape), target, intent(inout) :: shape
      type(halocline_argument) :: argument
    end function
  end interface

  ! An argument that is a number.
  interface halocline_number
    procedure number_of_int, number_of_long, number_of_float, number_of_double, number_of_logical
  end interface

contains

  elemental function number_of_int(value) result(argument)
    integer(c_int32_t), intent(in) :: value
    type(halocline_argument) :: argument
    argument = number_of_long(int(value, c_int64_t))
  end function

  elemental function number_of_long(value) result(argument)
    integer(c_int64_t), intent(in) :: value
    type(halocline_argument) :: argument
    argument%kind = HALOCLINE_ARGUMENT_INTEGER
    argument%integer = value
  end function

  elemental function number_of_float(value) result(argument)
    real(c_float), intent(in) :: value
    type(halocline_argument) :: argument
    argument = number_of_double(real(value, c_double))
  end function

  elemental function number_of_double(value) result(argument)
    real(c_double), intent(in) :: value
    type(halocline_argument) :: argument
    argument%kind = HALOCLINE_ARGUMENT_REAL
    argument%real = value
  end function

  elemental function number_of_logical(value) result(argument)
    logical, intent(in) :: value
    type(halocline_argument) :: argument
    argument = number_of_long(merge(1_c_int64_t, 0_c_int64_t, value))
  end function
end module
