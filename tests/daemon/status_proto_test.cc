// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/status_proto.h"

#include <string>
#include <vector>

#include "google/rpc/error_details.pb.h"
#include "tests/daemon/support.h"

namespace ferry {
namespace {

using testing::Is;

template <typename Detail>
std::vector<Detail> DetailsOf(const google::rpc::Status& proto) {
  std::vector<Detail> found;
  for (const auto& any : proto.details()) {
    Detail detail;
    if (any.UnpackTo(&detail)) found.push_back(detail);
  }
  return found;
}

google::rpc::Status Encoded(const absl::Status& status,
                            const std::vector<Violation>& violations = {}) {
  google::rpc::Status proto;
  ToProto(status, violations, &proto);
  return proto;
}

TEST(StatusProto, CodeReasonTextAndMetadataSurviveTheWire) {
  const Metadata metadata = {{"device", "7"}, {"empty", ""}, {"min", "1:2"}};
  const absl::Status before = Error(absl::StatusCode::kFailedPrecondition,
                                    Reason::kTransferMismatch, "compare: 4 and 8", metadata);
  google::rpc::Status proto;
  ASSERT_TRUE(proto.ParseFromString(Encoded(before).SerializeAsString()));
  const absl::Status after = FromProto(proto);
  EXPECT_THAT(after, Is("FAILED_PRECONDITION/TRANSFER_MISMATCH"));
  EXPECT_EQ(after.message(), "compare: 4 and 8");
  EXPECT_EQ(MetadataOf(after), metadata);
}

TEST(StatusProto, TheFieldOfTheMetadataIsAViolation) {
  const absl::Status status = Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
                                    "join: too long", {{"field", "name"}});
  const auto bad = DetailsOf<google::rpc::BadRequest>(Encoded(status));
  ASSERT_EQ(bad.size(), 1u);
  ASSERT_EQ(bad[0].field_violations_size(), 1);
  EXPECT_EQ(bad[0].field_violations(0).field(), "name");
  EXPECT_EQ(bad[0].field_violations(0).description(), "FIELD_INVALID: join: too long");
}

TEST(StatusProto, EveryReasonSurvivesTheWire) {
  for (int i = 0; i <= static_cast<int>(Reason::kConfigInvalid); ++i) {
    const Reason reason = static_cast<Reason>(i);
    const absl::Status after = FromProto(Encoded(Error(absl::StatusCode::kInternal, reason, "x")));
    EXPECT_EQ(ReasonOf(after), reason) << std::string(ReasonName(reason));
  }
}

TEST(StatusProto, OkHasNoDetailsAndOverwritesWhatWasThere) {
  google::rpc::Status proto =
      Encoded(Error(absl::StatusCode::kInternal, Reason::kInternal, "before"));
  ToProto(absl::OkStatus(), {}, &proto);
  EXPECT_EQ(proto.ByteSizeLong(), 0u);
  EXPECT_THAT(FromProto(proto), Is("OK"));
  EXPECT_TRUE(ToGrpc(absl::OkStatus()).ok());
}

TEST(StatusProto, AStatusOfSomebodyElseIsInternal) {
  google::rpc::Status proto;
  proto.set_code(static_cast<int>(absl::StatusCode::kAborted));
  proto.set_message("no details");
  EXPECT_THAT(FromProto(proto), Is("ABORTED/INTERNAL", "no details"));
  google::rpc::ErrorInfo info;
  info.set_reason("NEWER_THAN_WE");
  proto.add_details()->PackFrom(info);
  EXPECT_THAT(FromProto(proto), Is("ABORTED/INTERNAL"));
  proto.set_code(4711);
  EXPECT_THAT(FromProto(proto), Is("UNKNOWN/INTERNAL"));
}

TEST(StatusProto, ErrorInfoNamesReasonAndDomain) {
  const auto infos = DetailsOf<google::rpc::ErrorInfo>(
      Encoded(Error(absl::StatusCode::kNotFound, Reason::kIdStale, "gone")));
  ASSERT_EQ(infos.size(), 1u);
  EXPECT_EQ(infos[0].reason(), "ID_STALE");
  EXPECT_EQ(infos[0].domain(), kErrorDomain);
}

TEST(StatusProto, ViolationsNameFieldReasonAndText) {
  const std::vector<Violation> violations = {
      {"buffers[3]", Error(absl::StatusCode::kInvalidArgument, Reason::kRangeInvalid, "too long")},
      {"domain", Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid, "too wide")}};
  const google::rpc::Status proto = Encoded(RefusedBatch(violations, 5), violations);
  EXPECT_EQ(proto.message(),
            "nothing was posted: 2 problems in a batch of 5; buffers[3]: too long");
  EXPECT_EQ(DetailsOf<google::rpc::ErrorInfo>(proto)[0].metadata().at("violations"), "2");
  const auto bad = DetailsOf<google::rpc::BadRequest>(proto);
  ASSERT_EQ(bad.size(), 1u);
  ASSERT_EQ(bad[0].field_violations_size(), 2);
  EXPECT_EQ(bad[0].field_violations(0).field(), "buffers[3]");
  EXPECT_EQ(bad[0].field_violations(0).description(), "RANGE_INVALID: too long");
  EXPECT_EQ(bad[0].field_violations(1).description(), "FIELD_INVALID: too wide");
}

