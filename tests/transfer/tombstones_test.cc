// SPDX-License-Identifier: Apache-2.0
#include "transfer/tombstones.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ferry {
namespace {

class TombstonesTest : public testing::Test {
 protected:
  static MatchKey Named(std::string key) {
    return {"job", GlobalDeviceId(0), GlobalDeviceId(2), std::move(key)};
  }
  void Put(std::string key, uint32_t peer = 0, std::string text = "why") {
    tombstones_.Put(PeerId(peer),
                    {Named(std::move(key)), Side::kSend, absl::AbortedError(text), now_});
  }
  bool Has(std::string key) {
    return tombstones_.Take(now_, Side::kReceive, Named(std::move(key))).has_value();
  }
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  Tombstones tombstones_{2, 3, 2000};
};

TEST_F(TombstonesTest, AnotherSideTakesItOnceAndItsOwnSideTakesItAway) {
  Put("a");
  const auto taken = tombstones_.Take(now_, Side::kReceive, Named("a"));
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(taken->why, absl::AbortedError("why"));
  EXPECT_FALSE(Has("a"));
  Put("a");
  EXPECT_FALSE(tombstones_.Take(now_, Side::kSend, Named("a")).has_value());
  EXPECT_TRUE(tombstones_.empty());
}

TEST_F(TombstonesTest, OfAPeerTheOldestIsForgottenBeyondTheNumberAndTheBytes) {
  for (int i = 0; i < 4; ++i) Put(absl::StrCat(i));
  Put("of another", 1);
  EXPECT_FALSE(Has("0"));
  EXPECT_TRUE(Has("1"));
  Put("long", 0, std::string(1500, 'x'));
  EXPECT_FALSE(Has("2"));
  EXPECT_TRUE(Has("long"));
  Put("too long", 0, std::string(3000, 'x'));
  EXPECT_FALSE(Has("too long"));
  EXPECT_TRUE(Has("of another"));
}

TEST_F(TombstonesTest, ItGoesWithItsLinkAndItsTime) {
  Put("a");
  Put("b", 1);
  tombstones_.Forget(PeerId(1));
  EXPECT_FALSE(Has("b"));
  EXPECT_LE(tombstones_.NextExpiry(), now_ + Tombstones::kLife);
  now_ += Tombstones::kLife;
  EXPECT_FALSE(Has("a"));
  Put("c");
  Put("d");
  now_ += Tombstones::kLife;
  tombstones_.Expire(now_, 1);
  EXPECT_EQ(tombstones_.size(PeerId(0)), 1u);
  EXPECT_LE(tombstones_.NextExpiry(), now_) << "there is one more";
  tombstones_.Expire(now_, 1);
  EXPECT_TRUE(tombstones_.empty());
  EXPECT_EQ(tombstones_.NextExpiry(), absl::InfiniteFuture());
}

TEST_F(TombstonesTest, OnlyWhatIsTheHalfsOwnDoingLeavesOne) {
  auto leaves = [&](Side side, Reason reason) {
    const MatchKey key = Named(std::string(ReasonName(reason)));
    tombstones_.Leave(now_, PeerId(0), side, key,
                      Error(absl::StatusCode::kAborted, reason, "it has ended"));
    const Side other = side == Side::kSend ? Side::kReceive : Side::kSend;
    return tombstones_.Take(now_, other, key).has_value();
  };
  for (const Reason own : {Reason::kCancelled, Reason::kPoisoned, Reason::kWaitingForPeer}) {
    EXPECT_TRUE(leaves(Side::kSend, own)) << ReasonName(own);
    EXPECT_TRUE(leaves(Side::kReceive, own)) << ReasonName(own);
  }
  EXPECT_TRUE(leaves(Side::kSend, Reason::kPeerClientGone));
  EXPECT_FALSE(leaves(Side::kReceive, Reason::kPeerClientGone));  // it is started again
  EXPECT_FALSE(leaves(Side::kSend, Reason::kPeerUnreachable));
}

}  // namespace
}  // namespace ferry
