! Grids of patches: halos of a tile of the cubed sphere in arrays t(column, row), a fold with signs, other layouts, errors.
program patches
  use checks
  use halocline_patches
  implicit none

  ! What cells without a value hold.
  real(c_double), parameter :: EMPTY = -1e6_c_double

  type :: cells
    real(c_double), allocatable :: t(:, :)
  end type

  ! A quantity on a grid, and a field on each domain of each component. Has the attribute target.
  type :: fixture
    type(halocline_patch_decomposition) :: blocks
    type(halocline_quantity) :: quantity
    type(halocline_pattern) :: pattern
    type(halocline_pattern) :: components(0:1)
    integer(c_size_t) :: count = 0
    type(cells) :: domains(16)
    type(halocline_patch_block) :: held(16)
    integer :: component(16) = 0
    type(halocline_field) :: fields(16)
    type(halocline_binding) :: bindings(16)
  end type

  type(halocline_comm) :: comm
  integer(c_size_t) :: rank, ranks

  call check(halocline_init(comm))
  call check(halocline_comm_rank(comm, rank))
  call check(halocline_comm_size(comm, ranks))
  call around_a_tile()
  call across_a_fold()
  call layouts()
  call refusals()
  call done(comm)

contains

  ! A number for each value of each patch and component.
  real(c_double) function number(patch, component, row, column)
    integer, intent(in) :: patch, component, row, column
    number = (patch * 2 + component) * 10000 + row * 100 + column + 1
  end function

  subroutine make(grid, quantity, width, of)
    type(halocline_patch_grid), intent(inout) :: grid
    type(halocline_quantity), intent(in) :: quantity
    integer, intent(in) :: width
    type(fixture), intent(out), target :: of
    type(halocline_halo) :: halo
    type(halocline_domain) :: domain
    type(halocline_field) :: field
    integer(c_size_t) :: domains, index
    integer :: component, at
    of%quantity = quantity
    halo%width = width
    call check(halocline_patch_decompose(grid, ranks, of%blocks))
    call check(halocline_patch_grid_free(grid))
    call check(halocline_pattern_patches(comm, of%blocks, quantity, halo, of%pattern))
    do component = 0, int(quantity%components) - 1
      of%components(component) = of%pattern
      if (quantity%components == 2) then
        call check(halocline_pattern_component(of%pattern, int(component, c_size_t), of%components(component)))
      end if
      call check(halocline_pattern_domains(of%components(component), domains))
      do index = 0, domains - 1
        of%count = of%count + 1
        at = int(of%count)
        of%component(at) = component
        call check(halocline_pattern_domain(of%components(component), index, domain))
        call check(halocline_patch_decomposition_block(of%blocks, domain%number, quantity, int(component, c_size_t), of%held(at)))
        allocate (of%domains(at)%t(domain%extents(2), domain%extents(1)))
        call check(halocline_field_along(of%domains(at)%t, [2, 1], 2, field))
        call check(halocline_field_on_domain(field, domain%number, of%fields(at)))
        call check(halocline_field_free(field))
        of%bindings(at) = halocline_binding(of%components(component), of%fields(at))
      end do
    end do
    call exchange(of, width)
  end subroutine

  ! Owned values are numbers, halo cells are empty; then the halos are filled.
  subroutine exchange(of, width)
    type(fixture), intent(inout), target :: of
    integer, intent(in) :: width
    type(halocline_halo_exchange) :: halo
    integer :: at, row, column, last(2)
    call check(halocline_bind(comm, of%bindings, of%count, halo=halo))
    do at = 1, int(of%count)
      of%domains(at)%t = EMPTY
      last = int(of%held(at)%extents)
      do row = 1, last(1)
        do column = 1, last(2)
          of%domains(at)%t(column + width, row + width) = number(int(of%held(at)%patch), of%component(at), &
            int(of%held(at)%first(1)) + row - 1, int(of%held(at)%first(2)) + column - 1)
        end do
      end do
    end do
    call check(halocline_exchange_and_wait(halo))
    call check(halocline_halo_exchange_free(halo))
  end subroutine

  subroutine free(of)
    type(fixture), intent(inout) :: of
    integer :: at
    do at = 1, int(of%count)
      call check(halocline_field_free(of%fields(at)))
    end do
    if (of%quantity%components == 2) then
      call check(halocline_pattern_free(of%components(0)))
      call check(halocline_pattern_free(of%components(1)))
    end if
    call check(halocline_pattern_free(of%pattern))
    call check(halocline_patch_decomposition_free(of%blocks))
  end subroutine

  ! Tile 1 in the east and tile 5 in the south are upright, tile 2 in the north and tile 4 in the west are turned.
  subroutine around_a_tile()
    integer, parameter :: n = 6, width = 2
    type(halocline_patch_grid) :: grid
    type(fixture), target :: of
    integer :: at, i, j, row, column
    logical :: row_is_in, column_is_in
    real(c_double) :: wanted
    call check(halocline_patch_grid_cubed_sphere(int(n, c_size_t), grid))
    call make(grid, halocline_quantity(), width, of)
    do at = 1, int(of%count)
      if (of%held(at)%patch /= 0) cycle
      do j = 1, size(of%domains(at)%t, 2)
        do i = 1, size(of%domains(at)%t, 1)
          row = int(of%held(at)%first(1)) + j - 1 - width
          column = int(of%held(at)%first(2)) + i - 1 - width
          row_is_in = row >= 0 .and. row < n
          column_is_in = column >= 0 .and. column < n
          wanted = number(0, 0, row, column)
          if (row_is_in .and. column >= n) wanted = number(1, 0, row, column - n)
          if (row_is_in .and. column < 0) wanted = number(4, 0, n + column, n - 1 - row)
          if (column_is_in .and. row >= n) wanted = number(2, 0, n - 1 - column, row - n)
          if (column_is_in .and. row < 0) wanted = number(5, 0, n + row, column)
          if (.not. row_is_in .and. .not. column_is_in) wanted = EMPTY
          call expect(abs(of%domains(at)%t(i, j) - wanted) <= 0, "a cell around tile 0")
        end do
      end do
    end do
    call free(of)
  end subroutine

  ! NEMO's U and V points behind the fold of ORCA1: the other sign, columns backwards.
  subroutine across_a_fold()
    integer, parameter :: rows = 6, columns = 8, width = 2
    integer(c_int32_t), parameter :: v(2) = [HALOCLINE_ALONG_HIGH_FACES, HALOCLINE_ALONG_CENTRE]
    integer(c_int32_t), parameter :: u(2) = [HALOCLINE_ALONG_CENTRE, HALOCLINE_ALONG_HIGH_FACES]
    type(halocline_patch_grid) :: grid
    type(fixture), target :: of
    integer :: at, i, j, row, column, checked
    real(c_double) :: wanted
    call check(halocline_patch_grid_tripolar(int(rows, c_size_t), int(columns, c_size_t), HALOCLINE_PIVOT_CORNER, grid))
    call make(grid, halocline_quantity_of(v, u), width, of)
    checked = 0
    do at = 1, int(of%count)
      do j = 1, size(of%domains(at)%t, 2)
        row = int(of%held(at)%first(1)) + j - 1 - width
        if (row < rows) cycle
        do i = 1, size(of%domains(at)%t, 1)
          column = modulo(int(of%held(at)%first(2)) + i - 1 - width, columns)
          if (of%component(at) == 0) then
            wanted = -number(0, 0, 2 * rows - 2 - row, columns - 1 - column)
          else
            wanted = -number(0, 1, 2 * rows - 1 - row, modulo(columns - 2 - column, columns))
          end if
          call expect(abs(of%domains(at)%t(i, j) - wanted) <= 0, "a value behind a fold")
          checked = checked + 1
        end do
      end do
    end do
    call expect(checked > 0 .or. ranks > 1, "values behind a fold")
    call free(of)
  end subroutine

  subroutine layouts()
    type(halocline_seam) :: seams(1), found(2)
    type(halocline_patch_grid) :: grid
    type(halocline_patch_decomposition) :: cut
    type(halocline_patch_transfer), allocatable :: transfers(:)
    type(halocline_halo) :: halo
    integer(c_size_t) :: extents(2, 2), blocks(2, 2), count, all_ranks, moved
    integer(c_int64_t) :: domains, first, end
    seams(1) = halocline_seam(HALOCLINE_SEAM_JOIN_REVERSED, halocline_patch_side(0, 1, 1), halocline_patch_side(1, 0, 0))
    call check(halocline_patch_grid_create(reshape([4_c_size_t, 6_c_size_t, 5_c_size_t, 4_c_size_t], [2, 2]), 2_c_size_t, &
      seams, 1_c_size_t, grid))
    call check(halocline_patch_grid_extents(grid, extents, 4_c_size_t, count))
    call expect(count == 4 .and. all(extents(:, 2) == [5, 4]), "the extents of patches")
    call check(halocline_patch_decompose_into(grid, reshape([2_c_size_t, 2_c_size_t, 1_c_size_t, 1_c_size_t], [2, 2]), &
      ranks, cut))
    call check(halocline_patch_grid_free(grid))
    call check(halocline_patch_decomposition_describe(cut, all_ranks, domains, blocks, 4_c_size_t, count))
    call expect(all_ranks == ranks .and. domains == 5 .and. count == 4 .and. all(blocks(:, 1) == 2), "blocks")
    call check(halocline_patch_decomposition_domains_of(cut, ranks - 1, first, end))
    call expect(first < end .and. end == 5, "the domains of the last rank")
    halo%width = 1
    call check(halocline_patch_transfers(cut, ranks - 1, halo=halo, capacity=0_c_size_t, count=moved))
    allocate (transfers(moved))
    call check(halocline_patch_transfers(cut, ranks - 1, halo=halo, transfers=transfers, capacity=moved, count=count))
    call expect(count == moved .and. any(transfers%is_swapped == 1) .and. all(transfers%is_negated == 0), "transfers")
    call check(halocline_patch_decomposition_free(cut))

    call check(halocline_patch_grid_lat_lon_cap(2_c_size_t, grid))
    call check(halocline_patch_grid_seams(grid, capacity=0_c_size_t, count=count))
    call expect(count == 8, "the seams of an LLC grid")
    call check(halocline_patch_grid_free(grid))
    call check(halocline_patch_grid_tripolar(6_c_size_t, 8_c_size_t, HALOCLINE_PIVOT_CELL, grid))
    call check(halocline_patch_grid_seams(grid, found, 2_c_size_t, count))
    call expect(found(2)%kind == HALOCLINE_SEAM_FOLD_CELL .and. found(2)%one%is_high == 1, "a fold")
    call check(halocline_patch_grid_free(grid))
  end subroutine

  subroutine refusals()
    type(halocline_patch_grid) :: grid, filled
    type(halocline_patch_decomposition) :: cut
    type(halocline_patch_block) :: block
    type(halocline_pattern) :: pattern
    type(halocline_halo) :: halo
    real(c_double) :: point(3)
    call check(halocline_cubed_sphere_point(1_c_size_t, [0.5_c_double, 0.5_c_double], point))
    call expect(all(abs(point - [0, 1, 0]) < 1e-15_c_double), "the middle of tile 1")
    call refused(halocline_cubed_sphere_point(6_c_size_t, [0.5_c_double, 0.5_c_double], point), HALOCLINE_ERROR_ARGUMENT, &
      "the cubed sphere has tiles 0 to 5")
    call refused(halocline_patch_grid_latitude_longitude(4_c_size_t, 7_c_size_t, grid), HALOCLINE_ERROR_ARGUMENT, "must be even")
    call check(halocline_patch_grid_latitude_longitude(4_c_size_t, 8_c_size_t, grid))
    call refused(halocline_patch_grid_corners_through(grid, 0_c_size_t, filled), HALOCLINE_ERROR_ARGUMENT, "no corner of")
    call check(halocline_patch_decompose(grid, ranks, cut))
    call check(halocline_patch_grid_free(grid))
    call refused(halocline_patch_decomposition_block(cut, 99_c_int64_t, component=0_c_size_t, block=block), &
      HALOCLINE_ERROR_ARGUMENT, "there is no domain 99")
    halo%width = 5
    call refused(halocline_pattern_patches(comm, cut, halo=halo, pattern=pattern), HALOCLINE_ERROR_ARGUMENT, "at most 4 wide")
    call check(halocline_patch_decomposition_free(cut))
  end subroutine
end program
