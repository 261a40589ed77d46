! A regular grid over all ranks with fields on its domains, and what each cell holds after an exchange.
module plane
  use checks
  implicit none
  public

  ! What cells without a value hold.
  real(c_double), parameter :: EMPTY = -1

  ! The cells of one domain.
  type :: cells
    real(c_double), allocatable :: t(:, :)
  end type

  ! A pattern of a grid without periodic axes, and a field on each domain of this rank. Has the attribute target.
  type :: fixture
    integer :: extents(2) = 0
    type(halocline_pattern) :: pattern
    type(cells), allocatable :: domains(:)
    type(halocline_field), allocatable :: fields(:)
    type(halocline_binding), allocatable :: bindings(:)
    integer(c_size_t) :: count = 0
  end type

contains

  subroutine make(comm, blocks, width, extents, of)
    type(halocline_comm), intent(in) :: comm
    type(halocline_decomposition), intent(in) :: blocks
    integer, intent(in) :: width, extents(2)
    type(fixture), intent(out), target :: of
    type(halocline_domain) :: domain
    type(halocline_field) :: field
    integer :: at
    of%extents = extents
    call check(halocline_regular_pattern(comm, blocks, width, of%pattern))
    call check(halocline_pattern_domains(of%pattern, of%count))
    allocate (of%domains(of%count), of%fields(of%count), of%bindings(of%count))
    do at = 1, int(of%count)
      call check(halocline_pattern_domain(of%pattern, int(at - 1, c_size_t), domain))
      allocate (of%domains(at)%t(domain%extents(1), domain%extents(2)))
      call check(halocline_field_of(of%domains(at)%t, field))
      call check(halocline_field_on_domain(field, domain%number, of%fields(at)))
      call check(halocline_field_free(field))
      of%bindings(at) = halocline_binding(of%pattern, of%fields(at))
    end do
  end subroutine

  subroutine free(of)
    type(fixture), intent(inout) :: of
    integer :: at
    do at = 1, int(of%count)
      call check(halocline_field_free(of%fields(at)))
    end do
    call check(halocline_pattern_free(of%pattern))
  end subroutine

  ! Owned cells get the values of a phase above 0, halo cells none.
  subroutine fill(of, phase)
    type(fixture), intent(inout) :: of
    integer, intent(in) :: phase
    integer :: at
    do at = 1, int(of%count)
      call visit(of, at, phase, .true.)
    end do
  end subroutine

  ! Checks all cells after the exchange of a phase.
  subroutine expect_filled(of, phase, what)
    type(fixture), intent(inout) :: of
    integer, intent(in) :: phase
    character(*), intent(in) :: what
    integer :: at, wrong
    wrong = 0
    do at = 1, int(of%count)
      call visit(of, at, phase, .false., wrong)
    end do
    call expect(wrong == 0, what)
  end subroutine

  subroutine visit(of, at, phase, fills, wrong)
    type(fixture), intent(inout) :: of
    integer, intent(in) :: at, phase
    logical, intent(in) :: fills
    integer, intent(inout), optional :: wrong
    type(halocline_domain) :: domain
    integer(c_int64_t) :: global(2)
    integer :: i, j, last(2), first(2)
    logical :: is_owned, is_inside
    real(c_double) :: value
    call check(halocline_pattern_domain(of%pattern, int(at - 1, c_size_t), domain))
    first = int(domain%owned%first(:2)) + 1
    last = first + int(domain%owned%extents(:2)) - 1
    do j = 1, size(of%domains(at)%t, 2)
      do i = 1, size(of%domains(at)%t, 1)
        call check(halocline_domain_global(of%pattern, int(at - 1, c_size_t), int([i, j] - 1, c_size_t), global))
        is_owned = all([i, j] >= first .and. [i, j] <= last)
        is_inside = all(global >= 0 .and. global < of%extents)
        value = merge(phase * 10000 + int(global(1)) * 100 + int(global(2)), int(EMPTY), is_inside)
        if (fills) then
          of%domains(at)%t(i, j) = merge(value, EMPTY, is_owned)
        else
          if (abs(of%domains(at)%t(i, j) - value) > 0) wrong = wrong + 1
        end if
      end do
    end do
  end subroutine

  ! One block for each rank, along one axis.
  subroutine slabs(extents, axis, ranks, blocks)
    integer, intent(in) :: extents(2), axis
    integer(c_size_t), intent(in) :: ranks
    type(halocline_decomposition), intent(out) :: blocks
    integer :: along(2)
    along = 1
    along(axis) = int(ranks)
    call check(halocline_blocks(extents, ranks, blocks, blocks=along))
  end subroutine
end module
