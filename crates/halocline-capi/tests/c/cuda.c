/* Fields, messages and packets in memory of a GPU, in the order of a stream: as a process, or as threads with `cuda N`. Exits with 77 if
 * there is no GPU. The functions of the driver are looked up, so that no CUDA is needed to compile it. */
#define HAS_MAIN
#include "ranks.h"
#include <dlfcn.h>
#include <sched.h>
#include <stdatomic.h>

typedef unsigned long long address;
typedef struct CUstream_st *CUstream;

static struct {
  int (*init)(unsigned), (*count)(int *), (*get)(int *, int), (*retain)(void **, int), (*current)(void *);
  int (*allocate)(address *, size_t), (*release)(address);
  int (*to_device)(address, const void *, size_t, CUstream), (*to_host)(void *, address, size_t, CUstream);
  int (*create)(CUstream *, unsigned), (*synchronise)(CUstream), (*destroy)(CUstream);
} cuda;

#define CUDA(call) TRUE((call) == 0)

static int open_driver(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  const struct {
    const char *name;
    void *function;
  } functions[] = {
      {"cuInit", &cuda.init},
      {"cuDeviceGetCount", &cuda.count},
      {"cuDeviceGet", &cuda.get},
      {"cuDevicePrimaryCtxRetain", &cuda.retain},
      {"cuCtxSetCurrent", &cuda.current},
      {"cuMemAlloc_v2", &cuda.allocate},
      {"cuMemFree_v2", &cuda.release},
      {"cuMemcpyHtoDAsync_v2", &cuda.to_device},
      {"cuMemcpyDtoHAsync_v2", &cuda.to_host},
      {"cuStreamCreate", &cuda.create},
      {"cuStreamSynchronize", &cuda.synchronise},
      {"cuStreamDestroy_v2", &cuda.destroy},
  };
  for (size_t at = 0; library != NULL && at < sizeof functions / sizeof *functions; at++) {
    void *symbol = dlsym(library, functions[at].name);
    TRUE(symbol != NULL);
    memcpy(functions[at].function, &symbol, sizeof symbol);
  }
  int devices = 0;
  return library != NULL && cuda.init(0) == 0 && cuda.count(&devices) == 0 && devices > 0;
}

enum { NON_BLOCKING = 1, CELLS = 6, STEPS = 20 };

/* A ring of cells, CELLS on each rank, in memory of the GPU, and what an exchange of it needs. */
typedef struct {
  address memory;
  /* Memory that the program has allocated: 0 if the library has. */
  address own;
  CUstream raw;
  halocline_stream stream;
  halocline_pattern pattern;
  halocline_field field;
  halocline_halo_exchange halo;
} ring;

static ring make_ring(halocline_comm comm, size_t size, int32_t run_inline) {
  ring made = {0};
  void *context;
  int device;
  CUDA(cuda.get(&device, 0));
  CUDA(cuda.retain(&context, device));
  CUDA(cuda.current(context));
  CUDA(cuda.create(&made.raw, NON_BLOCKING));
  OK(halocline_stream_cuda(0, made.raw, &made.stream));
  size_t extents[1] = {CELLS * size};
  const int32_t periodic[1] = {1};
  halocline_grid grid = HALOCLINE_GRID_INIT;
  grid.axes = 1, grid.extents = extents, grid.periodic = periodic;
  halocline_decomposition blocks;
  OK(halocline_decompose(&grid, size, &blocks));
  halocline_halo width = HALOCLINE_HALO_INIT;
  width.width = 1;
  OK(halocline_pattern_regular(comm, blocks, &width, &made.pattern));
  OK(halocline_decomposition_free(&blocks));
  size_t cells = CELLS + 2;
  halocline_layout layout = HALOCLINE_LAYOUT_INIT;
  layout.dimensions = 1, layout.extents = &cells, layout.element = HALOCLINE_F64;
  if (run_inline) {
    /* Zeroed memory of the library. */
    void *base;
    double first = 1;
    OK(halocline_field_allocate_cuda(0, &layout, &made.field));
    OK(halocline_field_base(made.field, &base));
    made.memory = (address)(uintptr_t)base;
    CUDA(cuda.to_host(&first, made.memory, sizeof first, made.raw));
    CUDA(cuda.synchronise(made.raw));
    TRUE(first == 0);
  } else {
    CUDA(cuda.allocate(&made.own, (CELLS + 2) * sizeof(double)));
    made.memory = made.own;
    halocline_memory memory = HALOCLINE_MEMORY_INIT;
    memory.base = (void *)(uintptr_t)made.memory, memory.space = HALOCLINE_CUDA;
    OK(halocline_field_create(&memory, &layout, &made.field));
  }
  halocline_binding binding = {made.pattern, made.field};
  halocline_bind_options options = HALOCLINE_BIND_OPTIONS_INIT;
  options.streams = &made.stream, options.stream_count = 1, options.deadline = 60, options.run_inline = run_inline;
  OK(halocline_bind(comm, &binding, 1, &options, &made.halo));
  return made;
}

