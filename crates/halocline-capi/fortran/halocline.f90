! The Fortran interface of Halocline (Fortran 2018): the functions of halocline.h, which has their contracts, and a few that take
! Fortran arrays. Compile it, and halocline_fortran.c, with the compilers of the program.
!
!   type(halocline_comm) :: comm
!   status = halocline_comm_from_fortran(MPI_COMM_WORLD%MPI_VAL, c_null_ptr, comm)
!   status = halocline_blocks([1000, 500], ranks, blocks, periodic=[.true., .false.])
!   status = halocline_regular_pattern(comm, blocks, 1, pattern)
!   status = halocline_field_of(t, field)
!   status = halocline_bind_field(comm, pattern, field, halo)
!   status = halocline_exchange(halo, pending)
!   ... compute the interior ...
!   status = halocline_wait(pending)
!
! The first dimension of an array is the first axis of the grid. Local indices of halocline.h count from 0.
module halocline
  use, intrinsic :: iso_c_binding
  implicit none
  public

  integer(c_int32_t), parameter :: HALOCLINE_OK = 0
  integer(c_int32_t), parameter :: HALOCLINE_ERROR_ARGUMENT = 1
  integer(c_int32_t), parameter :: HALOCLINE_ERROR_HANDLE = 2
  integer(c_int32_t), parameter :: HALOCLINE_ERROR_BUSY = 3
  integer(c_int32_t), parameter :: HALOCLINE_ERROR_COMMUNICATION = 4
  integer(c_int32_t), parameter :: HALOCLINE_ERROR_DEADLINE = 5
  integer(c_int32_t), parameter :: HALOCLINE_ERROR_MPI = 6
  integer(c_int32_t), parameter :: HALOCLINE_ERROR_DEVICE = 7
  integer(c_int32_t), parameter :: HALOCLINE_ERROR_FAILED = 8
  integer(c_int32_t), parameter :: HALOCLINE_ERROR_ELSEWHERE = 9
  integer(c_int32_t), parameter :: HALOCLINE_ERROR_MEMORY = 10
  integer(c_int32_t), parameter :: HALOCLINE_ERROR_FORKED = 11
  integer(c_int32_t), parameter :: HALOCLINE_ERROR_CALLBACK = 12
  integer(c_int32_t), parameter :: HALOCLINE_ERROR_INTERNAL = 13

  integer(c_int32_t), parameter :: HALOCLINE_MOMENT_BEGUN = 0, HALOCLINE_MOMENT_INTERIOR = 1
  integer(c_int32_t), parameter :: HALOCLINE_MOMENT_WAITED = 2, HALOCLINE_MOMENT_DONE = 3
  integer(c_int32_t), parameter :: HALOCLINE_ALL = 0, HALOCLINE_FACES = 1, HALOCLINE_FACES_AND_EDGES = 2
  integer(c_int32_t), parameter :: HALOCLINE_I32 = 8, HALOCLINE_F32 = 10, HALOCLINE_I64 = 11, HALOCLINE_F64 = 13
  integer(c_int32_t), parameter :: HALOCLINE_SUM = 0, HALOCLINE_MIN = 1, HALOCLINE_MAX = 2
  integer(c_int32_t), parameter :: HALOCLINE_PRODUCT = 3, HALOCLINE_REPLACE = 4, HALOCLINE_AND = 5
  integer(c_int32_t), parameter :: HALOCLINE_OR = 6, HALOCLINE_XOR = 7
  integer(c_int32_t), parameter :: HALOCLINE_LINK_AUTO = 0, HALOCLINE_LINK_PUSH = 1, HALOCLINE_LINK_PULL = 2
  integer(c_int32_t), parameter :: HALOCLINE_LINK_MAILBOX = 3, HALOCLINE_LINK_MESSAGE = 4

  ! Handles.
  type, bind(c) :: halocline_comm
    integer(c_int64_t) :: id = 0
  end type
  type, bind(c) :: halocline_decomposition
    integer(c_int64_t) :: id = 0
  end type
  type, bind(c) :: halocline_pattern
    integer(c_int64_t) :: id = 0
  end type
  type, bind(c) :: halocline_field
    integer(c_int64_t) :: id = 0
  end type
  type, bind(c) :: halocline_halo_exchange
    integer(c_int64_t) :: id = 0
  end type
  type, bind(c) :: halocline_trace
    integer(c_int64_t) :: id = 0
  end type
  type, bind(c) :: halocline_device_trace
    integer(c_int64_t) :: id = 0
  end type
  type, bind(c) :: halocline_stream
    integer(c_int64_t) :: id = 0
  end type
  type, bind(c) :: halocline_pending
    integer(c_int64_t) :: exchange = 0
    integer(c_int64_t) :: epoch = 0
  end type

  ! Structs that begin with their size.
  type, bind(c) :: halocline_grid
    integer(c_size_t) :: size = 40
    integer(c_size_t) :: axes = 0
    type(c_ptr) :: extents = c_null_ptr
    type(c_ptr) :: periodic = c_null_ptr
    integer(c_size_t) :: domains_per_rank = 1
  end type
  type, bind(c) :: halocline_halo
    integer(c_size_t) :: size = 48
    integer(c_size_t) :: width = 0
    integer(c_size_t) :: axes = 0
    type(c_ptr) :: low = c_null_ptr
    type(c_ptr) :: high = c_null_ptr
    integer(c_int32_t) :: neighbours = HALOCLINE_ALL
  end type
  type, bind(c) :: halocline_box
    integer(c_size_t) :: first(4) = 0
    integer(c_size_t) :: extents(4) = 0
  end type
  type, bind(c) :: halocline_domain
    integer(c_size_t) :: size = 128
    integer(c_size_t) :: axes = 0
    integer(c_int64_t) :: number = 0
    integer(c_int64_t) :: owned_count = 0
    integer(c_size_t) :: extents(4) = 0
    type(halocline_box) :: owned
  end type
  type, bind(c) :: halocline_binding
    type(halocline_pattern) :: pattern
    type(halocline_field) :: field
  end type
  type, bind(c) :: halocline_bind_options
    integer(c_size_t) :: size = 72
    type(c_ptr) :: name = c_null_ptr
    real(c_double) :: deadline = 0
    type(c_ptr) :: streams = c_null_ptr
    integer(c_size_t) :: stream_count = 0
    integer(c_size_t) :: ll_bytes = 0
    integer(c_int32_t) :: link = HALOCLINE_LINK_AUTO
    integer(c_int32_t) :: checked = 0
    integer(c_int32_t) :: run_inline = 0
    integer(c_int32_t) :: stream_waits = 0
    integer(c_int32_t) :: ll = 0
    integer(c_int32_t) :: reserved = 0
  end type

  interface
    function halocline_init(comm) bind(c) result(status)
      import
      type(halocline_comm), intent(out) :: comm
      integer(c_int32_t) :: status
    end function

    ! `mpi_comm`: comm%MPI_VAL of mpi_f08, or the integer of the older modules. `options`: c_null_ptr.
    function halocline_comm_from_fortran(mpi_comm, options, comm) bind(c) result(status)
      import
      integer(c_int32_t), value :: mpi_comm
      type(c_ptr), value :: options
      type(halocline_comm), intent(out) :: comm
      integer(c_int32_t) :: status
    end function

    function halocline_comm_threads(size, comms) bind(c) result(status)
      import
      integer(c_size_t), value :: size
      type(halocline_comm), intent(inout) :: comms(*)
      integer(c_int32_t) :: status
    end function

    function halocline_comm_rank(comm, rank) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      integer(c_size_t), intent(out) :: rank
      integer(c_int32_t) :: status
    end function

    function halocline_comm_size(comm, size) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      integer(c_size_t), intent(out) :: size
      integer(c_int32_t) :: status
    end function

    function halocline_comm_barrier(comm) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      integer(c_int32_t) :: status
    end function

    function halocline_comm_all_reduce(comm, values, count, element, operation) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      type(c_ptr), value :: values
      integer(c_size_t), value :: count
      integer(c_int32_t), value :: element, operation
      integer(c_int32_t) :: status
    end function

    function halocline_decompose(grid, ranks, decomposition) bind(c) result(status)
      import
      type(halocline_grid), intent(in) :: grid
      integer(c_size_t), value :: ranks
      type(halocline_decomposition), intent(out) :: decomposition
      integer(c_int32_t) :: status
    end function

    function halocline_decompose_into(grid, blocks, ranks, decomposition) bind(c) result(status)
      import
      type(halocline_grid), intent(in) :: grid
      integer(c_size_t), intent(in) :: blocks(*)
      integer(c_size_t), value :: ranks
      type(halocline_decomposition), intent(out) :: decomposition
      integer(c_int32_t) :: status
    end function

    function halocline_pattern_regular(comm, decomposition, halo, pattern) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      type(halocline_decomposition), value :: decomposition
      type(halocline_halo), intent(in) :: halo
      type(halocline_pattern), intent(out) :: pattern
      integer(c_int32_t) :: status
    end function

    function halocline_pattern_domain(pattern, index, domain) bind(c) result(status)
      import
      type(halocline_pattern), value :: pattern
      integer(c_size_t), value :: index
      type(halocline_domain), intent(inout) :: domain
      integer(c_int32_t) :: status
    end function

    ! The path ends with c_null_char.
    function halocline_trace_begin(comm, path, trace) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      character(kind=c_char), intent(in) :: path(*)
      type(halocline_trace), intent(out) :: trace
      integer(c_int32_t) :: status
    end function

    function halocline_trace_end(trace) bind(c) result(status)
      import
      type(halocline_trace), value :: trace
      integer(c_int32_t) :: status
    end function

    function halocline_trace_free(trace) bind(c) result(status)
      import
      type(halocline_trace), intent(inout) :: trace
      integer(c_int32_t) :: status
    end function

    function halocline_trace_on_stream(trace, stream, rounds, device_trace) bind(c) result(status)
      import
      type(halocline_trace), value :: trace
      type(halocline_stream), value :: stream
      integer(c_size_t), value :: rounds
      type(halocline_device_trace), intent(out) :: device_trace
      integer(c_int32_t) :: status
    end function

    function halocline_device_trace_stamp(device_trace, moment) bind(c) result(status)
      import
      type(halocline_device_trace), value :: device_trace
      integer(c_int32_t), value :: moment
      integer(c_int32_t) :: status
    end function

    function halocline_device_trace_observe(device_trace, pending) bind(c) result(status)
      import
      type(halocline_device_trace), value :: device_trace
      type(halocline_pending), value :: pending
      integer(c_int32_t) :: status
    end function

    function halocline_device_trace_free(device_trace) bind(c) result(status)
      import
      type(halocline_device_trace), intent(inout) :: device_trace
      integer(c_int32_t) :: status
    end function

    function halocline_domain_interior(pattern, index, width, cells) bind(c) result(status)
      import
      type(halocline_pattern), value :: pattern
      integer(c_size_t), value :: index, width
      type(halocline_box), intent(out) :: cells
      integer(c_int32_t) :: status
    end function

    function halocline_domain_boundary(pattern, index, width, boxes, capacity, count) bind(c) result(status)
      import
      type(halocline_pattern), value :: pattern
      integer(c_size_t), value :: index, width
      type(halocline_box), intent(inout) :: boxes(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: count
      integer(c_int32_t) :: status
    end function

    function halocline_domain_global(pattern, index, local, global) bind(c) result(status)
      import
      type(halocline_pattern), value :: pattern
      integer(c_size_t), value :: index
      integer(c_size_t), intent(in) :: local(*)
      integer(c_int64_t), intent(out) :: global(*)
      integer(c_int32_t) :: status
    end function

    ! A field of a Fortran array of any type and rank. The array has the attribute target, is not copied for the call (pass it whole, or a
    ! section of one that is a target), and stays allocated until the field and its exchanges are freed.
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

    function halocline_field_base(field, base) bind(c) result(status)
      import
      type(halocline_field), value :: field
      type(c_ptr), intent(out) :: base
      integer(c_int32_t) :: status
    end function

    function halocline_bind(comm, bindings, count, options, halo) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      type(halocline_binding), intent(in) :: bindings(*)
      integer(c_size_t), value :: count
      type(halocline_bind_options), intent(in) :: options
      type(halocline_halo_exchange), intent(out) :: halo
      integer(c_int32_t) :: status
    end function

    function halocline_bind_alternatives(comm, bindings, count, sets, options, halo) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      type(halocline_binding), intent(in) :: bindings(*)
      integer(c_size_t), value :: count, sets
      type(halocline_bind_options), intent(in) :: options
      type(halocline_halo_exchange), intent(out) :: halo
      integer(c_int32_t) :: status
    end function

    function halocline_exchange(halo, pending) bind(c) result(status)
      import
      type(halocline_halo_exchange), value :: halo
      type(halocline_pending), intent(out) :: pending
      integer(c_int32_t) :: status
    end function

    function halocline_exchange_set(halo, set, pending) bind(c) result(status)
      import
      type(halocline_halo_exchange), value :: halo
      integer(c_size_t), value :: set
      type(halocline_pending), intent(out) :: pending
      integer(c_int32_t) :: status
    end function

    function halocline_reduce(halo, set, operation, keep_halo, pending) bind(c) result(status)
      import
      type(halocline_halo_exchange), value :: halo
      integer(c_size_t), value :: set
      integer(c_int32_t), value :: operation, keep_halo
      type(halocline_pending), intent(out) :: pending
      integer(c_int32_t) :: status
    end function

    function halocline_degree(halo, field, degree, capacity, count) bind(c) result(status)
      import
      type(halocline_halo_exchange), value :: halo
      integer(c_size_t), value :: field
      type(c_ptr), value :: degree
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: count
      integer(c_int32_t) :: status
    end function

    function halocline_exchange_and_wait(halo) bind(c) result(status)
      import
      type(halocline_halo_exchange), value :: halo
      integer(c_int32_t) :: status
    end function

    function halocline_schedule_exchange(halo, set, streams, stream_count, pending) bind(c) result(status)
      import
      type(halocline_halo_exchange), value :: halo
      integer(c_size_t), value :: set
      type(halocline_stream), intent(in) :: streams(*)
      integer(c_size_t), value :: stream_count
      type(halocline_pending), intent(out) :: pending
      integer(c_int32_t) :: status
    end function

    function halocline_wait(pending) bind(c) result(status)
      import
      type(halocline_pending), value :: pending
      integer(c_int32_t) :: status
    end function

    function halocline_is_ready(pending, ready) bind(c) result(status)
      import
      type(halocline_pending), value :: pending
      integer(c_int32_t), intent(out) :: ready
      integer(c_int32_t) :: status
    end function

    function halocline_schedule_wait(pending, stream) bind(c) result(status)
      import
      type(halocline_pending), value :: pending
      type(halocline_stream), value :: stream
      integer(c_int32_t) :: status
    end function

    function halocline_stream_cuda(device, cuda_stream, stream) bind(c) result(status)
      import
      integer(c_int32_t), value :: device
      type(c_ptr), value :: cuda_stream
      type(halocline_stream), intent(out) :: stream
      integer(c_int32_t) :: status
    end function

    function halocline_gather_to(pattern, root, fields, count, whole) bind(c) result(status)
      import
      type(halocline_pattern), value :: pattern
      integer(c_size_t), value :: root
      type(halocline_field), intent(in) :: fields(*)
      integer(c_size_t), value :: count
      type(halocline_field), intent(out) :: whole
      integer(c_int32_t) :: status
    end function

    function halocline_comm_free(handle) bind(c) result(status)
      import
      type(halocline_comm), intent(inout) :: handle
      integer(c_int32_t) :: status
    end function

    function halocline_decomposition_free(handle) bind(c) result(status)
      import
      type(halocline_decomposition), intent(inout) :: handle
      integer(c_int32_t) :: status
    end function

    function halocline_pattern_free(handle) bind(c) result(status)
      import
      type(halocline_pattern), intent(inout) :: handle
      integer(c_int32_t) :: status
    end function

    function halocline_field_free(handle) bind(c) result(status)
      import
      type(halocline_field), intent(inout) :: handle
      integer(c_int32_t) :: status
    end function

    function halocline_halo_exchange_free(handle) bind(c) result(status)
      import
      type(halocline_halo_exchange), intent(inout) :: handle
      integer(c_int32_t) :: status
    end function

    function halocline_stream_free(handle) bind(c) result(status)
      import
      type(halocline_stream), intent(inout) :: handle
      integer(c_int32_t) :: status
    end function

    function halocline_error_message() bind(c) result(message)
      import
      type(c_ptr) :: message
    end function
  end interface

contains

  ! The message of the last call of this thread that failed.
  function halocline_message() result(text)
    character(:), allocatable :: text
    character(kind=c_char), pointer :: characters(:)
    integer :: length
    call c_f_pointer(halocline_error_message(), characters, [65536])
    length = 0
    do while (characters(length + 1) /= c_null_char)
      length = length + 1
    end do
    allocate (character(length) :: text)
    text = transfer(characters(1:length), text)
  end function

  ! A grid cut into one block for each rank; `blocks`: how many along each axis.
  function halocline_blocks(extents, ranks, decomposition, periodic, blocks) result(status)
    integer, intent(in) :: extents(:)
    integer(c_size_t), intent(in) :: ranks
    type(halocline_decomposition), intent(out) :: decomposition
    logical, intent(in), optional :: periodic(:)
    integer, intent(in), optional :: blocks(:)
    integer(c_int32_t) :: status
    integer(c_size_t), target :: cells(size(extents))
    integer(c_int32_t), target :: flags(size(extents))
    type(halocline_grid) :: grid
    cells = extents
    flags = 0
    if (present(periodic)) flags = merge(1_c_int32_t, 0_c_int32_t, periodic)
    grid%axes = size(extents)
    grid%extents = c_loc(cells)
    grid%periodic = c_loc(flags)
    if (present(blocks)) then
      status = halocline_decompose_into(grid, int(blocks, c_size_t), ranks, decomposition)
    else
      status = halocline_decompose(grid, ranks, decomposition)
    end if
  end function

  ! The pattern of a halo of the same width at all sides. Collective.
  function halocline_regular_pattern(comm, decomposition, width, pattern, neighbours) result(status)
    type(halocline_comm), intent(in) :: comm
    type(halocline_decomposition), intent(in) :: decomposition
    integer, intent(in) :: width
    type(halocline_pattern), intent(out) :: pattern
    integer(c_int32_t), intent(in), optional :: neighbours
    integer(c_int32_t) :: status
    type(halocline_halo) :: halo
    halo%width = width
    if (present(neighbours)) halo%neighbours = neighbours
    status = halocline_pattern_regular(comm, decomposition, halo, pattern)
  end function

  ! Binds one field. Collective.
  function halocline_bind_field(comm, pattern, field, halo) result(status)
    type(halocline_comm), intent(in) :: comm
    type(halocline_pattern), intent(in) :: pattern
    type(halocline_field), intent(in) :: field
    type(halocline_halo_exchange), intent(out) :: halo
    integer(c_int32_t) :: status
    type(halocline_bind_options) :: options
    status = halocline_bind(comm, [halocline_binding(pattern, field)], 1_c_size_t, options, halo)
  end function
end module
