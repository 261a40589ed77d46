// Regular grids in C++: every decomposition, local and global indices, fields of several domains, exchanges of fields known at the call.
#include "ranks.hpp"

#include <fstream>

static double value(const std::array<std::int64_t, 2> &at) { return static_cast<double>(at[0] * 100 + at[1]); }

// A grid without periodic axes, and a field of doubles on each domain of this rank.
struct fields_of {
  hc::pattern pattern;
  std::array<std::int64_t, 2> extents;
  std::vector<hc::field> fields;
  std::vector<hc::view<double, 2>> views;
  std::vector<hc::binding> bindings;
  std::vector<const hc::field *> list;

  fields_of(const hc::comm &comm, const hc::decomposition &blocks) : pattern(blocks.pattern(comm, 1)), extents{} {
    const hc::decomposition::description grid = blocks.describe();
    for (std::size_t axis = 0; axis < 2; axis++) extents[axis] = static_cast<std::int64_t>(grid.extents[axis]);
    for (std::size_t index = 0; index < pattern.domains(); index++) {
      const hc::domain domain = pattern.domain(index);
      const hc::field whole = hc::field::allocate(comm, hc::layout(HALOCLINE_F64, domain.extents));
      fields.push_back(whole.on_domain(domain.number));
      views.push_back(fields.back().elements<double, 2>());
    }
    for (const hc::field &field : fields) {
      bindings.emplace_back(pattern, field);
      list.push_back(&field);
    }
  }

  // Calls `visit` with each element of the fields, whether it is owned and whether it is in the grid, and its value.
  template <typename Visit>
  void each(Visit visit) const {
    for (std::size_t index = 0; index < views.size(); index++) {
      const hc::box owned = pattern.domain(index).owned;
      for (std::size_t i = 0; i < views[index].extent(0); i++) {
        for (std::size_t j = 0; j < views[index].extent(1); j++) {
          const std::array<std::int64_t, 2> at = pattern.global<2>({i, j}, index);
          const bool is_owned = i - owned.first[0] < owned.extents[0] && j - owned.first[1] < owned.extents[1];
          const bool is_in = at[0] >= 0 && at[0] < extents[0] && at[1] >= 0 && at[1] < extents[1];
          visit(views[index](i, j), is_owned, is_in, value(at));
        }
      }
    }
  }
  void fill() const {
    each([](double &element, bool is_owned, bool, double wanted) { element = is_owned ? wanted : -1; });
  }
  std::size_t wrong() const {
    std::size_t wrong = 0;
    each([&](double element, bool, bool is_in, double wanted) { wrong += element != (is_in ? wanted : -1); });
    return wrong;
  }
};

static void exchanges(const hc::comm &comm, const hc::decomposition &blocks) {
  const fields_of of(comm, blocks);
  const hc::halo_exchange halo(comm, of.bindings);
  of.fill();
  halo.exchange_and_wait();
  TRUE(of.wrong() == 0);
}

