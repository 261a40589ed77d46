/* The halos of ICON, of a mesh, of the grid file GRID and of an icosahedral grid: as processes, or as threads with `icon N`. */
#include "ranks.h"

enum { CELLS = 1280, EDGES = 1920, VERTICES = 642 };

/* A kind of cells of a part: its global ids, and how many are owned. */
typedef struct {
  uint64_t ids[EDGES];
  size_t count, owned;
} kind_of_part;

static void ids_of(halocline_mesh_halos halos, int32_t kind, kind_of_part *found) {
  OK(halocline_mesh_ids(halos, kind, found->ids, EDGES, &found->count, &found->owned));
}

/* Exchanges a field; afterwards each local cell has its id. */
static void exchanges(halocline_comm comm, halocline_mesh_halos halos, int32_t kind) {
  static _Thread_local kind_of_part cells;
  ids_of(halos, kind, &cells);
  halocline_layout layout = HALOCLINE_LAYOUT_INIT;
  layout.dimensions = 1, layout.extents = &cells.count, layout.element = HALOCLINE_F64;
  halocline_binding binding;
  OK(halocline_pattern_mesh(comm, halos, kind, &binding.pattern));
  OK(halocline_field_allocate(comm, &layout, &binding.field));
  void *base;
  OK(halocline_field_base(binding.field, &base));
  double *values = base;
  for (size_t cell = 0; cell < cells.count; cell++) {
    values[cell] = cell < cells.owned ? (double)cells.ids[cell] : -1;
  }
  halocline_halo_exchange halo;
  OK(halocline_bind(comm, &binding, 1, NULL, &halo));
  OK(halocline_exchange_and_wait(halo));
  for (size_t cell = 0; cell < cells.count; cell++) {
    TRUE(values[cell] == (double)cells.ids[cell]);
  }
  OK(halocline_halo_exchange_free(&halo));
  OK(halocline_field_free(&binding.field));
  OK(halocline_pattern_free(&binding.pattern));
}

/* The tables of a part beside those of the file, which count from 1. */
static void tables(halocline_icon_grid grid, halocline_mesh_halos halos) {
  static _Thread_local kind_of_part cells, edges, vertices;
  static _Thread_local double of_cells[3 * CELLS], of_edges[2 * EDGES];
  static _Thread_local uint32_t cell_edges[CELLS][3], edge_cells[EDGES][2], ends[EDGES][2], corners[3 * CELLS];
  ids_of(halos, HALOCLINE_ELEMENTS, &cells);
  ids_of(halos, HALOCLINE_EDGES, &edges);
  ids_of(halos, HALOCLINE_VERTICES, &vertices);
  size_t count;
  OK(halocline_icon_cell_edges(halos, cell_edges, CELLS, &count));
  TRUE(count == cells.count);
  OK(halocline_icon_grid_read(grid, "edge_of_cell", cells.ids, cells.count, of_cells, 3 * CELLS, &count));
  TRUE(count == 3 * cells.count);
  for (size_t at = 0; at < count; at++) {
    TRUE(edges.ids[cell_edges[at / 3][at % 3]] + 1 == (uint64_t)of_cells[at]);
  }
  OK(halocline_mesh_connectivity(halos, corners, 3 * CELLS, &count));
  TRUE(count == 3 * cells.count);
  OK(halocline_icon_grid_read(grid, "vertex_of_cell", cells.ids, cells.count, of_cells, 3 * CELLS, &count));
  for (size_t at = 0; at < count; at++) {
    TRUE(vertices.ids[corners[at]] + 1 == (uint64_t)of_cells[at]);
  }
  OK(halocline_mesh_edges(halos, ends, EDGES, &count));
  TRUE(count == edges.count);
  OK(halocline_icon_grid_read(grid, "edge_vertices", edges.ids, edges.count, of_edges, 2 * EDGES, &count));
  for (size_t at = 0; at < count; at++) {
    TRUE(vertices.ids[ends[at / 2][at % 2]] + 1 == (uint64_t)of_edges[at]);
  }
  OK(halocline_icon_edge_cells(halos, edge_cells, EDGES, &count));
  TRUE(count == edges.count);
  OK(halocline_icon_grid_read(grid, "adjacent_cell_of_edge", edges.ids, edges.count, of_edges, 2 * EDGES, &count));
  for (size_t at = 0; at < count; at++) {
    const uint32_t cell = edge_cells[at / 2][at % 2];
    /* Owned edges have both their cells here. */
    TRUE(cell != HALOCLINE_NO_CELL || at / 2 >= edges.owned);
    TRUE(cell == HALOCLINE_NO_CELL || cells.ids[cell] + 1 == (uint64_t)of_edges[at]);
  }
}

