! What the callbacks of the test `packets` note. They may run in threads of the library.
module notes
  use halocline
  implicit none
  public

  type, bind(c) :: note
    integer(c_int) :: calls = 0
    integer(c_int) :: as_wanted = 0
  end type

  interface
    function malloc(bytes) bind(c) result(memory)
      import
      integer(c_size_t), value :: bytes
      type(c_ptr) :: memory
    end function

    subroutine free(memory) bind(c)
      import
      type(c_ptr), value :: memory
    end subroutine
  end interface

contains

  ! A procedure with the interface halocline_release.
  subroutine let_go(context) bind(c)
    type(c_ptr), value :: context
    type(note), pointer, volatile :: of
    call c_f_pointer(context, of)
    of%as_wanted = 1
    of%calls = of%calls + 1
  end subroutine

  ! Procedures with the interfaces halocline_allocate and halocline_deallocate.
  function take(context, bytes) bind(c) result(memory)
    type(c_ptr), value :: context
    integer(c_size_t), value :: bytes
    type(c_ptr) :: memory
    memory = merge(malloc(bytes), c_null_ptr, c_associated(context))
  end function

  subroutine take_back(context, memory, bytes) bind(c)
    type(c_ptr), value :: context, memory
    integer(c_size_t), value :: bytes
    if (c_associated(context) .and. bytes > 0) call free(memory)
  end subroutine

  ! A procedure with the interface halocline_done.
  subroutine completed(context, status, message) bind(c)
    type(c_ptr), value :: context
    integer(c_int32_t), value :: status
    type(c_ptr), value :: message
    type(note), pointer, volatile :: of
    type(halocline_comm) :: none
    integer(c_size_t) :: ignored
    logical :: is_refused, is_empty
    call c_f_pointer(context, of)
    is_refused = halocline_comm_rank(none, ignored) == HALOCLINE_ERROR_CALLBACK
    is_empty = halocline_text(message) == ""
    if (status == HALOCLINE_OK .and. is_empty .and. is_refused) of%as_wanted = 1
    of%calls = of%calls + 1
  end subroutine
end module

! Neighbour exchanges, sessions and sparse all-to-alls.
program packets
  use checks
  use notes
  use halocline_packets
  implicit none

  integer, parameter :: NUMBERS = 25000
  type(halocline_comm) :: comm
  integer(c_size_t) :: rank, ranks
  ! What this rank and its neighbours send.
  integer(c_int32_t), target :: own(NUMBERS), left(NUMBERS), right(NUMBERS)
  character(:), allocatable, target :: to_left, to_right

  call check(halocline_init(comm))
  call check(halocline_comm_rank(comm, rank))
  call check(halocline_comm_size(comm, ranks))
  own = int(rank)
  left = int(modulo(rank - 1, ranks))
  right = int(modulo(rank + 1, ranks))
  to_left = "to the left"
  to_right = "to the right"
  call on_a_ring()
  call in_memory_of_the_program()
  call in_a_session()
  call sparse(discovers=.false.)
  call sparse(discovers=.true.)
  call given_up()
  call not_contiguous()
  call done(comm)
  deallocate (to_left, to_right)

