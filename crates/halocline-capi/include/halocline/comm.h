/* Communicators: groups of ranks. Included by halocline.h, which has the rules that hold for all calls. */
#ifndef HALOCLINE_COMM_H
#define HALOCLINE_COMM_H

#include "core.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Stores the communicator of this process: over shared memory if `halocline launch` started it as a rank of a job, over MPI
 * if an MPI launcher did, otherwise one rank alone. Blocks until all ranks of the job have called it. Call it once in a process (over
 * MPI: any number of times, on all ranks). Initialises MPI unless the program has, and then finalises it at the end of the process.
 *
 * The first communicator of a process, made by any call, reads the variable HALOCLINE_LOG (docs/environment.md): messages of the library
 * that it selects go to standard error from then on. A value that is not valid is HALOCLINE_ERROR_ARGUMENT. */
halocline_status halocline_init(halocline_comm *comm);

/* As halocline_init, by the name of the transport: "auto", "thread" (one rank alone), "shm" or "mpi". */
halocline_status halocline_init_by_name(const char *transport, halocline_comm *comm);

/* Stores `size` communicators in `comms`: those of `size` ranks that are threads of this process, rank 0 first. Give each
 * thread its own. `size` is 1 to 32768. Does not block. */
halocline_status halocline_comm_threads(size_t size, halocline_comm *comms);

/* Options of halocline_comm_from_mpi and halocline_comm_from_fortran. */
typedef struct halocline_mpi_options {
  /* sizeof(halocline_mpi_options). */
  size_t size;
  /* Whether ranks of one node share memory: HALOCLINE_DEFAULT (the variable HALOCLINE_NODE_AWARE, else on), _ON or _OFF. */
  int32_t node_aware;
} halocline_mpi_options;

#define HALOCLINE_MPI_OPTIONS_INIT {sizeof(halocline_mpi_options), HALOCLINE_DEFAULT}

/* An MPI_Comm as the first two arguments of halocline_comm_from_mpi. */
#define HALOCLINE_MPI_COMM(mpi_comm) (uintptr_t)(mpi_comm), sizeof(mpi_comm)

/* Stores the communicator over the ranks of an MPI_Comm of the program:
 *
 *     halocline_comm_from_mpi(HALOCLINE_MPI_COMM(MPI_COMM_WORLD), NULL, &comm);
 *
 * `mpi_comm` is an intra-communicator of the MPI library that the process has loaded, `mpi_comm_bytes` is sizeof(MPI_Comm). It is
 * duplicated, so that messages of the library and of the program never mix. `options` may be NULL. Collective over its ranks. A
 * handle of another MPI library, a null one and an intercommunicator are HALOCLINE_ERROR_MPI, on the rank that passes it.
 *
 * Call it between MPI_Init and MPI_Finalize, and free the communicator and all that was made with it before MPI_Finalize; later calls
 * that need other ranks return HALOCLINE_ERROR_MPI, also where the ranks share memory, and what was in flight fails. With
 * MPI_THREAD_SERIALIZED the program does not call MPI during calls of this library. With less, only the thread that initialised MPI uses
 * the communicator and what is made with it. */
halocline_status halocline_comm_from_mpi(uintptr_t mpi_comm, size_t mpi_comm_bytes, const halocline_mpi_options *options,
                                         halocline_comm *comm);

/* As halocline_comm_from_mpi, of an MPI_Fint: `comm%MPI_VAL` of mpi_f08, or the integer of the older modules of Fortran. */
halocline_status halocline_comm_from_fortran(int32_t mpi_comm, const halocline_mpi_options *options, halocline_comm *comm);

/* Stores a communicator of the same ranks whose operations never mix with those of `comm`. Threads of one rank that make collective
 * calls independently of each other use duplicates. Called by all ranks in the same order; does not block. */
halocline_status halocline_comm_duplicate(halocline_comm comm, halocline_comm *duplicate);

/* As `color` of halocline_comm_split: this rank gets no communicator. */
#define HALOCLINE_NO_COLOR (-1)

/* Stores a communicator of the ranks that pass the same `color`, in the order of `key`, and of their rank here where keys are
 * equal. With HALOCLINE_NO_COLOR it stores the null handle. Colors are 0 or more. Collective. */
halocline_status halocline_comm_split(halocline_comm comm, int64_t color, int64_t key, halocline_comm *part);

/* Stores the same communicator, whose collective calls fail on this rank with HALOCLINE_ERROR_DEADLINE when one takes longer than
 * `seconds`. 0: no deadline, the default. Does not block. */
halocline_status halocline_comm_with_deadline(halocline_comm comm, double seconds, halocline_comm *limited);

/* Stores the deadline of collective calls in seconds; 0: none. */
halocline_status halocline_comm_deadline(halocline_comm comm, double *seconds);

