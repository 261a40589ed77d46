// Regular grids, patterns and domains. Included by halocline.hpp.
#ifndef HALOCLINE_CPP_GRID_HPP
#define HALOCLINE_CPP_GRID_HPP

#include "comm.hpp"

#include <optional>

namespace halocline {

// Which halo cells are filled.
enum class neighbours : std::int32_t {
  all = HALOCLINE_ALL,
  faces = HALOCLINE_FACES,
  faces_and_edges = HALOCLINE_FACES_AND_EDGES
};

// The width of a halo, in cells.
class halo {
 public:
  // The same along each axis and at both sides.
  halo(std::size_t width, neighbours filled = neighbours::all) : width_(width), filled_(filled) {}
  // At the low and the high side of each axis.
  halo(std::vector<std::size_t> low, std::vector<std::size_t> high, neighbours filled = neighbours::all)
      : width_(0), low_(std::move(low)), high_(std::move(high)), filled_(filled) {
    if (low_.size() != high_.size() || low_.empty()) {
      throw error(HALOCLINE_ERROR_ARGUMENT, "the halo needs a low and a high width for each axis");
    }
  }

  // For calls of the C interface; valid while this lives.
  halocline_halo get() const noexcept {
    halocline_halo widths = HALOCLINE_HALO_INIT;
    widths.width = width_;
    widths.axes = low_.size();
    widths.low = low_.data();
    widths.high = high_.data();
    widths.neighbours = static_cast<std::int32_t>(filled_);
    return widths;
  }

 private:
  std::size_t width_;
  std::vector<std::size_t> low_, high_;
  neighbours filled_;
};

// A box of cells: the local index of its first cell, and its number of cells along each axis.
using box = halocline_box;

// A box of a grid, which is a domain: its rank, its first cell, and its number of cells along each axis.
struct grid_box {
  std::size_t owner;
  std::vector<std::size_t> first, extents;
};

// A domain of this rank: halocline_domain.
struct domain {
  std::uint64_t number;
  std::uint64_t owned_count;
  // Of the smallest array that holds owned and halo cells.
  std::vector<std::size_t> extents;
  box owned;

  // The extents as an array, for views.
  template <std::size_t Rank>
  std::array<std::size_t, Rank> shape() const {
    if (Rank != extents.size()) {
      throw error(HALOCLINE_ERROR_ARGUMENT, "the domain has " + std::to_string(extents.size()) + " axes, and the shape " +
                                                std::to_string(Rank) + "; ask for as many as it has");
    }
    std::array<std::size_t, Rank> shape{};
    for (std::size_t axis = 0; axis < Rank; axis++) shape[axis] = extents[axis];
    return shape;
  }
};

// Which cells each domain sends to and receives from the others.
class pattern : public owner<halocline_pattern, halocline_pattern_free> {
 public:
  using owner::owner;

