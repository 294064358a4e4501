// SPDX-License-Identifier: Apache-2.0
#include "daemon/job/scratch.h"

#include "base/status.h"

namespace ferry {

absl::StatusOr<absl::Span<std::byte>> Scratch::Get(uint64_t bytes) {
  home_.Check();
  if (bytes > bytes_) {
    Free();
    ASSIGN_OR_RETURN(data_, maker_->Make(bytes));
    bytes_ = bytes;
  }
  return absl::Span<std::byte>(data_, bytes);
}

void Scratch::Shrink(uint64_t most) {
  home_.Check();
  if (bytes_ > most) Free();
}

void Scratch::Free() {
  if (data_ != nullptr) maker_->Free(data_, bytes_);
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace ferry
