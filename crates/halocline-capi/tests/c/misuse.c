/* Wrong calls: each is a status and a message. `misuse CASE` runs one. Prints "ok". */
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

static halocline_comm comm;
static halocline_pattern pattern;
static halocline_domain domain = HALOCLINE_DOMAIN_INIT;
static halocline_field field;
static halocline_halo_exchange halo;

static halocline_layout layout_of(size_t dimensions) {
  halocline_layout layout = HALOCLINE_LAYOUT_INIT;
  layout.dimensions = dimensions, layout.extents = domain.extents, layout.element = HALOCLINE_F64;
  return layout;
}

static void prepare(void) {
  static size_t extents[2] = {8, 6};
  OK(halocline_init_by_name("thread", &comm));
  halocline_grid grid = HALOCLINE_GRID_INIT;
  grid.axes = 2, grid.extents = extents;
  halocline_decomposition blocks;
  OK(halocline_decompose(&grid, 1, &blocks));
  halocline_halo width = HALOCLINE_HALO_INIT;
  width.width = 1;
  OK(halocline_pattern_regular(comm, blocks, &width, &pattern));
  OK(halocline_decomposition_free(&blocks));
  OK(halocline_pattern_domain(pattern, 0, &domain));
  halocline_layout layout = layout_of(2);
  OK(halocline_field_allocate(comm, &layout, &field));
  halocline_binding binding = {pattern, field};
  OK(halocline_bind(comm, &binding, 1, NULL, &halo));
}

static void null_handles_and_pointers(void) {
  halocline_comm none = {0};
  size_t number;
  REFUSED(HALOCLINE_ERROR_HANDLE, "is null", halocline_comm_rank(none, &number));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "rank is NULL", halocline_comm_rank(comm, NULL));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "is NULL", halocline_init(NULL));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "bindings is NULL, and has 1 elements by its count; pass the address of the first one", halocline_bind(comm, NULL, 1, NULL, &halo));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "is NULL", halocline_decompose(NULL, 1, NULL));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "is NULL", halocline_comm_free(NULL));
  OK(halocline_comm_free(&none));
  halocline_pending nothing = {0, 0};
  REFUSED(HALOCLINE_ERROR_HANDLE, "is null", halocline_wait(nothing));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "transport is NULL; pass a text", halocline_init_by_name(NULL, &none));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "no multiple of 8", halocline_comm_rank(comm, (size_t *)((char *)&number + 1)));
}

static void freed_foreign_and_made_up_handles(void) {
  halocline_halo_exchange copy = halo;
  halocline_pending pending;
  for (uint64_t bits = 1; bits; bits <<= 1) {
    halocline_halo_exchange made_up = {halo.id ^ bits};
    TRUE(halocline_exchange(made_up, NULL) == HALOCLINE_ERROR_HANDLE);
    TRUE(halocline_halo_exchange_free(&made_up) == HALOCLINE_ERROR_HANDLE);
  }
  OK(halocline_exchange(halo, &pending));
  OK(halocline_wait(pending));
  halocline_pending never_begun = {halo.id, 2};
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "no exchange 2", halocline_wait(never_begun));
  OK(halocline_halo_exchange_free(&halo));
  REFUSED(HALOCLINE_ERROR_HANDLE, "freed", halocline_exchange(copy, &pending));
  REFUSED(HALOCLINE_ERROR_HANDLE, "freed", halocline_wait(pending));
  REFUSED(HALOCLINE_ERROR_HANDLE, "freed", halocline_halo_exchange_free(&copy));
  halocline_halo_exchange foreign = {field.id};
  REFUSED(HALOCLINE_ERROR_HANDLE, "halocline_field was passed", halocline_exchange(foreign, NULL));
  for (uint64_t bits = 1; bits; bits <<= 1) {
    halocline_halo_exchange made_up = {copy.id ^ bits};
    TRUE(halocline_exchange(made_up, NULL) == HALOCLINE_ERROR_HANDLE);
  }
  halocline_halo_exchange one = {1};
  REFUSED(HALOCLINE_ERROR_HANDLE, "not made by this library", halocline_exchange(one, NULL));
  halocline_halo_exchange all = {UINT64_MAX};
  REFUSED(HALOCLINE_ERROR_HANDLE, "not made by this library", halocline_exchange(all, NULL));
}

