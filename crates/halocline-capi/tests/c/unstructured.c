/* Meshes, lists of cells, redistribution, messages and unbound exchanges: as processes, or as threads with `unstructured N`. */
#include "squares.h"

/* The global ids of the elements of `halos`, owned and halo. */
static size_t elements_of(halocline_mesh_halos halos, uint64_t *ids) {
  size_t count;
  OK(halocline_mesh_ids(halos, HALOCLINE_ELEMENTS, ids, CELLS, &count, NULL));
  return count;
}

/* The same mesh by elements of different arity, as a part, and by partitions of every kind: the same domains. */
static void other_ways_to_a_mesh(halocline_comm comm, size_t rank, size_t size) {
  halocline_mesh mesh = squares(), mixed, part;
  uint64_t vertex_ids[VERTICES], element_ids[CELLS], wanted[CELLS], found[CELLS];
  size_t offsets[CELLS + 1], owners[CELLS], neighbours_of[CELLS + 1] = {0}, count;
  uint32_t corners[4 * CELLS], neighbours[4 * CELLS];
  for (size_t vertex = 0; vertex < VERTICES; vertex++) vertex_ids[vertex] = vertex;
  for (size_t cell = 0; cell < CELLS; cell++) {
    const uint32_t first = (uint32_t)(cell / NY * (NY + 1) + cell % NY);
    const uint32_t own[4] = {first, first + 1, first + NY + 2, first + NY + 1};
    memcpy(&corners[4 * cell], own, sizeof own);
    element_ids[cell] = cell, offsets[cell] = 4 * cell;
    size_t end = neighbours_of[cell];
    if (cell >= NY) neighbours[end++] = (uint32_t)(cell - NY);
    if (cell % NY > 0) neighbours[end++] = (uint32_t)(cell - 1);
    if (cell % NY < NY - 1) neighbours[end++] = (uint32_t)(cell + 1);
    if (cell + NY < CELLS) neighbours[end++] = (uint32_t)(cell + NY);
    neighbours_of[cell + 1] = end;
  }
  offsets[CELLS] = 4 * CELLS;

  /* The graph of the elements has the partition that the mesh has. */
  halocline_partition partition, same;
  OK(halocline_partition_elements(mesh, 2, size, &partition));
  OK(halocline_partition_graph(CELLS, neighbours_of, neighbours, size, &same));
  size_t of_mesh[CELLS];
  OK(halocline_partition_owners(partition, of_mesh, CELLS, &count));
  OK(halocline_partition_owners(same, owners, CELLS, &count));
  TRUE(count == CELLS && memcmp(of_mesh, owners, sizeof owners) == 0);
  OK(halocline_partition_free(&same));
  OK(halocline_partition_given(owners, CELLS, size, &same));

  halocline_mesh_halos halos;
  OK(halocline_mesh_halos_create(comm, mesh, partition, rank, 2, HALOCLINE_SHARED_VERTEX, 0, &halos));
  const size_t elements = elements_of(halos, wanted);
  OK(halocline_mesh_halos_free(&halos));
  OK(halocline_mesh_create_mixed(VERTICES, CELLS, offsets, corners, 0, &mixed));
  OK(halocline_mesh_part(mesh, vertex_ids, element_ids, same, rank, 2, &part));
  const halocline_mesh meshes[2] = {mixed, part};
  for (size_t at = 0; at < 2; at++) {
    OK(halocline_mesh_halos_create(comm, meshes[at], same, rank, 2, HALOCLINE_SHARED_VERTEX, 0, &halos));
    TRUE(elements_of(halos, found) == elements && memcmp(found, wanted, elements * sizeof *found) == 0);
    halocline_pattern pattern;
    OK(halocline_pattern_mesh(comm, halos, HALOCLINE_VERTICES, &pattern));
    exchanges(comm, pattern);
    OK(halocline_pattern_free(&pattern));
    OK(halocline_mesh_halos_free(&halos));
  }
  OK(halocline_mesh_free(&part));
  OK(halocline_mesh_free(&mixed));
  OK(halocline_partition_free(&same));
  OK(halocline_partition_free(&partition));
  OK(halocline_mesh_free(&mesh));
}

