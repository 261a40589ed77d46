/* Grids of patches: the cubed sphere, tripolar grids, grids with poles, and other joined patches. Included by halocline.h, which has the
 * rules that hold for all calls.
 *
 * A patch has rows and columns of cells: axis 0 counts its rows, axis 1 its columns. Seams join sides of patches. Calls that make grids
 * and decompositions are local and do not wait: all ranks compute the same. */
#ifndef HALOCLINE_PATCHES_H
#define HALOCLINE_PATCHES_H

#include "core.h"
#include "pattern.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Patches, and the seams that join their sides. */
typedef struct halocline_patch_grid {
  uint64_t id;
} halocline_patch_grid;

/* A grid of patches cut into blocks, each a domain of one rank. */
typedef struct halocline_patch_decomposition {
  uint64_t id;
} halocline_patch_decomposition;

/* Where the turning point of a fold lies. */
enum {
  /* On the centre of cell 0 (a T point, as in ORCA2): the second half of the last row repeats the first. */
  HALOCLINE_PIVOT_CELL = 0,
  /* On the corner before cell 0 (an F point, as in ORCA1 and MOM6). */
  HALOCLINE_PIVOT_CORNER = 1
};

/* How a seam joins its sides. */
enum {
  /* Two sides: coordinates along them run in the same direction. */
  HALOCLINE_SEAM_JOIN = 0,
  /* Two sides: coordinates along them run in opposite directions. */
  HALOCLINE_SEAM_JOIN_REVERSED = 1,
  /* A side folded onto itself about the centre of its cell 0. */
  HALOCLINE_SEAM_FOLD_CELL = 2,
  /* A side folded onto itself about the corner before its cell 0. */
  HALOCLINE_SEAM_FOLD_CORNER = 3,
  /* A side joined with itself across a pole: shifted by half the cells along it. */
  HALOCLINE_SEAM_POLE = 4
};

/* One of the four sides of a patch. */
typedef struct halocline_patch_side {
  /* The number of the patch. */
  size_t patch;
  /* The axis that leaves the patch through this side: 0 or 1. */
  size_t axis;
  /* 1 for the side behind the last cell of the axis, 0 for the side before its first one. */
  int32_t is_high;
} halocline_patch_side;

/* Two sides that are joined, or one that is folded or a pole. */
typedef struct halocline_seam {
  /* HALOCLINE_SEAM_JOIN, _JOIN_REVERSED, _FOLD_CELL, _FOLD_CORNER or _POLE. */
  int32_t kind;
  /* A side. */
  halocline_patch_side one;
  /* The side that it is joined with. Not read of a fold or a pole. */
  halocline_patch_side other;
} halocline_seam;

/* Where values lie along an axis of a patch with n cells. */
enum {
  /* At the centres of the cells: n values. */
  HALOCLINE_ALONG_CENTRE = 0,
  /* At all faces, those of both sides included: n + 1 values, value i at the low face of cell i. */
  HALOCLINE_ALONG_FACES = 1,
  /* At the high face of each cell: n values, as NEMO's U and V points. */
  HALOCLINE_ALONG_HIGH_FACES = 2,
  /* At the low face of each cell: n values, as the staggered arrays of Oceananigans and MITgcm. */
  HALOCLINE_ALONG_LOW_FACES = 3
};

/* What a field holds: a scalar, or the two components of a vector, and where the values lie. Component 0 is along axis 0. */
typedef struct halocline_quantity {
  /* sizeof(halocline_quantity). */
  size_t size;
  /* 1 for scalars, 2 for vectors. */
  size_t components;
  /* HALOCLINE_ALONG_... of each component along each axis: places[component][axis]. */
  int32_t places[2][2];
} halocline_quantity;

/* Scalars at the centres of the cells. */
#define HALOCLINE_QUANTITY_INIT {sizeof(halocline_quantity), 1, {{0, 0}, {0, 0}}}
/* Scalars at all corners of cells. */
#define HALOCLINE_QUANTITY_CORNERS_INIT {sizeof(halocline_quantity), 1, {{1, 1}, {0, 0}}}
/* Vectors at the centres of the cells (an A grid). */
#define HALOCLINE_QUANTITY_CELL_VECTORS_INIT {sizeof(halocline_quantity), 2, {{0, 0}, {0, 0}}}
/* Vectors whose components lie at the faces that they cross (a C grid). */
#define HALOCLINE_QUANTITY_C_GRID_INIT {sizeof(halocline_quantity), 2, {{1, 0}, {0, 1}}}
/* Vectors whose components lie at the faces along which they point (a D grid). */
#define HALOCLINE_QUANTITY_D_GRID_INIT {sizeof(halocline_quantity), 2, {{0, 1}, {1, 0}}}

