! Messages by hand and links of patterns: the functions of halocline/message.h, which has their contracts. Included by
! halocline.f90.
module halocline_messages
  use halocline_types
  implicit none
  public

  interface
    function halocline_links(halo, links, capacity, count) bind(c) result(status)
      import
      type(halocline_halo_exchange), value :: halo
      type(halocline_link), intent(inout), optional :: links(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: count
      integer(c_int32_t) :: status
    end function

    function halocline_message_bytes(halo, peer, direction, bytes) bind(c) result(status)
      import
      type(halocline_halo_exchange), value :: halo
      integer(c_size_t), value :: peer
      integer(c_int32_t), value :: direction
      integer(c_size_t), intent(out) :: bytes
      integer(c_int32_t) :: status
    end function

    function halocline_pack(halo, peer, message, bytes) bind(c) result(status)
      import
      type(halocline_halo_exchange), value :: halo
      integer(c_size_t), value :: peer
      type(c_ptr), value :: message
      integer(c_size_t), value :: bytes
      integer(c_int32_t) :: status
    end function

    function halocline_unpack(halo, peer, message, bytes) bind(c) result(status)
      import
      type(halocline_halo_exchange), value :: halo
      integer(c_size_t), value :: peer
      type(c_ptr), value :: message
      integer(c_size_t), value :: bytes
      integer(c_int32_t) :: status
    end function

    ! The same two for a message in a Fortran array of any type and rank, with as many bytes as halocline_message_bytes stores. An
    ! array that is not contiguous is copied for the call. An assumed-size array has no size and is refused.
    function halocline_pack_message(halo, peer, message) bind(c, name="halocline_fortran_pack") result(status)
      import
      type(halocline_halo_exchange), value :: halo
      integer(c_size_t), value :: peer
      type(*), dimension(..), intent(inout) :: message
      integer(c_int32_t) :: status
    end function

    function halocline_unpack_message(halo, peer, message) bind(c, name="halocline_fortran_unpack") result(status)
      import
      type(halocline_halo_exchange), value :: halo
      integer(c_size_t), value :: peer
      type(*), dimension(..), intent(in) :: message
      integer(c_int32_t) :: status
    end function

    function halocline_pack_on(halo, peer, message, bytes, stream) bind(c) result(status)
      import
      type(halocline_halo_exchange), value :: halo
      integer(c_size_t), value :: peer
      type(c_ptr), value :: message
      integer(c_size_t), value :: bytes
      type(halocline_stream), value :: stream
      integer(c_int32_t) :: status
    end function

    function halocline_unpack_on(halo, peer, message, bytes, stream) bind(c) result(status)
      import
      type(halocline_halo_exchange), value :: halo
      integer(c_size_t), value :: peer
      type(c_ptr), value :: message
      integer(c_size_t), value :: bytes
      type(halocline_stream), value :: stream
      integer(c_int32_t) :: status
    end function

    function halocline_pattern_links_create(comm, patterns, count, options, links) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      type(halocline_pattern), intent(in) :: patterns(*)
      integer(c_size_t), value :: count
      type(halocline_bind_options), intent(in), optional :: options
      type(halocline_pattern_links), intent(out) :: links
      integer(c_int32_t) :: status
    end function

    function halocline_pattern_links_exchange(links, bindings, count, pending) bind(c) result(status)
      import
      type(halocline_pattern_links), value :: links
      type(halocline_binding), intent(in) :: bindings(*)
      integer(c_size_t), value :: count
      type(halocline_pending), intent(out), optional :: pending
      integer(c_int32_t) :: status
    end function

    function halocline_pattern_links_schedule(links, bindings, count, streams, stream_count, pending) bind(c) result(status)
      import
      type(halocline_pattern_links), value :: links
      type(halocline_binding), intent(in) :: bindings(*)
      integer(c_size_t), value :: count
      type(halocline_stream), intent(in), optional :: streams(*)
      integer(c_size_t), value :: stream_count
      type(halocline_pending), intent(out), optional :: pending
      integer(c_int32_t) :: status
    end function

    function halocline_pattern_links_reclaim(links, reclaimed) bind(c) result(status)
      import
      type(halocline_pattern_links), value :: links
      integer(c_int32_t), intent(out) :: reclaimed
      integer(c_int32_t) :: status
    end function

    function halocline_pattern_links_links(links, found, capacity, count) bind(c) result(status)
      import
      type(halocline_pattern_links), value :: links
      type(halocline_link), intent(inout), optional :: found(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: count
      integer(c_int32_t) :: status
    end function

    function halocline_pattern_links_explain(links, table, capacity, length) bind(c) result(status)
      import
      type(halocline_pattern_links), value :: links
      character(kind=c_char), intent(inout), optional :: table(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: length
      integer(c_int32_t) :: status
    end function

    function halocline_pattern_links_free(handle) bind(c) result(status)
      import
      type(halocline_pattern_links), intent(inout) :: handle
      integer(c_int32_t) :: status
    end function
  end interface
end module