  // The number of domains of this rank.
  std::size_t domains() const {
    std::size_t count;
    check(halocline_pattern_domains(get(), &count));
    return count;
  }
  halocline::domain domain(std::size_t index = 0) const {
    halocline_domain found = HALOCLINE_DOMAIN_INIT;
    check(halocline_pattern_domain(get(), index, &found));
    return {found.number, found.owned_count, {found.extents, found.extents + found.axes}, found.owned};
  }
  // The owned cells whose stencil of `width` cells reads no halo cell.
  box interior(std::size_t width, std::size_t index = 0) const {
    box cells;
    check(halocline_domain_interior(get(), index, width, &cells));
    return cells;
  }
  // The other owned cells.
  std::vector<box> boundary(std::size_t width, std::size_t index = 0) const {
    return detail::stored<box>([&](box *boxes, std::size_t capacity, std::size_t *count) {
      return halocline_domain_boundary(get(), index, width, boxes, capacity, count);
    });
  }
  std::vector<box> halo_cells(std::size_t index = 0) const {
    return detail::stored<box>([&](box *boxes, std::size_t capacity, std::size_t *count) {
      return halocline_domain_halo(get(), index, boxes, capacity, count);
    });
  }
  // The global coordinates of a local index.
  template <std::size_t Axes>
  std::array<std::int64_t, Axes> global(const std::array<std::size_t, Axes> &local, std::size_t index = 0) const {
    static_assert(Axes <= HALOCLINE_AXES, "a grid has at most 4 axes");
    check_axes(Axes, index);
    std::array<std::size_t, HALOCLINE_AXES> from{};
    std::array<std::int64_t, HALOCLINE_AXES> to{};
    for (std::size_t axis = 0; axis < Axes; axis++) from[axis] = local[axis];
    check(halocline_domain_global(get(), index, from.data(), to.data()));
    std::array<std::int64_t, Axes> global{};
    for (std::size_t axis = 0; axis < Axes; axis++) global[axis] = to[axis];
    return global;
  }
  // The local index of global coordinates; none if the domain does not hold the cell.
  template <std::size_t Axes>
  std::optional<std::array<std::size_t, Axes>> local(const std::array<std::int64_t, Axes> &global,
                                                     std::size_t index = 0) const {
    static_assert(Axes <= HALOCLINE_AXES, "a grid has at most 4 axes");
    check_axes(Axes, index);
    std::array<std::int64_t, HALOCLINE_AXES> from{};
    std::array<std::size_t, HALOCLINE_AXES> to{};
    for (std::size_t axis = 0; axis < Axes; axis++) from[axis] = global[axis];
    std::int32_t found;
    check(halocline_domain_local(get(), index, from.data(), to.data(), &found));
    if (found == 0) return std::nullopt;
    std::array<std::size_t, Axes> local{};
    for (std::size_t axis = 0; axis < Axes; axis++) local[axis] = to[axis];
    return local;
  }
  // The global ids of the cells of an unstructured domain, in local order.
  std::vector<std::uint64_t> ids(std::size_t index = 0) const {
    return detail::stored<std::uint64_t>([&](std::uint64_t *ids, std::size_t capacity, std::size_t *count) {
      return halocline_domain_ids(get(), index, ids, capacity, count);
    });
  }
  // The local indices of the owned cells of an unstructured domain.
  std::vector<std::size_t> owned(std::size_t index = 0) const {
    return detail::stored<std::size_t>([&](std::size_t *indices, std::size_t capacity, std::size_t *count) {
      return halocline_domain_owned(get(), index, indices, capacity, count);
    });
  }
  // The owned cells of an unstructured domain whose neighbours are all owned: neighbours[offsets[i]] to neighbours[offsets[i + 1] - 1] are
  // the local indices of the neighbours of cell i.
  std::vector<std::size_t> interior_by(span<const std::size_t> offsets, span<const std::size_t> neighbours,
                                       std::size_t index = 0) const {
    const char *message = "offsets are positions in neighbours, one more than the domain has cells";
    if (detail::lists_of(offsets, neighbours.size(), message) != domain(index).extents[0]) {
      throw error(HALOCLINE_ERROR_ARGUMENT, message);
    }
    return detail::stored<std::size_t>([&](std::size_t *indices, std::size_t capacity, std::size_t *count) {
      return halocline_domain_interior_by(get(), index, offsets.data(), neighbours.data(), indices, capacity, count);
    });
  }
  // The pattern of a narrower halo. Collective.
  pattern narrowed(const halo &to) const {
    halocline_pattern handle;
    const halocline_halo width = to.get();
    check(halocline_pattern_narrowed(get(), &width, &handle));
    return pattern(handle);
  }
  // The pattern with the domains of one component, of a pattern of vectors on patches.
  pattern component(std::size_t component) const {
    halocline_pattern handle;
    check(halocline_pattern_component(get(), component, &handle));
    return pattern(handle);
  }

 private:
  void check_axes(std::size_t axes, std::size_t index) const {
    halocline_domain found = HALOCLINE_DOMAIN_INIT;
    check(halocline_pattern_domain(get(), index, &found));
    if (axes != found.axes) {
      throw error(HALOCLINE_ERROR_ARGUMENT, "the domain has " + std::to_string(found.axes) + " axes, and the array " +
                                                std::to_string(axes) + "; give one with as many");
    }
  }
};

// A regular grid cut into domains.
class decomposition : public owner<halocline_decomposition, halocline_decomposition_free> {
 public:
  using owner::owner;

  // The pattern that fills the halos. Collective.
  halocline::pattern pattern(const comm &comm, const halo &halo) const {
    halocline_pattern handle;
    const halocline_halo width = halo.get();
    check(halocline_pattern_regular(comm.get(), get(), &width, &handle));
    return halocline::pattern(handle);
  }
  // The decomposition of the points between cells along some axes: 0 or 1 for each axis.
  decomposition staggered(const std::vector<std::int32_t> &axes) const {
    if (axes.size() != describe().extents.size()) {
      throw error(HALOCLINE_ERROR_ARGUMENT, "staggered needs 0 or 1 for each axis of the grid");
    }
    halocline_decomposition handle;
    check(halocline_decomposition_staggered(get(), axes.data(), &handle));
    return decomposition(handle);
  }

