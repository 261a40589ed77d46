// A field on the vertices of a triangle mesh, smoothed on all ranks: the ocean mesh of data/fesom-pi, partitioned by METIS. At the end rank 0
// smooths the same field alone and compares, bit by bit.
//
//     c++ -std=c++17 unstructured.cpp $(pkg-config --cflags --libs halocline) -o unstructured
//     halocline launch -n 4 -- ./unstructured path/to/data/fesom-pi
#include <halocline.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <numeric>

namespace hc = halocline;

constexpr std::size_t LEVELS = 4, STEPS = 50;

// A mesh as its files have it: the vertices of each triangle, counted from 0.
struct mesh_files {
  std::size_t vertices = 0;
  std::vector<std::uint32_t> triangles;
};

static mesh_files read(const std::string &folder) {
  mesh_files mesh;
  std::ifstream nodes(folder + "/nod2d.out"), elements(folder + "/elem2d.out");
  std::size_t count = 0;
  if (!(nodes >> mesh.vertices) || !(elements >> count)) {
    throw std::runtime_error("there is no mesh in " + folder + "; give the folder data/fesom-pi of the repository");
  }
  mesh.triangles.resize(3 * count);
  for (std::uint32_t &vertex : mesh.triangles) {
    elements >> vertex;
    vertex -= 1;
  }
  return mesh;
}

static double initial(std::uint64_t vertex, std::size_t level) {
  return std::sin(static_cast<double>(vertex) * 0.37) + static_cast<double>(level);
}

// One step: each vertex gets the mean of its triangles' means. `order` has the triangles that count, by ascending global number, so that sums
// are the same on any number of ranks.
template <typename From, typename To>
static void smooth(const std::vector<std::uint32_t> &triangles, const std::vector<std::size_t> &order, std::size_t owned,
                   const From &from, const To &to) {
  std::vector<double> around(owned, 0.0);
  for (std::size_t vertex = 0; vertex < owned; vertex++) {
    for (std::size_t level = 0; level < LEVELS; level++) to(vertex, level) = 0.0;
  }
  for (std::size_t triangle : order) {
    const std::uint32_t *corners = &triangles[3 * triangle];
    for (std::size_t corner = 0; corner < 3; corner++) {
      if (corners[corner] >= owned) continue;
      around[corners[corner]] += 1.0;
      for (std::size_t level = 0; level < LEVELS; level++) {
        to(corners[corner], level) += from(corners[0], level) + from(corners[1], level) + from(corners[2], level);
      }
    }
  }
  for (std::size_t vertex = 0; vertex < owned; vertex++) {
    for (std::size_t level = 0; level < LEVELS; level++) to(vertex, level) /= 3.0 * around[vertex];
  }
}

// The whole field after all steps, on one rank.
static std::vector<double> alone(const mesh_files &mesh) {
  std::vector<double> levels[2] = {std::vector<double>(mesh.vertices * LEVELS), std::vector<double>(mesh.vertices * LEVELS)};
  const std::array<std::size_t, 2> shape = {mesh.vertices, LEVELS};
  for (std::size_t vertex = 0; vertex < mesh.vertices; vertex++) {
    for (std::size_t level = 0; level < LEVELS; level++) levels[0][vertex * LEVELS + level] = initial(vertex, level);
  }
  std::vector<std::size_t> order(mesh.triangles.size() / 3);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t step = 0; step < STEPS; step++) {
    smooth(mesh.triangles, order, mesh.vertices, hc::view<double, 2>(levels[step % 2].data(), shape),
           hc::view<double, 2>(levels[(step + 1) % 2].data(), shape));
  }
  return levels[STEPS % 2];
}

static bool run(const std::string &folder) {
  const hc::comm comm = hc::comm::init();
  const mesh_files files = read(folder);
  const hc::mesh mesh(files.vertices, 3, files.triangles);
  const hc::mesh_halos halos(comm, mesh, mesh.partition(2, comm.size()), 1);
  const hc::pattern pattern = halos.pattern(comm, hc::cell_kind::vertices);

  // Local triangles and vertices; owned ones come first.
  const std::vector<std::uint64_t> ids = halos.ids(hc::cell_kind::vertices);
  const std::vector<std::uint64_t> numbers = halos.ids(hc::cell_kind::elements);
  const std::vector<std::uint32_t> triangles = halos.connectivity();
  const std::size_t owned = halos.owned(hc::cell_kind::vertices);
  std::vector<std::size_t> order(numbers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return numbers[a] < numbers[b]; });

  const std::array<std::size_t, 2> shape = {ids.size(), LEVELS};
  const hc::array<double, 2> levels[2] = {{comm, shape}, {comm, shape}};
  for (std::size_t vertex = 0; vertex < owned; vertex++) {
    for (std::size_t level = 0; level < LEVELS; level++) levels[0](vertex, level) = initial(ids[vertex], level);
  }
  const hc::binding sets[2] = {{pattern, levels[0]}, {pattern, levels[1]}};
  const auto halo = hc::halo_exchange::alternatives(comm, sets, 2, hc::bind_options().name("smoothed"));
  for (std::size_t step = 0; step < STEPS; step++) {
    halo.exchange(step % 2).wait();
    smooth(triangles, order, owned, levels[step % 2].view(), levels[(step + 1) % 2].view());
  }

  const hc::field whole = hc::gather_to(pattern, 0, levels[STEPS % 2]);
  if (!whole) return true;
  const std::vector<double> wanted = alone(files);
  const double *found = static_cast<const double *>(whole.base());
  const bool same = std::equal(wanted.begin(), wanted.end(), found);
  std::printf("unstructured: %zu steps on %zu ranks, %s one rank\n", STEPS, comm.size(), same ? "equal to" : "DIFFERENT from");
  return same;
}

int main(int argc, char **argv) {
  try {
    return run(argc > 1 ? argv[1] : "data/fesom-pi") ? 0 : 1;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
