// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/failure.h"

#include <gtest/gtest.h>

#include "base/status.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "tools/ferryctl/globals.h"

namespace ferry::tools {
namespace {

grpc::Status WithDetails(grpc::StatusCode code, const std::string& text, const std::string& reason,
                         const std::vector<Violation>& violations) {
  google::rpc::Status details;
  details.set_code(code);
  google::rpc::ErrorInfo info;
  info.set_reason(reason);
  details.add_details()->PackFrom(info);
  google::rpc::BadRequest bad;
  for (const Violation& v : violations) {
    auto* entry = bad.add_field_violations();
    entry->set_field(v.field);
    entry->set_description(v.text);
  }
  if (!violations.empty()) details.add_details()->PackFrom(bad);
  return grpc::Status(code, text, details.SerializeAsString());
}

TEST(FailureTest, KeepsTheReasonAndEveryViolation) {
  const absl::Status status = FromGrpc(
      WithDetails(grpc::StatusCode::INVALID_ARGUMENT, "2 bad entries; buffers[0]: too long",
                  "RANGE_INVALID", {{"buffers[0]", "too long"}, {"buffers[1]", "odd\nline"}}));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(status), Reason::kRangeInvalid);
  ASSERT_EQ(ViolationsOf(status).size(), 2u);
  EXPECT_EQ(DescribeFailure(status, false),
            "INVALID_ARGUMENT RANGE_INVALID: 2 bad entries; buffers[0]: too long\n"
            "  buffers[1]: odd\nline");
  EXPECT_EQ(
      DescribeFailure(status, true),
      R"({"error":{"code":"INVALID_ARGUMENT","reason":"RANGE_INVALID","message":"2 bad entries; )"
      R"(buffers[0]: too long","violations":[{"field":"buffers[0]","text":"too long"},)"
      R"({"field":"buffers[1]","text":"odd\nline"}]}})");
}

TEST(FailureTest, SaysWhenToTryAgain) {
  google::rpc::Status details;
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_nanos(12'500'000);
  details.add_details()->PackFrom(retry);
  const absl::Status status = FromGrpc(
      grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full", details.SerializeAsString()));
  EXPECT_EQ(DescribeFailure(status, false), "RESOURCE_EXHAUSTED: full\n  try again in 12.5 ms");
  EXPECT_EQ(DescribeFailure(status, true),
            R"({"error":{"code":"RESOURCE_EXHAUSTED","reason":"","message":"full",)"
            R"("violations":[],"retry_after_ms":12.5}})");
}

TEST(FailureTest, ShowsTheReasonOfANewerDaemon) {
  const absl::Status status = FromGrpc(WithDetails(grpc::StatusCode::ABORTED, "no", "NOVEL", {}));
  EXPECT_EQ(DescribeFailure(status, false), "ABORTED NOVEL: no");
}

TEST(FailureTest, AnErrorWithoutAReasonShowsItsCode) {
  EXPECT_EQ(DescribeFailure(FromGrpc(grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone")), false),
            "UNAVAILABLE: gone");
  EXPECT_EQ(DescribeFailure(FromGrpc(grpc::Status(grpc::StatusCode::INTERNAL, "oh")), false),
            "INTERNAL: oh");
}

TEST(FailureTest, ExitStatusesTellWhatKindOfFailure) {
  EXPECT_EQ(ExitStatusOf(absl::OkStatus()), kExitOk);
  EXPECT_EQ(ExitStatusOf(absl::NotFoundError("")), kExitNotFound);
  EXPECT_EQ(ExitStatusOf(absl::UnavailableError("")), kExitUnavailable);
  EXPECT_EQ(ExitStatusOf(absl::PermissionDeniedError("")), kExitDenied);
  EXPECT_EQ(ExitStatusOf(absl::UnauthenticatedError("")), kExitDenied);
  EXPECT_EQ(ExitStatusOf(absl::DeadlineExceededError("")), kExitDeadline);
  EXPECT_EQ(ExitStatusOf(absl::AbortedError("")), kExitFailure);
  EXPECT_EQ(ExitStatusOf(Error(absl::StatusCode::kInvalidArgument, Reason::kDeviceUnknown, "")),
            kExitNotFound);
}

}  // namespace
}  // namespace ferry::tools
