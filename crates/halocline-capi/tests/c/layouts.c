/* Element types and layouts: bytes of every size, permuted, padded and reversed strides, extra dimensions, parts of memory. */
#include "ranks.h"

/* A periodic grid of blocks of at least 3 x 2 cells. */
static halocline_pattern pattern_of(halocline_comm comm, size_t size, halocline_domain *domain) {
  const size_t extents[2] = {3 * size, 4};
  const int32_t periodic[2] = {1, 1};
  halocline_grid grid = HALOCLINE_GRID_INIT;
  grid.axes = 2, grid.extents = extents, grid.periodic = periodic;
  halocline_decomposition blocks;
  OK(halocline_decompose(&grid, size, &blocks));
  halocline_halo width = HALOCLINE_HALO_INIT;
  width.width = 1;
  halocline_pattern pattern;
  OK(halocline_pattern_regular(comm, blocks, &width, &pattern));
  OK(halocline_decomposition_free(&blocks));
  *domain = (halocline_domain)HALOCLINE_DOMAIN_INIT;
  OK(halocline_pattern_domain(pattern, 0, domain));
  return pattern;
}

/* Byte `at` of the element of a cell: `level` tells the elements of one cell apart. */
static unsigned char value(halocline_pattern pattern, size_t size, size_t i, size_t j, size_t level, size_t at) {
  const size_t local[2] = {i, j};
  int64_t global[2];
  OK(halocline_domain_global(pattern, 0, local, global));
  const size_t x = (size_t)(global[0] + 3 * (int64_t)size) % (3 * size), y = (size_t)(global[1] + 4) % 4;
  return (unsigned char)(1 + ((x * 4 + y) * 31 + level * 7 + at * 3) % 250);
}

/* A field: where each element of each cell is. */
typedef struct {
  char *base;
  /* Of the axes, and of the levels. */
  ptrdiff_t strides[3];
  size_t levels, bytes;
  /* Index of the first owned cell. */
  size_t origin[2];
} places;

static unsigned char *place(const places *of, size_t i, size_t j, size_t level, size_t at) {
  return (unsigned char *)of->base + ((ptrdiff_t)(i + of->origin[0]) - 1) * of->strides[0] +
         ((ptrdiff_t)(j + of->origin[1]) - 1) * of->strides[1] + (ptrdiff_t)level * of->strides[2] + at;
}

static void each_byte(halocline_pattern pattern, const halocline_domain *domain, size_t size, const places *of, int checks) {
  for (size_t i = 0; i < domain->extents[0]; i++) {
    for (size_t j = 0; j < domain->extents[1]; j++) {
      const int is_owned = i > 0 && i <= domain->owned.extents[0] && j > 0 && j <= domain->owned.extents[1];
      for (size_t level = 0; level < of->levels; level++) {
        for (size_t at = 0; at < of->bytes; at++) {
          unsigned char *byte = place(of, i, j, level, at), wanted = value(pattern, size, i, j, level, at);
          TRUE(!checks || *byte == wanted);
          *byte = checks || is_owned ? wanted : 0;
        }
      }
    }
  }
}

/* Exchanges a field over every path, and compares all of its bytes. */
static void exchanges(halocline_comm comm, size_t size, halocline_pattern pattern, const halocline_domain *domain,
                      halocline_field field, const places *of) {
  const int32_t paths[] = {HALOCLINE_LINK_AUTO, HALOCLINE_LINK_MESSAGE, HALOCLINE_LINK_NCCL};
  for (size_t path = 0; path < sizeof paths / sizeof *paths; path++) {
    halocline_binding binding = {pattern, field};
    halocline_bind_options options = HALOCLINE_BIND_OPTIONS_INIT;
    options.link = paths[path];
    halocline_halo_exchange halo;
    OK(halocline_bind(comm, &binding, 1, &options, &halo));
    each_byte(pattern, domain, size, of, 0);
    OK(halocline_exchange_and_wait(halo));
    each_byte(pattern, domain, size, of, 1);
    OK(halocline_halo_exchange_free(&halo));
  }
}

