// Compiled programs. Included by halocline.hpp.
#ifndef HALOCLINE_CPP_PROGRAM_HPP
#define HALOCLINE_CPP_PROGRAM_HPP

#include "field.hpp"

#include <initializer_list>

namespace halocline {

// An argument of a compiled program: a number, an array, or nothing. Numbers and views convert to it.
class argument {
 public:
  // Nothing, for an argument that follows from the others.
  argument() noexcept : argument_ HALOCLINE_ARGUMENT_INIT {}
  // A number.
  template <typename T, typename = std::enable_if_t<std::is_arithmetic<T>::value>>
  argument(T number) noexcept : argument() {
    if constexpr (std::is_floating_point<T>::value) {
      argument_.kind = HALOCLINE_ARGUMENT_REAL;
      argument_.real = static_cast<double>(number);
    } else {
      constexpr bool is_unsigned = std::is_unsigned<T>::value && !std::is_same<T, bool>::value;
      argument_.kind = is_unsigned ? HALOCLINE_ARGUMENT_UNSIGNED : HALOCLINE_ARGUMENT_INTEGER;
      argument_.integer = static_cast<std::int64_t>(number);
    }
  }
  // An array, which the program does not write if its elements are const. The argument does not own it.
  template <typename T, std::size_t Rank>
  argument(const view<T, Rank> &array) : argument() {
    argument_.kind = HALOCLINE_ARGUMENT_ARRAY;
    argument_.base = const_cast<std::remove_const_t<T> *>(array.data());
    argument_.element = element_of<std::remove_const_t<T>>();
    argument_.read_only = std::is_const<T>::value;
    for (std::size_t extent : array.extents()) extents_.push_back(static_cast<std::ptrdiff_t>(extent));
    strides_.assign(array.strides().begin(), array.strides().end());
  }
  template <typename T, std::size_t Rank>
  argument(const array<T, Rank> &array) : argument(array.view()) {}

  // The first index of each dimension of an array; 0 without it.
  argument &origin(std::vector<std::ptrdiff_t> first) {
    if (first.size() != extents_.size()) {
      throw error(HALOCLINE_ERROR_ARGUMENT, "the origin needs one index for each dimension of the array");
    }
    origin_ = std::move(first);
    return *this;
  }
  // The array lies in memory of a GPU.
  argument &cuda(int device) noexcept {
    argument_.space = HALOCLINE_CUDA;
    argument_.device = device;
    return *this;
  }
  // The type of the array's elements where C++ has none of its own: HALOCLINE_F16, for example.
  argument &element(std::int32_t element) noexcept {
    argument_.element = element;
    return *this;
  }

  // For calls of the C interface; valid while this lives and is not changed.
  halocline_argument get() const noexcept {
    halocline_argument given = argument_;
    given.dimensions = extents_.size();
    given.extents = extents_.data();
    given.strides = strides_.empty() ? nullptr : strides_.data();
    given.origin = origin_.empty() ? nullptr : origin_.data();
    return given;
  }

 private:
  halocline_argument argument_;
  std::vector<std::ptrdiff_t> extents_, strides_, origin_;
};

// A call of a program whose arguments were checked. The arrays have to stay while this lives. One thread at a time may use it.
class prepared : public owner<halocline_prepared, halocline_prepared_free> {
 public:
  using owner::owner;

  // Changes a number for the calls that follow.
  void set(std::size_t position, const argument &number) const {
    const halocline_argument given = number.get();
    check(halocline_prepared_set(get(), position, &given));
  }
  // Calls the program, and returns when it does.
  void call() const { check(halocline_prepared_call(get(), halocline_stream{0})); }
  // Calls it after the earlier work of a stream. The host does not wait.
  void call(const stream &stream) const { check(halocline_prepared_call(get(), stream.get())); }
};

// A compiled program: a function in a shared library, which DaCe and GT4Py make, for example. Threads may call it at the same time.
class program : public owner<halocline_program, halocline_program_free> {
 public:
  using owner::owner;

  // With the manifest beside the library: libheat.so.json for libheat.so. The manifest is believed.
  static program load(const std::string &library) { return loaded(library.c_str(), nullptr); }
  // With the text of a manifest.
  static program load(const std::string &library, const std::string &manifest) {
    return loaded(library.c_str(), manifest.c_str());
  }

  // The position of an argument in the list of a call.
  std::size_t position(const std::string &argument) const {
    std::size_t position;
    check(halocline_program_position(get(), argument.c_str(), &position));
    return position;
  }

  // Checks the arguments, in the order of the manifest, and calls the program. Returns when it does.
  void call(span<const argument> arguments) const { run(arguments, halocline_stream{0}); }
  void call(std::initializer_list<argument> arguments) const { run(list(arguments), halocline_stream{0}); }
  // The same after the earlier work of a stream. The host does not wait: the arrays have to stay until the stream has passed the call.
  void call(span<const argument> arguments, const stream &stream) const { run(arguments, stream.get()); }
  void call(std::initializer_list<argument> arguments, const stream &stream) const { run(list(arguments), stream.get()); }

  // Checks the arguments once, for many calls. The prepared call holds what it needs of the program.
  prepared prepare(span<const argument> arguments) const {
    halocline_prepared handle;
    const std::vector<halocline_argument> given = of_c(arguments);
    check(halocline_program_prepare(get(), given.data(), given.size(), &handle));
    return prepared(handle);
  }
  prepared prepare(std::initializer_list<argument> arguments) const { return prepare(list(arguments)); }

 private:
  static program loaded(const char *library, const char *manifest) {
    halocline_program handle;
    check(halocline_program_load(library, manifest, &handle));
    return program(handle);
  }
  void run(span<const argument> arguments, halocline_stream stream) const {
    const std::vector<halocline_argument> given = of_c(arguments);
    check(halocline_program_call(get(), given.data(), given.size(), stream));
  }
  static span<const argument> list(std::initializer_list<argument> arguments) noexcept {
    return {arguments.begin(), arguments.size()};
  }
  static std::vector<halocline_argument> of_c(span<const argument> arguments) {
    std::vector<halocline_argument> given;
    for (const argument &one : arguments) given.push_back(one.get());
    return given;
  }
};

}  // namespace halocline

#endif
