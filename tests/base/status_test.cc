// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <errno.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>

namespace ferry {
namespace {

constexpr Reason kAllReasons[] = {
#define FERRY_REASON_VALUE(name, text) Reason::name,
    FERRY_REASONS(FERRY_REASON_VALUE)
#undef FERRY_REASON_VALUE
};

TEST(StatusTest, EveryReasonComesBackFromItsName) {
  std::set<std::string> names;
  for (Reason reason : kAllReasons) {
    const std::string name(ReasonName(reason));
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_LE(name.size(), 63u) << name;  // google.rpc.ErrorInfo's bound
    ASSERT_TRUE(ReasonFromName(name).has_value()) << name;
    EXPECT_EQ(*ReasonFromName(name), reason);
    const absl::Status status = Error(absl::StatusCode::kAborted, reason, "text");
    EXPECT_EQ(ReasonOf(status), reason);
    EXPECT_TRUE(HasReason(status, reason));
  }
  EXPECT_EQ(ReasonName(Reason::kQuotaBytes), "QUOTA_BYTES");
  EXPECT_FALSE(ReasonFromName("NO_SUCH_REASON").has_value());
  EXPECT_FALSE(ReasonFromName("").has_value());
}

TEST(StatusTest, CarriesCodeTextAndMetadata) {
  const Metadata metadata = {{"arena", "7"}, {"session", "3"}};
  const absl::Status status =
      Error(absl::StatusCode::kNotFound, Reason::kArenaNotFound, "send: arena 7", metadata);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "send: arena 7");
  EXPECT_EQ(MetadataOf(status), metadata);
}

TEST(StatusTest, MetadataMayHoldAnyBytes) {
  using namespace std::string_literals;
  for (const Metadata& metadata : {
           Metadata{},
           Metadata{{"", ""}},
           Metadata{{"a", ""}, {"b", ""}},
           Metadata{{"key", "a\0b"s}, {"k\0"s, "\0"s}},
           Metadata{{"1:", "2:xx:"}, {"z", std::string(100'000, ':')}},
       }) {
    const absl::Status status =
        Error(absl::StatusCode::kInternal, Reason::kInternal, "text", metadata);
    EXPECT_EQ(MetadataOf(status), metadata);
  }
}

TEST(StatusTest, WithoutAReasonIsInternal) {
  EXPECT_EQ(ReasonOf(absl::UnavailableError("bare")), Reason::kInternal);
  EXPECT_TRUE(MetadataOf(absl::UnavailableError("bare")).empty());
  EXPECT_FALSE(HasReason(absl::OkStatus(), Reason::kInternal));
}

TEST(StatusTest, AnnotateKeepsAllButTheText) {
  const absl::Status inner = Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable,
                                   "connection refused", {{"peer", "node-b"}});
  const absl::Status outer = Annotate(inner, "offer transfer 9 to node-b");
  EXPECT_EQ(outer.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(outer.message(), "offer transfer 9 to node-b: connection refused");
  EXPECT_EQ(ReasonOf(outer), Reason::kPeerUnreachable);
  EXPECT_EQ(MetadataOf(outer), (Metadata{{"peer", "node-b"}}));
  EXPECT_TRUE(Annotate(absl::OkStatus(), "prefix").ok());
}

TEST(StatusTest, ErrnoIsInTheText) {
  const absl::Status status =
      ErrnoError(absl::StatusCode::kInternal, Reason::kInternal, "open /x", ENOENT);
  EXPECT_EQ(status.message(), "open /x: No such file or directory");
}

absl::StatusOr<std::unique_ptr<int>> Make(bool ok) {
  if (!ok) return Error(absl::StatusCode::kAborted, Reason::kCancelled, "no");
  return std::make_unique<int>(5);
}
absl::Status Use(bool first, bool second, int& sum) {
  ASSIGN_OR_RETURN(std::unique_ptr<int> a, Make(first));
  ASSIGN_OR_RETURN(std::unique_ptr<int> b, Make(second));
  sum = *a + *b;
  RETURN_IF_ERROR(absl::OkStatus());
  return absl::OkStatus();
}

TEST(StatusTest, TheMacrosReturnTheFirstError) {
  int sum = 0;
  EXPECT_TRUE(Use(true, true, sum).ok());
  EXPECT_EQ(sum, 10);
  EXPECT_TRUE(HasReason(Use(false, true, sum), Reason::kCancelled));
  EXPECT_TRUE(HasReason(Use(true, false, sum), Reason::kCancelled));
}

}  // namespace
}  // namespace ferry
