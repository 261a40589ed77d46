// Messages between two ranks, from memory of one GPU to memory of another, by Halocline and written by hand with MPI.
//
//     mpicxx -std=c++17 -O2 gpu_packets.cpp $(pkg-config --cflags --libs halocline) -L$CUDA_HOME/lib64 -lcudart -o gpu_packets
//     mpirun -n 2 gpu_packets [ROUNDS]
//
//     by hand   copies to pinned memory of the host, sends with MPI, and copies to its GPU; knows how much comes
//     bound     a bound exchange: the message is the owned cells of a field, and comes into its halo; knows how much comes
//     packet    the receiver learns from the packet how much comes, and takes memory for it
//
// The programs take turns. Times are medians over the rounds, each that of the slower rank, until the
// values can be used. Ends with status 1 if values differ.
#include "median.hpp"

#include <halocline.hpp>
#include <mpi.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>

// What is used of the CUDA runtime, so that this compiles without its headers.
extern "C" {
using cudaStream_t = struct CUstream_st *;
int cudaGetDeviceCount(int *count);
int cudaSetDevice(int device);
int cudaStreamCreate(cudaStream_t *stream);
int cudaStreamSynchronize(cudaStream_t stream);
int cudaMalloc(void **memory, std::size_t bytes);
int cudaFree(void *memory);
int cudaMallocHost(void **memory, std::size_t bytes);
int cudaFreeHost(void *memory);
int cudaMemcpyAsync(void *to, const void *from, std::size_t bytes, int kind, cudaStream_t stream);
const char *cudaGetErrorString(int code);
}
constexpr int TO_GPU = 1, TO_HOST = 2;

namespace hc = halocline;

static void check(int code) {
  if (code == 0) return;
  std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(code));
  std::exit(2);
}

template <class T>
static T *pinned(std::size_t count) {
  void *memory;
  check(cudaMallocHost(&memory, count * sizeof(T)));
  return static_cast<T *>(memory);
}
template <class T>
static T *on_gpu(std::size_t count) {
  void *memory;
  check(cudaMalloc(&memory, count * sizeof(T)));
  return static_cast<T *>(memory);
}

// The rank, its GPU, and the stream on which it works.
struct place {
  int rank, device;
  cudaStream_t stream;
};

// Sends its message to the other rank, and returns what came: later work of the stream may use it.
struct contender {
  virtual ~contender() = default;
  // Memory of the GPU where the program makes the message.
  virtual double *message() = 0;
  virtual const double *exchange() = 0;
  std::vector<double> times;
};

struct by_bound_exchange final : contender {
  by_bound_exchange(const hc::comm &comm, const place &at, std::size_t length)
      : stream_(hc::stream::cuda(at.device, at.stream)),
        pattern_(hc::regular_grid({2 * length}).decompose(2).pattern(comm, hc::halo(length))),
        cells_(on_gpu<double>(pattern_.domain().extents[0])),
        field_(hc::field::create_cuda(at.device, cells_, hc::layout::of(hc::view<double, 1>(cells_, pattern_.domain().shape<1>())))),
        halo_(comm, {{pattern_, field_}}, hc::bind_options().streams({&stream_}).run_inline(true)) {
    const std::size_t first = pattern_.domain().owned.first[0];
    message_ = cells_ + first;
    came_ = at.rank == 0 ? message_ + length : message_ - length;
  }
  ~by_bound_exchange() override {
    halo_ = hc::halo_exchange();
    check(cudaFree(cells_));
  }
  double *message() override { return message_; }
  const double *exchange() override {
    halo_.schedule_exchange(stream_).schedule_wait(stream_);
    return came_;
  }

 private:
  hc::stream stream_;
  hc::pattern pattern_;
  double *cells_, *message_, *came_;
  hc::field field_;
  hc::halo_exchange halo_;
};

struct by_packet final : contender {
  by_packet(const hc::comm &comm, const place &at, std::size_t length)
      : device_(at.device),
        length_(length),
        message_(on_gpu<double>(length)),
        stream_(hc::stream::cuda(at.device, at.stream)),
        ring_(hc::neighbors::ring(comm, hc::resource::cuda(at.device))) {}
  ~by_packet() override { check(cudaFree(message_)); }
  double *message() override { return message_; }
  const double *exchange() override {
    hc::packet packet("", hc::span<const double>(message_, length_));
    packet.space = HALOCLINE_CUDA;
    packet.device = device_;
    packet.stream = stream_.get();
    // The packet that came last is freed here.
    came_ = std::make_unique<hc::from_sides>(ring_.exchange(0, nullptr, &packet));
    came_->left.order(stream_);
    return came_->left.payload<double>().data();
  }

 private:
  int device_;
  std::size_t length_;
  double *message_;
  hc::stream stream_;
  hc::neighbors ring_;
  std::unique_ptr<hc::from_sides> came_;
};

