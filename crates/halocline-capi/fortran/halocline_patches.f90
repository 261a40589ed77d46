! Grids of patches in Fortran: the functions of halocline/patches.h, which has their contracts. Compile it after halocline.f90.
!
!   status = halocline_patch_grid_cubed_sphere(48_c_size_t, grid)
!   status = halocline_patch_decompose(grid, ranks, tiles)
!   status = halocline_pattern_patches(comm, tiles, halo=width, pattern=pattern)
!   status = halocline_pattern_domain(pattern, 0_c_size_t, domain)
!   allocate (t(domain%extents(2), domain%extents(1)))
!   status = halocline_field_along(t, [2, 1], 2, field)
!
! Patches, axes, components, domains and ranks count from 0, as in C. Axis 0 counts rows, axis 1 columns: in an array t(column, row) the
! second dimension is axis 0.
module halocline_patches
  use halocline
  implicit none
  public

  ! Where the turning point of a fold lies.
  integer(c_int32_t), parameter :: HALOCLINE_PIVOT_CELL = 0, HALOCLINE_PIVOT_CORNER = 1
  ! How a seam joins its sides.
  integer(c_int32_t), parameter :: HALOCLINE_SEAM_JOIN = 0, HALOCLINE_SEAM_JOIN_REVERSED = 1
  integer(c_int32_t), parameter :: HALOCLINE_SEAM_FOLD_CELL = 2, HALOCLINE_SEAM_FOLD_CORNER = 3, HALOCLINE_SEAM_POLE = 4
  ! Where values lie along an axis.
  integer(c_int32_t), parameter :: HALOCLINE_ALONG_CENTRE = 0, HALOCLINE_ALONG_FACES = 1, HALOCLINE_ALONG_HIGH_FACES = 2
  integer(c_int32_t), parameter :: HALOCLINE_ALONG_LOW_FACES = 3

  ! Handles.
  type, bind(c) :: halocline_patch_grid
    integer(c_int64_t) :: id = 0
  end type
  type, bind(c) :: halocline_patch_decomposition
    integer(c_int64_t) :: id = 0
  end type

  type, bind(c) :: halocline_patch_side
    integer(c_size_t) :: patch = 0
    integer(c_size_t) :: axis = 0
    integer(c_int32_t) :: is_high = 0
  end type
  type, bind(c) :: halocline_seam
    integer(c_int32_t) :: kind = HALOCLINE_SEAM_JOIN
    type(halocline_patch_side) :: one
    type(halocline_patch_side) :: other
  end type
  ! places(axis, component): by default scalars at the centres of cells. halocline_quantity_of makes one of components.
  type, bind(c) :: halocline_quantity
    integer(c_size_t) :: size = 32
    integer(c_size_t) :: components = 1
    integer(c_int32_t) :: places(2, 2) = HALOCLINE_ALONG_CENTRE
  end type
  type, bind(c) :: halocline_patch_block
    integer(c_size_t) :: size = 56
    integer(c_size_t) :: patch = 0
    integer(c_size_t) :: first(2) = 0
    integer(c_size_t) :: extents(2) = 0
    integer(c_size_t) :: owner = 0
  end type
  type, bind(c) :: halocline_patch_transfer
    integer(c_int64_t) :: from = 0
    integer(c_int64_t) :: to = 0
    integer(c_size_t) :: from_rank = 0
    integer(c_size_t) :: to_rank = 0
    integer(c_size_t) :: from_component = 0
    integer(c_size_t) :: to_component = 0
    integer(c_int64_t) :: source(2) = 0
    integer(c_int64_t) :: target(2) = 0
    integer(c_size_t) :: extents(2) = 0
    integer(c_int32_t) :: is_swapped = 0
    integer(c_int32_t) :: is_flipped(2) = 0
    integer(c_int32_t) :: is_negated = 0
  end type

  interface
    ! `extents` has the rows and columns of patch 0, then those of patch 1: an array (2, patches).
    function halocline_patch_grid_create(extents, patches, seams, seam_count, grid) bind(c) result(status)
      import
      integer(c_size_t), intent(in) :: extents(2, *)
      integer(c_size_t), value :: patches
      type(halocline_seam), intent(in) :: seams(*)
      integer(c_size_t), value :: seam_count
      type(halocline_patch_grid), intent(out) :: grid
      integer(c_int32_t) :: status
    end function

    function halocline_patch_grid_cubed_sphere(n, grid) bind(c) result(status)
      import
      integer(c_size_t), value :: n
      type(halocline_patch_grid), intent(out) :: grid
      integer(c_int32_t) :: status
    end function

    function halocline_cubed_sphere_point(tile, along, point) bind(c) result(status)
      import
      integer(c_size_t), value :: tile
      real(c_double), intent(in) :: along(2)
      real(c_double), intent(out) :: point(3)
      integer(c_int32_t) :: status
    end function

    function halocline_patch_grid_lat_lon_cap(n, grid) bind(c) result(status)
      import
      integer(c_size_t), value :: n
      type(halocline_patch_grid), intent(out) :: grid
      integer(c_int32_t) :: status
    end function

    function halocline_patch_grid_tripolar(rows, columns, pivot, grid) bind(c) result(status)
      import
      integer(c_size_t), value :: rows, columns
      integer(c_int32_t), value :: pivot
      type(halocline_patch_grid), intent(out) :: grid
      integer(c_int32_t) :: status
    end function

    function halocline_patch_grid_latitude_longitude(rows, columns, grid) bind(c) result(status)
      import
      integer(c_size_t), value :: rows, columns
      type(halocline_patch_grid), intent(out) :: grid
      integer(c_int32_t) :: status
    end function

    function halocline_patch_grid_corners_through(grid, axis, filled) bind(c) result(status)
      import
      type(halocline_patch_grid), value :: grid
      integer(c_size_t), value :: axis
      type(halocline_patch_grid), intent(out) :: filled
      integer(c_int32_t) :: status
    end function

    function halocline_patch_grid_extents(grid, extents, capacity, count) bind(c) result(status)
      import
      type(halocline_patch_grid), value :: grid
      integer(c_size_t), intent(inout), optional :: extents(2, *)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: count
      integer(c_int32_t) :: status
    end function

    function halocline_patch_grid_seams(grid, seams, capacity, count) bind(c) result(status)
      import
      type(halocline_patch_grid), value :: grid
      type(halocline_seam), intent(inout), optional :: seams(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: count
      integer(c_int32_t) :: status
    end function

    function halocline_patch_grid_free(handle) bind(c) result(status)
      import
      type(halocline_patch_grid), intent(inout) :: handle
      integer(c_int32_t) :: status
    end function

    function halocline_patch_decompose(grid, ranks, decomposition) bind(c) result(status)
      import
      type(halocline_patch_grid), value :: grid
      integer(c_size_t), value :: ranks
      type(halocline_patch_decomposition), intent(out) :: decomposition
      integer(c_int32_t) :: status
    end function

    ! `blocks`: an array (2, patches).
    function halocline_patch_decompose_into(grid, blocks, ranks, decomposition) bind(c) result(status)
      import
      type(halocline_patch_grid), value :: grid
      integer(c_size_t), intent(in) :: blocks(2, *)
      integer(c_size_t), value :: ranks
      type(halocline_patch_decomposition), intent(out) :: decomposition
      integer(c_int32_t) :: status
    end function

    function halocline_patch_decomposition_describe(decomposition, ranks, domains, blocks, capacity, count) bind(c) &
      result(status)
      import
      type(halocline_patch_decomposition), value :: decomposition
      integer(c_size_t), intent(out), optional :: ranks
      integer(c_int64_t), intent(out), optional :: domains
      integer(c_size_t), intent(inout), optional :: blocks(2, *)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: count
      integer(c_int32_t) :: status
    end function

    function halocline_patch_decomposition_domains_of(decomposition, rank, first, end) bind(c) result(status)
      import
      type(halocline_patch_decomposition), value :: decomposition
      integer(c_size_t), value :: rank
      integer(c_int64_t), intent(out) :: first, end
      integer(c_int32_t) :: status
    end function

    function halocline_patch_decomposition_block(decomposition, domain, quantity, component, block) bind(c) result(status)
      import
      type(halocline_patch_decomposition), value :: decomposition
      integer(c_int64_t), value :: domain
      type(halocline_quantity), intent(in), optional :: quantity
      integer(c_size_t), value :: component
      type(halocline_patch_block), intent(inout) :: block
      integer(c_int32_t) :: status
    end function

    function halocline_patch_transfers(decomposition, rank, quantity, halo, transfers, capacity, count) bind(c) &
      result(status)
      import
      type(halocline_patch_decomposition), value :: decomposition
      integer(c_size_t), value :: rank
      type(halocline_quantity), intent(in), optional :: quantity
      type(halocline_halo), intent(in) :: halo
      type(halocline_patch_transfer), intent(inout), optional :: transfers(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: count
      integer(c_int32_t) :: status
    end function

    function halocline_patch_decomposition_free(handle) bind(c) result(status)
      import
      type(halocline_patch_decomposition), intent(inout) :: handle
      integer(c_int32_t) :: status
    end function

    function halocline_pattern_patches(comm, decomposition, quantity, halo, pattern) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      type(halocline_patch_decomposition), value :: decomposition
      type(halocline_quantity), intent(in), optional :: quantity
      type(halocline_halo), intent(in) :: halo
      type(halocline_pattern), intent(out) :: pattern
      integer(c_int32_t) :: status
    end function

    function halocline_pattern_component(pattern, component, of_component) bind(c) result(status)
      import
      type(halocline_pattern), value :: pattern
      integer(c_size_t), value :: component
      type(halocline_pattern), intent(out) :: of_component
      integer(c_int32_t) :: status
    end function
  end interface

contains

  ! Scalars at a place, which has an element for each axis; with `second` vectors, whose component 0 lies at the first place.
  pure function halocline_quantity_of(first, second) result(quantity)
    integer(c_int32_t), intent(in) :: first(2)
    integer(c_int32_t), intent(in), optional :: second(2)
    type(halocline_quantity) :: quantity
    quantity%places(:, 1) = first
    if (present(second)) then
      quantity%components = 2
      quantity%places(:, 2) = second
    end if
  end function
end module
