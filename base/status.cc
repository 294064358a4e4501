// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <cstring>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/limit_text.h"

namespace ferry {
namespace {

// Payloads of an absl::Status: the reason's name, and the metadata as keys and values in turn, each
// as "length:bytes", since a value may hold any byte.
constexpr char kReasonUrl[] = "ferry.reason";
constexpr char kMetadataUrl[] = "ferry.metadata";
constexpr char kRetryUrl[] = "ferry.retry_after_ns";

struct NamedReason {
  Reason reason;
  absl::string_view name;
};
constexpr NamedReason kReasons[] = {
#define FERRY_REASON_ROW(name, text) {Reason::name, text},
    FERRY_REASONS(FERRY_REASON_ROW)
#undef FERRY_REASON_ROW
};

bool TakePart(absl::string_view& rest, std::string& part) {
  const size_t colon = rest.find(':');
  size_t size = 0;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(rest.substr(0, colon), &size))
    return false;
  rest.remove_prefix(colon + 1);
  if (size > rest.size()) return false;
  part = std::string(rest.substr(0, size));
  rest.remove_prefix(size);
  return true;
}

}  // namespace

absl::string_view ReasonName(Reason reason) { return kReasons[static_cast<int>(reason)].name; }

std::optional<Reason> ReasonFromName(absl::string_view name) {
  for (const NamedReason& row : kReasons) {
    if (row.name == name) return row.reason;
  }
  return std::nullopt;
}

absl::Status Error(absl::StatusCode code, Reason reason, absl::string_view text,
                   const Metadata& metadata) {
  absl::Status status(code, text);
  status.SetPayload(kReasonUrl, absl::Cord(ReasonName(reason)));
  if (!metadata.empty()) {
    std::string flat;
    for (const auto& [key, value] : metadata) {
      absl::StrAppend(&flat, key.size(), ":", key, value.size(), ":", value);
    }
    status.SetPayload(kMetadataUrl, absl::Cord(flat));
  }
  return status;
}

Reason ReasonOf(const absl::Status& status) {
  if (auto payload = status.GetPayload(kReasonUrl)) {
    if (auto reason = ReasonFromName(std::string(*payload))) return *reason;
  }
  return Reason::kInternal;
}

bool HasReason(const absl::Status& status, Reason reason) {
  return !status.ok() && ReasonOf(status) == reason;
}

Metadata MetadataOf(const absl::Status& status) {
  Metadata metadata;
  if (auto payload = status.GetPayload(kMetadataUrl)) {
    const std::string flat(*payload);
    absl::string_view rest = flat;
    std::string key, value;
    while (TakePart(rest, key) && TakePart(rest, value)) metadata[key] = value;
  }
  return metadata;
}

absl::Status WithRetryAfter(absl::Status status, absl::Duration after) {
  status.SetPayload(kRetryUrl, absl::Cord(absl::StrCat(absl::ToInt64Nanoseconds(after))));
  return status;
}

absl::Duration RetryAfterOf(const absl::Status& status) {
  int64_t nanos = 0;
  if (auto payload = status.GetPayload(kRetryUrl)) {
    if (!absl::SimpleAtoi(std::string(*payload), &nanos)) nanos = 0;
  }
  return absl::Nanoseconds(nanos);
}

absl::Status WithText(const absl::Status& status, absl::string_view text) {
  if (status.ok()) return status;
  absl::Status other(status.code(), text);
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& payload) { other.SetPayload(url, payload); });
  return other;
}

absl::Status Annotate(const absl::Status& status, absl::string_view prefix) {
  return WithText(status, absl::StrCat(prefix, ": ", status.message()));
}

absl::Status ErrnoError(absl::StatusCode code, Reason reason, absl::string_view doing, int error) {
  return Error(code, reason, absl::StrCat(doing, ": ", strerror(error), LimitText(error)));
}

}  // namespace ferry
