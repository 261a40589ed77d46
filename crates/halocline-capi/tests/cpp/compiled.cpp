// Calls compiled programs. Argument: the library of `scale`, with the manifest beside it, which has `fail`, `first` and `numbers`, too.
#include "check.hpp"

static const char *const FAIL = R"({
  "format": 1, "program": "fail", "interface": "c", "returns": "status", "arguments": [], "parameters": []})";

// Stores the first index of an array.
static const char *const FIRST = R"({
  "format": 1, "program": "first", "interface": "c",
  "arguments": [{"kind": "array", "name": "a", "type": "int64", "dimensions": [{"start": "begin"}, {"extent": 1}]}],
  "symbols": [{"name": "begin", "type": "int64"}], "parameters": ["a", "begin"]})";

// Stores its numbers, and the length of its last argument.
static const char *const NUMBERS = R"({
  "format": 1, "program": "numbers", "interface": "c",
  "arguments": [
    {"kind": "array", "name": "found", "type": "float64", "dimensions": [{"extent": 5}]},
    {"kind": "scalar", "name": "small", "type": "int8"}, {"kind": "scalar", "name": "large", "type": "uint64"},
    {"kind": "scalar", "name": "is_set", "type": "bool"}, {"kind": "scalar", "name": "real", "type": "float32"},
    {"kind": "scalar", "name": "length", "type": "int64", "optional": true},
    {"kind": "array", "name": "list", "type": "uint16", "access": "read", "dimensions": [{"extent": "length"}]}],
  "parameters": ["found", "small", "large", "is_set", "real", "length", "list"]})";

static void scales(const char *library) {
  std::array<double, 6> a{1, 2, 3, 4, 5, 6};
  const hc::view<double, 1> every_other(a.data(), {3}, {2 * sizeof(double)}), begin(a.data(), {3});
  hc::program scale = hc::program::load(library);
  scale.call({every_other, 2});
  TRUE(a == (std::array<double, 6>{2, 2, 6, 4, 10, 6}));
  const std::vector<hc::argument> arguments{begin, 0.5};
  scale.call(arguments);
  TRUE(a == (std::array<double, 6>{1, 1, 3, 4, 10, 6}));
  // An empty stream is none.
  scale.call(arguments, hc::stream());
  scale.call({begin, 2.0f}, hc::stream());
  TRUE(a == (std::array<double, 6>{1, 1, 3, 4, 10, 6}));

  // An array of the library, whose field it is.
  const hc::comm comm = hc::comm::init("thread");
  const hc::array<double, 1> field(comm, {2});
  field(1) = 21;
  scale.call({field, 2});
  TRUE(field(1) == 42);

  // A prepared call keeps its program.
  const std::size_t factor = scale.position("factor");
  TRUE(factor == 1);
  THROWS(HALOCLINE_ERROR_ARGUMENT, "has no argument size", scale.position("size"));
  const hc::prepared ready = scale.prepare({begin, 2.0});
  const hc::prepared same = scale.prepare(arguments);
  scale.reset();
  THROWS(HALOCLINE_ERROR_HANDLE, "is null", scale.call(arguments));
  ready.call();
  TRUE(a[0] == 2);
  ready.set(factor, 0.5);
  ready.call(hc::stream());
  TRUE(a[0] == 1);
  same.call();
  TRUE(a[0] == 0.5);
  THROWS(HALOCLINE_ERROR_ARGUMENT, "argument a of program scale is an array", ready.set(0, 0.5));
  THROWS(HALOCLINE_ERROR_ARGUMENT, "number is no number", ready.set(factor, begin));
  THROWS(HALOCLINE_ERROR_HANDLE, "is null", hc::prepared().call());
}

static void checks_arguments(const char *library) {
  std::array<double, 2> a{1, 2};
  const hc::view<double, 1> view(a.data(), {2});
  const hc::program scale = hc::program::load(library);
  THROWS(HALOCLINE_ERROR_ARGUMENT, "lacks argument factor", scale.call({view}));
  THROWS(HALOCLINE_ERROR_ARGUMENT, "lacks argument", scale.call({}));
  THROWS(HALOCLINE_ERROR_ARGUMENT, "is read-only", (scale.call({hc::view<const double, 1>(a.data(), {2}), 2})));
  THROWS(HALOCLINE_ERROR_ARGUMENT, "elements of type", scale.call({hc::argument(view).element(HALOCLINE_F16), 2}));
  THROWS(HALOCLINE_ERROR_ARGUMENT, "in memory of GPU 3", scale.call({hc::argument(view).cuda(3), 2}));
  THROWS(HALOCLINE_ERROR_ARGUMENT, "for each dimension", hc::argument(view).origin({1, 2}));
  TRUE(a[0] == 1);
  scale.call({hc::argument(view).element(HALOCLINE_F64), 2});
  TRUE(a[0] == 2);

  // Programs that fail, and libraries that are none.
  THROWS(HALOCLINE_ERROR_PROGRAM, "returned status 7", hc::program::load(library, FAIL).call({}));
  THROWS(HALOCLINE_ERROR_PROGRAM, "none.so", hc::program::load("none.so"));
  THROWS(HALOCLINE_ERROR_PROGRAM, "manifest", hc::program::load(library, "{"));
}

static void converts_numbers(const char *library) {
  std::int64_t begin = 0;
  const hc::view<std::int64_t, 2> one(&begin, {1, 1});
  hc::program::load(library, FIRST).call({hc::argument(one).origin({-3, 0})});
  TRUE(begin == -3);

  std::array<double, 5> found{};
  const hc::view<double, 1> to(found.data(), {5});
  const std::uint16_t three[3] = {0, 0, 0};
  const hc::view<const std::uint16_t, 1> list(three, {3});
  const hc::program numbers = hc::program::load(library, NUMBERS);
  const std::int8_t small = -100;
  const std::uint64_t large = std::uint64_t{1} << 63;
  // The length follows from the last argument.
  numbers.call({to, small, large, true, 0.25f, hc::argument(), list});
  TRUE(found == (std::array<double, 5>{-100, 9223372036854775808.0, 1, 0.25, 3}));
  // An array without dimensions stands for a number.
  const float real = 0.5;
  numbers.call({to, 'a', 7u, false, hc::view<const float, 0>(&real, {}), 3, list});
  TRUE(found == (std::array<double, 5>{97, 7, 0, 0.5, 3}));
  THROWS(HALOCLINE_ERROR_ARGUMENT, "small", numbers.call({to, 1000, 7u, false, 0.5, 3, list}));
  THROWS(HALOCLINE_ERROR_ARGUMENT, "length", numbers.call({to, 1, 7u, false, 0.5, 4, list}));
}

int main(int argc, char **argv) {
  TRUE(argc == 2);
  scales(argv[1]);
  checks_arguments(argv[1]);
  converts_numbers(argv[1]);
  std::puts("ok");
  return 0;
}
