// SPDX-License-Identifier: Apache-2.0
// Copies within one process, which transfers are compared with. Any thread.
#pragma once

#include <cstddef>

#include "absl/time/time.h"

namespace ferry::tools {

// Anonymous memory that nobody has touched; owns it.
class Pages {
 public:
  explicit Pages(size_t bytes);
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  // Null if the memory could not be had; then errno says why.
  std::byte* data() const { return data_; }
  // Touches every page and fills it with some bytes.
  void Fill() const;

 private:
  std::byte* data_ = nullptr;
  size_t bytes_;
};

absl::Duration TimeMemcpy(std::byte* to, const std::byte* from, size_t bytes);
// The time of a copy by `threads` threads (the caller is one) with stores that bypass the caches.
absl::Duration TimeStreamingCopy(std::byte* to, const std::byte* from, size_t bytes, int threads);

}  // namespace ferry::tools
