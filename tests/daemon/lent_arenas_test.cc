// SPDX-License-Identifier: Apache-2.0
// A peer may map what our offers to it have named, as long as its link lives.
#include "daemon/peer/lent_arenas.h"

#include "tests/daemon/peer_parts.h"

namespace ferry::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr ArenaId kSeven{7}, kEight{8};

TEST(LentArenas, AreThoseThatOffersHaveNamed) {
  LentArenas lent;
  EXPECT_FALSE(lent.IsLent(kSeven, kNodeC));
  lent.Lend(kNodeC, Layout{{kSeven, 0, 16}, {kEight, 0, 16}, {kSeven, 32, 16}});
  EXPECT_TRUE(lent.IsLent(kSeven, kNodeC));
  EXPECT_TRUE(lent.IsLent(kEight, kNodeC));
  EXPECT_FALSE(lent.IsLent(kSeven, kNodeA));
}

TEST(LentArenas, ThePeersOfAnArenaThatIsGoneAreToldOnce) {
  LentArenas lent;
  lent.Lend(kNodeC, Layout{{kSeven, 0, 16}});
  lent.Lend(kNodeA, Layout{{kSeven, 0, 16}, {kEight, 0, 16}});
  lent.Lend(kNodeC, Layout{{kSeven, 0, 16}});
  EXPECT_THAT(lent.Take(kSeven), ElementsAre(kNodeC, kNodeA));
  EXPECT_THAT(lent.Take(kSeven), IsEmpty());
  EXPECT_FALSE(lent.IsLent(kSeven, kNodeC));
  EXPECT_TRUE(lent.IsLent(kEight, kNodeA));
  lent.Lend(kNodeC, Layout{{kSeven, 0, 16}});
  EXPECT_TRUE(lent.IsLent(kSeven, kNodeC))
      << "the last one that was lent is not remembered as such";
}

TEST(LentArenas, NothingIsLentToALostPeer) {
  LentArenas lent;
  lent.ForgetPeer(kNodeC);
  lent.Lend(kNodeC, Layout{{kSeven, 0, 16}});
  lent.Lend(kNodeA, Layout{{kSeven, 0, 16}});
  lent.ForgetPeer(kNodeC);
  EXPECT_FALSE(lent.IsLent(kSeven, kNodeC));
  EXPECT_THAT(lent.Take(kSeven), ElementsAre(kNodeA));
  lent.Lend(kNodeC, Layout{{kSeven, 0, 16}});
  EXPECT_TRUE(lent.IsLent(kSeven, kNodeC)) << "the next link begins anew";
}

}  // namespace
}  // namespace ferry::testing
