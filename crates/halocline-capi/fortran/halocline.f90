! The Fortran interface of Halocline (Fortran 2018): the functions of halocline.h, which has their contracts, and a few that take
! Fortran arrays. Compile it, and halocline_fortran.c, with the compilers of the program. It includes the files of the folder
! halocline.
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
! The first dimension of an array is the first axis of the grid. Local indices of halocline.h count from 0. Arguments that may be
! NULL in C are optional. Where a call stores an array of unknown length, leave the array out to learn only its length.
!
! Modules that a program compiles after this one, if it uses them:
!
!   halocline_meshes           unstructured domains and meshes
!   halocline_packets          packets between neighbours and in a sparse all-to-all
!   halocline_patches          grids of patches: the cubed sphere, tripolar grids
!   halocline_programs         compiled programs
!   halocline_redistribution   fields from one distribution to another; after halocline_meshes
include "halocline/types.f90"
include "halocline/comm.f90"
include "halocline/grid.f90"
include "halocline/field.f90"
include "halocline/exchange.f90"
include "halocline/message.f90"
include "halocline/trace.f90"

module halocline
  use halocline_types
  use halocline_comms
  use halocline_grids
  use halocline_fields
  use halocline_exchanges
  use halocline_messages
  use halocline_traces
  implicit none
  public
  private :: explanation_of_exchange, explanation_of_links, numbers

  ! Texts of C, valid as long as C says: halocline_message and the others below have them as texts of Fortran.
  interface
    function halocline_error_message() bind(c) result(message)
      import
      type(c_ptr) :: message
    end function

    ! Sets the message. `message` ends with c_null_char.
    function halocline_refuse(message) bind(c) result(status)
      import
      character(c_char), intent(in) :: message(*)
      integer(c_int32_t) :: status
    end function

    function halocline_status_name(status) bind(c) result(name)
      import
      integer(c_int32_t), value :: status
      type(c_ptr) :: name
    end function

    function halocline_version() bind(c) result(version)
      import
      type(c_ptr) :: version
    end function

    function halocline_abi_version() bind(c) result(version)
      import
      integer(c_int32_t) :: version
    end function
  end interface

  ! The table of halocline_explain, or of halocline_pattern_links_explain; "" if the call fails, and halocline_message says why.
  interface halocline_explanation
    procedure explanation_of_exchange, explanation_of_links
  end interface

contains

  ! The message of the last call of this thread that failed.
  function halocline_message() result(text)
    character(:), allocatable :: text
    text = halocline_text(halocline_error_message())
  end function

  ! The name of a status, such as "HALOCLINE_ERROR_BUSY"; "" for a number that is none.
  function halocline_status_text(status) result(text)
    integer(c_int32_t), intent(in) :: status
    character(:), allocatable :: text
    text = halocline_text(halocline_status_name(status))
  end function

  ! The version of the library.
  function halocline_version_text() result(text)
    character(:), allocatable :: text
    text = halocline_text(halocline_version())
  end function

  ! The name of the transport: "thread", "shm" or "mpi"; "" if the call fails, and halocline_message says why.
  function halocline_transport(comm) result(text)
    type(halocline_comm), intent(in) :: comm
    character(:), allocatable :: text
    type(c_ptr) :: name
    name = c_null_ptr
    if (halocline_comm_transport(comm, name) /= HALOCLINE_OK) name = c_null_ptr
    text = halocline_text(name)
  end function

  function explanation_of_exchange(halo) result(text)
    type(halocline_halo_exchange), intent(in) :: halo
    character(:), allocatable :: text
    integer(c_size_t) :: capacity, length
    text = ""
    if (halocline_explain(halo, capacity=0_c_size_t, length=capacity) /= HALOCLINE_OK) return
    deallocate (text)
    allocate (character(capacity) :: text)
    if (halocline_explain(halo, text, capacity, length) /= HALOCLINE_OK) length = 1
    text = text(:length - 1)
  end function

  function explanation_of_links(links) result(text)
    type(halocline_pattern_links), intent(in) :: links
    character(:), allocatable :: text
    integer(c_size_t) :: capacity, length
    text = ""
    if (halocline_pattern_links_explain(links, capacity=0_c_size_t, length=capacity) /= HALOCLINE_OK) return
    deallocate (text)
    allocate (character(capacity) :: text)
    if (halocline_pattern_links_explain(links, text, capacity, length) /= HALOCLINE_OK) length = 1
    text = text(:length - 1)
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
    if (any(extents < 1)) then
      status = halocline_refuse("extents" // numbers(extents) // ": every axis has at least 1 cell" // c_null_char)
      return
    end if
    if (present(periodic)) then
      if (size(periodic) /= size(extents)) then
        status = halocline_refuse("periodic has not one element for each axis of extents" // c_null_char)
        return
      end if
    end if
    if (present(blocks)) then
      if (size(blocks) /= size(extents)) then
        status = halocline_refuse("blocks has not one element for each axis of extents" // c_null_char)
        return
      end if
      if (any(blocks < 1)) then
        status = halocline_refuse("blocks" // numbers(blocks) // ": every axis has at least 1 block" // c_null_char)
        return
      end if
    end if
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
    ! Refused with the other ranks, which wait for this one.
    status = halocline_pattern_regular(comm, decomposition, halo, pattern)
    if (width < 0 .and. status == HALOCLINE_ERROR_ARGUMENT) then
      status = halocline_refuse("width" // numbers([width]) // ": a halo has 0 or more cells" // c_null_char)
    end if
  end function

  ! Numbers as a text: " is -5" for one, " is [-5, 6]" for more.
  pure function numbers(list) result(text)
    integer, intent(in) :: list(:)
    character(:), allocatable :: text
    character(12) :: number
    integer :: at
    text = ""
    do at = 1, size(list)
      write (number, "(i0)") list(at)
      if (at > 1) text = text // ", "
      text = text // trim(number)
    end do
    if (size(list) /= 1) text = "[" // text // "]"
    text = " is " // text
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