TEST(StatusProto, ThousandsOfViolationsFitTrailersAndTellHowManyDoNot) {
  std::vector<Violation> violations;
  for (int i = 0; i < 4096; ++i) {
    violations.push_back(
        {absl::StrCat("buffers[", i, "]"),
         Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid, std::string(60, 'x'))});
  }
  const grpc::Status status = ToGrpc(RefusedBatch(violations, 4096), violations);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  // gRPC's default limit of all trailers, with some room for names and other entries.
  EXPECT_LE(status.error_message().size() + status.error_details().size(), 8192u - 512u);
  google::rpc::Status proto;
  ASSERT_TRUE(proto.ParseFromString(status.error_details()));
  EXPECT_EQ(DetailsOf<google::rpc::ErrorInfo>(proto)[0].metadata().at("violations"), "4096");
  const google::rpc::BadRequest bad = DetailsOf<google::rpc::BadRequest>(proto).at(0);
  const int shown = bad.field_violations_size() - 1;
  EXPECT_GT(shown, 20);
  EXPECT_EQ(bad.field_violations(shown - 1).field(), absl::StrCat("buffers[", shown - 1, "]"));
  EXPECT_EQ(bad.field_violations(shown).description(),
            absl::StrCat("and ", 4096 - shown, " more that do not fit the answer"));
}

TEST(StatusProto, RefusalsThatPassTellWhenToTryAgain) {
  const auto retries = [](absl::StatusCode code, Reason reason) {
    return DetailsOf<google::rpc::RetryInfo>(Encoded(Error(code, reason, "x")));
  };
  ASSERT_EQ(retries(absl::StatusCode::kUnavailable, Reason::kNotReady).size(), 1u);
  EXPECT_EQ(retries(absl::StatusCode::kUnavailable, Reason::kNotReady)[0].retry_delay().nanos(),
            100'000'000);
  EXPECT_EQ(retries(absl::StatusCode::kUnavailable, Reason::kDraining).size(), 0u)
      << "only somebody's word ends that";
  EXPECT_EQ(retries(absl::StatusCode::kResourceExhausted, Reason::kQueueFull).size(), 0u);
  EXPECT_EQ(retries(absl::StatusCode::kResourceExhausted, Reason::kQuotaBytes).size(), 0u);
  EXPECT_EQ(retries(absl::StatusCode::kAborted, Reason::kPoisoned).size(), 0u);

  const absl::Status full =
      WithRetryAfter(Error(absl::StatusCode::kResourceExhausted, Reason::kQueueFull, "full"),
                     absl::Milliseconds(1250));
  const auto told = DetailsOf<google::rpc::RetryInfo>(Encoded(full));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].retry_delay().seconds(), 1);
  EXPECT_EQ(told[0].retry_delay().nanos(), 250'000'000);
  // From one daemon to the next, and through a batch's refusal.
  EXPECT_EQ(RetryAfterOf(FromProto(Encoded(full))), absl::Milliseconds(1250));
  EXPECT_EQ(RetryAfterOf(RefusedBatch({{"buffers", full}}, 7)), absl::Milliseconds(1250));
  google::rpc::Status for_years = Encoded(full);
  google::rpc::RetryInfo years;
  years.mutable_retry_delay()->set_seconds(1'000'000'000);
  for_years.mutable_details(1)->PackFrom(years);
  EXPECT_EQ(RetryAfterOf(FromProto(for_years)), absl::Minutes(1));
}