static void sizes_of_options(void) {
  halocline_bind_options options = HALOCLINE_BIND_OPTIONS_INIT;
  halocline_binding binding = {pattern, field};
  halocline_halo_exchange bound;
  for (size_t size = 0; size < sizeof options; size++) {
    options.size = size;
    REFUSED(HALOCLINE_ERROR_ARGUMENT, "halocline_bind_options", halocline_bind(comm, &binding, 1, &options, &bound));
  }
  /* A struct of a newer version: accepted unless it sets what this version does not know. */
  struct {
    halocline_bind_options known;
    uint64_t unknown;
  } newer = {HALOCLINE_BIND_OPTIONS_INIT, 0};
  newer.known.size = sizeof newer;
  OK(halocline_bind(comm, &binding, 1, &newer.known, &bound));
  OK(halocline_halo_exchange_free(&bound));
  newer.unknown = 1;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "newer library", halocline_bind(comm, &binding, 1, &newer.known, &bound));
  /* Structs of a list that say different sizes: the second may lie at the end of readable memory. */
  const uint64_t ids[1] = {7};
  halocline_cells list[2] = {HALOCLINE_CELLS_INIT, HALOCLINE_CELLS_INIT};
  list[0].ids = list[1].ids = ids, list[0].count = list[1].count = 1;
  list[1].size = sizeof list[1] + 8;
  halocline_pattern of_list;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "domain 1 of the list: `size`", halocline_pattern_unstructured(comm, list, 2, &of_list));
  options.size = (size_t)-1;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "sizeof", halocline_bind(comm, &binding, 1, &options, &bound));
  options.size = sizeof options, options.link = 77;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "link is 77", halocline_bind(comm, &binding, 1, &options, &bound));
  /* A path that no bind asks for. */
  options.link = HALOCLINE_LINK_DEVICE_MAILBOX;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "link is 5", halocline_bind(comm, &binding, 1, &options, &bound));
  options.link = HALOCLINE_LINK_NCCL;
  halocline_pattern_links without_fields;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "links without fields cannot be nccl",
          halocline_pattern_links_create(comm, &binding.pattern, 1, &options, &without_fields));
  options.link = 0, options.deadline = -1;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "deadline is -1", halocline_bind(comm, &binding, 1, &options, &bound));
}

/* Arguments that the call would not use as they are. */
static void arguments_that_contradict(void) {
  halocline_binding binding = {pattern, field};
  halocline_bind_options options = HALOCLINE_BIND_OPTIONS_INIT;
  halocline_halo_exchange bound;
  options.ll_bytes = 64;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "ll_bytes is 64, and ll is not HALOCLINE_ON; set ll to HALOCLINE_ON",
          halocline_bind(comm, &binding, 1, &options, &bound));
  options.ll = HALOCLINE_ON;
  OK(halocline_bind(comm, &binding, 1, &options, &bound));
  OK(halocline_halo_exchange_free(&bound));
  halocline_pending pending;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "streams is NULL, which stands for the streams of the object, and stream_count is 3",
          halocline_schedule_exchange(halo, 0, NULL, 3, &pending));
  halocline_pattern_links links;
  OK(halocline_pattern_links_create(comm, &pattern, 1, NULL, &links));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "stream_count is 1; pass 0, or the array",
          halocline_pattern_links_schedule(links, NULL, 0, NULL, 1, &pending));
  OK(halocline_pattern_links_free(&links));
  size_t count;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "field is 1; the object has 1 fields in a set; give a number below that",
          halocline_degree(halo, 1, NULL, 0, &count));
}

