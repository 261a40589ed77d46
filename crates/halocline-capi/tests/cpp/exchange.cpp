// The C++ interface: as a process, or as threads with `exchange N`.
#include "ranks.hpp"

#include <numeric>

constexpr std::int64_t NX = 12, NY = 10;

static double value(const std::array<std::int64_t, 2> &at) {
  return static_cast<double>((at[0] + NX) % NX * NY + (at[1] + NY) % NY);
}

// Fills owned cells with their values, the halo with -1.
static void fill(const hc::pattern &pattern, const hc::view<double, 2> &t) {
  const hc::domain domain = pattern.domain();
  for (std::size_t i = 0; i < t.extent(0); i++) {
    for (std::size_t j = 0; j < t.extent(1); j++) {
      const bool owned = i - domain.owned.first[0] < domain.owned.extents[0] && j - domain.owned.first[1] < domain.owned.extents[1];
      t(i, j) = owned ? value(pattern.global<2>({i, j})) : -1;
    }
  }
}

static std::size_t wrong(const hc::pattern &pattern, const hc::view<double, 2> &t) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < t.extent(0); i++) {
    for (std::size_t j = 0; j < t.extent(1); j++) wrong += t(i, j) != value(pattern.global<2>({i, j}));
  }
  return wrong;
}

static void regular(const hc::comm &comm) {
  const hc::decomposition blocks =
      hc::regular_grid({NX, NY}).periodic({true, true}).decompose(comm.size());
  const hc::pattern pattern = blocks.pattern(comm, 1);
  hc::array<double, 2> a(comm, pattern.domain().shape<2>());
  const hc::halo_exchange halo(comm, {{pattern, a}}, hc::bind_options().name("a").deadline(60));
  fill(pattern, a.view());
  const hc::pending pending = halo.exchange();
  pending.wait();
  TRUE(pending.is_ready() && pending.epoch() == 1 && wrong(pattern, a.view()) == 0 && halo.reclaim());
  TRUE(halo.explain().find("rank") != std::string::npos);

  // Memory of the program, with the first axis contiguous, and its owner.
  const auto shape = pattern.domain().shape<2>();
  auto memory = std::make_shared<std::vector<double>>(shape[0] * shape[1]);
  const std::weak_ptr<std::vector<double>> watch = memory;
  const std::ptrdiff_t bytes = sizeof(double);
  const hc::view<double, 2> b(memory->data(), shape, {bytes, bytes * static_cast<std::ptrdiff_t>(shape[0])});
  hc::field field = hc::field::create(b, std::move(memory));
  hc::halo_exchange strided(comm, {{pattern, field}}, hc::bind_options().link(HALOCLINE_LINK_MESSAGE));
  fill(pattern, b);
  strided.exchange_and_wait();
  TRUE(wrong(pattern, b) == 0);
  // Moved objects own the handle; the others are empty.
  hc::halo_exchange moved = std::move(strided);
  TRUE(moved && !strided);
  fill(pattern, b);
  moved.exchange_and_wait();
  TRUE(wrong(pattern, b) == 0);
  moved.reset();
  field.reset();
  // A thread of the library may be the last that holds it.
  while (!watch.expired()) std::this_thread::yield();

  hc::pattern_links links(comm, {&pattern});
  fill(pattern, a.view());
  links.exchange({{pattern, a}}).wait();
  TRUE(wrong(pattern, a.view()) == 0);

  const hc::binding three[] = {{pattern, a}, {pattern, a}, {pattern, a}};
  try {
    hc::halo_exchange::alternatives(comm, {three, 3}, 2);
    TRUE(false);
  } catch (const hc::error &error) {
    TRUE(error.status() == HALOCLINE_ERROR_ARGUMENT && std::string(error.what()).find("no 2 sets") != std::string::npos);
  }
  TRUE(halo.sets() == 1);
  const hc::pending last = halo.exchange();
  TRUE(halo.latest() && halo.latest()->epoch() == last.epoch());
  last.wait();
  const hc::halo_exchange none = halo.narrowed(0);
  none.exchange_and_wait();
  try {
    halo.exchange(3);
    TRUE(false);
  } catch (const hc::error &error) {
    TRUE(error.status() == HALOCLINE_ERROR_ARGUMENT && std::string(error.what()).find("set 3") != std::string::npos);
  }
  try {
    strided.exchange();
    TRUE(false);
  } catch (const hc::error &error) {
    TRUE(error.status() == HALOCLINE_ERROR_HANDLE);
  }
  const hc::field whole = hc::gather_to(pattern, 0, a);
  TRUE(static_cast<bool>(whole) == (comm.rank() == 0));
}