/* A strip of triangles whose edges are each cut into three. */
static void a_refined_mesh(halocline_comm comm, size_t rank, size_t size) {
  enum { TRIANGLES = 40, SEGMENTS = 3 };
  uint32_t corners[TRIANGLES][3];
  for (uint32_t triangle = 0; triangle < TRIANGLES; triangle++) {
    corners[triangle][0] = triangle, corners[triangle][1] = triangle + 1, corners[triangle][2] = triangle + 2;
  }
  halocline_mesh mesh, refined;
  halocline_partition partition;
  OK(halocline_mesh_create(TRIANGLES + 2, TRIANGLES, 3, &corners[0][0], 0, &mesh));
  OK(halocline_partition_block(TRIANGLES, size, &partition));
  OK(halocline_mesh_refined(mesh, partition, rank, SEGMENTS, 1, &refined));
  halocline_mesh_halos halos;
  OK(halocline_mesh_halos_create(comm, refined, partition, rank, 1, HALOCLINE_SHARED_VERTEX, 0, &halos));
  size_t count, owned;
  OK(halocline_mesh_ids(halos, HALOCLINE_ELEMENTS, NULL, 0, &count, &owned));
  uint64_t all = owned;
  OK(halocline_comm_all_reduce(comm, &all, 1, HALOCLINE_U64, HALOCLINE_SUM));
  TRUE(all == TRIANGLES * SEGMENTS * SEGMENTS && (size == 1 || count > owned));
  halocline_pattern pattern;
  OK(halocline_pattern_mesh(comm, halos, HALOCLINE_ELEMENTS, &pattern));
  exchanges(comm, pattern);
  OK(halocline_pattern_free(&pattern));
  OK(halocline_mesh_halos_free(&halos));
  OK(halocline_mesh_free(&refined));
  OK(halocline_partition_free(&partition));
  OK(halocline_mesh_free(&mesh));
}

/* Eight cubes that are a cube: part 0 is one of them, which shares facets with three others, edges with six, vertices with seven. */
static void by_what_is_shared(halocline_comm comm, size_t rank, size_t size) {
  enum { CUBES = 8, SIDE = 3 };
  /* VTK's order of the vertices of a hexahedron. */
  static const uint32_t corner[8][3] = {{0, 0, 0}, {1, 0, 0}, {1, 1, 0}, {0, 1, 0}, {0, 0, 1}, {1, 0, 1}, {1, 1, 1}, {0, 1, 1}};
  uint32_t corners[CUBES][8];
  size_t owners[CUBES];
  for (uint32_t cube = 0; cube < CUBES; cube++) {
    for (int at = 0; at < 8; at++) {
      const uint32_t *of = corner[at];
      corners[cube][at] = ((cube >> 2) + of[2]) * SIDE * SIDE + ((cube >> 1 & 1) + of[1]) * SIDE + (cube & 1) + of[0];
    }
    owners[cube] = cube == 0 || size == 1 ? 0 : 1 + (cube - 1) % (size - 1);
  }
  halocline_mesh mesh;
  halocline_partition partition;
  OK(halocline_mesh_create(SIDE * SIDE * SIDE, CUBES, 8, &corners[0][0], 1, &mesh));
  OK(halocline_partition_given(owners, CUBES, size, &partition));
  static const struct {
    int32_t shared;
    size_t neighbours;
  } cases[] = {{HALOCLINE_SHARED_FACET, 3}, {HALOCLINE_SHARED_EDGE, 6}, {HALOCLINE_SHARED_VERTEX, 7}};
  for (size_t at = 0; at < 3; at++) {
    halocline_mesh_halos halos;
    size_t count, owned;
    OK(halocline_mesh_halos_create(comm, mesh, partition, rank, 1, cases[at].shared, 0, &halos));
    OK(halocline_mesh_ids(halos, HALOCLINE_ELEMENTS, NULL, 0, &count, &owned));
    TRUE(size == 1 ? count == CUBES : rank != 0 || (owned == 1 && count == 1 + cases[at].neighbours));
    OK(halocline_mesh_halos_free(&halos));
  }
  OK(halocline_partition_free(&partition));
  OK(halocline_mesh_free(&mesh));
}

