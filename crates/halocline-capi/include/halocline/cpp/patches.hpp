// Grids of patches. Included by halocline.hpp.
#ifndef HALOCLINE_CPP_PATCHES_HPP
#define HALOCLINE_CPP_PATCHES_HPP

#include "grid.hpp"

namespace halocline {

// Where the turning point of a fold lies.
enum class pivot : std::int32_t { cell = HALOCLINE_PIVOT_CELL, corner = HALOCLINE_PIVOT_CORNER };

// Where values lie along an axis of a patch.
enum class along : std::int32_t {
  centre = HALOCLINE_ALONG_CENTRE,
  faces = HALOCLINE_ALONG_FACES,
  high_faces = HALOCLINE_ALONG_HIGH_FACES,
  low_faces = HALOCLINE_ALONG_LOW_FACES
};

// What a field on patches holds, and where its values lie.
class quantity {
 public:
  // Where values lie along both axes.
  using place = std::array<along, 2>;

  // Scalars.
  static quantity scalar(place at) { return quantity(1, at, {along::centre, along::centre}); }
  // Vectors: the places of component 0, which is along axis 0, and of component 1.
  static quantity vector(place first, place second) { return quantity(2, first, second); }
  static quantity cells() { return quantity(halocline_quantity HALOCLINE_QUANTITY_INIT); }
  static quantity corners() { return quantity(halocline_quantity HALOCLINE_QUANTITY_CORNERS_INIT); }
  static quantity cell_vectors() { return quantity(halocline_quantity HALOCLINE_QUANTITY_CELL_VECTORS_INIT); }
  static quantity c_grid() { return quantity(halocline_quantity HALOCLINE_QUANTITY_C_GRID_INIT); }
  static quantity d_grid() { return quantity(halocline_quantity HALOCLINE_QUANTITY_D_GRID_INIT); }

  // For calls of the C interface.
  const halocline_quantity &get() const noexcept { return quantity_; }

 private:
  explicit quantity(const halocline_quantity &of) : quantity_(of) {}
  quantity(std::size_t components, place first, place second) : quantity_ HALOCLINE_QUANTITY_INIT {
    quantity_.components = components;
    for (std::size_t axis = 0; axis < 2; axis++) {
      quantity_.places[0][axis] = static_cast<std::int32_t>(first[axis]);
      quantity_.places[1][axis] = static_cast<std::int32_t>(second[axis]);
    }
  }

  halocline_quantity quantity_;
};

// A side of a patch.
using patch_side = halocline_patch_side;

// The side of a patch before cell 0 of an axis.
inline patch_side low_side(std::size_t patch, std::size_t axis) noexcept { return {patch, axis, 0}; }
// The side behind the last cell.
inline patch_side high_side(std::size_t patch, std::size_t axis) noexcept { return {patch, axis, 1}; }

// Two sides that are joined, or one that is folded or a pole.
using seam = halocline_seam;

inline seam join(patch_side one, patch_side other) noexcept { return {HALOCLINE_SEAM_JOIN, one, other}; }
// Coordinates along the sides run in opposite directions.
inline seam join_reversed(patch_side one, patch_side other) noexcept { return {HALOCLINE_SEAM_JOIN_REVERSED, one, other}; }
// A side folded onto itself.
inline seam fold(patch_side side, pivot at) noexcept {
  const auto kind = static_cast<std::int32_t>(at == pivot::cell ? HALOCLINE_SEAM_FOLD_CELL : HALOCLINE_SEAM_FOLD_CORNER);
  return {kind, side, side};
}
// A side joined with itself across a pole.
inline seam pole(patch_side side) noexcept { return {HALOCLINE_SEAM_POLE, side, side}; }

// A part of a patch: halocline_patch_block.
struct patch_block {
  std::size_t patch;
  std::array<std::size_t, 2> first, extents;
  // The rank that owns it.
  std::size_t owner;
};

// Values of a domain that fill halo cells of a domain.
using patch_transfer = halocline_patch_transfer;

// The unit vector to a point of a tile of patch_grid::cubed_sphere. `along`: its coordinates along both axes, from 0 to 1.
inline std::array<double, 3> cubed_sphere_point(std::size_t tile, const std::array<double, 2> &along) {
  std::array<double, 3> point;
  check(halocline_cubed_sphere_point(tile, along.data(), point.data()));
  return point;
}

// A grid of patches cut into blocks.
class patch_decomposition : public owner<halocline_patch_decomposition, halocline_patch_decomposition_free> {
 public:
  using owner::owner;

