// Kokkos views as fields, and execution space instances as streams: on top of halocline.hpp, header only. C++17, Kokkos 3.4 or newer.
//
//     using view = Kokkos::View<double ***>;
//     halocline::kokkos::array<view> t(comm, pattern.domain().shape<3>());
//     halocline::halo_exchange halo(comm, {{pattern, t}});
//     halocline::kokkos::stream<view> stream;
//     auto pending = stream.schedule_exchange(halo);
//     ... launch the kernel of the interior ...
//     stream.schedule_wait(pending);
//     ... launch the kernel of the boundary ...
//
// Memory of Kokkos::CudaSpace becomes a field of the GPU: streams order its exchanges, and the host does not wait. Memory that the host
// can access, also that of CudaUVMSpace and CudaHostPinnedSpace, becomes a field of the host: its exchanges start after a fence, and
// the host waits for them. Other memory, such as that of HIP or SYCL, does not compile.
//
// Fields and exchanges hold the memory of managed views. Wait for all exchanges, then destroy both before Kokkos::finalize. Other ranks may
// access the memory for a moment longer: Kokkos::finalize waits for that.
#ifndef HALOCLINE_KOKKOS_HPP
#define HALOCLINE_KOKKOS_HPP

#include <halocline.hpp>

#include <Kokkos_Core.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <utility>

namespace halocline {
namespace kokkos {
namespace detail {

#ifdef KOKKOS_ENABLE_CUDA
template <class Space>
constexpr bool is_cuda = std::is_same<typename Space::memory_space, Kokkos::CudaSpace>::value;
#else
template <class Space>
constexpr bool is_cuda = false;
#endif

template <class Space>
constexpr bool is_host =
    Kokkos::SpaceAccessibility<Kokkos::DefaultHostExecutionSpace, typename Space::memory_space>::accessible;

// Refuses types of views that no field has.
template <class View>
constexpr void check_view() {
  static_assert(Kokkos::is_view<View>::value, "a field is made of a Kokkos::View");
  using layout = typename View::array_layout;
  static_assert(std::is_same<layout, Kokkos::LayoutLeft>::value || std::is_same<layout, Kokkos::LayoutRight>::value ||
                    std::is_same<layout, Kokkos::LayoutStride>::value,
                "a field has LayoutLeft, LayoutRight or LayoutStride");
  static_assert(is_cuda<View> || is_host<View>,
                "Halocline reaches memory of the host and of CUDA only: exchange a mirror of this view in Kokkos::HostSpace");
}

template <class T>
constexpr std::int32_t element_of() noexcept {
  if (std::is_same<T, Kokkos::complex<float>>::value) return HALOCLINE_C64;
  if (std::is_same<T, Kokkos::complex<double>>::value) return HALOCLINE_C128;
  return halocline::element_of<T>();
}

// The managed views that the library holds. It returns a view once no other rank accesses its memory any more, which may be after the last
// handle was destroyed; and Kokkos ends a program that frees memory after Kokkos::finalize.
class held_views {
 public:
  static held_views &all() {
    // Never destroyed: threads of the library may return views at the end of the process.
    static held_views *const all = new held_views;
    return *all;
  }

  template <class View>
  static std::shared_ptr<void> hold(const View &view) {
    // Of an unmanaged view nothing is freed.
    if (view.use_count() == 0) return nullptr;
    all().add();
    return std::shared_ptr<View>(new View(view), [](View *held) {
      delete held;
      all().remove();
    });
  }

 private:
  void add() {
    const std::lock_guard<std::mutex> lock(mutex_);
    count_++;
    if (!std::exchange(is_hooked_, true)) Kokkos::push_finalize_hook([] { all().wait(); });
  }
  void remove() {
    const std::lock_guard<std::mutex> lock(mutex_);
    count_--;
    returned_.notify_all();
  }
  // Before Kokkos frees its own. A program that has not destroyed its exchanges gets the message of Kokkos, too.
  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    is_hooked_ = false;
    if (!returned_.wait_for(lock, std::chrono::seconds(10), [this] { return count_ == 0; })) {
      std::fprintf(stderr, "halocline: %zu views are in use at Kokkos::finalize; destroy all exchanges and fields before it\n", count_);
    }
  }

  std::mutex mutex_;
  std::condition_variable returned_;
  std::size_t count_ = 0;
  bool is_hooked_ = false;
};

// The scan of `find`: counts keys, and in the final pass stores where they are.
template <class Keys, class List>
struct finder {
  Keys keys;
  typename Keys::non_const_value_type key;
  List found;

  KOKKOS_INLINE_FUNCTION void operator()(std::size_t at, std::size_t &count, bool is_final) const {
    if (keys(at) == key) {
      if (is_final) found(count) = at;
      count++;
    }
  }
};

// The elements of a view of one dimension, in a list that the library reads.
template <class T, class View>
std::vector<T> on_host(const View &view) {
  static_assert(View::rank == 1, "lists of cells have one dimension");
  static_assert(std::is_integral<typename View::non_const_value_type>::value, "ids and ranks are integers");
  const auto mirror = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), view);
  std::vector<T> elements(view.extent(0));
  for (std::size_t at = 0; at < elements.size(); at++) elements[at] = static_cast<T>(mirror(at));
  return elements;
}

