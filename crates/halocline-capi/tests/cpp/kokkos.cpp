// Kokkos views as fields, as a process. Prints "ok RANKS TRANSPORT" on rank 0.
#include <halocline_kokkos.hpp>

#include <cstdio>
#include <cstdlib>

#define TRUE(condition)                                                                \
  do {                                                                                 \
    if (!(condition)) {                                                                \
      std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);   \
      std::exit(1);                                                                    \
    }                                                                                  \
  } while (false)

namespace hc = halocline;
namespace hk = halocline::kokkos;

// The status of the error that a call throws.
template <typename Call>
static halocline_status status_of(Call call) {
  try {
    call();
  } catch (const hc::error &error) {
    TRUE(error.what()[0] != '\0');
    return error.status();
  }
  return HALOCLINE_OK;
}

constexpr std::int64_t N = 12;

static hc::pattern pattern_of(const hc::comm &comm, std::size_t axes) {
  return hc::regular_grid(std::vector<std::size_t>(axes, N))
      .periodic(std::vector<bool>(axes, true))
      .decompose(comm.size())
      .pattern(comm, 1);
}

static double value(const hc::pattern &pattern, const std::array<std::size_t, 3> &local) {
  const auto at = pattern.global<3>(local);
  return static_cast<double>(((at[0] + N) % N * N + (at[1] + N) % N) * N + (at[2] + N) % N);
}

// Exchanges a field of three axes; `cell(i, j, k)` is the reference to a cell of it.
template <typename Cell>
static void exchanges(const hc::comm &comm, const hc::pattern &pattern, const hc::field &field, const Cell &cell) {
  const hc::domain domain = pattern.domain();
  const auto shape = domain.shape<3>();
  const auto each = [&](const auto &call) {
    for (std::size_t i = 0; i < shape[0]; i++) {
      for (std::size_t j = 0; j < shape[1]; j++) {
        for (std::size_t k = 0; k < shape[2]; k++) call({i, j, k}, cell(i, j, k));
      }
    }
  };
  using local = std::array<std::size_t, 3>;
  each([&](const local &at, auto &element) {
    bool owned = true;
    for (std::size_t axis = 0; axis < 3; axis++) owned &= at[axis] - domain.owned.first[axis] < domain.owned.extents[axis];
    element = owned ? value(pattern, at) : -1;
  });
  const hc::halo_exchange halo(comm, {{pattern, field}}, hc::bind_options().deadline(60));
  const hk::stream<Kokkos::DefaultHostExecutionSpace> stream;
  stream.schedule_wait(stream.schedule_exchange(halo));
  std::size_t wrong = 0;
  using element_type = std::decay_t<decltype(cell(0, 0, 0))>;
  each([&](const local &at, auto &element) { wrong += element != static_cast<element_type>(value(pattern, at)); });
  TRUE(wrong == 0);
}

template <typename Layout, typename T>
static void views_of(const hc::comm &comm, const hc::pattern &pattern) {
  using view = Kokkos::View<T ***, Layout>;
  const auto shape = pattern.domain().shape<3>();
  const view t("t", shape[0], shape[1], shape[2]);
  exchanges(comm, pattern, hk::field_of(t), t);
  const hk::array<view> allocated(comm, shape);
  exchanges(comm, pattern, allocated, allocated.view());
}

static void layouts(const hc::comm &comm) {
  const hc::pattern pattern = pattern_of(comm, 3);
  const auto shape = pattern.domain().shape<3>();
  views_of<Kokkos::LayoutRight, double>(comm, pattern);
  views_of<Kokkos::LayoutLeft, double>(comm, pattern);
  views_of<Kokkos::LayoutRight, float>(comm, pattern);
  views_of<Kokkos::LayoutLeft, std::int16_t>(comm, pattern);

  // A part of another view, with strides that are those of no other layout.
  const Kokkos::View<double ****, Kokkos::LayoutRight> wide("wide", shape[0], 2 * shape[1], shape[2], 3);
  const auto part = Kokkos::subview(wide, Kokkos::ALL, Kokkos::make_pair(std::size_t{1}, 1 + shape[1]), Kokkos::ALL, 1);
  static_assert(std::is_same<typename decltype(part)::array_layout, Kokkos::LayoutStride>::value, "it has strides");
  exchanges(comm, pattern, hk::field_of(part), part);

  // A dimension of levels, whose extent the type has.
  using levels_view = Kokkos::View<double ***[2]>;
  const hk::array<levels_view> levels(comm, {shape[0], shape[1], shape[2], 2});
  const levels_view view = levels.view();
  exchanges(comm, pattern, levels, [&](std::size_t i, std::size_t j, std::size_t k) -> double & { return view(i, j, k, 1); });
  TRUE(status_of([&] { hk::array<levels_view>(comm, {shape[0], shape[1], shape[2], 3}); }) == HALOCLINE_ERROR_ARGUMENT);

  // Memory of the program.
  std::vector<double> memory(shape[0] * shape[1] * shape[2]);
  const Kokkos::View<double ***, Kokkos::MemoryTraits<Kokkos::Unmanaged>> unmanaged(memory.data(), shape[0], shape[1], shape[2]);
  exchanges(comm, pattern, hk::field_of(unmanaged), unmanaged);
}

