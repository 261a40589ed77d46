! The heat equation on a 2-D grid cut into blocks, one for each rank. The interior is computed while the halos travel. At the end rank 0
! computes the same alone and compares, bit by bit.
!
!   ./heat
!   halocline launch -n 4 -- ./heat     the ranks of Halocline's own launcher, without MPI
!   mpirun -n 4 ./heat                  the ranks of MPI_COMM_WORLD
program heat
  use halocline
  use mpi_f08, only: MPI_Init_thread, MPI_Finalize, MPI_COMM_WORLD, MPI_THREAD_MULTIPLE
  implicit none

  integer, parameter :: nx = 96, ny = 80, steps = 200
  type(halocline_comm) :: comm
  type(halocline_pattern) :: pattern
  type(halocline_domain) :: domain
  type(halocline_field) :: fields(2)
  real(c_double), allocatable, target :: t(:, :), u(:, :)
  integer(c_size_t) :: rank, ranks
  logical :: uses_mpi, is_same

  call make_communicator()
  call check(halocline_comm_rank(comm, rank))
  call check(halocline_comm_size(comm, ranks))
  call make_rank()
  call simulate()
  is_same = compare()
  call check(halocline_field_free(fields(1)))
  call check(halocline_field_free(fields(2)))
  call check(halocline_pattern_free(pattern))
  call check(halocline_comm_free(comm))
  if (uses_mpi) call MPI_Finalize()
  if (.not. is_same) error stop "the ranks and one rank differ"

