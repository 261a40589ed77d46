! Unstructured domains, meshes, grid files of ICON and index lists in Fortran: the functions of halocline/mesh.h, halocline/icon.h and
! halocline/index_lists.h, which have their contracts. Compile it after halocline.f90.
!
!   status = halocline_mesh_create(vertices, triangles, 3_c_size_t, corners - 1, 0, mesh)
!   status = halocline_partition_elements(mesh, 2_c_size_t, ranks, partition)
!   status = halocline_mesh_halos_create(comm, mesh, partition, rank, 1_c_size_t, HALOCLINE_SHARED_VERTEX, 0, halos)
!   status = halocline_pattern_mesh(comm, halos, HALOCLINE_VERTICES, pattern)
!   status = halocline_field_along(t, [2], 1, field)
!
! Vertices, elements, edges, ranks, parts and local indices count from 0, as in C.
module halocline_meshes
  use halocline
  implicit none
  public

  ! What two neighbouring elements share, and kinds of cells.
  integer(c_int32_t), parameter :: HALOCLINE_SHARED_VERTEX = 0, HALOCLINE_SHARED_EDGE = 1, HALOCLINE_SHARED_FACET = 2
  integer(c_int32_t), parameter :: HALOCLINE_ELEMENTS = 0, HALOCLINE_VERTICES = 1, HALOCLINE_EDGES = 2

  ! Handles.
  type, bind(c) :: halocline_mesh
    integer(c_int64_t) :: id = 0
  end type
  type, bind(c) :: halocline_partition
    integer(c_int64_t) :: id = 0
  end type
  type, bind(c) :: halocline_mesh_halos
    integer(c_int64_t) :: id = 0
  end type
  type, bind(c) :: halocline_icon_grid
    integer(c_int64_t) :: id = 0
  end type
  type, bind(c) :: halocline_index_lists
    integer(c_int64_t) :: id = 0
  end type

  ! What halocline_icon_edge_cells stores where no cell is, or one that is not local: 2^32 - 1, which is -1 in Fortran.
  integer(c_int32_t), parameter :: HALOCLINE_NO_CELL = -1

  ! An unstructured domain of this rank.
  type, bind(c) :: halocline_cells
    integer(c_size_t) :: size = 80
    integer(c_int64_t) :: number = 0
    integer(c_size_t) :: count = 0
    type(c_ptr) :: ids = c_null_ptr
    integer(c_size_t) :: halo_count = 0
    type(c_ptr) :: halo_ids = c_null_ptr
    type(c_ptr) :: halo_indices = c_null_ptr
    type(c_ptr) :: owners = c_null_ptr
    integer(c_size_t) :: level_count = 0
    type(c_ptr) :: levels = c_null_ptr
  end type

  interface
    function halocline_pattern_unstructured(comm, cells, count, pattern) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      type(halocline_cells), intent(in) :: cells(*)
      integer(c_size_t), value :: count
      type(halocline_pattern), intent(out) :: pattern
      integer(c_int32_t) :: status
    end function

    function halocline_domain_ids(pattern, index, ids, capacity, count) bind(c) result(status)
      import
      type(halocline_pattern), value :: pattern
      integer(c_size_t), value :: index
      integer(c_int64_t), intent(inout), optional :: ids(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: count
      integer(c_int32_t) :: status
    end function

    function halocline_domain_interior_by(pattern, index, offsets, neighbours, indices, capacity, count) bind(c) result(status)
      import
      type(halocline_pattern), value :: pattern
      integer(c_size_t), value :: index
      integer(c_size_t), intent(in) :: offsets(*), neighbours(*)
      integer(c_size_t), intent(inout), optional :: indices(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: count
      integer(c_int32_t) :: status
    end function

    function halocline_domain_owned(pattern, index, indices, capacity, count) bind(c) result(status)
      import
      type(halocline_pattern), value :: pattern
      integer(c_size_t), value :: index
      integer(c_size_t), intent(inout), optional :: indices(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: count
      integer(c_int32_t) :: status
    end function

    function halocline_mesh_create(vertices, elements, arity, connectivity, solid, mesh) bind(c) result(status)
      import
      integer(c_size_t), value :: vertices
      integer(c_size_t), value :: elements
      integer(c_size_t), value :: arity
      integer(c_int32_t), intent(in) :: connectivity(*)
      integer(c_int32_t), value :: solid
      type(halocline_mesh), intent(out) :: mesh
      integer(c_int32_t) :: status
    end function

    function halocline_mesh_create_mixed(vertices, elements, offsets, connectivity, solid, mesh) bind(c) result(status)
      import
      integer(c_size_t), value :: vertices
      integer(c_size_t), value :: elements
      integer(c_size_t), intent(in) :: offsets(*)
      integer(c_int32_t), intent(in) :: connectivity(*)
      integer(c_int32_t), value :: solid
      type(halocline_mesh), intent(out) :: mesh
      integer(c_int32_t) :: status
    end function

    function halocline_mesh_part(local, vertex_ids, element_ids, partition, part, depth, mesh) bind(c) result(status)
      import
      type(halocline_mesh), value :: local
      integer(c_int64_t), intent(in) :: vertex_ids(*)
      integer(c_int64_t), intent(in) :: element_ids(*)
      type(halocline_partition), value :: partition
      integer(c_size_t), value :: part
      integer(c_size_t), value :: depth
      type(halocline_mesh), intent(out) :: mesh
      integer(c_int32_t) :: status
    end function

    function halocline_mesh_refined(mesh, partition, part, segments, depth, refined) bind(c) result(status)
      import
      type(halocline_mesh), value :: mesh
      type(halocline_partition), value :: partition
      integer(c_size_t), value :: part
      integer(c_size_t), value :: segments
      integer(c_size_t), value :: depth
      type(halocline_mesh), intent(out) :: refined
      integer(c_int32_t) :: status
    end function

    function halocline_mesh_size(mesh, vertices, elements) bind(c) result(status)
      import
      type(halocline_mesh), value :: mesh
      integer(c_size_t), intent(out), optional :: vertices, elements
      integer(c_int32_t) :: status
    end function

    function halocline_mesh_element_vertices(mesh, vertices, capacity, count) bind(c) result(status)
      import
      type(halocline_mesh), value :: mesh
      integer(c_int32_t), intent(inout), optional :: vertices(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: count
      integer(c_int32_t) :: status
    end function

    function halocline_mesh_element_offsets(mesh, offsets, capacity, count) bind(c) result(status)
      import
      type(halocline_mesh), value :: mesh
      integer(c_size_t), intent(inout), optional :: offsets(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: count
      integer(c_int32_t) :: status
    end function

    function halocline_mesh_graph(mesh, kind, common, offsets, neighbours, capacity, count) bind(c) result(status)
      import
      type(halocline_mesh), value :: mesh
      integer(c_int32_t), value :: kind
      integer(c_size_t), value :: common
      integer(c_size_t), intent(inout), optional :: offsets(*)
      integer(c_int32_t), intent(inout), optional :: neighbours(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: count
      integer(c_int32_t) :: status
    end function

    function halocline_partition_block(cells, ranks, partition) bind(c) result(status)
      import
      integer(c_size_t), value :: cells
      integer(c_size_t), value :: ranks
      type(halocline_partition), intent(out) :: partition
      integer(c_int32_t) :: status
    end function

    function halocline_partition_given(owners, cells, ranks, partition) bind(c) result(status)
      import
      integer(c_size_t), intent(in) :: owners(*)
      integer(c_size_t), value :: cells
      integer(c_size_t), value :: ranks
      type(halocline_partition), intent(out) :: partition
      integer(c_int32_t) :: status
    end function

    function halocline_partition_graph(cells, offsets, neighbours, ranks, partition) bind(c) result(status)
      import
      integer(c_size_t), value :: cells
      integer(c_size_t), intent(in) :: offsets(*)
      integer(c_int32_t), intent(in) :: neighbours(*)
      integer(c_size_t), value :: ranks
      type(halocline_partition), intent(out) :: partition
      integer(c_int32_t) :: status
    end function

    function halocline_partition_elements(mesh, common, ranks, partition) bind(c) result(status)
      import
      type(halocline_mesh), value :: mesh
      integer(c_size_t), value :: common
      integer(c_size_t), value :: ranks
      type(halocline_partition), intent(out) :: partition
      integer(c_int32_t) :: status
    end function

    function halocline_partition_vertices(mesh, ranks, partition) bind(c) result(status)
      import
      type(halocline_mesh), value :: mesh
      integer(c_size_t), value :: ranks
      type(halocline_partition), intent(out) :: partition
      integer(c_int32_t) :: status
    end function

    ! `points` is an array (dimensions, cells).
    function halocline_partition_bisection(points, cells, dimensions, weights, ranks, partition) bind(c) result(status)
      import
      real(c_double), intent(in) :: points(*)
      integer(c_size_t), value :: cells, dimensions
      real(c_double), intent(in), optional :: weights(*)
      integer(c_size_t), value :: ranks
      type(halocline_partition), intent(out) :: partition
      integer(c_int32_t) :: status
    end function

    function halocline_partition_counts(partition, counts, capacity, count) bind(c) result(status)
      import
      type(halocline_partition), value :: partition
      integer(c_size_t), intent(inout), optional :: counts(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: count
      integer(c_int32_t) :: status
    end function

    function halocline_partition_owners(partition, owners, capacity, count) bind(c) result(status)
      import
      type(halocline_partition), value :: partition
      integer(c_size_t), intent(inout), optional :: owners(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: count
      integer(c_int32_t) :: status
    end function

    function halocline_mesh_halos_create(comm, mesh, partition, part, depth, shared, edges, halos) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      type(halocline_mesh), value :: mesh
      type(halocline_partition), value :: partition
      integer(c_size_t), value :: part
      integer(c_size_t), value :: depth
      integer(c_int32_t), value :: shared
      integer(c_int32_t), value :: edges
      type(halocline_mesh_halos), intent(out) :: halos
      integer(c_int32_t) :: status
    end function

    function halocline_mesh_icon_halos(comm, mesh, partition, part, halos) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      type(halocline_mesh), value :: mesh
      type(halocline_partition), value :: partition
      integer(c_size_t), value :: part
      type(halocline_mesh_halos), intent(out) :: halos
      integer(c_int32_t) :: status
    end function

    function halocline_mesh_domains_by_vertex(comm, mesh, partition, part, halos) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      type(halocline_mesh), value :: mesh
      type(halocline_partition), value :: partition
      integer(c_size_t), value :: part
      type(halocline_mesh_halos), intent(out) :: halos
      integer(c_int32_t) :: status
    end function

    function halocline_mesh_domains_by_element(comm, mesh, partition, part, halos) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      type(halocline_mesh), value :: mesh
      type(halocline_partition), value :: partition
      integer(c_size_t), value :: part
      type(halocline_mesh_halos), intent(out) :: halos
      integer(c_int32_t) :: status
    end function

    function halocline_pattern_mesh(comm, halos, kind, pattern) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      type(halocline_mesh_halos), value :: halos
      integer(c_int32_t), value :: kind
      type(halocline_pattern), intent(out) :: pattern
      integer(c_int32_t) :: status
    end function

    function halocline_mesh_ids(halos, kind, ids, capacity, count, owned) bind(c) result(status)
      import
      type(halocline_mesh_halos), value :: halos
      integer(c_int32_t), value :: kind
      integer(c_int64_t), intent(inout), optional :: ids(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: count
      integer(c_size_t), intent(out), optional :: owned
      integer(c_int32_t) :: status
    end function

    function halocline_mesh_connectivity(halos, vertices, capacity, count) bind(c) result(status)
      import
      type(halocline_mesh_halos), value :: halos
      integer(c_int32_t), intent(inout), optional :: vertices(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: count
      integer(c_int32_t) :: status
    end function

    function halocline_mesh_offsets(halos, offsets, capacity, count) bind(c) result(status)
      import
      type(halocline_mesh_halos), value :: halos
      integer(c_size_t), intent(inout), optional :: offsets(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: count
      integer(c_int32_t) :: status
    end function

    function halocline_mesh_edges(halos, ends, capacity, count) bind(c) result(status)
      import
      type(halocline_mesh_halos), value :: halos
      integer(c_int32_t), intent(inout), optional :: ends(2, *)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: count
      integer(c_int32_t) :: status
    end function

    ! `path` ends with c_null_char.
    function halocline_icon_grid_open(comm, path, grid) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      character(kind=c_char), intent(in) :: path(*)
      type(halocline_icon_grid), intent(out) :: grid
      integer(c_int32_t) :: status
    end function

    function halocline_icon_grid_size(grid, cells, edges, vertices) bind(c) result(status)
      import
      type(halocline_icon_grid), value :: grid
      integer(c_size_t), intent(out), optional :: cells, edges, vertices
      integer(c_int32_t) :: status
    end function

    function halocline_icon_grid_mesh(grid, mesh) bind(c) result(status)
      import
      type(halocline_icon_grid), value :: grid
      type(halocline_mesh), intent(out) :: mesh
      integer(c_int32_t) :: status
    end function

    function halocline_icon_grid_part(comm, grid, partition, part, halos) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      type(halocline_icon_grid), value :: grid
      type(halocline_partition), value :: partition
      integer(c_size_t), value :: part
      type(halocline_mesh_halos), intent(out) :: halos
      integer(c_int32_t) :: status
    end function

    ! `name` ends with c_null_char.
    function halocline_icon_grid_read(grid, name, ids, id_count, values, capacity, count) bind(c) result(status)
      import
      type(halocline_icon_grid), value :: grid
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), intent(in) :: ids(*)
      integer(c_size_t), value :: id_count
      real(c_double), intent(inout), optional :: values(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: count
      integer(c_int32_t) :: status
    end function

    function halocline_icon_cell_edges(halos, edges, capacity, count) bind(c) result(status)
      import
      type(halocline_mesh_halos), value :: halos
      integer(c_int32_t), intent(inout), optional :: edges(3, *)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: count
      integer(c_int32_t) :: status
    end function

    function halocline_icon_edge_cells(halos, cells, capacity, count) bind(c) result(status)
      import
      type(halocline_mesh_halos), value :: halos
      integer(c_int32_t), intent(inout), optional :: cells(2, *)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: count
      integer(c_int32_t) :: status
    end function

    function halocline_icon_grid_free(handle) bind(c) result(status)
      import
      type(halocline_icon_grid), intent(inout) :: handle
      integer(c_int32_t) :: status
    end function

    function halocline_icosahedral_grid(bisections, mesh, points, capacity, count) bind(c) result(status)
      import
      integer(c_size_t), value :: bisections
      type(halocline_mesh), intent(out) :: mesh
      real(c_double), intent(inout), optional :: points(3, *)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: count
      integer(c_int32_t) :: status
    end function

    function halocline_mesh_free(handle) bind(c) result(status)
      import
      type(halocline_mesh), intent(inout) :: handle
      integer(c_int32_t) :: status
    end function

    function halocline_partition_free(handle) bind(c) result(status)
      import
      type(halocline_partition), intent(inout) :: handle
      integer(c_int32_t) :: status
    end function

    function halocline_mesh_halos_free(handle) bind(c) result(status)
      import
      type(halocline_mesh_halos), intent(inout) :: handle
      integer(c_int32_t) :: status
    end function

    function halocline_index_lists_create(lists) bind(c) result(status)
      import
      type(halocline_index_lists), intent(out) :: lists
      integer(c_int32_t) :: status
    end function

    function halocline_index_lists_owned(lists, owners, size, ranks, rank_count, indices, stream) bind(c) result(status)
      import
      type(halocline_index_lists), value :: lists
      type(halocline_field), value :: owners
      integer(c_size_t), value :: size
      integer(c_size_t), intent(in) :: ranks(*)
      integer(c_size_t), value :: rank_count
      type(halocline_field), value :: indices
      type(halocline_stream), value :: stream
      integer(c_int32_t) :: status
    end function

    function halocline_index_lists_unique(lists, ids, unique, stream) bind(c) result(status)
      import
      type(halocline_index_lists), value :: lists
      type(halocline_field), value :: ids
      type(halocline_field), value :: unique
      type(halocline_stream), value :: stream
      integer(c_int32_t) :: status
    end function

    function halocline_index_lists_counts(lists, counts, capacity, count) bind(c) result(status)
      import
      type(halocline_index_lists), value :: lists
      integer(c_size_t), intent(inout) :: counts(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: count
      integer(c_int32_t) :: status
    end function

    function halocline_index_lists_free(handle) bind(c) result(status)
      import
      type(halocline_index_lists), intent(inout) :: handle
      integer(c_int32_t) :: status
    end function

    function halocline_pattern_of_owners(comm, number, ids, owners, stream, pattern) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      integer(c_int64_t), value :: number
      type(halocline_field), value :: ids
      type(halocline_field), value :: owners
      type(halocline_stream), value :: stream
      type(halocline_pattern), intent(out) :: pattern
      integer(c_int32_t) :: status
    end function
  end interface
end module
