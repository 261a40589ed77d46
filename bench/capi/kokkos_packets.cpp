// Messages between two ranks from and to memory of Kokkos' default space, by Halocline and written by hand with MPI: what
// examples/kokkos/message.cpp and pack.cpp do.
//
//     mpirun -n 2 kokkos_packets [ROUNDS]
//
// A round sends the values to the other rank and receives as many:
//
//     message   the values as they are
//     pack      every fourth value of a larger view, gathered by a kernel; the receiver adds them to its own
//
// The program by hand sends from a buffer of the same space; of a GPU through pinned memory of the host, or directly if MPI_AWARE=1. It
// knows how much comes; the receiver of a packet learns that from the packet. The programs take turns. Times are medians over the rounds,
// each that of the slower rank, until the values can be used. Ends with status 1 if values differ.
#include "median.hpp"

#include <halocline_kokkos.hpp>
#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace hc = halocline;
using space = Kokkos::DefaultExecutionSpace;
using view = Kokkos::View<double *>;
#ifdef KOKKOS_ENABLE_CUDA
using staging_space = Kokkos::CudaHostPinnedSpace;
#else
using staging_space = Kokkos::HostSpace;
#endif
using staging = Kokkos::View<double *, staging_space>;

constexpr std::size_t STRIDE = 4;

// Sends values to the other rank, and returns what came.
struct contender {
  virtual ~contender() = default;
  virtual Kokkos::View<const double *> exchange(const view &message) = 0;
  std::vector<double> times;
};

struct by_halocline final : contender {
  explicit by_halocline(const hc::comm &comm) : ring_(hc::neighbors::ring(comm, stream_.resource())) {}
  Kokkos::View<const double *> exchange(const view &message) override {
    const hc::packet packet = stream_.packet_of("", message);
    // The packet that came last is freed here.
    came_ = std::make_unique<hc::from_sides>(ring_.exchange(0, nullptr, &packet));
    return stream_.payload_of<double>(came_->left);
  }

 private:
  hc::kokkos::stream<view> stream_;
  hc::neighbors ring_;
  std::unique_ptr<hc::from_sides> came_;
};

struct by_hand final : contender {
  by_hand(int peer, std::size_t most, bool is_aware)
      : peer_(peer), is_aware_(is_aware), sent_("sent", most), came_("came", most), received_("received", most) {}
  Kokkos::View<const double *> exchange(const view &message) override {
    const std::pair<std::size_t, std::size_t> all(0, message.size());
    const bool is_staged = !is_aware_ && !Kokkos::SpaceAccessibility<Kokkos::HostSpace, view::memory_space>::accessible;
    const auto received = Kokkos::subview(received_, all);
    double *const from = is_staged ? sent_.data() : message.data(), *const to = is_staged ? came_.data() : received_.data();
    MPI_Request requests[2];
    MPI_Irecv(to, static_cast<int>(message.size()), MPI_DOUBLE, peer_, 0, MPI_COMM_WORLD, &requests[0]);
    if (is_staged) Kokkos::deep_copy(space(), Kokkos::subview(sent_, all), message);
    Kokkos::fence();
    MPI_Isend(from, static_cast<int>(message.size()), MPI_DOUBLE, peer_, 0, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    if (is_staged) Kokkos::deep_copy(space(), received, Kokkos::subview(came_, all));
    return received;
  }

 private:
  int peer_;
  bool is_aware_;
  staging sent_, came_;
  view received_;
};

static double value(int rank, std::size_t round, std::size_t at) {
  return static_cast<double>(rank) + 2.0 * static_cast<double>(round) + 0.5 * static_cast<double>(at);
}

// Rounds of one program: returns the number of wrong values.
static std::size_t run(contender &program, bool packs, std::size_t length, std::size_t rounds, int rank) {
  const view all("all", length * STRIDE), message("message", length), sums("sums", length);
  std::size_t wrong = 0;
  for (std::size_t round = 0; round < rounds; round++) {
    Kokkos::parallel_for("fill", length * STRIDE, KOKKOS_LAMBDA(std::size_t at) {
      all(at) = static_cast<double>(rank) + 2.0 * static_cast<double>(round) + 0.5 * static_cast<double>(at);
      if (!packs && at < length) message(at) = all(at);
      if (at < length) sums(at) = 0;
    });
    Kokkos::fence();
    MPI_Barrier(MPI_COMM_WORLD);
    const auto start = std::chrono::steady_clock::now();
    if (packs) Kokkos::parallel_for("pack", length, KOKKOS_LAMBDA(std::size_t at) { message(at) = all(STRIDE * at); });
    const auto came = program.exchange(message);
    if (packs) Kokkos::parallel_for("add", length, KOKKOS_LAMBDA(std::size_t at) { sums(at) += came(at); });
    Kokkos::fence();
    program.times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
    const std::size_t last = length - 1;
    double first_and_last[2];
    const Kokkos::View<const double *> found = packs ? Kokkos::View<const double *>(sums) : came;
    Kokkos::deep_copy(first_and_last[0], Kokkos::subview(found, 0));
    Kokkos::deep_copy(first_and_last[1], Kokkos::subview(found, last));
    wrong += came.size() != length || first_and_last[0] != value(1 - rank, round, 0) ||
             first_and_last[1] != value(1 - rank, round, packs ? STRIDE * last : last);
  }
  return wrong;
}

static bool compare(std::size_t rounds, bool is_aware) {
  const hc::comm comm = hc::comm::from_mpi(MPI_COMM_WORLD);
  const int rank = static_cast<int>(comm.rank());
  if (rank == 0) std::printf("%zu rounds; us\n                values   by hand  Halocline  ratio\n", rounds);
  std::uint64_t wrong = 0;
  for (const bool packs : {false, true}) {
    for (const std::size_t length : {std::size_t(512), std::size_t(1) << 15, std::size_t(1) << 21}) {
      by_hand hand(1 - rank, length, is_aware);
      by_halocline ours(comm);
      for (contender *program : {static_cast<contender *>(&hand), static_cast<contender *>(&ours)}) {
        wrong += run(*program, packs, length, 5, rank);
        program->times.clear();
      }
      for (std::size_t turn = 0; turn < 5; turn++) {
        wrong += run(hand, packs, length, rounds / 5, rank) + run(ours, packs, length, rounds / 5, rank);
      }
      const double theirs = median(comm, hand.times), mine = median(comm, ours.times);
      if (rank == 0) std::printf("%-8s    %10zu  %8.1f  %9.1f  %5.2f\n", packs ? "pack" : "message", length, theirs, mine, mine / theirs);
    }
  }
  wrong = comm.all_reduce(wrong, hc::reduce::sum);
  if (rank == 0) std::printf("%s\n", wrong == 0 ? "all values as expected" : "WRONG values");
  return wrong == 0;
}

int main(int argc, char **argv) {
#ifdef KOKKOS_ENABLE_CUDA
  int level;  // Fields of GPUs need all threads.
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
#else
  MPI_Init(&argc, &argv);
#endif
  int ranks, code = 2;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const long rounds = argc > 1 ? std::atol(argv[1]) : 200;
  const char *aware = std::getenv("MPI_AWARE");
  if (ranks != 2 || rounds < 5) {
    std::fprintf(stderr, "usage: mpirun -n 2 kokkos_packets [ROUNDS]   (5 or more)\n");
  } else {
    const Kokkos::ScopeGuard guard(argc, argv);
    code = compare(static_cast<std::size_t>(rounds), aware != nullptr && aware[0] == '1') ? 0 : 1;
  }
  MPI_Finalize();
  return code;
}
