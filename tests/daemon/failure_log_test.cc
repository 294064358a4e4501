// SPDX-License-Identifier: Apache-2.0
#include "daemon/failure_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"

namespace ferry {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1'000'000);

Ended Failed(uint64_t number) {
  Ended ended;
  ended.transfer = TransferId(number);
  ended.side = Side::kReceive;
  ended.route = Route::kMapped;
  ended.status = Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable, "gone");
  return ended;
}

TEST(FailureLog, SaysOneASecondAndHowManyMore) {
  FailureLog log;
  EXPECT_EQ(log.next(), absl::InfiniteFuture());
  const auto first = log.OnFailed(kStart, Failed(1));
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->text, "receive by mapped: UNAVAILABLE PEER_UNREACHABLE: gone");
  for (uint64_t i = 2; i <= 1000; ++i) {
    EXPECT_FALSE(log.OnFailed(kStart + absl::Milliseconds(i / 2), Failed(i)).has_value());
  }
  EXPECT_EQ(log.next(), kStart + absl::Seconds(1));
  EXPECT_FALSE(log.OnTime(kStart + absl::Milliseconds(999)).has_value());
  const auto rest = log.OnTime(kStart + absl::Seconds(1));
  ASSERT_TRUE(rest.has_value());
  EXPECT_EQ(rest->transfer, TransferId(1000));
  EXPECT_EQ(rest->text,
            "receive by mapped: UNAVAILABLE PEER_UNREACHABLE: gone (and 998 more since the last "
            "line)");
  EXPECT_EQ(log.next(), absl::InfiniteFuture());
  EXPECT_FALSE(log.OnFailed(kStart + absl::Seconds(1), Failed(1001)).has_value());
  EXPECT_EQ(log.OnTime(kStart + absl::Seconds(2))->text, first->text) << "alone";
  EXPECT_TRUE(log.OnFailed(kStart + absl::Seconds(4), Failed(1002)).has_value());
}

}  // namespace
}  // namespace ferry
