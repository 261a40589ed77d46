/* Starts `run` on every rank: as processes, or as threads if the program is given their number. */
#ifndef RANKS_H
#define RANKS_H

#include "check.h"
#include <pthread.h>

static void run(halocline_comm comm, size_t rank, size_t size);

static void *run_rank(void *given) {
  halocline_comm comm = *(halocline_comm *)given;
  size_t rank, size;
  OK(halocline_comm_rank(comm, &rank));
  OK(halocline_comm_size(comm, &size));
  run(comm, rank, size);
  const char *transport;
  OK(halocline_comm_transport(comm, &transport));
  if (rank == 0) {
    printf("ok %zu %s\n", size, transport);
  }
  OK(halocline_comm_free(&comm));
  return NULL;
}

static int run_ranks(int argc, char **argv) {
  if (argc == 1) {
    halocline_comm comm;
    OK(halocline_init(&comm));
    run_rank(&comm);
    return 0;
  }
  enum { MOST = 8 };
  size_t size = (size_t)atoi(argv[1]);
  halocline_comm comms[MOST];
  pthread_t threads[MOST];
  TRUE(size <= MOST);
  OK(halocline_comm_threads(size, comms));
  for (size_t rank = 0; rank < size; rank++) {
    TRUE(pthread_create(&threads[rank], NULL, run_rank, &comms[rank]) == 0);
  }
  for (size_t rank = 0; rank < size; rank++) {
    TRUE(pthread_join(threads[rank], NULL) == 0);
  }
  return 0;
}

/* Programs with a `main` of their own define HAS_MAIN. */
#ifndef HAS_MAIN
int main(int argc, char **argv) { return run_ranks(argc, argv); }
#endif

#endif
