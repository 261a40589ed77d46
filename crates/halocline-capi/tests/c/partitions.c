/* Partitions of meshes, and the domains and graphs that belong to them: as processes, or as threads with `partitions N`. */
#include "squares.h"

/* The domains have patterns of elements and vertices; all ranks together own each cell once. */
static void divides(halocline_comm comm, halocline_mesh_halos halos) {
  const uint64_t all[] = {CELLS, VERTICES};
  for (int32_t kind = HALOCLINE_ELEMENTS; kind <= HALOCLINE_VERTICES; kind++) {
    size_t count, owned;
    OK(halocline_mesh_ids(halos, kind, NULL, 0, &count, &owned));
    uint64_t sum = owned;
    OK(halocline_comm_all_reduce(comm, &sum, 1, HALOCLINE_U64, HALOCLINE_SUM));
    TRUE(sum == all[kind]);
    halocline_pattern pattern;
    OK(halocline_pattern_mesh(comm, halos, kind, &pattern));
    exchanges(comm, pattern);
    OK(halocline_pattern_free(&pattern));
  }
  size_t count;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "made without edges", halocline_mesh_edges(halos, NULL, 0, &count));
}

/* All elements around the owned vertices are local, so that their values can be computed from those of the elements. */
static void has_elements_around_owned_vertices(halocline_mesh_halos halos) {
  static const size_t of_vertex[2] = {1, 2};
  uint64_t ids[VERTICES];
  uint32_t corners[4 * CELLS];
  size_t vertices, owned, count, around[VERTICES] = {0};
  OK(halocline_mesh_ids(halos, HALOCLINE_VERTICES, ids, VERTICES, &vertices, &owned));
  OK(halocline_mesh_connectivity(halos, corners, 4 * CELLS, &count));
  for (size_t at = 0; at < count; at++) {
    around[corners[at]]++;
  }
  for (size_t vertex = 0; vertex < owned; vertex++) {
    const uint64_t x = ids[vertex] / (NY + 1), y = ids[vertex] % (NY + 1);
    TRUE(around[vertex] == of_vertex[x > 0 && x < NX] * of_vertex[y > 0 && y < NY]);
  }
}

static void of_vertices(halocline_comm comm, size_t rank, size_t size) {
  halocline_mesh mesh = squares();
  halocline_partition partition;
  OK(halocline_partition_vertices(mesh, size, &partition));
  size_t counts[8], ranks, owned, count;
  OK(halocline_partition_counts(partition, counts, 8, &ranks));
  TRUE(ranks == size);
  halocline_mesh_halos halos;
  OK(halocline_mesh_domains_by_vertex(comm, mesh, partition, rank, &halos));
  OK(halocline_mesh_ids(halos, HALOCLINE_VERTICES, NULL, 0, &count, &owned));
  TRUE(owned == counts[rank]);
  divides(comm, halos);
  has_elements_around_owned_vertices(halos);
  OK(halocline_mesh_halos_free(&halos));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "", halocline_mesh_domains_by_element(comm, mesh, partition, rank, &halos));
  OK(halocline_partition_free(&partition));
  OK(halocline_mesh_free(&mesh));
}

static void of_elements(halocline_comm comm, size_t rank, size_t size) {
  halocline_mesh mesh = squares();
  halocline_partition partition;
  OK(halocline_partition_elements(mesh, 2, size, &partition));
  halocline_mesh_halos halos;
  OK(halocline_mesh_domains_by_element(comm, mesh, partition, rank, &halos));
  divides(comm, halos);
  has_elements_around_owned_vertices(halos);
  OK(halocline_mesh_halos_free(&halos));
  OK(halocline_partition_free(&partition));
  OK(halocline_mesh_free(&mesh));
}

/* Part sizes differ by at most one cell, and weights shift the cuts. */
static void by_coordinates(size_t size) {
  double points[CELLS][2], weights[CELLS];
  for (size_t cell = 0; cell < CELLS; cell++) {
    points[cell][0] = (double)(cell / NY), points[cell][1] = (double)(cell % NY);
    weights[cell] = cell < 2 * NY ? 100 : 1;
  }
  halocline_partition partition;
  size_t counts[8], owners[CELLS], ranks, cells;
  OK(halocline_partition_bisection(&points[0][0], CELLS, 2, NULL, size, &partition));
  OK(halocline_partition_counts(partition, counts, 8, &ranks));
  OK(halocline_partition_owners(partition, owners, CELLS, &cells));
  TRUE(ranks == size && cells == CELLS && owners[0] == 0 && owners[CELLS - 1] == size - 1);
  for (size_t rank = 0; rank < size; rank++) {
    TRUE(counts[rank] == CELLS / size || counts[rank] == CELLS / size + 1);
  }
  OK(halocline_partition_free(&partition));
  OK(halocline_partition_bisection(&points[0][0], CELLS, 2, weights, 2, &partition));
  OK(halocline_partition_counts(partition, counts, 8, &ranks));
  /* Half of the weight is within the first two columns. */
  TRUE(counts[0] <= 2 * NY && counts[0] + counts[1] == CELLS);
  OK(halocline_partition_free(&partition));
}