/* Stores a grid of `patches` patches, joined by `seam_count` seams. `extents[2 * i]` is the number of rows of patch i,
 * `extents[2 * i + 1]` that of its columns. A side without a seam is a border: halo cells behind it are never filled.
 * Errors: no patch; a patch without cells; more than 2^60 cells, or 2^58 along an axis; a kind of seam or an `is_high` that does not
 * exist; a side that does not exist or is in two seams; a side joined with itself; joined sides of different lengths; a fold or pole of an
 * odd number of cells, or of a patch whose other axis is not periodic; one row of cells that is folded about its cells at both sides. */
halocline_status halocline_patch_grid_create(const size_t *extents, size_t patches, const halocline_seam *seams,
                                             size_t seam_count, halocline_patch_grid *grid);

/* Stores the cubed sphere: six patches of n x n cells, joined as the tiles of FV3. Patches 0, 1, 3 and 4 lie around the equator, patch 2
 * on the north pole, patch 5 on the south pole. Errors: no cells; more than 2^60. */
halocline_status halocline_patch_grid_cubed_sphere(size_t n, halocline_patch_grid *grid);

/* Stores the unit vector to a point of tile 0 to 5 of the cubed sphere, in an equiangular projection. `along` has the coordinates of the
 * point along both axes of the tile, from 0 at the low side to 1 at the high side. Errors: another tile, or a coordinate
 * that is not above -0.5 and below 1.5, where the projection ends. */
halocline_status halocline_cubed_sphere_point(size_t tile, const double along[2], double point[3]);

/* Stores the five patches of an LLC grid (lat-lon-cap): 3 n x n, 3 n x n, n x n, n x 3 n and n x 3 n cells. Errors: no cells; more than
 * 2^60. */
halocline_status halocline_patch_grid_lat_lon_cap(size_t n, halocline_patch_grid *grid);

/* Stores a tripolar grid: rows from south to north, columns around the Earth, folded at its northern side. `pivot` is HALOCLINE_PIVOT_CELL
 * or HALOCLINE_PIVOT_CORNER. `rows` and `columns` leave out what a model adds as halo: 148 x 180 of NEMO's ORCA2. Errors: no cells; more
 * than 2^60, or 2^58 along an axis; an odd number of columns; another pivot. */
halocline_status halocline_patch_grid_tripolar(size_t rows, size_t columns, int32_t pivot, halocline_patch_grid *grid);

/* Stores a grid of rows from the south pole to the north pole, and columns around the Earth. Errors: no cells; more than 2^60, or 2^58 along
 * an axis; an odd number of columns. */
halocline_status halocline_patch_grid_latitude_longitude(size_t rows, size_t columns, halocline_patch_grid *grid);

/* Stores the same grid, where halo cells behind corners of three patches are filled with the cells that are reached through the side of
 * this axis first. Without it an exchange leaves them unchanged. Errors: an axis other than 0 and 1; a grid without such a corner. */
halocline_status halocline_patch_grid_corners_through(halocline_patch_grid grid, size_t axis, halocline_patch_grid *filled);

/* Stores the rows and the columns of each patch: two elements for each. */
halocline_status halocline_patch_grid_extents(halocline_patch_grid grid, size_t *extents, size_t capacity, size_t *count);

/* Stores the seams. Of a fold and of a pole, `other` is the same as `one`. */
halocline_status halocline_patch_grid_seams(halocline_patch_grid grid, halocline_seam *seams, size_t capacity, size_t *count);

/* Frees a grid. Decompositions of it stay valid. */
halocline_status halocline_patch_grid_free(halocline_patch_grid *grid);

/* Cuts the patches into blocks: 1 for each rank, or 2, and so on, until no rank has more than 1.05 times the mean number of cells. Each
 * patch has short cuts. If no number of blocks up to 12 for each rank balances so well, ranks may differ more. Domains are
 * numbered patch by patch, in row-major order within each, and dealt out to the ranks in turn. Errors: 0 ranks; more ranks than cells, or
 * more than 2^32 - 1; of a grid of more than 2^32 - 1 cells also hardly fewer ranks, if no numbers of blocks are found. */
halocline_status halocline_patch_decompose(halocline_patch_grid grid, size_t ranks,
                                           halocline_patch_decomposition *decomposition);

/* Cuts patch i into `blocks[2 * i]` blocks along its rows' axis and `blocks[2 * i + 1]` along its columns' axis. `blocks` has two elements
 * for each patch. Blocks along an axis differ by at most one cell. Errors: 0 ranks; an axis with no block, or with more blocks than cells;
 * fewer blocks than ranks. */
halocline_status halocline_patch_decompose_into(halocline_patch_grid grid, const size_t *blocks, size_t ranks,
                                                halocline_patch_decomposition *decomposition);

