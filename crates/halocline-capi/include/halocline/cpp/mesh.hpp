// Meshes, lists of cells, redistribution. Included by halocline.hpp.
#ifndef HALOCLINE_CPP_MESH_HPP
#define HALOCLINE_CPP_MESH_HPP

#include "exchange.hpp"

namespace halocline {

// The rank that owns each cell.
class partition : public owner<halocline_partition, halocline_partition_free> {
 public:
  using owner::owner;

  // Consecutive blocks of cells.
  static partition block(std::size_t cells, std::size_t ranks) {
    halocline_partition handle;
    check(halocline_partition_block(cells, ranks, &handle));
    return partition(handle);
  }
  static partition given(const std::vector<std::size_t> &owners, std::size_t ranks) {
    halocline_partition handle;
    check(halocline_partition_given(owners.data(), owners.size(), ranks, &handle));
    return partition(handle);
  }
  std::vector<std::size_t> owners() const {
    return detail::stored<std::size_t>([&](std::size_t *owners, std::size_t capacity, std::size_t *count) {
      return halocline_partition_owners(get(), owners, capacity, count);
    });
  }
};

// The vertices of each element.
class mesh : public owner<halocline_mesh, halocline_mesh_free> {
 public:
  using owner::owner;

  // Elements of `arity` vertices each.
  mesh(std::size_t vertices, std::size_t arity, span<const std::uint32_t> connectivity, bool solid = false) : owner() {
    halocline_mesh handle;
    const std::size_t elements = arity == 0 ? 0 : connectivity.size() / arity;
    check(halocline_mesh_create(vertices, elements, arity, connectivity.data(), solid, &handle));
    static_cast<owner &>(*this) = owner(handle);
  }
  // A partition of its elements by METIS; elements are neighbours if they share `common` vertices.
  halocline::partition partition(std::size_t common, std::size_t ranks) const {
    halocline_partition handle;
    check(halocline_partition_elements(get(), common, ranks, &handle));
    return halocline::partition(handle);
  }
};

// A kind of cells of a mesh.
enum class cell_kind : std::int32_t {
  elements = HALOCLINE_ELEMENTS,
  vertices = HALOCLINE_VERTICES,
  edges = HALOCLINE_EDGES
};

// What two neighbouring elements share.
enum class shared : std::int32_t {
  vertex = HALOCLINE_SHARED_VERTEX,
  edge = HALOCLINE_SHARED_EDGE,
  facet = HALOCLINE_SHARED_FACET
};

// The domains of one part of a mesh.
class mesh_halos : public owner<halocline_mesh_halos, halocline_mesh_halos_free> {
 public:
  using owner::owner;

  // Those of this rank's part, `depth` elements deep. Collective.
  mesh_halos(const comm &comm, const mesh &mesh, const partition &partition, std::size_t depth,
             shared neighbours = shared::vertex, bool edges = false)
      : owner() {
    halocline_mesh_halos handle;
    check(halocline_mesh_halos_create(comm.get(), mesh.get(), partition.get(), comm.rank(), depth,
                                      static_cast<std::int32_t>(neighbours), edges, &handle));
    static_cast<owner &>(*this) = owner(handle);
  }
  // The pattern of fields on a kind of cells. Collective.
  halocline::pattern pattern(const comm &comm, cell_kind kind) const {
    halocline_pattern handle;
    check(halocline_pattern_mesh(comm.get(), get(), static_cast<std::int32_t>(kind), &handle));
    return halocline::pattern(handle);
  }
  // The global ids of the local cells, owned ones first.
  std::vector<std::uint64_t> ids(cell_kind kind) const {
    return detail::stored<std::uint64_t>([&](std::uint64_t *ids, std::size_t capacity, std::size_t *count) {
      return halocline_mesh_ids(get(), static_cast<std::int32_t>(kind), ids, capacity, count, nullptr);
    });
  }
  // The number of owned cells.
  std::size_t owned(cell_kind kind) const {
    std::size_t count, owned;
    check(halocline_mesh_ids(get(), static_cast<std::int32_t>(kind), nullptr, 0, &count, &owned));
    return owned;
  }
  // The local vertices of the local elements.
  std::vector<std::uint32_t> connectivity() const {
    return detail::stored<std::uint32_t>([&](std::uint32_t *vertices, std::size_t capacity, std::size_t *count) {
      return halocline_mesh_connectivity(get(), vertices, capacity, count);
    });
  }
};

// An unstructured domain of this rank: global ids of owned cells, then of halo cells.
struct cells {
  std::uint64_t number;
  std::vector<std::uint64_t> owned, halo;
};

namespace detail {

inline std::vector<halocline_cells> of_c(const std::vector<cells> &domains) {
  std::vector<halocline_cells> list;
  for (const cells &domain : domains) {
    halocline_cells one = HALOCLINE_CELLS_INIT;
    one.number = domain.number;
    one.count = domain.owned.size();
    one.ids = domain.owned.data();
    one.halo_count = domain.halo.size();
    one.halo_ids = domain.halo.data();
    list.push_back(one);
  }
  return list;
}

}  // namespace detail

// The pattern of unstructured domains. Collective.
inline pattern unstructured_pattern(const comm &comm, const std::vector<cells> &domains) {
  halocline_pattern handle;
  const std::vector<halocline_cells> list = detail::of_c(domains);
  check(halocline_pattern_unstructured(comm.get(), list.data(), list.size(), &handle));
  return pattern(handle);
}

// Moves all cells from one distribution to another.
class redistribute : public owner<halocline_redistribute, halocline_redistribute_free> {
 public:
  using owner::owner;

  // Collective.
  static redistribute regular(const comm &comm, const decomposition &from, const halo &from_halo,
                              const decomposition &to, const halo &to_halo) {
    halocline_redistribute handle;
    const halocline_halo halos[2] = {from_halo.get(), to_halo.get()};
    check(halocline_redistribute_regular(comm.get(), from.get(), &halos[0], to.get(), &halos[1], &handle));
    return redistribute(handle);
  }
  // Collective.
  static redistribute unstructured(const comm &comm, const std::vector<cells> &from, const std::vector<cells> &to) {
    halocline_redistribute handle;
    const std::vector<halocline_cells> lists[2] = {detail::of_c(from), detail::of_c(to)};
    check(halocline_redistribute_unstructured(comm.get(), lists[0].data(), lists[0].size(), lists[1].data(),
                                              lists[1].size(), &handle));
    return redistribute(handle);
  }
  redistribute back() const {
    halocline_redistribute handle;
    check(halocline_redistribute_back(get(), &handle));
    return redistribute(handle);
  }
  // Binds one field of each side. Collective.
  halo_exchange bind(const comm &comm, const field &from, const field &to, const bind_options &options = {}) const {
    halocline_halo_exchange handle;
    const halocline_field fields[2] = {from.get(), to.get()};
    const halocline_bind_options given = options.get();
    check(halocline_redistribute_bind(comm.get(), get(), &fields[0], 1, &fields[1], 1, &given, &handle));
    return halo_exchange(handle);
  }
};

// The whole field on rank `root`, an empty one elsewhere. Collective.
inline field gather_to(const pattern &pattern, std::size_t root, const field &part) {
  halocline_field handle;
  const halocline_field given = part.get();
  check(halocline_gather_to(pattern.get(), root, &given, 1, &handle));
  return field(handle);
}

// Writes a distributed field to a .npy or .zarr file. Collective.
inline void save(const pattern &pattern, const std::string &path, const field &part) {
  const halocline_field given = part.get();
  check(halocline_save(pattern.get(), path.c_str(), &given, 1));
}

}  // namespace halocline

#endif
