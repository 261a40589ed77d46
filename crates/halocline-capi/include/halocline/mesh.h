/* Unstructured domains: lists of cells with global ids; meshes, partitions and the halos that they make. Included by halocline.h,
 * which has the rules that hold for all calls. */
#ifndef HALOCLINE_MESH_H
#define HALOCLINE_MESH_H

#include "core.h"
#include "pattern.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An unstructured domain of this rank: the global ids of its cells, and which of them are halo, in one of three forms.
 *
 *   halo_ids       `ids` are the owned cells, `halo_ids` the halo cells. The local order is all owned cells, then all halo cells.
 *                  Without any halo all cells are owned.
 *   halo_indices   `ids` are all cells in local order; those at the local indices `halo_indices` are halo.
 *   owners         `ids` are all cells in local order; `owners[i]` is the rank that owns cell i. Those of this rank are owned.
 *
 * Where a call takes several structs, all have the same `size`. */
typedef struct halocline_cells {
  /* sizeof(halocline_cells). */
  size_t size;
  /* The number of the domain, which no other domain of any rank has. */
  uint64_t number;
  /* The number of elements of `ids`, and of `owners`. */
  size_t count;
  /* Global ids. */
  const uint64_t *ids;
  /* The number of elements of `halo_ids` or `halo_indices`. */
  size_t halo_count;
  /* Global ids of the halo cells, or NULL. */
  const uint64_t *halo_ids;
  /* Local indices of the halo cells, or NULL. */
  const size_t *halo_indices;
  /* The owner of each cell, or NULL. */
  const size_t *owners;
  /* The number of elements of `levels`; 0: the halo has depth 1. */
  size_t level_count;
  /* For a pattern that can be narrowed: `levels[d]` is the end, in local order, of the cells of a halo of depth d, owned cells
   * included. */
  const size_t *levels;
} halocline_cells;

#define HALOCLINE_CELLS_INIT {sizeof(halocline_cells), 0, 0, NULL, 0, NULL, NULL, NULL, 0, NULL}

/* Stores the pattern of `count` domains of this rank. A distributed directory finds the owners of halo cells: no rank holds more than
 * its share of the ids. A rank may have no domain. Collective. */
halocline_status halocline_pattern_unstructured(halocline_comm comm, const halocline_cells *cells, size_t count,
                                                halocline_pattern *pattern);

/* Stores the global ids of the cells of this rank's domain `index`, in local order. None of a regular domain. */
halocline_status halocline_domain_ids(halocline_pattern pattern, size_t index, uint64_t *ids, size_t capacity, size_t *count);

/* Stores the local indices of the owned cells of this rank's domain `index`, ascending. None of a regular domain. */
halocline_status halocline_domain_owned(halocline_pattern pattern, size_t index, size_t *indices, size_t capacity, size_t *count);

/* Stores the local indices of the owned cells of this rank's unstructured domain `index` whose neighbours are all owned, ascending: those
 * to compute while the exchange is in flight. The neighbours of cell i are neighbours[offsets[i]] to neighbours[offsets[i + 1] - 1], local
 * indices; those of halo cells do not matter. An index that no cell of the domain has stands for a cell that the rank does not hold.
 * `offsets` has one element more than the domain has cells, halo included. */
halocline_status halocline_domain_interior_by(halocline_pattern pattern, size_t index, const size_t *offsets,
                                              const size_t *neighbours, size_t *indices, size_t capacity, size_t *count);

/* A mesh: the vertices of each element. */
typedef struct halocline_mesh {
  uint64_t id;
} halocline_mesh;

/* The rank that owns each cell. */
typedef struct halocline_partition {
  uint64_t id;
} halocline_partition;

/* The domains of one part of a mesh: elements, vertices and edges, owned and halo. */
typedef struct halocline_mesh_halos {
  uint64_t id;
} halocline_mesh_halos;

/* Stores a whole mesh whose elements all have `arity` vertices. `connectivity` lists the vertices of element 0, then those of element 1,
 * and so on; vertices and elements count from 0, and these numbers are their global ids. `solid`: 1 for tetrahedra, pyramids, prisms and
 * hexahedra in VTK's order of vertices, 0 for polygons with vertices in order around them. Local. */
halocline_status halocline_mesh_create(size_t vertices, size_t elements, size_t arity, const uint32_t *connectivity,
                                       int32_t solid, halocline_mesh *mesh);

/* As halocline_mesh_create, for elements of different arity: element e has the vertices connectivity[offsets[e]] to
 * connectivity[offsets[e + 1] - 1]. `offsets` has one element more than there are elements. Local. */
halocline_status halocline_mesh_create_mixed(size_t vertices, size_t elements, const size_t *offsets,
                                             const uint32_t *connectivity, int32_t solid, halocline_mesh *mesh);

