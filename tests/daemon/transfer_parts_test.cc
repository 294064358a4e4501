// SPDX-License-Identifier: Apache-2.0
// What is long is carried out in parts: who it concerns is told of one while control is at the
// next.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/daemon/peer_rig.h"
#include "transfer/convoy.h"

namespace ferry {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::kNodeC;
using testing::PeerRig;
using ::testing::VariantWith;

constexpr size_t kPostsAtOnce = TransferDriver::kPostsAtOnce;
constexpr uint64_t kBytes = 64 << 10;

std::vector<std::string> Keys(size_t count) {
  std::vector<std::string> keys;
  for (size_t i = 0; i < count; ++i) keys.push_back(absl::StrCat("key ", i));
  return keys;
}

// How many transfers each frame speaks of.
std::vector<size_t> Sizes(const PeerRig& rig) {
  std::vector<size_t> sizes;
  for (const auto& sent : rig.frames) {
    size_t transfers = 0;
    for (const PeerMessage& message : sent.frame.messages) {
      const auto* const offer = std::get_if<Offer>(&message);
      transfers += offer != nullptr ? offer->key.count : 1;
    }
    sizes.push_back(transfers);
  }
  return sizes;
}

std::vector<bool> More(const PeerRig& rig) {
  std::vector<bool> more;
  for (const auto& sent : rig.frames) more.push_back(sent.frame.more);
  return more;
}

TEST(TransferPartsTest, APeerHearsOfALongBatchWhileItIsPosted) {
  PeerRig rig;
  rig.NodeCUp();
  const ArenaId arena = rig.Register(kBytes);
  rig.PostMany(Side::kSend, arena, kBytes, Keys(2 * kPostsAtOnce + 3));
  EXPECT_THAT(Sizes(rig), ElementsAre(kPostsAtOnce, kPostsAtOnce));
  rig.driver->AfterTasks();
  ASSERT_THAT(Sizes(rig), ElementsAre(kPostsAtOnce, kPostsAtOnce, 3));
  EXPECT_THAT(More(rig), ElementsAre(true, true, false));
  uint64_t offered = 0;
  for (const auto& sent : rig.frames) {
    for (const PeerMessage& message : sent.frame.messages) {
      const MatchKey& key = std::get<Offer>(message).key;
      for (size_t place = 0; place < key.count; ++place) {
        EXPECT_EQ(MemberKey(key, place).key, absl::StrCat("key ", offered++));
      }
    }
  }
}

TEST(TransferPartsTest, ABatchOfOnePartIsOneMessage) {
  PeerRig rig;
  rig.NodeCUp();
  const ArenaId arena = rig.Register(kBytes);
  rig.PostMany(Side::kSend, arena, kBytes, Keys(kPostsAtOnce));
  EXPECT_THAT(rig.frames, IsEmpty());
  rig.driver->AfterTasks();
  EXPECT_THAT(Sizes(rig), ElementsAre(kPostsAtOnce));
}

TEST(TransferPartsTest, APreparedBatchIsOneMessage) {
  PeerRig rig;
  rig.NodeCUp();
  const ArenaId arena = rig.Register(kBytes);
  rig.PostMany(Side::kSend, arena, kBytes, Keys(kPostsAtOnce + 1), /*prepare=*/true);
  EXPECT_THAT(rig.frames, IsEmpty());
  rig.driver->AfterTasks();
  EXPECT_THAT(Sizes(rig), ElementsAre(kPostsAtOnce + 1));
}

TEST(TransferPartsTest, OffersOfAPeerAreAnsweredInParts) {
  PeerRig rig;
  rig.NodeCUp();
  const ArenaId arena = rig.Register(kBytes);
  rig.PostMany(Side::kReceive, arena, kBytes, Keys(kPostsAtOnce + 1));
  rig.driver->AfterTasks();
  std::vector<PeerMessage> offers;
  for (const std::string& key : Keys(kPostsAtOnce + 1)) {
    Offer offer = PeerRig::OfferOfNodeC(offers.size() + 1, ArenaId(77), kBytes, key);
    offer.ready = false;  // so that all it wants is to be answered
    offers.emplace_back(std::move(offer));
  }
  rig.driver->OnPeerMessages(kNodeC, std::move(offers));
  ASSERT_THAT(Sizes(rig), ElementsAre(kPostsAtOnce));
  EXPECT_THAT(rig.frames[0].frame.messages, Each(VariantWith<Matched>(::testing::_)));
  rig.driver->AfterTasks();
  EXPECT_THAT(Sizes(rig), ElementsAre(kPostsAtOnce, 1));
  EXPECT_THAT(More(rig), ElementsAre(true, false));
}

TEST(TransferPartsTest, WhatAnswersAPartIsAPart) {
  PeerRig rig;
  rig.NodeCUp();
  const ArenaId arena = rig.Register(kBytes);
  rig.PostMany(Side::kReceive, arena, kBytes, Keys(2));
  for (const bool more : {true, false}) {
    const size_t key = rig.frames.size();
    Offer offer = PeerRig::OfferOfNodeC(key + 1, ArenaId(77), kBytes, Keys(2)[key]);
    offer.ready = false;
    rig.driver->OnPeerMessages(kNodeC, {std::move(offer)}, more);
    rig.driver->AfterTasks();
  }
  EXPECT_THAT(Sizes(rig), ElementsAre(1, 1));
  EXPECT_THAT(More(rig), ElementsAre(true, false));
}

}  // namespace
}  // namespace ferry