static void element_types(halocline_comm comm, size_t size) {
  halocline_domain domain;
  halocline_pattern pattern = pattern_of(comm, size, &domain);
  static const struct {
    int32_t element;
    size_t bytes;
  } types[] = {{HALOCLINE_I8, 1},   {HALOCLINE_U8, 1},   {HALOCLINE_I16, 2},  {HALOCLINE_U16, 2},
               {HALOCLINE_F16, 2},  {HALOCLINE_BF16, 2}, {HALOCLINE_I32, 4},  {HALOCLINE_U32, 4},
               {HALOCLINE_F32, 4},  {HALOCLINE_I64, 8},  {HALOCLINE_U64, 8},  {HALOCLINE_F64, 8},
               {HALOCLINE_C64, 8},  {HALOCLINE_C128, 16}, {HALOCLINE_BOOL, 1}, {HALOCLINE_OPAQUE(1), 1},
               {HALOCLINE_OPAQUE(3), 3}, {HALOCLINE_OPAQUE(24), 24}, {HALOCLINE_OPAQUE(255), 255}, {HALOCLINE_OPAQUE(256), 256}};
  for (size_t type = 0; type < sizeof types / sizeof *types; type++) {
    halocline_layout layout = HALOCLINE_LAYOUT_INIT;
    layout.dimensions = 2, layout.extents = domain.extents, layout.element = types[type].element;
    halocline_field field;
    OK(halocline_field_allocate(comm, &layout, &field));
    places of = {.levels = 1, .bytes = types[type].bytes, .origin = {1, 1}};
    void *base;
    size_t dimensions;
    int32_t element;
    OK(halocline_field_base(field, &base));
    OK(halocline_field_describe(field, NULL, of.strides, 3, &dimensions, &element));
    TRUE(dimensions == 2 && element == types[type].element && of.strides[1] == (ptrdiff_t)of.bytes);
    of.base = base;
    exchanges(comm, size, pattern, &domain, field, &of);
    OK(halocline_field_free(&field));
  }
  OK(halocline_pattern_free(&pattern));
}

/* Fields of the program with these strides of x, y and the level, in bytes; negative ones begin at the end. */
static void strides(halocline_comm comm, size_t size) {
  halocline_domain domain;
  halocline_pattern pattern = pattern_of(comm, size, &domain);
  enum { LEVELS = 3, BYTES = 8, MOST = 1 << 15 };
  const ptrdiff_t nx = (ptrdiff_t)domain.extents[0], ny = (ptrdiff_t)domain.extents[1];
  const ptrdiff_t forms[][3] = {
      {ny * LEVELS * BYTES, LEVELS * BYTES, BYTES},           /* C order */
      {BYTES, nx * BYTES, nx * ny * BYTES},                   /* Fortran order */
      {ny * BYTES, BYTES, nx * ny * BYTES},                   /* levels first */
      {ny * LEVELS * 24, LEVELS * 24, 24},                    /* gaps between elements */
      {-ny * LEVELS * BYTES, LEVELS * BYTES, BYTES},          /* x reversed */
      {ny * LEVELS * BYTES, -LEVELS * BYTES, -BYTES},         /* y and levels reversed */
  };
  for (size_t form = 0; form < sizeof forms / sizeof *forms; form++) {
    char *bytes = malloc(MOST);
    places of = {.base = bytes, .levels = LEVELS, .bytes = BYTES, .origin = {1, 1}};
    const size_t extents[3] = {domain.extents[0], domain.extents[1], LEVELS};
    for (size_t dimension = 0; dimension < 3; dimension++) {
      of.strides[dimension] = forms[form][dimension];
      of.base -= of.strides[dimension] < 0 ? of.strides[dimension] * (ptrdiff_t)(extents[dimension] - 1) : 0;
    }
    halocline_memory memory = HALOCLINE_MEMORY_INIT;
    memory.base = of.base, memory.release = free, memory.context = bytes;
    halocline_layout layout = HALOCLINE_LAYOUT_INIT;
    layout.dimensions = 3, layout.extents = extents, layout.strides = of.strides, layout.element = HALOCLINE_F64;
    halocline_field field;
    OK(halocline_field_create(&memory, &layout, &field));
    exchanges(comm, size, pattern, &domain, field, &of);
    OK(halocline_field_free(&field));
  }
  OK(halocline_pattern_free(&pattern));
}