static void elements(const hc::comm &comm) {
  const hc::pattern pattern = hc::regular_grid({N}).periodic({true}).decompose(comm.size()).pattern(comm, 1);
  const std::size_t cells = pattern.domain().extents[0];
  const auto element_of = [](const hc::field &field) {
    std::size_t dimensions;
    std::int32_t element;
    hc::check(halocline_field_describe(field.get(), nullptr, nullptr, 0, &dimensions, &element));
    return element;
  };
  TRUE(element_of(hk::field_of(Kokkos::View<Kokkos::complex<double> *>("z", cells))) == HALOCLINE_C128);
  TRUE(element_of(hk::field_of(Kokkos::View<Kokkos::complex<float> *>("c", cells))) == HALOCLINE_C64);
  TRUE(element_of(hk::field_of(Kokkos::View<std::uint8_t *>("u", cells))) == HALOCLINE_U8);
}

// Each rank has cells 2 and 3 of a ring; their neighbours have copies 4 and 1.
static void reduces(const hc::comm &comm) {
  const hc::pattern pattern = hc::regular_grid({2 * comm.size()}).periodic({true}).decompose(comm.size()).pattern(comm, 1);
  const hk::array<Kokkos::View<double *>> t(comm, {4});
  const hc::halo_exchange halo(comm, {{pattern, t}});
  const hk::stream<Kokkos::DefaultHostExecutionSpace> stream;
  const auto view = t.view();
  for (const bool keeps : {false, true}) {
    for (int cell = 0; cell < 4; cell++) view(cell) = cell + 1;
    stream.schedule_wait(stream.schedule_reduce(halo, hc::reduce::product, keeps));
    TRUE(view(0) == (keeps ? 1 : 0) && view(1) == 2 * 4 && view(2) == 3 * 1 && view(3) == (keeps ? 4 : 0));
  }
}

// A field holds the memory of its view.
static void holds_memory(const hc::comm &comm) {
  const hc::pattern pattern = pattern_of(comm, 1);
  Kokkos::View<double *> t("t", pattern.domain().extents[0]);
  {
    const hc::field field = hk::field_of(t);
    TRUE(t.use_count() == 2);
  }
  TRUE(t.use_count() == 1);
}

static void lists(const hc::comm &comm) {
  const Kokkos::View<int *> keys("keys", 100);
  Kokkos::parallel_for("keys", 100, KOKKOS_LAMBDA(int at) { keys(at) = at % 7; });
  const Kokkos::Serial serial;
  const auto found = hk::find(serial, keys, 3);
  TRUE(found.size() == 14 && found(0) == 3 && found(1) == 10 && found(13) == 94);
  TRUE(hk::find(serial, keys, 7).size() == 0 && hk::find(serial, Kokkos::View<int *>(), 0).size() == 0);

  // Each rank owns an element, and has a copy of the next rank's.
  const std::size_t rank = comm.rank(), ranks = comm.size(), next = (rank + 1) % ranks, copies = ranks > 1;
  const Kokkos::View<std::int64_t *> ids("ids", 1 + copies);
  const Kokkos::View<int *> owners("owners", 1 + copies);
  ids(0) = static_cast<std::int64_t>(rank), ids(copies) = static_cast<std::int64_t>(next);
  owners(0) = static_cast<int>(rank), owners(copies) = static_cast<int>(next);
  const hc::pattern pattern = hk::pattern_of(comm, ids, owners);
  const hk::array<Kokkos::View<double *>> values(comm, {1 + copies});
  values.view()(0) = static_cast<double>(rank);
  hc::halo_exchange(comm, {{pattern, values}}).exchange_and_wait();
  TRUE(values.view()(copies) == static_cast<double>(next));

  // Lists of different lengths on one rank are an error on all.
  const Kokkos::View<int *> short_owners("short", rank == 0 ? 0 : 1 + copies);
  if (rank != 0) Kokkos::deep_copy(short_owners, owners);
  const halocline_status wanted = rank == 0 ? HALOCLINE_ERROR_ARGUMENT : HALOCLINE_ERROR_ELSEWHERE;
  TRUE(status_of([&] { hk::pattern_of(comm, ids, short_owners); }) == wanted);
  // An owner that is no rank.
  if (rank == 0) owners(copies) = -1;
  TRUE(status_of([&] { hk::pattern_of(comm, ids, owners); }) == wanted);
}

