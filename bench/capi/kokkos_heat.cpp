// The exchange of a Kokkos heat program, by Halocline and written by hand with MPI: 3-D blocks on two ranks, the interior computed while the
// halos travel. bench/capi/kokkos builds and runs it.
//
//     mpirun -n 2 kokkos_heat [CELLS [STEPS [AXIS]]]     CELLS along each axis, cut in two along AXIS
//
// The program by hand packs each face into a buffer with parallel_for, sends it with MPI_Isend, and unpacks what MPI_Irecv has received. Halocline
// runs three times: with the link that the bind chooses, with links that pull, and on views that Kokkos allocates. The programs take turns, on levels of their own; at the end the levels are
// compared, bit by bit. Times are medians over the steps, each that of the slower rank:
//
//     exchange in a step   begin and wait, with the interior between them; the wait includes the time until the other rank is there
//     exchange alone       begin and wait in a row, after a barrier; the first read of the halo comes later
//     the step             all of a step
//
// With Kokkos for CUDA, each rank with a GPU of its own, the program by hand packs into pinned memory of the host, from which MPI sends. There the
// first row is the time of the host alone.
//
// Ends with status 1 if Halocline takes over 0.5 of the time of the program by hand in a step, or if results differ.
#include "median.hpp"

#include <halocline_kokkos.hpp>
#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>

namespace hc = halocline;
using space = Kokkos::DefaultExecutionSpace;
using view = Kokkos::View<double ***>;
using range = Kokkos::MDRangePolicy<space, Kokkos::Rank<3>>;

constexpr std::size_t TURN = 10;

static range cells_of(const hc::box &box) {
  range::point_type first, end;
  for (int axis = 0; axis < 3; axis++) {
    first[axis] = static_cast<std::int64_t>(box.first[axis]);
    end[axis] = first[axis] + static_cast<std::int64_t>(box.extents[axis]);
  }
  return range(first, end);
}

static void step(const view &from, const view &to, const hc::box &box) {
  Kokkos::parallel_for("step", cells_of(box), KOKKOS_LAMBDA(int i, int j, int k) {
    const double around = from(i - 1, j, k) + from(i + 1, j, k) + from(i, j - 1, k) + from(i, j + 1, k) + from(i, j, k - 1) +
                          from(i, j, k + 1);
    to(i, j, k) = from(i, j, k) + 0.15 * (around - 6.0 * from(i, j, k));
  });
}

// A program: two levels, and an exchange of each.
struct contender {
  virtual ~contender() = default;
  virtual const view &level(std::size_t at) const = 0;
  virtual void begin(std::size_t level) = 0;
  virtual void wait() = 0;
  // Microseconds of each step.
  std::vector<double> in_a_step, alone, step;
};

struct by_halocline final : contender {
  by_halocline(const hc::comm &comm, const hc::pattern &pattern, std::int32_t link)
      : levels_{{comm, pattern.domain().shape<3>()}, {comm, pattern.domain().shape<3>()}}, pending_({0, 0}) {
    const hc::binding sets[2] = {{pattern, levels_[0]}, {pattern, levels_[1]}};
    halo_ = hc::halo_exchange::alternatives(comm, sets, 2, hc::bind_options().link(link));
  }
  const view &level(std::size_t at) const override { return levels_[at].view(); }
  void begin(std::size_t level) override { pending_ = stream_.schedule_exchange(halo_, level); }
  void wait() override { stream_.schedule_wait(pending_); }

 private:
  hc::kokkos::array<view> levels_[2];
  hc::halo_exchange halo_;
  hc::kokkos::stream<view> stream_;
  hc::pending pending_;
};

struct by_halocline_on_views final : contender {
  by_halocline_on_views(const hc::comm &comm, const hc::pattern &pattern) : pending_({0, 0}) {
    const auto shape = pattern.domain().shape<3>();
    hc::field fields[2];
    for (std::size_t at = 0; at < 2; at++) {
      levels_[at] = view("level", shape[0], shape[1], shape[2]);
      fields[at] = hc::kokkos::field_of(levels_[at]);
    }
    const hc::binding sets[2] = {{pattern, fields[0]}, {pattern, fields[1]}};
    halo_ = hc::halo_exchange::alternatives(comm, sets, 2);
  }
  const view &level(std::size_t at) const override { return levels_[at]; }
  void begin(std::size_t level) override { pending_ = stream_.schedule_exchange(halo_, level); }
  void wait() override { stream_.schedule_wait(pending_); }