static void unstructured(const hc::comm &comm) {
  // A fan of triangles around vertex 0, as many as the ranks and some more.
  const std::uint32_t triangles = static_cast<std::uint32_t>(comm.size()) * 3;
  std::vector<std::uint32_t> corners;
  for (std::uint32_t at = 0; at < triangles; at++) {
    for (std::uint32_t corner : {0u, 1 + at, 1 + (at + 1) % triangles}) corners.push_back(corner);
  }
  const hc::mesh mesh(triangles + 1, 3, corners);
  const hc::partition partition = hc::partition::block(triangles, comm.size());
  const hc::mesh_halos halos(comm, mesh, partition, 1, hc::shared::edge);
  TRUE(halos.connectivity().size() == 3 * halos.ids(hc::cell_kind::elements).size());
  const hc::pattern pattern = halos.pattern(comm, hc::cell_kind::vertices);
  const std::vector<std::uint64_t> ids = halos.ids(hc::cell_kind::vertices);
  hc::array<std::uint64_t, 1> field(comm, {ids.size()});
  for (std::size_t at = 0; at < halos.owned(hc::cell_kind::vertices); at++) field(at) = ids[at] + 7;
  hc::halo_exchange(comm, {{pattern, field}}).exchange_and_wait();
  for (std::size_t at = 0; at < ids.size(); at++) TRUE(field(at) == ids[at] + 7);

  // A ring of cells, and the same cells owned by the next rank.
  const std::uint64_t rank = comm.rank(), size = comm.size();
  const std::vector<hc::cells> here = {{rank, {2 * rank, 2 * rank + 1}, {}}};
  const std::uint64_t next = (rank + 1) % size;
  const std::vector<hc::cells> there = {{rank, {2 * next, 2 * next + 1}, {}}};
  TRUE(hc::unstructured_pattern(comm, here).owned().size() == 2);
  hc::array<float, 1> from(comm, {2}), to(comm, {2});
  from(0) = static_cast<float>(2 * rank), from(1) = from(0) + 1;
  const hc::redistribute move = hc::redistribute::unstructured(comm, here, there);
  move.bind(comm, from, to).exchange_and_wait();
  TRUE(to(0) == static_cast<float>(2 * next) && to(1) == to(0) + 1);
}

static void packets(const hc::comm &comm) {
  const std::size_t rank = comm.rank(), size = comm.size();
  std::vector<int> own(1000), wanted(1000);
  std::iota(own.begin(), own.end(), static_cast<int>(rank));
  std::iota(wanted.begin(), wanted.end(), static_cast<int>((rank + size - 1) % size));
  const hc::neighbors ring = hc::neighbors::ring(comm);
  const hc::packet to_right("right", hc::span<const int>(own));
  const hc::from_sides came = ring.start(1, nullptr, &to_right).wait();
  const hc::span<const int> payload = came.left.payload<int>();
  TRUE(!came.right && came.left.metadata() == "right" && came.left.has_payload());
  TRUE(std::equal(payload.begin(), payload.end(), wanted.begin(), wanted.end()));
  if (size > 1) {
    const auto sparse = hc::sparse_alltoall::discover(comm, {(rank + 1) % size});
    sparse.insert((rank + 1) % size, hc::packet("sparse"));
    sparse.finish_and_wait();
    TRUE(sparse.sources() == std::vector<std::size_t>{(rank + size - 1) % size});
    const std::vector<hc::received> found = sparse.extract(sparse.sources()[0]);
    TRUE(found.size() == 1 && found[0].metadata() == "sparse" && !found[0].has_payload());
  }
}

static void run(const hc::comm &comm) {
  regular(comm);
  unstructured(comm);
  packets(comm);
  TRUE(comm.all_reduce(comm.rank(), hc::reduce::max) == comm.size() - 1);
  comm.agree();
  try {
    comm.agree("no file");
    TRUE(false);
  } catch (const hc::error &error) {
    TRUE(error.status() == HALOCLINE_ERROR_ARGUMENT && std::string(error.what()) == "no file");
  }
  TRUE(comm.with_deadline(2.5).deadline() == 2.5 && comm.mappings().malformed == 0);
  TRUE(comm.all_gather(comm.rank()).back() == comm.size() - 1);
  TRUE(comm.broadcast(0, comm.rank() + 5) == 5);
  TRUE(comm.duplicate().split(0).size() == comm.size());
}