static void fields_that_do_not_fit(void) {
  halocline_layout layout = layout_of(1);
  halocline_field row;
  OK(halocline_field_allocate(comm, &layout, &row));
  halocline_binding binding = {pattern, row};
  halocline_halo_exchange bound;
  TRUE(halocline_bind(comm, &binding, 1, NULL, &bound) == HALOCLINE_ERROR_ARGUMENT);
  layout = layout_of(2), layout.element = 99;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "element of the layout is 99", halocline_field_allocate(comm, &layout, &row));
  layout.element = HALOCLINE_OPAQUE(257);
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "element", halocline_field_allocate(comm, &layout, &row));
  ptrdiff_t overlapping[2] = {8, 8};
  layout = layout_of(2), layout.strides = overlapping;
  TRUE(halocline_field_allocate(comm, &layout, &row) == HALOCLINE_ERROR_ARGUMENT);
  layout = layout_of(2);
  halocline_memory memory = HALOCLINE_MEMORY_INIT;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "base of the memory is NULL", halocline_field_create(&memory, &layout, &row));
  memory.base = (void *)(UINTPTR_MAX - 7);
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "address space", halocline_field_create(&memory, &layout, &row));
  memory.space = 5;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "space of the memory is 5", halocline_field_create(&memory, &layout, &row));
  halocline_comm other;
  OK(halocline_init_by_name("thread", &other));
  binding.field = field;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "another communicator", halocline_bind(other, &binding, 1, NULL, &bound));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "no domain 7", halocline_pattern_domain(pattern, 7, &domain));
}

static void call_back(void *context) {
  size_t rank;
  *(halocline_status *)context = halocline_comm_rank(comm, &rank);
}

static void calls_from_a_callback(void) {
  halocline_status within = HALOCLINE_OK;
  halocline_memory memory = HALOCLINE_MEMORY_INIT;
  memory.base = calloc(domain.extents[0] * domain.extents[1], sizeof(double));
  memory.release = call_back, memory.context = &within;
  halocline_layout layout = layout_of(2);
  halocline_field own;
  OK(halocline_field_create(&memory, &layout, &own));
  OK(halocline_field_free(&own));
  TRUE(within == HALOCLINE_ERROR_CALLBACK);
  free(memory.base);
}

static void calls_of_a_forked_child(void) {
  pid_t child = fork();
  if (child == 0) {
    size_t rank;
    halocline_comm another;
    int refused = halocline_comm_rank(comm, &rank) == HALOCLINE_ERROR_FORKED &&
                  halocline_exchange_and_wait(halo) == HALOCLINE_ERROR_FORKED &&
                  halocline_init(&another) == HALOCLINE_ERROR_FORKED &&
                  halocline_halo_exchange_free(&halo) == HALOCLINE_ERROR_FORKED &&
                  strstr(halocline_error_message(), "forked") != NULL;
    _exit(refused ? 0 : 1);
  }
  int status;
  TRUE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  OK(halocline_exchange_and_wait(halo));
}

/* Exchanges of all threads. */
static atomic_int exchanges;

static halocline_status exchange_and_count(halocline_halo_exchange own) {
  halocline_status status = halocline_exchange_and_wait(own);
  atomic_fetch_add(&exchanges, status == HALOCLINE_OK);
  return status;
}

static void *exchange_until_freed(void *given) {
  halocline_halo_exchange own = *(halocline_halo_exchange *)given;
  halocline_status status;
  do {
    status = exchange_and_count(own);
  } while (status == HALOCLINE_OK || status == HALOCLINE_ERROR_BUSY);
  TRUE(status == HALOCLINE_ERROR_HANDLE);
  return NULL;
}

static void a_free_while_other_threads_exchange(void) {
  enum { THREADS = 2 };
  pthread_t threads[THREADS];
  halocline_halo_exchange copy = halo;
  for (int thread = 0; thread < THREADS; thread++) {
    TRUE(pthread_create(&threads[thread], NULL, exchange_until_freed, &copy) == 0);
  }
  // One thread alone may find the others in an exchange for long, above all under valgrind.
  while (atomic_load(&exchanges) < 1000) {
    halocline_status status = exchange_and_count(halo);
    TRUE(status == HALOCLINE_OK || status == HALOCLINE_ERROR_BUSY);
  }
  OK(halocline_halo_exchange_free(&halo));
  for (int thread = 0; thread < THREADS; thread++) {
    TRUE(pthread_join(threads[thread], NULL) == 0);
  }
}

