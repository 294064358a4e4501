// SPDX-License-Identifier: Apache-2.0
// Order statistics of a few samples. Pure.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace ferry::tools {

// The value below which `fraction` of the samples lie (nearest rank); 0 if there are none.
template <typename T>
T Quantile(std::vector<T> samples, double fraction) {
  if (samples.empty()) return T{};
  const double rank = std::ceil(fraction * static_cast<double>(samples.size()));
  const size_t index = rank < 1 ? 0 : std::min(static_cast<size_t>(rank) - 1, samples.size() - 1);
  std::nth_element(samples.begin(), samples.begin() + index, samples.end());
  return samples[index];
}

template <typename T>
T Median(std::vector<T> samples) {
  return Quantile(std::move(samples), 0.5);
}

}  // namespace ferry::tools
