/* Calls after MPI_Finalize: each is a status and a message, never a crash or a hang, also between ranks that share memory. Run by mpirun on two
 * ranks. `after_finalize NODE_AWARE IN_FLIGHT LINK LEVEL`: 1 if ranks of a node share memory, or 2; 1 if operations are in flight at the end
 * of MPI; HALOCLINE_LINK_...; the thread level. Rank 0 prints "ok". */
#include "check.h"
#include <mpi.h>
#include <unistd.h>

/* What a rank has when MPI ends. */
typedef struct {
  halocline_comm comm;
  size_t rank;
  halocline_pattern pattern;
  /* Of the bound exchange, and of exchanges by the links. */
  halocline_field field, given;
  halocline_halo_exchange halo;
  halocline_pending pending;
  halocline_pattern_links links;
  halocline_neighbors ring;
  halocline_round round;
  halocline_session session;
  halocline_sparse sparse;
} objects;

/* The call has succeeded, or says that MPI has ended, or what has failed before: the other rank may have ended first. */
static int ends(const char *name, halocline_status status) {
  const char *message = halocline_error_message();
  int is_told = status == HALOCLINE_ERROR_MPI ? strstr(message, "MPI was finalised; use and free communicators before") != NULL
                                              : status == HALOCLINE_ERROR_FAILED || status == HALOCLINE_ERROR_COMMUNICATION;
  if (status != HALOCLINE_OK && (!is_told || strstr(message, "has died") != NULL)) {
    fprintf(stderr, "%s: %s: %s\n", name, halocline_status_name(status), message);
    exit(1);
  }
  return status == HALOCLINE_OK;
}
#define ENDS(call) ends(#call, call)
/* The call says that MPI has ended. */
#define TELLS(call) TRUE(!ENDS(call))
/* It does so with the status of MPI: nothing had failed before. */
#define TELLS_OF_MPI(call) REFUSED(HALOCLINE_ERROR_MPI, "MPI was finalised; use and free communicators before", call)

static halocline_packet text(void) {
  halocline_packet packet = HALOCLINE_PACKET_INIT;
  packet.metadata = "text", packet.metadata_bytes = 4;
  return packet;
}

static char payload[1 << 20];

static halocline_packet large(void) {
  halocline_packet packet = text();
  packet.payload = payload, packet.payload_bytes = sizeof payload, packet.has_payload = 1;
  return packet;
}

static objects made(halocline_comm comm, int32_t link) {
  objects all = {.comm = comm};
  size_t size, cells = 6;
  OK(halocline_comm_size(comm, &size));
  OK(halocline_comm_rank(comm, &all.rank));
  TRUE(size == 2);
  size_t extents[1] = {4 * size};
  const int32_t periodic[1] = {1};
  halocline_grid grid = HALOCLINE_GRID_INIT;
  grid.axes = 1, grid.extents = extents, grid.periodic = periodic;
  halocline_decomposition blocks;
  OK(halocline_decompose(&grid, size, &blocks));
  halocline_halo width = HALOCLINE_HALO_INIT;
  width.width = 1;
  OK(halocline_pattern_regular(comm, blocks, &width, &all.pattern));
  OK(halocline_decomposition_free(&blocks));
  halocline_layout layout = HALOCLINE_LAYOUT_INIT;
  layout.dimensions = 1, layout.extents = &cells, layout.element = HALOCLINE_F64;
  OK(halocline_field_allocate(comm, &layout, &all.field));
  OK(halocline_field_allocate(comm, &layout, &all.given));
  halocline_binding binding = {all.pattern, all.field};
  halocline_bind_options options = HALOCLINE_BIND_OPTIONS_INIT;
  options.link = link;
  OK(halocline_bind(comm, &binding, 1, &options, &all.halo));
  OK(halocline_exchange_and_wait(all.halo));
  OK(halocline_pattern_links_create(comm, &all.pattern, 1, NULL, &all.links));
  const halocline_resource none = {0};
  OK(halocline_neighbors_create(comm, 1, none, &all.ring));
  halocline_packet packet = text();
  halocline_received left, right;
  OK(halocline_neighbors_exchange(all.ring, 1, &packet, &packet, &left, &right));
  OK(halocline_packet_free(&left));
  OK(halocline_packet_free(&right));
  OK(halocline_session_open(all.ring, 2, &all.session));
  const size_t other = 1 - all.rank;
  OK(halocline_sparse_create(comm, &other, 1, &other, 1, none, &all.sparse));
  return all;
}

/* Begun before the end of MPI, and not waited for. */
static void begin(objects *all) {
  halocline_packet packet = large();
  OK(halocline_exchange(all->halo, &all->pending));
  OK(halocline_neighbors_start(all->ring, 3, &packet, &packet, &all->round));
  OK(halocline_session_start(all->session, &packet, &packet, 0));
  OK(halocline_sparse_insert(all->sparse, 1 - all->rank, &packet));
}