static void part_of_a_file(halocline_comm comm, size_t rank, size_t size) {
  static _Thread_local kind_of_part of_file, of_mesh;
  halocline_icon_grid grid;
  halocline_mesh mesh;
  halocline_partition partition;
  halocline_mesh_halos halos, same;
  size_t cells, edges, vertices, count;
  OK(halocline_icon_grid_open(comm, GRID, &grid));
  OK(halocline_icon_grid_size(grid, &cells, &edges, &vertices));
  TRUE(cells == CELLS && edges == EDGES && vertices == VERTICES);
  OK(halocline_icon_grid_size(grid, NULL, NULL, NULL));
  OK(halocline_icon_grid_mesh(grid, &mesh));
  OK(halocline_partition_elements(mesh, 2, size, &partition));
  OK(halocline_icon_grid_part(comm, grid, partition, rank, &halos));
  OK(halocline_mesh_icon_halos(comm, mesh, partition, rank, &same));
  const int32_t kinds[] = {HALOCLINE_ELEMENTS, HALOCLINE_VERTICES, HALOCLINE_EDGES};
  for (size_t kind = 0; kind < 3; kind++) {
    ids_of(halos, kinds[kind], &of_file);
    ids_of(same, kinds[kind], &of_mesh);
    TRUE(of_file.count == of_mesh.count && of_file.owned == of_mesh.owned);
    /* The edges of a mesh have other numbers. */
    TRUE(kinds[kind] == HALOCLINE_EDGES || memcmp(of_file.ids, of_mesh.ids, of_file.count * sizeof *of_file.ids) == 0);
    exchanges(comm, halos, kinds[kind]);
    exchanges(comm, same, kinds[kind]);
  }
  tables(grid, halos);
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "make them by `halocline_icon_grid_part`",
          halocline_icon_cell_edges(same, NULL, 0, &count));
  OK(halocline_mesh_halos_free(&same));
  OK(halocline_mesh_halos_free(&halos));
  OK(halocline_partition_free(&partition));
  OK(halocline_mesh_free(&mesh));
  OK(halocline_icon_grid_free(&grid));
  TRUE(grid.id == 0);
}

/* What one rank is refused is an error on all ranks. */
static void refusals(halocline_comm comm, size_t rank, size_t size) {
  halocline_icon_grid grid;
  halocline_partition partition;
  halocline_mesh_halos halos;
  const halocline_status wanted = rank == 0 ? HALOCLINE_ERROR_ARGUMENT : HALOCLINE_ERROR_ELSEWHERE;
  REFUSED(wanted, "cannot read no-such-file.nc: No such file",
          halocline_icon_grid_open(comm, rank == 0 ? "no-such-file.nc" : GRID, &grid));
  REFUSED(wanted, "path is NULL", halocline_icon_grid_open(comm, rank == 0 ? NULL : GRID, &grid));
  OK(halocline_icon_grid_open(comm, GRID, &grid));
  OK(halocline_partition_block(CELLS - 1, size, &partition));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "the mesh has 1280 elements", halocline_icon_grid_part(comm, grid, partition, rank, &halos));
  OK(halocline_partition_free(&partition));
  OK(halocline_partition_block(CELLS, size, &partition));
  REFUSED(wanted, "there is no part", halocline_icon_grid_part(comm, grid, partition, rank == 0 ? size : rank, &halos));
  const uint64_t ids[2] = {0, CELLS};
  double value;
  size_t count;
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "has no variable cloud", halocline_icon_grid_read(grid, "cloud", ids, 1, &value, 1, &count));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "there is no column 1280", halocline_icon_grid_read(grid, "clon", ids, 2, &value, 1, &count));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "capacity of 1", halocline_icon_grid_read(grid, "edge_of_cell", ids, 1, &value, 1, &count));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "ids", halocline_icon_grid_read(grid, "clon", NULL, 1, &value, 1, &count));
  OK(halocline_icon_grid_read(grid, "edge_of_cell", ids, 1, NULL, 0, &count));
  TRUE(count == 3);
  OK(halocline_icon_grid_free(&grid));
  REFUSED(HALOCLINE_ERROR_HANDLE, "halocline_icon_grid", halocline_icon_grid_size(grid, &count, NULL, NULL));
  const uint32_t corners[4] = {0, 1, 2, 3};
  halocline_mesh tetrahedron;
  halocline_partition one;
  OK(halocline_mesh_create(4, 1, 4, corners, 1, &tetrahedron));
  OK(halocline_partition_block(1, 1, &one));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "ask for `halocline_mesh_halos_create`",
          halocline_mesh_icon_halos(comm, tetrahedron, one, 0, &halos));
  OK(halocline_partition_free(&one));
  OK(halocline_mesh_free(&tetrahedron));
  OK(halocline_partition_free(&partition));
}

/* A grid that needs no file. */
static void icosahedral(halocline_comm comm, size_t rank, size_t size) {
  static _Thread_local double points[VERTICES][3];
  halocline_mesh mesh, refused = {7};
  halocline_partition partition;
  halocline_mesh_halos halos;
  size_t count, vertices, cells;
  OK(halocline_icosahedral_grid(3, &mesh, points, VERTICES, &count));
  TRUE(count == VERTICES);
  OK(halocline_mesh_size(mesh, &vertices, &cells));
  TRUE(vertices == VERTICES && cells == CELLS);
  for (size_t at = 0; at < count; at++) {
    const double *p = points[at], off = p[0] * p[0] + p[1] * p[1] + p[2] * p[2] - 1;
    TRUE(-1e-14 < off && off < 1e-14);
  }
  OK(halocline_partition_elements(mesh, 2, size, &partition));
  OK(halocline_mesh_icon_halos(comm, mesh, partition, rank, &halos));
  exchanges(comm, halos, HALOCLINE_ELEMENTS);
  exchanges(comm, halos, HALOCLINE_EDGES);
  OK(halocline_mesh_halos_free(&halos));
  OK(halocline_partition_free(&partition));
  OK(halocline_mesh_free(&mesh));
  OK(halocline_icosahedral_grid(0, &mesh, NULL, 0, &count));
  TRUE(count == 12);
  OK(halocline_mesh_free(&mesh));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "642 are needed", halocline_icosahedral_grid(3, &refused, points, VERTICES - 1, &count));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "at most 13", halocline_icosahedral_grid(14, &refused, NULL, 0, &count));
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "mesh is NULL", halocline_icosahedral_grid(0, NULL, NULL, 0, &count));
  TRUE(refused.id == 7);
}

static void run(halocline_comm comm, size_t rank, size_t size) {
  part_of_a_file(comm, rank, size);
  icosahedral(comm, rank, size);
  refusals(comm, rank, size);
}
