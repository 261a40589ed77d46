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
  // By METIS, of a graph: the neighbours of cell i are neighbours[offsets[i]] to neighbours[offsets[i + 1] - 1].
  static partition graph(span<const std::size_t> offsets, span<const std::uint32_t> neighbours, std::size_t ranks) {
    halocline_partition handle;
    const std::size_t cells = detail::lists_of(offsets, neighbours.size(),
                                               "offsets of a graph are positions in neighbours, one more than there are cells");
    check(halocline_partition_graph(cells, offsets.data(), neighbours.data(), ranks, &handle));
    return partition(handle);
  }
  // By recursive coordinate bisection, of the points at which the cells lie; `weights` has none, or one for each cell.
  template <std::size_t Dimensions>
  static partition bisection(const std::vector<std::array<double, Dimensions>> &points, std::size_t ranks,
                             span<const double> weights = {}) {
    static_assert(sizeof(std::array<double, Dimensions>) == Dimensions * sizeof(double), "a list of points is one of C");
    if (!weights.empty() && weights.size() != points.size()) {
      throw error(HALOCLINE_ERROR_ARGUMENT, "weights and points have different lengths; give each point a weight, or none");
    }
    halocline_partition handle;
    check(halocline_partition_bisection(points.empty() ? nullptr : points.front().data(), points.size(), Dimensions,
                                        weights.data(), ranks, &handle));
    return partition(handle);
  }
  // The number of cells of each rank.
  std::vector<std::size_t> counts() const {
    return detail::stored<std::size_t>([&](std::size_t *counts, std::size_t capacity, std::size_t *count) {
      return halocline_partition_counts(get(), counts, capacity, count);
    });
  }
  std::vector<std::size_t> owners() const {
    return detail::stored<std::size_t>([&](std::size_t *owners, std::size_t capacity, std::size_t *count) {
      return halocline_partition_owners(get(), owners, capacity, count);
    });
  }
};

// A kind of cells of a mesh.
enum class cell_kind : std::int32_t {
  elements = HALOCLINE_ELEMENTS,
  vertices = HALOCLINE_VERTICES,
  edges = HALOCLINE_EDGES
};

// The vertices of each element: a whole mesh, or the part of one that this rank needs.
class mesh : public owner<halocline_mesh, halocline_mesh_free> {
 public:
  using owner::owner;

  // Elements of `arity` vertices each.
  mesh(std::size_t vertices, std::size_t arity, span<const std::uint32_t> connectivity, bool solid = false) : owner() {
    if (arity != 0 && connectivity.size() % arity != 0) {
      throw error(HALOCLINE_ERROR_ARGUMENT, "connectivity needs `arity` vertices for each element");
    }
    halocline_mesh handle;
    const std::size_t elements = arity == 0 ? 0 : connectivity.size() / arity;
    check(halocline_mesh_create(vertices, elements, arity, connectivity.data(), solid, &handle));
    static_cast<owner &>(*this) = owner(handle);
  }
  // Elements of different arity: element e has the vertices connectivity[offsets[e]] to connectivity[offsets[e + 1] - 1].
  static mesh mixed(std::size_t vertices, span<const std::size_t> offsets, span<const std::uint32_t> connectivity,
                    bool solid = false) {
    halocline_mesh handle;
    const std::size_t elements = detail::lists_of(
        offsets, connectivity.size(), "offsets of a mesh are positions in connectivity, one more than there are elements");
    check(halocline_mesh_create_mixed(vertices, elements, offsets.data(), connectivity.data(), solid, &handle));
    return mesh(handle);
  }
  // This mesh as part `part` of one that is too large to be stored on every rank: halocline_mesh_part. The ids are the global ids of its
  // vertices and elements.
  mesh part(span<const std::uint64_t> vertex_ids, span<const std::uint64_t> element_ids,
            const halocline::partition &partition, std::size_t part, std::size_t depth) const {
    if (vertex_ids.size() != vertices() || element_ids.size() != elements()) {
      throw error(HALOCLINE_ERROR_ARGUMENT, "a part of a mesh needs one id for each of its vertices and elements");
    }
    halocline_mesh handle;
    check(halocline_mesh_part(get(), vertex_ids.data(), element_ids.data(), partition.get(), part, depth, &handle));
    return mesh(handle);
  }
  // Part `part` of a finer mesh: each edge of the triangles is cut into `segments` segments.
  mesh refined(const halocline::partition &partition, std::size_t part, std::size_t segments, std::size_t depth) const {
    halocline_mesh handle;
    check(halocline_mesh_refined(get(), partition.get(), part, segments, depth, &handle));
    return mesh(handle);
  }
  std::size_t vertices() const {
    std::size_t count;
    check(halocline_mesh_size(get(), &count, nullptr));
    return count;
  }
  std::size_t elements() const {
    std::size_t count;
    check(halocline_mesh_size(get(), nullptr, &count));
    return count;
  }
  // A partition of its elements by METIS; elements are neighbours if they share `common` vertices.
  halocline::partition partition(std::size_t common, std::size_t ranks) const {
    halocline_partition handle;
    check(halocline_partition_elements(get(), common, ranks, &handle));
    return halocline::partition(handle);
  }
  // The same of its vertices; those of a common element are neighbours.
  halocline::partition partition_vertices(std::size_t ranks) const {
    halocline_partition handle;
    check(halocline_partition_vertices(get(), ranks, &handle));
    return halocline::partition(handle);
  }
  // The vertices of the elements.
  std::vector<std::uint32_t> connectivity() const {
    return detail::stored<std::uint32_t>([&](std::uint32_t *vertices, std::size_t capacity, std::size_t *count) {
      return halocline_mesh_element_vertices(get(), vertices, capacity, count);
    });
  }
  // Where the vertices of each element begin in `connectivity`: one more than there are elements.
  std::vector<std::size_t> offsets() const {
    return detail::stored<std::size_t>([&](std::size_t *offsets, std::size_t capacity, std::size_t *count) {
      return halocline_mesh_element_offsets(get(), offsets, capacity, count);
    });
  }
  // The neighbours of cell i are neighbours[offsets[i]] to neighbours[offsets[i + 1] - 1].
  struct adjacency {
    std::vector<std::size_t> offsets;
    std::vector<std::uint32_t> neighbours;
  };
  // The graph of the vertices, or of the elements that share at least `common` vertices.
  adjacency graph(cell_kind kind, std::size_t common = 1) const {
    adjacency found;
    found.offsets.resize((kind == cell_kind::vertices ? vertices() : elements()) + 1);
    found.neighbours =
        detail::stored<std::uint32_t>([&](std::uint32_t *neighbours, std::size_t capacity, std::size_t *count) {
          return halocline_mesh_graph(get(), static_cast<std::int32_t>(kind), common, found.offsets.data(), neighbours,
                                      capacity, count);
        });
    return found;
  }
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

