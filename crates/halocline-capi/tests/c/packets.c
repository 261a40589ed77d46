/* Neighbour exchanges and sparse all-to-alls: as processes, or as threads with `packets N`. */
#include "ranks.h"
#include <sched.h>
#include <stdatomic.h>

static halocline_packet packet_of(const char *text, const void *payload, size_t bytes) {
  halocline_packet packet = HALOCLINE_PACKET_INIT;
  packet.metadata = text, packet.metadata_bytes = strlen(text);
  packet.payload = payload, packet.payload_bytes = bytes, packet.has_payload = payload != NULL;
  return packet;
}

/* Checks a received packet and frees it. */
static void holds(halocline_received received, const char *text, const void *payload, size_t bytes) {
  halocline_contents contents = HALOCLINE_CONTENTS_INIT;
  OK(halocline_packet_describe(received, &contents));
  TRUE(contents.metadata_bytes == strlen(text) && memcmp(contents.metadata, text, strlen(text)) == 0);
  TRUE(contents.has_payload == (payload != NULL) && contents.space == HALOCLINE_HOST);
  if (payload != NULL) {
    TRUE(contents.payload_bytes == bytes && memcmp(contents.payload, payload, bytes) == 0);
  }
  OK(halocline_packet_free(&received));
}

enum { BYTES = 100000 };

/* What a rank sends. */
static void content(char *bytes, size_t rank) { memset(bytes, (int)('a' + rank), BYTES); }

static void count(void *context) { atomic_fetch_add((_Atomic int *)context, 1); }

static void done(void *context, halocline_status status, const char *message) {
  size_t ignored;
  halocline_comm none = {0};
  int refused = halocline_comm_rank(none, &ignored) == HALOCLINE_ERROR_CALLBACK;
  atomic_store((_Atomic int *)context, status == HALOCLINE_OK && message[0] == '\0' && refused ? 1 : -1);
}

static void on_a_ring(halocline_comm comm, size_t rank, size_t size) {
  static _Thread_local char own[BYTES], left[BYTES], right[BYTES];
  size_t on_left = (rank + size - 1) % size, on_right = (rank + 1) % size;
  content(own, rank), content(left, on_left), content(right, on_right);
  halocline_resource host, limited, none = {0};
  OK(halocline_resource_host(comm, &host));
  OK(halocline_resource_limited(host, 4 * BYTES, 1, none, &limited));
  halocline_neighbors ring;
  OK(halocline_neighbors_create(comm, 1, limited, &ring));
  int64_t ranks[2];
  OK(halocline_neighbors_ranks(ring, &ranks[0], &ranks[1]));
  TRUE(ranks[0] == (size > 1 ? (int64_t)on_left : -1) && ranks[1] == (size > 1 ? (int64_t)on_right : -1));

  REFUSED(HALOCLINE_ERROR_ARGUMENT, "device is -1", halocline_resource_pinned(comm, -1, &none));
  REFUSED(HALOCLINE_ERROR_DEVICE, "", halocline_resource_pinned(comm, 100000, &none));

  _Atomic int released = 0, calls = 0;
  halocline_packet to_left = packet_of("to the left", own, BYTES), to_right = packet_of("to the right", own, BYTES);
  to_left.release = to_right.release = count, to_left.context = to_right.context = (void *)&released;
  halocline_round round;
  halocline_received from_left, from_right;
  OK(halocline_neighbors_start(ring, 7, &to_left, &to_right, &round));
  OK(halocline_round_on_completion(round, done, (void *)&calls));
  OK(halocline_round_wait(round, &from_left, &from_right));
  int32_t complete = 0;
  OK(halocline_round_is_complete(round, &complete));
  TRUE(complete == 1);
  while (atomic_load(&calls) == 0) {
    sched_yield();
  }
  TRUE(atomic_load(&calls) == 1);
  halocline_resource_statistics statistics = HALOCLINE_RESOURCE_STATISTICS_INIT;
  OK(halocline_resource_describe(limited, &statistics));
  /* A rank alone gets the memory that it has sent. */
  TRUE(statistics.in_use >= (size > 1 ? 2 * BYTES : 0));
  holds(from_left, "to the right", left, BYTES);
  holds(from_right, "to the left", right, BYTES);
  while (atomic_load(&released) < 2) {
    sched_yield();
  }
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "taken", halocline_round_wait(round, &from_left, &from_right));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "callback is NULL", halocline_round_on_completion(round, NULL, NULL));
  OK(halocline_round_free(&round));

  to_right = packet_of("alone", NULL, 0);
  OK(halocline_neighbors_exchange(ring, 7, NULL, &to_right, &from_left, &from_right));
  TRUE(from_right.id == 0);
  holds(from_left, "alone", NULL, 0);
  to_right.space = 4, to_right.has_payload = 1, to_right.release = count, to_right.context = (void *)&released;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "space of the packet is 4", halocline_neighbors_start(ring, 7, NULL, &to_right, &round));
  TRUE(atomic_load(&released) == 3);
  OK(halocline_neighbors_free(&ring));
  OK(halocline_resource_free(&limited));
  OK(halocline_resource_free(&host));
}

