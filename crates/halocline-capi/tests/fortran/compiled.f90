! Calls compiled programs. Arguments: the library of `scale`, whose manifest lies beside it, and the manifest of `fail`.
program compiled
  use checks
  use halocline_programs
  implicit none

  type(halocline_stream) :: none
  type(halocline_program) :: scale, fail, copy
  type(halocline_prepared) :: ready
  type(halocline_argument) :: arguments(2)
  type(halocline_array_shape), target :: shape
  real(c_double), target :: a(6), table(4, 3)
  integer(c_size_t) :: factor
  integer :: i

  a = [(real(i, c_double), i = 1, 6)]
  call check(halocline_program_load(argument(1), program=scale))
  ! Every second element.
  arguments = [halocline_array_argument(a(1:6:2), shape), halocline_number(2.0_c_double)]
  call check(halocline_program_call(scale, arguments, 2_c_size_t, none))
  call expect(maxval(abs(a - [2, 2, 6, 4, 10, 6])) <= 0, "every second element")
  ! A row of a table.
  table = 1
  arguments(1) = halocline_array_argument(table(2, :), shape)
  call check(halocline_program_call(scale, arguments, 2_c_size_t, none))
  call expect(maxval(abs(table(2, :) - 2)) <= 0 .and. abs(sum(table) - 15) <= 0, "a row")

  ! A prepared call keeps its program.
  call check(halocline_program_position(scale, "factor" // c_null_char, factor))
  call expect(factor == 1, "a position")
  arguments(1) = halocline_array_argument(a, shape)
  call check(halocline_program_prepare(scale, arguments, 2_c_size_t, ready))
  copy = scale
  call check(halocline_program_free(scale))
  call refused(halocline_program_call(copy, arguments, 2_c_size_t, none), HALOCLINE_ERROR_HANDLE, "freed")
  call check(halocline_prepared_call(ready, none))
  call expect(maxval(abs(a - [4, 4, 12, 8, 20, 12])) <= 0, "a prepared call")
  call check(halocline_prepared_set(ready, factor, halocline_number(0.25_c_float)))
  call check(halocline_prepared_call(ready, none))
  call expect(maxval(abs(a - [1, 1, 3, 2, 5, 3])) <= 0, "another number")
  call refused(halocline_prepared_set(ready, 0_c_size_t, halocline_number(1)), HALOCLINE_ERROR_ARGUMENT, "is an array")
  call check(halocline_prepared_free(ready))

  ! Wrong arguments, and a program that fails.
  call check(halocline_program_load(argument(1), program=scale))
  call refused(halocline_program_call(scale, arguments, 1_c_size_t, none), HALOCLINE_ERROR_ARGUMENT, "lacks argument factor")
  arguments(1)%read_only = 1
  call refused(halocline_program_call(scale, arguments, 2_c_size_t, none), HALOCLINE_ERROR_ARGUMENT, "is read-only")
  call of_other_types([1.0_c_float], a)
  call check(halocline_program_load(argument(1), read_text(argument(2)), fail))
  call refused(halocline_program_call(fail, count=0_c_size_t, stream=none), HALOCLINE_ERROR_PROGRAM, "returned status 7")
  call refused(halocline_program_load("none.so" // c_null_char, program=copy), HALOCLINE_ERROR_PROGRAM, "none.so")
  call check(halocline_program_free(fail))
  call check(halocline_program_free(scale))
  call numbers()
  print "(a)", "ok"

contains

  subroutine of_other_types(floats, assumed_size)
    real(c_float), intent(in), target :: floats(:)
    real(c_double), intent(inout), target :: assumed_size(*)
    real(c_float), target :: own(1)
    own = floats(1)
    arguments(1) = halocline_array_argument(own, shape)
    call refused(halocline_program_call(scale, arguments, 2_c_size_t, none), HALOCLINE_ERROR_ARGUMENT, "type float32")
    arguments(1) = halocline_array_argument(assumed_size, shape)
    call refused(halocline_program_call(scale, arguments, 2_c_size_t, none), HALOCLINE_ERROR_ARGUMENT, "element is 0")
  end subroutine

  subroutine numbers()
    type(halocline_argument) :: number
    number = halocline_number(.true.)
    call expect(number%kind == HALOCLINE_ARGUMENT_INTEGER .and. number%integer == 1, "a logical")
    number = halocline_number(2_c_int64_t ** 40)
    call expect(number%integer == 1099511627776_c_int64_t, "a long integer")
  end subroutine

  ! An argument of the program, as a text of C.
  function argument(at) result(text)
    integer, intent(in) :: at
    character(:), allocatable :: text
    integer :: length
    call get_command_argument(at, length=length)
    allocate (character(length) :: text)
    call get_command_argument(at, text)
    text = text // c_null_char
  end function

  ! A file, as a text of C.
  function read_text(path) result(text)
    character(*), intent(in) :: path
    character(:), allocatable :: text
    integer :: file, bytes
    open (newunit=file, file=path(:len(path) - 1), access="stream", form="unformatted", status="old", action="read")
    inquire (file, size=bytes)
    allocate (character(bytes) :: text)
    read (file) text
    close (file)
    text = text // c_null_char
  end function
end program
