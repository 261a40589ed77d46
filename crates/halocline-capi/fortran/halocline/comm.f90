! Communicators: the functions of halocline/comm.h, which has their contracts. Included by halocline.f90.
module halocline_comms
  use halocline_types
  implicit none
  public

  interface
    function halocline_init(comm) bind(c) result(status)
      import
      type(halocline_comm), intent(out) :: comm
      integer(c_int32_t) :: status
    end function

    ! `transport`: "auto", "thread", "shm" or "mpi", then c_null_char.
    function halocline_init_by_name(transport, comm) bind(c) result(status)
      import
      character(kind=c_char), intent(in) :: transport(*)
      type(halocline_comm), intent(out) :: comm
      integer(c_int32_t) :: status
    end function

    ! `mpi_comm`: comm%MPI_VAL of mpi_f08, or the integer of the older modules. `options`: c_null_ptr, or the c_loc of
    ! halocline_mpi_options.
    function halocline_comm_from_fortran(mpi_comm, options, comm) bind(c) result(status)
      import
      integer(c_int32_t), value :: mpi_comm
      type(c_ptr), value :: options
      type(halocline_comm), intent(out) :: comm
      integer(c_int32_t) :: status
    end function

    function halocline_comm_threads(size, comms) bind(c) result(status)
      import
      integer(c_size_t), value :: size
      type(halocline_comm), intent(inout) :: comms(*)
      integer(c_int32_t) :: status
    end function

    function halocline_comm_duplicate(comm, duplicate) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      type(halocline_comm), intent(out) :: duplicate
      integer(c_int32_t) :: status
    end function

    function halocline_comm_split(comm, color, key, part) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      integer(c_int64_t), value :: color, key
      type(halocline_comm), intent(out) :: part
      integer(c_int32_t) :: status
    end function

    function halocline_comm_with_deadline(comm, seconds, limited) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      real(c_double), value :: seconds
      type(halocline_comm), intent(out) :: limited
      integer(c_int32_t) :: status
    end function

    function halocline_comm_deadline(comm, seconds) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      real(c_double), intent(out) :: seconds
      integer(c_int32_t) :: status
    end function

    function halocline_comm_rank(comm, rank) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      integer(c_size_t), intent(out) :: rank
      integer(c_int32_t) :: status
    end function

    function halocline_comm_size(comm, size) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      integer(c_size_t), intent(out) :: size
      integer(c_int32_t) :: status
    end function

    ! The name as a text of C: `halocline_transport` has it as one of Fortran.
    function halocline_comm_transport(comm, name) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      type(c_ptr), intent(out) :: name
      integer(c_int32_t) :: status
    end function

    function halocline_comm_mappings(comm, statistics) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      type(halocline_mapping_statistics), intent(inout) :: statistics
      integer(c_int32_t) :: status
    end function

    ! `error` ends with c_null_char. A rank that has not failed leaves it out.
    function halocline_comm_agree(comm, error) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      character(kind=c_char), intent(in), optional :: error(*)
      integer(c_int32_t) :: status
    end function

    function halocline_comm_barrier(comm) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      integer(c_int32_t) :: status
    end function

    function halocline_comm_broadcast(comm, root, data, bytes) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      integer(c_size_t), value :: root
      type(c_ptr), value :: data
      integer(c_size_t), value :: bytes
      integer(c_int32_t) :: status
    end function

    function halocline_comm_all_gather(comm, data, bytes, gathered) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      type(c_ptr), value :: data
      integer(c_size_t), value :: bytes
      type(c_ptr), value :: gathered
      integer(c_int32_t) :: status
    end function

    function halocline_comm_all_reduce(comm, values, count, element, operation) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      type(c_ptr), value :: values
      integer(c_size_t), value :: count
      integer(c_int32_t), value :: element, operation
      integer(c_int32_t) :: status
    end function

    ! The same three for Fortran arrays of any type and rank, and scalars. An array that is not contiguous is copied for the call.
    ! An assumed-size array has no size and is refused, as is `gathered` of another size than `array` times the number of ranks.
    function halocline_broadcast(comm, root, array) bind(c, name="halocline_fortran_broadcast") result(status)
      import
      type(halocline_comm), value :: comm
      integer(c_int), value :: root
      type(*), dimension(..), intent(inout) :: array
      integer(c_int32_t) :: status
    end function

    function halocline_all_gather(comm, array, gathered) bind(c, name="halocline_fortran_all_gather") result(status)
      import
      type(halocline_comm), value :: comm
      type(*), dimension(..), intent(in) :: array
      type(*), dimension(..), intent(inout) :: gathered
      integer(c_int32_t) :: status
    end function

    function halocline_all_reduce(comm, array, operation) bind(c, name="halocline_fortran_all_reduce") result(status)
      import
      type(halocline_comm), value :: comm
      type(*), dimension(..), intent(inout) :: array
      integer(c_int32_t), value :: operation
      integer(c_int32_t) :: status
    end function

    function halocline_comm_free(handle) bind(c) result(status)
      import
      type(halocline_comm), intent(inout) :: handle
      integer(c_int32_t) :: status
    end function
  end interface
end module
