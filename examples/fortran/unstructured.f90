! A field on the vertices of a triangle mesh, smoothed on all ranks: the ocean mesh of data/fesom-pi, partitioned by METIS. Levels come first in the
! arrays. At the end rank 0 smooths the same field alone and compares, bit by bit.
!
!   ./unstructured path/to/data/fesom-pi
!   halocline launch -n 4 -- ./unstructured path/to/data/fesom-pi
!   mpirun -n 4 ./unstructured path/to/data/fesom-pi
!
! halocline_init finds the ranks of either launcher.
program unstructured
  use halocline
  use halocline_meshes
  implicit none

  integer, parameter :: levels = 4, steps = 50
  ! The whole mesh: the vertices of each triangle, counted from 1.
  integer(c_int32_t), allocatable :: mesh_triangles(:, :)
  integer :: mesh_vertices
  ! The local part: triangles in the order of their global numbers, so that sums are the same on any number of ranks.
  integer(c_int32_t), allocatable :: triangles(:, :)
  integer(c_int64_t), allocatable :: ids(:)
  integer(c_size_t) :: owned
  real(c_double), allocatable, target :: t(:, :), u(:, :)
  type(halocline_comm) :: comm
  type(halocline_pattern) :: pattern
  type(halocline_field) :: fields(2)
  integer(c_size_t) :: rank, ranks

  call read_mesh(folder())
  call check(halocline_init(comm))
  call check(halocline_comm_rank(comm, rank))
  call check(halocline_comm_size(comm, ranks))
  call make_rank()
  call simulate()
  if (.not. compare()) error stop "the ranks and one rank differ"
  call check(halocline_field_free(fields(1)))
  call check(halocline_field_free(fields(2)))
  call check(halocline_pattern_free(pattern))
  call check(halocline_comm_free(comm))
  deallocate (mesh_triangles, triangles, ids, t, u)