/* Stores the part of a mesh that is too large to be stored on every rank. `local` has the local elements and vertices, `vertex_ids`
 * and `element_ids` their global ids, `partition` the part of each local element. It serves halos up to `depth` elements deep
 * around part `part`: all elements within depth + 1 steps of that part, across shared vertices, must be present. Local. */
halocline_status halocline_mesh_part(halocline_mesh local, const uint64_t *vertex_ids, const uint64_t *element_ids,
                                     halocline_partition partition, size_t part, size_t depth, halocline_mesh *mesh);

/* Stores part `part` of a finer mesh, for halos up to `depth` elements deep: each edge of the triangles of `mesh` is cut into
 * `segments` segments. No rank stores the finer mesh. Local. */
halocline_status halocline_mesh_refined(halocline_mesh mesh, halocline_partition partition, size_t part, size_t segments,
                                        size_t depth, halocline_mesh *refined);

/* Stores the numbers of vertices and of elements of a mesh, or of the local part of one. Each pointer may be NULL. */
halocline_status halocline_mesh_size(halocline_mesh mesh, size_t *vertices, size_t *elements);

/* Stores the vertices of each element of a mesh, or of the local part of one, one element after the other: local numbers in a part. */
halocline_status halocline_mesh_element_vertices(halocline_mesh mesh, uint32_t *vertices, size_t capacity, size_t *count);

/* Stores where the vertices of each element begin in halocline_mesh_element_vertices: one element more than there are elements. */
halocline_status halocline_mesh_element_offsets(halocline_mesh mesh, size_t *offsets, size_t capacity, size_t *count);

/* Stores the partition of `cells` cells into consecutive blocks, whose sizes differ by at most one. Local. */
halocline_status halocline_partition_block(size_t cells, size_t ranks, halocline_partition *partition);

/* Stores the partition in which cell i belongs to rank owners[i]. Local. */
halocline_status halocline_partition_given(const size_t *owners, size_t cells, size_t ranks, halocline_partition *partition);

/* Stores METIS' multilevel k-way partition of a graph: the neighbours of cell i are neighbours[offsets[i]] to
 * neighbours[offsets[i + 1] - 1]. The same graph gives the same partition on every rank of a machine. While it runs, METIS handles
 * SIGABRT and SIGTERM itself. Local. */
halocline_status halocline_partition_graph(size_t cells, const size_t *offsets, const uint32_t *neighbours, size_t ranks,
                                           halocline_partition *partition);

/* As halocline_partition_graph, of the elements of a whole mesh; elements are neighbours if they share `common` vertices. Local. */
halocline_status halocline_partition_elements(halocline_mesh mesh, size_t common, size_t ranks,
                                              halocline_partition *partition);

/* As halocline_partition_graph, of the vertices of a whole mesh; vertices of a common element are neighbours. Local. */
halocline_status halocline_partition_vertices(halocline_mesh mesh, size_t ranks, halocline_partition *partition);

/* Stores the partition by recursive coordinate bisection: the cells are halved across the axis along which they are spread the most, then
 * each half likewise, until there are `ranks` parts, also if that is no power of two. Cell i lies at points[i * dimensions] to
 * points[(i + 1) * dimensions - 1]; `dimensions` is 1, 2 or 3. `weights` has one for each cell, 0 or more, and each cut balances their sums;
 * NULL: part sizes differ by at most one cell. All ranks that pass the same get the same. Local. */
halocline_status halocline_partition_bisection(const double *points, size_t cells, size_t dimensions, const double *weights,
                                               size_t ranks, halocline_partition *partition);

/* Stores a graph of a whole mesh, for a partitioner of the program: the neighbours of cell i are neighbours[offsets[i]] to
 * neighbours[offsets[i + 1] - 1]. `kind` is HALOCLINE_VERTICES, where vertices of a common element are neighbours, or HALOCLINE_ELEMENTS, where
 * elements are that share at least `common` vertices; `common` is not used for vertices. `offsets` has one element more than there are
 * cells; NULL: it is not stored. Local. */
halocline_status halocline_mesh_graph(halocline_mesh mesh, int32_t kind, size_t common, size_t *offsets, uint32_t *neighbours,
                                      size_t capacity, size_t *count);

/* Stores the number of cells of each rank; `count` is the number of ranks. */
halocline_status halocline_partition_counts(halocline_partition partition, size_t *counts, size_t capacity, size_t *count);

/* Stores the rank of each cell. */
halocline_status halocline_partition_owners(halocline_partition partition, size_t *owners, size_t capacity, size_t *count);

