! Traces: the functions of halocline/trace.h, which has their contracts. Included by halocline.f90.
module halocline_traces
  use halocline_types
  implicit none
  public

  interface
    ! The path ends with c_null_char.
    function halocline_trace_begin(comm, path, trace) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      character(kind=c_char), intent(in) :: path(*)
      type(halocline_trace), intent(out) :: trace
      integer(c_int32_t) :: status
    end function

    function halocline_trace_end(trace) bind(c) result(status)
      import
      type(halocline_trace), value :: trace
      integer(c_int32_t) :: status
    end function

    function halocline_trace_free(trace) bind(c) result(status)
      import
      type(halocline_trace), intent(inout) :: trace
      integer(c_int32_t) :: status
    end function

    function halocline_trace_on_stream(trace, stream, rounds, device_trace) bind(c) result(status)
      import
      type(halocline_trace), value :: trace
      type(halocline_stream), value :: stream
      integer(c_size_t), value :: rounds
      type(halocline_device_trace), intent(out) :: device_trace
      integer(c_int32_t) :: status
    end function

    function halocline_device_trace_stamp(device_trace, moment) bind(c) result(status)
      import
      type(halocline_device_trace), value :: device_trace
      integer(c_int32_t), value :: moment
      integer(c_int32_t) :: status
    end function

    function halocline_device_trace_observe(device_trace, pending) bind(c) result(status)
      import
      type(halocline_device_trace), value :: device_trace
      type(halocline_pending), value :: pending
      integer(c_int32_t) :: status
    end function

    function halocline_device_trace_free(device_trace) bind(c) result(status)
      import
      type(halocline_device_trace), intent(inout) :: device_trace
      integer(c_int32_t) :: status
    end function
  end interface
end module