  // Those of a part, `depth` elements deep; without `part` it has the number of this rank. Collective.
  mesh_halos(const comm &comm, const mesh &mesh, const partition &partition, std::size_t depth,
             shared neighbours = shared::vertex, bool edges = false, std::optional<std::size_t> part = std::nullopt)
      : owner() {
    halocline_mesh_halos handle;
    check(halocline_mesh_halos_create(comm.get(), mesh.get(), partition.get(), part ? *part : comm.rank(), depth,
                                      static_cast<std::int32_t>(neighbours), edges, &handle));
    static_cast<owner &>(*this) = owner(handle);
  }
  // Those of a part with the halos and owners of ICON, and with edges; without `part` it has the number of this rank. Collective.
  static mesh_halos icon(const comm &comm, const mesh &mesh, const partition &partition,
                         std::optional<std::size_t> part = std::nullopt) {
    halocline_mesh_halos handle;
    check(halocline_mesh_icon_halos(comm.get(), mesh.get(), partition.get(), part ? *part : comm.rank(), &handle));
    return mesh_halos(handle);
  }
  // Those of a part by the owners of the vertices, without edges; without `part` it has the number of this rank. Collective.
  static mesh_halos by_vertex(const comm &comm, const mesh &mesh, const partition &partition,
                              std::optional<std::size_t> part = std::nullopt) {
    halocline_mesh_halos handle;
    check(halocline_mesh_domains_by_vertex(comm.get(), mesh.get(), partition.get(), part ? *part : comm.rank(), &handle));
    return mesh_halos(handle);
  }
  // The same by the owners of the elements. Collective.
  static mesh_halos by_element(const comm &comm, const mesh &mesh, const partition &partition,
                               std::optional<std::size_t> part = std::nullopt) {
    halocline_mesh_halos handle;
    check(halocline_mesh_domains_by_element(comm.get(), mesh.get(), partition.get(), part ? *part : comm.rank(), &handle));
    return mesh_halos(handle);
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
  // Where the vertices of each local element begin in `connectivity`: one more than there are elements.
  std::vector<std::size_t> offsets() const {
    return detail::stored<std::size_t>([&](std::size_t *offsets, std::size_t capacity, std::size_t *count) {
      return halocline_mesh_offsets(get(), offsets, capacity, count);
    });
  }
  // The two local vertices of each local edge.
  std::vector<std::array<std::uint32_t, 2>> edges() const {
    using ends_of_edge = std::array<std::uint32_t, 2>;
    static_assert(sizeof(ends_of_edge) == sizeof(std::uint32_t[2]), "a list of edges is one of C");
    return detail::stored<ends_of_edge>([&](ends_of_edge *ends, std::size_t capacity, std::size_t *count) {
      return halocline_mesh_edges(get(), reinterpret_cast<std::uint32_t(*)[2]>(ends), capacity, count);
    });
  }
};

// An unstructured domain of this rank: global ids of owned cells, then of halo cells.
struct cells {
  std::uint64_t number;
  std::vector<std::uint64_t> owned, halo;
  // If one of these is set, `owned` has all cells in local order, and `halo` none: the local indices of the halo cells, or the rank that
  // owns each cell.
  std::vector<std::size_t> halo_indices = {}, owners = {};
  // For a pattern that can be narrowed: `levels[d]` is the end, in local order, of the cells of a halo of depth d.
  std::vector<std::size_t> levels = {};

