// SPDX-License-Identifier: Apache-2.0
// What requests for transfers and for runs of programs have in common, on their way to a PostBatch:
// private to daemon/rpc/convert*.cc. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "daemon/post.h"
#include "daemon/rpc/plain_request.h"
#include "ferry/v1/transfer.pb.h"

namespace ferry {

// What is wrong with an entry; its violation says with which.
inline absl::Status Invalid(const std::string& text, Reason reason = Reason::kFieldInvalid) {
  return Error(absl::StatusCode::kInvalidArgument, reason, text);
}

// It must be positive, and short enough to be added to a clock.
absl::Status SetDeadline(const google::protobuf::Duration& proto, absl::Duration& deadline);

absl::Status ConvertDefinedAt(const v1::DefinedAt& defined_at, TransferSpec& spec);

// Whether a batch of so many entries and bytes is looked at.
absl::Status CheckSize(const char* call, const char* what, size_t count, size_t bytes);

// `what` tells requests apart that are encoded alike.
template <typename Request>
void ConvertId(const Request& request, int what, PostBatch& batch) {
  constexpr size_t kMaxRequestIdBytes = 64;
  if (request.request_id().size() > kMaxRequestIdBytes) {
    batch.violations.push_back(
        {"request_id", Invalid(absl::StrCat("at most ", kMaxRequestIdBytes, " bytes, not ",
                                            request.request_id().size()))});
  } else if (!request.request_id().empty()) {
    batch.request_id = request.request_id();
    batch.request_hash = absl::HashOf(what, request.SerializeAsString());
  }
}
inline void ConvertId(const PlainRequest&, int, PostBatch&) {}  // has none

template <typename Request>
void ConvertIdAndDomain(const Request& request, int what, PostBatch& batch) {
  ConvertId(request, what, batch);
  const absl::string_view domain = request.domain();
  if (domain.size() > kMaxDomainBytes) {
    batch.violations.push_back({"domain", Invalid(absl::StrCat("at most ", kMaxDomainBytes,
                                                               " bytes, not ", domain.size()))});
  }
  batch.domain = std::string(domain);
}

// What belongs to the batch as a whole.
struct BatchOptions {
  absl::Duration deadline;  // zero: none given
  int32_t priority = 0;
  Route route = Route::kUnspecified;
};
BatchOptions ConvertOptions(const v1::PostOptions& given, PostBatch& batch);

}  // namespace ferry
