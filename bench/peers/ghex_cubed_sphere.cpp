// Halos of a cubed sphere beside GHEX's C++ pattern: 6 tiles of 96 x 96 cells with 80 levels, 8 fields of doubles, on 2, 3 or 6 ranks.
//
//     bench/peers/ghex_cubed_sphere       builds GHEX and this program, and runs it on two ranks
//
// Both contenders fill the same arrays, which Halocline allocates. Each is verified first: all cells of both are equal, and so are the halo cells
// that neither fills, behind the corners of tiles. The time of an exchange is that of the slowest rank. The contenders have blocks in turn,
// and figures are medians over the blocks.
#include <ghex/communication_object.hpp>
#include <ghex/structured/cubed_sphere/field_descriptor.hpp>
#include <ghex/structured/cubed_sphere/halo_generator.hpp>
#include <ghex/structured/pattern.hpp>

#include <halocline.hpp>

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace cubed = ghex::structured::cubed_sphere;

static constexpr std::size_t TILES = 6, CELLS = 96, LEVELS = 80, FIELDS = 8;
static constexpr int ROUNDS = 7, EXCHANGES = 20;

// Orders of the elements, from the slowest dimension to the fastest: levels, rows, columns; or rows, columns, levels. The numbers of GHEX's map
// say how fast x, y, z and the component change.
struct level_first {
  static constexpr const char *name = "level first";
  using map = ::gridtools::layout_map<3, 2, 1, 0>;
  static std::vector<std::size_t> extents(std::size_t edge) { return {LEVELS, edge, edge}; }
  static std::vector<std::size_t> axes() { return {1, 2}; }
};
struct level_last {
  static constexpr const char *name = "level last";
  using map = ::gridtools::layout_map<2, 1, 3, 0>;
  static std::vector<std::size_t> extents(std::size_t edge) { return {edge, edge, LEVELS}; }
  static std::vector<std::size_t> axes() { return {0, 1}; }
};

static double median(std::vector<double> of) {
  std::nth_element(of.begin(), of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2), of.end());
  return of[of.size() / 2];
}

// Microseconds of an exchange on the slowest rank, the median of several.
static double timed(const std::function<void()> &exchange) {
  std::vector<double> times;
  for (int at = 0; at < EXCHANGES; at++) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    exchange();
    times.push_back(1e6 * (MPI_Wtime() - begin));
  }
  MPI_Allreduce(MPI_IN_PLACE, times.data(), EXCHANGES, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return median(times);
}

template <typename Order>
static void measure(const halocline::comm &comm, ghex::context &context, std::size_t width) {
  using field_type = cubed::field_descriptor<double, ghex::cpu, typename Order::map>;
  const std::size_t edge = CELLS + 2 * width, size = LEVELS * edge * edge;
  const std::vector<std::array<std::size_t, 2>> blocks(TILES, {1, 1});
  const auto tiles = halocline::patch_grid::cubed_sphere(CELLS).decompose_into(blocks, comm.size());
  const auto pattern = tiles.pattern(comm, width);

  const int halo = static_cast<int>(width), n = static_cast<int>(CELLS), levels = static_cast<int>(LEVELS);
  std::vector<cubed::domain_descriptor> domains;
  for (std::size_t index = 0; index < pattern.domains(); index++) {
    const int tile = static_cast<int>(pattern.domain(index).number);
    domains.emplace_back(cubed::cube{n, levels}, tile, 0, n - 1, 0, n - 1);
  }
  auto ghex_pattern = ghex::make_pattern<ghex::structured::grid>(context, cubed::halo_generator(halo), domains);
  auto communication = ghex::make_communication_object<decltype(ghex_pattern)>(context);

  std::vector<halocline::field> fields;
  std::vector<halocline::binding> bindings;
  std::vector<double *> arrays;
  std::vector<field_type> descriptors;
  descriptors.reserve(FIELDS * domains.size());
  for (const auto &domain : domains) {
    for (std::size_t number = 0; number < FIELDS; number++) {
      halocline::layout layout(HALOCLINE_F64, Order::extents(edge));
      const auto field = halocline::field::allocate(comm, layout.axes(Order::axes()));
      arrays.push_back(static_cast<double *>(field.base()));
      fields.push_back(field.on_domain(static_cast<std::uint64_t>(domain.domain_id().tile)));
      const std::array<int, 3> offsets{halo, halo, 0}, extents{n + 2 * halo, n + 2 * halo, levels};
      descriptors.emplace_back(domain, arrays.back(), offsets, extents);
    }
  }
  for (const auto &field : fields) bindings.emplace_back(pattern, field);
  const halocline::halo_exchange bound(comm, bindings);
  std::vector<decltype(ghex_pattern(descriptors[0]))> infos;
  for (auto &descriptor : descriptors) infos.push_back(ghex_pattern(descriptor));

  const std::array<std::function<void()>, 2> contenders{
      [&] { bound.exchange_and_wait(); },
      [&] { communication.exchange(infos.begin(), infos.end()).wait(); },
  };
  // Owned cells differ from each other, halo cells are -1.
  const auto inside = [&](std::size_t at) { return at >= width && at < width + CELLS; };
  std::vector<std::vector<double>> results;
  for (const auto &exchange : contenders) {
    for (std::size_t number = 0; number < arrays.size(); number++) {
      const auto extents = Order::extents(edge);
      for (std::size_t at = 0; at < size; at++) {
        const std::size_t place[3] = {at / (extents[1] * extents[2]), at / extents[2] % extents[1], at % extents[2]};
        const bool owned = inside(place[Order::axes()[0]]) && inside(place[Order::axes()[1]]);
        const auto tile = static_cast<std::size_t>(domains[number / FIELDS].domain_id().tile);
        arrays[number][at] = owned ? static_cast<double>((tile * FIELDS + number % FIELDS) * size + at) : -1.0;
      }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    exchange();
    MPI_Barrier(MPI_COMM_WORLD);
    std::vector<double> all;
    for (const double *array : arrays) all.insert(all.end(), array, array + size);
    results.push_back(std::move(all));
  }
  if (results[0] != results[1]) {
    std::fprintf(stderr, "the halos differ\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }

  std::array<std::vector<double>, 2> times;
  for (int round = 0; round <= ROUNDS; round++) {
    for (std::size_t at = 0; at < 2; at++) {
      const std::size_t which = round % 2 == 0 ? at : 1 - at;
      const double took = timed(contenders[which]);
      // The first round warms up.
      if (round > 0) times[which].push_back(took);
    }
  }
  const double ours = median(times[0]), theirs = median(times[1]);
  if (comm.rank() == 0) {
    std::printf("halo %zu, %-24s %10.1f %10.1f %6.2f\n", width, Order::name, ours, theirs, ours / theirs);
    std::fflush(stdout);
  }
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  {
    const auto comm = halocline::comm::from_mpi(MPI_COMM_WORLD);
    ghex::context context(MPI_COMM_WORLD, false);
    if (comm.rank() == 0) {
      std::printf("6 tiles of %zu^2 cells, %zu levels, %zu fields, %zu ranks; us an exchange\n", CELLS, LEVELS, FIELDS, comm.size());
      std::printf("%-32s %10s %10s %6s\n", "", "Halocline", "GHEX", "ratio");
    }
    for (const std::size_t width : {1, 3}) {
      measure<level_last>(comm, context, width);
      measure<level_first>(comm, context, width);
    }
  }
  MPI_Finalize();
}