/* A pool of the program: how many blocks and bytes are out, and whether the library needs it no more. */
typedef struct pool {
  _Atomic int blocks, allocations, released, called_back;
  _Atomic size_t bytes;
} pool;

static void *take(void *context, size_t bytes) {
  pool *of = context;
  size_t ignored;
  halocline_comm none = {0};
  if (bytes > BYTES) return NULL;
  if (halocline_comm_rank(none, &ignored) == HALOCLINE_ERROR_CALLBACK) atomic_fetch_add(&of->called_back, 1);
  atomic_fetch_add(&of->blocks, 1), atomic_fetch_add(&of->allocations, 1), atomic_fetch_add(&of->bytes, bytes);
  return malloc(bytes);
}

static void put(void *context, void *memory, size_t bytes) {
  pool *of = context;
  atomic_fetch_sub(&of->blocks, 1), atomic_fetch_sub(&of->bytes, bytes);
  free(memory);
}

static void let_go(void *context) { atomic_fetch_add(&((pool *)context)->released, 1); }

/* Payloads come into memory of the program, which has it back when their packets are freed. */
static void in_memory_of_the_program(halocline_comm comm, size_t rank, size_t size) {
  static _Thread_local char own[BYTES + 1], left[BYTES];
  pool of = {0};
  content(own, rank), content(left, (rank + size - 1) % size);
  halocline_allocator allocator = HALOCLINE_ALLOCATOR_INIT;
  halocline_resource memory, limited, none = {0};
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "allocate of the allocator is NULL", halocline_resource_allocator(&allocator, &memory));
  allocator.allocate = take, allocator.release = let_go, allocator.context = &of;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "deallocate of the allocator is NULL", halocline_resource_allocator(&allocator, &memory));
  allocator.deallocate = put, allocator.space = 7;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "space of the allocator is 7", halocline_resource_allocator(&allocator, &memory));
  allocator.space = HALOCLINE_CUDA, allocator.device = 100000;
  REFUSED(HALOCLINE_ERROR_DEVICE, "", halocline_resource_allocator(&allocator, &memory));
  TRUE(atomic_load(&of.released) == 0);
  allocator.space = HALOCLINE_HOST, allocator.device = 0;
  OK(halocline_resource_allocator(&allocator, &memory));
  OK(halocline_resource_limited(memory, 2 * BYTES, 0, none, &limited));
  OK(halocline_resource_trim(limited));

  halocline_neighbors ring;
  OK(halocline_neighbors_create(comm, 1, limited, &ring));
  halocline_packet packet = packet_of("in the pool", own, BYTES);
  halocline_received from_left, from_right;
  OK(halocline_neighbors_exchange(ring, 7, NULL, &packet, &from_left, &from_right));
  /* A rank alone gets the memory that it has sent. */
  int came = size > 1;
  halocline_resource_statistics statistics = HALOCLINE_RESOURCE_STATISTICS_INIT;
  OK(halocline_resource_describe(memory, &statistics));
  TRUE(atomic_load(&of.bytes) == (size_t)came * BYTES && statistics.in_use == (size_t)came * BYTES);
  TRUE(atomic_load(&of.blocks) == came && atomic_load(&of.called_back) == came);
  OK(halocline_neighbors_free(&ring));
  OK(halocline_resource_free(&limited));
  OK(halocline_resource_free(&memory));
  TRUE(atomic_load(&of.released) == 0 || !came);
  holds(from_left, "in the pool", left, BYTES);
  /* The library's threads may be the last that hold it. */
  while (atomic_load(&of.released) == 0) {
    sched_yield();
  }
  TRUE(atomic_load(&of.blocks) == 0 && atomic_load(&of.bytes) == 0 && statistics.allocations == (uint64_t)came);
  OK(halocline_comm_barrier(comm));

  /* The pool has no memory for a longer payload. */
  OK(halocline_resource_allocator(&allocator, &memory));
  OK(halocline_neighbors_create(comm, 1, memory, &ring));
  packet = packet_of("too long", own, BYTES + 1);
  halocline_status status = halocline_neighbors_exchange(ring, 7, NULL, &packet, &from_left, &from_right);
  /* Its own error, or first that of its neighbour. */
  TRUE(came ? status == HALOCLINE_ERROR_MEMORY || status == HALOCLINE_ERROR_FAILED : status == HALOCLINE_OK);
  TRUE(!came || strstr(halocline_error_message(), "it returned NULL") != NULL);
  if (!came) OK(halocline_packet_free(&from_left));
  OK(halocline_neighbors_free(&ring));
  OK(halocline_resource_free(&memory));
  while (atomic_load(&of.released) == 1) {
    sched_yield();
  }
  TRUE(atomic_load(&of.blocks) == 0);
}

