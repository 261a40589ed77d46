// Meshes and lists of cells in C++: every way to a mesh, a partition and a pattern, and redistribution of several fields.
#include "ranks.hpp"

#include <cmath>

// A mesh of NX x NY squares.
constexpr std::size_t NX = 9, NY = 7, CELLS = NX * NY, VERTICES = (NX + 1) * (NY + 1);

static std::vector<std::uint32_t> corners_of_squares() {
  std::vector<std::uint32_t> corners;
  for (std::uint32_t cell = 0; cell < CELLS; cell++) {
    const std::uint32_t ny = NY, first = cell / ny * (ny + 1) + cell % ny;
    for (std::uint32_t corner : {first, first + 1, first + ny + 2, first + ny + 1}) corners.push_back(corner);
  }
  return corners;
}

// Exchanges a field of a pattern of cells; afterwards all local cells have their ids.
static void exchanges(const hc::comm &comm, const hc::pattern &pattern) {
  const std::vector<std::uint64_t> ids = pattern.ids();
  hc::array<std::uint64_t, 1> field(comm, {ids.size()});
  for (std::size_t cell : pattern.owned()) field(cell) = ids[cell] + 7;
  hc::halo_exchange(comm, {{pattern, field}}).exchange_and_wait();
  for (std::size_t cell = 0; cell < ids.size(); cell++) TRUE(field(cell) == ids[cell] + 7);
}

// The part of the grid file GRID that a rank reads, and the same halos of the whole mesh.
static void part_of_a_grid_file(const hc::comm &comm) {
  const hc::icon_grid grid(comm, GRID);
  TRUE(grid.cells() == 1280 && grid.edges() == 1920 && grid.vertices() == 642);
  const hc::mesh mesh = grid.mesh();
  const hc::partition partition = mesh.partition(2, comm.size());
  const hc::icon_part part = grid.part(comm, partition);
  const hc::mesh_halos halos = hc::mesh_halos::icon(comm, mesh, partition);
  for (hc::cell_kind kind : {hc::cell_kind::elements, hc::cell_kind::vertices}) TRUE(part.ids(kind) == halos.ids(kind));
  for (hc::cell_kind kind : {hc::cell_kind::elements, hc::cell_kind::vertices, hc::cell_kind::edges}) {
    TRUE(part.owned(kind) == halos.owned(kind));
    exchanges(comm, part.pattern(comm, kind));
  }
  const std::vector<std::uint64_t> cells = part.ids(hc::cell_kind::elements), edges = part.ids(hc::cell_kind::edges);
  const std::vector<double> of_cells = grid.read("edge_of_cell", cells), beside = grid.read("adjacent_cell_of_edge", edges);
  const auto cell_edges = part.cell_edges();
  const auto edge_cells = part.edge_cells();
  TRUE(cell_edges.size() == cells.size() && edge_cells.size() == edges.size());
  for (std::size_t at = 0; at < of_cells.size(); at++) {
    TRUE(static_cast<double>(edges[cell_edges[at / 3][at % 3]] + 1) == of_cells[at]);
  }
  for (std::size_t at = 0; at < beside.size(); at++) {
    const std::uint32_t cell = edge_cells[at / 2][at % 2];
    TRUE(cell == HALOCLINE_NO_CELL || static_cast<double>(cells[cell] + 1) == beside[at]);
  }
  THROWS(HALOCLINE_ERROR_ARGUMENT, "no variable cloud", grid.read("cloud", cells));
  THROWS(HALOCLINE_ERROR_ARGUMENT, "cannot read no-such-file.nc", hc::icon_grid(comm, "no-such-file.nc"));
}

// A grid that needs no file.
static void icosahedral(const hc::comm &comm) {
  const hc::icosahedral_grid grid(2);
  TRUE(grid.mesh.elements() == 320 && grid.mesh.vertices() == 162 && grid.points.size() == 162);
  for (const auto &[x, y, z] : grid.points) TRUE(std::abs(x * x + y * y + z * z - 1) < 1e-14);
  const hc::partition partition = grid.mesh.partition(2, comm.size());
  exchanges(comm, hc::mesh_halos::icon(comm, grid.mesh, partition).pattern(comm, hc::cell_kind::edges));
  THROWS(HALOCLINE_ERROR_ARGUMENT, "at most 13", hc::icosahedral_grid(14));
}

