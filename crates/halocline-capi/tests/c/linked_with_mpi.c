/* A program that is compiled with mpi.h and linked with Open MPI, as most are: its executable has copies of the objects that handles
 * such as MPI_COMM_WORLD and MPI_BYTE point to, and MPI uses those. Prints "ok RANKS mpi". */
#include "check.h"
#include <mpi.h>

static size_t ranks_of(halocline_comm comm) {
  size_t size;
  uint64_t ranks = 1;
  OK(halocline_comm_size(comm, &size));
  OK(halocline_comm_all_reduce(comm, &ranks, 1, HALOCLINE_U64, HALOCLINE_SUM));
  TRUE(ranks == size);
  return size;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  /* Uses the handles that the library uses, too. */
  char byte = 0;
  int errors, rank;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Comm self;
  MPI_Comm_dup_with_info(MPI_COMM_SELF, MPI_INFO_NULL, &self);
  MPI_Comm_set_errhandler(self, MPI_ERRORS_RETURN);
  errors = MPI_Bcast(&byte, 1, MPI_BYTE, 0, self) + MPI_Wait(&request, MPI_STATUS_IGNORE) + MPI_Comm_free(&self);
  TRUE(errors == MPI_SUCCESS && message == MPI_MESSAGE_NULL);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);

  halocline_comm world, messages, none;
  OK(halocline_init(&world));
  halocline_mpi_options options = HALOCLINE_MPI_OPTIONS_INIT;
  options.node_aware = HALOCLINE_OFF;
  OK(halocline_comm_from_mpi(HALOCLINE_MPI_COMM(MPI_COMM_WORLD), &options, &messages));
  REFUSED(HALOCLINE_ERROR_MPI, "MPI_COMM_NULL", halocline_comm_from_mpi(HALOCLINE_MPI_COMM(MPI_COMM_NULL), NULL, &none));
  REFUSED(HALOCLINE_ERROR_MPI, "MPI_COMM_NULL", halocline_comm_from_fortran(MPI_Comm_c2f(MPI_COMM_NULL), NULL, &none));
  const size_t size = ranks_of(world);
  TRUE(ranks_of(messages) == size);
  OK(halocline_comm_free(&world));
  OK(halocline_comm_free(&messages));
  MPI_Finalize();
  if (rank == 0) {
    printf("ok %zu mpi\n", size);
  }
  return 0;
}