static void traces(void) {
  halocline_trace trace = {0}, copy;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "trace is NULL", halocline_trace_begin(comm, "/tmp/none", NULL));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "path is NULL", halocline_trace_begin(comm, NULL, &trace));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "not UTF-8", halocline_trace_begin(comm, "\xff", &trace));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "cannot write the trace to /dev/null/x", halocline_trace_begin(comm, "/dev/null/x", &trace));
  REFUSED(HALOCLINE_ERROR_HANDLE, "is null", halocline_trace_end(trace));
  OK(halocline_trace_free(&trace));
  halocline_device_trace steps = {0};
  const halocline_stream no_stream = {0};
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "device_trace is NULL", halocline_trace_on_stream(trace, no_stream, 1, NULL));
  REFUSED(HALOCLINE_ERROR_HANDLE, "is null", halocline_trace_on_stream(trace, no_stream, 1, &steps));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "moment is -1", halocline_device_trace_stamp(steps, -1));
  REFUSED(HALOCLINE_ERROR_HANDLE, "is null", halocline_device_trace_stamp(steps, HALOCLINE_MOMENT_DONE));
  const halocline_pending nothing = {0, 0};
  REFUSED(HALOCLINE_ERROR_HANDLE, "is null", halocline_device_trace_observe(steps, nothing));
  OK(halocline_device_trace_free(&steps));
  halocline_trace foreign = {halo.id};
  REFUSED(HALOCLINE_ERROR_HANDLE, "halocline_halo_exchange was passed", halocline_trace_end(foreign));
  OK(halocline_trace_begin(comm, "/dev/null", &trace));
  REFUSED(HALOCLINE_ERROR_BUSY, "records another trace", halocline_trace_begin(comm, "/dev/null", &copy));
  copy = trace;
  OK(halocline_trace_free(&trace));
  REFUSED(HALOCLINE_ERROR_HANDLE, "freed", halocline_trace_end(copy));
  OK(halocline_trace_begin(comm, "/dev/null", &trace));
  OK(halocline_trace_end(trace));
  OK(halocline_trace_begin(comm, "/dev/null", &copy));
  OK(halocline_trace_free(&copy));
  OK(halocline_trace_free(&trace));
}

static void values_of_nothing(void) {
  halocline_trace trace;
  halocline_program program;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "path is empty; pass the path of a file", halocline_trace_begin(comm, "", &trace));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "library is empty; pass the path of a file", halocline_program_load("", NULL, &program));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "message is empty", halocline_refuse(""));
  halocline_mesh mesh;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "an element has 0 vertices; give the number of vertices of an element, 3 for triangles",
          halocline_mesh_create(3, 1, 0, NULL, 0, &mesh));
  const size_t offsets[2] = {0, 0};
  size_t count;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "is of a regular grid, whose cells have no lists of neighbours; call halocline_domain_interior",
          halocline_domain_interior_by(pattern, 0, offsets, offsets, NULL, 0, &count));
}

/* Lists whose places are none, which are refused before they are read, and lengths that no memory has. */
static void lists_that_are_none(void) {
  const size_t falling[3] = {0, 5, 2}, late[2] = {1, 3};
  uint32_t numbers[6] = {0, 1, 2, 0, 1, 2};
  halocline_mesh mesh;
  halocline_partition partition;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "offsets fall from 5 to 2 at list 1; give 0, where", halocline_mesh_create_mixed(4, 2, falling, numbers, 0, &mesh));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "offsets begin with 1; give 0, where", halocline_partition_graph(1, late, numbers, 1, &partition));
  const size_t beyond = (size_t)1 << 60;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "more than the address space holds", halocline_comm_all_gather(comm, numbers, beyond, numbers));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "more than the address space holds", halocline_partition_given(falling, beyond, 1, &partition));
  const halocline_cells cells = HALOCLINE_CELLS_INIT;
  halocline_pattern of_lists;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "the list has 1152921504606846976 domains", halocline_pattern_unstructured(comm, &cells, beyond, &of_lists));
  halocline_resource host, limited, none = {0};
  OK(halocline_resource_host(comm, &host));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "bytes is -1 (18446744073709551615 unsigned)", halocline_resource_limited(host, SIZE_MAX, 1, none, &limited));
  OK(halocline_resource_free(&host));
}

