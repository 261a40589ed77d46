// What a call of the C++ interface costs beside the same call of C: an exchange of one cell on one rank, and its wait.
//
//     tools/install --prefix out/halocline
//     c++ -std=c++17 -O2 bench/capi/cost.cpp $(PKG_CONFIG_PATH=out/halocline/lib/pkgconfig pkg-config --cflags --libs halocline) -o out/cost
//     out/cost
//
// Rounds of the two alternate; the fastest round of each counts. Ends with status 1 if C++ takes over 5 ns more than C.
#include <halocline.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>

template <typename Call>
static double nanoseconds(Call call) {
  constexpr int CALLS = 20000;
  const auto start = std::chrono::steady_clock::now();
  for (int at = 0; at < CALLS; at++) call();
  const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - start;
  return elapsed.count() / CALLS;
}

int main() {
  const auto comm = halocline::comm::init("thread");
  const auto pattern = halocline::regular_grid({1}).periodic({true}).decompose(1).pattern(comm, 1);
  const halocline::array<double, 1> field(comm, pattern.domain().shape<1>());
  const halocline::halo_exchange halo(comm, {{pattern, field}});
  double c = 1e9, cpp = 1e9;
  for (int round = 0; round < 200; round++) {
    c = std::min(c, nanoseconds([&] {
                   halocline_pending pending;
                   if (halocline_exchange(halo.get(), &pending) != HALOCLINE_OK || halocline_wait(pending) != HALOCLINE_OK) {
                     std::abort();
                   }
                 }));
    cpp = std::min(cpp, nanoseconds([&] { halo.exchange().wait(); }));
  }
  std::printf("C: exchange, then wait    %6.1f ns\nC++: exchange, then wait  %6.1f ns (%+.1f)\n", c, cpp, cpp - c);
  return cpp - c > 5 ? 1 : 0;
}
