// Memory that the host and a GPU share, allocated by Kokkos: with a stand-in for Kokkos::CudaUVMSpace, because Debian's Kokkos has none.
// Prints "ok".
#include <Kokkos_Core.hpp>

#include <cstdlib>

namespace Kokkos {

struct CudaUVMSpace {
  using memory_space = CudaUVMSpace;
  using execution_space = Kokkos::Serial;
  using device_type = Kokkos::Device<execution_space, memory_space>;
  using size_type = std::size_t;
  static constexpr const char *name() { return "CudaUVM"; }
  // What is allocated now.
  static inline std::size_t allocations = 0;
  static inline void *latest = nullptr;
};

namespace Impl {

template <>
struct MemorySpaceAccess<Kokkos::HostSpace, Kokkos::CudaUVMSpace> {
  enum : bool { assignable = false, accessible = true, deepcopy = true };
};

template <>
class SharedAllocationRecord<Kokkos::CudaUVMSpace, void> : public SharedAllocationRecordCommon<Kokkos::CudaUVMSpace> {
  using common = SharedAllocationRecordCommon<Kokkos::CudaUVMSpace>;
  friend common;
  static SharedAllocationHeader *allocate_with_header(std::size_t bytes) {
    return static_cast<SharedAllocationHeader *>(std::malloc(sizeof(SharedAllocationHeader) + bytes));
  }

 protected:
  SharedAllocationRecord() = default;
  ~SharedAllocationRecord() {
    CudaUVMSpace::allocations--;
    std::free(SharedAllocationRecord<void, void>::m_alloc_ptr);
  }
  SharedAllocationRecord(const CudaUVMSpace &, const std::string &label, std::size_t bytes,
                         function_type free_it = &common::deallocate)
      : common(allocate_with_header(bytes), sizeof(SharedAllocationHeader) + bytes, free_it) {
    common::_fill_host_accessible_header_info(*SharedAllocationRecord<void, void>::m_alloc_ptr, label);
    CudaUVMSpace::allocations++;
    CudaUVMSpace::latest = data();
  }
};

}  // namespace Impl
}  // namespace Kokkos

#include <impl/Kokkos_SharedAlloc_timpl.hpp>

#include <halocline_kokkos.hpp>

#include "check.hpp"

namespace hk = halocline::kokkos;

int main(int argc, char **argv) {
  const Kokkos::ScopeGuard guard(argc, argv);
  using view = Kokkos::View<double *, Kokkos::CudaUVMSpace>;
  const hc::comm comm = hc::comm::init("thread");
  const hc::pattern pattern = hc::regular_grid({3}).periodic({true}).decompose(1).pattern(comm, 1);
  {
    const hk::array<view> t(comm, {5});
    TRUE(Kokkos::CudaUVMSpace::allocations == 1 && t.view().data() == Kokkos::CudaUVMSpace::latest);
    TRUE(t.base() == t.view().data());
    for (int cell = 0; cell < 5; cell++) t.view()(cell) = cell;
    const hc::halo_exchange halo(comm, {{pattern, t}});
    const hk::stream<view> stream;
    stream.schedule_wait(stream.schedule_exchange(halo));
    TRUE(t.view()(0) == 3 && t.view()(4) == 1);
  }
  std::puts("ok");
}