contains

  ! Ends the program with the message of a call that fails.
  subroutine check(status)
    integer(c_int32_t), intent(in) :: status
    if (status /= HALOCLINE_OK) then
      print *, halocline_message()
      error stop 1
    end if
  end subroutine

  ! `halocline launch` sets HALOCLINE_JOB. It does not start MPI: each of its processes has an MPI_COMM_WORLD of one rank. A program
  ! that passes no communicator of its own calls halocline_init in both cases.
  subroutine make_communicator()
    integer :: missing, provided
    call get_environment_variable("HALOCLINE_JOB", status=missing)
    uses_mpi = missing /= 0
    if (uses_mpi) then
      call MPI_Init_thread(MPI_THREAD_MULTIPLE, provided)
      call check(halocline_comm_from_fortran(MPI_COMM_WORLD%MPI_VAL, c_null_ptr, comm))
    else
      call check(halocline_init(comm))
    end if
  end subroutine

  ! The first temperature of a cell of the whole grid, counted from 0.
  pure real(c_double) function initial(x, y)
    integer, intent(in) :: x, y
    initial = merge(1, 0, modulo(x / 8 + y / 8, 2) == 0)
  end function

  ! The domain of this rank, and the temperature of this step and the next, with one halo cell at each side.
  subroutine make_rank()
    type(halocline_decomposition) :: blocks
    integer(c_int64_t) :: global(2)
    integer :: i, j, first(2), last(2)
    call check(halocline_blocks([nx, ny], ranks, blocks, periodic=[.true., .true.]))
    call check(halocline_regular_pattern(comm, blocks, 1, pattern, HALOCLINE_FACES))
    call check(halocline_decomposition_free(blocks))
    call check(halocline_pattern_domain(pattern, 0_c_size_t, domain))
    allocate (t(domain%extents(1), domain%extents(2)), u(domain%extents(1), domain%extents(2)), source=0.0_c_double)
    call check(halocline_field_of(t, fields(1)))
    call check(halocline_field_of(u, fields(2)))
    call ends(domain%owned, first, last)
    do j = first(2), last(2)
      do i = first(1), last(1)
        call check(halocline_domain_global(pattern, 0_c_size_t, int([i, j] - 1, c_size_t), global))
        t(i, j) = initial(int(global(1)), int(global(2)))
      end do
    end do
  end subroutine

  ! The first and the last index of a box, counted from 1.
  pure subroutine ends(cells, first, last)
    type(halocline_box), intent(in) :: cells
    integer, intent(out) :: first(2), last(2)
    first = int(cells%first(1:2)) + 1
    last = first + int(cells%extents(1:2)) - 1
  end subroutine

  ! One step for a box of cells.
  pure subroutine step(from, to, cells)
    real(c_double), intent(in) :: from(:, :)
    real(c_double), intent(inout) :: to(:, :)
    type(halocline_box), intent(in) :: cells
    integer :: i, j, first(2), last(2)
    call ends(cells, first, last)
    do j = first(2), last(2)
      do i = first(1), last(1)
        to(i, j) = from(i, j) + 0.2_c_double * (from(i - 1, j) + from(i + 1, j) + from(i, j - 1) + from(i, j + 1) &
                                                - 4 * from(i, j))
      end do
    end do
  end subroutine

  subroutine simulate()
    type(halocline_bind_options) :: options
    type(halocline_halo_exchange) :: halo
    type(halocline_pending) :: pending
    type(halocline_box) :: interior, boundary(4)
    integer(c_size_t) :: boxes, set
    integer :: at
    ! Two time levels, bound together: each step exchanges the one that it reads.
    call check(halocline_bind_alternatives(comm, [halocline_binding(pattern, fields(1)), &
                                                  halocline_binding(pattern, fields(2))], 1_c_size_t, 2_c_size_t, options, halo))
    call check(halocline_domain_interior(pattern, 0_c_size_t, 1_c_size_t, interior))
    call check(halocline_domain_boundary(pattern, 0_c_size_t, 1_c_size_t, boundary, 4_c_size_t, boxes))
    do at = 0, steps - 1
      set = modulo(at, 2)
      call check(halocline_exchange_set(halo, set, pending))
      if (set == 0) then
        call overlapped(t, u, pending, interior, boundary(:boxes))
      else
        call overlapped(u, t, pending, interior, boundary(:boxes))
      end if
    end do
    call check(halocline_halo_exchange_free(halo))
  end subroutine

  ! One step. The exchange writes the halo of `from` until its wait returns.
  subroutine overlapped(from, to, pending, interior, boundary)
    real(c_double), intent(inout), target, asynchronous :: from(:, :)
    real(c_double), intent(inout) :: to(:, :)
    type(halocline_pending), intent(in) :: pending
    type(halocline_box), intent(in) :: interior, boundary(:)
    integer :: box
    call step(from, to, interior)
    call check(halocline_wait(pending))
    do box = 1, size(boundary)
      call step(from, to, boundary(box))
    end do
  end subroutine

  ! The same on the whole grid, with a halo that is copied by hand.
  function alone() result(levels)
    real(c_double) :: levels(nx + 2, ny + 2, 2)
    type(halocline_box) :: all
    integer :: i, j, at, from, to
    levels = 0
    all%first = 1
    all%extents(1:2) = [nx, ny]
    do j = 1, ny
      do i = 1, nx
        levels(i + 1, j + 1, 1) = initial(i - 1, j - 1)
      end do
    end do
    do at = 0, steps - 1
      from = modulo(at, 2) + 1
      to = 3 - from
      levels(1, :, from) = levels(nx + 1, :, from)
      levels(nx + 2, :, from) = levels(2, :, from)
      levels(:, 1, from) = levels(:, ny + 1, from)
      levels(:, ny + 2, from) = levels(:, 2, from)
      call step(levels(:, :, from), levels(:, :, to), all)
    end do
  end function

  ! Whether rank 0 finds the same as alone; true on the other ranks.
  logical function compare() result(is_same)
    type(halocline_field) :: whole
    type(c_ptr) :: base
    real(c_double), pointer :: found(:, :)
    real(c_double), allocatable :: levels(:, :, :)
    integer :: last
    last = modulo(steps, 2) + 1
    call check(halocline_gather_to(pattern, 0_c_size_t, fields(last:last), 1_c_size_t, whole))
    is_same = .true.
    if (rank == 0) then
      call check(halocline_field_base(whole, base))
      ! The gathered field is in C order: its last axis comes first here.
      call c_f_pointer(base, found, [ny, nx])
      allocate (levels(nx + 2, ny + 2, 2))
      levels = alone()
      is_same = maxval(abs(found - transpose(levels(2:nx + 1, 2:ny + 1, last)))) <= 0
      print "(a, i0, a, i0, a, a, a)", "heat: ", steps, " steps on ", ranks, " ranks, ", &
        trim(merge("equal to      ", "DIFFERENT from", is_same)), " one rank"
      call check(halocline_field_free(whole))
    end if
  end function
end program