/* The graph of a mesh, cut by the same partitioner, is the partition of the mesh. */
static void graphs(size_t size) {
  halocline_mesh mesh = squares();
  static const int32_t kinds[2] = {HALOCLINE_ELEMENTS, HALOCLINE_VERTICES};
  for (int at = 0; at < 2; at++) {
    const size_t cells = kinds[at] == HALOCLINE_ELEMENTS ? CELLS : VERTICES;
    size_t offsets[VERTICES + 1], entries, count, owners[2][VERTICES];
    uint32_t neighbours[8 * VERTICES];
    OK(halocline_mesh_graph(mesh, kinds[at], 2, NULL, NULL, 0, &entries));
    OK(halocline_mesh_graph(mesh, kinds[at], 2, offsets, neighbours, 8 * VERTICES, &count));
    TRUE(count == entries && offsets[0] == 0 && offsets[cells] == count);
    halocline_partition of_graph, of_mesh;
    OK(halocline_partition_graph(cells, offsets, neighbours, size, &of_graph));
    OK(kinds[at] == HALOCLINE_ELEMENTS ? halocline_partition_elements(mesh, 2, size, &of_mesh)
                                       : halocline_partition_vertices(mesh, size, &of_mesh));
    OK(halocline_partition_owners(of_graph, owners[0], VERTICES, &count));
    OK(halocline_partition_owners(of_mesh, owners[1], VERTICES, &count));
    TRUE(count == cells && memcmp(owners[0], owners[1], cells * sizeof(size_t)) == 0);
    OK(halocline_partition_free(&of_graph));
    OK(halocline_partition_free(&of_mesh));
  }
  uint32_t corners[4 * CELLS];
  size_t offsets[CELLS + 1], count;
  OK(halocline_mesh_element_vertices(mesh, corners, 4 * CELLS, &count));
  TRUE(count == 4 * CELLS && corners[4 * NY] == NY + 1 && corners[4 * CELLS - 2] == VERTICES - 1);
  OK(halocline_mesh_element_offsets(mesh, offsets, CELLS + 1, &count));
  TRUE(count == CELLS + 1 && offsets[0] == 0 && offsets[CELLS] == 4 * CELLS);
  OK(halocline_mesh_free(&mesh));
}

static void refused_partitions(halocline_comm comm, size_t rank, size_t size) {
  halocline_mesh mesh = squares(), part;
  halocline_partition partition, wrong;
  halocline_mesh_halos halos;
  const double points[2] = {0, 1}, weights[2] = {1, -1};
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "dimensions is 4; points have 1, 2 or 3", halocline_partition_bisection(points, 0, 4, NULL, 1, &partition));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "points is NULL", halocline_partition_bisection(NULL, 2, 1, NULL, 1, &partition));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "address space", halocline_partition_bisection(points, SIZE_MAX, 3, NULL, 1, &partition));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "weight", halocline_partition_bisection(points, 2, 1, weights, 1, &partition));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "0 ranks", halocline_partition_bisection(points, 2, 1, NULL, 0, &partition));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "0 ranks", halocline_partition_vertices(mesh, 0, &partition));
  size_t count, *misaligned = (size_t *)((char *)&count + 1);
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "kind is 2; pass HALOCLINE_ELEMENTS or", halocline_mesh_graph(mesh, HALOCLINE_EDGES, 1, NULL, NULL, 0, &count));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "no multiple of 8", halocline_mesh_graph(mesh, HALOCLINE_VERTICES, 1, misaligned, NULL, 0, &count));
  OK(halocline_partition_block(VERTICES - 1, size, &wrong));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "vertices", halocline_mesh_domains_by_vertex(comm, mesh, wrong, rank, &halos));
  OK(halocline_partition_free(&wrong));
  OK(halocline_partition_block(VERTICES, size, &partition));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "part", halocline_mesh_domains_by_vertex(comm, mesh, partition, size, &halos));
  OK(halocline_partition_free(&partition));
  /* What one rank passes wrongly is an error on all. */
  OK(halocline_partition_block(VERTICES, size, &partition));
  const halocline_partition none = {0};
  halocline_status status = halocline_mesh_domains_by_vertex(comm, mesh, rank == 0 ? none : partition, rank, &halos);
  TRUE(status == (rank == 0 ? HALOCLINE_ERROR_HANDLE : HALOCLINE_ERROR_ELSEWHERE));
  OK(halocline_partition_free(&partition));
  /* A part of a mesh has no graph of its own, nor domains without a depth. */
  uint64_t vertex_ids[VERTICES], element_ids[CELLS];
  for (size_t vertex = 0; vertex < VERTICES; vertex++) vertex_ids[vertex] = vertex;
  for (size_t cell = 0; cell < CELLS; cell++) element_ids[cell] = cell;
  OK(halocline_partition_block(CELLS, size, &partition));
  OK(halocline_mesh_part(mesh, vertex_ids, element_ids, partition, rank, 1, &part));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "pass a whole mesh", halocline_mesh_domains_by_element(comm, part, partition, rank, &halos));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "pass a whole mesh", halocline_partition_vertices(part, size, &wrong));
  OK(halocline_mesh_free(&part));
  OK(halocline_partition_free(&partition));
  OK(halocline_mesh_free(&mesh));
}

static void run(halocline_comm comm, size_t rank, size_t size) {
  of_vertices(comm, rank, size);
  of_elements(comm, rank, size);
  by_coordinates(size);
  graphs(size);
  refused_partitions(comm, rank, size);
}