// The owned cells of a row whose neighbours are owned.
static void interior_of_a_row(const hc::comm &comm) {
  std::vector<std::uint64_t> ids;
  for (std::size_t cell = 0; cell < 4; cell++) ids.push_back(10 * comm.rank() + cell);
  const hc::pattern pattern = hc::unstructured_pattern(comm, {{comm.rank(), ids, {}}});
  // The first and the last cell have a neighbour that the rank does not hold.
  const std::vector<std::size_t> offsets{0, 2, 4, 6, 8}, neighbours{9, 1, 0, 2, 1, 3, 2, 9};
  TRUE((pattern.interior_by(offsets, neighbours) == std::vector<std::size_t>{1, 2}));
  const std::vector<std::size_t> too_few{0, 2, 4}, beyond{0, 2, 4, 6, 9};
  THROWS(HALOCLINE_ERROR_ARGUMENT, "one more than the domain has cells", pattern.interior_by(too_few, neighbours));
  THROWS(HALOCLINE_ERROR_ARGUMENT, "positions in neighbours", pattern.interior_by(beyond, neighbours));
}

// The same mesh by elements of different arity, as a part, and by partitions of every kind: the same domains.
static void ways_to_a_mesh(const hc::comm &comm) {
  const std::size_t size = comm.size(), rank = comm.rank();
  const std::vector<std::uint32_t> corners = corners_of_squares();
  const hc::mesh mesh(VERTICES, 4, corners);
  TRUE(mesh.vertices() == VERTICES && mesh.elements() == CELLS);
  std::vector<std::size_t> offsets{0}, neighbours_of{0};
  std::vector<std::uint32_t> neighbours;
  std::vector<std::uint64_t> vertex_ids, element_ids;
  for (std::size_t vertex = 0; vertex < VERTICES; vertex++) vertex_ids.push_back(vertex);
  for (std::size_t cell = 0; cell < CELLS; cell++) {
    const auto add = [&](bool is_there, std::size_t other) {
      if (is_there) neighbours.push_back(static_cast<std::uint32_t>(other));
    };
    add(cell >= NY, cell - NY), add(cell % NY > 0, cell - 1), add(cell % NY < NY - 1, cell + 1), add(cell + NY < CELLS, cell + NY);
    offsets.push_back(4 * (cell + 1)), neighbours_of.push_back(neighbours.size()), element_ids.push_back(cell);
  }

  // The graph of the elements has the partition that the mesh has.
  const hc::partition partition = mesh.partition(2, size);
  TRUE(hc::partition::graph(neighbours_of, neighbours, size).owners() == partition.owners());
  const hc::partition given = hc::partition::given(partition.owners(), size);

  const hc::mesh_halos wanted(comm, mesh, partition, 2, hc::shared::vertex, true);
  const std::vector<std::uint64_t> elements = wanted.ids(hc::cell_kind::elements);
  const std::vector<std::size_t> begins = wanted.offsets();
  TRUE(begins.size() == elements.size() + 1 && begins.back() == wanted.connectivity().size());
  const std::vector<std::uint64_t> local = wanted.ids(hc::cell_kind::vertices), edges = wanted.ids(hc::cell_kind::edges);
  const std::vector<std::array<std::uint32_t, 2>> ends = wanted.edges();
  TRUE(ends.size() == edges.size() && !ends.empty());
  for (std::size_t edge = 0; edge < ends.size(); edge++) {
    TRUE((local[ends[edge][0]] << 32) + local[ends[edge][1]] == edges[edge]);
  }

  const hc::mesh others[] = {hc::mesh::mixed(VERTICES, offsets, corners), mesh.part(vertex_ids, element_ids, given, rank, 2)};
  for (const hc::mesh &other : others) {
    const hc::mesh_halos halos(comm, other, given, 2, hc::shared::vertex, false, rank);
    TRUE(halos.ids(hc::cell_kind::elements) == elements && halos.owned(hc::cell_kind::elements) > 0);
    exchanges(comm, halos.pattern(comm, hc::cell_kind::vertices));
  }

  // Arrays that are too short are refused before the library reads them.
  offsets.back()++, vertex_ids.pop_back();
  THROWS(HALOCLINE_ERROR_ARGUMENT, "positions in connectivity", hc::mesh::mixed(VERTICES, offsets, corners));
  THROWS(HALOCLINE_ERROR_ARGUMENT, "positions in connectivity", hc::mesh::mixed(VERTICES, {}, corners));
  THROWS(HALOCLINE_ERROR_ARGUMENT, "one id for each", mesh.part(vertex_ids, element_ids, given, rank, 2));
  neighbours.pop_back();
  THROWS(HALOCLINE_ERROR_ARGUMENT, "positions in neighbours", hc::partition::graph(neighbours_of, neighbours, size));
  THROWS(HALOCLINE_ERROR_ARGUMENT, "for each element", hc::mesh(VERTICES, 5, corners));
}

