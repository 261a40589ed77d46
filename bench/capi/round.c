/* The calls of C that cost.f90 compares with those of Fortran. */
#include <halocline.h>
#include <stdlib.h>
#include <time.h>

double c_round(halocline_halo_exchange halo, int calls);

/* Nanoseconds of an exchange and its wait. */
double c_round(halocline_halo_exchange halo, int calls) {
  struct timespec start, end;
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (int at = 0; at < calls; at++) {
    halocline_pending pending;
    if (halocline_exchange(halo, &pending) != HALOCLINE_OK || halocline_wait(pending) != HALOCLINE_OK) {
      abort();
    }
  }
  clock_gettime(CLOCK_MONOTONIC, &end);
  return ((double)(end.tv_sec - start.tv_sec) * 1e9 + (double)(end.tv_nsec - start.tv_nsec)) / calls;
}