/* Each rank sends as many packets to the right as its rank. */
static void in_a_session(halocline_comm comm, size_t rank, size_t size) {
  halocline_resource none = {0};
  halocline_neighbors line;
  halocline_session session;
  OK(halocline_neighbors_create(comm, 0, none, &line));
  OK(halocline_session_open(line, 1, &session));
  halocline_received left, right;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "was started; start one", halocline_session_wait(session, &left, &right, NULL));
  size_t sent = 0, came = 0;
  int32_t complete = 0;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "was started; start one", halocline_session_is_complete(session, &complete));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "no round of the session is in flight; start one", halocline_session_on_completion(session, done, NULL));
  for (int32_t ended = 0, over = 0; !over;) {
    char number[2] = {(char)('0' + sent), 0};
    halocline_packet packet = packet_of(number, NULL, 0);
    int sends = sent < rank && rank + 1 < size;
    OK(halocline_session_start(session, NULL, sends ? &packet : NULL, HALOCLINE_LEFT | (sends ? 0 : HALOCLINE_RIGHT)));
    sent += sends;
    /* Either of two ways to learn that a wait returns at once. */
    _Atomic int calls = 0;
    if (sent % 2 == 0) OK(halocline_session_on_completion(session, done, (void *)&calls));
    for (complete = 0; complete == 0 || (sent % 2 == 0 && atomic_load(&calls) == 0); sched_yield()) {
      OK(halocline_session_is_complete(session, &complete));
    }
    TRUE(complete == 1 && atomic_load(&calls) == (sent % 2 == 0));
    halocline_received from_left, from_right;
    OK(halocline_session_wait(session, &from_left, &from_right, &ended));
    TRUE(from_right.id == 0);
    REFUSED(HALOCLINE_ERROR_ARGUMENT, "taken", halocline_session_wait(session, &left, &right, NULL));
    if (from_left.id != 0) {
      char wanted[2] = {(char)('0' + came++), 0};
      holds(from_left, wanted, NULL, 0);
    }
    OK(halocline_session_is_over(session, &over));
  }
  TRUE(came == (rank > 0 ? rank - 1 : 0));
  halocline_packet_statistics statistics = HALOCLINE_PACKET_STATISTICS_INIT;
  OK(halocline_neighbors_statistics(line, &statistics));
  TRUE(statistics.sent.packets == sent && statistics.sent.metadata == sent && statistics.received.packets == came);
  TRUE(statistics.rounds > 0 && statistics.sent.host == 0);
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "taken", halocline_session_is_complete(session, &complete));
  OK(halocline_session_finish(session));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "was finished", halocline_session_wait(session, &left, &right, NULL));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "was finished", halocline_session_is_complete(session, &complete));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "was finished", halocline_session_on_completion(session, done, NULL));
  OK(halocline_session_free(&session));
  halocline_packet nowhere = packet_of("", NULL, 0);
  if (rank == 0) {
    REFUSED(HALOCLINE_ERROR_ARGUMENT, "no neighbour", halocline_neighbors_exchange(line, 2, &nowhere, NULL, &left, &right));
  }
  OK(halocline_comm_barrier(comm));
  OK(halocline_neighbors_free(&line));
}

