// SPDX-License-Identifier: Apache-2.0
// Who is posted, in which order, in which convoy, and the cursors that go over them.
#include "transfer/half_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace ferry {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr SessionId kOwner{3};
constexpr SessionId kReader{4};
constexpr PeerId kFarPeer{1};

class HalfBookTest : public testing::Test {
 protected:
  static TransferSpec Spec(int key) {
    TransferSpec spec;
    spec.side = Side::kSend;
    spec.key = {"job", GlobalDeviceId(0), GlobalDeviceId(2), absl::StrCat("key-", 100 + key)};
    spec.bytes = 64;
    spec.layout = {{ArenaId(10), static_cast<uint64_t>(64 * key), 64}};
    return spec;
  }
  Posted& Add(SessionId session, uint64_t sequence) {
    book_.Expect(session, 1);
    return book_.Add(now_, MakeTransferId(session, sequence), Spec(static_cast<int>(sequence)),
                     kFarPeer);
  }
  // Of the transfers `first` and the `count` - 1 that follow it.
  Posted& AddConvoy(SessionId session, uint64_t first, size_t count) {
    std::vector<TransferSpec> specs;
    for (size_t i = 0; i < count; ++i) specs.push_back(Spec(static_cast<int>(first + i)));
    book_.Expect(session, count);
    return book_.AddConvoy(now_, MakeTransferId(session, first), absl::MakeSpan(specs), kFarPeer);
  }
  std::vector<uint64_t> Order() {
    std::vector<uint64_t> order;
    for (const Posted* half = book_.first(); half != nullptr; half = book_.Next(*half)) {
      order.push_back(SequenceOf(half->id));
    }
    return order;
  }

  HalfBook book_;
  absl::Time now_ = absl::UnixEpoch() + absl::Seconds(100);
};

TEST_F(HalfBookTest, HalvesStandInTheOrderOfPostingUntilTheyAreTaken) {
  Add(kOwner, 20);
  Posted& middle = Add(kReader, 7);
  Add(kOwner, 21);
  EXPECT_THAT(Order(), ElementsAre(20, 7, 21));
  EXPECT_EQ(book_.transfers(), 3u);
  EXPECT_EQ(book_.transfers(kOwner), 2u);
  const std::unique_ptr<Posted> taken = book_.Take(middle);
  EXPECT_EQ(taken->id, MakeTransferId(kReader, 7));
  EXPECT_EQ(taken->spec.key.key, "key-107");
  EXPECT_THAT(Order(), ElementsAre(20, 21));
  EXPECT_EQ(book_.Find(MakeTransferId(kReader, 7)), nullptr);
  EXPECT_EQ(book_.transfers(kReader), 0u);
}

TEST_F(HalfBookTest, WhatIsExpectedIsCountedBeforeItIsThere) {
  book_.Expect(kOwner, 2);
  EXPECT_EQ(book_.transfers(kOwner), 2u);
  EXPECT_EQ(book_.transfers(), 0u);
  EXPECT_TRUE(book_.empty());
}

TEST_F(HalfBookTest, AConvoyIsFoundByEachOfItsTransfers) {
  Add(kOwner, 20);
  Posted& convoy = AddConvoy(kOwner, 21, 8);
  Add(kOwner, 29);
  EXPECT_EQ(book_.transfers(), 10u);
  EXPECT_EQ(book_.Holding(MakeTransferId(kOwner, 25)), &convoy);
  EXPECT_EQ(book_.Find(MakeTransferId(kOwner, 25)), nullptr);
  EXPECT_EQ(book_.Holding(MakeTransferId(kOwner, 29))->id, MakeTransferId(kOwner, 29));
  EXPECT_EQ(book_.Holding(MakeTransferId(kOwner, 30)), nullptr);
  book_.Take(convoy);
  EXPECT_EQ(book_.transfers(), 2u);
  EXPECT_EQ(book_.Holding(MakeTransferId(kOwner, 25)), nullptr);
}

TEST_F(HalfBookTest, TheTransfersOfAConvoyTakeItsPlaceAndItsState) {
  Add(kOwner, 20);
  Posted& convoy = AddConvoy(kOwner, 21, 8);
  Add(kOwner, 29);
  convoy.state.Offer();
  const std::vector<TransferId> ids = book_.Replace(convoy);
  ASSERT_EQ(ids.size(), 8u);
  EXPECT_THAT(Order(), ElementsAre(20, 21, 22, 23, 24, 25, 26, 27, 28, 29));
  EXPECT_EQ(book_.transfers(kOwner), 10u);
  const Posted& fifth = *book_.Find(ids[4]);
  EXPECT_TRUE(fifth.state.Is<HalfState::Offered>());
  EXPECT_EQ(fifth.spec.key.key, "key-125");
  EXPECT_EQ(fifth.peer, kFarPeer);
}

TEST_F(HalfBookTest, CursorsGoOnBehindWhatIsTakenFromUnderThem) {
  Posted& first = Add(kOwner, 1);
  Posted& second = Add(kOwner, 2);
  Add(kOwner, 3);
  EXPECT_EQ(book_.young(), &first);
  book_.PassYoung();
  book_.BeginSweep();
  book_.PassSwept();
  book_.EndLater(kOwner, "its process is gone");
  ASSERT_EQ(book_.ToEnd(), &first);
  book_.PassToEnd();
  book_.Take(second);
  for (const Posted* next : {book_.young(), book_.swept(), book_.ToEnd()}) {
    ASSERT_NE(next, nullptr);
    EXPECT_EQ(SequenceOf(next->id), 3u);
  }
}

TEST_F(HalfBookTest, CursorsAtAConvoyGoOnAtItsFirstTransfer) {
  Posted& convoy = AddConvoy(kOwner, 1, 8);
  book_.BeginSweep();
  book_.EndLater(kOwner, "its process is gone");
  ASSERT_EQ(book_.ToEnd(), &convoy);
  book_.Replace(convoy);
  for (const Posted* next : {book_.young(), book_.swept(), book_.ToEnd()}) {
    ASSERT_NE(next, nullptr);
    EXPECT_EQ(next->count(), 1u);
    EXPECT_EQ(SequenceOf(next->id), 1u);
  }
}

TEST_F(HalfBookTest, SessionsThatEndAreEndedOneAfterTheOther) {
  Add(kReader, 1);
  Add(kOwner, 1);
  Add(kReader, 2);
  book_.EndLater(kOwner, "killed");
  book_.EndLater(kReader, "closed");
  EXPECT_FALSE(book_.EndLater(SessionId(9), "it has none"));
  std::vector<std::string> ends;
  while (Posted* const half = book_.ToEnd()) {
    ends.push_back(absl::StrCat(SessionOf(half->id).value(), "/", SequenceOf(half->id), " ",
                                book_.why_to_end()));
    book_.PassToEnd();
    book_.Take(*half);
  }
  EXPECT_THAT(ends, ElementsAre("3/1 killed", "4/1 closed", "4/2 closed"));
  EXPECT_FALSE(book_.ends_sessions());
  EXPECT_THAT(Order(), IsEmpty());
}

}  // namespace
}  // namespace ferry