static void free_ring(ring *made) {
  CUDA(cuda.synchronise(made->raw));
  OK(halocline_halo_exchange_free(&made->halo));
  OK(halocline_field_free(&made->field));
  OK(halocline_pattern_free(&made->pattern));
  OK(halocline_stream_free(&made->stream));
  if (made->own != 0) CUDA(cuda.release(made->own));
}

/* Writes the owned cells in the order of the stream; the halo gets -1. `host` stays until the stream is synchronised. */
static void produce(const ring *ring, double *host, size_t rank, int step) {
  host[0] = host[CELLS + 1] = -1;
  for (size_t at = 0; at < CELLS; at++) {
    host[at + 1] = (double)(rank * CELLS + at) + 1000.0 * step;
  }
  CUDA(cuda.to_device(ring->memory, host, (CELLS + 2) * sizeof(double), ring->raw));
}

/* Reads the cells in the order of the stream, and checks the halo. */
static void consume(const ring *ring, size_t rank, size_t size, int step) {
  double found[CELLS + 2];
  CUDA(cuda.to_host(found, ring->memory, sizeof found, ring->raw));
  CUDA(cuda.synchronise(ring->raw));
  size_t all = CELLS * size;
  TRUE(found[0] == (double)((rank * CELLS + all - 1) % all) + 1000.0 * step);
  TRUE(found[CELLS + 1] == (double)((rank * CELLS + CELLS) % all) + 1000.0 * step);
}

/* A field of the library that the program fills and reads without calls of CUDA. */
static void filled_by_the_library(halocline_comm comm, size_t rank, size_t size) {
  ring ring = make_ring(comm, size, 0);
  double host[CELLS + 2] = {-1, 0, 1, 2, 3, 4, 5, -1}, found[CELLS + 2];
  for (int step = 1; step <= STEPS; step++) {
    for (size_t at = 0; at < CELLS; at++) host[at + 1] = (double)(rank * CELLS + at) + 1000.0 * step;
    OK(halocline_field_write(ring.field, ring.stream, host, sizeof host));
    halocline_pending pending;
    OK(halocline_schedule_exchange(ring.halo, 0, &ring.stream, 1, &pending));
    OK(halocline_schedule_wait(pending, ring.stream));
    OK(halocline_field_read(ring.field, ring.stream, found, sizeof found));
    size_t all = CELLS * size;
    TRUE(found[0] == (double)((rank * CELLS + all - 1) % all) + 1000.0 * step);
    TRUE(found[CELLS + 1] == (double)((rank * CELLS + CELLS) % all) + 1000.0 * step);
    TRUE(memcmp(found + 1, host + 1, CELLS * sizeof *host) == 0);
  }
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "takes 64 bytes", halocline_field_write(ring.field, ring.stream, host, 8));
  free_ring(&ring);
  CUDA(cuda.destroy(ring.raw));
}

