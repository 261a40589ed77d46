! Grids, patterns and domains: the functions of halocline/grid.h and halocline/pattern.h, which have their contracts. Included by
! halocline.f90.
module halocline_grids
  use halocline_types
  implicit none
  public

  interface
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

    function halocline_decompose_at(grid, counts, cuts, ranks, decomposition) bind(c) result(status)
      import
      type(halocline_grid), intent(in) :: grid
      integer(c_size_t), intent(in) :: counts(*), cuts(*)
      integer(c_size_t), value :: ranks
      type(halocline_decomposition), intent(out) :: decomposition
      integer(c_int32_t) :: status
    end function

    ! `firsts` and `extents` have the axes of box 1, then those of box 2: arrays (axes, boxes).
    function halocline_decompose_boxes(grid, count, owners, firsts, extents, ranks, decomposition) bind(c) result(status)
      import
      type(halocline_grid), intent(in) :: grid
      integer(c_size_t), value :: count
      integer(c_size_t), intent(in) :: owners(*), firsts(*), extents(*)
      integer(c_size_t), value :: ranks
      type(halocline_decomposition), intent(out) :: decomposition
      integer(c_int32_t) :: status
    end function

    function halocline_decomposition_staggered(decomposition, axes, staggered) bind(c) result(status)
      import
      type(halocline_decomposition), value :: decomposition
      integer(c_int32_t), intent(in) :: axes(*)
      type(halocline_decomposition), intent(out) :: staggered
      integer(c_int32_t) :: status
    end function

    ! `extents` and `blocks` have HALOCLINE_AXES elements.
    function halocline_decomposition_describe(decomposition, axes, extents, ranks, domains, blocks) bind(c) result(status)
      import
      type(halocline_decomposition), value :: decomposition
      integer(c_size_t), intent(out), optional :: axes
      integer(c_size_t), intent(inout), optional :: extents(*)
      integer(c_size_t), intent(out), optional :: ranks
      integer(c_int64_t), intent(out), optional :: domains
      integer(c_size_t), intent(inout), optional :: blocks(*)
      integer(c_int32_t) :: status
    end function

    function halocline_decomposition_free(handle) bind(c) result(status)
      import
      type(halocline_decomposition), intent(inout) :: handle
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

    function halocline_pattern_narrowed(pattern, to, narrowed) bind(c) result(status)
      import
      type(halocline_pattern), value :: pattern
      type(halocline_halo), intent(in) :: to
      type(halocline_pattern), intent(out) :: narrowed
      integer(c_int32_t) :: status
    end function

    function halocline_pattern_domains(pattern, count) bind(c) result(status)
      import
      type(halocline_pattern), value :: pattern
      integer(c_size_t), intent(out) :: count
      integer(c_int32_t) :: status
    end function

    function halocline_pattern_domain(pattern, index, domain) bind(c) result(status)
      import
      type(halocline_pattern), value :: pattern
      integer(c_size_t), value :: index
      type(halocline_domain), intent(inout) :: domain
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
      type(halocline_box), intent(inout), optional :: boxes(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: count
      integer(c_int32_t) :: status
    end function

    function halocline_domain_halo(pattern, index, boxes, capacity, count) bind(c) result(status)
      import
      type(halocline_pattern), value :: pattern
      integer(c_size_t), value :: index
      type(halocline_box), intent(inout), optional :: boxes(*)
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

    function halocline_domain_local(pattern, index, global, local, found) bind(c) result(status)
      import
      type(halocline_pattern), value :: pattern
      integer(c_size_t), value :: index
      integer(c_int64_t), intent(in) :: global(*)
      integer(c_size_t), intent(inout) :: local(*)
      integer(c_int32_t), intent(out) :: found
      integer(c_int32_t) :: status
    end function

    function halocline_pattern_free(handle) bind(c) result(status)
      import
      type(halocline_pattern), intent(inout) :: handle
      integer(c_int32_t) :: status
    end function
  end interface
end module