/* The axes are dimensions 2 and 0; dimension 1 has levels. */
static void named_axes(halocline_comm comm, size_t size) {
  halocline_domain domain;
  halocline_pattern pattern = pattern_of(comm, size, &domain);
  const size_t extents[3] = {domain.extents[1], 5, domain.extents[0]}, axes[2] = {2, 0};
  halocline_layout layout = HALOCLINE_LAYOUT_INIT;
  layout.dimensions = 3, layout.extents = extents, layout.element = HALOCLINE_I32;
  layout.axes = axes, layout.axis_count = 2;
  halocline_field field;
  OK(halocline_field_allocate(comm, &layout, &field));
  ptrdiff_t found[3];
  size_t dimensions;
  void *base;
  OK(halocline_field_describe(field, NULL, found, 3, &dimensions, NULL));
  OK(halocline_field_base(field, &base));
  places of = {.base = base, .strides = {found[2], found[0], found[1]}, .levels = 5, .bytes = 4, .origin = {1, 1}};
  exchanges(comm, size, pattern, &domain, field, &of);
  OK(halocline_field_free(&field));
  OK(halocline_pattern_free(&pattern));
}

/* A larger array, and a part of it as a field of its own. */
static void padding_and_parts(halocline_comm comm, size_t size) {
  halocline_domain domain;
  halocline_pattern pattern = pattern_of(comm, size, &domain);
  const size_t extents[2] = {domain.extents[0] + 3, domain.extents[1] + 5}, origin[2] = {2, 3};
  halocline_layout layout = HALOCLINE_LAYOUT_INIT;
  layout.dimensions = 2, layout.extents = extents, layout.element = HALOCLINE_F64;
  layout.origin = origin, layout.origin_count = 2, layout.padded = 1;
  halocline_field field, part;
  OK(halocline_field_allocate(comm, &layout, &field));
  places of = {.levels = 1, .bytes = 8, .origin = {2, 3}};
  void *base;
  size_t dimensions;
  OK(halocline_field_base(field, &base));
  OK(halocline_field_describe(field, NULL, of.strides, 3, &dimensions, NULL));
  of.base = base;
  exchanges(comm, size, pattern, &domain, field, &of);

  halocline_layout of_part = HALOCLINE_LAYOUT_INIT;
  of_part.dimensions = 2, of_part.extents = domain.extents, of_part.strides = of.strides, of_part.element = HALOCLINE_F64;
  char *first = of.base + 2 * of.strides[0] + 4 * of.strides[1];
  OK(halocline_field_view(field, first, &of_part, &part));
  const places in_part = {.base = first, .strides = {of.strides[0], of.strides[1], 0}, .levels = 1, .bytes = 8, .origin = {1, 1}};
  exchanges(comm, size, pattern, &domain, part, &in_part);
  REFUSED(HALOCLINE_ERROR_ARGUMENT, "", halocline_field_view(field, first + extents[0] * (size_t)of.strides[0], &of_part, &part));
  OK(halocline_field_free(&part));
  OK(halocline_field_free(&field));
  OK(halocline_pattern_free(&pattern));
}

/* Rank 0 has other elements of the same size than the others. */
static void other_names_are_refused(halocline_comm comm, size_t rank, size_t size) {
  if (size == 1) {
    return;
  }
  halocline_domain domain;
  halocline_pattern pattern = pattern_of(comm, size, &domain);
  halocline_layout layout = HALOCLINE_LAYOUT_INIT;
  layout.dimensions = 2, layout.extents = domain.extents, layout.element = HALOCLINE_F64;
  layout.name = rank == 0 ? "kelvin" : "celsius";
  halocline_field field;
  OK(halocline_field_allocate(comm, &layout, &field));
  halocline_binding binding = {pattern, field};
  halocline_halo_exchange halo;
  halocline_status status = halocline_bind(comm, &binding, 1, NULL, &halo);
  TRUE(status == HALOCLINE_ERROR_ARGUMENT || status == HALOCLINE_ERROR_ELSEWHERE);
  TRUE(strstr(halocline_error_message(), "kelvin") != NULL || strstr(halocline_error_message(), "celsius") != NULL);
  OK(halocline_comm_barrier(comm));
  OK(halocline_field_free(&field));
  OK(halocline_pattern_free(&pattern));
}

static void run(halocline_comm comm, size_t rank, size_t size) {
  element_types(comm, size);
  strides(comm, size);
  named_axes(comm, size);
  padding_and_parts(comm, size);
  other_names_are_refused(comm, rank, size);
}