/* The outcome of an operation in flight: its packets came before the end of MPI, or not. */
static void end(const objects *all) {
  halocline_received left, right;
  int32_t flag;
  ENDS(halocline_is_ready(all->pending, &flag));
  ENDS(halocline_wait(all->pending));
  ENDS(halocline_round_is_complete(all->round, &flag));
  ENDS(halocline_round_wait(all->round, &left, &right));
  ENDS(halocline_session_is_complete(all->session, &flag));
  ENDS(halocline_session_wait(all->session, &left, &right, NULL));
}

/* Exchanges begin, and may complete if both ranks begin them before either waits. */
static void exchanges(const objects *all) {
  const halocline_binding binding = {all->pattern, all->given};
  halocline_pending pending;
  int32_t flag;
  if (ENDS(halocline_exchange(all->halo, &pending))) ENDS(halocline_wait(pending));
  TELLS(halocline_exchange_and_wait(all->halo));
  if (ENDS(halocline_reduce(all->halo, 0, HALOCLINE_SUM, 0, &pending))) ENDS(halocline_wait(pending));
  TELLS(halocline_fetch_and_op(all->halo, HALOCLINE_SUM));
  OK(halocline_reclaim(all->halo, &flag));
  if (ENDS(halocline_pattern_links_exchange(all->links, &binding, 1, &pending))) ENDS(halocline_wait(pending));
}

static void packets(const objects *all) {
  halocline_received left, right;
  halocline_packet packet = large();
  halocline_round round = {0};
  int32_t flag;
  if (ENDS(halocline_neighbors_start(all->ring, 4, &packet, &packet, &round))) TELLS(halocline_round_wait(round, &left, &right));
  OK(halocline_round_free(&round));
  TELLS(halocline_neighbors_exchange(all->ring, 5, &packet, &packet, &left, &right));
  TELLS(halocline_session_start(all->session, &packet, &packet, 0));
  TELLS(halocline_session_finish(all->session));
  ENDS(halocline_sparse_insert(all->sparse, 1 - all->rank, &packet));
  TELLS(halocline_sparse_finish_and_wait(all->sparse));
  ENDS(halocline_sparse_is_complete(all->sparse, &flag));
  OK(halocline_neighbors_abort(all->ring, "MPI has ended"));
}

static void collectives(const objects *all) {
  const halocline_resource none = {0};
  const halocline_binding binding = {all->pattern, all->field};
  const size_t other = 1 - all->rank;
  halocline_neighbors ring;
  halocline_sparse sparse;
  halocline_comm part;
  halocline_halo_exchange halo;
  double number = 1;
  TELLS_OF_MPI(halocline_comm_barrier(all->comm));
  TELLS_OF_MPI(halocline_comm_all_reduce(all->comm, &number, 1, HALOCLINE_F64, HALOCLINE_SUM));
  TELLS_OF_MPI(halocline_comm_duplicate(all->comm, &part));
  TELLS_OF_MPI(halocline_comm_split(all->comm, 0, 0, &part));
  TELLS_OF_MPI(halocline_comm_agree(all->comm, NULL));
  TELLS_OF_MPI(halocline_bind(all->comm, &binding, 1, NULL, &halo));
  TELLS_OF_MPI(halocline_neighbors_create(all->comm, 1, none, &ring));
  TELLS_OF_MPI(halocline_sparse_create(all->comm, &other, 1, &other, 1, none, &sparse));
  halocline_mapping_statistics statistics = HALOCLINE_MAPPING_STATISTICS_INIT;
  OK(halocline_comm_mappings(all->comm, &statistics));
}

static void free_all(objects *all) {
  OK(halocline_halo_exchange_free(&all->halo));
  OK(halocline_pattern_links_free(&all->links));
  OK(halocline_session_free(&all->session));
  OK(halocline_round_free(&all->round));
  OK(halocline_sparse_free(&all->sparse));
  OK(halocline_neighbors_free(&all->ring));
  OK(halocline_field_free(&all->field));
  OK(halocline_field_free(&all->given));
  OK(halocline_pattern_free(&all->pattern));
  OK(halocline_comm_free(&all->comm));
}

int main(int argc, char **argv) {
  TRUE(argc == 5);
  int provided, in_flight = atoi(argv[2]);
  TRUE(MPI_Init_thread(NULL, NULL, atoi(argv[4]), &provided) == MPI_SUCCESS);
  halocline_mpi_options options = HALOCLINE_MPI_OPTIONS_INIT;
  options.node_aware = atoi(argv[1]);
  halocline_comm comm;
  OK(halocline_comm_from_mpi(HALOCLINE_MPI_COMM(MPI_COMM_WORLD), &options, &comm));
  objects all = made(comm, atoi(argv[3]));
  if (in_flight) begin(&all);
  /* Both ranks have begun. */
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  /* A call that hangs ends the process. */
  alarm(60);
  if (in_flight) end(&all);
  exchanges(&all);
  packets(&all);
  collectives(&all);
  const size_t rank = all.rank;
  free_all(&all);
  if (rank == 0) puts("ok");
  return 0;
}
