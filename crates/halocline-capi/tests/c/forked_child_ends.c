/* A forked child calls exit, as one whose exec fails. Its handlers leave alone what belongs to the parent. Prints
 * "ok RANKS TRANSPORT". */
#include "check.h"
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
  halocline_comm comm;
  size_t rank, size;
  const char *transport;
  OK(halocline_init(&comm));
  OK(halocline_comm_rank(comm, &rank));
  OK(halocline_comm_size(comm, &size));
  OK(halocline_comm_transport(comm, &transport));
  pid_t child = fork();
  if (child == 0) {
    exit(7);
  }
  int status;
  TRUE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
  OK(halocline_comm_barrier(comm));
  OK(halocline_comm_free(&comm));
  if (rank == 0) {
    printf("ok %zu %s\n", size, transport);
  }
  return 0;
}
