/* Packets: metadata and a payload, from one rank to another. Where received payloads lie. Included by halocline.h, which has the
 * rules that hold for all calls. */
#ifndef HALOCLINE_PACKET_H
#define HALOCLINE_PACKET_H

#include "core.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A packet to send. */
typedef struct halocline_packet {
  /* sizeof(halocline_packet). */
  size_t size;
  /* Bytes that travel with the header, at most 1 GiB. The call copies them. */
  const void *metadata;
  /* The length of the metadata. */
  size_t metadata_bytes;
  /* The payload: memory that stays valid and unchanged until `release` is called or, without one, until the operation is complete. */
  const void *payload;
  /* The length of the payload. */
  size_t payload_bytes;
  /* Called once, with `context`, when the library does not read the payload any more, also if the call fails; by any thread, also within
   * the call. Not called if the call returns HALOCLINE_ERROR_FORKED or HALOCLINE_ERROR_CALLBACK, or refuses the pointer to this struct or
   * its size. It must not throw, and must not call this library. May be NULL. */
  void (*release)(void *context);
  /* Passed to `release`. */
  void *context;
  /* The payload is read after the work that this stream has at the call: a kernel or a copy that writes it. The null handle: its content
   * is there. */
  halocline_stream stream;
  /* 1: there is a payload, which may have 0 bytes. 0: there is none, and `payload` and `payload_bytes` are not set. */
  int32_t has_payload;
  /* HALOCLINE_HOST or HALOCLINE_CUDA. */
  int32_t space;
  /* The number of the GPU. */
  int32_t device;
  /* 0. */
  int32_t reserved;
} halocline_packet;

#define HALOCLINE_PACKET_INIT {sizeof(halocline_packet), NULL, 0, NULL, 0, NULL, NULL, {0}, 0, 0, 0, 0}

/* A packet that came. */
typedef struct halocline_received {
  uint64_t id;
} halocline_received;

/* What a received packet has. */
typedef struct halocline_contents {
  /* sizeof(halocline_contents). */
  size_t size;
  /* The metadata. Valid until the packet is freed. */
  const void *metadata;
  /* The length of the metadata. */
  size_t metadata_bytes;
  /* The payload, in memory of the resource; a rank alone gets the memory that it has sent. Valid until the packet is freed. */
  const void *payload;
  /* The length of the payload. */
  size_t payload_bytes;
  /* 1: there is a payload. */
  int32_t has_payload;
  /* HALOCLINE_HOST or HALOCLINE_CUDA. */
  int32_t space;
  /* The number of the GPU. */
  int32_t device;
  /* 0. */
  int32_t reserved;
} halocline_contents;

#define HALOCLINE_CONTENTS_INIT {sizeof(halocline_contents), NULL, 0, NULL, 0, 0, 0, 0, 0}

/* Stores what a received packet has. Set `size` of `contents`. */
halocline_status halocline_packet_describe(halocline_received received, halocline_contents *contents);

/* Makes later work of the stream run after the payload is there. Needed for payloads in GPU memory. Never blocks. */
halocline_status halocline_packet_order(halocline_received received, halocline_stream stream);

/* Frees a received packet and its payload. Work of a GPU that uses the payload is over by then. */
halocline_status halocline_packet_free(halocline_received *received);

/* Allocates the payloads of received packets. Calls that make an operation take the null handle for memory of the host. */
typedef struct halocline_resource {
  uint64_t id;
} halocline_resource;

/* Stores a resource of host memory that as many ranks as possible access directly. */
halocline_status halocline_resource_host(halocline_comm comm, halocline_resource *resource);

/* Stores a resource of host memory that a GPU accesses directly (pinned). */
halocline_status halocline_resource_pinned(halocline_comm comm, int32_t device, halocline_resource *resource);

/* Stores a resource of memory of a GPU. */
halocline_status halocline_resource_cuda(int32_t device, halocline_resource *resource);

/* An allocator of the program, such as a pool of its own. Any threads call its functions, also threads of the library, and several at once:
 * a payload may arrive while the program computes. They must not throw, must not call this library, and should not wait, as cudaFree does
 * for the GPU. The GPU whose memory they give is current in `allocate` and `deallocate`. The pool has to live until `release` is called: free what
 * uses it before the process exits, as a pool of static lifetime may end before the packets. */
