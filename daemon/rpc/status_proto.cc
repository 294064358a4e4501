// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/status_proto.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/printable.h"
#include "base/status.h"
#include "google/rpc/error_details.pb.h"

namespace ferry {
namespace {
// gRPC's trailers have at most 8 KiB in all; the status of a refused batch of thousands must fit.
constexpr size_t kMaxDetailBytes = 6 * 1024;
constexpr size_t kMaxMessageBytes = 1024;
// When to try again something that is missing now, if nobody knows when it will be there.
constexpr absl::Duration kRetryUnavailable = absl::Milliseconds(100);
// The longest such time that is believed of another daemon.
constexpr absl::Duration kMaxRetryAfter = absl::Minutes(1);

}  // namespace

std::string BoundedText(absl::string_view text, size_t max) {
  std::string good;
  while (!text.empty()) {
    const size_t bytes = Utf8Bytes(text);
    if (good.size() + std::max<size_t>(bytes, 1) > max) break;
    if (bytes == 0) {
      good += '?';
    } else {
      good.append(text.data(), bytes);
    }
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return good;
}

void SetDuration(absl::Duration duration, google::protobuf::Duration* out) {
  absl::Duration rest;
  out->set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &rest));
  out->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
}

void ToProto(const absl::Status& status, const std::vector<Violation>& violations,
             google::rpc::Status* out) {
  out->Clear();
  if (status.ok()) return;
  if (violations.empty()) {
    const Metadata metadata = MetadataOf(status);
    const auto field = metadata.find(kFieldMetadata);
    if (field != metadata.end()) return ToProto(status, {{field->second, status}}, out);
  }
  out->set_code(static_cast<int>(status.code()));
  out->set_message(BoundedText(status.message(), kMaxMessageBytes));
  google::rpc::ErrorInfo info;
  info.set_reason(std::string(ReasonName(ReasonOf(status))));
  info.set_domain(kErrorDomain);
  for (const auto& [key, value] : MetadataOf(status)) {
    (*info.mutable_metadata())[BoundedText(key, kMaxMessageBytes)] =
        BoundedText(value, kMaxMessageBytes);
  }
  if (!violations.empty())
    (*info.mutable_metadata())["violations"] = absl::StrCat(violations.size());
  out->add_details()->PackFrom(info);
  if (!violations.empty()) {
    google::rpc::BadRequest bad;
    size_t bytes = 0;
    for (const Violation& violation : violations) {
      google::rpc::BadRequest::FieldViolation entry;
      entry.set_field(violation.field);
      entry.set_description(
          absl::StrCat(ReasonName(ReasonOf(violation.status)), ": ",
                       BoundedText(violation.status.message(), kMaxMessageBytes)));
      bytes += entry.ByteSizeLong() + 4;
      if (bytes > kMaxDetailBytes - 1024) {
        auto* rest = bad.add_field_violations();
        rest->set_field("buffers");
        rest->set_description(absl::StrCat("and ",
                                           violations.size() - bad.field_violations_size() + 1,
                                           " more that do not fit the answer"));
        break;
      }
      *bad.add_field_violations() = std::move(entry);
    }
    out->add_details()->PackFrom(bad);
  }
  absl::Duration after = RetryAfterOf(status);
  // Nobody knows how long a node stays drained: its operator, or its next start, ends that.
  if (after <= absl::ZeroDuration() && status.code() == absl::StatusCode::kUnavailable &&
      ReasonOf(status) != Reason::kDraining) {
    after = kRetryUnavailable;
  }
  if (after > absl::ZeroDuration()) {
    google::rpc::RetryInfo retry;
    absl::Duration nanos;
    retry.mutable_retry_delay()->set_seconds(absl::IDivDuration(after, absl::Seconds(1), &nanos));
    retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(nanos)));
    out->add_details()->PackFrom(retry);
  }
}

absl::Status FromProto(const google::rpc::Status& proto) {
  if (proto.code() == 0) return absl::OkStatus();
  Reason reason = Reason::kInternal;
  Metadata metadata;
  size_t metadata_bytes = 0;
  absl::Duration after;
  for (const auto& detail : proto.details()) {
    google::rpc::ErrorInfo info;
    google::rpc::RetryInfo retry;
    if (detail.UnpackTo(&info)) {
      reason = ReasonFromName(info.reason()).value_or(Reason::kInternal);
      for (const auto& [key, value] : info.metadata()) {
        metadata_bytes += key.size() + value.size();
        if (metadata_bytes <= kMaxMessageBytes) metadata[key] = value;
      }
    } else if (detail.UnpackTo(&retry)) {
      after = std::min(absl::Seconds(retry.retry_delay().seconds()) +
                           absl::Nanoseconds(retry.retry_delay().nanos()),
                       kMaxRetryAfter);
    }
  }
  absl::Status status = Error(static_cast<absl::StatusCode>(proto.code()), reason,
                              BoundedText(proto.message(), kMaxMessageBytes), metadata);
  return after > absl::ZeroDuration() ? WithRetryAfter(std::move(status), after) : status;
}

grpc::Status ToGrpc(const absl::Status& status, const std::vector<Violation>& violations) {
  if (status.ok()) return grpc::Status::OK;
  google::rpc::Status proto;
  ToProto(status, violations, &proto);
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), proto.message(),
                      proto.SerializeAsString());
}

}  // namespace ferry
