! Regular grids: decompositions, domains, fields, redistribution and files.
program regular
  use plane
  use halocline_redistribution
  implicit none

  interface
    function getpid() bind(c) result(number)
      import
      integer(c_int) :: number
    end function
  end interface

  type(halocline_comm) :: comm
  integer(c_size_t) :: rank, ranks
  integer :: me, all_ranks

  call check(halocline_init(comm))
  call check(halocline_comm_rank(comm, rank))
  call check(halocline_comm_size(comm, ranks))
  me = int(rank)
  all_ranks = int(ranks)
  call decompositions()
  call cells_of_a_domain()
  call fields_of_memory()
  call redistributed()
  call saved()
  call done(comm)

contains

  subroutine exchanges(blocks, extents, what)
    type(halocline_decomposition), intent(inout) :: blocks
    integer, intent(in) :: extents(2)
    character(*), intent(in) :: what
    type(fixture), target :: of
    type(halocline_halo_exchange) :: halo
    call make(comm, blocks, 1, extents, of)
    call check(halocline_bind(comm, of%bindings, of%count, halo=halo))
    call fill(of, 1)
    call check(halocline_exchange_and_wait(halo))
    call expect_filled(of, 1, what)
    call check(halocline_halo_exchange_free(halo))
    call free(of)
    call check(halocline_decomposition_free(blocks))
  end subroutine

  subroutine decompositions()
    type(halocline_grid) :: grid
    type(halocline_decomposition) :: blocks, points
    integer(c_size_t), target :: extents(2)
    integer(c_size_t) :: cuts(all_ranks - 1), owners(all_ranks + 1), firsts(2, all_ranks + 1), sizes(2, all_ranks + 1)
    integer(c_size_t) :: axes, owner_ranks, found(HALOCLINE_AXES), counts(HALOCLINE_AXES)
    integer(c_int64_t) :: domains
    integer :: box
    extents = [4 * all_ranks, 6]
    grid%axes = 2
    grid%extents = c_loc(extents)

    ! The first blocks have one row, the last one the rest.
    cuts = [(box, box = 1, all_ranks - 1)]
    call check(halocline_decompose_at(grid, [ranks - 1, 0_c_size_t], cuts, ranks, blocks))
    call check(halocline_decomposition_describe(blocks, axes, found, owner_ranks, domains, counts))
    call expect(axes == 2 .and. all(found == [extents, 0_c_size_t, 0_c_size_t]), "the extents of a decomposition")
    call expect(owner_ranks == ranks .and. domains == ranks, "its domains")
    call expect(all(counts == [ranks, 1_c_size_t, 0_c_size_t, 0_c_size_t]), "its blocks")
    call exchanges(blocks, int(extents), "blocks at cuts")

    ! Rank 0 has two boxes.
    do box = 1, all_ranks
      owners(box) = box - 1
      firsts(:, box) = [4 * (box - 1), merge(2, 0, box == 1)]
      sizes(:, box) = [4, merge(4, 6, box == 1)]
    end do
    owners(all_ranks + 1) = 0
    firsts(:, all_ranks + 1) = 0
    sizes(:, all_ranks + 1) = [4, 2]
    call check(halocline_decompose_boxes(grid, ranks + 1, owners, firsts, sizes, ranks, blocks))
    call check(halocline_decomposition_describe(blocks, domains=domains))
    call expect(domains == ranks + 1, "the number of boxes")
    call exchanges(blocks, int(extents), "boxes")

    ! The points between cells, along the first axis.
    call check(halocline_decompose(grid, ranks, blocks))
    call check(halocline_decomposition_staggered(blocks, [1, 0], points))
    call check(halocline_decomposition_describe(points, extents=found))
    call expect(found(1) == extents(1) + 1 .and. found(2) == extents(2), "the number of points")
    call check(halocline_decomposition_free(blocks))
    call exchanges(points, int(found(:2)), "points between cells")
  end subroutine

  ! Owned and halo cells are all cells. Global and local indices are inverse.
  subroutine cells_of_a_domain()
    type(halocline_decomposition) :: blocks
    type(halocline_pattern) :: pattern
    type(halocline_domain) :: domain
    type(halocline_box) :: boxes(4)
    integer(c_size_t) :: count, known, local(2), cells
    integer(c_int64_t) :: global(2)
    integer(c_int32_t) :: found
    integer :: box
    call refused(halocline_blocks([6, 6], ranks, blocks, periodic=[.true.]), HALOCLINE_ERROR_ARGUMENT, "periodic has not")
    call refused(halocline_blocks([6], ranks, blocks, periodic=[.true., .true.]), HALOCLINE_ERROR_ARGUMENT, "periodic has not")
    call refused(halocline_blocks([6, 6], ranks, blocks, blocks=[1, 1, 1]), HALOCLINE_ERROR_ARGUMENT, "blocks has not")
    call check(halocline_blocks([5 * all_ranks, 6], ranks, blocks))
    call check(halocline_regular_pattern(comm, blocks, 2, pattern))
    call check(halocline_decomposition_free(blocks))
    call check(halocline_pattern_domain(pattern, 0_c_size_t, domain))
    call check(halocline_domain_halo(pattern, 0_c_size_t, capacity=0_c_size_t, count=known))
    call check(halocline_domain_halo(pattern, 0_c_size_t, boxes, 4_c_size_t, count))
    call expect(count == known .and. count > 0, "the number of boxes of a halo")
    cells = product(domain%owned%extents)
    do box = 1, int(count)
      cells = cells + product(boxes(box)%extents)
    end do
    call expect(cells == product(domain%extents), "the cells of a halo")
    call check(halocline_domain_global(pattern, 0_c_size_t, domain%owned%first(:2), global))
    call check(halocline_domain_local(pattern, 0_c_size_t, global, local, found))
    call expect(found == 1 .and. all(local == domain%owned%first(:2)), "a local index")
    call check(halocline_domain_local(pattern, 0_c_size_t, [-100_c_int64_t, 0_c_int64_t], local, found))
    call expect(found == 0, "a cell elsewhere")
    call check(halocline_pattern_free(pattern))
  end subroutine

  subroutine fields_of_memory()
    type(halocline_layout) :: layout
    type(halocline_memory) :: memory
    type(halocline_field) :: field, view
    type(c_ptr) :: base
    real(c_float), pointer :: t(:, :)
    real(c_float), target :: own(6)
    logical(c_bool), target :: flags(3)
    complex(c_float), target :: waves(2, 5)
    integer(c_size_t), target :: extents(2)
    integer(c_ptrdiff_t), target :: strides(2)
    integer(c_size_t) :: dimensions, found(2)
    integer(c_ptrdiff_t) :: distances(2)
    integer(c_int32_t) :: element
    ! Memory of the library, with the layout of a Fortran array.
    extents = [3, 2]
    strides = [4, 12]
    layout%dimensions = 2
    layout%extents = c_loc(extents)
    layout%strides = c_loc(strides)
    layout%element = HALOCLINE_F32
    call check(halocline_field_allocate(comm, layout, field))
    call check(halocline_field_base(field, base))
    call c_f_pointer(base, t, [3, 2])
    call expect(maxval(abs(t)) <= 0, "zeroed memory")
    call check(halocline_field_describe(field, found, distances, 2_c_size_t, dimensions, element))
    call expect(dimensions == 2 .and. all(found == extents) .and. all(distances == strides), "a layout")
    call expect(element == HALOCLINE_F32, "an element type")
    ! Its second column.
    layout%dimensions = 1
    call check(halocline_field_view(field, c_loc(t(1, 2)), layout, view))
    call check(halocline_field_describe(view, capacity=0_c_size_t, dimensions=dimensions))
    call expect(dimensions == 1, "a column")
    call refused(halocline_field_view(field, c_loc(own), layout, view), HALOCLINE_ERROR_ARGUMENT, "")
    call check(halocline_field_free(view))
    call check(halocline_field_free(field))
    ! Memory of the program.
    memory%base = c_loc(own)
    call check(halocline_field_create(memory, layout, field))
    call check(halocline_field_base(field, base))
    call expect(c_associated(base, memory%base), "the address of a field")
    call check(halocline_field_free(field))
    ! Other types.
    call expect(element_of(flags) == HALOCLINE_BOOL, "flags")
    call expect(element_of(waves) == HALOCLINE_C64, "complex numbers")
    call expect(element_of(["12345", "abcde"]) == halocline_opaque(5), "texts")
  end subroutine

  integer(c_int32_t) function element_of(array) result(element)
    type(*), dimension(..), target, intent(in) :: array
    type(halocline_field) :: field
    integer(c_size_t) :: dimensions
    call check(halocline_field_of(array, field))
    call check(halocline_field_describe(field, capacity=0_c_size_t, dimensions=dimensions, element=element))
    call check(halocline_field_free(field))
  end function

  ! From slabs along one axis to slabs along the other, with another halo, and back; and of lists of cells.
  subroutine redistributed()
    integer :: extents(2), i
    type(halocline_decomposition) :: from, to
    type(halocline_halo) :: narrow, wide
    type(halocline_redistribute) :: move, back
    type(fixture), target :: before, after
    type(halocline_halo_exchange) :: there, returned, halo
    type(halocline_cells) :: blocks(1), cyclic(1)
    integer(c_int64_t), target :: of_blocks(6), of_cycles(6)
    integer(c_int64_t), target :: t(6), u(6)
    type(halocline_field) :: fields(2)
    extents = [3 * all_ranks, 2 * all_ranks]
    call slabs(extents, 1, ranks, from)
    call slabs(extents, 2, ranks, to)
    narrow%width = 1
    wide%width = 2
    call make(comm, from, 1, extents, before)
    call make(comm, to, 2, extents, after)
    call check(halocline_redistribute_regular(comm, from, narrow, to, wide, move))
    call check(halocline_redistribute_back(move, back))
    call check(halocline_redistribute_bind(comm, move, before%fields, 1_c_size_t, after%fields, 1_c_size_t, halo=there))
    call check(halocline_redistribute_bind(comm, back, after%fields, 1_c_size_t, before%fields, 1_c_size_t, halo=returned))
    call check(halocline_bind(comm, after%bindings, after%count, halo=halo))
    call fill(before, 1)
    call fill(after, 2)
    call check(halocline_exchange_and_wait(there))
    call check(halocline_exchange_and_wait(halo))
    call expect_filled(after, 1, "the second distribution")
    call check(halocline_halo_exchange_free(halo))
    call fill(before, 3)
    call check(halocline_exchange_and_wait(returned))
    call check(halocline_bind(comm, before%bindings, before%count, halo=halo))
    call check(halocline_exchange_and_wait(halo))
    call expect_filled(before, 1, "the first distribution")
    call check(halocline_halo_exchange_free(halo))
    call check(halocline_halo_exchange_free(returned))
    call check(halocline_halo_exchange_free(there))
    call check(halocline_redistribute_free(back))
    call check(halocline_redistribute_free(move))
    call free(after)
    call free(before)
    call check(halocline_decomposition_free(to))
    call check(halocline_decomposition_free(from))

    of_blocks = [(6 * me + i, i = 0, 5)]
    of_cycles = [(i * all_ranks + me, i = 0, 5)]
    blocks(1)%number = me
    blocks(1)%count = 6
    blocks(1)%ids = c_loc(of_blocks)
    cyclic(1)%number = me
    cyclic(1)%count = 6
    cyclic(1)%ids = c_loc(of_cycles)
    call check(halocline_redistribute_unstructured(comm, blocks, 1_c_size_t, cyclic, 1_c_size_t, move))
    t = of_blocks + 100
    u = 0
    call check(halocline_field_of(t, fields(1)))
    call check(halocline_field_of(u, fields(2)))
    call check(halocline_redistribute_bind(comm, move, fields(1:1), 1_c_size_t, fields(2:2), 1_c_size_t, halo=there))
    call check(halocline_exchange_and_wait(there))
    call expect(all(u == of_cycles + 100), "lists of cells")
    call check(halocline_halo_exchange_free(there))
    call check(halocline_redistribute_free(move))
    call check(halocline_field_free(fields(1)))
    call check(halocline_field_free(fields(2)))
  end subroutine

  ! A NumPy file of the whole grid: every element has the value of its cell.
  subroutine saved()
    integer :: extents(2), file, i, j, values
    type(halocline_decomposition) :: blocks
    type(fixture), target :: of
    integer(c_int32_t) :: number
    character(40) :: path
    character :: head(10)
    real(c_double), allocatable :: whole(:, :)
    extents = [3 * all_ranks, 4]
    call slabs(extents, 1, ranks, blocks)
    call make(comm, blocks, 1, extents, of)
    call check(halocline_decomposition_free(blocks))
    call fill(of, 3)
    number = getpid()
    call check(halocline_broadcast(comm, 0, number))
    write (path, "(a, i0, a)") "/tmp/halocline-fortran-", number, ".npy"
    call check(halocline_save(of%pattern, trim(path) // c_null_char, of%fields, of%count))
    if (me == 0) then
      open (newunit=file, file=path, access="stream", form="unformatted", status="old", action="readwrite")
      read (file) head
      call expect(all(head(2:6) == ["N", "U", "M", "P", "Y"]), "the head of a NumPy file")
      values = 11 + ichar(head(9)) + 256 * ichar(head(10))
      allocate (whole(extents(2), extents(1)))
      read (file, pos=values) whole
      close (file, status="delete")
      do j = 1, extents(2)
        do i = 1, extents(1)
          call expect(abs(whole(j, i) - (30000 + 100 * (i - 1) + j - 1)) <= 0, "a value of a file")
        end do
      end do
    end if
    call refused(halocline_save(of%pattern, "t.txt" // c_null_char, of%fields, of%count), HALOCLINE_ERROR_ARGUMENT, "")
    call free(of)
  end subroutine
end program
