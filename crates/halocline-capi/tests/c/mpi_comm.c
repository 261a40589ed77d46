/* Communicators of a program that initialises Open MPI itself: by MPI_Comm, by MPI_Fint, and wrong ones. `mpi_comm funneled` lets one
 * thread call MPI. Prints "ok RANKS mpi". The functions of MPI are looked up, so that no mpi.h is needed. */
#include "check.h"
#include <dlfcn.h>
#include <pthread.h>

static void *mpi;

static void look_up(const char *name, void *function) {
  void *symbol = dlsym(mpi, name);
  TRUE(symbol != NULL);
  memcpy(function, &symbol, sizeof symbol);
}

static void of_other_libraries(void) {
  halocline_comm comm;
  uint32_t mpich_world = 0x44000000;
  REFUSED(HALOCLINE_ERROR_MPI, "another MPI library", halocline_comm_from_mpi(HALOCLINE_MPI_COMM(mpich_world), NULL, &comm));
  REFUSED(HALOCLINE_ERROR_MPI, "standard interface", halocline_comm_from_mpi(0x101, sizeof(void *), NULL, &comm));
  REFUSED(HALOCLINE_ERROR_MPI, "MPI_COMM_NULL", halocline_comm_from_mpi(0, sizeof(void *), NULL, &comm));
  REFUSED(HALOCLINE_ERROR_MPI, "no memory", halocline_comm_from_mpi((uintptr_t)-4096, sizeof(void *), NULL, &comm));
  REFUSED(HALOCLINE_ERROR_MPI, "no communicator", halocline_comm_from_fortran(123456, NULL, &comm));
  void *memory = calloc(1, 4096);
  REFUSED(HALOCLINE_ERROR_MPI, "no communicator at that address", halocline_comm_from_mpi(HALOCLINE_MPI_COMM(memory), NULL, &comm));
  free(memory);
  void *null = dlsym(mpi, "ompi_mpi_comm_null");
  REFUSED(HALOCLINE_ERROR_MPI, "MPI_COMM_NULL", halocline_comm_from_mpi(HALOCLINE_MPI_COMM(null), NULL, &comm));
  halocline_mpi_options options = HALOCLINE_MPI_OPTIONS_INIT;
  options.node_aware = 9;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "node_aware is 9", halocline_comm_from_mpi(HALOCLINE_MPI_COMM(null), &options, &comm));
}

static void *call_of_another_thread(void *given) {
  REFUSED(HALOCLINE_ERROR_MPI, "that thread", halocline_comm_barrier(*(halocline_comm *)given));
  return NULL;
}

/* With MPI_THREAD_FUNNELED only the thread that has initialised MPI may use the communicator. */
static void other_threads_are_refused(halocline_comm comm) {
  pthread_t thread;
  TRUE(pthread_create(&thread, NULL, call_of_another_thread, &comm) == 0);
  TRUE(pthread_join(thread, NULL) == 0);
}

/* A field on a ring of four cells for each rank. */
static halocline_binding binding_of_a_ring(halocline_comm comm, size_t size) {
  size_t extents[1] = {4 * size}, cells = 6;
  const int32_t periodic[1] = {1};
  halocline_grid grid = HALOCLINE_GRID_INIT;
  grid.axes = 1, grid.extents = extents, grid.periodic = periodic;
  halocline_decomposition blocks;
  OK(halocline_decompose(&grid, size, &blocks));
  halocline_halo width = HALOCLINE_HALO_INIT;
  width.width = 1;
  halocline_binding binding;
  OK(halocline_pattern_regular(comm, blocks, &width, &binding.pattern));
  halocline_layout layout = HALOCLINE_LAYOUT_INIT;
  layout.dimensions = 1, layout.extents = &cells, layout.element = HALOCLINE_F64;
  OK(halocline_field_allocate(comm, &layout, &binding.field));
  OK(halocline_decomposition_free(&blocks));
  return binding;
}

static void free_binding(halocline_binding *binding) {
  OK(halocline_field_free(&binding->field));
  OK(halocline_pattern_free(&binding->pattern));
}

/* The message names the path that was asked for. */
static void mailboxes_without_shared_memory_are_refused(halocline_comm comm, size_t size) {
  halocline_binding binding = binding_of_a_ring(comm, size);
  halocline_bind_options options = HALOCLINE_BIND_OPTIONS_INIT;
  options.link = HALOCLINE_LINK_MAILBOX;
  halocline_halo_exchange halo;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "cannot be mailbox: the two ranks share no memory", halocline_bind(comm, &binding, 1, &options, &halo));
  free_binding(&binding);
}

static void *exchange_of_another_thread(void *halo) {
  halocline_halo_exchange object = *(halocline_halo_exchange *)halo;
  REFUSED(HALOCLINE_ERROR_MPI, "MPI_THREAD_FUNNELED", halocline_exchange_and_wait(object));
  REFUSED(HALOCLINE_ERROR_MPI, "MPI_THREAD_FUNNELED", halocline_exchange(object, NULL));
  REFUSED(HALOCLINE_ERROR_MPI, "MPI_THREAD_FUNNELED", halocline_exchange_set(object, 0, NULL));
  REFUSED(HALOCLINE_ERROR_MPI, "MPI_THREAD_FUNNELED", halocline_reduce(object, 0, HALOCLINE_SUM, 0, NULL));
  return NULL;
}