static void decompositions(const hc::comm &comm) {
  const std::size_t size = comm.size();
  hc::regular_grid grid({4 * size, 6});
  const hc::decomposition chosen = grid.decompose_into({size, 1}, size);
  const hc::decomposition::description blocks = chosen.describe();
  TRUE(blocks.ranks == size && blocks.domains == size);
  TRUE(blocks.extents == (std::vector<std::size_t>{4 * size, 6}) && blocks.blocks == (std::vector<std::size_t>{size, 1}));
  exchanges(comm, chosen);

  // The first block has one row, the last one the rest.
  std::vector<std::size_t> cuts;
  for (std::size_t cut = 1; cut < size; cut++) cuts.push_back(cut);
  const hc::decomposition at = grid.decompose_at({cuts, {}}, size);
  TRUE(at.describe().blocks == (std::vector<std::size_t>{size, 1}));
  const std::size_t rows = at.pattern(comm, 1).domain().owned.extents[0];
  TRUE(rows == (comm.rank() + 1 < size ? 1 : 3 * size + 1));
  exchanges(comm, at);
  THROWS(HALOCLINE_ERROR_ARGUMENT, "one list for each axis", grid.decompose_at({cuts}, size));

  // Rank 0 has two boxes.
  std::vector<hc::grid_box> boxes;
  for (std::size_t rank = 0; rank < size; rank++) {
    boxes.push_back({rank, {4 * rank, rank == 0 ? 2u : 0u}, {4, rank == 0 ? 4u : 6u}});
  }
  boxes.push_back({0, {0, 0}, {4, 2}});
  const hc::decomposition by_boxes = grid.decompose_boxes(boxes, size);
  TRUE(by_boxes.describe().domains == size + 1 && by_boxes.describe().blocks == (std::vector<std::size_t>{0, 0}));
  TRUE(by_boxes.pattern(comm, 1).domains() == (comm.rank() == 0 ? 2 : 1));
  exchanges(comm, by_boxes);
  boxes[0].first.pop_back();
  THROWS(HALOCLINE_ERROR_ARGUMENT, "for each axis", grid.decompose_boxes(boxes, size));

  const hc::decomposition points = chosen.staggered({1, 0});
  TRUE(points.describe().extents == (std::vector<std::size_t>{4 * size + 1, 6}));
  exchanges(comm, points);
  THROWS(HALOCLINE_ERROR_ARGUMENT, "for each axis", chosen.staggered({1}));
}

static void indices(const hc::comm &comm) {
  const hc::pattern pattern = hc::regular_grid({3 * comm.size(), 5}).decompose(comm.size()).pattern(comm, 1);
  const hc::domain domain = pattern.domain();
  for (std::size_t i = 0; i < domain.owned.extents[0]; i++) {
    for (std::size_t j = 0; j < domain.owned.extents[1]; j++) {
      const std::array<std::size_t, 2> local{domain.owned.first[0] + i, domain.owned.first[1] + j};
      TRUE(pattern.local<2>(pattern.global<2>(local)) == local);
    }
  }
  TRUE(!pattern.local<2>({-100, 0}));
  THROWS(HALOCLINE_ERROR_ARGUMENT, "the domain has 2 axes, and the shape 3; ask for as many as it has", domain.shape<3>());
  const char *message = "the domain has 2 axes, and the array ";
  THROWS(HALOCLINE_ERROR_ARGUMENT, message, pattern.global<1>({1}));
  THROWS(HALOCLINE_ERROR_ARGUMENT, message, (pattern.global<3>({1, 1, 1})));
  THROWS(HALOCLINE_ERROR_ARGUMENT, message, pattern.local<1>({0}));
  THROWS(HALOCLINE_ERROR_ARGUMENT, message, (pattern.local<4>({0, 0, 0, 0})));
}

// Two domains on each rank, which gather and save put together.
static void several_domains(const hc::comm &comm) {
  const std::size_t size = comm.size(), last = size - 1;
  const hc::decomposition blocks = hc::regular_grid({4 * size, 6}).domains_per_rank(2).decompose(size);
  const fields_of of(comm, blocks);
  TRUE(of.fields.size() == 2);
  exchanges(comm, blocks);
  of.fill();
  const hc::field whole = hc::gather_to(of.pattern, last, of.list);
  TRUE(static_cast<bool>(whole) == (comm.rank() == last));
  if (whole) {
    TRUE(whole.extents() == (std::vector<std::size_t>{4 * size, 6}) && whole.element() == HALOCLINE_F64);
    TRUE(whole.strides() == (std::vector<std::ptrdiff_t>{48, 8}));
    const auto elements = whole.elements<const double, 2>();
    for (std::size_t i = 0; i < elements.extent(0); i++) {
      for (std::size_t j = 0; j < elements.extent(1); j++) {
        TRUE(elements(i, j) == value({static_cast<std::int64_t>(i), static_cast<std::int64_t>(j)}));
      }
    }
    THROWS(HALOCLINE_ERROR_ARGUMENT, "another type", (whole.elements<float, 2>()));
    THROWS(HALOCLINE_ERROR_ARGUMENT, "number of dimensions", (whole.elements<double, 1>()));
  }

  std::array<char, 64> folder{"/tmp/halocline-grids-XXXXXX"};
  if (comm.rank() == 0) TRUE(mkdtemp(folder.data()) != nullptr);
  comm.broadcast(0, hc::span<char>(folder));
  const std::string path = std::string(folder.data()) + "/t.npy";
  hc::save(of.pattern, path, of.list);
  if (comm.rank() == 0) {
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    TRUE(file.good() && static_cast<std::size_t>(file.tellg()) > 4 * size * 6 * sizeof(double));
    file.seekg(-static_cast<std::streamoff>(sizeof(double)), std::ios::end);
    double found = 0;
    file.read(reinterpret_cast<char *>(&found), sizeof found);
    TRUE(found == value({static_cast<std::int64_t>(4 * size - 1), 5}));
    TRUE(std::remove(path.c_str()) == 0 && std::remove(folder.data()) == 0);
  }
}