/* Stores the numbers of ranks and of domains, and the blocks of each patch along both axes: two elements for each patch. `ranks` and
 * `domains` may be NULL. */
halocline_status halocline_patch_decomposition_describe(halocline_patch_decomposition decomposition, size_t *ranks,
                                                        uint64_t *domains, size_t *blocks, size_t capacity, size_t *count);

/* Stores the domains of a rank: from `first` on, and below `end`. Error: a rank that does not exist. */
halocline_status halocline_patch_decomposition_domains_of(halocline_patch_decomposition decomposition, size_t rank,
                                                          uint64_t *first, uint64_t *end);

/* A part of a patch. */
typedef struct halocline_patch_block {
  /* sizeof(halocline_patch_block). */
  size_t size;
  /* The number of the patch. */
  size_t patch;
  /* Its first value along each axis of the patch. */
  size_t first[2];
  /* Its number of values along each axis. */
  size_t extents[2];
  /* The rank that owns it. */
  size_t owner;
} halocline_patch_block;

#define HALOCLINE_PATCH_BLOCK_INIT {sizeof(halocline_patch_block), 0, {0, 0}, {0, 0}, 0}

/* Stores the values of a component of a quantity that a domain holds. `quantity` may be NULL, for cells. Set `size` of `block`. Errors: a
 * domain or a component that does not exist. */
halocline_status halocline_patch_decomposition_block(halocline_patch_decomposition decomposition, uint64_t domain,
                                                     const halocline_quantity *quantity, size_t component,
                                                     halocline_patch_block *block);

/* Values of one domain that fill halo cells of another, or of the same one. Indices count from the first value that a domain holds: those
 * of halo cells may be negative. */
typedef struct halocline_patch_transfer {
  /* The domain that owns the values. */
  uint64_t from;
  /* The domain whose halo cells are filled. */
  uint64_t to;
  /* The rank that owns `from`. */
  size_t from_rank;
  /* The rank that owns `to`. */
  size_t to_rank;
  /* The component of the values; 0 for scalars. */
  size_t from_component;
  /* The component that is filled. */
  size_t to_component;
  /* The index of the first value of the source box along each axis. */
  int64_t source[2];
  /* The index of the first value of the target box along each axis. */
  int64_t target[2];
  /* The number of values of the target box along each axis. */
  size_t extents[2];
  /* 1 if axis 0 of the target is axis 1 of the source, and axis 1 is axis 0; else 0. */
  int32_t is_swapped;
  /* 1 for each axis of the target along which values are read backwards, else 0. */
  int32_t is_flipped[2];
  /* 1 if the values change their sign, else 0. */
  int32_t is_negated;
} halocline_patch_transfer;

/* Stores all transfers that a rank sends, receives or makes within itself, to fill halos of a quantity. Local: for programs that send
 * messages themselves, and to look at a pattern of any rank. Two ranks list the transfers between them in the same order. `quantity` may
 * be NULL, for cells. Errors: a rank that does not exist; those of halocline_pattern_patches. */
halocline_status halocline_patch_transfers(halocline_patch_decomposition decomposition, size_t rank,
                                           const halocline_quantity *quantity, const halocline_halo *halo,
                                           halocline_patch_transfer *transfers, size_t capacity, size_t *count);

/* Frees a decomposition. Patterns of it stay valid. */
halocline_status halocline_patch_decomposition_free(halocline_patch_decomposition *decomposition);

/* Stores the pattern of a quantity on patches, with a halo of two axes. `quantity` may be NULL, for cells. All ranks pass the same.
 * Collective; blocks until all ranks have called it.
 *
 * A domain's array holds the values of its cells, those of the last faces of its patch, and the halo. Values that several patches hold (on
 * a side that they share, or in the row that a fold folds onto itself) have one owner; the others are copies, which an exchange fills
 * like halo cells. Vectors have two fields for each domain: bind those of each component with its halocline_pattern_component.
 * Errors: a decomposition for another number of ranks; widths for another number of axes than 2; a quantity that the seams do not continue,
 * or whose values on a side no patch holds; a halo that is wider than the patch behind a seam; a halo around more than 2^60 cells, of more
 * than 2^20 pieces, or across more than 16 seams; a value with more than 96 places. */
halocline_status halocline_pattern_patches(halocline_comm comm, halocline_patch_decomposition decomposition,
                                           const halocline_quantity *quantity, const halocline_halo *halo,
                                           halocline_pattern *pattern);

/* Stores the pattern with the domains of one component of its vectors, 0 or 1. Fields bound with it belong to that component. It is the
 * same pattern: bind both components in one exchange. Local. Error: the pattern is not one of vectors. */
halocline_status halocline_pattern_component(halocline_pattern pattern, size_t component, halocline_pattern *of_component);

#ifdef __cplusplus
}
#endif

#endif
