/* Grid files of ICON: triangles, edges and vertices, of which each rank reads its part; and icosahedral grids without a file. Included by
 * halocline.h, which has the rules that hold for all calls. */
#ifndef HALOCLINE_ICON_H
#define HALOCLINE_ICON_H

#include "mesh.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An open grid file of ICON: a NetCDF file, classic or NetCDF-4. The grid covers the Earth or a limited area. Cells, edges and vertices are
 * numbered as in the file, but from 0. */
typedef struct halocline_icon_grid {
  uint64_t id;
} halocline_icon_grid;

/* Opens a grid file. Collective, so that a file that some ranks cannot read is an error on all ranks. */
halocline_status halocline_icon_grid_open(halocline_comm comm, const char *path, halocline_icon_grid *grid);

/* Stores the numbers of cells, edges and vertices. Each pointer may be NULL. */
halocline_status halocline_icon_grid_size(halocline_icon_grid grid, size_t *cells, size_t *edges, size_t *vertices);

/* Stores all cells with their vertices, for a partition by METIS. Reads `vertex_of_cell` in full. Local. */
halocline_status halocline_icon_grid_mesh(halocline_icon_grid grid, halocline_mesh *mesh);

/* Stores the domains of part `part` of a partition of the cells, with the halos and owners of ICON (halocline_mesh_icon_halos). Elements are
 * the cells. Reads the columns of `vertex_of_cell`, `cells_of_vertex`, `edge_of_cell`, `edge_vertices` and `adjacent_cell_of_edge` that are in
 * the part or near it; without `cells_of_vertex` it reads `vertex_of_cell` in full, twice. Collective, so that a file that some ranks find
 * damaged is an error on all ranks. */
halocline_status halocline_icon_grid_part(halocline_comm comm, halocline_icon_grid grid, halocline_partition partition,
                                          size_t part, halocline_mesh_halos *halos);

/* Stores the values of a variable, such as "clon", for the listed cells, edges or vertices: those along its last dimension. A variable with
 * two dimensions has several values for each of them, which follow each other. Local. */
halocline_status halocline_icon_grid_read(halocline_icon_grid grid, const char *name, const uint64_t *ids, size_t id_count,
                                          double *values, size_t capacity, size_t *count);

/* What halocline_icon_edge_cells stores where no cell is, or one that is not local. */
#define HALOCLINE_NO_CELL UINT32_MAX

/* Stores the three local edges of each local cell, in the order of the file. `capacity` and `count` count cells. `halos` come from
 * halocline_icon_grid_part. */
halocline_status halocline_icon_cell_edges(halocline_mesh_halos halos, uint32_t (*edges)[3], size_t capacity, size_t *count);

/* Stores the two local cells beside each local edge, in the order of the file. `capacity` and `count` count edges. `halos` come from
 * halocline_icon_grid_part. */
halocline_status halocline_icon_edge_cells(halocline_mesh_halos halos, uint32_t (*cells)[2], size_t capacity, size_t *count);

/* Closes a grid file. */
halocline_status halocline_icon_grid_free(halocline_icon_grid *grid);

/* Stores a grid of triangles on the sphere, as ICON and DYNAMICO use it: an icosahedron whose edges are bisected `bisections` times, at most
 * 13, so that each of its 20 faces becomes 4^bisections triangles. The middle of each edge is moved to the sphere. Stores in `points` each
 * vertex as a point of the unit sphere; there are 10 * 4^bisections + 2. Local.
 * Triangle t of one bisection becomes the triangles 4 t to 4 t + 3 of the next one: those at its corners, then the one in its middle.
 * Vertices keep their numbers. Corners are counterclockwise seen from outside. */
halocline_status halocline_icosahedral_grid(size_t bisections, halocline_mesh *mesh, double (*points)[3], size_t capacity, size_t *count);

#ifdef __cplusplus
}
#endif

#endif