// Fields that are given to each exchange.
static void links(const hc::comm &comm) {
  const hc::decomposition blocks = hc::regular_grid({4 * comm.size(), 6}).domains_per_rank(2).decompose(comm.size());
  const fields_of of(comm, blocks);
  const hc::pattern_links links(comm, {&of.pattern});
  for (int step = 0; step < 3; step++) {
    of.fill();
    links.exchange(of.bindings).wait();
    TRUE(of.wrong() == 0 && links.reclaim());
  }
  TRUE(links.links().size() % 2 == 0 && links.links().empty() == (comm.size() == 1));
  TRUE(links.explain().find("rank") != std::string::npos);
  // Without a stream of a GPU nothing can be scheduled, and nothing packed on one.
  THROWS(HALOCLINE_ERROR_ARGUMENT, "", links.schedule(of.bindings));
  const hc::halo_exchange halo(comm, of.bindings);
  char message[8];
  THROWS(HALOCLINE_ERROR_HANDLE, "is null", halo.pack_on(0, message, sizeof message, hc::stream()));
  THROWS(HALOCLINE_ERROR_HANDLE, "is null", halo.unpack_on(0, message, sizeof message, hc::stream()));
}

static void names_of_layouts(const hc::comm &comm) {
  const hc::pattern pattern = hc::regular_grid({4 * comm.size()}).decompose(comm.size()).pattern(comm, 1);
  const auto field_named = [&](const char *name) {
    return hc::field::allocate(comm, hc::layout(HALOCLINE_OPAQUE(8), pattern.domain().extents).name(name));
  };
  const hc::field same = field_named("day"), different = field_named(comm.rank() == 0 ? "day" : "hour");
  hc::halo_exchange(comm, {{pattern, same}}).exchange_and_wait();
  if (comm.size() == 1) return;
  try {
    hc::halo_exchange(comm, {{pattern, different}});
    TRUE(false);
  } catch (const hc::error &error) {
    // Ranks 0 and 1 see the difference, the others hear of it.
    TRUE(error.status() == (comm.rank() < 2 ? HALOCLINE_ERROR_ARGUMENT : HALOCLINE_ERROR_ELSEWHERE));
    TRUE(std::string(error.what()).find("day") != std::string::npos);
  }
}

static void names_and_versions() {
  TRUE(hc::abi_version() == HALOCLINE_ABI_VERSION && hc::version().find('.') != std::string::npos);
  TRUE(hc::status_name(HALOCLINE_ERROR_BUSY) == "HALOCLINE_ERROR_BUSY" && hc::status_name(12345).empty());
}

static void of_fortran(const hc::comm &comm) {
  if (comm.transport() == "mpi") {
    // 0 is MPI_COMM_WORLD of Open MPI.
    TRUE(hc::comm::from_fortran(0).size() == comm.size());
  } else {
    THROWS(HALOCLINE_ERROR_MPI, "", hc::comm::from_fortran(0));
  }
}

static void run(const hc::comm &comm) {
  names_and_versions();
  of_fortran(comm);
  decompositions(comm);
  indices(comm);
  several_domains(comm);
  links(comm);
  names_of_layouts(comm);
}