 private:
  view levels_[2];
  hc::halo_exchange halo_;
  hc::kokkos::stream<view> stream_;
  hc::pending pending_;
};

struct by_hand final : contender {
  by_hand(const hc::pattern &pattern, int axis, MPI_Comm comm) : axis_(axis), comm_(comm) {
    const hc::domain domain = pattern.domain();
    const auto shape = domain.shape<3>();
    for (view &level : levels_) level = view("level", shape[0], shape[1], shape[2]);
    int rank;
    MPI_Comm_rank(comm, &rank);
    peer_ = 1 - rank;
    // Rank 0 has the low block: it sends its last layer, and receives the layer beyond it.
    const std::size_t low = domain.owned.first[axis], high = low + domain.owned.extents[axis];
    sent_ = static_cast<int>(rank == 0 ? high - 1 : low);
    received_ = static_cast<int>(rank == 0 ? high : low - 1);
    const int first = axis == 0 ? 1 : 0, second = axis == 2 ? 1 : 2;
    face_ = {domain.owned.first[first], domain.owned.first[second], domain.owned.extents[first], domain.owned.extents[second]};
    send_ = buffer("send", face_[2], face_[3]);
    receive_ = buffer("receive", face_[2], face_[3]);
  }
  const view &level(std::size_t at) const override { return levels_[at]; }
  void begin(std::size_t level) override {
    level_ = level;
    MPI_Irecv(receive_.data(), static_cast<int>(receive_.size()), MPI_DOUBLE, peer_, 0, comm_, &requests_[0]);
    copy_face<true>(send_, sent_);
    Kokkos::fence();
    MPI_Isend(send_.data(), static_cast<int>(send_.size()), MPI_DOUBLE, peer_, 0, comm_, &requests_[1]);
  }
  void wait() override {
    MPI_Waitall(2, requests_, MPI_STATUSES_IGNORE);
    copy_face<false>(receive_, received_);
    Kokkos::fence();
  }

 private:
#ifdef KOKKOS_ENABLE_CUDA
  using buffer = Kokkos::View<double **, Kokkos::LayoutRight, Kokkos::CudaHostPinnedSpace>;
#else
  using buffer = Kokkos::View<double **>;
#endif

  // Packs a layer, or unpacks it: a parallel loop over its rows.
  template <bool Pack>
  void copy_face(const buffer &message, int layer) const {
    const view t = levels_[level_];
    const auto face = face_;
    const int axis = axis_;
    Kokkos::parallel_for("face", Kokkos::RangePolicy<space>(0, face[2]), KOKKOS_LAMBDA(std::size_t row) {
      for (std::size_t at = 0; at < face[3]; at++) {
        const std::size_t j = face[0] + row, k = face[1] + at;
        double &cell = axis == 0 ? t(layer, j, k) : axis == 1 ? t(j, layer, k) : t(j, k, layer);
        if (Pack) {
          message(row, at) = cell;
        } else {
          cell = message(row, at);
        }
      }
    });
  }

  int axis_, peer_, sent_, received_;
  MPI_Comm comm_;
  std::array<std::size_t, 4> face_;
  std::size_t level_ = 0;
  view levels_[2];
  buffer send_, receive_;
  MPI_Request requests_[2];
};

static double microseconds() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A turn of steps from `at` on, as a program runs them, then as many whose exchange is alone, after a barrier.
static void run(contender &program, const hc::pattern &pattern, std::size_t at) {
  const hc::box interior = pattern.interior(1);
  const std::vector<hc::box> boundary = pattern.boundary(1);
  MPI_Barrier(MPI_COMM_WORLD);
  for (const std::size_t end = at + TURN; at < end; at++) {
    const view &from = program.level(at % 2), &to = program.level((at + 1) % 2);
    const double start = microseconds();
    program.begin(at % 2);
    const double begun = microseconds();
    step(from, to, interior);
    const double computed = microseconds();
    program.wait();
    const double filled = microseconds();
    for (const hc::box &box : boundary) step(from, to, box);
    Kokkos::fence();
    program.in_a_step.push_back(begun - start + filled - computed);
    program.step.push_back(microseconds() - start);
  }
  for (const std::size_t end = at + TURN; at < end; at++) {
    const view &from = program.level(at % 2), &to = program.level((at + 1) % 2);
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = microseconds();
    program.begin(at % 2);
    program.wait();
    Kokkos::fence();
    program.alone.push_back(microseconds() - start);
    step(from, to, interior);
    for (const hc::box &box : boundary) step(from, to, box);
  }
}