/* A call that another thread may not make begins no exchange, which this thread would have to wait for. */
static void a_refused_exchange_is_not_begun(halocline_comm comm, size_t size) {
  halocline_binding binding = binding_of_a_ring(comm, size);
  halocline_halo_exchange halo;
  OK(halocline_bind(comm, &binding, 1, NULL, &halo));
  pthread_t thread;
  TRUE(pthread_create(&thread, NULL, exchange_of_another_thread, &halo) == 0);
  TRUE(pthread_join(thread, NULL) == 0);
  /* The first exchange that begins, of this rank and of the others. */
  halocline_pending pending;
  OK(halocline_exchange(halo, &pending));
  TRUE(pending.epoch == 1);
  OK(halocline_wait(pending));
  OK(halocline_halo_exchange_free(&halo));
  free_binding(&binding);
}

/* Packets of which some wait for memory, so that threads in the background look at them, too. */
static void packets_of_one_thread(halocline_comm comm) {
  enum { BYTES = 1 << 20, ROUNDS = 60 };
  static char payload[BYTES];
  const halocline_resource none = {0};
  halocline_resource host, limited;
  halocline_neighbors ring;
  OK(halocline_resource_host(comm, &host));
  OK(halocline_resource_limited(host, BYTES, 10, none, &limited));
  OK(halocline_neighbors_create(comm, 1, limited, &ring));
  halocline_packet packet = HALOCLINE_PACKET_INIT;
  packet.payload = payload, packet.payload_bytes = BYTES, packet.has_payload = 1;
  for (uint32_t id = 0; id < ROUNDS; id++) {
    halocline_round round;
    halocline_received left, right;
    OK(halocline_neighbors_start(ring, id, id % 2 ? &packet : NULL, id % 2 ? NULL : &packet, &round));
    OK(halocline_round_wait(round, &left, &right));
    OK(halocline_packet_free(&left));
    OK(halocline_packet_free(&right));
    OK(halocline_round_free(&round));
  }
  OK(halocline_comm_barrier(comm));
  OK(halocline_neighbors_free(&ring));
  OK(halocline_resource_free(&limited));
  OK(halocline_resource_free(&host));
}

int main(int argc, char **argv) {
  enum { MPI_THREAD_FUNNELED = 1, MPI_THREAD_MULTIPLE = 3 };
  int is_funneled = argc == 2 && strcmp(argv[1], "funneled") == 0;
  mpi = dlopen("libmpi.so.40", RTLD_NOW | RTLD_GLOBAL);
  TRUE(mpi != NULL);
  int (*init)(int *, char ***, int, int *), (*finalize)(void), (*c2f)(void *), provided;
  look_up("MPI_Init_thread", &init);
  look_up("MPI_Finalize", &finalize);
  look_up("MPI_Comm_c2f", &c2f);
  void *world = dlsym(mpi, "ompi_mpi_comm_world");
  halocline_comm comms[2];
  REFUSED(HALOCLINE_ERROR_MPI, "MPI_Init", halocline_comm_from_mpi(HALOCLINE_MPI_COMM(world), NULL, &comms[0]));
  TRUE(init(NULL, NULL, is_funneled ? MPI_THREAD_FUNNELED : MPI_THREAD_MULTIPLE, &provided) == 0);
  of_other_libraries();
  halocline_mpi_options messages = HALOCLINE_MPI_OPTIONS_INIT;
  messages.node_aware = HALOCLINE_OFF;
  OK(halocline_comm_from_mpi(HALOCLINE_MPI_COMM(world), &messages, &comms[0]));
  OK(halocline_comm_from_fortran(c2f(world), NULL, &comms[1]));
  size_t rank, size;
  for (int at = 0; at < 2; at++) {
    uint64_t ranks = 1;
    OK(halocline_comm_all_reduce(comms[at], &ranks, 1, HALOCLINE_U64, HALOCLINE_SUM));
    OK(halocline_comm_size(comms[at], &size));
    TRUE(ranks == size);
  }
  OK(halocline_comm_rank(comms[0], &rank));
  OK(halocline_comm_free(&comms[1]));
  mailboxes_without_shared_memory_are_refused(comms[0], size);
  packets_of_one_thread(comms[0]);
  if (is_funneled) {
    other_threads_are_refused(comms[0]);
    a_refused_exchange_is_not_begun(comms[0], size);
  }
  OK(halocline_comm_barrier(comms[0]));
  TRUE(finalize() == 0);
  REFUSED(HALOCLINE_ERROR_MPI, "finalised", halocline_comm_from_mpi(HALOCLINE_MPI_COMM(world), NULL, &comms[1]));
  if (size > 1) {
    /* Unless the other rank has been faster to leave. */
    halocline_status status = halocline_comm_barrier(comms[0]);
    TRUE(status == HALOCLINE_ERROR_MPI || status == HALOCLINE_ERROR_COMMUNICATION);
  }
  OK(halocline_comm_free(&comms[0]));
  if (rank == 0) {
    printf("ok %zu mpi\n", size);
  }
  return 0;
}