// Partitions of vertices and by coordinates, and domains by the owners of vertices and elements.
static void partitions(const hc::comm &comm) {
  const std::size_t size = comm.size();
  const hc::mesh mesh(VERTICES, 4, corners_of_squares());
  TRUE(mesh.connectivity() == corners_of_squares() && mesh.offsets().back() == 4 * CELLS);
  const hc::partition vertices = mesh.partition_vertices(size);
  TRUE(vertices.counts().size() == size);
  const hc::mesh::adjacency graph = mesh.graph(hc::cell_kind::vertices);
  TRUE(hc::partition::graph(graph.offsets, graph.neighbours, size).owners() == vertices.owners());
  TRUE(mesh.graph(hc::cell_kind::elements, 2).offsets.size() == CELLS + 1);
  const hc::mesh_halos by_vertex = hc::mesh_halos::by_vertex(comm, mesh, vertices);
  TRUE(by_vertex.owned(hc::cell_kind::vertices) == vertices.counts()[comm.rank()]);
  exchanges(comm, by_vertex.pattern(comm, hc::cell_kind::elements));

  std::vector<std::array<double, 2>> centres;
  for (std::size_t cell = 0; cell < CELLS; cell++) {
    centres.push_back({static_cast<double>(cell / NY), static_cast<double>(cell % NY)});
  }
  const hc::partition cells = hc::partition::bisection(centres, size);
  exchanges(comm, hc::mesh_halos::by_element(comm, mesh, cells).pattern(comm, hc::cell_kind::vertices));
  const std::vector<double> weights(CELLS, 1.0);
  TRUE(hc::partition::bisection(centres, size, weights).owners().size() == CELLS);
  THROWS(HALOCLINE_ERROR_ARGUMENT, "different lengths", hc::partition::bisection(centres, size, {weights.data(), 1}));
}

// A strip of triangles whose edges are each cut into three.
static void a_refined_mesh(const hc::comm &comm) {
  constexpr std::uint32_t TRIANGLES = 40;
  std::vector<std::uint32_t> corners;
  for (std::uint32_t triangle = 0; triangle < TRIANGLES; triangle++) {
    for (std::uint32_t corner = 0; corner < 3; corner++) corners.push_back(triangle + corner);
  }
  const hc::partition partition = hc::partition::block(TRIANGLES, comm.size());
  const hc::mesh refined = hc::mesh(TRIANGLES + 2, 3, corners).refined(partition, comm.rank(), 3, 1);
  const hc::mesh_halos halos(comm, refined, partition, 1);
  TRUE(comm.all_reduce(halos.owned(hc::cell_kind::elements), hc::reduce::sum) == TRIANGLES * 9);
  exchanges(comm, halos.pattern(comm, hc::cell_kind::elements));
}

