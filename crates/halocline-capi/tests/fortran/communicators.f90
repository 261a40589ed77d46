! Communicators and their collective calls, with Fortran arrays of several types and shapes.
program communicators
  use checks
  implicit none

  type(halocline_comm) :: comm, none
  integer(c_size_t) :: rank, ranks
  integer :: me, all

  call check(halocline_init_by_name("auto" // c_null_char, comm))
  call check(halocline_comm_rank(comm, rank))
  call check(halocline_comm_size(comm, ranks))
  me = int(rank)
  all = int(ranks)
  call versions_and_names()
  call broadcasts()
  call gathers()
  call reduces()
  call split()
  call duplicate()
  call describe()
  if (all == 1) call threads()
  call done(comm)

contains

  subroutine versions_and_names()
    type(halocline_comm) :: other
    call expect(halocline_abi_version() == HALOCLINE_MODULES_ABI_VERSION, "the version of the interface")
    call expect(index(halocline_version_text(), ".") > 1, "the version of the library")
    call expect(halocline_status_text(HALOCLINE_ERROR_PROGRAM) == "HALOCLINE_ERROR_PROGRAM", "the name of a status")
    call expect(halocline_status_text(999) == "", "the name of no status")
    call expect(any(halocline_transport(comm) == [character(6) :: "thread", "shm", "mpi"]), "the name of the transport")
    call expect(halocline_transport(none) == "", "the transport of a null handle")
    call expect(index(halocline_message(), "null") > 0, "the reason")
    call refused(halocline_init_by_name("carrier pigeon" // c_null_char, other), HALOCLINE_ERROR_ARGUMENT, "carrier pigeon")
  end subroutine

  subroutine broadcasts()
    real(c_double) :: number, table(3, 4)
    real(c_double), allocatable, save :: missing(:)
    character(5) :: word
    integer(c_int32_t), target :: raw(2)
    integer :: i, j
    number = merge(2.5_c_double, 0.0_c_double, me == 0)
    call check(halocline_broadcast(comm, 0, number))
    call expect(abs(number - 2.5) <= 0, "a number")
    word = merge("hello", "-----", me == all - 1)
    call check(halocline_broadcast(comm, all - 1, word))
    call expect(word == "hello", "a word")
    ! Rows of a table: not contiguous.
    table = me
    if (me == 0) table = reshape([((real(10 * i + j, c_double), i = 1, 3), j = 1, 4)], [3, 4])
    call check(halocline_broadcast(comm, 0, table(1:3:2, 2:)))
    call expect(all_equal(table(1, 2:), [12, 13, 14]) .and. all_equal(table(3, 2:), [32, 33, 34]), "rows of a table")
    if (me /= 0) call expect(all_equal(table(2, :), [me, me, me, me]) .and. all_equal(table(:, 1), [me, me, me]), "other cells")
    call check(halocline_broadcast(comm, 0, table(:, 3:2)))
    raw = merge(7, 0, me == 0)
    call check(halocline_comm_broadcast(comm, 0_c_size_t, c_loc(raw), 8_c_size_t))
    call expect(all_are(raw, 7), "bytes")
    call refused(halocline_broadcast(comm, all, number), HALOCLINE_ERROR_ARGUMENT, "rank")
    call without_size(raw)
    call refused(halocline_broadcast(comm, 0, missing), HALOCLINE_ERROR_ARGUMENT, "not allocated")
  end subroutine

  ! An assumed-size array.
  subroutine without_size(values)
    integer(c_int32_t), intent(inout) :: values(*)
    call refused(halocline_broadcast(comm, 0, values), HALOCLINE_ERROR_ARGUMENT, "assumed size")
  end subroutine

  logical function all_equal(numbers, wanted)
    real(c_double), intent(in) :: numbers(:)
    integer, intent(in) :: wanted(:)
    all_equal = maxval(abs(numbers - wanted)) <= 0
  end function

  logical function all_are(numbers, wanted)
    integer(c_int32_t), intent(in) :: numbers(:)
    integer, intent(in) :: wanted
    all_are = count(numbers /= wanted) == 0
  end function

  subroutine gathers()
    integer(c_int64_t) :: pair(2), pairs(2, all), wide(3, all)
    integer(c_int16_t), target :: own, others(all)
    integer :: i
    pair = [me, -me]
    call check(halocline_all_gather(comm, pair, pairs))
    call expect(count(pairs(1, :) /= [(i, i = 0, all - 1)]) == 0, "the first of pairs")
    call expect(count(pairs(2, :) /= -pairs(1, :)) == 0, "the second of pairs")
    wide = 5
    call check(halocline_all_gather(comm, pair, wide(1:3:2, :)))
    call expect(count(wide(1:3:2, :) /= pairs) == 0 .and. count(wide(2, :) /= 5) == 0, "pairs in a table")
    call refused(halocline_all_gather(comm, pair, wide), HALOCLINE_ERROR_ARGUMENT, "gathered has not the size of data times")
    own = int(me, c_int16_t)
    call check(halocline_comm_all_gather(comm, c_loc(own), 2_c_size_t, c_loc(others)))
    call expect(count(others /= [(i, i = 0, all - 1)]) == 0, "bytes of all ranks")
  end subroutine

  subroutine reduces()
    real(c_float) :: heights(4, 2)
    integer(c_int32_t), target :: ones(3)
    complex(c_double) :: z
    heights = real(me)
    call check(halocline_all_reduce(comm, heights(2:4:2, :), HALOCLINE_MAX))
    call expect(maxval(abs(heights(2:4:2, :) - real(all - 1))) <= 0, "the highest")
    call expect(maxval(abs(heights(1:3:2, :) - real(me))) <= 0, "the other heights")
    ones = 1
    call check(halocline_all_reduce(comm, ones, HALOCLINE_SUM))
    call expect(all_are(ones, all), "a sum")
    call check(halocline_comm_all_reduce(comm, c_loc(ones), 3_c_size_t, HALOCLINE_I32, HALOCLINE_MIN))
    call expect(all_are(ones, all), "the least sum")
    z = 1
    call refused(halocline_all_reduce(comm, z, HALOCLINE_SUM), HALOCLINE_ERROR_ARGUMENT, "element")
  end subroutine

  ! Even ranks in reverse order; odd ones get no communicator.
  subroutine split()
    type(halocline_comm) :: part
    integer(c_size_t) :: place, size
    integer(c_int64_t) :: color
    color = merge(0_c_int64_t, HALOCLINE_NO_COLOR, modulo(me, 2) == 0)
    call check(halocline_comm_split(comm, color, int(-me, c_int64_t), part))
    call expect((part%id /= 0) .eqv. (modulo(me, 2) == 0), "no communicator for odd ranks")
    if (part%id == 0) return
    call check(halocline_comm_size(part, size))
    call check(halocline_comm_rank(part, place))
    call expect(size == (all + 1) / 2 .and. place == size - 1 - me / 2, "the places of even ranks")
    call check(halocline_comm_barrier(part))
    call check(halocline_comm_free(part))
  end subroutine

  ! Rank 0 comes later than the deadline of the others allows.
  subroutine duplicate()
    type(halocline_comm) :: own, limited
    call check(halocline_comm_duplicate(comm, own))
    call check(halocline_comm_with_deadline(own, 0.2_c_double, limited))
    call refused(halocline_comm_with_deadline(own, -1.0_c_double, none), HALOCLINE_ERROR_ARGUMENT, "-1")
    call check(halocline_comm_barrier(own))
    if (me > 0) call refused(halocline_comm_barrier(limited), HALOCLINE_ERROR_DEADLINE, "deadline")
    call check(halocline_comm_barrier(comm))
    call check(halocline_comm_free(limited))
    call check(halocline_comm_free(own))
  end subroutine

  subroutine describe()
    type(halocline_comm) :: limited
    type(halocline_mapping_statistics) :: mappings
    real(c_double) :: seconds
    call check(halocline_comm_with_deadline(comm, 2.5_c_double, limited))
    call check(halocline_comm_deadline(limited, seconds))
    call expect(abs(seconds - 2.5) < 1e-9, "the deadline")
    call check(halocline_comm_free(limited))
    call check(halocline_comm_mappings(comm, mappings))
    call expect(mappings%malformed == 0 .and. mappings%size == 96, "the mappings")
    call check(halocline_comm_agree(comm))
    call refused(halocline_comm_agree(comm, "no file" // c_null_char), HALOCLINE_ERROR_ARGUMENT, "no file")
  end subroutine

  subroutine threads()
    type(halocline_comm) :: comms(3)
    integer(c_size_t) :: place
    integer :: i
    call check(halocline_comm_threads(3_c_size_t, comms))
    call check(halocline_comm_rank(comms(3), place))
    call expect(place == 2, "the third thread")
    do i = 1, 3
      call check(halocline_comm_free(comms(i)))
    end do
  end subroutine
end program
