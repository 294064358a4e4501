// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/status_proto.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "google/rpc/error_details.pb.h"

namespace ferry {
namespace {
// gRPC's trailers have 8 KiB in all; a refused batch of thousands must not lose its status to that.
constexpr size_t kMaxDetailBytes = 6 * 1024;
constexpr size_t kMaxMessageBytes = 1024;
}  // namespace

void ToProto(const absl::Status& status, const std::vector<Violation>& violations,
             google::rpc::Status* out) {
  out->Clear();
  if (status.ok()) return;
  out->set_code(static_cast<int>(status.code()));
  out->set_message(std::string(status.message().substr(0, kMaxMessageBytes)));
  google::rpc::ErrorInfo info;
  info.set_reason(std::string(ReasonName(ReasonOf(status))));
  info.set_domain(kErrorDomain);
  for (const auto& [key, value] : MetadataOf(status)) (*info.mutable_metadata())[key] = value;
  if (!violations.empty()) (*info.mutable_metadata())["violations"] = absl::StrCat(violations.size());
  out->add_details()->PackFrom(info);
  if (!violations.empty()) {
    google::rpc::BadRequest bad;
    size_t bytes = 0;
    for (const Violation& violation : violations) {
      google::rpc::BadRequest::FieldViolation entry;
      entry.set_field(violation.field);
      entry.set_description(absl::StrCat(ReasonName(ReasonOf(violation.status)), ": ",
                                         violation.status.message()));
      bytes += entry.ByteSizeLong() + 4;
      if (bytes > kMaxDetailBytes - 1024) {
        auto* rest = bad.add_field_violations();
        rest->set_field("buffers");
        rest->set_description(absl::StrCat("and ", violations.size() - bad.field_violations_size() + 1,
                                           " more that do not fit the answer"));
        break;
      }
      *bad.add_field_violations() = std::move(entry);
    }
    out->add_details()->PackFrom(bad);
  }
  if (status.code() == absl::StatusCode::kUnavailable ||
      HasReason(status, Reason::kQueueFull)) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_nanos(100'000'000);
    out->add_details()->PackFrom(retry);
  }
}

absl::Status FromProto(const google::rpc::Status& proto) {
  if (proto.code() == 0) return absl::OkStatus();
  Reason reason = Reason::kInternal;
  Metadata metadata;
  for (const auto& detail : proto.details()) {
    google::rpc::ErrorInfo info;
    if (!detail.UnpackTo(&info)) continue;
    reason = ReasonFromName(info.reason()).value_or(Reason::kInternal);
    metadata.insert(info.metadata().begin(), info.metadata().end());
  }
  return Error(static_cast<absl::StatusCode>(proto.code()), reason, proto.message(), metadata);
}

grpc::Status ToGrpc(const absl::Status& status, const std::vector<Violation>& violations) {
  if (status.ok()) return grpc::Status::OK;
  google::rpc::Status proto;
  ToProto(status, violations, &proto);
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), proto.message(),
                      proto.SerializeAsString());
}

}  // namespace ferry
