// SPDX-License-Identifier: Apache-2.0
#include "base/nearest.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace ferry {
namespace {

size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, change}));
    }
  }
  return row[b.size()];
}

absl::string_view LastName(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == path.npos ? path : path.substr(slash + 1);
}

}  // namespace

std::string Nearest(absl::string_view word, const std::vector<std::string>& words) {
  std::string nearest;
  size_t distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : words) {
    const size_t d = EditDistance(word, candidate);
    if (d < distance && d < candidate.size()) {
      distance = d;
      nearest = candidate;
    }
  }
  return nearest;
}

bool Alike(absl::string_view a, absl::string_view b) {
  constexpr size_t kMostDiffer = 2;
  const size_t longer = std::max(a.size(), b.size());
  const auto begin = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  const size_t before = static_cast<size_t>(begin.first - a.begin());
  if (2 * before >= longer) return true;
  const absl::string_view rest_a = a.substr(before), rest_b = b.substr(before);
  const auto end = std::mismatch(rest_a.rbegin(), rest_a.rend(), rest_b.rbegin(), rest_b.rend());
  const size_t after = static_cast<size_t>(end.first - rest_a.rbegin());
  if (longer - before - after <= std::min(kMostDiffer, longer / 4)) return true;
  return !LastName(a).empty() && LastName(a) == LastName(b);
}

}  // namespace ferry