/* A rank that is its own neighbour, in a session that has ended on one side. */
static void alone_on_a_ring(halocline_comm comm) {
  halocline_resource none = {0};
  halocline_neighbors ring;
  halocline_session session;
  halocline_received left, right;
  halocline_packet packet = packet_of("", NULL, 0);
  OK(halocline_neighbors_create(comm, 1, none, &ring));
  OK(halocline_session_open(ring, 1, &session));
  OK(halocline_session_start(session, NULL, NULL, HALOCLINE_LEFT));
  OK(halocline_session_wait(session, &left, &right, NULL));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "has sent its last packet to the left", halocline_session_start(session, &packet, NULL, 0));
  OK(halocline_session_start(session, NULL, NULL, HALOCLINE_RIGHT));
  OK(halocline_session_wait(session, &left, &right, NULL));
  OK(halocline_session_finish(session));
  OK(halocline_session_free(&session));
  OK(halocline_neighbors_free(&ring));
}

static void sparse(halocline_comm comm, size_t rank, size_t size, int discovers) {
  static _Thread_local char own[BYTES], wanted[BYTES];
  content(own, rank);
  size_t next = (rank + 1) % size, last = (rank + size - 1) % size, few = size > 1, number;
  halocline_resource none = {0};
  halocline_sparse operation;
  const size_t no_rank = 0;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "asks for their discovery", halocline_sparse_create(comm, NULL, 7, &next, 0, none, &operation));
  OK(halocline_sparse_create(comm, discovers ? NULL : few ? &last : &no_rank, discovers ? 0 : few, &next, few, none, &operation));
  halocline_packet first = packet_of("first", own, BYTES), second = packet_of("second", NULL, 0);
  for (size_t at = 0; at < few; at++) {
    OK(halocline_sparse_insert(operation, next, &first));
    OK(halocline_sparse_insert(operation, next, &second));
    REFUSED(HALOCLINE_ERROR_ARGUMENT, "packet is NULL", halocline_sparse_insert(operation, next, NULL));
  }
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "rank", halocline_sparse_insert(operation, rank, &second));
  if (discovers) {
    OK(halocline_sparse_finish_and_wait(operation));
  } else {
    OK(halocline_sparse_finish(operation));
    OK(halocline_sparse_wait(operation));
  }
  _Atomic int calls = 0;
  OK(halocline_sparse_on_completion(operation, done, (void *)&calls));
  TRUE(atomic_load(&calls) == 1);
  int32_t complete;
  OK(halocline_sparse_is_complete(operation, &complete));
  TRUE(complete == 1);
  OK(halocline_sparse_sources(operation, NULL, 0, &number));
  TRUE(number == few);
  size_t destination;
  OK(halocline_sparse_destinations(operation, &destination, 1, &number));
  TRUE(number == few && (few == 0 || destination == next));
  halocline_packet_statistics statistics = HALOCLINE_PACKET_STATISTICS_INIT;
  OK(halocline_sparse_statistics(operation, &statistics));
  TRUE(statistics.rounds == 0 && statistics.sent.packets == 2 * few && statistics.received.host == few * BYTES);
  statistics.size = 8;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "`size` of the halocline_packet_statistics is 8", halocline_sparse_statistics(operation, &statistics));
  for (size_t at = 0; at < few; at++) {
    halocline_received packets[2];
    OK(halocline_sparse_extract(operation, last, NULL, 0, &number));
    TRUE(number == 2);
    REFUSED(HALOCLINE_ERROR_ARGUMENT, "capacity of 1", halocline_sparse_extract(operation, last, packets, 1, &number));
    /* A refused call leaves the packets for the next one. */
    halocline_received *misaligned = (halocline_received *)((char *)packets + 1);
    REFUSED(HALOCLINE_ERROR_ARGUMENT, "count is NULL", halocline_sparse_extract(operation, last, packets, 2, NULL));
    REFUSED(HALOCLINE_ERROR_ARGUMENT, "no multiple of 8", halocline_sparse_extract(operation, last, misaligned, 2, &number));
    OK(halocline_sparse_extract(operation, last, packets, 2, &number));
    content(wanted, last);
    holds(packets[0], "first", wanted, BYTES);
    holds(packets[1], "second", NULL, 0);
  }
  OK(halocline_sparse_free(&operation));
}