// A ring of cells, five on each rank, with a halo cell at both ends, in three forms.
static void lists_of_cells(const hc::comm &comm) {
  constexpr std::uint64_t EACH = 5;
  const std::uint64_t rank = comm.rank(), size = comm.size(), all = size * EACH;
  std::vector<std::uint64_t> owned, halo, ids;
  std::vector<std::size_t> owners, at_ends;
  for (std::uint64_t cell = rank * EACH; cell < (rank + 1) * EACH; cell++) owned.push_back(cell);
  if (size > 1) halo = {(rank * EACH + all - 1) % all, (rank + 1) * EACH % all}, at_ends = {EACH, EACH + 1};
  ids = owned;
  ids.insert(ids.end(), halo.begin(), halo.end());
  for (std::uint64_t id : ids) owners.push_back(id / EACH);
  exchanges(comm, hc::unstructured_pattern(comm, {{rank, owned, halo}}));
  exchanges(comm, hc::unstructured_pattern(comm, {hc::cells::from_indices(rank, ids, at_ends)}));
  exchanges(comm, hc::unstructured_pattern(comm, {hc::cells::from_owners(rank, ids, owners)}));

  hc::cells levels{rank, owned, halo};
  levels.levels = {EACH, ids.size()};
  const hc::pattern pattern = hc::unstructured_pattern(comm, {levels});
  exchanges(comm, pattern);
  const hc::pattern none = pattern.narrowed(0);
  hc::array<float, 1> field(comm, {ids.size()});
  for (std::size_t cell = 0; cell < ids.size(); cell++) field(cell) = -1;
  hc::halo_exchange(comm, {{none, field}}).exchange_and_wait();
  TRUE(field(0) == -1 && field(ids.size() - 1) == -1);

  // A mistake of one rank is an error on all, and none waits.
  std::vector<std::size_t> fewer = owners;
  if (rank == 0) fewer.pop_back();
  const auto refused = [&] { return hc::unstructured_pattern(comm, {hc::cells::from_owners(rank, ids, fewer)}); };
  if (rank == 0) THROWS(HALOCLINE_ERROR_ARGUMENT, "different lengths", refused());
  if (rank != 0) THROWS(HALOCLINE_ERROR_ELSEWHERE, "", refused());
}

// Two domains on each rank: from blocks of cells to every size-th cell, and back.
static void redistributes(const hc::comm &comm) {
  constexpr std::uint64_t EACH = 3;
  const std::uint64_t rank = comm.rank(), size = comm.size();
  std::vector<hc::cells> blocks, cyclic;
  std::vector<hc::field> from, to;
  std::vector<const hc::field *> from_list, to_list;
  for (std::uint64_t half = 0; half < 2; half++) {
    const std::uint64_t number = 2 * rank + half, last = 2 * size;
    blocks.push_back({number, {EACH * number, EACH * number + 1, EACH * number + 2}, {}});
    cyclic.push_back({number, {number, last + number, 2 * last + number}, {}});
    for (std::vector<hc::field> *fields : {&from, &to}) {
      fields->push_back(hc::field::allocate(comm, hc::layout(HALOCLINE_U64, {EACH})).on_domain(number));
    }
  }
  for (std::size_t half = 0; half < 2; half++) from_list.push_back(&from[half]), to_list.push_back(&to[half]);
  const auto has = [&](const std::vector<hc::field> &fields, const std::vector<hc::cells> &domains) {
    bool all = true;
    for (std::size_t half = 0; half < 2; half++) {
      for (std::size_t cell = 0; cell < EACH; cell++) {
        all = all && fields[half].elements<std::uint64_t, 1>()(cell) == domains[half].owned[cell];
      }
    }
    return all;
  };
  for (std::size_t half = 0; half < 2; half++) {
    for (std::size_t cell = 0; cell < EACH; cell++) from[half].elements<std::uint64_t, 1>()(cell) = blocks[half].owned[cell];
  }
  const hc::redistribute move = hc::redistribute::unstructured(comm, blocks, cyclic);
  move.bind(comm, from_list, to_list).exchange_and_wait();
  TRUE(has(to, cyclic));
  for (const hc::field &field : from) field.elements<std::uint64_t, 1>()(0) = 999;
  move.back().bind(comm, to_list, from_list).exchange_and_wait();
  TRUE(has(from, blocks));
}

static void run(const hc::comm &comm) {
  part_of_a_grid_file(comm);
  icosahedral(comm);
  ways_to_a_mesh(comm);
  partitions(comm);
  a_refined_mesh(comm);
  lists_of_cells(comm);
  interior_of_a_row(comm);
  redistributes(comm);
}
