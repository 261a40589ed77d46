! Sizes and counts that are negative, or that nothing can have: each is an error whose message has the number as the program wrote it.
program impossible_sizes
  use checks
  use halocline_meshes
  use halocline_packets
  use halocline_patches
  implicit none

  type(halocline_comm) :: comm
  type(halocline_decomposition) :: blocks
  type(halocline_pattern) :: pattern
  integer(c_int32_t), parameter :: WRONG = HALOCLINE_ERROR_ARGUMENT
  integer(c_size_t), parameter :: ONE = 1, TWO = 2

  call check(halocline_init_by_name("thread" // c_null_char, comm))
  call check(halocline_blocks([5, 6], ONE, blocks))
  call check(halocline_regular_pattern(comm, blocks, 1, pattern))
  call grids()
  call structs()
  call fields()
  call communicators()
  call meshes()
  call partitions()
  call earth()
  call lists()
  call done(comm)

contains

  subroutine grids()
    type(halocline_decomposition) :: none
    type(halocline_pattern) :: of_none
    type(halocline_domain) :: domain
    call refused(halocline_blocks([-5, 6], ONE, none), WRONG, "extents is [-5, 6]: every axis has at least 1 cell")
    call refused(halocline_blocks([0], ONE, none), WRONG, "extents is 0: every axis has at least 1 cell")
    call refused(halocline_blocks([integer ::], ONE, none), WRONG, "the grid has 0 axes")
    call refused(halocline_blocks([2, 2, 2, 2, 2], ONE, none), WRONG, "the grid has 5 axes; give 1 to 4")
    call refused(halocline_blocks([5, 6], ONE, none, blocks=[-1, -1]), WRONG, "blocks is [-1, -1]: every axis has at least 1")
    call refused(halocline_blocks([5, 6], -ONE, none), WRONG, "-1 (18446744073709551615 unsigned) ranks of 1")
    call refused(halocline_blocks([huge(1), huge(1), huge(1)], ONE, none), WRONG, "more cells than 2^60")
    call refused(halocline_regular_pattern(comm, blocks, -1, of_none), WRONG, "width is -1: a halo has 0 or more cells")
    call refused(halocline_regular_pattern(comm, blocks, huge(1), of_none), WRONG, "use narrower halos")
    call refused(halocline_pattern_domain(pattern, -ONE, domain), WRONG, "there is no domain -1 (")
  end subroutine

  ! Numbers within structs of C.
  subroutine structs()
    type(halocline_grid) :: grid
    type(halocline_halo) :: halo
    type(halocline_decomposition) :: none
    type(halocline_pattern) :: of_none
    integer(c_size_t), target :: extents(2), low(2)
    extents = [-5, 6]
    grid%axes = 2
    grid%extents = c_loc(extents)
    call refused(halocline_decompose(grid, ONE, none), WRONG, "a grid of [-5 (18446744073709551611 unsigned), 6]")
    extents = [5, 6]
    grid%domains_per_rank = -2
    call refused(halocline_decompose(grid, ONE, none), WRONG, "of -2 (")
    grid%domains_per_rank = 1
    grid%axes = -1
    call refused(halocline_decompose(grid, ONE, none), WRONG, "the grid has -1 (")
    halo%width = -1
    call refused(halocline_pattern_regular(comm, blocks, halo, of_none), WRONG, "-1 (")
    halo%width = 0
    halo%axes = 2
    low = [-1, 0]
    halo%low = c_loc(low)
    halo%high = c_loc(low)
    call refused(halocline_pattern_regular(comm, blocks, halo, of_none), WRONG, "[(-1 (")
  end subroutine

  subroutine fields()
    type(halocline_layout) :: layout
    type(halocline_field) :: field
    integer(c_size_t), target :: extents(2)
    real(c_double), target :: t(4, 4)
    extents = [-5, 6]
    layout%dimensions = 2
    layout%extents = c_loc(extents)
    layout%element = HALOCLINE_F64
    call refused(halocline_field_allocate(comm, layout, field), WRONG, "address space")
    layout%dimensions = -1
    call refused(halocline_field_allocate(comm, layout, field), WRONG, "dimensions of the layout is -1 (")
    layout%dimensions = 2
    extents = [5, 6]
    layout%element = halocline_opaque(HALOCLINE_F64 - 256)
    call refused(halocline_field_allocate(comm, layout, field), WRONG, "element of the layout is 0")
    call expect(all(halocline_opaque([0, 257]) == 0) .and. halocline_opaque(256) == 512, "opaque elements")
    call refused(halocline_field_along(t, [0], 1, field), WRONG, "dimensions count from 1")
    call refused(halocline_field_along(t, [-1], 1, field), WRONG, "dimensions count from 1")
    call refused(halocline_field_along(t, [1], -1, field), WRONG, "count is not the number of dimensions")
  end subroutine

  subroutine communicators()
    type(halocline_comm) :: comms(1)
    type(halocline_resource) :: host, limited
    real(c_double), target :: t(4)
    t = 0
    call refused(halocline_comm_threads(-ONE, comms), WRONG, "size is -1 (")
    call refused(halocline_broadcast(comm, -1, t), WRONG, "rank -1 (18446744073709551615 unsigned) does not exist")
    call refused(halocline_comm_broadcast(comm, 0_c_size_t, c_loc(t), -8_c_size_t), WRONG, "data has -8 (")
    call refused(halocline_comm_all_reduce(comm, c_loc(t), -TWO, HALOCLINE_F64, HALOCLINE_SUM), WRONG, "values has -2 (")
    call check(halocline_resource_host(comm, host))
    call refused(halocline_resource_limited(host, -5_c_size_t, 1.0_c_double, halocline_resource(), limited), WRONG, "bytes is -5 (")
    call check(halocline_resource_free(host))
  end subroutine

  subroutine meshes()
    type(halocline_mesh) :: mesh
    integer(c_size_t) :: count
    integer(c_int32_t) :: corners(6)
    corners = [0, 1, 2, 0, 2, 3]
    call refused(halocline_mesh_create(-4_c_size_t, TWO, 3_c_size_t, corners, 0, mesh), WRONG, "-4 (")
    call refused(halocline_mesh_create(4_c_size_t, -TWO, 3_c_size_t, corners, 0, mesh), WRONG, "more than the address space holds")
    call refused(halocline_mesh_create(4_c_size_t, TWO, -3_c_size_t, corners, 0, mesh), WRONG, "more than the address space holds")
    call refused(halocline_mesh_create_mixed(4_c_size_t, ONE, int([0, -6], c_size_t), corners, 0, mesh), WRONG, "-6 (")
    call refused(halocline_icosahedral_grid(-ONE, mesh, capacity=0_c_size_t, count=count), WRONG, "-1 (")
    corners(1) = -1
    call refused(halocline_mesh_create(4_c_size_t, TWO, 3_c_size_t, corners, 0, mesh), WRONG, "vertex 0 of element 0")
  end subroutine

  subroutine partitions()
    type(halocline_partition) :: partition
    real(c_double) :: points(2, 2)
    points = 0
    call refused(halocline_partition_block(-3_c_size_t, TWO, partition), HALOCLINE_ERROR_MEMORY, "-3 (")
    call refused(halocline_partition_block(3_c_size_t, -TWO, partition), WRONG, "-2 (")
    call refused(halocline_partition_given(int([-1, 0], c_size_t), TWO, TWO, partition), WRONG, "rank -1 (")
    call refused(halocline_partition_graph(ONE, int([0, -2], c_size_t), [1], TWO, partition), WRONG, "neighbours has -2 (")
    call refused(halocline_partition_bisection(points, TWO, -TWO, ranks=TWO, partition=partition), WRONG, "dimensions is -2 (")
    call refused(halocline_partition_bisection(points, TWO, TWO, ranks=-TWO, partition=partition), WRONG, "-2 (")
    call refused(halocline_partition_bisection(points, -TWO, TWO, ranks=TWO, partition=partition), WRONG, "points has -2 (")
  end subroutine

  ! Grids of patches.
  subroutine earth()
    type(halocline_patch_grid) :: grid
    call refused(halocline_patch_grid_cubed_sphere(-8_c_size_t, grid), WRONG, "use a smaller grid")
    call refused(halocline_patch_grid_cubed_sphere(0_c_size_t, grid), WRONG, "every axis has at least 1")
    call refused(halocline_patch_grid_tripolar(-8_c_size_t, 4_c_size_t, 0, grid), WRONG, "use a smaller grid")
  end subroutine

  ! Counts of elements of arrays.
  subroutine lists()
    type(halocline_binding) :: bindings(1)
    type(halocline_halo_exchange) :: halo
    type(halocline_pattern) :: of_none
    type(halocline_cells) :: cells(1)
    integer(c_int64_t), target :: ids(1)
    call refused(halocline_bind(comm, bindings, -ONE, halo=halo), WRONG, "bindings has -1 (")
    call refused(halocline_bind_alternatives(comm, bindings, ONE, -ONE, halo=halo), WRONG, "sets is -1 (")
    call refused(halocline_pattern_unstructured(comm, cells, -ONE, of_none), WRONG, "the list has -1 (")
    ids = 7
    cells(1)%ids = c_loc(ids)
    cells(1)%count = -1
    call refused(halocline_pattern_unstructured(comm, cells, ONE, of_none), WRONG, "ids has -1 (")
  end subroutine
end program