// A proto3 string that is not UTF-8 cannot be parsed: one such text would take a whole peer link
// down.
TEST(StatusProto, ALongTextIsCutBetweenCharacters) {
  for (const absl::string_view character : {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x9a\xa2"}) {
    for (const absl::string_view start : {"", "x", "xx", "xxx"}) {
      std::string text(start);
      while (text.size() < 2000) absl::StrAppend(&text, character);
      const google::rpc::Status sent =
          Encoded(Error(absl::StatusCode::kAborted, Reason::kPoisoned, text));
      EXPECT_LE(sent.message().size(), 1024u);
      EXPECT_GT(sent.message().size(), 1024u - character.size());
      google::rpc::Status received;
      ASSERT_TRUE(received.ParseFromString(sent.SerializeAsString()));
      EXPECT_EQ(text.substr(0, received.message().size()), received.message());
    }
  }
}

TEST(StatusProto, TextThatWasCutElsewhereCanStillBeParsed) {
  const std::string cut = "poisoned by its client: caf\xc3";
  const google::rpc::Status sent =
      Encoded(Error(absl::StatusCode::kAborted, Reason::kPoisoned, cut, {{"what", "\xe2\x82"}}));
  google::rpc::Status received;
  ASSERT_TRUE(received.ParseFromString(sent.SerializeAsString()));
  EXPECT_EQ(FromProto(received).message(), "poisoned by its client: caf?");
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(received.details(0).UnpackTo(&info));
  EXPECT_EQ(info.metadata().at("what"), "??");
}

// Of a daemon that says more than ours would.
TEST(StatusProto, WhatAnotherDaemonSaysHasBounds) {
  google::rpc::Status proto;
  proto.set_code(static_cast<int>(absl::StatusCode::kAborted));
  proto.set_message(std::string(1 << 20, 'x'));
  google::rpc::ErrorInfo info;
  for (int i = 0; i < 10'000; ++i) {
    (*info.mutable_metadata())[absl::StrCat("key ", i)] =
        std::string(i % 2 == 0 ? 32 : 1 << 12, 'y');
  }
  proto.add_details()->PackFrom(info);
  const absl::Status status = FromProto(proto);
  EXPECT_EQ(status.message().size(), 1024u);
  size_t bytes = 0;
  for (const auto& [key, value] : MetadataOf(status)) bytes += key.size() + value.size();
  EXPECT_LE(bytes, 1024u);
}

TEST(StatusProto, BytesThatAreNoTextBecomeQuestionMarks) {
  const auto sent = [](const std::string& text) {
    return Encoded(Error(absl::StatusCode::kInternal, Reason::kInternal, text)).message();
  };
  EXPECT_EQ(sent("\xff\xfe"), "??");
  EXPECT_EQ(sent("a\x80z"), "a?z");             // a continuation without a start
  EXPECT_EQ(sent("\xc0\xaf"), "??");            // an overlong '/'
  EXPECT_EQ(sent("\xe0\x80\xaf"), "???");       // the same in three
  EXPECT_EQ(sent("\xed\xa0\x80"), "???");       // half a surrogate pair
  EXPECT_EQ(sent("\xf4\x90\x80\x80"), "????");  // beyond the last character
  EXPECT_EQ(sent("\xf4\x8f\xbf\xbf"), "\xf4\x8f\xbf\xbf");
  EXPECT_EQ(sent("caf\xc3\xa9 \xe2\x82\xac"), "caf\xc3\xa9 \xe2\x82\xac");
}

}  // namespace
}  // namespace ferry