/* Packets that contradict themselves are refused, and what they keep is released. */
static void contradictions(halocline_comm comm) {
  _Atomic int released = 0;
  halocline_resource none = {0};
  halocline_neighbors line;
  OK(halocline_neighbors_create(comm, 0, none, &line));
  halocline_round round;
  halocline_packet odd = packet_of("", "abc", 3);
  odd.has_payload = 0, odd.release = count, odd.context = (void *)&released;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "the packet has a payload or its stream, and has_payload is 0; set has_payload to 1",
          halocline_neighbors_start(line, 1, NULL, &odd, &round));
  odd.payload = NULL;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "has_payload is 0", halocline_neighbors_start(line, 1, NULL, &odd, &round));
  odd.payload_bytes = 0, odd.metadata_bytes = ((size_t)1 << 30) + 1;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "the packet has 1073741825 bytes of metadata, and 1073741824 is the most",
          halocline_neighbors_start(line, 1, NULL, &odd, &round));
  odd.metadata_bytes = 0, odd.reserved = 1;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "reserved of the packet is not 0", halocline_neighbors_start(line, 1, NULL, &odd, &round));
  odd.reserved = 0, odd.has_payload = 2;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "has_payload is 2", halocline_neighbors_start(line, 1, NULL, &odd, &round));
  /* A freed or made up stream, also for memory of the host. */
  odd.has_payload = 1, odd.stream.id = line.id;
  REFUSED(HALOCLINE_ERROR_HANDLE, "a halocline_neighbors was passed where a halocline_stream is needed",
          halocline_neighbors_start(line, 1, NULL, &odd, &round));
  TRUE(atomic_load(&released) == 6);
  OK(halocline_neighbors_free(&line));
}

/* Rank 0 passes its sources, the others discover theirs: all ranks learn that, also where rank 0 waits for no other rank. */
static void sources_that_some_discover(halocline_comm comm, size_t rank, size_t size) {
  if (size == 1) {
    return;
  }
  halocline_comm apart;
  OK(halocline_comm_duplicate(comm, &apart));
  const size_t no_rank = 0;
  halocline_resource none = {0};
  halocline_sparse operation;
  REFUSED(HALOCLINE_ERROR_COMMUNICATION, "rank 0 is in sparse_alltoall (given sources), rank ",
          halocline_sparse_create(apart, rank == 0 ? &no_rank : NULL, 0, NULL, 0, none, &operation));
  TRUE(strstr(halocline_error_message(), " in sparse_alltoall (discovers sources);") != NULL);
  OK(halocline_comm_free(&apart));
  OK(halocline_comm_barrier(comm));
}

/* The last rank gives up: all ranks that wait for each other get its reason. */
static void given_up(halocline_comm comm, size_t rank, size_t size) {
  halocline_resource none = {0};
  halocline_neighbors ring;
  OK(halocline_neighbors_create(comm, 1, none, &ring));
  halocline_packet packet = packet_of("", NULL, 0);
  halocline_received left, right;
  if (rank == size - 1) {
    OK(halocline_neighbors_abort(ring, "out of ideas"));
  }
  halocline_status status = HALOCLINE_OK;
  while (status == HALOCLINE_OK) {
    status = halocline_neighbors_exchange(ring, 1, &packet, &packet, &left, &right);
    if (status == HALOCLINE_OK) {
      OK(halocline_packet_free(&left));
      OK(halocline_packet_free(&right));
    }
  }
  TRUE(status == HALOCLINE_ERROR_FAILED && strstr(halocline_error_message(), "out of ideas") != NULL);
  OK(halocline_comm_barrier(comm));
  OK(halocline_neighbors_free(&ring));
}

static void run(halocline_comm comm, size_t rank, size_t size) {
  on_a_ring(comm, rank, size);
  in_memory_of_the_program(comm, rank, size);
  in_a_session(comm, rank, size);
  if (size == 1) {
    alone_on_a_ring(comm);
  }
  contradictions(comm);
  sparse(comm, rank, size, 0);
  sparse(comm, rank, size, 1);
  sources_that_some_discover(comm, rank, size);
  given_up(comm, rank, size);
}
