// Sends a view from each rank to the next one, from device to device, and checks what came.
//
//     ./message
//     halocline launch -n 4 -- ./message
//     mpirun -n 4 ./message
#include <halocline_kokkos.hpp>

#include <cstdio>

namespace hc = halocline;
using view = Kokkos::View<double *>;

constexpr std::size_t LENGTH = 12;

KOKKOS_INLINE_FUNCTION double value(std::size_t rank, std::size_t at) { return 100.0 * static_cast<double>(rank) + static_cast<double>(at); }

static view message_of(std::size_t rank) {
  view message("message", LENGTH);
  Kokkos::parallel_for("fill", LENGTH, KOKKOS_LAMBDA(std::size_t at) { message(at) = value(rank, at); });
  return message;
}

static bool run() {
  const hc::comm comm = hc::comm::init();
  const std::size_t rank = comm.rank(), ranks = comm.size();
  const hc::kokkos::stream<view> stream;
  const hc::neighbors ring = hc::neighbors::ring(comm, stream.resource());

  // The receiver learns the length from the message. A rank alone sends to itself.
  const view message = message_of(rank);
  const hc::packet packet = stream.packet_of("", message);
  const hc::from_sides came = ring.exchange(0, nullptr, &packet);
  const auto received = stream.payload_of<double>(came.left);

  const std::size_t source = (rank + ranks - 1) % ranks;
  std::size_t wrong = 0;
  Kokkos::parallel_reduce("check", received.size(),
                          KOKKOS_LAMBDA(std::size_t at, std::size_t &sum) { sum += received(at) != value(source, at); }, wrong);
  wrong = comm.all_reduce(wrong + (received.size() != LENGTH), hc::reduce::sum);
  if (rank == 0) {
    std::printf("message: %zu values to the next of %zu ranks, %s\n", LENGTH, ranks, wrong == 0 ? "all arrived" : "WRONG");
  }
  return wrong == 0;
}

int main(int argc, char **argv) {
  const Kokkos::ScopeGuard guard(argc, argv);
  try {
    return run() ? 0 : 1;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
