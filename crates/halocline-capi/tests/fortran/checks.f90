! Checks of the test programs: each ends the program with what went wrong.
module checks
  use halocline
  implicit none
  public

contains

  ! The call has succeeded.
  subroutine check(status)
    integer(c_int32_t), intent(in) :: status
    if (status /= HALOCLINE_OK) then
      print "(3a)", halocline_status_text(status), ": ", halocline_message()
      error stop 1
    end if
  end subroutine

  subroutine expect(holds, what)
    logical, intent(in) :: holds
    character(*), intent(in) :: what
    if (.not. holds) then
      print "(2a)", "not true: ", what
      error stop 1
    end if
  end subroutine

  ! The call was refused with that status, and with that text in its message.
  subroutine refused(status, wanted, text)
    integer(c_int32_t), intent(in) :: status, wanted
    character(*), intent(in) :: text
    character(:), allocatable :: message
    message = halocline_message()
    if (status /= wanted .or. index(message, text) == 0) then
      print "(3a)", halocline_status_text(status), ": ", message
      print "(3a)", halocline_status_text(wanted), " is wanted: ", text
      error stop 1
    end if
  end subroutine

  ! Rank 0 prints that all is well, with the number of ranks and the transport. Frees the communicator.
  subroutine done(comm)
    type(halocline_comm), intent(inout) :: comm
    integer(c_size_t) :: rank, ranks
    call check(halocline_comm_rank(comm, rank))
    call check(halocline_comm_size(comm, ranks))
    if (rank == 0) print "(a, i0, 2a)", "ok ", ranks, " ", halocline_transport(comm)
    call check(halocline_comm_free(comm))
  end subroutine
end module