static void of_a_mesh(halocline_comm comm, size_t rank, size_t size) {
  halocline_mesh mesh = squares();
  size_t vertices, elements;
  OK(halocline_mesh_size(mesh, &vertices, &elements));
  TRUE(vertices == VERTICES && elements == CELLS);
  halocline_partition partitions[2];
  OK(halocline_partition_block(CELLS, size, &partitions[0]));
  OK(halocline_partition_elements(mesh, 2, size, &partitions[1]));
  for (int at = 0; at < 2; at++) {
    halocline_mesh_halos halos;
    OK(halocline_mesh_halos_create(comm, mesh, partitions[at], rank, 2, HALOCLINE_SHARED_VERTEX, 1, &halos));
    for (int32_t kind = HALOCLINE_ELEMENTS; kind <= HALOCLINE_EDGES; kind++) {
      halocline_pattern pattern, narrowed;
      OK(halocline_pattern_mesh(comm, halos, kind, &pattern));
      exchanges(comm, pattern);
      halocline_halo one = HALOCLINE_HALO_INIT;
      one.width = 1;
      OK(halocline_pattern_narrowed(pattern, &one, &narrowed));
      OK(halocline_pattern_free(&narrowed));
      OK(halocline_pattern_free(&pattern));
    }
    size_t count, corners, offsets, owned;
    OK(halocline_mesh_ids(halos, HALOCLINE_ELEMENTS, NULL, 0, &count, &owned));
    OK(halocline_mesh_connectivity(halos, NULL, 0, &corners));
    OK(halocline_mesh_offsets(halos, NULL, 0, &offsets));
    TRUE(corners == 4 * count && offsets == count + 1 && owned <= count);
    OK(halocline_mesh_edges(halos, NULL, 0, &count));
    TRUE(count > 0);
    OK(halocline_mesh_halos_free(&halos));
    OK(halocline_partition_free(&partitions[at]));
  }
  /* A depth beyond the mesh is an error on all ranks that have a neighbour. */
  halocline_partition block;
  halocline_mesh_halos halos;
  OK(halocline_partition_block(CELLS, size, &block));
  halocline_status status = halocline_mesh_halos_create(comm, mesh, block, rank, 60, 0, 0, &halos);
  TRUE(size == 1 ? status == HALOCLINE_OK : status != HALOCLINE_OK);
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "shared is 9", halocline_mesh_halos_create(comm, mesh, block, rank, 1, 9, 0, &halos));
  OK(halocline_partition_free(&block));
  OK(halocline_mesh_free(&mesh));
}

/* The cells of this rank in a ring of `each` cells a rank, with one halo cell at both ends (none on one rank alone), and their ids. */
static halocline_cells ring(uint64_t *ids, size_t rank, size_t size, size_t each) {
  uint64_t all = size * each;
  for (size_t at = 0; at < each; at++) {
    ids[at] = rank * each + at;
  }
  ids[each] = (rank * each + all - 1) % all;
  ids[each + 1] = (rank * each + each) % all;
  halocline_cells cells = HALOCLINE_CELLS_INIT;
  cells.number = rank, cells.count = each, cells.ids = ids;
  cells.halo_count = size > 1 ? 2 : 0, cells.halo_ids = ids + each;
  return cells;
}

