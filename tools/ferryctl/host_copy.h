// SPDX-License-Identifier: Apache-2.0
// The copies of one process that transfers are measured against. Any thread.
#pragma once

#include <cstddef>

#include "absl/time/time.h"

namespace ferry::tools {

// Anonymous memory that nobody has touched.
class Pages {
 public:
  explicit Pages(size_t bytes);
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  // Null if there is none; errno says why.
  std::byte* data() const { return data_; }
  // Touches every page and fills it with something.
  void Fill() const;

 private:
  std::byte* data_ = nullptr;
  size_t bytes_;
};

absl::Duration TimeMemcpy(std::byte* to, const std::byte* from, size_t bytes);
// `threads` threads (ours is one) with stores that go past the caches.
absl::Duration TimeStreamingCopy(std::byte* to, const std::byte* from, size_t bytes, int threads);

}  // namespace ferry::tools