contains

  ! Ends the program with the message of a call that fails.
  subroutine check(status)
    integer(c_int32_t), intent(in) :: status
    if (status /= HALOCLINE_OK) then
      print *, halocline_message()
      error stop 1
    end if
  end subroutine

  ! The folder of the mesh: the argument of the program.
  function folder() result(path)
    character(:), allocatable :: path
    integer :: length
    call get_command_argument(1, length=length)
    allocate (character(length) :: path)
    call get_command_argument(1, path)
    if (length == 0) path = "data/fesom-pi"
  end function

  subroutine read_mesh(path)
    character(*), intent(in) :: path
    integer :: nodes, elements, count, failed
    open (newunit=nodes, file=path // "/nod2d.out", status="old", action="read", iostat=failed)
    if (failed == 0) open (newunit=elements, file=path // "/elem2d.out", status="old", action="read", iostat=failed)
    if (failed /= 0) error stop "there is no mesh; give the folder data/fesom-pi of the repository"
    read (nodes, *) mesh_vertices
    read (elements, *) count
    allocate (mesh_triangles(3, count))
    read (elements, *) mesh_triangles
    close (nodes)
    close (elements)
  end subroutine

  ! The part of this rank, with a halo of one triangle, and the field of this step and the next.
  subroutine make_rank()
    type(halocline_mesh) :: mesh
    type(halocline_partition) :: partition
    type(halocline_mesh_halos) :: halos
    integer(c_int64_t), allocatable :: numbers(:)
    integer(c_int32_t), allocatable :: corners(:, :)
    integer(c_size_t) :: capacity, count, ignored
    integer :: vertex
    capacity = size(mesh_triangles, kind=c_size_t)
    call check(halocline_mesh_create(int(mesh_vertices, c_size_t), capacity / 3, 3_c_size_t, mesh_triangles - 1, 0, mesh))
    call check(halocline_partition_elements(mesh, 2_c_size_t, ranks, partition))
    call check(halocline_mesh_halos_create(comm, mesh, partition, rank, 1_c_size_t, HALOCLINE_SHARED_VERTEX, 0, halos))
    call check(halocline_pattern_mesh(comm, halos, HALOCLINE_VERTICES, pattern))

    allocate (ids(mesh_vertices), numbers(capacity / 3), corners(3, capacity / 3))
    call check(halocline_mesh_ids(halos, HALOCLINE_VERTICES, ids, size(ids, kind=c_size_t), count, owned))
    ids = ids(:count)
    call check(halocline_mesh_connectivity(halos, corners, capacity, ignored))
    call check(halocline_mesh_ids(halos, HALOCLINE_ELEMENTS, numbers, size(numbers, kind=c_size_t), count, ignored))
    triangles = corners(:, ascending(numbers(:count))) + 1
    call check(halocline_mesh_halos_free(halos))
    call check(halocline_partition_free(partition))
    call check(halocline_mesh_free(mesh))

    allocate (t(levels, size(ids)), u(levels, size(ids)), source=0.0_c_double)
    do vertex = 1, int(owned)
      t(:, vertex) = initial(ids(vertex))
    end do
    call check(halocline_field_along(t, [2], 1, fields(1)))
    call check(halocline_field_along(u, [2], 1, fields(2)))
  end subroutine

  ! The positions of global numbers in ascending order.
  function ascending(numbers) result(order)
    integer(c_int64_t), intent(in) :: numbers(:)
    integer :: order(size(numbers)), position(size(mesh_triangles, 2)), at, found
    position = 0
    do at = 1, size(numbers)
      position(numbers(at) + 1) = at
    end do
    found = 0
    do at = 1, size(position)
      if (position(at) == 0) cycle
      found = found + 1
      order(found) = position(at)
    end do
  end function

  ! The first values of a vertex.
  pure function initial(vertex) result(values)
    integer(c_int64_t), intent(in) :: vertex
    real(c_double) :: values(levels)
    integer :: level
    ! Of exact operations: the compiler may vectorise one of the loops that call this, and a sine of a vector differs in its last bits.
    values = [(modulo(real(vertex, c_double) * 0.375_c_double, 2.0_c_double) + level, level = 0, levels - 1)]
  end function

  ! One step: each vertex gets the mean of its triangles' means.
  pure subroutine smooth(corners, vertices, from, to)
    integer(c_int32_t), intent(in) :: corners(:, :)
    integer, intent(in) :: vertices
    real(c_double), intent(in) :: from(:, :)
    real(c_double), intent(inout) :: to(:, :)
    integer :: around(vertices), triangle, corner, vertex
    real(c_double) :: sum(size(from, 1))
    around = 0
    to(:, :vertices) = 0
    do triangle = 1, size(corners, 2)
      sum = from(:, corners(1, triangle)) + from(:, corners(2, triangle)) + from(:, corners(3, triangle))
      do corner = 1, 3
        vertex = corners(corner, triangle)
        if (vertex > vertices) cycle
        around(vertex) = around(vertex) + 1
        to(:, vertex) = to(:, vertex) + sum
      end do
    end do
    do vertex = 1, vertices
      to(:, vertex) = to(:, vertex) / (3 * around(vertex))
    end do
  end subroutine

  subroutine simulate()
    type(halocline_bind_options) :: options
    type(halocline_halo_exchange) :: halo
    type(halocline_pending) :: pending
    integer(c_size_t) :: set
    integer :: step
    call check(halocline_bind_alternatives(comm, [halocline_binding(pattern, fields(1)), &
                                                  halocline_binding(pattern, fields(2))], 1_c_size_t, 2_c_size_t, options, halo))
    do step = 0, steps - 1
      set = modulo(step, 2)
      call check(halocline_exchange_set(halo, set, pending))
      call check(halocline_wait(pending))
      if (set == 0) then
        call smooth(triangles, int(owned), t, u)
      else
        call smooth(triangles, int(owned), u, t)
      end if
    end do
    call check(halocline_halo_exchange_free(halo))
  end subroutine

  ! The same on the whole mesh.
  function alone() result(from)
    real(c_double) :: from(levels, mesh_vertices), to(levels, mesh_vertices)
    integer :: vertex, step
    do vertex = 1, mesh_vertices
      from(:, vertex) = initial(int(vertex - 1, c_int64_t))
    end do
    do step = 1, steps
      call smooth(mesh_triangles, mesh_vertices, from, to)
      from = to
    end do
  end function

  ! Whether rank 0 finds the same as alone; true on the other ranks.
  logical function compare() result(is_same)
    type(halocline_field) :: whole
    type(c_ptr) :: base
    real(c_double), pointer :: found(:, :)
    integer :: last
    last = modulo(steps, 2) + 1
    call check(halocline_gather_to(pattern, 0_c_size_t, fields(last:last), 1_c_size_t, whole))
    is_same = .true.
    if (rank == 0) then
      call check(halocline_field_base(whole, base))
      call c_f_pointer(base, found, [levels, mesh_vertices])
      is_same = maxval(abs(found - alone())) <= 0
      print "(a, i0, a, i0, a, a, a)", "unstructured: ", steps, " steps on ", ranks, " ranks, ", &
        trim(merge("equal to      ", "DIFFERENT from", is_same)), " one rank"
      call check(halocline_field_free(whole))
    end if
  end function
end program
