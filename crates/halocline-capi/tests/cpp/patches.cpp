// Grids of patches in C++: halos of a tile of the cubed sphere, a fold with signs, other layouts, descriptions, errors.
#include "ranks.hpp"

using cell = std::array<std::int64_t, 2>;

// A number for each value of each patch and component.
static double number(std::size_t patch, std::size_t component, const cell &at) {
  return static_cast<double>(static_cast<std::int64_t>(patch * 2 + component) * 10000 + at[0] * 100 + at[1] + 1);
}

// A quantity on a grid of patches, and a field of doubles on each domain of each component.
struct fields_of {
  hc::patch_decomposition blocks;
  hc::quantity quantity;
  std::vector<hc::pattern> patterns;
  std::vector<std::size_t> components;
  std::vector<hc::domain> domains;
  std::vector<hc::field> fields;
  std::vector<hc::binding> bindings;

  fields_of(const hc::comm &comm, const hc::patch_grid &grid, const hc::quantity &of, std::size_t width)
      : blocks(grid.decompose(comm.size())), quantity(of) {
    hc::pattern pattern = blocks.pattern(comm, width, of);
    const std::size_t count = of.get().components;
    for (std::size_t component = 0; component < count && count > 1; component++) {
      patterns.push_back(pattern.component(component));
    }
    if (count == 1) patterns.push_back(std::move(pattern));
    for (std::size_t component = 0; component < count; component++) {
      for (std::size_t at = 0; at < patterns[component].domains(); at++) {
        const hc::domain domain = patterns[component].domain(at);
        const hc::field whole = hc::field::allocate(comm, hc::layout(HALOCLINE_F64, domain.extents));
        fields.push_back(whole.on_domain(domain.number));
        domains.push_back(domain);
        components.push_back(component);
      }
    }
    for (std::size_t at = 0; at < fields.size(); at++) bindings.emplace_back(patterns[components[at]], fields[at]);
  }

  // Calls `visit` with each element, its patch, component and index there, and whether its domain holds it.
  template <typename Visit>
  void each(Visit visit) const {
    for (std::size_t field = 0; field < fields.size(); field++) {
      const hc::patch_block block = blocks.block(domains[field].number, quantity, components[field]);
      const hc::view<double, 2> view = fields[field].elements<double, 2>();
      const hc::box owned = domains[field].owned;
      for (std::size_t i = 0; i < view.extent(0); i++) {
        for (std::size_t j = 0; j < view.extent(1); j++) {
          const bool is_held = i - owned.first[0] < owned.extents[0] && j - owned.first[1] < owned.extents[1];
          const cell at{static_cast<std::int64_t>(block.first[0] + i) - static_cast<std::int64_t>(owned.first[0]),
                         static_cast<std::int64_t>(block.first[1] + j) - static_cast<std::int64_t>(owned.first[1])};
          visit(view(i, j), block.patch, components[field], at, is_held);
        }
      }
    }
  }

  void exchange(const hc::comm &comm) const {
    each([](double &value, std::size_t patch, std::size_t component, const cell &at, bool is_held) {
      value = is_held ? number(patch, component, at) : 0;
    });
    hc::halo_exchange(comm, bindings).exchange_and_wait();
  }
};

// Around tile 0 lie tile 1 in the east and tile 5 in the south, both upright, tile 2 in the north and tile 4 in the west, both turned.
static void around_a_tile(const hc::comm &comm) {
  const std::int64_t n = 6;
  const fields_of scalars(comm, hc::patch_grid::cubed_sphere(6), hc::quantity::cells(), 2);
  scalars.exchange(comm);
  scalars.each([&](double value, std::size_t patch, std::size_t, const cell &at, bool) {
    if (patch != 0) return;
    const bool row_is_in = at[0] >= 0 && at[0] < n, column_is_in = at[1] >= 0 && at[1] < n;
    double wanted = number(0, 0, at);
    if (!row_is_in && !column_is_in) wanted = 0;
    if (row_is_in && at[1] >= n) wanted = number(1, 0, {at[0], at[1] - n});
    if (row_is_in && at[1] < 0) wanted = number(4, 0, {n + at[1], n - 1 - at[0]});
    if (column_is_in && at[0] >= n) wanted = number(2, 0, {n - 1 - at[1], at[0] - n});
    if (column_is_in && at[0] < 0) wanted = number(5, 0, {n + at[0], at[1]});
    TRUE(value == wanted);
  });

  // West of tile 0, rows continue as columns of tile 4 that run backwards, columns as its rows.
  const fields_of vectors(comm, hc::patch_grid::cubed_sphere(6), hc::quantity::cell_vectors(), 1);
  vectors.exchange(comm);
  vectors.each([&](double value, std::size_t patch, std::size_t component, const cell &at, bool) {
    if (patch != 0 || at[1] >= 0 || at[0] < 0 || at[0] >= n) return;
    const double sign = component == 0 ? -1 : 1;
    TRUE(value == sign * number(4, 1 - component, {n + at[1], n - 1 - at[0]}));
  });

  // Corners of three tiles, through the side of axis 1 first: behind the east of tile 0 lies tile 1, and north of that tile 2.
  const fields_of filled(comm, hc::patch_grid::cubed_sphere(6).corners_through(1), hc::quantity::cells(), 1);
  filled.exchange(comm);
  filled.each([&](double value, std::size_t patch, std::size_t, const cell &at, bool) {
    if (patch == 0 && at == cell{n, n}) TRUE(value == number(2, 0, {0, 0}));
  });
}

