// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/convert_batch.h"

#include "base/duration.h"
#include "proto/ferry/v1/timeline_layout.h"

namespace ferry {

absl::Status SetDeadline(const google::protobuf::Duration& proto, absl::Duration& deadline) {
  const absl::Duration given = absl::Seconds(proto.seconds()) + absl::Nanoseconds(proto.nanos());
  if (given <= absl::ZeroDuration() || given > absl::Hours(24 * 365)) {
    return Invalid(absl::StrCat("a deadline must be more than 0 and at most a year, not ",
                                DurationText(given)));
  }
  deadline = given;
  return absl::OkStatus();
}

absl::Status ConvertDefinedAt(const v1::DefinedAt& defined_at, TransferSpec& spec) {
  if (defined_at.timeline() >= FERRY_TIMELINE_COUNTERS) {
    return Invalid(absl::StrCat("defined_at.timeline ", defined_at.timeline(), " is not below ",
                                FERRY_TIMELINE_COUNTERS));
  }
  spec.defined = false;
  spec.defined_timeline = defined_at.timeline();
  spec.defined_value = defined_at.value();
  return absl::OkStatus();
}

absl::Status CheckSize(const char* call, const char* what, size_t count, size_t bytes) {
  constexpr size_t kMaxBatchBytes = 1 << 20;
  if (count > kMaxBatchTransfers) {
    return Invalid(absl::StrCat(call, ": ", count, " ", what, " in one batch, at most ",
                                kMaxBatchTransfers, "; post several batches"),
                   Reason::kBatchTooLarge);
  }
  if (bytes > kMaxBatchBytes) {
    return Invalid(absl::StrCat(call, ": a batch of ", bytes, " bytes, at most ", kMaxBatchBytes,
                                "; post several batches"),
                   Reason::kBatchTooLarge);
  }
  return absl::OkStatus();
}

BatchOptions ConvertOptions(const v1::PostOptions& given, PostBatch& batch) {
  BatchOptions options;
  const auto bad = [&batch](const char* field, absl::Status status) {
    batch.violations.push_back({field, std::move(status)});
  };
  batch.over_timeline = given.over_timeline();
  if (batch.over_timeline >= FERRY_TIMELINE_COUNTERS) {
    bad("options.over_timeline", Invalid(absl::StrCat("counter ", batch.over_timeline,
                                                      " is not below ", FERRY_TIMELINE_COUNTERS)));
  }
  if (given.has_deadline()) {
    absl::Status status = SetDeadline(given.deadline(), options.deadline);
    if (!status.ok()) bad("options.deadline", std::move(status));
  }
  options.priority = given.priority();
  if (options.priority < -kMaxPriority || options.priority > kMaxPriority) {
    bad("options.priority", Invalid(absl::StrCat(options.priority, " is not within -100 to 100")));
  }
  // Who looks at the rest of a bad batch meets known ones only.
  if (given.route() < 0 || given.route() >= kRoutes) {
    bad("options.route", Invalid(absl::StrCat("route ", given.route(), " is unknown")));
  } else {
    options.route = static_cast<Route>(given.route());
  }
  batch.continues = given.continues();
  return options;
}

}  // namespace ferry
