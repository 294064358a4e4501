// SPDX-License-Identifier: Apache-2.0
// What is left of a refused link stays until its refusal was read, and not for longer than a time.
#include "daemon/peer/partings.h"

#include <utility>

#include "tests/daemon/peer_parts.h"

namespace ferry::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class PartingsTest : public ::testing::Test {
 protected:
  ManualExecutor control_;
  PlayedSockets sockets_;
  Partings partings_{control_, sockets_.hooks.close};
};

TEST_F(PartingsTest, EndWhenTheOtherEndHasClosed) {
  auto [stream, record] = MakeStream();
  partings_.Add(7, std::move(stream), {51, 3});
  EXPECT_TRUE(partings_.Has(51));
  EXPECT_TRUE(partings_.Has(3));
  EXPECT_FALSE(partings_.Has(4));
  partings_.End(8);
  EXPECT_TRUE(record->alive);
  partings_.End(7);
  EXPECT_FALSE(record->alive);
  EXPECT_FALSE(partings_.Has(51));
  EXPECT_THAT(sockets_.closed, ElementsAre(51, 3));
}

TEST_F(PartingsTest, EndAfterATimeTheOldestFirst) {
  EXPECT_EQ(partings_.OnTime(control_.Now()), absl::InfiniteFuture());
  const absl::Time begin = control_.Now();
  partings_.Add(7, nullptr, {51});
  control_.Advance(absl::Milliseconds(1));
  partings_.Add(8, nullptr, {52});
  EXPECT_EQ(partings_.OnTime(begin + Partings::kTimeout - absl::Nanoseconds(1)),
            begin + Partings::kTimeout);
  EXPECT_THAT(sockets_.closed, IsEmpty());
  EXPECT_EQ(partings_.OnTime(begin + Partings::kTimeout),
            begin + absl::Milliseconds(1) + Partings::kTimeout);
  EXPECT_THAT(sockets_.closed, ElementsAre(51));
}

TEST_F(PartingsTest, AllEndWithTheDaemon) {
  partings_.Add(7, nullptr, {51});
  partings_.Add(8, nullptr, {});
  partings_.Add(9, nullptr, {52});
  partings_.EndAll();
  EXPECT_THAT(sockets_.closed, ElementsAre(51, 52));
  EXPECT_EQ(partings_.OnTime(control_.Now()), absl::InfiniteFuture());
}

}  // namespace
}  // namespace ferry::testing
