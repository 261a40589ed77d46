// Views that no field has: each statement is refused when it is compiled.
#include <halocline_kokkos.hpp>

namespace hk = halocline::kokkos;

// Memory that the host does not access, as that of HIP.
struct elsewhere {
  using memory_space = elsewhere;
  using execution_space = Kokkos::Serial;
  using device_type = Kokkos::Device<execution_space, memory_space>;
  using size_type = std::size_t;
  static constexpr const char *name() { return "elsewhere"; }
};

// A layout without strides.
struct spiral {
  using array_layout = spiral;
};

void refused(const halocline::comm &comm) {
  hk::field_of(Kokkos::View<const double *>());
  hk::field_of(Kokkos::View<double>());
  hk::field_of(Kokkos::View<double *, elsewhere>());
  hk::field_of(Kokkos::View<double **, spiral>());
  hk::field_of(std::array<double, 3>());
  hk::array<Kokkos::View<double *, Kokkos::LayoutStride>>(comm, {1});
  hk::find(Kokkos::Serial(), Kokkos::View<int **>(), 0);
  hk::pattern_of(comm, Kokkos::View<double *>(), Kokkos::View<int *>());
}