static bool compare(std::size_t cells, std::size_t steps, int axis) {
  const hc::comm comm = hc::comm::from_mpi(MPI_COMM_WORLD);
  std::vector<std::size_t> blocks = {1, 1, 1};
  blocks[static_cast<std::size_t>(axis)] = 2;
  const hc::pattern pattern =
      hc::regular_grid({cells, cells, cells}).decompose_into(blocks, comm.size()).pattern(comm, hc::halo(1, hc::neighbours::faces));
  const hc::domain domain = pattern.domain();

  by_hand hand(pattern, axis, MPI_COMM_WORLD);
  by_halocline ours(comm, pattern, HALOCLINE_LINK_AUTO), pulls(comm, pattern, HALOCLINE_LINK_PULL);
  by_halocline_on_views on_views(comm, pattern);
  contender *programs[] = {&hand, &ours, &pulls, &on_views};
  const auto shift = pattern.global<3>({0, 0, 0});
  for (const contender *program : programs) {
    const view t = program->level(0);
    Kokkos::parallel_for("fill", cells_of(domain.owned), KOKKOS_LAMBDA(int i, int j, int k) {
      t(i, j, k) = ((i + shift[0]) / 8 + (j + shift[1]) / 8 + (k + shift[2]) / 8) % 2 == 0 ? 1.0 : 0.0;
    });
  }
  for (std::size_t at = 0; at < steps; at += 2 * TURN) {
    for (contender *program : programs) run(*program, pattern, at);
  }

  std::uint64_t different = 0;
  for (const contender *program : programs) {
    const view t = program->level(0), wanted = hand.level(0);
    std::uint64_t found = 0;
    Kokkos::parallel_reduce("compare", cells_of(domain.owned), KOKKOS_LAMBDA(int i, int j, int k, std::uint64_t &sum) {
      sum += t(i, j, k) != wanted(i, j, k);
    }, found);
    different += found;
  }
  different = comm.all_reduce(different, hc::reduce::sum);
  bool good = different == 0;
  if (comm.rank() == 0) {
    std::printf("%zu^3 cells, cut along axis %d, %zu steps, %s; us\n", cells, axis, steps,
                different == 0 ? "equal results" : "DIFFERENT results");
    std::printf("                      by hand  Halocline  ratio     pull  ratio    views  ratio\n");
  }
  const struct {
    const char *name;
    std::vector<double> contender::*times;
  } rows[] = {{"exchange in a step", &contender::in_a_step}, {"exchange alone", &contender::alone}, {"the step", &contender::step}};
  for (const auto &row : rows) {
    double times[4];
    for (int at = 0; at < 4; at++) times[at] = median(comm, programs[at]->*row.times);
    if (comm.rank() == 0) {
      std::printf("%-20s  %7.1f  %9.1f  %5.2f  %7.1f  %5.2f  %7.1f  %5.2f\n", row.name, times[0], times[1], times[1] / times[0],
                  times[2], times[2] / times[0], times[3], times[3] / times[0]);
    }
    if (row.times == &contender::in_a_step) good &= times[1] <= 0.5 * times[0];
  }
  return good;
}

int main(int argc, char **argv) {
#ifdef KOKKOS_ENABLE_CUDA
  int level;  // Fields of GPUs need all threads.
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
#else
  MPI_Init(&argc, &argv);
#endif
  int ranks, rank, code = 2;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const long cells = argc > 1 ? std::atol(argv[1]) : 128, steps = argc > 2 ? std::atol(argv[2]) : 400, axis = argc > 3 ? std::atol(argv[3]) : 0;
  if (ranks != 2 || cells < 4 || steps < 1 || axis < 0 || axis > 2) {
    std::fprintf(stderr, "usage: mpirun -n 2 kokkos_heat [CELLS [STEPS [AXIS]]]\n");
  } else {
    const Kokkos::ScopeGuard guard(argc, argv);
    const bool good = compare(static_cast<std::size_t>(cells), static_cast<std::size_t>(steps), static_cast<int>(axis));
    code = good || rank != 0 ? 0 : 1;
  }
  MPI_Finalize();
  return code;
}