/* The field is given to each exchange. */
static void given(halocline_comm comm, size_t rank, size_t size) {
  ring ring = make_ring(comm, size, 0);
  halocline_bind_options options = HALOCLINE_BIND_OPTIONS_INIT;
  options.streams = &ring.stream, options.stream_count = 1, options.deadline = 60;
  halocline_pattern_links links;
  OK(halocline_pattern_links_create(comm, &ring.pattern, 1, &options, &links));
  double host[CELLS + 2];
  for (int step = 1; step <= STEPS; step++) {
    const halocline_binding binding = {ring.pattern, ring.field};
    produce(&ring, host, rank, step);
    halocline_pending pending;
    OK(halocline_pattern_links_schedule(links, &binding, 1, &ring.stream, 1, &pending));
    if (step % 2 == 0) {
      OK(halocline_schedule_wait(pending, ring.stream));
    } else {
      OK(halocline_wait(pending));
    }
    consume(&ring, rank, size, step);
  }
  int32_t reclaimed;
  OK(halocline_pattern_links_reclaim(links, &reclaimed));
  TRUE(reclaimed == 1);
  OK(halocline_pattern_links_free(&links));
  free_ring(&ring);
}

static void scheduled(halocline_comm comm, size_t rank, size_t size, int32_t run_inline) {
  ring ring = make_ring(comm, size, run_inline);
  double host[CELLS + 2];
  for (int step = 1; step <= STEPS; step++) {
    produce(&ring, host, rank, step);
    halocline_pending pending;
    OK(halocline_schedule_exchange(ring.halo, 0, &ring.stream, 1, &pending));
    OK(halocline_schedule_wait(pending, ring.stream));
    consume(&ring, rank, size, step);
    /* Also after the streams of the bind. */
    produce(&ring, host, rank, -step);
    OK(halocline_exchange(ring.halo, &pending));
    OK(halocline_wait(pending));
    consume(&ring, rank, size, -step);
  }
  int32_t reclaimed;
  OK(halocline_reclaim(ring.halo, &reclaimed));
  TRUE(reclaimed == 1);
  halocline_pending pending;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "", halocline_pack(ring.halo, 0, host, 8));
  halocline_stream none = {0};
  REFUSED(HALOCLINE_ERROR_HANDLE, "is null", halocline_schedule_exchange(ring.halo, 0, &none, 1, &pending));
  free_ring(&ring);
  CUDA(cuda.destroy(ring.raw));
}

/* Rounds of the stream in a trace, by the clock of the GPU. */
static void traced(halocline_comm comm, size_t rank, size_t size) {
  ring ring = make_ring(comm, size, 0);
  double host[CELLS + 2];
  halocline_trace trace;
  halocline_device_trace steps;
  OK(halocline_trace_begin(comm, "fields-of-c.json", &trace));
  OK(halocline_trace_on_stream(trace, ring.stream, STEPS, &steps));
  /* No rank begins an exchange while one that shares its GPU still compiles. */
  OK(halocline_comm_barrier(comm));
  for (int step = 1; step <= STEPS; step++) {
    produce(&ring, host, rank, step);
    OK(halocline_device_trace_stamp(steps, HALOCLINE_MOMENT_BEGUN));
    halocline_pending pending;
    OK(halocline_schedule_exchange(ring.halo, 0, &ring.stream, 1, &pending));
    OK(halocline_device_trace_observe(steps, pending));
    OK(halocline_device_trace_stamp(steps, HALOCLINE_MOMENT_INTERIOR));
    OK(halocline_schedule_wait(pending, ring.stream));
    OK(halocline_device_trace_stamp(steps, HALOCLINE_MOMENT_WAITED));
    consume(&ring, rank, size, step);
    OK(halocline_device_trace_stamp(steps, HALOCLINE_MOMENT_DONE));
  }
  OK(halocline_trace_end(trace));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "was ended", halocline_device_trace_stamp(steps, HALOCLINE_MOMENT_BEGUN));
  OK(halocline_device_trace_free(&steps));
  OK(halocline_trace_free(&trace));
  free_ring(&ring);
  CUDA(cuda.destroy(ring.raw));
  if (rank == 0) {
    static char text[1 << 22];
    FILE *file = fopen("fields-of-c.json", "r");
    TRUE(file != NULL);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    size_t found = 0;
    for (const char *at = text; (at = strstr(at, "\"name\":\"exchange (device)\"")) != NULL; at++) {
      found++;
    }
    TRUE(found == STEPS * size);
  }
}

