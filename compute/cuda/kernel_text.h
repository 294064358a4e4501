// SPDX-License-Identifier: Apache-2.0
// The text of one kernel while it is written: its lines, its parameters, and the arguments for
// these. Single-threaded; used once.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "compute/cuda/kernel_code.h"
#include "compute/plan/view.h"

namespace ferry::compute {

// The name of the element type in kernels.
std::string CppType(DType type);
// The name of an op's function in kernels: "shift_left" gives ShiftLeft.
std::string FunctionOf(absl::string_view name);
// A literal for an element that is given by its bits.
std::string CodeText(DType type, uint64_t code);

// Declares `count`, how many elements there are of the vector from `index` on: V if `all` are,
// which is known before.
std::string CountText(bool all, absl::string_view index, absl::string_view end);

// The view with fewer dimensions: without those of one element, and with neighbours joined that can
// be walked as one.
View Collapsed(const View& view);

// The body of a loop over vectors. Copyable.
class LoopBody {
 public:
  void Add(std::string line) { lines_.push_back(std::move(line)); }
  // Adds a statement in k, which runs for each element of a vector, and what it needs declared
  // before, if anything. Statements that follow each other share one loop, which the compiler takes
  // less time for than for a loop for each statement.
  void AddEach(std::string declaration, std::string statement);

  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
  // Of the loop over elements that was added last: the index in lines_ of its first line, and of
  // the line after it.
  size_t each_begin_ = 0;
  size_t each_end_ = 0;  // 0: there is none
};

class KernelText {
 public:
  // `wide`: positions need more than 32 bits. `baked`: numbers become literals, not parameters.
  KernelText(bool wide, bool baked) : wide_(wide), baked_(baked) {}

  // These add a parameter and return its name.
  std::string Pointer(bool written, KernelArgument::Kind kind, uint32_t index, int64_t offset);
  std::string Number(int64_t value);
  // A name that nothing else in the kernel has.
  std::string Name() { return absl::StrCat("v", names_++); }

  // An expression for the position, in elements, of element `index` (an expression) of the view.
  // `with_offset` false: counted from the view's offset.
  std::string Place(const View& view, const std::string& index, bool with_offset);

  void AddGlobal(std::string line) { globals_.push_back(std::move(line)); }
  void Add(std::string line) { lines_.push_back(std::move(line)); }
  void Add(const std::vector<std::string>& lines) {
    lines_.insert(lines_.end(), lines.begin(), lines.end());
  }
  void Add(const LoopBody& body) { Add(body.lines()); }

  KernelLaunch Finish(uint64_t blocks, uint32_t threads);

 private:
  const bool wide_;
  const bool baked_;
  int names_ = 0;
  int pointers_ = 0;
  int numbers_ = 0;
  std::string parameters_;  // each with a comma before it
  std::vector<KernelArgument> arguments_;
  std::vector<std::string> globals_;
  std::vector<std::string> lines_;
};

}  // namespace ferry::compute