  // What the grid is cut into: halocline_decomposition_describe.
  struct description {
    std::size_t ranks;
    std::uint64_t domains;
    // Cells along each axis.
    std::vector<std::size_t> extents;
    // Blocks along each axis; all 0 for boxes.
    std::vector<std::size_t> blocks;
  };
  description describe() const {
    std::size_t axes, ranks, extents[HALOCLINE_AXES], blocks[HALOCLINE_AXES];
    std::uint64_t domains;
    check(halocline_decomposition_describe(get(), &axes, extents, &ranks, &domains, blocks));
    return {ranks, domains, {extents, extents + axes}, {blocks, blocks + axes}};
  }
};

// A regular grid of 1 to 4 axes.
class regular_grid {
 public:
  explicit regular_grid(std::vector<std::size_t> extents) : extents_(std::move(extents)) {}

  // Which axes are periodic.
  regular_grid &periodic(const std::vector<bool> &axes) {
    if (axes.size() != extents_.size()) {
      throw error(HALOCLINE_ERROR_ARGUMENT, "periodic needs one value for each axis of the grid");
    }
    periodic_.assign(axes.begin(), axes.end());
    return *this;
  }
  regular_grid &domains_per_rank(std::size_t domains) {
    domains_per_rank_ = domains;
    return *this;
  }

  // Blocks chosen by the library.
  decomposition decompose(std::size_t ranks) const {
    halocline_decomposition handle;
    const halocline_grid grid = get();
    check(halocline_decompose(&grid, ranks, &handle));
    return decomposition(handle);
  }
  // So many blocks along each axis.
  decomposition decompose_into(const std::vector<std::size_t> &blocks, std::size_t ranks) const {
    if (blocks.size() != extents_.size()) {
      throw error(HALOCLINE_ERROR_ARGUMENT, "blocks needs one number for each axis of the grid");
    }
    halocline_decomposition handle;
    const halocline_grid grid = get();
    check(halocline_decompose_into(&grid, blocks.data(), ranks, &handle));
    return decomposition(handle);
  }
  // At the cuts of each axis: the ascending positions at which a new block starts.
  decomposition decompose_at(const std::vector<std::vector<std::size_t>> &cuts, std::size_t ranks) const {
    if (cuts.size() != extents_.size()) {
      throw error(HALOCLINE_ERROR_ARGUMENT, "cuts needs one list for each axis of the grid");
    }
    std::vector<std::size_t> counts, all;
    for (const std::vector<std::size_t> &of_axis : cuts) {
      counts.push_back(of_axis.size());
      all.insert(all.end(), of_axis.begin(), of_axis.end());
    }
    halocline_decomposition handle;
    const halocline_grid grid = get();
    check(halocline_decompose_at(&grid, counts.data(), all.data(), ranks, &handle));
    return decomposition(handle);
  }
  // Boxes that cover the grid and do not overlap; box i is domain i.
  decomposition decompose_boxes(const std::vector<grid_box> &boxes, std::size_t ranks) const {
    std::vector<std::size_t> owners, firsts, extents;
    for (const grid_box &one : boxes) {
      if (one.first.size() != extents_.size() || one.extents.size() != extents_.size()) {
        throw error(HALOCLINE_ERROR_ARGUMENT, "a box needs a first cell and an extent for each axis of the grid");
      }
      owners.push_back(one.owner);
      firsts.insert(firsts.end(), one.first.begin(), one.first.end());
      extents.insert(extents.end(), one.extents.begin(), one.extents.end());
    }
    halocline_decomposition handle;
    const halocline_grid grid = get();
    check(halocline_decompose_boxes(&grid, boxes.size(), owners.data(), firsts.data(), extents.data(), ranks, &handle));
    return decomposition(handle);
  }

  // For calls of the C interface; valid while this lives.
  halocline_grid get() const noexcept {
    halocline_grid grid = HALOCLINE_GRID_INIT;
    grid.axes = extents_.size();
    grid.extents = extents_.data();
    grid.periodic = periodic_.empty() ? nullptr : periodic_.data();
    grid.domains_per_rank = domains_per_rank_;
    return grid;
  }

 private:
  std::vector<std::size_t> extents_;
  std::vector<std::int32_t> periodic_;
  std::size_t domains_per_rank_ = 1;
};

}  // namespace halocline

#endif
