// SPDX-License-Identifier: Apache-2.0
#include "transfer/record_bytes.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ferry {
namespace {

// Of a transfer or an offer and its places in tables, whatever it is of.
constexpr uint64_t kRecord = 1024;

}  // namespace

uint64_t RecordBytesOf(const MatchKey& key, const Layout& layout) {
  return key.count * (kRecord + key.domain.size()) + key.key.size() + layout.record_bytes();
}

absl::Status RecordBytes::Full(absl::Time now, uint64_t more, absl::string_view doing,
                               absl::string_view whose, absl::string_view setting) const {
  home_.Check();
  const bool ever = more <= most_;
  absl::Status full =
      Error(absl::StatusCode::kResourceExhausted, Reason::kQueueFull,
            absl::StrCat(doing, ": its records, keys and layouts are ", more, " bytes, and ", whose,
                         " has ", bytes_, " of ", most_, " here (", setting, "); ",
                         ever ? "wait for some transfers to end" : "post fewer at once"));
  if (!ever) return full;
  return WithRetryAfter(std::move(full), freed_.For(now, bytes_ + more - most_));
}

void RecordBytes::Settle(absl::Time now) {
  home_.Check();
  if (given_ == 0) return;
  freed_.OnFreed(now, given_);
  given_ = 0;
}

}  // namespace ferry