typedef struct halocline_allocator {
  /* sizeof(halocline_allocator). */
  size_t size;
  /* Returns memory of `bytes` bytes, at least 1, that is valid until it is passed to `deallocate`; NULL if there is none: the operation
   * fails, or under a limit asks again while its patience lasts, then takes memory of its spill. It asks again when a packet of the same
   * resource is freed, and after 1 ms, 2 ms, 4 ms and so on, as the program may have filled the pool. The library needs no alignment: align
   * as the program reads payloads. Memory of another place than `space` and `device` is HALOCLINE_ERROR_FAILED. */
  void *(*allocate)(void *context, size_t bytes);
  /* Takes memory back, with its length, when the packet is freed or the operation has failed. */
  void (*deallocate)(void *context, void *memory, size_t bytes);
  /* Called once, when nothing uses the functions any more: the resource, the operations and limited resources made with it, and all
   * packets in its memory are freed. A thread of the library may be the last one, so it may come later. Not called if the call that
   * makes the resource fails, nor after the process has begun to exit. May be NULL. */
  void (*release)(void *context);
  /* Passed to the functions. Valid until `release` is called. */
  void *context;
  /* For memory of a GPU that comes in the order of a stream: it is written after the work that this stream has when `allocate` returns. The
   * null handle: it may be written at once. The handle may be freed after the call; a CUDA stream of the program has to live until
   * `release` is called. */
  halocline_stream stream;
  /* HALOCLINE_HOST or HALOCLINE_CUDA. */
  int32_t space;
  /* The number of the GPU. */
  int32_t device;
} halocline_allocator;

#define HALOCLINE_ALLOCATOR_INIT {sizeof(halocline_allocator), NULL, NULL, NULL, NULL, {0}, 0, 0}

/* Stores a resource of the program's memory. */
halocline_status halocline_resource_allocator(const halocline_allocator *allocator, halocline_resource *resource);

/* Stores a resource of at most `bytes` bytes of `inner` at once. On a shortage a receiver waits `patience` seconds for packets to be freed;
 * then it takes memory of `spill`, or fails with HALOCLINE_ERROR_MEMORY if that is the null handle. */
halocline_status halocline_resource_limited(halocline_resource inner, size_t bytes, double patience, halocline_resource spill,
                                            halocline_resource *resource);

/* What a resource has allocated. */
typedef struct halocline_resource_statistics {
  /* sizeof(halocline_resource_statistics). */
  size_t size;
  /* Bytes in use. */
  size_t in_use;
  /* The most bytes that were in use at once. */
  size_t peak;
  /* Payloads allocated so far. */
  uint64_t allocations;
  /* Bytes that were allocated elsewhere because of a shortage. */
  uint64_t spilled;
} halocline_resource_statistics;

#define HALOCLINE_RESOURCE_STATISTICS_INIT {sizeof(halocline_resource_statistics), 0, 0, 0, 0}

/* Stores what a resource has allocated. Set `size` of `statistics`. */
halocline_status halocline_resource_describe(halocline_resource resource, halocline_resource_statistics *statistics);

/* Frees the idle memory that a resource of the library keeps for later payloads; of a limited one also that of its spill. */
halocline_status halocline_resource_trim(halocline_resource resource);

/* Frees a resource; received packets keep their memory. */
halocline_status halocline_resource_free(halocline_resource *resource);

/* Packets that went one way, and their bytes. */
typedef struct halocline_traffic {
  /* Packets. */
  uint64_t packets;
  /* Bytes of metadata. */
  uint64_t metadata;
  /* Bytes of payloads in host memory. */
  uint64_t host;
  /* Bytes of payloads in pinned host memory. */
  uint64_t pinned;
  /* Bytes of payloads in GPU memory. */
  uint64_t device;
} halocline_traffic;

/* What a rank has sent to other ranks and received from them: halocline_neighbors_statistics, halocline_sparse_statistics. */
typedef struct halocline_packet_statistics {
  /* sizeof(halocline_packet_statistics). */
  size_t size;
  /* Rounds completed; 0 for a sparse all-to-all. */
  uint64_t rounds;
  /* Sent by this rank. */
  halocline_traffic sent;
  /* Received by this rank. */
  halocline_traffic received;
} halocline_packet_statistics;

#define HALOCLINE_PACKET_STATISTICS_INIT {sizeof(halocline_packet_statistics), 0, {0, 0, 0, 0, 0}, {0, 0, 0, 0, 0}}

/* Receives the outcome of an operation, once: `status`, and the message of an error ("" for HALOCLINE_OK), valid during the call. The
 * thread that finds the outcome calls it, which may be one of the library; at once if the operation is complete already. Never called
 * if the call that takes it is refused. It must not block or throw, and must not call this library. */
typedef void (*halocline_done)(void *context, halocline_status status, const char *message);

#ifdef __cplusplus
}
#endif

#endif
