// Messages and packets in memory of a GPU, in the order of a stream: as a process, or as threads with `cuda N`. Exits with 77 if there is
// no GPU.
#define HAS_MAIN
#include "ranks.hpp"

#include "driver.hpp"

constexpr std::size_t CELLS = 6, LENGTH = 1 << 16;

// A stream of this rank. CUDA's own stays until the process ends.
struct stream_of_rank {
  void *raw = nullptr;
  hc::stream stream;

  stream_of_rank() {
    void *context;
    int device;
    CUDA(cuda.get(&device, 0));
    CUDA(cuda.retain(&context, device));
    CUDA(cuda.current(context));
    CUDA(cuda.create(&raw, 1));
    stream = hc::stream::cuda(0, raw);
  }
  void to_device(address to, const void *from, std::size_t bytes) const { CUDA(cuda.to_device(to, from, bytes, raw)); }
  void to_host(void *to, address from, std::size_t bytes) const {
    CUDA(cuda.to_host(to, from, bytes, raw));
    CUDA(cuda.synchronise(raw));
  }
};

static address allocate(std::size_t bytes) {
  address memory;
  CUDA(cuda.allocate(&memory, bytes));
  return memory;
}
static void *pointer(address memory) { return reinterpret_cast<void *>(memory); }

// A ring of cells: messages that the program sends by itself, and fields that are given to each exchange.
static void messages(const hc::comm &comm, const stream_of_rank &own) {
  const std::size_t rank = comm.rank(), size = comm.size(), next = (rank + 1) % size, last = (rank + size - 1) % size;
  const hc::pattern pattern = hc::regular_grid({CELLS * size}).periodic({true}).decompose(size).pattern(comm, 1);
  const address memory = allocate((CELLS + 2) * sizeof(double));
  const hc::field field = hc::field::create_cuda(0, pointer(memory), hc::layout(HALOCLINE_F64, {CELLS + 2}));
  const hc::bind_options options = hc::bind_options().streams({&own.stream}).deadline(60);
  std::array<double, CELLS + 2> cells{}, found{};
  for (std::size_t at = 0; at < CELLS; at++) cells[at + 1] = static_cast<double>(rank * CELLS + at);
  own.to_device(memory, cells.data(), sizeof cells);

  const hc::halo_exchange halo(comm, {{pattern, field}}, options);
  if (size > 2) {
    const std::size_t bytes = halo.message_bytes(next, HALOCLINE_SEND);
    double message = 0;
    TRUE(bytes == sizeof message);
    const address packed = allocate(bytes);
    halo.pack_on(next, pointer(packed), bytes, own.stream);
    own.to_host(&message, packed, bytes);
    TRUE(message == cells[CELLS]);
    message = 42;
    own.to_device(packed, &message, bytes);
    halo.unpack_on(last, pointer(packed), bytes, own.stream);
    own.to_host(found.data(), memory, sizeof found);
    TRUE(found[0] == 42 && found[1] == cells[1]);
  }
  comm.barrier();

  const hc::pattern_links links(comm, {&pattern}, options);
  const hc::binding fields[] = {{pattern, field}};
  links.schedule({{pattern, field}}, own.stream).schedule_wait(own.stream);
  links.schedule(fields).wait();
  own.to_host(found.data(), memory, sizeof found);
  TRUE(found[0] == static_cast<double>(last * CELLS + CELLS - 1) && found[CELLS + 1] == static_cast<double>(next * CELLS));
  TRUE(links.reclaim() && !links.explain().empty());

  // Without calls of CUDA, in memory that the library allocates.
  const hc::field filled = hc::field::allocate_cuda(0, hc::layout(HALOCLINE_F64, {CELLS + 2}));
  filled.write(own.stream, cells.data(), sizeof cells);
  links.schedule({{pattern, filled}}, own.stream).schedule_wait(own.stream);
  std::array<double, CELLS + 2> again{};
  filled.read(own.stream, again.data(), sizeof again);
  TRUE(again == found);
  comm.barrier();
}

// Payloads of the GPU, to memory of the GPU and to memory of the host that it reaches.
static void packets(const hc::comm &comm, const stream_of_rank &own) {
  const address payload = allocate(LENGTH);
  std::vector<char> written(LENGTH, static_cast<char>('a' + comm.rank())), found(LENGTH);
  own.to_device(payload, written.data(), LENGTH);
  hc::packet packet("", hc::span<const char>(static_cast<const char *>(pointer(payload)), LENGTH));
  packet.space = HALOCLINE_CUDA;
  packet.stream = own.stream.get();
  const std::vector<char> wanted(LENGTH, static_cast<char>('a' + (comm.rank() + comm.size() - 1) % comm.size()));

  const hc::resource memory = hc::resource::cuda(0);
  const hc::from_sides came = hc::neighbors::ring(comm, memory).exchange(1, nullptr, &packet);
  TRUE(came.left.contents().space == HALOCLINE_CUDA && !came.right);
  came.left.order(own.stream);
  own.to_host(found.data(), reinterpret_cast<address>(came.left.payload<char>().data()), LENGTH);
  TRUE(found == wanted);
  comm.barrier();

  const std::vector<char> on_host = written;
  const hc::packet of_host("", hc::span<const char>(on_host));
  const hc::resource pinned = hc::resource::pinned(comm, 0);
  const hc::from_sides again = hc::neighbors::ring(comm, pinned).exchange(1, nullptr, &of_host);
  TRUE(again.left.contents().space == HALOCLINE_HOST);
  const hc::span<const char> bytes = again.left.payload<char>();
  TRUE(std::vector<char>(bytes.begin(), bytes.end()) == wanted);
  // Work of the stream reads it where it lies.
  const address copy = allocate(LENGTH);
  own.to_device(copy, bytes.data(), LENGTH);
  std::fill(found.begin(), found.end(), '-');
  own.to_host(found.data(), copy, LENGTH);
  TRUE(found == wanted);
  comm.barrier();
}

static void run(const hc::comm &comm) {
  const stream_of_rank own;
  messages(comm, own);
  packets(comm, own);
}

int main(int argc, char **argv) {
  if (!open_driver()) {
    std::fprintf(stderr, "there is no GPU here\n");
    return 77;
  }
  run_ranks(argc, argv);
  return 0;
}
