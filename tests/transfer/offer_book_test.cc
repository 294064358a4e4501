// SPDX-License-Identifier: Apache-2.0
#include "transfer/offer_book.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transfer/prepared_slots.h"

namespace ferry {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr PeerId kOffering(1);

Offer OfferOfId(uint64_t id, const std::string& key = "k") {
  Offer offer;
  offer.transfer = MakeTransferId(SessionId(1), id);
  offer.key = {"domain", GlobalDeviceId(2), GlobalDeviceId(0), key};
  offer.uid = 1000;
  return offer;
}

TEST(OfferBook, AnOfferIsKeptOnceUntilItIsOver) {
  OfferBook book({10, 1'000'000}, 2);
  Offered* const offered = book.Add(absl::UnixEpoch(), kOffering, OfferOfId(1));
  ASSERT_NE(offered, nullptr);
  EXPECT_EQ(book.Add(absl::UnixEpoch(), kOffering, OfferOfId(1)), nullptr);
  EXPECT_EQ(book.Find(kOffering, offered->offer.transfer), offered);
  EXPECT_EQ(book.Find(PeerId(0), offered->offer.transfer), nullptr);
  EXPECT_GT(book.record_bytes(kOffering), 0u);
  const TransferId id = offered->offer.transfer;
  book.Erase(absl::UnixEpoch(), *offered);
  EXPECT_EQ(book.Find(kOffering, id), nullptr);
  EXPECT_EQ(book.record_bytes(kOffering), 0u);
}

TEST(OfferBook, ThoseThatWaitAreInOrder) {
  const absl::Time now = absl::UnixEpoch();
  OfferBook book({10, 1'000'000}, 2);
  Offered* const first = book.Add(now, kOffering, OfferOfId(1, "a"));
  Offered* const second = book.Add(now, kOffering, OfferOfId(2, "b"));
  for (Offered* offered : {first, second}) {
    EXPECT_TRUE(book.MayWait(kOffering, offered->offer));
    book.Wait(now, *offered);
  }
  EXPECT_EQ(book.waiting(), 2u);
  EXPECT_EQ(book.first_waiting(), first);
  EXPECT_EQ(OfferBook::NextWaiting(*first), second);
  EXPECT_THAT(book.Waiting(), UnorderedElementsAre(first, second));
  // The first one that nobody has looked at is never one that waits no more.
  EXPECT_EQ(book.young(), first);
  book.WaitNoMore(now, *first);
  EXPECT_EQ(book.young(), second);
  EXPECT_EQ(&book.PassYoung(), second);
  EXPECT_EQ(book.young(), nullptr);
  EXPECT_EQ(book.waiting(), 1u);
  EXPECT_THAT(book.Of(kOffering), SizeIs(2));
}

// Of one user; what several users share: OfferShares.
TEST(OfferBook, ThoseThatWaitAreBounded) {
  const absl::Time now = absl::UnixEpoch();
  OfferBook book({10, 1'000'000}, 2);
  Offered* offered = nullptr;
  for (uint64_t id = 1; offered == nullptr || book.MayWait(kOffering, offered->offer); ++id) {
    if (offered != nullptr) book.Wait(now, *offered);
    ASSERT_LE(book.waiting(), 10u);
    offered = book.Add(now, kOffering, OfferOfId(id, absl::StrCat("k", id)));
  }
  EXPECT_GT(book.waiting(), 0u);
  const absl::Status full = book.WhyNotWait(now, *offered, "node-b");
  EXPECT_EQ(ReasonOf(full), Reason::kQueueFull);
  EXPECT_THAT(full.message(),
              HasSubstr(absl::StrCat(book.waiting(), " offers of node-b wait here already")));
  book.WaitNoMore(now, *book.first_waiting());
  EXPECT_TRUE(book.MayWait(kOffering, offered->offer));
}

TEST(OfferBookDeathTest, WhatMayNotWaitIsNotMadeToWait) {
  const absl::Time now = absl::UnixEpoch();
  OfferBook book({1, 1'000'000}, 2);
  book.Wait(now, *book.Add(now, kOffering, OfferOfId(1, "a")));
  Offered* const second = book.Add(now, kOffering, OfferOfId(2, "b"));
  ASSERT_FALSE(book.MayWait(kOffering, second->offer));
  EXPECT_DEATH(book.Wait(now, *second), "MayWait");
}

TEST(OfferBook, ASmallerBoundRefusesWhatIsNew) {
  const absl::Time now = absl::UnixEpoch();
  OfferBook book({10, 1'000'000}, 2);
  Offered* const offered = book.Add(now, kOffering, OfferOfId(1));
  EXPECT_TRUE(book.RoomFor(now, kOffering, OfferOfId(2), "node-b").ok());
  book.SetBounds({10, 1});
  const absl::Status full = book.RoomFor(now, kOffering, OfferOfId(2), "node-b");
  EXPECT_EQ(ReasonOf(full), Reason::kQueueFull);
  EXPECT_THAT(full.message(), HasSubstr("limits.peer_kept_bytes"));
  EXPECT_EQ(book.Find(kOffering, offered->offer.transfer), offered);
  book.AddPeer();
  EXPECT_FALSE(book.RoomFor(now, PeerId(2), OfferOfId(2), "node-c").ok());
}

TEST(PreparedSlots, ABatchHasItsSlotUntilItsLastSendIsOver) {
  PreparedSlots slots;
  const TransferId one(10), two(20), three(30);
  EXPECT_EQ(slots.Take(one), 1u);
  EXPECT_EQ(slots.Take(one), 1u);
  EXPECT_EQ(slots.Take(two), 2u);
  slots.Return(one);
  EXPECT_EQ(slots.Take(three), 3u);  // `one` has a send yet
  slots.Return(one);
  EXPECT_EQ(slots.Take(TransferId(40)), 1u);
}

TEST(PreparedSlots, ThereAreSoManyOfThem) {
  PreparedSlots slots;
  for (uint64_t batch = 1; batch <= kPreparedSlots; ++batch) {
    EXPECT_EQ(slots.Take(TransferId(batch)), batch);
  }
  const TransferId late(kPreparedSlots + 1);
  EXPECT_EQ(slots.Take(late), 0u);
  slots.Return(TransferId(5));
  EXPECT_EQ(slots.Take(late), 5u);
}

}  // namespace
}  // namespace ferry
