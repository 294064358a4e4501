// SPDX-License-Identifier: Apache-2.0
// What a profiler shows on its timeline beside kernels and copies, such as NVIDIA's Nsight Systems:
// a range from when a ProfilerRange is made to when it is destroyed, in the NVTX domain "ferry".
//
// A tool is attached if it started this process, with NVTX_INJECTION64_PATH in the environment. If
// none is, a range costs a comparison, and its name is not made. Any thread; a range may end on
// another thread than it began on.
//
// Source: NVTX 3, https://github.com/NVIDIA/NVTX.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"

namespace ferry {

class ProfilerRange {
 public:
  ProfilerRange() = default;
  // `name` is called only if a tool is attached.
  explicit ProfilerRange(absl::FunctionRef<std::string()> name);
  ~ProfilerRange() { End(); }
  ProfilerRange(ProfilerRange&& other) noexcept : id_(std::exchange(other.id_, 0)) {}
  ProfilerRange& operator=(ProfilerRange&& other) noexcept {
    if (this != &other) {
      End();
      id_ = std::exchange(other.id_, 0);
    }
    return *this;
  }

  // Whether a tool is attached.
  static bool IsProfiled();

 private:
  void End();

  uint64_t id_ = 0;  // 0: nothing is shown
};

}  // namespace ferry