struct by_hand final : contender {
  by_hand(const place &at, std::size_t length)
      : at_(at),
        length_(length),
        message_(on_gpu<double>(length)),
        sent_(pinned<double>(length)),
        came_(pinned<double>(length)),
        received_(on_gpu<double>(length)) {}
  ~by_hand() override {
    check(cudaFree(message_));
    check(cudaFreeHost(sent_));
    check(cudaFreeHost(came_));
    check(cudaFree(received_));
  }
  double *message() override { return message_; }
  const double *exchange() override {
    const int count = static_cast<int>(length_), peer = 1 - at_.rank;
    const std::size_t bytes = length_ * sizeof(double);
    MPI_Request requests[2];
    MPI_Irecv(came_, count, MPI_DOUBLE, peer, 0, MPI_COMM_WORLD, &requests[0]);
    check(cudaMemcpyAsync(sent_, message_, bytes, TO_HOST, at_.stream));
    check(cudaStreamSynchronize(at_.stream));
    MPI_Isend(sent_, count, MPI_DOUBLE, peer, 0, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    check(cudaMemcpyAsync(received_, came_, bytes, TO_GPU, at_.stream));
    return received_;
  }

 private:
  place at_;
  std::size_t length_;
  double *message_, *sent_, *came_, *received_;
};

static double value(int rank, std::size_t round, std::size_t at) {
  return static_cast<double>(rank) + 2.0 * static_cast<double>(round) + 0.5 * static_cast<double>(at);
}

// Rounds of one program: returns the number of wrong values.
static std::size_t run(contender &program, const place &at, std::size_t length, std::size_t rounds) {
  double *const host = pinned<double>(length);
  const std::size_t bytes = length * sizeof(double);
  std::size_t wrong = 0;
  for (std::size_t round = 0; round < rounds; round++) {
    for (std::size_t i = 0; i < length; i++) host[i] = value(at.rank, round, i);
    check(cudaMemcpyAsync(program.message(), host, bytes, TO_GPU, at.stream));
    check(cudaStreamSynchronize(at.stream));
    MPI_Barrier(MPI_COMM_WORLD);
    const auto start = std::chrono::steady_clock::now();
    const double *const found = program.exchange();
    check(cudaStreamSynchronize(at.stream));
    program.times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
    check(cudaMemcpyAsync(host, found, bytes, TO_HOST, at.stream));
    check(cudaStreamSynchronize(at.stream));
    for (std::size_t i = 0; i < length; i++) wrong += host[i] != value(1 - at.rank, round, i);
  }
  check(cudaFreeHost(host));
  return wrong;
}

static bool compare(std::size_t rounds) {
  const hc::comm comm = hc::comm::from_mpi(MPI_COMM_WORLD);
  place at{static_cast<int>(comm.rank()), 0, nullptr};
  int devices;
  check(cudaGetDeviceCount(&devices));
  at.device = at.rank % devices;
  check(cudaSetDevice(at.device));
  check(cudaStreamCreate(&at.stream));
  if (at.rank == 0) {
    std::printf("%zu rounds, %d GPUs; us\n    values   by hand     bound  ratio    packet  ratio\n", rounds, devices);
  }
  std::uint64_t wrong = 0;
  for (const std::size_t length : {std::size_t(1), std::size_t(1) << 9, std::size_t(1) << 13, std::size_t(1) << 15, std::size_t(1) << 21}) {
    by_hand hand(at, length);
    by_bound_exchange bound(comm, at, length);
    by_packet packet(comm, at, length);
    const std::array<contender *, 3> all = {&hand, &bound, &packet};
    for (contender *const program : all) {
      wrong += run(*program, at, length, 10);
      program->times.clear();
    }
    for (std::size_t turn = 0; turn < 5; turn++) {
      for (contender *const program : all) wrong += run(*program, at, length, rounds / 5);
    }
    const double theirs = median(comm, hand.times), first = median(comm, bound.times), second = median(comm, packet.times);
    if (at.rank == 0) {
      std::printf("%10zu  %8.1f  %8.1f  %5.2f  %8.1f  %5.2f\n", length, theirs, first, first / theirs, second, second / theirs);
    }
  }
  wrong = comm.all_reduce(wrong, hc::reduce::sum);
  if (at.rank == 0) std::printf("%s\n", wrong == 0 ? "all values as expected" : "WRONG values");
  return wrong == 0;
}

int main(int argc, char **argv) {
  int level, ranks, code = 2;  // Memory of GPUs needs all threads.
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const long rounds = argc > 1 ? std::atol(argv[1]) : 200;
  if (ranks != 2 || rounds < 5) {
    std::fprintf(stderr, "usage: mpirun -n 2 gpu_packets [ROUNDS]   (5 or more)\n");
  } else {
    code = compare(static_cast<std::size_t>(rounds)) ? 0 : 1;
  }
  MPI_Finalize();
  return code;
}