static void of_lists(halocline_comm comm, size_t rank, size_t size) {
  enum { EACH = 5 };
  uint64_t ids[EACH + 2];
  halocline_pattern pattern;
  halocline_cells cells = ring(ids, rank, size, EACH);
  OK(halocline_pattern_unstructured(comm, &cells, 1, &pattern));
  exchanges(comm, pattern);
  OK(halocline_pattern_free(&pattern));

  size_t indices[2] = {EACH, EACH + 1};
  cells.count = EACH + cells.halo_count, cells.halo_ids = NULL, cells.halo_indices = indices;
  OK(halocline_pattern_unstructured(comm, &cells, 1, &pattern));
  exchanges(comm, pattern);
  OK(halocline_pattern_free(&pattern));

  /* A halo cell among the owned ones: there are no boxes. */
  if (size > 1) {
    uint64_t mixed[EACH + 2] = {ids[0], ids[EACH]};
    memcpy(mixed + 2, ids + 1, (EACH - 1) * sizeof *ids);
    mixed[EACH + 1] = ids[EACH + 1];
    size_t among[2] = {1, EACH + 1}, count;
    halocline_cells other = cells;
    other.ids = mixed, other.halo_indices = among;
    OK(halocline_pattern_unstructured(comm, &other, 1, &pattern));
    exchanges(comm, pattern);
    halocline_domain domain = HALOCLINE_DOMAIN_INIT;
    halocline_box box;
    OK(halocline_pattern_domain(pattern, 0, &domain));
    TRUE(domain.owned_count == EACH && domain.owned.extents[0] == 0);
    REFUSED(HALOCLINE_ERROR_ARGUMENT, "halo cells among its owned ones", halocline_domain_interior(pattern, 0, 1, &box));
    REFUSED(HALOCLINE_ERROR_ARGUMENT, "no boxes of either", halocline_domain_boundary(pattern, 0, 1, NULL, 0, &count));
    REFUSED(HALOCLINE_ERROR_ARGUMENT, "no boxes of either", halocline_domain_halo(pattern, 0, NULL, 0, &count));
    size_t owned[EACH];
    OK(halocline_domain_owned(pattern, 0, owned, EACH, &count));
    TRUE(count == EACH && owned[0] == 0 && owned[1] == 2);
    OK(halocline_pattern_free(&pattern));
  }

  if (size > 1) {
    size_t owners[EACH + 2];
    for (size_t at = 0; at < EACH + 2; at++) {
      owners[at] = ids[at] / EACH;
    }
    cells.halo_count = 0, cells.halo_indices = NULL, cells.owners = owners;
    OK(halocline_pattern_unstructured(comm, &cells, 1, &pattern));
    exchanges(comm, pattern);
    OK(halocline_pattern_free(&pattern));
  }
  cells.halo_indices = indices, cells.owners = indices;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "several forms", halocline_pattern_unstructured(comm, &cells, 1, &pattern));
}

/* The owned cells of a ring whose two neighbours are owned, and lists that do not fit. */
static void interior_of_a_ring(halocline_comm comm, size_t rank, size_t size) {
  enum { EACH = 5 };
  uint64_t ids[EACH + 2];
  halocline_cells cells = ring(ids, rank, size, EACH);
  halocline_pattern pattern;
  OK(halocline_pattern_unstructured(comm, &cells, 1, &pattern));
  size_t offsets[EACH + 3] = {0}, neighbours[2 * EACH], interior[EACH], count;
  for (size_t cell = 0; cell < EACH + cells.halo_count; cell++) {
    offsets[cell + 1] = offsets[cell] + (cell < EACH ? 2 : 0);
  }
  const size_t local_cells = EACH + cells.halo_count;
  for (size_t cell = 0; cell < EACH; cell++) {
    const uint64_t left = (ids[cell] + EACH * size - 1) % (EACH * size), right = (ids[cell] + 1) % (EACH * size);
    for (size_t other = 0; other < local_cells; other++) {
      if (ids[other] == left) neighbours[2 * cell] = other;
      if (ids[other] == right) neighbours[2 * cell + 1] = other;
    }
  }
  OK(halocline_domain_interior_by(pattern, 0, offsets, neighbours, NULL, 0, &count));
  TRUE(count == (size > 1 ? EACH - 2 : EACH));
  OK(halocline_domain_interior_by(pattern, 0, offsets, neighbours, interior, EACH, &count));
  TRUE(interior[0] == (size > 1 ? 1 : 0) && interior[count - 1] == (size > 1 ? EACH - 2 : EACH - 1));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "capacity of 1", halocline_domain_interior_by(pattern, 0, offsets, neighbours, interior, 1, &count));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "offsets is NULL", halocline_domain_interior_by(pattern, 0, NULL, neighbours, NULL, 0, &count));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "neighbours is NULL", halocline_domain_interior_by(pattern, 0, offsets, NULL, NULL, 0, &count));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "no domain 1", halocline_domain_interior_by(pattern, 1, offsets, neighbours, NULL, 0, &count));
  offsets[2] = 1;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "the neighbours of cell 1 are 2 to 1, but offsets must not fall",
          halocline_domain_interior_by(pattern, 0, offsets, neighbours, NULL, 0, &count));
  OK(halocline_pattern_free(&pattern));
}