static void packets(const hc::comm &comm) {
  using view = Kokkos::View<double **>;
  const hk::stream<view> stream;
  const hc::neighbors ring = hc::neighbors::ring(comm, stream.resource());
  const view message("message", 4, 5);
  Kokkos::deep_copy(message, static_cast<double>(comm.rank()));
  const hc::packet packet = stream.packet_of("values", message);
  const hc::from_sides came = ring.exchange(0, nullptr, &packet);
  const auto values = stream.payload_of<double>(came.left);
  const std::size_t left = (comm.rank() + comm.size() - 1) % comm.size();
  TRUE(values.size() == 20 && values(19) == static_cast<double>(left) && came.left.metadata() == "values");

  struct three {
    double values[3];
  };
  TRUE(status_of([&] { stream.payload_of<three>(came.left); }) == HALOCLINE_ERROR_ARGUMENT);
  TRUE(status_of([&] { stream.payload_of<double>(came.right); }) == HALOCLINE_ERROR_HANDLE);
  const auto column = Kokkos::subview(message, Kokkos::ALL, 1);
  TRUE(status_of([&] { stream.packet_of("", column); }) == HALOCLINE_ERROR_ARGUMENT);
}

// Views that do not fit are errors of the call, on all ranks.
static void misuse(const hc::comm &comm) {
  const hc::pattern pattern = pattern_of(comm, 3);
  const auto shape = pattern.domain().shape<3>();
  const auto bind = [&](const hc::field &field) { return status_of([&] { hc::halo_exchange(comm, {{pattern, field}}); }); };
  // Fewer dimensions than axes.
  TRUE(bind(hk::field_of(Kokkos::View<double **>("flat", shape[0], shape[1]))) == HALOCLINE_ERROR_ARGUMENT);
  // Fewer cells than the domain has.
  TRUE(bind(hk::field_of(Kokkos::View<double ***>("small", shape[0], shape[1], shape[2] - 1))) == HALOCLINE_ERROR_ARGUMENT);
  // More cells without the word `padded`.
  const Kokkos::View<double ***> large("large", shape[0], shape[1], shape[2] + 5);
  TRUE(bind(hk::field_of(large)) == HALOCLINE_ERROR_ARGUMENT);
  TRUE(bind(hk::field_of(large, hk::layout_of(large).padded())) == HALOCLINE_OK);
  // Cells that share memory.
  const Kokkos::View<double *> memory("memory", 100);
  const Kokkos::View<double ***, Kokkos::LayoutStride> same(
      memory.data(), Kokkos::LayoutStride(shape[0], 0, shape[1], 0, shape[2], 1));
  TRUE(status_of([&] { hc::halo_exchange(comm, {{pattern, hk::field_of(same)}}); }) == HALOCLINE_ERROR_ARGUMENT);
  // No memory.
  TRUE(bind(hk::field_of(Kokkos::View<double ***>())) == HALOCLINE_ERROR_ARGUMENT);
  const Kokkos::View<double ***> nowhere(static_cast<double *>(nullptr), shape[0], shape[1], shape[2]);
  TRUE(status_of([&] { hk::field_of(nowhere); }) == HALOCLINE_ERROR_ARGUMENT);
  // More memory than addresses.
  const std::size_t huge = SIZE_MAX / 4;
  TRUE(status_of([&] { hk::array<Kokkos::View<double ***>>(comm, {4, huge, 4}); }) == HALOCLINE_ERROR_ARGUMENT);
  // Elements of another size on another rank.
  if (comm.size() > 1) {
    const hc::field field = comm.rank() == 0
                                ? hk::field_of(Kokkos::View<float ***>("f", shape[0], shape[1], shape[2]))
                                : hk::field_of(Kokkos::View<double ***>("d", shape[0], shape[1], shape[2]));
    TRUE(bind(field) != HALOCLINE_OK);
  }
}

// Rank 0 drops an exchange in flight. The others begin theirs while rank 0 is in Kokkos::finalize.
static void finalizes_in_flight(const hc::comm &comm) {
  const hc::pattern pattern = pattern_of(comm, 3);
  const auto shape = pattern.domain().shape<3>();
  const Kokkos::View<double ***> view("in flight", shape[0], shape[1], shape[2]);
  const hc::halo_exchange halo(comm, {{pattern, hk::field_of(view)}});
  if (comm.rank() == 0) {
    static_cast<void>(halo.exchange());
    // Runs before the hooks that are there.
    Kokkos::push_finalize_hook([&comm] { comm.barrier(); });
  } else {
    comm.barrier();
    halo.exchange().wait();
  }
}

int main(int argc, char **argv) {
  Kokkos::initialize(argc, argv);
  const hc::comm comm = hc::comm::init();
  layouts(comm);
  elements(comm);
  reduces(comm);
  holds_memory(comm);
  lists(comm);
  packets(comm);
  misuse(comm);
  finalizes_in_flight(comm);
  Kokkos::finalize();
  comm.barrier();
  if (comm.rank() == 0) std::printf("ok %zu %s\n", comm.size(), comm.transport().c_str());
}