/* What two neighbouring elements share. */
enum {
  /* At least one vertex. */
  HALOCLINE_SHARED_VERTEX = 0,
  /* At least one edge. */
  HALOCLINE_SHARED_EDGE = 1,
  /* A facet: a face of solids, an edge of polygons. */
  HALOCLINE_SHARED_FACET = 2
};

/* Stores the domains of part `part` of a mesh with halos `depth` elements deep; `shared` says which elements are neighbours. A part is
 * usually a rank. The partition is of the elements; for a part of a mesh (halocline_mesh_part, halocline_mesh_refined) partition and
 * part are those of that call, and these are ignored. A vertex or an edge belongs to the lowest part that owns an element around it.
 * Local order: owned cells by ascending global number, then the halo by depth, owner and number. `edges`: 1 to find the edges, too.
 * Collective, so that a depth beyond the mesh is an error on all ranks. */
halocline_status halocline_mesh_halos_create(halocline_comm comm, halocline_mesh mesh, halocline_partition partition,
                                             size_t part, size_t depth, int32_t shared, int32_t edges,
                                             halocline_mesh_halos *halos);

/* As halocline_mesh_halos_create, with the halos and owners of ICON, and with edges. The elements are polygons; a part of a mesh was made for
 * a depth of 1 or more. The cutting line consists of the edges between elements of the part and of others.
 *   level 1   elements with an edge on the cutting line; vertices and edges on it that belong to other parts
 *   level 2   all other elements with a vertex on the cutting line; all other vertices of the elements; all other edges with a vertex on
 *             the cutting line
 *   level 3   all other edges of the elements
 * A vertex or an edge on the cutting line belongs to the highest part beside it. Collective. */
halocline_status halocline_mesh_icon_halos(halocline_comm comm, halocline_mesh mesh, halocline_partition partition, size_t part,
                                           halocline_mesh_halos *halos);

/* Stores the domains of part `part` of a whole mesh for a partition of its vertices. An element belongs to the lowest part that owns one of its
 * vertices. Local are the owned vertices and those of owned elements, all elements around these, and the vertices of all those elements. No
 * edges. Collective. */
halocline_status halocline_mesh_domains_by_vertex(halocline_comm comm, halocline_mesh mesh, halocline_partition partition,
                                                  size_t part, halocline_mesh_halos *halos);

/* As halocline_mesh_domains_by_vertex, for a partition of the elements. A vertex belongs to the lowest part that owns an element around it,
 * one of no element to part 0. Unlike those of halocline_mesh_halos_create the halos have all elements around owned vertices and no
 * depth. Collective. */
halocline_status halocline_mesh_domains_by_element(halocline_comm comm, halocline_mesh mesh, halocline_partition partition,
                                                   size_t part, halocline_mesh_halos *halos);

/* A kind of cells of a mesh. */
enum { HALOCLINE_ELEMENTS = 0, HALOCLINE_VERTICES = 1, HALOCLINE_EDGES = 2 };

/* Stores the pattern of fields on the elements, vertices or edges. It can be narrowed to any smaller depth. Collective. */
halocline_status halocline_pattern_mesh(halocline_comm comm, halocline_mesh_halos halos, int32_t kind,
                                        halocline_pattern *pattern);

/* Stores the global ids of the local elements, vertices or edges, in local order, and in `owned` (may be NULL) how many are owned: they
 * come first. An edge has the number 2^32 times the lower of its vertices' numbers plus the higher one; of a grid file (icon.h) it has that of
 * the file. */
halocline_status halocline_mesh_ids(halocline_mesh_halos halos, int32_t kind, uint64_t *ids, size_t capacity, size_t *count,
                                    size_t *owned);

/* Stores the local vertices of each local element, one element after the other. */
halocline_status halocline_mesh_connectivity(halocline_mesh_halos halos, uint32_t *vertices, size_t capacity, size_t *count);

/* Stores where the vertices of each local element begin in halocline_mesh_connectivity: one element more than there are elements. */
halocline_status halocline_mesh_offsets(halocline_mesh_halos halos, size_t *offsets, size_t capacity, size_t *count);

/* Stores the two local vertices at the ends of each local edge, the one with the lower global number first; of a grid file (icon.h) in the
 * order of the file. `capacity` and `count` count edges. */
halocline_status halocline_mesh_edges(halocline_mesh_halos halos, uint32_t (*ends)[2], size_t capacity, size_t *count);

/* Frees a mesh. */
halocline_status halocline_mesh_free(halocline_mesh *mesh);

/* Frees a partition. */
halocline_status halocline_partition_free(halocline_partition *partition);

/* Frees the domains of a part of a mesh. */
halocline_status halocline_mesh_halos_free(halocline_mesh_halos *halos);

#ifdef __cplusplus
}
#endif

#endif