// NEMO's U and V points behind the fold of ORCA1: U of column j is that of column n - 2 - j, with the other sign.
static void fold(const hc::comm &comm) {
  const std::int64_t rows = 6, columns = 8;
  using hc::along;
  const hc::quantity velocity = hc::quantity::vector({along::high_faces, along::centre}, {along::centre, along::high_faces});
  const fields_of of(comm, hc::patch_grid::tripolar({6, 8}, hc::pivot::corner), velocity, 2);
  of.exchange(comm);
  of.each([&](double value, std::size_t, std::size_t component, const cell &at, bool) {
    if (at[0] < rows) return;
    const std::int64_t j = ((at[1] % columns) + columns) % columns, back = at[0] - rows;
    const cell v{rows - 2 - back, columns - 1 - j}, u{rows - 1 - back, (2 * columns - 2 - j) % columns};
    TRUE(value == -number(0, component, component == 0 ? v : u));
  });
}

// Low faces along the columns of ORCA2: the face of column j is that of column n + 1 - j.
static void low_faces(const hc::comm &comm) {
  const std::int64_t rows = 6, columns = 8;
  const fields_of of(comm, hc::patch_grid::tripolar({6, 8}, hc::pivot::cell),
                     hc::quantity::scalar({hc::along::centre, hc::along::low_faces}), 2);
  of.exchange(comm);
  of.each([&](double value, std::size_t, std::size_t component, const cell &at, bool) {
    if (at[0] < rows) return;
    const std::int64_t j = ((at[1] % columns) + columns) % columns;
    TRUE(value == number(0, component, {2 * rows - 2 - at[0], (columns + 1 - j) % columns}));
  });
}

static void layouts(const hc::comm &comm) {
  const std::vector<hc::patch_grid::pair> extents{{4, 6}, {5, 4}};
  const hc::seam seam = hc::join_reversed(hc::high_side(0, 1), hc::low_side(1, 0));
  const hc::patch_grid grid(extents, {seam});
  TRUE(grid.extents() == extents && grid.seams().size() == 1);
  TRUE(grid.seams()[0].kind == HALOCLINE_SEAM_JOIN_REVERSED && grid.seams()[0].other.patch == 1);
  const hc::patch_decomposition cut = grid.decompose_into({{2, 2}, {1, 1}}, comm.size());
  const hc::patch_decomposition::description blocks = cut.describe();
  TRUE(blocks.ranks == comm.size() && blocks.domains == 5);
  TRUE(blocks.blocks == (std::vector<std::array<std::size_t, 2>>{{2, 2}, {1, 1}}));
  const hc::patch_block last = cut.block(4);
  TRUE(last.patch == 1 && last.owner == comm.size() - 1 && last.extents == (std::array<std::size_t, 2>{5, 4}));

  // East of domain 3 lies patch 1, whose columns run against the rows of patch 0.
  std::size_t cells = 0;
  for (const hc::patch_transfer &moved : cut.transfers(cut.block(3).owner, 1)) {
    if (moved.from != 4 || moved.to != 3) continue;
    TRUE(moved.is_swapped == 1 && moved.is_flipped[0] == 1 && moved.is_flipped[1] == 0 && moved.is_negated == 0);
    cells += moved.extents[0] * moved.extents[1];
  }
  TRUE(cells == 3);
  TRUE(cut.domains_of(comm.size() - 1).back() == 4);

  const hc::patch_grid tripolar({{6, 8}}, {hc::join(hc::low_side(0, 1), hc::high_side(0, 1)), hc::fold(hc::high_side(0, 0), hc::pivot::cell)});
  TRUE(tripolar.seams()[1].kind == HALOCLINE_SEAM_FOLD_CELL);
  const hc::patch_grid globe = hc::patch_grid::latitude_longitude({6, 8});
  TRUE(globe.seams().size() == 3 && globe.seams()[2].kind == hc::pole(hc::high_side(0, 0)).kind);
  TRUE(hc::patch_grid::lat_lon_cap(2).extents()[4] == (hc::patch_grid::pair{2, 6}));
  TRUE(hc::quantity::scalar({hc::along::faces, hc::along::faces}).get().places[0][1] == hc::quantity::corners().get().places[0][1]);
  TRUE(hc::quantity::c_grid().get().places[1][1] == HALOCLINE_ALONG_FACES);
  TRUE(hc::quantity::d_grid().get().places[0][1] == HALOCLINE_ALONG_FACES);
}

static void refused(const hc::comm &comm) {
  const hc::patch_grid grid = hc::patch_grid::cubed_sphere(4);
  THROWS(HALOCLINE_ERROR_ARGUMENT, "patch 0 has 0 cells", hc::patch_grid::cubed_sphere(0));
  TRUE(hc::cubed_sphere_point(1, {0.5, 0.5})[1] == 1);
  THROWS(HALOCLINE_ERROR_ARGUMENT, "the cubed sphere has tiles 0 to 5", hc::cubed_sphere_point(6, {0.5, 0.5}));
  THROWS(HALOCLINE_ERROR_ARGUMENT, "a pair of numbers for each patch", grid.decompose_into({{1, 1}}, 1));
  THROWS(HALOCLINE_ERROR_ARGUMENT, "must be even", hc::patch_grid::tripolar({4, 7}, hc::pivot::cell));
  const hc::patch_decomposition cut = grid.decompose(comm.size());
  THROWS(HALOCLINE_ERROR_ARGUMENT, "there is no domain 99", cut.block(99));
  THROWS(HALOCLINE_ERROR_ARGUMENT, "rank", cut.transfers(comm.size(), 1));
  THROWS(HALOCLINE_ERROR_ARGUMENT, "at most 4 wide", cut.pattern(comm, 5));
  THROWS(HALOCLINE_ERROR_ARGUMENT, "component 0 of a pattern with 0", cut.pattern(comm, 1).component(0));
}

static void run(const hc::comm &comm) {
  around_a_tile(comm);
  fold(comm);
  low_faces(comm);
  layouts(comm);
  refused(comm);
}