/* Stores this rank, from 0. */
halocline_status halocline_comm_rank(halocline_comm comm, size_t *rank);

/* Stores the number of ranks. */
halocline_status halocline_comm_size(halocline_comm comm, size_t *size);

/* Stores the name of the transport: "thread", "shm" or "mpi". Valid as long as the process. */
halocline_status halocline_comm_transport(halocline_comm comm, const char **name);

/* What a rank has mapped of the memory of others, and they of its own. Bound exchanges whose links write or read the memory of another process
 * map it once. */
typedef struct halocline_mapping_statistics {
  /* sizeof(halocline_mapping_statistics). */
  size_t size;
  /* Requests for memory of this rank that an earlier offer answered. */
  uint64_t hits;
  /* Mappings of memory of this rank that other ranks have opened. */
  uint64_t opens;
  /* Allocations evicted because of the limit. */
  uint64_t evictions;
  /* Requests that were refused: their bytes are staged. */
  uint64_t staged;
  /* Allocations of this rank that others can map now. */
  uint64_t entries;
  /* Those of them that are in use. */
  uint64_t pinned;
  /* Bytes of this rank that others have mapped. */
  uint64_t bytes_held;
  /* Mappings of other ranks' memory that are open here now. */
  uint64_t mapped;
  /* Their bytes. */
  uint64_t bytes_mapped;
  /* Messages about mappings that this rank has sent. Exchanges send none. */
  uint64_t messages;
  /* Messages that were refused because no rank sends them. */
  uint64_t malformed;
} halocline_mapping_statistics;

#define HALOCLINE_MAPPING_STATISTICS_INIT {sizeof(halocline_mapping_statistics), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/* Stores the statistics of this rank so far, with all communicators of the same ranks. Set `size` of `statistics`. Does not block. */
halocline_status halocline_comm_mappings(halocline_comm comm, halocline_mapping_statistics *statistics);

/* Makes all ranks fail if one has failed in a step of its own, such as reading a file: then no rank waits for it in the next collective
 * call. A rank that has failed passes a message, the others NULL. With a message of any rank, each rank that passes one gets
 * HALOCLINE_ERROR_ARGUMENT with its own, the others HALOCLINE_ERROR_ELSEWHERE with that of the lowest such rank. Collective. */
halocline_status halocline_comm_agree(halocline_comm comm, const char *error);

/* Returns once all ranks have called it. Collective. */
halocline_status halocline_comm_barrier(halocline_comm comm);

/* Copies `bytes` bytes at `data` of rank `root` to `data` of all ranks. All ranks pass the same `root` and `bytes`. Collective. */
halocline_status halocline_comm_broadcast(halocline_comm comm, size_t root, void *data, size_t bytes);

/* Copies the `bytes` bytes at `data` of every rank to `gathered` of all ranks, in the order of ranks: `gathered` holds
 * `bytes` times the number of ranks. All ranks pass the same `bytes`. Collective. */
halocline_status halocline_comm_all_gather(halocline_comm comm, const void *data, size_t bytes, void *gathered);

/* How halocline_comm_all_reduce and halocline_reduce combine. */
enum {
  /* Sums of integers wrap. Sums of floating-point numbers are added in an order that depends on the number of ranks alone. */
  HALOCLINE_SUM = 0,
  /* The smallest; NaN if any value is NaN. */
  HALOCLINE_MIN = 1,
  /* The largest; NaN if any value is NaN. */
  HALOCLINE_MAX = 2,
  /* Of halocline_reduce alone. Products of integers wrap. */
  HALOCLINE_PRODUCT = 3,
  /* The value of the halo cell; of several halo cells, the domain with the highest number decides. */
  HALOCLINE_REPLACE = 4,
  /* Bits of integers, and bool. */
  HALOCLINE_AND = 5,
  HALOCLINE_OR = 6,
  HALOCLINE_XOR = 7
};

/* Combines `count` numbers at `values` of all ranks, element by element, and stores the result in `values` of all ranks.
 * `element` is HALOCLINE_I32, _U32, _F32, _I64, _U64 or _F64, `operation` HALOCLINE_SUM, _MIN or _MAX. All ranks pass the
 * same `count`, `element` and `operation`. Collective. */
halocline_status halocline_comm_all_reduce(halocline_comm comm, void *values, size_t count, int32_t element,
                                           int32_t operation);

/* Frees a communicator. The rank leaves its group once all its communicators are freed: then peers that wait for it get
 * HALOCLINE_ERROR_COMMUNICATION. May block to send what is left to send. */
halocline_status halocline_comm_free(halocline_comm *comm);

#ifdef __cplusplus
}
#endif

#endif