// A packet with the elements of a contiguous view.
template <class View>
packet packet_of(std::string metadata, const View &view) {
  check_view<View>();
  if (!view.span_is_contiguous()) {
    throw error(HALOCLINE_ERROR_ARGUMENT, "the payload of a packet is contiguous; copy the view into one without gaps");
  }
  return packet(std::move(metadata), span<const typename View::value_type>(view.data(), view.size()));
}

// The payload of a packet, as a view in the memory of `Space`.
template <class T, class Space>
auto payload_of(const received &packet) {
  using view = Kokkos::View<const T *, Kokkos::Device<typename Space::execution_space, typename Space::memory_space>,
                            Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  const halocline_contents found = packet.contents();
  if (found.space != (is_cuda<Space> ? HALOCLINE_CUDA : HALOCLINE_HOST)) {
    throw error(HALOCLINE_ERROR_ARGUMENT, "the payload lies in other memory; receive it with the resource of the stream");
  }
  if (found.payload_bytes % sizeof(T) != 0) {
    throw error(HALOCLINE_ERROR_ARGUMENT, "the payload ends within an element; its sender uses another type");
  }
  return view(static_cast<const T *>(found.payload), found.payload_bytes / sizeof(T));
}

}  // namespace detail

// The layout of a view, for fields of a part of its dimensions or with padding: `layout_of(view).padded()`.
template <class View>
layout layout_of(const View &view) {
  detail::check_view<View>();
  constexpr std::size_t rank = View::rank;
  static_assert(rank > 0, "a field has at least one dimension");
  std::vector<std::size_t> extents(rank);
  std::vector<std::ptrdiff_t> strides(rank);
  for (std::size_t at = 0; at < rank; at++) {
    extents[at] = view.extent(at);
    strides[at] = static_cast<std::ptrdiff_t>(view.stride(at) * sizeof(typename View::value_type));
  }
  return layout(detail::element_of<typename View::non_const_value_type>(), std::move(extents), std::move(strides));
}

// The field of a view. It holds the memory of a managed view; that of an unmanaged one has to stay, as halocline_memory says.
template <class View>
field field_of(const View &view, const layout &layout) {
  detail::check_view<View>();
  static_assert(!std::is_const<typename View::value_type>::value, "an exchange writes the halo");
  auto held = detail::held_views::hold(view);
  if constexpr (detail::is_cuda<View>) {
    return field::create_cuda(typename View::execution_space().cuda_device(), view.data(), layout, std::move(held));
  } else {
    return field::create(view.data(), layout, std::move(held));
  }
}
template <class View>
field field_of(const View &view) {
  return field_of(view, layout_of(view));
}

// A field and its view. Memory of Kokkos::HostSpace is allocated by the library, so that as many ranks as possible access it directly: its
// exchanges are faster than those of other views. Memory of all other spaces is allocated by Kokkos: that of CudaUVMSpace, for example, is
// more than memory of the host.
template <class View>
class array : public field {
 public:
  static constexpr std::size_t rank = View::rank;
  static_assert(!std::is_same<typename View::array_layout, Kokkos::LayoutStride>::value,
                "the library chooses strides for LayoutLeft and LayoutRight only");

  array(const comm &comm, const std::array<std::size_t, rank> &extents) {
    using pointer = typename View::pointer_type;
    typename View::array_layout shape;
    for (std::size_t at = 0; at < View::rank_dynamic; at++) shape.dimension[at] = extents[at];
    const View without_memory(pointer(nullptr), shape);
    for (std::size_t at = 0; at < rank; at++) {
      if (without_memory.extent(at) != extents[at]) {
        throw error(HALOCLINE_ERROR_ARGUMENT,
                    "axis " + std::to_string(at) + " is to have " + std::to_string(extents[at]) + " elements, and the type of the view makes it " +
                        std::to_string(without_memory.extent(at)) + "; use a view whose extents are set at run time");
      }
    }
    if constexpr (std::is_same<typename View::memory_space, Kokkos::HostSpace>::value) {
      static_cast<field &>(*this) = field::allocate(comm, layout_of(without_memory));
      view_ = View(static_cast<pointer>(base()), shape);
    } else {
      view_ = View("halocline", shape);
      static_cast<field &>(*this) = field_of(view_);
    }
  }

  // The elements. Valid while this, or an exchange that it is bound to, lives.
  const View &view() const noexcept { return view_; }

 private:
  View view_;
};

// The order of an execution space instance. `Space` is the type of a view, a Kokkos::Device or an execution space: its memory space
// decides how exchanges are ordered. This one is for memory of the host, whose instances have no stream: fences stand for it.
template <class Space, bool IsCuda = detail::is_cuda<Space>>
class stream {
 public:
  using execution_space = typename Space::execution_space;

  explicit stream(const execution_space &space = execution_space()) : space_(space) {}

