! Bound exchanges: the functions of halocline/exchange.h, which has their contracts, and whole fields. Included by halocline.f90.
module halocline_exchanges
  use halocline_types
  implicit none
  public

  interface
    function halocline_bind(comm, bindings, count, options, halo) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      type(halocline_binding), intent(in) :: bindings(*)
      integer(c_size_t), value :: count
      type(halocline_bind_options), intent(in), optional :: options
      type(halocline_halo_exchange), intent(out) :: halo
      integer(c_int32_t) :: status
    end function

    function halocline_bind_alternatives(comm, bindings, count, sets, options, halo) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      type(halocline_binding), intent(in) :: bindings(*)
      integer(c_size_t), value :: count, sets
      type(halocline_bind_options), intent(in), optional :: options
      type(halocline_halo_exchange), intent(out) :: halo
      integer(c_int32_t) :: status
    end function

    function halocline_exchange(halo, pending) bind(c) result(status)
      import
      type(halocline_halo_exchange), value :: halo
      type(halocline_pending), intent(out), optional :: pending
      integer(c_int32_t) :: status
    end function

    function halocline_exchange_set(halo, set, pending) bind(c) result(status)
      import
      type(halocline_halo_exchange), value :: halo
      integer(c_size_t), value :: set
      type(halocline_pending), intent(out), optional :: pending
      integer(c_int32_t) :: status
    end function

    function halocline_exchange_and_wait(halo) bind(c) result(status)
      import
      type(halocline_halo_exchange), value :: halo
      integer(c_int32_t) :: status
    end function

    function halocline_reduce(halo, set, operation, keep_halo, pending) bind(c) result(status)
      import
      type(halocline_halo_exchange), value :: halo
      integer(c_size_t), value :: set
      integer(c_int32_t), value :: operation, keep_halo
      type(halocline_pending), intent(out), optional :: pending
      integer(c_int32_t) :: status
    end function

    function halocline_fetch_and_op(halo, operation) bind(c) result(status)
      import
      type(halocline_halo_exchange), value :: halo
      integer(c_int32_t), value :: operation
      integer(c_int32_t) :: status
    end function

    ! `degree`: c_null_ptr, or the c_loc of an array of integer(c_int32_t).
    function halocline_degree(halo, field, degree, capacity, count) bind(c) result(status)
      import
      type(halocline_halo_exchange), value :: halo
      integer(c_size_t), value :: field
      type(c_ptr), value :: degree
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: count
      integer(c_int32_t) :: status
    end function

    function halocline_schedule_exchange(halo, set, streams, stream_count, pending) bind(c) result(status)
      import
      type(halocline_halo_exchange), value :: halo
      integer(c_size_t), value :: set
      type(halocline_stream), intent(in), optional :: streams(*)
      integer(c_size_t), value :: stream_count
      type(halocline_pending), intent(out), optional :: pending
      integer(c_int32_t) :: status
    end function

    function halocline_schedule_reduce(halo, set, operation, keep_halo, streams, stream_count, pending) bind(c) &
        result(status)
      import
      type(halocline_halo_exchange), value :: halo
      integer(c_size_t), value :: set
      integer(c_int32_t), value :: operation, keep_halo
      type(halocline_stream), intent(in), optional :: streams(*)
      integer(c_size_t), value :: stream_count
      type(halocline_pending), intent(out), optional :: pending
      integer(c_int32_t) :: status
    end function

    function halocline_wait(pending) bind(c) result(status)
      import
      type(halocline_pending), value :: pending
      integer(c_int32_t) :: status
    end function

    function halocline_is_ready(pending, ready) bind(c) result(status)
      import
      type(halocline_pending), value :: pending
      integer(c_int32_t), intent(out) :: ready
      integer(c_int32_t) :: status
    end function

    function halocline_schedule_wait(pending, stream) bind(c) result(status)
      import
      type(halocline_pending), value :: pending
      type(halocline_stream), value :: stream
      integer(c_int32_t) :: status
    end function

    function halocline_reclaim(halo, reclaimed) bind(c) result(status)
      import
      type(halocline_halo_exchange), value :: halo
      integer(c_int32_t), intent(out) :: reclaimed
      integer(c_int32_t) :: status
    end function

    function halocline_latest(halo, pending) bind(c) result(status)
      import
      type(halocline_halo_exchange), value :: halo
      type(halocline_pending), intent(out) :: pending
      integer(c_int32_t) :: status
    end function

    function halocline_sets(halo, sets) bind(c) result(status)
      import
      type(halocline_halo_exchange), value :: halo
      integer(c_size_t), intent(out) :: sets
      integer(c_int32_t) :: status
    end function

    function halocline_alternative(halo, set, alternative) bind(c) result(status)
      import
      type(halocline_halo_exchange), value :: halo
      integer(c_size_t), value :: set
      type(halocline_halo_exchange), intent(out) :: alternative
      integer(c_int32_t) :: status
    end function

    function halocline_narrowed(halo, to, narrowed) bind(c) result(status)
      import
      type(halocline_halo_exchange), value :: halo
      type(halocline_halo), intent(in) :: to
      type(halocline_halo_exchange), intent(out) :: narrowed
      integer(c_int32_t) :: status
    end function

    ! The table with a closing zero: `halocline_explanation` has it as a text of Fortran.
    function halocline_explain(halo, table, capacity, length) bind(c) result(status)
      import
      type(halocline_halo_exchange), value :: halo
      character(kind=c_char), intent(inout), optional :: table(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: length
      integer(c_int32_t) :: status
    end function

    function halocline_halo_exchange_free(handle) bind(c) result(status)
      import
      type(halocline_halo_exchange), intent(inout) :: handle
      integer(c_int32_t) :: status
    end function

    function halocline_gather_to(pattern, root, fields, count, whole) bind(c) result(status)
      import
      type(halocline_pattern), value :: pattern
      integer(c_size_t), value :: root
      type(halocline_field), intent(in) :: fields(*)
      integer(c_size_t), value :: count
      type(halocline_field), intent(out) :: whole
      integer(c_int32_t) :: status
    end function

    ! The path ends with c_null_char. The file is in C order: the first dimension of the arrays is its slowest one.
    function halocline_save(pattern, path, fields, count) bind(c) result(status)
      import
      type(halocline_pattern), value :: pattern
      character(kind=c_char), intent(in) :: path(*)
      type(halocline_field), intent(in) :: fields(*)
      integer(c_size_t), value :: count
      integer(c_int32_t) :: status
    end function
  end interface
end module
