// The part of halocline_kokkos.hpp for GPUs, as a process: with memory and a stream of a GPU, but with stand-ins for Kokkos::Cuda and
// Kokkos::CudaSpace, because Debian's Kokkos has none. Prints "ok RANKS TRANSPORT" on rank 0. Exits with 77 if there is no GPU. The functions of
// the driver are looked up, so that no CUDA is needed to compile it.
#include <Kokkos_Core.hpp>

namespace Kokkos {

class Cuda;

struct CudaSpace {
  using memory_space = CudaSpace;
  using execution_space = Cuda;
  using device_type = Kokkos::Device<execution_space, memory_space>;
  using size_type = std::size_t;
  static constexpr const char *name() { return "Cuda"; }
};

class Cuda {
 public:
  using execution_space = Cuda;
  using memory_space = CudaSpace;
  using device_type = Kokkos::Device<execution_space, memory_space>;
  using array_layout = Kokkos::LayoutLeft;
  using size_type = std::size_t;
  using scratch_memory_space = Kokkos::ScratchMemorySpace<Cuda>;

  explicit Cuda(void *stream = nullptr) : stream_(stream) {}
  int cuda_device() const { return 0; }
  void *cuda_stream() const { return stream_; }

 private:
  void *stream_;
};

}  // namespace Kokkos

#define KOKKOS_ENABLE_CUDA
#include <halocline_kokkos.hpp>

#include "driver.hpp"

namespace hk = halocline::kokkos;

using view = Kokkos::View<double *, Kokkos::CudaSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

// A view in memory of the GPU.
static view allocate(std::size_t cells) {
  address memory;
  CUDA(cuda.allocate(&memory, cells * sizeof(double)));
  return view(reinterpret_cast<double *>(memory), cells);
}
static address address_of(const double *memory) { return reinterpret_cast<address>(memory); }

// Cells of a ring, six on each rank. The host does not wait for the GPU between its writes and its reads.
static void exchanges(const hc::comm &comm, void *raw, const hk::stream<view> &stream) {
  constexpr std::size_t CELLS = 6;
  const std::size_t rank = comm.rank(), all = CELLS * comm.size();
  const hc::pattern pattern = hc::regular_grid({all}).periodic({true}).decompose(comm.size()).pattern(comm, 1);
  const view t = allocate(CELLS + 2);
  const hc::halo_exchange halo(comm, {{pattern, hk::field_of(t)}}, hc::bind_options().streams({&stream.get()}).deadline(60));
  double written[CELLS + 2], found[CELLS + 2];
  for (int step = 0; step < 20; step++) {
    written[0] = written[CELLS + 1] = -1;
    for (std::size_t at = 0; at < CELLS; at++) written[at + 1] = static_cast<double>(rank * CELLS + at) + 1000.0 * step;
    CUDA(cuda.to_device(address_of(t.data()), written, sizeof written, raw));
    stream.schedule_wait(stream.schedule_exchange(halo));
    CUDA(cuda.to_host(found, address_of(t.data()), sizeof found, raw));
    CUDA(cuda.synchronise(raw));
    TRUE(found[0] == static_cast<double>((rank * CELLS + all - 1) % all) + 1000.0 * step);
    TRUE(found[CELLS + 1] == static_cast<double>((rank * CELLS + CELLS) % all) + 1000.0 * step);
  }
  for (std::size_t at = 0; at < CELLS + 2; at++) written[at] = static_cast<double>(at + 1);
  CUDA(cuda.to_device(address_of(t.data()), written, sizeof written, raw));
  stream.schedule_wait(stream.schedule_reduce(halo, hc::reduce::sum));
  CUDA(cuda.to_host(found, address_of(t.data()), sizeof found, raw));
  CUDA(cuda.synchronise(raw));
  TRUE(found[0] == 0 && found[1] == 2 + CELLS + 2 && found[CELLS] == CELLS + 1 + 1 && found[CELLS + 1] == 0);
}

static void packets(const hc::comm &comm, void *raw, const hk::stream<view> &stream) {
  constexpr std::size_t LENGTH = 1000;
  const hc::neighbors ring = hc::neighbors::ring(comm, stream.resource());
  const view message = allocate(LENGTH);
  const std::vector<double> written(LENGTH, static_cast<double>(comm.rank()));
  CUDA(cuda.to_device(address_of(message.data()), written.data(), LENGTH * sizeof(double), raw));
  const hc::packet packet = stream.packet_of("", message);
  const hc::from_sides came = ring.exchange(0, nullptr, &packet);
  const auto received = stream.payload_of<double>(came.left);
  TRUE(received.size() == LENGTH);
  std::vector<double> found(LENGTH);
  CUDA(cuda.to_host(found.data(), address_of(received.data()), LENGTH * sizeof(double), raw));
  CUDA(cuda.synchronise(raw));
  const std::size_t left = (comm.rank() + comm.size() - 1) % comm.size();
  TRUE(found == std::vector<double>(LENGTH, static_cast<double>(left)));

  // A payload of the GPU is none of the host.
  try {
    hk::stream<Kokkos::Serial>().payload_of<double>(came.left);
    TRUE(false);
  } catch (const hc::error &error) {
    TRUE(error.status() == HALOCLINE_ERROR_ARGUMENT);
  }
  comm.barrier();
}

int main(int argc, char **argv) {
  if (!open_driver()) {
    std::fprintf(stderr, "there is no GPU here\n");
    return 77;
  }
  const Kokkos::ScopeGuard guard(argc, argv);
  void *context, *raw;
  int device;
  CUDA(cuda.get(&device, 0));
  CUDA(cuda.retain(&context, device));
  CUDA(cuda.current(context));
  CUDA(cuda.create(&raw, 1));
  const hc::comm comm = hc::comm::init();
  const hk::stream<view> stream{Kokkos::Cuda(raw)};
  exchanges(comm, raw, stream);
  packets(comm, raw, stream);
  if (comm.rank() == 0) std::printf("ok %zu %s\n", comm.size(), comm.transport().c_str());
}
