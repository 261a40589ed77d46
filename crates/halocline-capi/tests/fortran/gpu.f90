! A field in memory of a GPU: allocated by the library, filled and read without CUDA, exchanged in the order of the default stream. Exits
! with 77 if there is no GPU.
program gpu
  use checks
  implicit none

  interface
    subroutine exit_process(status) bind(c, name="exit")
      import
      integer(c_int), value :: status
    end subroutine
  end interface

  integer, parameter :: NX = 5, NY = 4, STEPS = 20
  type(halocline_comm) :: comm
  integer(c_size_t) :: rank, ranks

  call check(halocline_init(comm))
  call check(halocline_comm_rank(comm, rank))
  call check(halocline_comm_size(comm, ranks))
  call exchanged()
  call done(comm)

contains

  ! A torus of columns, NY on each rank, whose rows are shared by none.
  subroutine exchanged()
    type(halocline_decomposition) :: blocks
    type(halocline_pattern) :: pattern
    type(halocline_field) :: field
    type(halocline_stream), target :: stream
    type(halocline_bind_options) :: options
    type(halocline_halo_exchange) :: halo
    type(halocline_pending) :: pending
    real(c_double), target :: host(0:NX + 1, 0:NY + 1), found(0:NX + 1, 0:NY + 1)
    integer :: step, all
    all = NY * int(ranks)
    call allocate_field(field)
    call check(halocline_stream_cuda(0, c_null_ptr, stream))
    call check(halocline_blocks([NX, all], ranks, blocks, periodic=[.true., .true.], blocks=[1, int(ranks)]))
    call check(halocline_regular_pattern(comm, blocks, 1, pattern))
    call check(halocline_decomposition_free(blocks))
    options%streams = c_loc(stream)
    options%stream_count = 1
    options%deadline = 60
    call check(halocline_bind(comm, [halocline_binding(pattern, field)], 1_c_size_t, options, halo))
    do step = 1, STEPS
      host = -1
      host(1:NX, 1:NY) = cells(1, NX, 1, NY, step)
      call check(halocline_write_field(field, stream, host))
      call check(halocline_schedule_exchange(halo, 0_c_size_t, [stream], 1_c_size_t, pending))
      call check(halocline_schedule_wait(pending, stream))
      call check(halocline_read_field(field, stream, found))
      call expect(all_equal(found, cells(0, NX + 1, 0, NY + 1, step)), "the halo is filled")
    end do
    ! A section is copied, and an array of another size refused.
    host(1:NX, 1:NY) = 0
    call check(halocline_write_field(field, stream, host(NX + 1:0:-1, :)))
    call check(halocline_read_field(field, stream, found(NX + 1:0:-1, :)))
    call expect(all_equal(found, host), "a section with a negative stride")
    call refused(halocline_write_field(field, stream, host(:, 1:NY)), HALOCLINE_ERROR_ARGUMENT, "bytes from its lowest")
    call check(halocline_field_read(field, stream, c_loc(found), int(8 * size(found), c_size_t)))
    call check(halocline_field_write(field, stream, c_loc(found), int(8 * size(found), c_size_t)))
    call check(halocline_halo_exchange_free(halo))
    call check(halocline_stream_free(stream))
    call check(halocline_field_free(field))
    call check(halocline_pattern_free(pattern))
  end subroutine

  ! The first dimension is contiguous, as in Fortran.
  subroutine allocate_field(field)
    type(halocline_field), intent(out) :: field
    integer(c_size_t), target :: extents(2)
    integer(c_ptrdiff_t), target :: strides(2)
    type(halocline_layout) :: layout
    integer(c_int32_t) :: status
    extents = [NX + 2, NY + 2]
    strides = [8, 8 * (NX + 2)]
    layout%dimensions = 2
    layout%extents = c_loc(extents)
    layout%strides = c_loc(strides)
    layout%element = HALOCLINE_F64
    status = halocline_field_allocate_cuda(0, layout, field)
    if (status == HALOCLINE_ERROR_DEVICE) then
      print "(2a)", "there is no GPU here: ", halocline_message()
      call exit_process(77_c_int)
    end if
    call check(status)
  end subroutine

  ! What the cells of a range of local indices hold.
  function cells(first_x, last_x, first_y, last_y, step) result(values)
    integer, intent(in) :: first_x, last_x, first_y, last_y, step
    real(c_double) :: values(last_x - first_x + 1, last_y - first_y + 1)
    integer :: x, y, all
    all = NY * int(ranks)
    do y = first_y, last_y
      do x = first_x, last_x
        values(x - first_x + 1, y - first_y + 1) = &
          1000 * step + 10 * modulo(int(rank) * NY + y - 1, all) + modulo(x - 1, NX)
      end do
    end do
  end function

  pure logical function all_equal(found, wanted)
    real(c_double), intent(in) :: found(:, :), wanted(:, :)
    all_equal = maxval(abs(found - wanted)) <= 0
  end function
end program