  // The pattern that fills the halos of a quantity. Collective.
  halocline::pattern pattern(const comm &comm, const halo &halo, const quantity &of = quantity::cells()) const {
    halocline_pattern handle;
    const halocline_halo width = halo.get();
    check(halocline_pattern_patches(comm.get(), get(), &of.get(), &width, &handle));
    return halocline::pattern(handle);
  }
  // The values of a component that a domain holds.
  patch_block block(std::uint64_t domain, const quantity &of = quantity::cells(), std::size_t component = 0) const {
    halocline_patch_block found = HALOCLINE_PATCH_BLOCK_INIT;
    check(halocline_patch_decomposition_block(get(), domain, &of.get(), component, &found));
    return {found.patch, {found.first[0], found.first[1]}, {found.extents[0], found.extents[1]}, found.owner};
  }
  // The domains of a rank.
  std::vector<std::uint64_t> domains_of(std::size_t rank) const {
    std::uint64_t first, end;
    check(halocline_patch_decomposition_domains_of(get(), rank, &first, &end));
    std::vector<std::uint64_t> domains;
    for (std::uint64_t domain = first; domain < end; domain++) domains.push_back(domain);
    return domains;
  }
  // All transfers of a rank.
  std::vector<patch_transfer> transfers(std::size_t rank, const halo &halo, const quantity &of = quantity::cells()) const {
    const halocline_halo width = halo.get();
    return detail::stored<patch_transfer>([&](patch_transfer *transfers, std::size_t capacity, std::size_t *count) {
      return halocline_patch_transfers(get(), rank, &of.get(), &width, transfers, capacity, count);
    });
  }

  // What the patches are cut into: halocline_patch_decomposition_describe.
  struct description {
    std::size_t ranks;
    std::uint64_t domains;
    // Blocks along both axes of each patch.
    std::vector<std::array<std::size_t, 2>> blocks;
  };
  description describe() const {
    description found{};
    found.blocks = detail::pairs([&](std::size_t *blocks, std::size_t capacity, std::size_t *count) {
      return halocline_patch_decomposition_describe(get(), &found.ranks, &found.domains, blocks, capacity, count);
    });
    return found;
  }
};

// Patches of rows and columns of cells, and the seams that join their sides.
class patch_grid : public owner<halocline_patch_grid, halocline_patch_grid_free> {
 public:
  using owner::owner;
  // Rows and columns.
  using pair = std::array<std::size_t, 2>;

  patch_grid(const std::vector<pair> &patches, const std::vector<seam> &seams) : owner() {
    halocline_patch_grid handle;
    const std::vector<std::size_t> extents = flat(patches);
    check(halocline_patch_grid_create(extents.data(), patches.size(), seams.data(), seams.size(), &handle));
    static_cast<owner &>(*this) = owner(handle);
  }
  // Six patches of n x n cells, joined as the tiles of FV3.
  static patch_grid cubed_sphere(std::size_t n) {
    halocline_patch_grid handle;
    check(halocline_patch_grid_cubed_sphere(n, &handle));
    return patch_grid(handle);
  }
  // The five patches of an LLC grid.
  static patch_grid lat_lon_cap(std::size_t n) {
    halocline_patch_grid handle;
    check(halocline_patch_grid_lat_lon_cap(n, &handle));
    return patch_grid(handle);
  }
  // Rows from south to north, folded at the northern side.
  static patch_grid tripolar(pair extents, pivot at) {
    halocline_patch_grid handle;
    check(halocline_patch_grid_tripolar(extents[0], extents[1], static_cast<std::int32_t>(at), &handle));
    return patch_grid(handle);
  }
  // Rows from pole to pole.
  static patch_grid latitude_longitude(pair extents) {
    halocline_patch_grid handle;
    check(halocline_patch_grid_latitude_longitude(extents[0], extents[1], &handle));
    return patch_grid(handle);
  }
  // The same grid, where halo cells behind corners of three patches are filled through the side of this axis first.
  patch_grid corners_through(std::size_t axis) const {
    halocline_patch_grid handle;
    check(halocline_patch_grid_corners_through(get(), axis, &handle));
    return patch_grid(handle);
  }
  // Rows and columns of each patch.
  std::vector<pair> extents() const {
    return detail::pairs([&](std::size_t *extents, std::size_t capacity, std::size_t *count) {
      return halocline_patch_grid_extents(get(), extents, capacity, count);
    });
  }
  std::vector<seam> seams() const {
    return detail::stored<seam>([&](seam *seams, std::size_t capacity, std::size_t *count) {
      return halocline_patch_grid_seams(get(), seams, capacity, count);
    });
  }
  // Blocks chosen by the library.
  patch_decomposition decompose(std::size_t ranks) const {
    halocline_patch_decomposition handle;
    check(halocline_patch_decompose(get(), ranks, &handle));
    return patch_decomposition(handle);
  }
  // So many blocks along both axes of each patch.
  patch_decomposition decompose_into(const std::vector<pair> &blocks, std::size_t ranks) const {
    if (blocks.size() != extents().size()) {
      throw error(HALOCLINE_ERROR_ARGUMENT, "blocks needs a pair of numbers for each patch of the grid");
    }
    halocline_patch_decomposition handle;
    check(halocline_patch_decompose_into(get(), flat(blocks).data(), ranks, &handle));
    return patch_decomposition(handle);
  }

 private:
  static std::vector<std::size_t> flat(const std::vector<pair> &pairs) {
    std::vector<std::size_t> numbers;
    for (const pair &one : pairs) numbers.insert(numbers.end(), one.begin(), one.end());
    return numbers;
  }
};

}  // namespace halocline

#endif