static void packed(halocline_comm comm, size_t rank, size_t size) {
  ring ring = make_ring(comm, size, 0);
  double host[CELLS + 2], packed[1];
  size_t next = (rank + 1) % size, bytes, from_last;
  if (size > 2) {
    produce(&ring, host, rank, 5);
    OK(halocline_message_bytes(ring.halo, next, HALOCLINE_SEND, &bytes));
    OK(halocline_message_bytes(ring.halo, (rank + size - 1) % size, HALOCLINE_RECEIVE, &from_last));
    TRUE(bytes == sizeof packed && from_last == sizeof packed);
    address message;
    CUDA(cuda.allocate(&message, bytes));
    OK(halocline_pack_on(ring.halo, next, (void *)(uintptr_t)message, bytes, ring.stream));
    CUDA(cuda.to_host(packed, message, bytes, ring.raw));
    CUDA(cuda.synchronise(ring.raw));
    TRUE(packed[0] == (double)(rank * CELLS + CELLS - 1) + 5000.0);
    packed[0] = 42;
    CUDA(cuda.to_device(message, packed, bytes, ring.raw));
    OK(halocline_unpack_on(ring.halo, (rank + size - 1) % size, (void *)(uintptr_t)message, bytes, ring.stream));
    CUDA(cuda.to_host(host, ring.memory, sizeof host, ring.raw));
    CUDA(cuda.synchronise(ring.raw));
    TRUE(host[0] == 42);
    CUDA(cuda.release(message));
  }
  OK(halocline_comm_barrier(comm));
  free_ring(&ring);
  CUDA(cuda.destroy(ring.raw));
}

/* Memory of the GPU that the program allocates for payloads, and what it has back. */
typedef struct {
  address block;
  _Atomic int is_back, released;
} allocated;

static void *take(void *context, size_t bytes) {
  allocated *of = context;
  CUDA(cuda.allocate(&of->block, bytes));
  return (void *)(uintptr_t)of->block;
}

static void *take_host(void *context, size_t bytes) {
  (void)context;
  return malloc(bytes);
}

/* Freeing it would wait for the GPU. */
static void put(void *context, void *memory, size_t bytes) {
  allocated *of = context;
  TRUE((address)(uintptr_t)memory == of->block && bytes > 0);
  atomic_store(&of->is_back, 1);
}

static void put_host(void *context, void *memory, size_t bytes) {
  (void)context, (void)bytes;
  free(memory);
}

static void let_go(void *context) { atomic_store(&((allocated *)context)->released, 1); }

/* A payload in memory of the GPU goes to memory of the GPU, of the library or the program. */
static void to_memory(halocline_comm comm, size_t rank, size_t size, halocline_resource *memory, halocline_packet *packet, CUstream raw) {
  enum { BYTES = 1 << 16 };
  static _Thread_local char host[BYTES], found[BYTES];
  halocline_neighbors neighbors;
  halocline_received left, right;
  OK(halocline_neighbors_create(comm, 1, *memory, &neighbors));
  OK(halocline_neighbors_exchange(neighbors, 1, NULL, packet, &left, &right));
  halocline_contents contents = HALOCLINE_CONTENTS_INIT;
  OK(halocline_packet_describe(left, &contents));
  TRUE(contents.space == HALOCLINE_CUDA && contents.payload_bytes == BYTES && right.id == 0);
  OK(halocline_packet_order(left, packet->stream));
  CUDA(cuda.to_host(found, (address)(uintptr_t)contents.payload, BYTES, raw));
  CUDA(cuda.synchronise(raw));
  memset(host, (int)('a' + (rank + size - 1) % size), BYTES);
  TRUE(memcmp(host, found, BYTES) == 0);
  OK(halocline_packet_free(&left));
  OK(halocline_comm_barrier(comm));
  OK(halocline_neighbors_free(&neighbors));
  OK(halocline_resource_free(memory));
}

