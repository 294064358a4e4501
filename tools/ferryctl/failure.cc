// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/failure.h"

#include <nlohmann/json.hpp>

#include <optional>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "base/duration.h"
#include "base/status.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "tools/ferryctl/format.h"
#include "tools/ferryctl/globals.h"

namespace ferry::tools {
namespace {

// NUL-separated field, text pairs.
constexpr char kViolationsUrl[] = "ferryctl.violations";
// The reason of a newer daemon, which base/status.h does not know, as it was said.
constexpr char kForeignReasonUrl[] = "ferryctl.reason";

absl::Status Make(int code, const std::string& reason, const std::string& text) {
  const auto absl_code = static_cast<absl::StatusCode>(code);
  if (reason.empty()) return absl::Status(absl_code, text);
  if (auto known = ReasonFromName(reason)) return Error(absl_code, *known, text);
  absl::Status status(absl_code, text);
  status.SetPayload(kForeignReasonUrl, absl::Cord(reason));
  return status;
}

std::string ReasonText(const absl::Status& status) {
  if (auto payload = status.GetPayload(kForeignReasonUrl)) return std::string(*payload);
  if (!HasReason(status, Reason::kInternal)) return std::string(ReasonName(ReasonOf(status)));
  // For an error without a reason base says INTERNAL too; then only the code is shown.
  return status.code() == absl::StatusCode::kInternal ? "INTERNAL" : "";
}

}  // namespace

absl::Status WithViolations(absl::Status status, const std::vector<Violation>& violations) {
  if (violations.empty()) return status;
  std::vector<std::string> parts;
  for (const Violation& violation : violations) {
    parts.push_back(violation.field);
    parts.push_back(violation.text);
  }
  std::string flat;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) flat.push_back('\0');
    flat.append(parts[i]);
  }
  status.SetPayload(kViolationsUrl, absl::Cord(flat));
  return status;
}

std::vector<Violation> ViolationsOf(const absl::Status& status) {
  std::vector<Violation> violations;
  if (auto payload = status.GetPayload(kViolationsUrl)) {
    std::vector<std::string> parts = absl::StrSplit(std::string(*payload), '\0');
    for (size_t i = 0; i + 1 < parts.size(); i += 2) violations.push_back({parts[i], parts[i + 1]});
  }
  return violations;
}

absl::Status FromFerry(ferry_status* status) {
  if (status == nullptr) return absl::OkStatus();
  std::vector<Violation> violations;
  for (size_t i = 0; i < ferry_status_violations(status); ++i) {
    violations.push_back(
        {ferry_status_violation_field(status, i), ferry_status_violation_text(status, i)});
  }
  absl::Status result =
      WithRetryAfter(WithViolations(Make(ferry_status_code(status), ferry_status_reason(status),
                                         ferry_status_message(status)),
                                    violations),
                     absl::Nanoseconds(static_cast<int64_t>(ferry_status_retry_after_ns(status))));
  ferry_status_free(status);
  return result;
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  std::string reason;
  absl::Duration retry_after;
  std::vector<Violation> violations;
  google::rpc::Status details;
  if (details.ParseFromString(status.error_details())) {
    for (const auto& detail : details.details()) {
      google::rpc::ErrorInfo info;
      google::rpc::BadRequest bad;
      google::rpc::RetryInfo retry;
      if (detail.UnpackTo(&info)) {
        reason = info.reason();
      } else if (detail.UnpackTo(&bad)) {
        for (const auto& v : bad.field_violations()) {
          violations.push_back({v.field(), v.description()});
        }
      } else if (detail.UnpackTo(&retry)) {
        retry_after = absl::Seconds(retry.retry_delay().seconds()) +
                      absl::Nanoseconds(retry.retry_delay().nanos());
      }
    }
  }
  return WithRetryAfter(
      WithViolations(Make(status.error_code(), reason, status.error_message()), violations),
      retry_after);
}

std::string DescribeFailure(const absl::Status& status, bool json) {
  const std::string code = absl::StatusCodeToString(status.code());
  const std::string reason = ReasonText(status);
  const std::vector<Violation> violations = ViolationsOf(status);
  const absl::Duration retry_after = RetryAfterOf(status);
  if (json) {
    nlohmann::ordered_json error = {
        {"code", code}, {"reason", reason}, {"message", std::string(status.message())}};
    error["violations"] = nlohmann::ordered_json::array();
    for (const Violation& v : violations) {
      error["violations"].push_back({{"field", v.field}, {"text", v.text}});
    }
    if (retry_after > absl::ZeroDuration()) {
      error["retry_after_ms"] = absl::ToDoubleMilliseconds(retry_after);
    }
    return nlohmann::ordered_json({{"error", error}})
        .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  }
  std::string text = absl::StrCat(code, reason.empty() || reason == code ? "" : " ",
                                  reason == code ? "" : reason, ": ", status.message());
  for (size_t i = 1; i < violations.size(); ++i) {
    absl::StrAppend(&text, "\n  ", violations[i].field, ": ", violations[i].text);
  }
  if (retry_after > absl::ZeroDuration()) {
    absl::StrAppend(&text, "\n  try again in ", DurationText(retry_after));
  }
  return PrintableLines(text);
}

int ExitStatusOf(const absl::Status& status) {
  if (HasReason(status, Reason::kDeviceUnknown)) return kExitNotFound;
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kNotFound:
      return kExitNotFound;
    case absl::StatusCode::kUnavailable:
      return kExitUnavailable;
    case absl::StatusCode::kDeadlineExceeded:
      return kExitDeadline;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return kExitDenied;
    default:
      return kExitFailure;
  }
}

}  // namespace ferry::tools