  static cells from_indices(std::uint64_t number, std::vector<std::uint64_t> all, std::vector<std::size_t> halo_indices) {
    return {number, std::move(all), {}, std::move(halo_indices)};
  }
  static cells from_owners(std::uint64_t number, std::vector<std::uint64_t> all, std::vector<std::size_t> owners) {
    return {number, std::move(all), {}, {}, std::move(owners)};
  }
};

namespace detail {

template <typename T>
const T *or_null(const std::vector<T> &list) noexcept {
  return list.empty() ? nullptr : list.data();
}

inline bool lack_owners(const cells &domain) noexcept {
  return !domain.owners.empty() && domain.owners.size() != domain.owned.size();
}

inline std::vector<halocline_cells> of_c(const std::vector<cells> &domains) {
  std::vector<halocline_cells> list;
  for (const cells &domain : domains) {
    halocline_cells one = HALOCLINE_CELLS_INIT;
    one.number = domain.number;
    // A missing list is refused on all ranks: the call is collective.
    one.count = lack_owners(domain) ? 1 : domain.owned.size();
    one.ids = lack_owners(domain) ? nullptr : or_null(domain.owned);
    one.halo_count = domain.halo.empty() ? domain.halo_indices.size() : domain.halo.size();
    one.halo_ids = or_null(domain.halo);
    one.halo_indices = or_null(domain.halo_indices);
    one.owners = or_null(domain.owners);
    one.level_count = domain.levels.size();
    one.levels = or_null(domain.levels);
    list.push_back(one);
  }
  return list;
}

// As `halocline::check`, after a call with lists of cells.
inline void check_cells(halocline_status status, std::initializer_list<const std::vector<cells> *> lists) {
  for (const std::vector<cells> *domains : lists) {
    for (const cells &domain : *domains) {
      if (lack_owners(domain)) {
        throw error(HALOCLINE_ERROR_ARGUMENT, "cells and owners have different lengths; give the owner of each cell");
      }
    }
  }
  check(status);
}

inline std::vector<halocline_field> of_c(const std::vector<const field *> &fields) {
  std::vector<halocline_field> list;
  for (const field *field : fields) list.push_back(field->get());
  return list;
}

}  // namespace detail

// The pattern of unstructured domains. Collective.
inline pattern unstructured_pattern(const comm &comm, const std::vector<cells> &domains) {
  halocline_pattern handle;
  const std::vector<halocline_cells> list = detail::of_c(domains);
  detail::check_cells(halocline_pattern_unstructured(comm.get(), list.data(), list.size(), &handle), {&domains});
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
    const halocline_status status = halocline_redistribute_unstructured(
        comm.get(), lists[0].data(), lists[0].size(), lists[1].data(), lists[1].size(), &handle);
    detail::check_cells(status, {&from, &to});
    return redistribute(handle);
  }
  redistribute back() const {
    halocline_redistribute handle;
    check(halocline_redistribute_back(get(), &handle));
    return redistribute(handle);
  }
  // Binds one field of each side. Collective.
  halo_exchange bind(const comm &comm, const field &from, const field &to, const bind_options &options = {}) const {
    return bind(comm, {&from}, {&to}, options);
  }
  // Binds any number of fields of both sides. Collective.
  halo_exchange bind(const comm &comm, const std::vector<const field *> &from, const std::vector<const field *> &to,
                     const bind_options &options = {}) const {
    halocline_halo_exchange handle;
    const std::vector<halocline_field> lists[2] = {detail::of_c(from), detail::of_c(to)};
    const halocline_bind_options given = options.get();
    check(halocline_redistribute_bind(comm.get(), get(), lists[0].data(), lists[0].size(), lists[1].data(), lists[1].size(),
                                      &given, &handle));
    return halo_exchange(handle);
  }
};

// The whole field on rank `root`, an empty one elsewhere. `parts` has one field for each domain of this rank. Collective.
inline field gather_to(const pattern &pattern, std::size_t root, const std::vector<const field *> &parts) {
  halocline_field handle;
  const std::vector<halocline_field> given = detail::of_c(parts);
  check(halocline_gather_to(pattern.get(), root, given.data(), given.size(), &handle));
  return field(handle);
}
inline field gather_to(const pattern &pattern, std::size_t root, const field &part) {
  return gather_to(pattern, root, std::vector<const field *>{&part});
}

// Writes a distributed field to a .npy or .zarr file. `parts` has one field for each domain of this rank. Collective.
inline void save(const pattern &pattern, const std::string &path, const std::vector<const field *> &parts) {
  const std::vector<halocline_field> given = detail::of_c(parts);
  check(halocline_save(pattern.get(), path.c_str(), given.data(), given.size()));
}
inline void save(const pattern &pattern, const std::string &path, const field &part) {
  save(pattern, path, std::vector<const field *>{&part});
}

}  // namespace halocline

#endif
