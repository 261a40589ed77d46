! What a call of the Fortran interface costs beside the same call of C: an exchange of one cell on one rank, and its wait.
!
!     tools/install --prefix out/halocline
!     cc -O2 -c $(PKG_CONFIG_PATH=out/halocline/lib/pkgconfig pkg-config --cflags halocline) bench/capi/round.c -o out/round.o
!     cc -O2 -c -Iout/halocline/include out/halocline/share/halocline/halocline_fortran.c -o out/halocline_fortran.o
!     gfortran -O2 -Jout out/halocline/share/halocline/halocline.f90 bench/capi/cost.f90 out/round.o out/halocline_fortran.o \
!       -Lout/halocline/lib -lhalocline -Wl,-rpath,out/halocline/lib -o out/cost_fortran
!     out/cost_fortran
!
! Rounds of the two alternate; the fastest round of each counts. Ends with status 1 if Fortran takes over 5 ns more than C.
program cost
  use halocline
  implicit none

  integer, parameter :: CALLS = 2000, ROUNDS = 2000
  real(c_double), parameter :: MARGIN = 5

  interface
    ! Nanoseconds of a call of C, in round.c.
    function c_round(halo, calls) bind(c) result(nanoseconds)
      import
      type(halocline_halo_exchange), value :: halo
      integer(c_int), value :: calls
      real(c_double) :: nanoseconds
    end function
  end interface

  type(halocline_comm) :: comms(1)
  type(halocline_decomposition) :: blocks
  type(halocline_pattern) :: pattern
  type(halocline_field) :: field
  type(halocline_halo_exchange) :: halo
  real(c_double), allocatable, target :: t(:)
  real(c_double) :: c, fortran
  integer :: round

  call check(halocline_comm_threads(1_c_size_t, comms))
  call check(halocline_blocks([1], 1_c_size_t, blocks, periodic=[.true.]))
  call check(halocline_regular_pattern(comms(1), blocks, 1, pattern))
  allocate (t(3), source=0.0_c_double)
  call check(halocline_field_of(t, field))
  call check(halocline_bind_field(comms(1), pattern, field, halo))
  c = huge(c)
  fortran = huge(fortran)
  do round = 1, ROUNDS
    c = min(c, c_round(halo, CALLS))
    fortran = min(fortran, fortran_round())
  end do
  print "(a, f6.1, a)", "C: exchange, then wait        ", c, " ns"
  print "(a, f6.1, a, sp, f5.1, a)", "Fortran: exchange, then wait  ", fortran, " ns (", fortran - c, ")"
  if (fortran - c > MARGIN) error stop 1

contains

  subroutine check(status)
    integer(c_int32_t), intent(in) :: status
    if (status /= HALOCLINE_OK) then
      print *, halocline_message()
      error stop 2
    end if
  end subroutine

  real(c_double) function fortran_round()
    type(halocline_pending) :: pending
    integer(c_int64_t) :: start, end, rate
    integer :: at
    call system_clock(start, rate)
    do at = 1, CALLS
      if (halocline_exchange(halo, pending) /= HALOCLINE_OK) error stop 2
      if (halocline_wait(pending) /= HALOCLINE_OK) error stop 2
    end do
    call system_clock(end)
    fortran_round = real(end - start, c_double)*1e9_c_double/real(rate, c_double)/CALLS
  end function

end program