static void unbound(halocline_comm comm, size_t rank, size_t size) {
  enum { EACH = 4 };
  uint64_t ids[EACH + 2];
  halocline_cells cells = ring(ids, rank, size, EACH);
  halocline_pattern pattern;
  OK(halocline_pattern_unstructured(comm, &cells, 1, &pattern));
  halocline_pattern_links links;
  OK(halocline_pattern_links_create(comm, &pattern, 1, NULL, &links));
  halocline_pending pending;
  for (int step = 1; step < 4; step++) {
    halocline_binding binding = {pattern, field_of(comm, EACH + cells.halo_count)};
    fill(pattern, binding.field, step);
    OK(halocline_pattern_links_exchange(links, &binding, 1, &pending));
    OK(halocline_wait(pending));
    int32_t ready = 0;
    OK(halocline_is_ready(pending, &ready));
    TRUE(ready == 1 && wrong(pattern, binding.field, step) == 0);
    OK(halocline_pattern_links_reclaim(links, &ready));
    TRUE(ready == 1);
    OK(halocline_field_free(&binding.field));
  }
  halocline_pending later = {pending.exchange, pending.epoch + 1};
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "has begun no exchange", halocline_wait(later));
  size_t length;
  halocline_link found[4];
  OK(halocline_pattern_links_links(links, NULL, 0, &length));
  TRUE(length == (size > 1 ? size > 2 ? 4 : 2 : 0));
  OK(halocline_pattern_links_links(links, found, 4, &length));
  for (size_t at = 0; at < length; at++) {
    TRUE(found[at].peer != rank && (found[at].path == HALOCLINE_LINK_MAILBOX || found[at].path == HALOCLINE_LINK_MESSAGE));
  }
  OK(halocline_pattern_links_explain(links, NULL, 0, &length));
  TRUE(length > 1);
  OK(halocline_pattern_links_free(&links));
  REFUSED(HALOCLINE_ERROR_HANDLE, "freed", halocline_wait(pending));
  OK(halocline_pattern_free(&pattern));
}

/* Sends the messages of an exchange by broadcasts. */
static void messages(halocline_comm comm, size_t rank, size_t size) {
  enum { EACH = 3, MOST = 64 };
  uint64_t ids[EACH + 2];
  halocline_cells cells = ring(ids, rank, size, EACH);
  halocline_pattern pattern;
  OK(halocline_pattern_unstructured(comm, &cells, 1, &pattern));
  halocline_binding binding = {pattern, field_of(comm, EACH + cells.halo_count)};
  halocline_halo_exchange halo;
  OK(halocline_bind(comm, &binding, 1, NULL, &halo));
  fill(pattern, binding.field, 3);
  if (size == 1) {
    size_t count;
    OK(halocline_links(halo, NULL, 0, &count));
    TRUE(count == 0);
    REFUSED(HALOCLINE_ERROR_ARGUMENT, "nothing is", halocline_message_bytes(halo, 0, HALOCLINE_SEND, &count));
  } else {
    halocline_link links[MOST];
    size_t count;
    OK(halocline_links(halo, links, MOST, &count));
    TRUE(count >= 2 && links[0].path >= HALOCLINE_LINK_PUSH && links[0].path <= HALOCLINE_LINK_LL);
    for (size_t sender = 0; sender < size; sender++) {
      size_t receivers[2] = {(sender + 1) % size, (sender + size - 1) % size};
      for (size_t at = 0; at < (size == 2 ? 1 : 2); at++) {
        char message[MOST];
        uint64_t bytes = 0;
        if (rank == sender) {
          size_t own;
          OK(halocline_message_bytes(halo, receivers[at], HALOCLINE_SEND, &own));
          bytes = own;
          OK(halocline_pack(halo, receivers[at], message, own));
          REFUSED(HALOCLINE_ERROR_ARGUMENT, "bytes", halocline_pack(halo, receivers[at], message, own + 1));
        }
        OK(halocline_comm_broadcast(comm, sender, &bytes, sizeof bytes));
        OK(halocline_comm_broadcast(comm, sender, message, bytes));
        if (rank == receivers[at]) {
          OK(halocline_unpack(halo, sender, message, bytes));
        }
      }
    }
    TRUE(wrong(pattern, binding.field, 3) == 0);
  }
  OK(halocline_halo_exchange_free(&halo));
  OK(halocline_field_free(&binding.field));
  OK(halocline_pattern_free(&pattern));
}

