// Fields: memory with a layout; streams. Included by halocline.hpp.
#ifndef HALOCLINE_CPP_FIELD_HPP
#define HALOCLINE_CPP_FIELD_HPP

#include "grid.hpp"

#include <memory>

namespace halocline {

// The layout of an array.
class layout {
 public:
  // C order: the last dimension is contiguous.
  layout(std::int32_t element, std::vector<std::size_t> extents) : element_(element), extents_(std::move(extents)) {}
  // Strides in bytes, which may be negative.
  layout(std::int32_t element, std::vector<std::size_t> extents, std::vector<std::ptrdiff_t> strides)
      : element_(element), extents_(std::move(extents)), strides_(std::move(strides)) {
    if (strides_.size() != extents_.size()) {
      throw error(HALOCLINE_ERROR_ARGUMENT, "the layout needs one stride for each dimension");
    }
  }
  template <typename T, std::size_t Rank>
  static layout of(const view<T, Rank> &view) {
    return layout(element_of<std::remove_const_t<T>>(), {view.extents().begin(), view.extents().end()},
                  {view.strides().begin(), view.strides().end()});
  }

  // The dimensions that are the axes of the pattern.
  layout &axes(std::vector<std::size_t> axes) {
    axes_ = std::move(axes);
    return *this;
  }
  // The index of the first owned cell.
  layout &origin(std::vector<std::size_t> origin) {
    origin_ = std::move(origin);
    return *this;
  }
  // Allows more cells at the high sides.
  layout &padded() {
    padded_ = 1;
    return *this;
  }
  // The meaning of the elements where their type does not state it. Fields with different names cannot exchange.
  layout &name(std::string name) {
    name_ = std::move(name);
    return *this;
  }

  // For calls of the C interface; valid while this lives.
  halocline_layout get() const noexcept {
    halocline_layout shape = HALOCLINE_LAYOUT_INIT;
    shape.dimensions = extents_.size();
    shape.extents = extents_.data();
    shape.strides = strides_.empty() ? nullptr : strides_.data();
    shape.axis_count = axes_.size();
    shape.axes = axes_.data();
    shape.origin_count = origin_.size();
    shape.origin = origin_.data();
    shape.name = name_.empty() ? nullptr : name_.c_str();
    shape.element = element_;
    shape.padded = padded_;
    return shape;
  }

 private:
  std::int32_t element_, padded_ = 0;
  std::vector<std::size_t> extents_, axes_, origin_;
  std::vector<std::ptrdiff_t> strides_;
  std::string name_;
};

// A stream of a GPU, which the program owns.
class stream : public owner<halocline_stream, halocline_stream_free> {
 public:
  using owner::owner;

  // `cuda_stream` is a cudaStream_t; null for the default stream.
  static stream cuda(int device, void *cuda_stream) {
    halocline_stream handle;
    check(halocline_stream_cuda(device, cuda_stream, &handle));
    return stream(handle);
  }
};

// Memory with a layout.
class field : public owner<halocline_field, halocline_field_free> {
 public:
  using owner::owner;

  // Memory of the program. `keep` is held until the library does not access the memory any more; its last owner may be a thread of
  // the library. Without it the memory has to stay: halocline_memory.
  static field create(void *base, const layout &layout, std::shared_ptr<void> keep = nullptr) {
    halocline_memory memory = HALOCLINE_MEMORY_INIT;
    memory.base = base;
    return create(memory, layout, std::move(keep));
  }
  template <typename T, std::size_t Rank>
  static field create(const view<T, Rank> &view, std::shared_ptr<void> keep = nullptr) {
    static_assert(!std::is_const<T>::value, "an exchange writes the halo");
    return create(view.data(), layout::of(view), std::move(keep));
  }
  // Memory of a GPU.
  static field create_cuda(int device, void *base, const layout &layout, std::shared_ptr<void> keep = nullptr) {
    halocline_memory memory = HALOCLINE_MEMORY_INIT;
    memory.base = base;
    memory.space = HALOCLINE_CUDA;
    memory.device = device;
    return create(memory, layout, std::move(keep));
  }
  // New zeroed memory that as many ranks as possible access directly.
  static field allocate(const comm &comm, const layout &layout) {
    halocline_field handle;
    const halocline_layout shape = layout.get();
    check(halocline_field_allocate(comm.get(), &shape, &handle));
    return field(handle);
  }

