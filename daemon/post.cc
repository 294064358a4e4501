// SPDX-License-Identifier: Apache-2.0
#include "daemon/post.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace ferry {

std::string FieldOf(size_t buffer, const Layout& layout, size_t range) {
  const Layout::Blocks* blocks = layout.blocks();
  if (layout.merged()) return absl::StrCat("buffers[", buffer, "].ranges");
  if (blocks == nullptr) return absl::StrCat("buffers[", buffer, "].ranges[", range, "]");
  return absl::StrCat("buffers[", buffer, blocks->is_table ? "].blocks" : "].strided");
}

std::string BindingField(size_t run, size_t binding) {
  return absl::StrCat("runs[", run, "].bindings[", binding, "]");
}

absl::Status RefusedBatch(const std::vector<Violation>& violations, size_t batch_size) {
  FERRY_CHECK(!violations.empty());
  const Violation& first = violations.front();
  return Annotate(first.status, absl::StrCat("nothing was posted: ", violations.size(),
                                             violations.size() == 1 ? " problem" : " problems",
                                             " in a batch of ", batch_size, "; ", first.field));
}

}  // namespace ferry
