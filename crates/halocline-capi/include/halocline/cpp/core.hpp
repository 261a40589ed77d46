// Errors, owners of handles, and views of memory. Included by halocline.hpp.
#ifndef HALOCLINE_CPP_CORE_HPP
#define HALOCLINE_CPP_CORE_HPP

#include <halocline.h>

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace halocline {

// The version of the interface that the loaded library has. It serves programs whose HALOCLINE_ABI_VERSION is not above it.
inline std::uint32_t abi_version() noexcept { return halocline_abi_version(); }

// The version of the loaded library, such as "0.1.0".
inline std::string version() { return halocline_version(); }

// The name of a status, such as "HALOCLINE_ERROR_BUSY"; empty for a number that is none.
inline std::string status_name(halocline_status status) {
  const char *name = halocline_status_name(status);
  return name == nullptr ? std::string() : std::string(name);
}

// A call that failed: its message, and the status by which programs tell kinds of errors apart.
class error : public std::runtime_error {
 public:
  error(halocline_status status, const std::string &message) : std::runtime_error(message), status_(status) {}

  // HALOCLINE_ERROR_BUSY, for example.
  halocline_status status() const noexcept { return status_; }

 private:
  halocline_status status_;
};

// Throws the error of a call of the C interface that failed.
inline void check(halocline_status status) {
  if (status != HALOCLINE_OK) {
    throw error(status, halocline_error_message());
  }
}

// Owns a handle and frees it. Moves, and does not copy.
template <typename Handle, halocline_status (*Free)(Handle *)>
class owner {
 public:
  owner() noexcept : handle_{0} {}
  explicit owner(Handle handle) noexcept : handle_(handle) {}
  owner(owner &&other) noexcept : handle_(other.release()) {}
  owner &operator=(owner &&other) noexcept {
    if (this != &other) {
      reset();
      handle_ = other.release();
    }
    return *this;
  }
  owner(const owner &) = delete;
  owner &operator=(const owner &) = delete;
  ~owner() { reset(); }

  // The handle for calls of the C interface. It stays owned.
  Handle get() const noexcept { return handle_; }
  // True unless it was moved from, released or reset.
  explicit operator bool() const noexcept { return handle_.id != 0; }
  // Gives the handle away: the caller frees it.
  Handle release() noexcept {
    Handle handle = handle_;
    handle_.id = 0;
    return handle;
  }
  // Frees the handle. A forked child leaves it. Within a callback of the library nothing can be freed, and the object stays for good:
  // release() the handle there, and free it afterwards.
  void reset() noexcept {
    if (handle_.id != 0) {
      Free(&handle_);
      handle_.id = 0;
    }
  }

 private:
  Handle handle_;
};

// A contiguous range of elements that belong to others: `std::span` of C++20, as far as it is needed.
template <typename T>
class span {
 public:
  constexpr span() noexcept : data_(nullptr), size_(0) {}
  constexpr span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
  // Of a vector, an array, a string, or another range with `data` and `size`.
  template <typename Range, typename = decltype(static_cast<T *>(std::declval<Range &>().data()))>
  constexpr span(Range &&range) noexcept : data_(range.data()), size_(range.size()) {}
  template <std::size_t N>
  constexpr span(T (&array)[N]) noexcept : data_(array), size_(N) {}

  constexpr T *data() const noexcept { return data_; }
  constexpr std::size_t size() const noexcept { return size_; }
  constexpr bool empty() const noexcept { return size_ == 0; }
  constexpr T &operator[](std::size_t at) const noexcept { return data_[at]; }
  constexpr T *begin() const noexcept { return data_; }
  constexpr T *end() const noexcept { return data_ + size_; }

 private:
  T *data_;
  std::size_t size_;
};

// An array of `Rank` dimensions with strides in bytes, which belongs to others: as `std::mdspan` of C++23.
template <typename T, std::size_t Rank>
class view {
 public:
  view(T *data, const std::array<std::size_t, Rank> &extents, const std::array<std::ptrdiff_t, Rank> &strides) noexcept
      : data_(data), extents_(extents), strides_(strides) {}
  // C order: the last dimension is contiguous.
  view(T *data, const std::array<std::size_t, Rank> &extents) noexcept : data_(data), extents_(extents), strides_{} {
    std::ptrdiff_t stride = sizeof(T);
    for (std::size_t dimension = Rank; dimension-- > 0;) {
      strides_[dimension] = stride;
      stride *= static_cast<std::ptrdiff_t>(extents[dimension]);
    }
  }

  // The element at an index for each dimension.
  template <typename... Index>
  T &operator()(Index... index) const noexcept {
    static_assert(sizeof...(Index) == Rank, "one index for each dimension");
    const std::ptrdiff_t at[] = {static_cast<std::ptrdiff_t>(index)...};
    std::ptrdiff_t bytes = 0;
    for (std::size_t dimension = 0; dimension < Rank; dimension++) {
      bytes += at[dimension] * strides_[dimension];
    }
    using byte = std::conditional_t<std::is_const<T>::value, const char, char>;
    return *reinterpret_cast<T *>(reinterpret_cast<byte *>(data_) + bytes);
  }

  static constexpr std::size_t rank() noexcept { return Rank; }
  T *data() const noexcept { return data_; }
  std::size_t extent(std::size_t dimension) const noexcept { return extents_[dimension]; }
  // In bytes.
  std::ptrdiff_t stride(std::size_t dimension) const noexcept { return strides_[dimension]; }
  const std::array<std::size_t, Rank> &extents() const noexcept { return extents_; }
  const std::array<std::ptrdiff_t, Rank> &strides() const noexcept { return strides_; }

 private:
  T *data_;
  std::array<std::size_t, Rank> extents_;
  std::array<std::ptrdiff_t, Rank> strides_;
};

// The element type of a C++ type: numbers, `bool` and complex numbers by their meaning, other types as opaque bytes.
template <typename T>
constexpr std::int32_t element_of() noexcept {
  static_assert(std::is_trivially_copyable<T>::value, "elements are copied as bytes");
  static_assert(sizeof(T) <= 256, "an element has at most 256 bytes");
  if (std::is_same<T, bool>::value) return HALOCLINE_BOOL;
  if (std::is_same<T, float>::value) return HALOCLINE_F32;
  if (std::is_same<T, double>::value) return HALOCLINE_F64;
  if (std::is_same<T, std::complex<float>>::value) return HALOCLINE_C64;
  if (std::is_same<T, std::complex<double>>::value) return HALOCLINE_C128;
  if (std::is_integral<T>::value && sizeof(T) <= 8) {
    constexpr bool is_signed = std::is_signed<T>::value;
    switch (sizeof(T)) {
      case 1: return is_signed ? HALOCLINE_I8 : HALOCLINE_U8;
      case 2: return is_signed ? HALOCLINE_I16 : HALOCLINE_U16;
      case 4: return is_signed ? HALOCLINE_I32 : HALOCLINE_U32;
      default: return is_signed ? HALOCLINE_I64 : HALOCLINE_U64;
    }
  }
  return HALOCLINE_OPAQUE(sizeof(T));
}

namespace detail {

// The elements that a call of the C interface stores in an array whose length it tells first.
template <typename T, typename Call>
std::vector<T> stored(Call call) {
  std::size_t count = 0;
  check(call(static_cast<T *>(nullptr), std::size_t{0}, &count));
  std::vector<T> elements(count);
  if (count > 0) {
    check(call(elements.data(), elements.size(), &count));
  }
  return elements;
}

// The same for numbers that come in pairs.
template <typename Call>
std::vector<std::array<std::size_t, 2>> pairs(Call call) {
  const std::vector<std::size_t> numbers = stored<std::size_t>(call);
  std::vector<std::array<std::size_t, 2>> found(numbers.size() / 2);
  for (std::size_t at = 0; at < found.size(); at++) found[at] = {numbers[2 * at], numbers[2 * at + 1]};
  return found;
}

// The same for a text, without its closing zero.
template <typename Call>
std::string text(Call call) {
  std::vector<char> characters = stored<char>(call);
  return std::string(characters.begin(), characters.empty() ? characters.end() : characters.end() - 1);
}


// The number of lists that `offsets` describes in an array of `size` elements.
inline std::size_t lists_of(span<const std::size_t> offsets, std::size_t size, const char *message) {
  bool fit = !offsets.empty();
  for (std::size_t offset : offsets) fit = fit && offset <= size;
  if (!fit) throw error(HALOCLINE_ERROR_ARGUMENT, message);
  return offsets.size() - 1;
}

}  // namespace detail
}  // namespace halocline

#endif
