// SPDX-License-Identifier: Apache-2.0
// The text of one kernel while it is written: lines, and parameters with what is passed for them.
// Single-threaded; used once.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compute/cuda/kernel_code.h"
#include "compute/plan/view.h"

namespace ferry::compute {

// The element type's name in kernels.
std::string CppType(DType type);
// An op's function in kernels: "shift_left" is ShiftLeft.
std::string FunctionOf(absl::string_view name);
// An element by its bits.
std::string CodeText(DType type, uint64_t code);

// A view with fewer dimensions: those of one element, and those that are as one with the next, are
// gone.
View Collapsed(const View& view);

class KernelText {
 public:
  // `wide`: places do not fit 32 bits. `baked`: numbers are no parameters.
  KernelText(bool wide, bool baked) : wide_(wide), baked_(baked) {}

  // Names of parameters.
  std::string Pointer(bool written, KernelArgument::Kind kind, uint32_t index, int64_t offset);
  std::string Number(int64_t value);
  // A name that nobody else has.
  std::string Name() { return absl::StrCat("v", names_++); }

  // Where element `index` (an expression) of a view is, in elements; without `with_offset` of what
  // is at the view's offset.
  std::string Place(const View& view, const std::string& index, bool with_offset);

  void AddGlobal(std::string line) { globals_.push_back(std::move(line)); }
  void Add(std::string line) { lines_.push_back(std::move(line)); }
  void Add(const std::vector<std::string>& lines) {
    lines_.insert(lines_.end(), lines.begin(), lines.end());
  }

  KernelLaunch Finish(uint64_t blocks, uint32_t threads);

 private:
  const bool wide_;
  const bool baked_;
  int names_ = 0;
  int pointers_ = 0;
  int numbers_ = 0;
  std::vector<std::string> parameters_;
  std::vector<KernelArgument> arguments_;
  std::vector<std::string> globals_;
  std::vector<std::string> lines_;
};

}  // namespace ferry::compute
