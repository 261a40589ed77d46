// Grid files of ICON, and icosahedral grids. Included by halocline.hpp.
#ifndef HALOCLINE_CPP_ICON_HPP
#define HALOCLINE_CPP_ICON_HPP

#include "mesh.hpp"

namespace halocline {

// The domains of one part of a grid file of ICON. Elements are the cells; the tables have the order of the file.
class icon_part : public mesh_halos {
 public:
  using mesh_halos::mesh_halos;

  // The three local edges of each local cell.
  std::vector<std::array<std::uint32_t, 3>> cell_edges() const {
    using edges_of_cell = std::array<std::uint32_t, 3>;
    static_assert(sizeof(edges_of_cell) == sizeof(std::uint32_t[3]), "a table is one of C");
    return detail::stored<edges_of_cell>([&](edges_of_cell *edges, std::size_t capacity, std::size_t *count) {
      return halocline_icon_cell_edges(get(), reinterpret_cast<std::uint32_t(*)[3]>(edges), capacity, count);
    });
  }
  // The two local cells beside each local edge; HALOCLINE_NO_CELL where no cell is, or one that is not local.
  std::vector<std::array<std::uint32_t, 2>> edge_cells() const {
    using cells_of_edge = std::array<std::uint32_t, 2>;
    static_assert(sizeof(cells_of_edge) == sizeof(std::uint32_t[2]), "a table is one of C");
    return detail::stored<cells_of_edge>([&](cells_of_edge *cells, std::size_t capacity, std::size_t *count) {
      return halocline_icon_edge_cells(get(), reinterpret_cast<std::uint32_t(*)[2]>(cells), capacity, count);
    });
  }
};

// An open grid file of ICON.
class icon_grid : public owner<halocline_icon_grid, halocline_icon_grid_free> {
 public:
  using owner::owner;

  // Collective.
  icon_grid(const comm &comm, const std::string &path) : owner() {
    halocline_icon_grid handle;
    check(halocline_icon_grid_open(comm.get(), path.c_str(), &handle));
    static_cast<owner &>(*this) = owner(handle);
  }
  std::size_t cells() const {
    std::size_t count;
    check(halocline_icon_grid_size(get(), &count, nullptr, nullptr));
    return count;
  }
  std::size_t edges() const {
    std::size_t count;
    check(halocline_icon_grid_size(get(), nullptr, &count, nullptr));
    return count;
  }
  std::size_t vertices() const {
    std::size_t count;
    check(halocline_icon_grid_size(get(), nullptr, nullptr, &count));
    return count;
  }
  // All cells with their vertices.
  halocline::mesh mesh() const {
    halocline_mesh handle;
    check(halocline_icon_grid_mesh(get(), &handle));
    return halocline::mesh(handle);
  }
  // The domains of a part, with the halos and owners of ICON; without `part` it has the number of this rank. Collective.
  icon_part part(const comm &comm, const partition &partition, std::optional<std::size_t> part = std::nullopt) const {
    halocline_mesh_halos handle;
    check(halocline_icon_grid_part(comm.get(), get(), partition.get(), part ? *part : comm.rank(), &handle));
    return icon_part(handle);
  }
  // The values of a variable for the listed cells, edges or vertices.
  std::vector<double> read(const std::string &name, span<const std::uint64_t> ids) const {
    return detail::stored<double>([&](double *values, std::size_t capacity, std::size_t *count) {
      return halocline_icon_grid_read(get(), name.c_str(), ids.data(), ids.size(), values, capacity, count);
    });
  }
};

// A grid of triangles on the sphere: an icosahedron whose edges are bisected.
struct icosahedral_grid {
  // 20 * 4^bisections triangles.
  halocline::mesh mesh;
  // Each vertex as a point of the unit sphere.
  std::vector<std::array<double, 3>> points;

  explicit icosahedral_grid(std::size_t bisections) {
    static_assert(sizeof(std::array<double, 3>) == sizeof(double[3]), "points are those of C");
    // Of more than 13 bisections C makes nothing.
    if (bisections <= 13) points.resize((std::size_t{10} << (2 * bisections)) + 2);
    halocline_mesh handle;
    std::size_t count;
    check(halocline_icosahedral_grid(bisections, &handle, reinterpret_cast<double(*)[3]>(points.data()), points.size(), &count));
    mesh = halocline::mesh(handle);
  }
};

}  // namespace halocline

#endif
