! Calls of the module `halocline_meshes` on one rank: their arguments and results, and errors.
program meshes
  use checks
  use halocline_meshes
  implicit none

  type(halocline_comm) :: comm
  character(:), allocatable :: message

  call check(halocline_init(comm))
  call list_cells()
  call cut_partitions()
  call divide_vertices()
  call cut_squares()
  call read_grid_file()
  call choose_dimensions()
  call done(comm)
  deallocate (message)

contains

  ! A domain that is a list of cells: three owned ones; a halo needs another rank.
  subroutine list_cells()
    type(halocline_cells) :: cells(1)
    type(halocline_pattern) :: pattern
    integer(c_int64_t), target :: ids(3)
    integer(c_int64_t) :: found(3)
    integer(c_size_t) :: owned(3), count
    ids = [7, 3, 5]
    cells(1)%count = 3
    cells(1)%ids = c_loc(ids)
    call check(halocline_pattern_unstructured(comm, cells, 1_c_size_t, pattern))
    call check(halocline_domain_ids(pattern, 0_c_size_t, found, 3_c_size_t, count))
    call expect(count == 3 .and. all(found == ids), "ids of a domain")
    call check(halocline_domain_owned(pattern, 0_c_size_t, owned, 3_c_size_t, count))
    call expect(count == 3 .and. all(owned == [0, 1, 2]), "owned cells of a domain")
    ! A row: the neighbours of the ends are not on this rank.
    call check(halocline_domain_interior_by(pattern, 0_c_size_t, int([0, 2, 4, 6], c_size_t), int([9, 1, 0, 2, 1, 9], c_size_t), &
                                            owned, 3_c_size_t, count))
    call expect(count == 1 .and. owned(1) == 1, "the interior of a row")
    call check(halocline_pattern_free(pattern))
    cells(1)%size = 79
    call expect(halocline_pattern_unstructured(comm, cells, 1_c_size_t, pattern) == HALOCLINE_ERROR_ARGUMENT, "another size")
  end subroutine

  ! A path of four cells, in two parts.
  subroutine cut_partitions()
    type(halocline_partition) :: partition
    integer(c_size_t) :: owners(4), count
    call check(halocline_partition_block(4_c_size_t, 2_c_size_t, partition))
    call check(halocline_partition_owners(partition, capacity=0_c_size_t, count=count))
    call expect(count == 4, "the number of cells")
    call check(halocline_partition_owners(partition, owners, 4_c_size_t, count))
    call expect(count == 4 .and. all(owners == [0, 0, 1, 1]), "blocks")
    call check(halocline_partition_free(partition))
    call check(halocline_partition_given(int([1, 0, 1, 0], c_size_t), 4_c_size_t, 2_c_size_t, partition))
    call check(halocline_partition_owners(partition, owners, 4_c_size_t, count))
    call expect(all(owners == [1, 0, 1, 0]), "given owners")
    call check(halocline_partition_free(partition))
    call check(halocline_partition_graph(4_c_size_t, int([0, 1, 3, 5, 6], c_size_t), [1, 0, 2, 1, 3, 2], 2_c_size_t, partition))
    call check(halocline_partition_owners(partition, owners, 4_c_size_t, count))
    call expect(sum(owners) == 2 .and. owners(1) == owners(2), "the parts of a path")
    call check(halocline_partition_free(partition))
    call expect(halocline_partition_owners(partition, owners, 4_c_size_t, count) == HALOCLINE_ERROR_HANDLE, "a freed handle")
  end subroutine

  ! Partitions by coordinates and of the vertices of a mesh, the domains that they make, and the graph of the mesh.
  subroutine divide_vertices()
    type(halocline_partition) :: partition
    type(halocline_mesh) :: mesh
    type(halocline_mesh_halos) :: halos
    integer(c_size_t) :: owners(4), counts(2), offsets(5), count, owned
    integer(c_int32_t) :: neighbours(10), corners(6)
    real(c_double) :: points(2, 4)
    points(1, :) = [3, 2, 1, 0]
    points(2, :) = 7
    call check(halocline_partition_bisection(points, 4_c_size_t, 2_c_size_t, ranks=2_c_size_t, partition=partition))
    call check(halocline_partition_owners(partition, owners, 4_c_size_t, count))
    call expect(all(owners == [1, 1, 0, 0]), "owners by coordinates")
    call check(halocline_partition_counts(partition, counts, 2_c_size_t, count))
    call expect(count == 2 .and. all(counts == 2), "cells of each rank")
    call check(halocline_partition_free(partition))
    call check(halocline_mesh_create(4_c_size_t, 2_c_size_t, 3_c_size_t, [0, 1, 2, 0, 2, 3], 0, mesh))
    call check(halocline_mesh_element_vertices(mesh, corners, 6_c_size_t, count))
    call expect(count == 6 .and. all(corners == [0, 1, 2, 0, 2, 3]), "the vertices of a mesh")
    call check(halocline_mesh_element_offsets(mesh, offsets, 5_c_size_t, count))
    call expect(count == 3 .and. all(offsets(:3) == [0, 3, 6]), "where the elements of a mesh begin")
    call check(halocline_mesh_graph(mesh, HALOCLINE_VERTICES, 0_c_size_t, offsets, neighbours, 10_c_size_t, count))
    call expect(count == 10 .and. all(offsets == [0, 3, 5, 8, 10]), "the graph of the vertices")
    call check(halocline_partition_vertices(mesh, 1_c_size_t, partition))
    call check(halocline_mesh_domains_by_vertex(comm, mesh, partition, 0_c_size_t, halos))
    call check(halocline_mesh_ids(halos, HALOCLINE_VERTICES, capacity=0_c_size_t, count=count, owned=owned))
    call expect(count == 4 .and. owned == 4, "owned vertices")
    call check(halocline_mesh_halos_free(halos))
    call check(halocline_partition_free(partition))
    call check(halocline_partition_block(2_c_size_t, 1_c_size_t, partition))
    call check(halocline_mesh_domains_by_element(comm, mesh, partition, 0_c_size_t, halos))
    call check(halocline_mesh_halos_free(halos))
    call check(halocline_partition_free(partition))
    call check(halocline_mesh_free(mesh))
  end subroutine

  ! Two triangles and a square beside each other; the triangles alone, finer.
  subroutine cut_squares()
    type(halocline_mesh) :: mesh, refined, part
    type(halocline_partition) :: whole
    type(halocline_mesh_halos) :: halos
    type(halocline_pattern) :: pattern
    integer(c_size_t) :: vertices, elements, count, owned, offsets(4)
    integer(c_int32_t) :: corners(10), ends(2, 8)
    integer(c_int64_t) :: ids(8)
    call check(halocline_mesh_create_mixed(6_c_size_t, 3_c_size_t, int([0, 3, 6, 10], c_size_t), &
                                           [0, 1, 2, 0, 2, 3, 1, 4, 5, 2], 0, mesh))
    call check(halocline_mesh_size(mesh, vertices, elements))
    call expect(vertices == 6 .and. elements == 3, "the size of a mesh")
    call check(halocline_partition_elements(mesh, 2_c_size_t, 1_c_size_t, whole))
    call check(halocline_mesh_halos_create(comm, mesh, whole, 0_c_size_t, 1_c_size_t, HALOCLINE_SHARED_EDGE, 1, halos))
    call check(halocline_mesh_ids(halos, HALOCLINE_EDGES, ids, 8_c_size_t, count, owned))
    call expect(count == 8 .and. owned == 8, "the edges")
    call check(halocline_mesh_edges(halos, ends, 8_c_size_t, count))
    call expect(count == 8 .and. all(ends(1, :) < ends(2, :)), "the ends of edges")
    call check(halocline_mesh_offsets(halos, offsets, 4_c_size_t, count))
    call expect(count == 4 .and. all(offsets == [0, 3, 6, 10]), "where elements begin")
    call check(halocline_mesh_connectivity(halos, corners, 10_c_size_t, count))
    call expect(count == 10 .and. all(corners(7:) == [1, 4, 5, 2]), "the vertices of elements")
    call check(halocline_pattern_mesh(comm, halos, HALOCLINE_EDGES, pattern))
    call check(halocline_pattern_free(pattern))
    call check(halocline_mesh_halos_free(halos))
    call check(halocline_partition_free(whole))
    call check(halocline_mesh_free(mesh))

    call check(halocline_mesh_create(4_c_size_t, 2_c_size_t, 3_c_size_t, [0, 1, 2, 0, 2, 3], 0, mesh))
    call check(halocline_partition_block(2_c_size_t, 1_c_size_t, whole))
    call check(halocline_mesh_refined(mesh, whole, 0_c_size_t, 2_c_size_t, 1_c_size_t, refined))
    call check(halocline_mesh_size(refined, vertices, elements))
    call expect(vertices == 9 .and. elements == 8, "a finer mesh")
    call check(halocline_mesh_part(mesh, int([0, 1, 2, 3], c_int64_t), int([0, 1], c_int64_t), whole, 0_c_size_t, 1_c_size_t, part))
    call check(halocline_mesh_halos_create(comm, part, whole, 0_c_size_t, 1_c_size_t, HALOCLINE_SHARED_VERTEX, 0, halos))
    call check(halocline_mesh_ids(halos, HALOCLINE_VERTICES, ids, 8_c_size_t, count, owned))
    call expect(count == 4 .and. owned == 4, "the vertices of a part")
    call expect(halocline_mesh_ids(halos, 3, ids, 8_c_size_t, count, owned) == HALOCLINE_ERROR_ARGUMENT, "another kind of cells")
  end subroutine

  ! The grid file that GRID names, and a grid that needs no file.
  subroutine read_grid_file()
    type(halocline_icon_grid) :: grid
    type(halocline_mesh) :: mesh
    type(halocline_partition) :: whole
    type(halocline_mesh_halos) :: halos, same
    integer(c_size_t) :: cells, edges, vertices, count, owned
    integer(c_int64_t) :: ids(1920)
    integer(c_int32_t) :: of_cells(3, 1280), beside(2, 1920)
    real(c_double) :: numbers(3 * 1280), points(3, 162)
    character(1024) :: path
    call get_environment_variable("GRID", path)
    call check(halocline_icon_grid_open(comm, trim(path) // c_null_char, grid))
    call check(halocline_icon_grid_size(grid, cells, edges, vertices))
    call expect(cells == 1280 .and. edges == 1920 .and. vertices == 642, "the size of a grid")
    call check(halocline_icon_grid_mesh(grid, mesh))
    call check(halocline_partition_elements(mesh, 2_c_size_t, 1_c_size_t, whole))
    call check(halocline_icon_grid_part(comm, grid, whole, 0_c_size_t, halos))
    call check(halocline_mesh_ids(halos, HALOCLINE_ELEMENTS, ids, 1920_c_size_t, count, owned))
    call expect(count == 1280 .and. owned == 1280, "the cells of a part")
    call check(halocline_icon_grid_read(grid, "edge_of_cell" // c_null_char, ids, cells, numbers, 3840_c_size_t, count))
    call expect(count == 3840, "three edges for each cell")
    call check(halocline_mesh_ids(halos, HALOCLINE_EDGES, ids, 1920_c_size_t, count, owned))
    call check(halocline_icon_cell_edges(halos, of_cells, 1280_c_size_t, count))
    call expect(count == 1280 .and. all(ids(reshape(of_cells, [3840]) + 1) + 1 == int(numbers, c_int64_t)), "the edges of cells")
    call check(halocline_icon_edge_cells(halos, beside, 1920_c_size_t, count))
    call expect(count == 1920 .and. all(beside /= HALOCLINE_NO_CELL), "the cells beside edges")
    call check(halocline_mesh_icon_halos(comm, mesh, whole, 0_c_size_t, same))
    call check(halocline_mesh_halos_free(same))
    call check(halocline_mesh_halos_free(halos))
    call check(halocline_partition_free(whole))
    call check(halocline_mesh_free(mesh))
    call check(halocline_icon_grid_free(grid))
    call check(halocline_icosahedral_grid(2_c_size_t, mesh, points, 162_c_size_t, count))
    call expect(count == 162 .and. all(abs(sum(points**2, 1) - 1) < 1e-14_c_double), "the points of an icosahedral grid")
    call check(halocline_mesh_free(mesh))
    call expect(halocline_icon_grid_open(comm, "no-such-file.nc" // c_null_char, grid) == HALOCLINE_ERROR_ARGUMENT, &
                "a missing file")
    message = halocline_message()
    call expect(index(message, "cannot read no-such-file.nc") > 0, message)
  end subroutine

  ! Levels first, cells last.
  subroutine choose_dimensions()
    real(c_double), target :: t(2, 3)
    real(c_double), allocatable, target, save :: missing(:)
    type(halocline_field) :: field
    t = 0
    call check(halocline_field_along(t, [2], 1, field))
    call check(halocline_field_free(field))
    call expect(halocline_field_along(t, [3], 1, field) == HALOCLINE_ERROR_ARGUMENT, "a dimension that the array lacks")
    message = halocline_message()
    call expect(index(message, "dimension") > 0, message)
    call expect(halocline_field_along(t, [0], 1, field) == HALOCLINE_ERROR_ARGUMENT, "dimension 0")
    call expect(halocline_field_along(t, [1], 0, field) == HALOCLINE_ERROR_ARGUMENT, "no dimension")
    call expect(halocline_field_along(t, [1, 2, 1], 3, field) == HALOCLINE_ERROR_ARGUMENT, "more dimensions than the array has")
    call expect(halocline_field_of(missing, field) == HALOCLINE_ERROR_ARGUMENT, "an array that is not allocated")
    message = halocline_message()
    call expect(index(message, "not allocated") > 0, message)
    call expect(halocline_field_along(t, [2, 2], 2, field) == HALOCLINE_ERROR_ARGUMENT, "a dimension twice")
  end subroutine
end program
