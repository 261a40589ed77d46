// The figure of a benchmark of several ranks.
#pragma once

#include <halocline.hpp>

#include <algorithm>
#include <vector>

// The median of the slower rank's times; all ranks have as many. Collective.
inline double median(const halocline::comm &comm, std::vector<double> times) {
  comm.all_reduce(halocline::span<double>(times), halocline::reduce::max);
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}