  // New zeroed memory of a GPU.
  static field allocate_cuda(int device, const layout &layout) {
    halocline_field handle;
    const halocline_layout shape = layout.get();
    check(halocline_field_allocate_cuda(device, &shape, &handle));
    return field(handle);
  }

  // The same field, of a domain.
  field on_domain(std::uint64_t number) const {
    halocline_field handle;
    check(halocline_field_on_domain(get(), number, &handle));
    return field(handle);
  }
  // Another field in the same memory.
  field view_at(void *base, const layout &layout) const {
    halocline_field handle;
    const halocline_layout shape = layout.get();
    check(halocline_field_view(get(), base, &shape, &handle));
    return field(handle);
  }
  // The address of element (0, 0, ...).
  void *base() const {
    void *base;
    check(halocline_field_base(get(), &base));
    return base;
  }
  std::vector<std::size_t> extents() const {
    return detail::stored<std::size_t>([&](std::size_t *extents, std::size_t capacity, std::size_t *count) {
      return halocline_field_describe(get(), extents, nullptr, capacity, count, nullptr);
    });
  }
  // In bytes.
  std::vector<std::ptrdiff_t> strides() const {
    return detail::stored<std::ptrdiff_t>([&](std::ptrdiff_t *strides, std::size_t capacity, std::size_t *count) {
      return halocline_field_describe(get(), nullptr, strides, capacity, count, nullptr);
    });
  }
  // HALOCLINE_F64, for example.
  std::int32_t element() const {
    std::size_t dimensions;
    std::int32_t element;
    check(halocline_field_describe(get(), nullptr, nullptr, 0, &dimensions, &element));
    return element;
  }
  // Copies host memory of the same layout into memory of a GPU, or back: in the order of addresses, gaps included. After all earlier work
  // of the stream; blocks until it is done.
  void write(const stream &stream, const void *source, std::size_t bytes) const {
    check(halocline_field_write(get(), stream.get(), source, bytes));
  }
  void read(const stream &stream, void *target, std::size_t bytes) const {
    check(halocline_field_read(get(), stream.get(), target, bytes));
  }
  // The elements, such as those of `gather_to`. Valid while the field, or an exchange that it is bound to, lives.
  template <typename T, std::size_t Rank>
  halocline::view<T, Rank> elements() const {
    const std::vector<std::size_t> lengths = extents();
    const std::vector<std::ptrdiff_t> distances = strides();
    if (lengths.size() != Rank || element() != element_of<std::remove_const_t<T>>()) {
      throw error(HALOCLINE_ERROR_ARGUMENT, "the field has another number of dimensions, or elements of another type");
    }
    std::array<std::size_t, Rank> shape{};
    std::array<std::ptrdiff_t, Rank> steps{};
    for (std::size_t dimension = 0; dimension < Rank; dimension++) {
      shape[dimension] = lengths[dimension];
      steps[dimension] = distances[dimension];
    }
    return {static_cast<T *>(base()), shape, steps};
  }

 private:
  static field create(halocline_memory &memory, const layout &layout, std::shared_ptr<void> keep) {
    auto held = keep ? std::make_unique<std::shared_ptr<void>>(std::move(keep)) : nullptr;
    if (held) {
      memory.release = [](void *context) { delete static_cast<std::shared_ptr<void> *>(context); };
      memory.context = held.get();
    }
    halocline_field handle;
    const halocline_layout shape = layout.get();
    check(halocline_field_create(&memory, &shape, &handle));
    held.release();
    return field(handle);
  }
};

// An array in C order that the library allocates: a field, and the view of its elements.
template <typename T, std::size_t Rank>
class array : public field {
 public:
  array(const comm &comm, const std::array<std::size_t, Rank> &extents)
      : field(field::allocate(comm, layout(element_of<T>(), {extents.begin(), extents.end()}))),
        view_(static_cast<T *>(base()), extents) {}

  // The elements. The rules of access are those of halocline_field_create.
  const halocline::view<T, Rank> &view() const noexcept { return view_; }
  template <typename... Index>
  T &operator()(Index... index) const noexcept {
    return view_(index...);
  }

 private:
  halocline::view<T, Rank> view_;
};

}  // namespace halocline

#endif