/* From blocks of cells to every size-th cell, and back. */
static void redistributes(halocline_comm comm, size_t rank, size_t size) {
  enum { EACH = 6 };
  uint64_t blocks[EACH], cyclic[EACH];
  for (size_t at = 0; at < EACH; at++) {
    blocks[at] = rank * EACH + at;
    cyclic[at] = at * size + rank;
  }
  halocline_cells from = HALOCLINE_CELLS_INIT, to = HALOCLINE_CELLS_INIT;
  from.number = to.number = rank, from.count = to.count = EACH, from.ids = blocks, to.ids = cyclic;
  halocline_redistribute there, back;
  OK(halocline_redistribute_unstructured(comm, &from, 1, &to, 1, &there));
  OK(halocline_redistribute_back(there, &back));
  halocline_field a = field_of(comm, EACH), b = field_of(comm, EACH);
  for (size_t at = 0; at < EACH; at++) {
    memory_of(a)[at] = (double)blocks[at];
  }
  halocline_halo_exchange move;
  OK(halocline_redistribute_bind(comm, there, &a, 1, &b, 1, NULL, &move));
  OK(halocline_exchange_and_wait(move));
  for (size_t at = 0; at < EACH; at++) {
    TRUE(memory_of(b)[at] == (double)cyclic[at]);
    memory_of(a)[at] = -1;
  }
  OK(halocline_halo_exchange_free(&move));
  OK(halocline_redistribute_bind(comm, back, &b, 1, &a, 1, NULL, &move));
  OK(halocline_exchange_and_wait(move));
  for (size_t at = 0; at < EACH; at++) {
    TRUE(memory_of(a)[at] == (double)blocks[at]);
  }
  OK(halocline_halo_exchange_free(&move));
  halocline_pattern pattern;
  OK(halocline_pattern_unstructured(comm, &from, 1, &pattern));
  halocline_field whole;
  OK(halocline_gather_to(pattern, size - 1, &a, 1, &whole));
  TRUE((whole.id != 0) == (rank == size - 1));
  if (whole.id != 0) {
    size_t extents[2], dimensions;
    ptrdiff_t strides[2];
    int32_t element;
    OK(halocline_field_describe(whole, extents, strides, 2, &dimensions, &element));
    TRUE(dimensions == 1 && extents[0] == size * EACH && strides[0] == 8 && element == HALOCLINE_F64);
    for (size_t cell = 0; cell < size * EACH; cell++) {
      TRUE(memory_of(whole)[cell] == (double)cell);
    }
  }
  OK(halocline_field_free(&whole));
  OK(halocline_pattern_free(&pattern));
  OK(halocline_field_free(&a));
  OK(halocline_field_free(&b));
  OK(halocline_redistribute_free(&there));
  OK(halocline_redistribute_free(&back));
}

static void run(halocline_comm comm, size_t rank, size_t size) {
  of_a_mesh(comm, rank, size);
  by_what_is_shared(comm, rank, size);
  other_ways_to_a_mesh(comm, rank, size);
  a_refined_mesh(comm, rank, size);
  of_lists(comm, rank, size);
  interior_of_a_ring(comm, rank, size);
  unbound(comm, rank, size);
  messages(comm, rank, size);
  redistributes(comm, rank, size);
}
