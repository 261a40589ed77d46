// The heat equation on a 3-D grid cut into blocks, one for each rank. The interior is computed while the halos travel. At the end rank 0
// computes the same alone and compares, bit by bit.
//
//     ./heat [CELLS [STEPS]]                       CELLS along each axis
//     halocline launch -n 4 -- ./heat
//     mpirun -n 4 ./heat
#include <halocline_kokkos.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace hc = halocline;
using space = Kokkos::DefaultExecutionSpace;
using view = Kokkos::View<double ***>;
using range = Kokkos::MDRangePolicy<space, Kokkos::Rank<3>>;

// The cells of a box, for a kernel.
static range cells_of(const hc::box &box) {
  range::point_type first, end;
  for (int axis = 0; axis < 3; axis++) {
    first[axis] = static_cast<std::int64_t>(box.first[axis]);
    end[axis] = first[axis] + static_cast<std::int64_t>(box.extents[axis]);
  }
  return range(first, end);
}

// The first temperature; the local index `at` is the cell `at + shift` of the whole grid.
static void fill(const view &t, const hc::box &box, const std::array<std::int64_t, 3> &shift) {
  const std::int64_t x = shift[0], y = shift[1], z = shift[2];
  Kokkos::parallel_for("fill", cells_of(box), KOKKOS_LAMBDA(int i, int j, int k) {
    t(i, j, k) = ((i + x) / 8 + (j + y) / 8 + (k + z) / 8) % 2 == 0 ? 1.0 : 0.0;
  });
}

// One step for the cells of a box. Cells beyond the grid stay at 0.
static void step(const view &from, const view &to, const hc::box &box) {
  Kokkos::parallel_for("step", cells_of(box), KOKKOS_LAMBDA(int i, int j, int k) {
    const double around = from(i - 1, j, k) + from(i + 1, j, k) + from(i, j - 1, k) + from(i, j + 1, k) + from(i, j, k - 1) +
                          from(i, j, k + 1);
    to(i, j, k) = from(i, j, k) + 0.15 * (around - 6.0 * from(i, j, k));
  });
}

// The whole grid after all steps, on one rank.
static view alone(std::size_t cells, std::size_t steps) {
  const view levels[2] = {view("even", cells + 2, cells + 2, cells + 2), view("odd", cells + 2, cells + 2, cells + 2)};
  const hc::box all = {{1, 1, 1, 0}, {cells, cells, cells, 1}};
  fill(levels[0], all, {-1, -1, -1});
  for (std::size_t at = 0; at < steps; at++) step(levels[at % 2], levels[(at + 1) % 2], all);
  return levels[steps % 2];
}

// Whether a field of rank 0 has the temperatures of a run alone.
static bool equals(const hc::field &whole, const view &wanted, std::size_t cells) {
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), wanted);
  const hc::view<double, 3> found(static_cast<double *>(whole.base()), {cells, cells, cells});
  for (std::size_t i = 0; i < cells; i++) {
    for (std::size_t j = 0; j < cells; j++) {
      for (std::size_t k = 0; k < cells; k++) {
        if (found(i, j, k) != host(i + 1, j + 1, k + 1)) return false;
      }
    }
  }
  return true;
}

static bool run(std::size_t cells, std::size_t steps) {
  const hc::comm comm = hc::comm::init();
  const hc::decomposition blocks = hc::regular_grid({cells, cells, cells}).decompose(comm.size());
  const hc::pattern pattern = blocks.pattern(comm, hc::halo(1, hc::neighbours::faces));
  const hc::domain domain = pattern.domain();
  const auto shape = domain.shape<3>();

  // Two time levels, bound together: each step exchanges the one that it reads.
  const hc::kokkos::array<view> levels[2] = {{comm, shape}, {comm, shape}};
  const hc::binding sets[2] = {{pattern, levels[0]}, {pattern, levels[1]}};
  const auto halo = hc::halo_exchange::alternatives(comm, sets, 2, hc::bind_options().name("temperature"));
  fill(levels[0].view(), domain.owned, pattern.global<3>({0, 0, 0}));

  const hc::kokkos::stream<view> stream;
  const hc::box interior = pattern.interior(1);
  const std::vector<hc::box> boundary = pattern.boundary(1);
  for (std::size_t at = 0; at < steps; at++) {
    const view &from = levels[at % 2].view(), &to = levels[(at + 1) % 2].view();
    const hc::pending pending = stream.schedule_exchange(halo, at % 2);
    step(from, to, interior);
    stream.schedule_wait(pending);
    for (const hc::box &box : boundary) step(from, to, box);
  }

  // The library gathers fields of the host.
  const auto result = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), levels[steps % 2].view());
  const hc::field whole = hc::gather_to(pattern, 0, hc::kokkos::field_of(result));
  if (!whole) return true;
  const bool same = equals(whole, alone(cells, steps), cells);
  std::printf("heat: %zu steps on %zu ranks, %s one rank\n", steps, comm.size(), same ? "equal to" : "DIFFERENT from");
  return same;
}

int main(int argc, char **argv) {
  const Kokkos::ScopeGuard guard(argc, argv);
  const long cells = argc > 1 ? std::atol(argv[1]) : 128, steps = argc > 2 ? std::atol(argv[2]) : 20;
  if (cells < 1 || steps < 0) {
    std::fprintf(stderr, "usage: heat [CELLS [STEPS]]\n");
    return 2;
  }
  try {
    return run(static_cast<std::size_t>(cells), static_cast<std::size_t>(steps)) ? 0 : 1;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