/* Memory of a GPU, also where there is none: the message says so. */
static void memory_of_a_gpu(void) {
  halocline_layout layout = layout_of(2);
  halocline_field on_gpu = {0};
  halocline_status status = halocline_field_allocate_cuda(0, &layout, &on_gpu);
  TRUE(status == HALOCLINE_OK || (status == HALOCLINE_ERROR_DEVICE && strlen(halocline_error_message()) > 0));
  halocline_stream none = {0};
  char byte = 0;
  REFUSED(HALOCLINE_ERROR_HANDLE, "null", halocline_field_write(on_gpu, none, &byte, 1));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "source is NULL, and has 8 elements", halocline_field_write(on_gpu, none, NULL, 8));
  REFUSED(HALOCLINE_ERROR_HANDLE, "null", halocline_field_read(on_gpu, none, &byte, 1));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "target is NULL, and has 8 elements", halocline_field_read(on_gpu, none, NULL, 8));
  OK(halocline_field_free(&on_gpu));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "device is -1; give the number of a GPU, from 0", halocline_field_allocate_cuda(-1, &layout, &on_gpu));
  REFUSED(HALOCLINE_ERROR_DEVICE, "", halocline_field_allocate_cuda(100000, &layout, &on_gpu));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "halocline_layout is NULL", halocline_field_allocate_cuda(0, NULL, &on_gpu));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "field is NULL", halocline_field_allocate_cuda(0, &layout, NULL));
  layout.element = 0;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "element of the layout is 0", halocline_field_allocate_cuda(0, &layout, &on_gpu));
}

static void messages_and_names(void) {
  TRUE(strcmp(halocline_error_message(), "") == 0);
  TRUE(halocline_abi_version() == HALOCLINE_ABI_VERSION);
  TRUE(strchr(halocline_version(), '.') != NULL);
  halocline_status names = 0;
  for (; halocline_status_name(names) != NULL; names++) {
    TRUE(strncmp(halocline_status_name(names), "HALOCLINE_", 10) == 0);
  }
  TRUE(names > HALOCLINE_ERROR_INTERNAL && halocline_status_name(-1) == NULL);
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "no transport", halocline_init_by_name("telepathy", &comm));
  halocline_comm fine;
  OK(halocline_init_by_name("thread", &fine));
  TRUE(strstr(halocline_error_message(), "telepathy") != NULL);
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "of a layer above", halocline_refuse("of a layer above"));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "message is NULL", halocline_refuse(NULL));
}

static const struct {
  const char *name;
  void (*run)(void);
} cases[] = {
    {"null_handles_and_pointers", null_handles_and_pointers},
    {"freed_foreign_and_made_up_handles", freed_foreign_and_made_up_handles},
    {"sizes_of_options", sizes_of_options},
    {"arguments_that_contradict", arguments_that_contradict},
    {"fields_that_do_not_fit", fields_that_do_not_fit},
    {"calls_from_a_callback", calls_from_a_callback},
    {"calls_of_a_forked_child", calls_of_a_forked_child},
    {"a_free_while_other_threads_exchange", a_free_while_other_threads_exchange},
    {"traces", traces},
    {"values_of_nothing", values_of_nothing},
    {"lists_that_are_none", lists_that_are_none},
    {"memory_of_a_gpu", memory_of_a_gpu},
    {"messages_and_names", messages_and_names},
};

int main(int argc, char **argv) {
  for (size_t at = 0; argc == 2 && at < sizeof cases / sizeof *cases; at++) {
    if (strcmp(argv[1], cases[at].name) == 0) {
      prepare();
      cases[at].run();
      puts("ok");
      return 0;
    }
  }
  fprintf(stderr, "usage: misuse CASE\n");
  return 2;
}