static void packets(halocline_comm comm, size_t rank, size_t size) {
  enum { BYTES = 1 << 16 };
  static _Thread_local char host[BYTES];
  CUstream raw;
  address payload;
  CUDA(cuda.create(&raw, NON_BLOCKING));
  CUDA(cuda.allocate(&payload, BYTES));
  halocline_stream stream;
  halocline_resource memory;
  halocline_neighbors neighbors;
  OK(halocline_stream_cuda(0, raw, &stream));
  memset(host, (int)('a' + rank), BYTES);
  CUDA(cuda.to_device(payload, host, BYTES, raw));
  halocline_packet packet = HALOCLINE_PACKET_INIT;
  packet.payload = (void *)(uintptr_t)payload, packet.payload_bytes = BYTES, packet.has_payload = 1;
  packet.space = HALOCLINE_CUDA, packet.stream = stream;
  OK(halocline_resource_cuda(0, &memory));
  to_memory(comm, rank, size, &memory, &packet, raw);

  allocated own = {0};
  halocline_allocator allocator = HALOCLINE_ALLOCATOR_INIT;
  allocator.allocate = take, allocator.deallocate = put, allocator.release = let_go, allocator.context = &own;
  allocator.space = HALOCLINE_CUDA, allocator.stream = stream;
  OK(halocline_resource_allocator(&allocator, &memory));
  to_memory(comm, rank, size, &memory, &packet, raw);
  while (atomic_load(&own.released) == 0) {
    sched_yield();
  }
  /* A rank alone gets the memory that it has sent. */
  TRUE(atomic_load(&own.is_back) == (size > 1));
  if (size > 1) CUDA(cuda.release(own.block));

  /* Memory that lies elsewhere. */
  allocator.allocate = take_host, allocator.deallocate = put_host, allocator.release = NULL;
  halocline_received left, right;
  OK(halocline_resource_allocator(&allocator, &memory));
  OK(halocline_neighbors_create(comm, 1, memory, &neighbors));
  halocline_status status = halocline_neighbors_exchange(neighbors, 1, NULL, &packet, &left, &right);
  TRUE(size > 1 ? status != HALOCLINE_OK : status == HALOCLINE_OK);
  if (status == HALOCLINE_OK) OK(halocline_packet_free(&left));
  OK(halocline_comm_barrier(comm));
  OK(halocline_neighbors_free(&neighbors));
  OK(halocline_resource_free(&memory));

  /* Into memory of the host that the GPU reaches. */
  OK(halocline_resource_pinned(comm, 0, &memory));
  OK(halocline_neighbors_create(comm, 1, memory, &neighbors));
  OK(halocline_neighbors_exchange(neighbors, 1, NULL, &packet, &left, &right));
  halocline_contents contents = HALOCLINE_CONTENTS_INIT;
  OK(halocline_packet_describe(left, &contents));
  OK(halocline_packet_order(left, stream));
  CUDA(cuda.synchronise(raw));
  TRUE(contents.payload_bytes == BYTES && contents.space == (size == 1 ? HALOCLINE_CUDA : HALOCLINE_HOST));
  memset(host, (int)('a' + (rank + size - 1) % size), BYTES);
  TRUE(size == 1 || memcmp(host, contents.payload, BYTES) == 0);
  OK(halocline_packet_free(&left));
  OK(halocline_comm_barrier(comm));
  OK(halocline_neighbors_free(&neighbors));
  OK(halocline_resource_free(&memory));
  OK(halocline_stream_free(&stream));
}

static void run(halocline_comm comm, size_t rank, size_t size) {
  scheduled(comm, rank, size, 0);
  scheduled(comm, rank, size, 1);
  filled_by_the_library(comm, rank, size);
  given(comm, rank, size);
  packed(comm, rank, size);
  traced(comm, rank, size);
  packets(comm, rank, size);
}

int main(int argc, char **argv) {
  if (!open_driver()) {
    fprintf(stderr, "there is no GPU here\n");
    return 77;
  }
  return run_ranks(argc, argv);
}
