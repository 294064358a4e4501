// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <cstring>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ferry {
namespace {

// Payloads of an absl::Status: the reason's name, and the metadata as NUL-separated key, value pairs.
constexpr char kReasonUrl[] = "ferry.reason";
constexpr char kMetadataUrl[] = "ferry.metadata";

struct NamedReason {
  Reason reason;
  absl::string_view name;
};
constexpr NamedReason kReasons[] = {
#define FERRY_REASON_ROW(name, text) {Reason::name, text},
    FERRY_REASONS(FERRY_REASON_ROW)
#undef FERRY_REASON_ROW
};

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
      if (!flat.empty()) flat.push_back('\0');
      flat.append(key).push_back('\0');
      flat.append(value);
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
    std::vector<std::string> parts = absl::StrSplit(std::string(*payload), '\0');
    for (size_t i = 0; i + 1 < parts.size(); i += 2) metadata[parts[i]] = parts[i + 1];
  }
  return metadata;
}

absl::Status Annotate(const absl::Status& status, absl::string_view prefix) {
  if (status.ok()) return status;
  absl::Status annotated(status.code(), absl::StrCat(prefix, ": ", status.message()));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    annotated.SetPayload(url, payload);
  });
  return annotated;
}

absl::Status ErrnoError(absl::StatusCode code, Reason reason, absl::string_view doing, int error) {
  return Error(code, reason, absl::StrCat(doing, ": ", strerror(error)));
}

}  // namespace ferry
