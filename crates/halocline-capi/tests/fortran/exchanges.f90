! Exchanges: handles, narrower halos, messages by hand, links of patterns, reductions and traces.
program exchanges
  use plane
  use halocline_packets
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
  call handles_of_an_exchange()
  call narrower_halos()
  call messages_by_hand()
  call links_of_patterns()
  call reduced()
  call traced()
  call without_a_gpu()
  call done(comm)

contains

  ! Two sets; a handle of the second one. Options, explanations and what is in flight.
  subroutine handles_of_an_exchange()
    integer :: extents(2)
    type(halocline_decomposition) :: blocks
    type(fixture), target :: now, next
    type(halocline_halo_exchange) :: halo, second, none
    type(halocline_bind_options) :: options
    type(halocline_pending) :: pending, latest
    integer(c_size_t) :: sets
    integer(c_int32_t) :: reclaimed, ready
    character(:, kind=c_char), allocatable, target :: name
    extents = [4 * all_ranks, 5]
    call slabs(extents, 1, ranks, blocks)
    call make(comm, blocks, 1, extents, now)
    call make(comm, blocks, 1, extents, next)
    call check(halocline_decomposition_free(blocks))
    next%bindings%pattern = now%pattern
    name = "two levels" // c_null_char
    options%name = c_loc(name)
    options%link = HALOCLINE_LINK_MESSAGE
    options%deadline = 100
    call check(halocline_bind_alternatives(comm, [now%bindings, next%bindings], 1_c_size_t, 2_c_size_t, options, halo))
    call check(halocline_alternative(halo, 1_c_size_t, second))
    call refused(halocline_alternative(halo, 2_c_size_t, none), HALOCLINE_ERROR_ARGUMENT, "set 2")
    call check(halocline_sets(halo, sets))
    call expect(sets == 2, "the number of sets")
    call check(halocline_latest(halo, latest))
    call expect(latest%epoch == 0, "no exchange yet")
    if (all_ranks > 1) call expect(index(halocline_explanation(halo), "message") > 0, "the table of links")
    call expect(halocline_explanation(none) == "", "no table")
    call expect(index(halocline_message(), "null") > 0, "the reason")
    call fill(now, 2)
    call check(halocline_exchange(halo, pending))
    call check(halocline_latest(halo, latest))
    call expect(latest%epoch == 1 .and. latest%exchange == pending%exchange, "the latest exchange")
    ready = 0
    do while (ready == 0)
      call check(halocline_is_ready(pending, ready))
    end do
    call check(halocline_wait(pending))
    call expect_filled(now, 2, "the first set")
    call fill(next, 3)
    call check(halocline_exchange_and_wait(second))
    call expect_filled(next, 3, "the second set")
    call check(halocline_reclaim(second, reclaimed))
    call expect(reclaimed == 1, "the memory is free")
    call check(halocline_halo_exchange_free(second))
    call check(halocline_halo_exchange_free(halo))
    call free(next)
    call free(now)
  end subroutine

  ! A halo of width 1 of fields with a halo of width 2: by the pattern, and by the exchange.
  subroutine narrower_halos()
    integer :: extents(2), filled
    type(halocline_decomposition) :: blocks
    type(fixture), target :: of
    type(halocline_pattern) :: narrow_pattern
    type(halocline_halo) :: width
    type(halocline_halo_exchange) :: halo, narrow
    extents = [6, 4 * all_ranks]
    call slabs(extents, 2, ranks, blocks)
    call make(comm, blocks, 2, extents, of)
    call check(halocline_decomposition_free(blocks))
    width%width = 1
    filled = 6 * (merge(1, 0, me > 0) + merge(1, 0, me < all_ranks - 1))

    call check(halocline_pattern_narrowed(of%pattern, width, narrow_pattern))
    call check(halocline_bind_field(comm, narrow_pattern, of%fields(1), narrow))
    call fill(of, 1)
    call check(halocline_exchange_and_wait(narrow))
    call expect(count(of%domains(1)%t >= 0) == 24 + filled, "a narrower pattern")
    call check(halocline_halo_exchange_free(narrow))
    call check(halocline_pattern_free(narrow_pattern))

    call check(halocline_bind(comm, of%bindings, of%count, halo=halo))
    call check(halocline_narrowed(halo, width, narrow))
    call fill(of, 2)
    call check(halocline_exchange_and_wait(narrow))
    call expect(count(of%domains(1)%t >= 0) == 24 + filled, "a narrower exchange")
    call check(halocline_exchange_and_wait(halo))
    call expect_filled(of, 2, "the whole halo")
    call check(halocline_halo_exchange_free(narrow))
    call check(halocline_halo_exchange_free(halo))
    call free(of)
  end subroutine

  ! The messages of an exchange, sent in a sparse all-to-all.
  subroutine messages_by_hand()
    integer, parameter :: MOST = 32
    integer :: extents(2), at, peer
    type(halocline_decomposition) :: blocks
    type(fixture), target :: of
    type(halocline_halo_exchange) :: halo
    type(halocline_link) :: links(MOST)
    type(halocline_sparse) :: mail
    type(halocline_received) :: packets(1)
    type(halocline_contents) :: contents
    integer(c_size_t) :: count, bytes, peers(2), peer_count
    real(c_double), target :: message(5, 2), wide(2, 5)
    real(c_double), pointer :: received(:)
    extents = [4 * all_ranks, 5]
    call slabs(extents, 1, ranks, blocks)
    call make(comm, blocks, 1, extents, of)
    call check(halocline_decomposition_free(blocks))
    call check(halocline_bind(comm, of%bindings, of%count, halo=halo))
    call check(halocline_links(halo, capacity=0_c_size_t, count=count))
    call expect(count == 2 * (merge(1, 0, me > 0) + merge(1, 0, me < all_ranks - 1)), "the number of links")
    call check(halocline_links(halo, links, int(MOST, c_size_t), count))
    peer_count = 0
    do at = 1, int(count)
      call expect(links(at)%path >= HALOCLINE_LINK_PUSH .and. links(at)%path <= HALOCLINE_LINK_LL, "a path")
      if (links(at)%direction /= HALOCLINE_SEND) cycle
      peer_count = peer_count + 1
      peers(peer_count) = links(at)%peer
    end do
    call fill(of, 4)
    call check(halocline_sparse_create(comm, peers, peer_count, peers, peer_count, halocline_resource(), mail))
    wide = 0
    do peer = 1, int(peer_count)
      call check(halocline_message_bytes(halo, peers(peer), HALOCLINE_SEND, bytes))
      call expect(bytes == 40, "the bytes of a message")
      ! Into a row, which is not contiguous, and into a column.
      call check(halocline_pack_message(halo, peers(peer), wide(peer, :)))
      call check(halocline_pack_message(halo, peers(peer), message(:, peer)))
      call expect(maxval(abs(wide(peer, :) - message(:, peer))) <= 0 .and. minval(message(:, peer)) > 0, "a packed message")
      call refused(halocline_pack_message(halo, peers(peer), message), HALOCLINE_ERROR_ARGUMENT, "bytes")
      message(:, peer) = 0
      call check(halocline_pack(halo, peers(peer), c_loc(message(1, peer)), bytes))
      call check(halocline_sparse_insert(mail, peers(peer), halocline_packet_of(payload=message(:, peer))))
    end do
    call check(halocline_sparse_finish_and_wait(mail))
    do peer = 1, int(peer_count)
      call check(halocline_sparse_extract(mail, peers(peer), packets, 1_c_size_t, count))
      call check(halocline_packet_describe(packets(1), contents))
      if (peer == 1) then
        call check(halocline_unpack(halo, peers(peer), contents%payload, contents%payload_bytes))
      else
        call c_f_pointer(contents%payload, received, [5])
        wide(2, :) = received
        call check(halocline_unpack_message(halo, peers(peer), wide(2, :)))
      end if
      call check(halocline_packet_free(packets(1)))
    end do
    call check(halocline_sparse_free(mail))
    call expect_filled(of, 4, "messages by hand")
    call refused(halocline_pack_on(halo, rank, c_loc(message), 40_c_size_t, halocline_stream()), HALOCLINE_ERROR_HANDLE, "null")
    call refused(halocline_unpack_on(halo, rank, c_loc(message), 40_c_size_t, halocline_stream()), HALOCLINE_ERROR_HANDLE, "null")
    call check(halocline_halo_exchange_free(halo))
    call free(of)
  end subroutine

  ! Fields that are given to each exchange.
  subroutine links_of_patterns()
    integer :: extents(2), phase
    type(halocline_decomposition) :: blocks
    type(fixture), target :: first, second
    type(halocline_pattern_links) :: links
    type(halocline_pending) :: pending
    integer(c_int32_t) :: reclaimed
    integer(c_size_t) :: count
    extents = [6, 4 * all_ranks]
    call slabs(extents, 2, ranks, blocks)
    call make(comm, blocks, 1, extents, first)
    call make(comm, blocks, 1, extents, second)
    call check(halocline_decomposition_free(blocks))
    second%bindings%pattern = first%pattern
    call check(halocline_pattern_links_create(comm, [first%pattern], 1_c_size_t, links=links))
    do phase = 1, 3
      call fill(first, phase)
      call fill(second, phase + 3)
      call check(halocline_pattern_links_exchange(links, [first%bindings, second%bindings], 2_c_size_t, pending))
      call check(halocline_wait(pending))
      call expect_filled(first, phase, "a first field")
      call expect_filled(second, phase + 3, "a second field")
    end do
    call check(halocline_pattern_links_reclaim(links, reclaimed))
    call expect(reclaimed == 1, "the memory of links is free")
    call expect(len(halocline_explanation(links)) > 0, "the table of links of patterns")
    call refused(halocline_pattern_links_schedule(links, first%bindings, 1_c_size_t, stream_count=0_c_size_t), &
                 HALOCLINE_ERROR_ARGUMENT, "")
    call check(halocline_pattern_links_links(links, capacity=0_c_size_t, count=count))
    call expect((count > 0) .eqv. (all_ranks > 1), "the number of links of patterns")
    call check(halocline_pattern_links_free(links))
    call free(second)
    call free(first)
  end subroutine

  ! Each halo cell adds 1 to the cell that it copies.
  subroutine reduced()
    integer :: extents(2)
    type(halocline_decomposition) :: blocks
    type(fixture), target :: of
    type(halocline_halo_exchange) :: halo
    type(halocline_pending) :: pending
    type(halocline_box) :: owned
    type(halocline_domain) :: domain
    integer(c_int32_t), allocatable, target :: degree(:, :)
    integer(c_size_t) :: count
    extents = [4 * all_ranks, 5]
    call slabs(extents, 1, ranks, blocks)
    call make(comm, blocks, 1, extents, of)
    call check(halocline_decomposition_free(blocks))
    call check(halocline_bind(comm, of%bindings, of%count, halo=halo))
    call check(halocline_pattern_domain(of%pattern, 0_c_size_t, domain))
    owned = domain%owned
    associate (t => of%domains(1)%t, first => owned%first + 1, last => owned%first + owned%extents)
      t = 1
      t(first(1):last(1), first(2):last(2)) = 0
      call check(halocline_reduce(halo, 0_c_size_t, HALOCLINE_SUM, 0, pending))
      call check(halocline_wait(pending))
      ! In C order: the transpose.
      allocate (degree(size(t, 2), size(t, 1)))
      call check(halocline_degree(halo, 0_c_size_t, c_loc(degree), size(degree, kind=c_size_t), count))
      call expect(count == size(degree, kind=c_size_t), "the number of degrees")
      call expect(sum(degree) == 5 * (merge(1, 0, me > 0) + merge(1, 0, me < all_ranks - 1)), "the degrees")
      call expect(maxval(abs(t(first(1):last(1), first(2):last(2)) - transpose(degree(first(2):last(2), first(1):last(1))))) <= 0, &
                  "a sum of halo cells")
    end associate
    call check(halocline_halo_exchange_free(halo))
    call free(of)
  end subroutine

  ! A trace of five exchanges.
  subroutine traced()
    integer :: extents(2), step, file, bytes
    type(halocline_decomposition) :: blocks
    type(fixture), target :: of
    type(halocline_halo_exchange) :: halo
    type(halocline_trace) :: trace
    integer(c_int32_t) :: number
    character(40) :: path
    character(:), allocatable :: text
    extents = [4 * all_ranks, 5]
    call slabs(extents, 1, ranks, blocks)
    call make(comm, blocks, 1, extents, of)
    call check(halocline_decomposition_free(blocks))
    call check(halocline_bind(comm, of%bindings, of%count, halo=halo))
    number = getpid()
    call check(halocline_broadcast(comm, 0, number))
    write (path, "(a, i0, a)") "/tmp/halocline-fortran-", number, ".json"
    call check(halocline_trace_begin(comm, trim(path) // c_null_char, trace))
    do step = 1, 5
      call check(halocline_exchange_and_wait(halo))
    end do
    call check(halocline_trace_end(trace))
    call refused(halocline_trace_end(trace), HALOCLINE_ERROR_ARGUMENT, "was ended")
    call check(halocline_trace_free(trace))
    if (me == 0) then
      open (newunit=file, file=path, access="stream", form="unformatted", status="old", action="readwrite")
      inquire (file, size=bytes)
      allocate (character(bytes) :: text)
      read (file) text
      close (file, status="delete")
      call expect(index(text, "traceEvents") > 0, "a trace")
    end if
    call check(halocline_halo_exchange_free(halo))
    call free(of)
  end subroutine

  ! Calls for GPUs that no machine has.
  subroutine without_a_gpu()
    type(halocline_stream) :: stream, none
    type(halocline_resource) :: resource
    type(halocline_trace) :: trace
    type(halocline_device_trace) :: device_trace
    type(halocline_pending) :: pending
    type(halocline_halo_exchange) :: halo
    call refused(halocline_stream_cuda(-1, c_null_ptr, stream), HALOCLINE_ERROR_ARGUMENT, "-1")
    call refused(halocline_resource_cuda(-1, resource), HALOCLINE_ERROR_ARGUMENT, "-1")
    call refused(halocline_resource_pinned(comm, -1, resource), HALOCLINE_ERROR_ARGUMENT, "-1")
    call refused(halocline_schedule_exchange(halo, 0_c_size_t, stream_count=0_c_size_t), HALOCLINE_ERROR_HANDLE, "null")
    call refused(halocline_schedule_reduce(halo, 0_c_size_t, HALOCLINE_SUM, 0, stream_count=0_c_size_t), &
                 HALOCLINE_ERROR_HANDLE, "null")
    call refused(halocline_schedule_wait(pending, none), HALOCLINE_ERROR_HANDLE, "null")
    call refused(halocline_trace_on_stream(trace, none, 1_c_size_t, device_trace), HALOCLINE_ERROR_HANDLE, "null")
    call refused(halocline_device_trace_stamp(device_trace, HALOCLINE_MOMENT_BEGUN), HALOCLINE_ERROR_HANDLE, "null")
    call refused(halocline_device_trace_observe(device_trace, pending), HALOCLINE_ERROR_HANDLE, "null")
    call check(halocline_device_trace_free(device_trace))
    call check(halocline_stream_free(none))
  end subroutine
end program