  // Starts an exchange of set `set` after all earlier work of the instance: waits for that work with a fence.
  pending schedule_exchange(const halo_exchange &halo, std::size_t set = 0) const {
    space_.fence();
    return halo.exchange(set);
  }
  // Starts the reverse of an exchange, after a fence.
  pending schedule_reduce(const halo_exchange &halo, reduce operation, bool keep_halo = false, std::size_t set = 0) const {
    space_.fence();
    return halo.reduce(operation, keep_halo, set);
  }
  // Later work of the instance runs after the halo is filled: waits for the exchange.
  void schedule_wait(const pending &pending) const { pending.wait(); }

  // A packet whose payload is a contiguous view: after a fence. The view stays until the operation is complete.
  template <class View>
  packet packet_of(std::string metadata, const View &view) const {
    static_assert(!detail::is_cuda<View>, "a packet of GPU memory needs the stream of a GPU");
    space_.fence();
    return detail::packet_of(std::move(metadata), view);
  }
  // Received payloads lie in memory of this resource.
  halocline::resource resource() const { return halocline::resource(); }
  // The payload of a packet as a view of one dimension. Valid while the packet lives.
  template <class T>
  auto payload_of(const received &packet) const {
    return detail::payload_of<T, Space>(packet);
  }

 private:
  execution_space space_;
};

#ifdef KOKKOS_ENABLE_CUDA
// For memory of a GPU: the host does not wait.
template <class Space>
class stream<Space, true> {
 public:
  using execution_space = typename Space::execution_space;

  explicit stream(const execution_space &space = execution_space())
      : space_(space), stream_(halocline::stream::cuda(space.cuda_device(), space.cuda_stream())) {}

  pending schedule_exchange(const halo_exchange &halo, std::size_t set = 0) const {
    return halo.schedule_exchange(stream_, set);
  }
  pending schedule_reduce(const halo_exchange &halo, reduce operation, bool keep_halo = false, std::size_t set = 0) const {
    return halo.schedule_reduce(operation, stream_, keep_halo, set);
  }
  void schedule_wait(const pending &pending) const { pending.schedule_wait(stream_); }

  // The payload is read after all earlier work of the stream.
  template <class View>
  packet packet_of(std::string metadata, const View &view) const {
    static_assert(detail::is_cuda<View>, "a packet of host memory needs the stream of a host space");
    packet made = detail::packet_of(std::move(metadata), view);
    made.space = HALOCLINE_CUDA;
    made.device = space_.cuda_device();
    made.stream = stream_.get();
    return made;
  }
  halocline::resource resource() const { return halocline::resource::cuda(space_.cuda_device()); }
  // Later work of the instance runs after the payload is there.
  template <class T>
  auto payload_of(const received &packet) const {
    packet.order(stream_);
    return detail::payload_of<T, Space>(packet);
  }

  // For bind_options::streams.
  const halocline::stream &get() const noexcept { return stream_; }

 private:
  // Holds the stream of CUDA.
  execution_space space_;
  halocline::stream stream_;
};
#endif

// The local indices at which `keys` has `key`, ascending: a list in the memory of `keys`. Runs on an instance, and returns when it is filled.
template <class Keys>
Kokkos::View<std::size_t *, typename Keys::device_type> find(const typename Keys::execution_space &space, const Keys &keys,
                                                             const typename Keys::non_const_value_type &key) {
  static_assert(Keys::rank == 1, "keys have one dimension");
  using list = Kokkos::View<std::size_t *, typename Keys::device_type>;
  using range = Kokkos::RangePolicy<typename Keys::execution_space, Kokkos::IndexType<std::size_t>>;
  list found(Kokkos::view_alloc(space, Kokkos::WithoutInitializing, "found"), keys.extent(0));
  std::size_t count = 0;
  Kokkos::parallel_scan("halocline::kokkos::find", range(space, 0, keys.extent(0)),
                        detail::finder<Keys, list>{keys, key, found}, count);
  space.fence();
  Kokkos::resize(found, count);
  return found;
}

// The pattern of an unstructured domain on each rank: `ids` are the global ids of its cells in local order, owned and halo, and `owners`
// their ranks. Collective: lists of different lengths are an error on all ranks.
template <class Ids, class Owners>
pattern pattern_of(const comm &comm, const Ids &ids, const Owners &owners) {
  const auto local_ids = detail::on_host<std::uint64_t>(ids);
  const auto local_owners = detail::on_host<std::size_t>(owners);
  const bool agree = local_ids.size() == local_owners.size();
  halocline_cells cells = HALOCLINE_CELLS_INIT;
  cells.number = comm.rank();
  // A missing list is refused on all ranks.
  cells.count = agree ? local_ids.size() : 1;
  cells.ids = agree ? local_ids.data() : nullptr;
  cells.owners = local_owners.data();
  halocline_pattern handle;
  const halocline_status status = halocline_pattern_unstructured(comm.get(), &cells, 1, &handle);
  if (!agree) {
    throw error(HALOCLINE_ERROR_ARGUMENT, "ids and owners have different lengths; give the owner of each cell");
  }
  check(status);
  return pattern(handle);
}

}  // namespace kokkos
}  // namespace halocline

#endif
