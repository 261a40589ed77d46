! Packets of any size between ranks, in Fortran: the functions of halocline/packet.h, halocline/neighbors.h and halocline/sparse.h,
! which have their contracts. Compile it after halocline.f90.
!
!   packet = halocline_packet_of(payload=t)
!   status = halocline_neighbors_create(comm, 1, halocline_resource(), ring)
!   status = halocline_neighbors_exchange(ring, 1, right=packet, from_left=from_left, from_right=from_right)
!   status = halocline_packet_describe(from_left, contents)
!   call c_f_pointer(contents%payload, received, [contents%payload_bytes / 8])
!   ... use `received` ...
!   status = halocline_packet_free(from_left)
!
! Leave `left` or `right` out to send nothing there. halocline_resource() stands for memory of the host. Ranks count from 0.
module halocline_packets
  use halocline
  implicit none
  public

  ! The sides of a rank; combine them with ior.
  integer(c_int32_t), parameter :: HALOCLINE_LEFT = 1, HALOCLINE_RIGHT = 2

  ! Handles.
  type, bind(c) :: halocline_received
    integer(c_int64_t) :: id = 0
  end type
  type, bind(c) :: halocline_resource
    integer(c_int64_t) :: id = 0
  end type
  type, bind(c) :: halocline_neighbors
    integer(c_int64_t) :: id = 0
  end type
  type, bind(c) :: halocline_round
    integer(c_int64_t) :: id = 0
  end type
  type, bind(c) :: halocline_session
    integer(c_int64_t) :: id = 0
  end type
  type, bind(c) :: halocline_sparse
    integer(c_int64_t) :: id = 0
  end type

  ! A packet to send. `release`: the c_funloc of a procedure with the interface halocline_release.
  type, bind(c) :: halocline_packet
    integer(c_size_t) :: size = 80
    type(c_ptr) :: metadata = c_null_ptr
    integer(c_size_t) :: metadata_bytes = 0
    type(c_ptr) :: payload = c_null_ptr
    integer(c_size_t) :: payload_bytes = 0
    type(c_funptr) :: release = c_null_funptr
    type(c_ptr) :: context = c_null_ptr
    type(halocline_stream) :: stream
    integer(c_int32_t) :: has_payload = 0
    integer(c_int32_t) :: space = HALOCLINE_HOST
    integer(c_int32_t) :: device = 0
    integer(c_int32_t) :: reserved = 0
  end type

  ! What a received packet has.
  type, bind(c) :: halocline_contents
    integer(c_size_t) :: size = 56
    type(c_ptr) :: metadata = c_null_ptr
    integer(c_size_t) :: metadata_bytes = 0
    type(c_ptr) :: payload = c_null_ptr
    integer(c_size_t) :: payload_bytes = 0
    integer(c_int32_t) :: has_payload = 0
    integer(c_int32_t) :: space = HALOCLINE_HOST
    integer(c_int32_t) :: device = 0
    integer(c_int32_t) :: reserved = 0
  end type

  ! An allocator of the program: the c_funlocs of procedures with the interfaces halocline_allocate, halocline_deallocate and
  ! halocline_release. Any threads call them, several at once.
  type, bind(c) :: halocline_allocator
    integer(c_size_t) :: size = 56
    type(c_funptr) :: allocate = c_null_funptr
    type(c_funptr) :: deallocate = c_null_funptr
    type(c_funptr) :: release = c_null_funptr
    type(c_ptr) :: context = c_null_ptr
    type(halocline_stream) :: stream
    integer(c_int32_t) :: space = HALOCLINE_HOST
    integer(c_int32_t) :: device = 0
  end type

  ! What a resource has allocated.
  type, bind(c) :: halocline_resource_statistics
    integer(c_size_t) :: size = 40
    integer(c_size_t) :: in_use = 0
    integer(c_size_t) :: peak = 0
    integer(c_int64_t) :: allocations = 0
    integer(c_int64_t) :: spilled = 0
  end type

  ! Packets that went one way, and their bytes; what a rank has sent and received.
  type, bind(c) :: halocline_traffic
    integer(c_int64_t) :: packets = 0
    integer(c_int64_t) :: metadata = 0
    integer(c_int64_t) :: host = 0
    integer(c_int64_t) :: pinned = 0
    integer(c_int64_t) :: device = 0
  end type
  type, bind(c) :: halocline_packet_statistics
    integer(c_size_t) :: size = 96
    integer(c_int64_t) :: rounds = 0
    type(halocline_traffic) :: sent
    type(halocline_traffic) :: received
  end type

  ! Callbacks of an allocator. They must not call this library.
  abstract interface
    ! Memory of so many bytes, at least 1; c_null_ptr if there is none.
    function halocline_allocate(context, bytes) bind(c) result(memory)
      import
      type(c_ptr), value :: context
      integer(c_size_t), value :: bytes
      type(c_ptr) :: memory
    end function

    ! Takes memory back, with its length.
    subroutine halocline_deallocate(context, memory, bytes) bind(c)
      import
      type(c_ptr), value :: context, memory
      integer(c_size_t), value :: bytes
    end subroutine
  end interface

  ! Packets, and where received payloads lie.
  interface
    ! A packet of Fortran arrays of any type and rank, or scalars: `halocline_packet_of(payload=t)`. The call that sends it copies
    ! the metadata. The payload is not copied: it has the attribute target, and stays allocated and unchanged until the operation is
    ! complete. Both are contiguous: a call refuses the packet of another array.
    function halocline_packet_of(metadata, payload) bind(c, name="halocline_fortran_packet") result(packet)
      import
      type(*), dimension(..), target, intent(in), optional :: metadata, payload
      type(halocline_packet) :: packet
    end function

    function halocline_packet_describe(received, contents) bind(c) result(status)
      import
      type(halocline_received), value :: received
      type(halocline_contents), intent(inout) :: contents
      integer(c_int32_t) :: status
    end function

    function halocline_packet_order(received, stream) bind(c) result(status)
      import
      type(halocline_received), value :: received
      type(halocline_stream), value :: stream
      integer(c_int32_t) :: status
    end function

    function halocline_packet_free(handle) bind(c) result(status)
      import
      type(halocline_received), intent(inout) :: handle
      integer(c_int32_t) :: status
    end function

    function halocline_resource_host(comm, resource) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      type(halocline_resource), intent(out) :: resource
      integer(c_int32_t) :: status
    end function

    function halocline_resource_pinned(comm, device, resource) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      integer(c_int32_t), value :: device
      type(halocline_resource), intent(out) :: resource
      integer(c_int32_t) :: status
    end function

    function halocline_resource_cuda(device, resource) bind(c) result(status)
      import
      integer(c_int32_t), value :: device
      type(halocline_resource), intent(out) :: resource
      integer(c_int32_t) :: status
    end function

    function halocline_resource_allocator(allocator, resource) bind(c) result(status)
      import
      type(halocline_allocator), intent(in) :: allocator
      type(halocline_resource), intent(out) :: resource
      integer(c_int32_t) :: status
    end function

    function halocline_resource_trim(resource) bind(c) result(status)
      import
      type(halocline_resource), value :: resource
      integer(c_int32_t) :: status
    end function

    function halocline_resource_limited(inner, bytes, patience, spill, resource) bind(c) result(status)
      import
      type(halocline_resource), value :: inner
      integer(c_size_t), value :: bytes
      real(c_double), value :: patience
      type(halocline_resource), value :: spill
      type(halocline_resource), intent(out) :: resource
      integer(c_int32_t) :: status
    end function

    function halocline_resource_describe(resource, statistics) bind(c) result(status)
      import
      type(halocline_resource), value :: resource
      type(halocline_resource_statistics), intent(inout) :: statistics
      integer(c_int32_t) :: status
    end function

    function halocline_resource_free(handle) bind(c) result(status)
      import
      type(halocline_resource), intent(inout) :: handle
      integer(c_int32_t) :: status
    end function
  end interface

  ! Neighbours on a line or a ring of ranks.
  interface
    function halocline_neighbors_create(comm, ring, resource, neighbors) bind(c) result(status)
      import
      type(halocline_comm), value :: comm
      integer(c_int32_t), value :: ring
      type(halocline_resource), value :: resource
      type(halocline_neighbors), intent(out) :: neighbors
      integer(c_int32_t) :: status
    end function

    function halocline_neighbors_ranks(neighbors, left, right) bind(c) result(status)
      import
      type(halocline_neighbors), value :: neighbors
      integer(c_int64_t), intent(out) :: left, right
      integer(c_int32_t) :: status
    end function

    function halocline_neighbors_statistics(neighbors, statistics) bind(c) result(status)
      import
      type(halocline_neighbors), value :: neighbors
      type(halocline_packet_statistics), intent(inout) :: statistics
      integer(c_int32_t) :: status
    end function

    function halocline_neighbors_start(neighbors, id, left, right, round) bind(c) result(status)
      import
      type(halocline_neighbors), value :: neighbors
      integer(c_int32_t), value :: id
      type(halocline_packet), intent(in), optional :: left, right
      type(halocline_round), intent(out) :: round
      integer(c_int32_t) :: status
    end function

    function halocline_neighbors_exchange(neighbors, id, left, right, from_left, from_right) bind(c) result(status)
      import
      type(halocline_neighbors), value :: neighbors
      integer(c_int32_t), value :: id
      type(halocline_packet), intent(in), optional :: left, right
      type(halocline_received), intent(out) :: from_left, from_right
      integer(c_int32_t) :: status
    end function

    ! The reason ends with c_null_char.
    function halocline_neighbors_abort(neighbors, why) bind(c) result(status)
      import
      type(halocline_neighbors), value :: neighbors
      character(kind=c_char), intent(in) :: why(*)
      integer(c_int32_t) :: status
    end function

    function halocline_neighbors_free(handle) bind(c) result(status)
      import
      type(halocline_neighbors), intent(inout) :: handle
      integer(c_int32_t) :: status
    end function

    function halocline_round_wait(round, from_left, from_right) bind(c) result(status)
      import
      type(halocline_round), value :: round
      type(halocline_received), intent(out) :: from_left, from_right
      integer(c_int32_t) :: status
    end function

    function halocline_round_is_complete(round, complete) bind(c) result(status)
      import
      type(halocline_round), value :: round
      integer(c_int32_t), intent(out) :: complete
      integer(c_int32_t) :: status
    end function

    ! `done`: the c_funloc of a procedure with the interface halocline_done.
    function halocline_round_on_completion(round, done, context) bind(c) result(status)
      import
      type(halocline_round), value :: round
      type(c_funptr), value :: done
      type(c_ptr), value :: context
      integer(c_int32_t) :: status
    end function

    function halocline_round_free(handle) bind(c) result(status)
      import
      type(halocline_round), intent(inout) :: handle
      integer(c_int32_t) :: status
    end function

    function halocline_session_open(neighbors, id, session) bind(c) result(status)
      import
      type(halocline_neighbors), value :: neighbors
      integer(c_int32_t), value :: id
      type(halocline_session), intent(out) :: session
      integer(c_int32_t) :: status
    end function

    function halocline_session_start(session, left, right, last) bind(c) result(status)
      import
      type(halocline_session), value :: session
      type(halocline_packet), intent(in), optional :: left, right
      integer(c_int32_t), value :: last
      integer(c_int32_t) :: status
    end function

    function halocline_session_wait(session, from_left, from_right, ended) bind(c) result(status)
      import
      type(halocline_session), value :: session
      type(halocline_received), intent(out) :: from_left, from_right
      integer(c_int32_t), intent(out), optional :: ended
      integer(c_int32_t) :: status
    end function

    function halocline_session_is_complete(session, complete) bind(c) result(status)
      import
      type(halocline_session), value :: session
      integer(c_int32_t), intent(out) :: complete
      integer(c_int32_t) :: status
    end function

    ! `done`: the c_funloc of a procedure with the interface halocline_done.
    function halocline_session_on_completion(session, done, context) bind(c) result(status)
      import
      type(halocline_session), value :: session
      type(c_funptr), value :: done
      type(c_ptr), value :: context
      integer(c_int32_t) :: status
    end function

    function halocline_session_is_over(session, over) bind(c) result(status)
      import
      type(halocline_session), value :: session
      integer(c_int32_t), intent(out) :: over
      integer(c_int32_t) :: status
    end function

    function halocline_session_finish(session) bind(c) result(status)
      import
      type(halocline_session), value :: session
      integer(c_int32_t) :: status
    end function

    function halocline_session_free(handle) bind(c) result(status)
      import
      type(halocline_session), intent(inout) :: handle
      integer(c_int32_t) :: status
    end function
  end interface

  ! The sparse all-to-all.
  interface
    ! Without `sources`, on all ranks, they are discovered.
    function halocline_sparse_create(comm, sources, source_count, destinations, destination_count, resource, sparse) bind(c) &
      result(status)
      import
      type(halocline_comm), value :: comm
      integer(c_size_t), intent(in), optional :: sources(*)
      integer(c_size_t), value :: source_count
      integer(c_size_t), intent(in) :: destinations(*)
      integer(c_size_t), value :: destination_count
      type(halocline_resource), value :: resource
      type(halocline_sparse), intent(out) :: sparse
      integer(c_int32_t) :: status
    end function

    function halocline_sparse_insert(sparse, destination, packet) bind(c) result(status)
      import
      type(halocline_sparse), value :: sparse
      integer(c_size_t), value :: destination
      type(halocline_packet), intent(in) :: packet
      integer(c_int32_t) :: status
    end function

    function halocline_sparse_finish(sparse) bind(c) result(status)
      import
      type(halocline_sparse), value :: sparse
      integer(c_int32_t) :: status
    end function

    function halocline_sparse_wait(sparse) bind(c) result(status)
      import
      type(halocline_sparse), value :: sparse
      integer(c_int32_t) :: status
    end function

    function halocline_sparse_finish_and_wait(sparse) bind(c) result(status)
      import
      type(halocline_sparse), value :: sparse
      integer(c_int32_t) :: status
    end function

    function halocline_sparse_is_complete(sparse, complete) bind(c) result(status)
      import
      type(halocline_sparse), value :: sparse
      integer(c_int32_t), intent(out) :: complete
      integer(c_int32_t) :: status
    end function

    ! `done`: the c_funloc of a procedure with the interface halocline_done.
    function halocline_sparse_on_completion(sparse, done, context) bind(c) result(status)
      import
      type(halocline_sparse), value :: sparse
      type(c_funptr), value :: done
      type(c_ptr), value :: context
      integer(c_int32_t) :: status
    end function

    function halocline_sparse_sources(sparse, sources, capacity, count) bind(c) result(status)
      import
      type(halocline_sparse), value :: sparse
      integer(c_size_t), intent(inout), optional :: sources(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: count
      integer(c_int32_t) :: status
    end function

    function halocline_sparse_destinations(sparse, destinations, capacity, count) bind(c) result(status)
      import
      type(halocline_sparse), value :: sparse
      integer(c_size_t), intent(inout), optional :: destinations(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: count
      integer(c_int32_t) :: status
    end function

    function halocline_sparse_statistics(sparse, statistics) bind(c) result(status)
      import
      type(halocline_sparse), value :: sparse
      type(halocline_packet_statistics), intent(inout) :: statistics
      integer(c_int32_t) :: status
    end function

    function halocline_sparse_extract(sparse, source, packets, capacity, count) bind(c) result(status)
      import
      type(halocline_sparse), value :: sparse
      integer(c_size_t), value :: source
      type(halocline_received), intent(inout), optional :: packets(*)
      integer(c_size_t), value :: capacity
      integer(c_size_t), intent(out) :: count
      integer(c_int32_t) :: status
    end function

    function halocline_sparse_free(handle) bind(c) result(status)
      import
      type(halocline_sparse), intent(inout) :: handle
      integer(c_int32_t) :: status
    end function
  end interface
end module