contains

  ! Checks a received packet and frees it; without `payload` it has none.
  subroutine holds(received, text, payload)
    type(halocline_received), intent(inout) :: received
    character(*), intent(in) :: text
    integer(c_int32_t), intent(in), optional :: payload(:)
    type(halocline_contents) :: contents
    character(kind=c_char), pointer :: metadata(:)
    integer(c_int32_t), pointer :: numbers(:)
    call check(halocline_packet_describe(received, contents))
    call expect(contents%metadata_bytes == len(text), "the length of metadata")
    call c_f_pointer(contents%metadata, metadata, [contents%metadata_bytes])
    call expect(transfer(metadata, text) == text, "metadata")
    call expect((contents%has_payload == 1) .eqv. present(payload), "whether there is a payload")
    if (present(payload)) then
      call expect(contents%payload_bytes == 4 * size(payload) .and. contents%space == HALOCLINE_HOST, "the size of a payload")
      call c_f_pointer(contents%payload, numbers, [contents%payload_bytes / 4])
      call expect(count(numbers /= payload) == 0, "a payload")
    end if
    call check(halocline_packet_free(received))
  end subroutine

  subroutine on_a_ring()
    type(halocline_resource) :: host, limited
    type(halocline_neighbors) :: ring
    type(halocline_packet) :: for_left, for_right
    type(halocline_round) :: round
    type(halocline_received) :: from_left, from_right
    type(halocline_resource_statistics) :: statistics
    type(note), target, volatile :: released(2), over
    integer(c_int64_t) :: on_left, on_right
    integer(c_int32_t) :: complete
    call check(halocline_resource_host(comm, host))
    call check(halocline_resource_limited(host, 16_c_size_t * NUMBERS, 1.0_c_double, halocline_resource(), limited))
    call check(halocline_neighbors_create(comm, 1, limited, ring))
    call check(halocline_neighbors_ranks(ring, on_left, on_right))
    if (ranks > 1) call expect(on_left == left(1) .and. on_right == right(1), "the neighbours")
    if (ranks == 1) call expect(on_left == -1 .and. on_right == -1, "no other rank")

    for_left = halocline_packet_of(to_left, own)
    for_right = halocline_packet_of(to_right, own)
    for_left%release = c_funloc(let_go)
    for_right%release = c_funloc(let_go)
    for_left%context = c_loc(released(1))
    for_right%context = c_loc(released(2))
    call check(halocline_neighbors_start(ring, 7, for_left, for_right, round))
    call check(halocline_round_on_completion(round, c_funloc(completed), c_loc(over)))
    call check(halocline_round_wait(round, from_left, from_right))
    call check(halocline_round_is_complete(round, complete))
    call expect(complete == 1, "the round is complete")
    do while (over%calls == 0)
    end do
    call expect(over%calls == 1 .and. over%as_wanted == 1, "the callback of a round")
    call check(halocline_resource_describe(limited, statistics))
    ! A rank alone gets the memory that it has sent.
    if (ranks > 1) call expect(statistics%in_use >= 8 * NUMBERS .and. statistics%allocations >= 2, "memory in use")
    call holds(from_left, "to the right", left)
    call holds(from_right, "to the left", right)
    do while (released(1)%calls == 0 .or. released(2)%calls == 0)
    end do
    call refused(halocline_round_wait(round, from_left, from_right), HALOCLINE_ERROR_ARGUMENT, "taken")
    call check(halocline_round_free(round))

    ! To one side alone, and without a payload.
    for_right = halocline_packet_of(to_right)
    call check(halocline_neighbors_exchange(ring, 7, right=for_right, from_left=from_left, from_right=from_right))
    call expect(from_right%id == 0, "nothing from the right")
    call holds(from_left, "to the right")
    call check(halocline_neighbors_free(ring))
    call check(halocline_resource_free(limited))
    call check(halocline_resource_free(host))
    call refused(halocline_packet_order(from_left, halocline_stream()), HALOCLINE_ERROR_HANDLE, "null")
  end subroutine

  ! Each rank sends as many packets to the right as its rank.
  ! Payloads come into memory of the program, which has it back in the end.
  subroutine in_memory_of_the_program()
    type(halocline_allocator) :: allocator
    type(halocline_resource) :: memory
    type(halocline_neighbors) :: ring
    type(halocline_received) :: from_left, from_right
    type(halocline_resource_statistics) :: statistics
    type(note), target, volatile :: released
    call refused(halocline_resource_allocator(allocator, memory), HALOCLINE_ERROR_ARGUMENT, "allocate of the allocator is NULL")
    allocator%allocate = c_funloc(take)
    allocator%deallocate = c_funloc(take_back)
    allocator%release = c_funloc(let_go)
    allocator%context = c_loc(released)
    call check(halocline_resource_allocator(allocator, memory))
    call check(halocline_resource_trim(memory))
    call check(halocline_neighbors_create(comm, 1, memory, ring))
    call check(halocline_neighbors_exchange(ring, 7, right=halocline_packet_of(to_right, own), from_left=from_left, &
                                           from_right=from_right))
    call check(halocline_resource_describe(memory, statistics))
    ! A rank alone gets the memory that it has sent.
    call expect(statistics%in_use == merge(4_c_size_t * NUMBERS, 0_c_size_t, ranks > 1), "memory of the program in use")
    call check(halocline_neighbors_free(ring))
    call check(halocline_resource_free(memory))
    call holds(from_left, "to the right", left)
    do while (released%calls == 0)
    end do
  end subroutine

  subroutine in_a_session()
    type(halocline_neighbors) :: line
    type(halocline_session) :: session
    type(halocline_received) :: from_left, from_right
    type(halocline_packet), target :: packet
    type(halocline_packet), pointer :: sent
    integer(c_int32_t), target :: number
    type(halocline_packet_statistics) :: statistics
    type(note), target, volatile :: over_of_round
    integer(c_int32_t) :: over, ended, last, came, complete
    call check(halocline_neighbors_create(comm, 0, halocline_resource(), line))
    call check(halocline_session_open(line, 1, session))
    call refused(halocline_session_wait(session, from_left, from_right), HALOCLINE_ERROR_ARGUMENT, "start one")
    number = 0
    came = 0
    over = 0
    do while (over == 0)
      last = HALOCLINE_LEFT
      ! A disassociated pointer is an absent argument.
      sent => null()
      if (number < rank .and. rank + 1 < ranks) then
        packet = halocline_packet_of(number)
        sent => packet
      else
        last = ior(last, HALOCLINE_RIGHT)
      end if
      call check(halocline_session_start(session, right=sent, last=last))
      if (associated(sent)) number = number + 1
      call check(halocline_session_on_completion(session, c_funloc(completed), c_loc(over_of_round)))
      complete = 0
      do while (complete == 0 .or. over_of_round%calls == 0)
        call check(halocline_session_is_complete(session, complete))
      end do
      call expect(over_of_round%as_wanted == 1, "the callback of a round of a session")
      over_of_round%calls = 0
      call check(halocline_session_wait(session, from_left, from_right, ended))
      call expect(from_right%id == 0, "nothing from the right")
      if (from_left%id /= 0) then
        call holds(from_left, transfer(came, "1234"))
        came = came + 1
      end if
      call check(halocline_session_is_over(session, over))
    end do
    call expect(iand(ended, HALOCLINE_RIGHT) /= 0, "the right has ended")
    call expect(came == max(0, int(rank) - 1), "the number of packets")
    call check(halocline_session_finish(session))
    call check(halocline_neighbors_statistics(line, statistics))
    call expect(statistics%sent%packets == number .and. statistics%received%packets == came, "the statistics of a line")
    call check(halocline_session_free(session))
    call check(halocline_comm_barrier(comm))
    call check(halocline_neighbors_free(line))
  end subroutine

  ! Each rank sends two packets to the next one.
  subroutine sparse(discovers)
    logical, intent(in) :: discovers
    type(halocline_sparse) :: operation
    type(halocline_received) :: packets(2)
    type(halocline_packet_statistics) :: statistics
    type(note), target, volatile :: over
    integer(c_size_t) :: next(1), last(1), few, number, found(1)
    integer(c_int32_t) :: complete
    character(5), target :: first
    character(6), target :: second
    next = right(1)
    last = left(1)
    few = merge(1, 0, ranks > 1)
    first = "first"
    second = "second"
    if (discovers) then
      call check(halocline_sparse_create(comm, source_count=0_c_size_t, destinations=next, destination_count=few, &
                                         resource=halocline_resource(), sparse=operation))
    else
      call check(halocline_sparse_create(comm, last, few, next, few, halocline_resource(), operation))
    end if
    if (few == 1) then
      call check(halocline_sparse_insert(operation, next(1), halocline_packet_of(first, own)))
      call check(halocline_sparse_insert(operation, next(1), halocline_packet_of(second)))
    end if
    call refused(halocline_sparse_insert(operation, rank, halocline_packet_of(second)), HALOCLINE_ERROR_ARGUMENT, "rank")
    if (discovers) then
      call check(halocline_sparse_finish_and_wait(operation))
    else
      call check(halocline_sparse_finish(operation))
      call check(halocline_sparse_wait(operation))
    end if
    call check(halocline_sparse_on_completion(operation, c_funloc(completed), c_loc(over)))
    call expect(over%calls == 1 .and. over%as_wanted == 1, "the callback of an all-to-all")
    call check(halocline_sparse_is_complete(operation, complete))
    call expect(complete == 1, "the all-to-all is complete")
    call check(halocline_sparse_sources(operation, capacity=0_c_size_t, count=number))
    call expect(number == few, "the number of sources")
    if (few == 1) then
      call check(halocline_sparse_sources(operation, found, 1_c_size_t, number))
      call expect(found(1) == last(1), "the source")
      call check(halocline_sparse_destinations(operation, found, 1_c_size_t, number))
      call expect(found(1) == next(1), "the destination")
      call check(halocline_sparse_extract(operation, last(1), capacity=0_c_size_t, count=number))
      call expect(number == 2, "the number of packets of a source")
      call check(halocline_sparse_extract(operation, last(1), packets, 2_c_size_t, number))
      call holds(packets(1), "first", left)
      call holds(packets(2), "second")
    end if
    call check(halocline_sparse_statistics(operation, statistics))
    call expect(statistics%sent%packets == 2 * few, "the statistics of an all-to-all")
    call check(halocline_sparse_free(operation))
  end subroutine

  ! The last rank gives up: all ranks get its reason.
  subroutine given_up()
    type(halocline_neighbors) :: ring
    type(halocline_received) :: from_left, from_right
    type(halocline_packet) :: empty
    integer(c_int32_t) :: status
    call check(halocline_neighbors_create(comm, 1, halocline_resource(), ring))
    if (rank == ranks - 1) call check(halocline_neighbors_abort(ring, "out of ideas" // c_null_char))
    do
      status = halocline_neighbors_exchange(ring, 1, empty, empty, from_left, from_right)
      if (status /= HALOCLINE_OK) exit
      call check(halocline_packet_free(from_left))
      call check(halocline_packet_free(from_right))
    end do
    call refused(status, HALOCLINE_ERROR_FAILED, "out of ideas")
    call check(halocline_comm_barrier(comm))
    call check(halocline_neighbors_free(ring))
  end subroutine

  ! Payloads and metadata that are not contiguous are refused where the packet is sent.
  subroutine not_contiguous()
    type(halocline_neighbors) :: ring
    type(halocline_round) :: round
    integer(c_int32_t), target :: table(4, 4)
    type(halocline_packet) :: packet
    table = 0
    call check(halocline_neighbors_create(comm, 1, halocline_resource(), ring))
    packet = halocline_packet_of(payload=table(2, :))
    call refused(halocline_neighbors_start(ring, 1, left=packet, round=round), HALOCLINE_ERROR_ARGUMENT, "not contiguous")
    packet = halocline_packet_of(table(2, :))
    call refused(halocline_neighbors_start(ring, 1, left=packet, round=round), HALOCLINE_ERROR_ARGUMENT, "not contiguous")
    packet = halocline_packet_of(payload=table(:, 2))
    call expect(packet%payload_bytes == 16, "a column")
    call check(halocline_comm_barrier(comm))
    call check(halocline_neighbors_free(ring))
  end subroutine
end program
