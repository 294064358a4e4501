// SPDX-License-Identifier: Apache-2.0
// Pages live as long as their link; what was copied is believed while the peer's page says so.
#include "daemon/peer/link_pages.h"

#include <memory>
#include <string>

#include "tests/daemon/peer_parts.h"

namespace ferry::testing {
namespace {

class LinkPagesTest : public ::testing::Test {
 protected:
  LinkPagesTest() {
    for (const PeerId peer : {kNodeA, kNodeB, kNodeC}) {
      pages_.AddPeer(peer, "node-" + std::string(1, static_cast<char>('a' + peer.value())));
    }
  }
  ReceivedFds FdsOf(const LinkPage& page, bool doorbells) {
    ReceivedFds fds;
    fds.Add(UniqueFd(fcntl(page.memfd(), F_DUPFD_CLOEXEC, 3)));
    if (doorbells) {
      fds.Add(UniqueFd(fcntl(page.makers_doorbell(), F_DUPFD_CLOEXEC, 3)));
      fds.Add(UniqueFd(fcntl(page.takers_doorbell(), F_DUPFD_CLOEXEC, 3)));
    }
    return fds;
  }
  const std::unique_ptr<LinkPage> of_peer_ = *LinkPage::Create();
  LinkPages pages_;
};

TEST_F(LinkPagesTest, OursIsRevokedWithTheLink) {
  EXPECT_EQ(pages_.Ours(kNodeC), nullptr);
  pages_.Revoke(kNodeC);
  pages_.Make(kNodeC);
  ASSERT_NE(pages_.Ours(kNodeC), nullptr);
  EXPECT_EQ(pages_.Ours(kNodeA), nullptr);
  const auto page =
      LinkPage::Map(UniqueFd(fcntl(pages_.Ours(kNodeC)->memfd(), F_DUPFD_CLOEXEC, 3)));
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_FALSE((*page)->Revoked());
  pages_.Revoke(kNodeC);
  EXPECT_EQ(pages_.Ours(kNodeC), nullptr);
  EXPECT_TRUE((*page)->Revoked());
}

TEST_F(LinkPagesTest, TheirsSaysWhetherCopiesCount) {
  EXPECT_THAT(pages_.StillValid(kNodeC),
              Is("UNAVAILABLE/PEER_UNREACHABLE", "node-c gave up the link during the copy"));
  ReceivedFds fds = FdsOf(*of_peer_, false);
  ASSERT_THAT(pages_.MapTheirs(kNodeC, fds), Is("OK"));
  EXPECT_THAT(pages_.StillValid(kNodeC), Is("OK"));
  EXPECT_THAT(pages_.StillValid(kNodeA), Is("UNAVAILABLE/PEER_UNREACHABLE"));
  of_peer_->Revoke();
  EXPECT_THAT(pages_.StillValid(kNodeC), Is("UNAVAILABLE/PEER_UNREACHABLE"));
}

TEST_F(LinkPagesTest, TheirsGoesWithTheLinkAndABadOneIsRefused) {
  ReceivedFds fds = FdsOf(*of_peer_, false), bad;
  ASSERT_THAT(pages_.MapTheirs(kNodeC, fds), Is("OK"));
  bad.Add(SealedMemfd(1));
  EXPECT_FALSE(pages_.MapTheirs(kNodeC, bad).ok());
  EXPECT_THAT(pages_.StillValid(kNodeC), Is("OK"));
  pages_.DropTheirs(kNodeC);
  EXPECT_THAT(pages_.StillValid(kNodeC), Is("UNAVAILABLE/PEER_UNREACHABLE"));
}

TEST_F(LinkPagesTest, SlotsNeedDoorbells) {
  EXPECT_EQ(pages_.WithSlots(kNodeC, /*ours=*/true), nullptr);
  ReceivedFds plain = FdsOf(*of_peer_, false);
  ASSERT_THAT(pages_.MapTheirs(kNodeC, plain), Is("OK"));
  EXPECT_EQ(pages_.WithSlots(kNodeC, /*ours=*/false), nullptr);
  ASSERT_TRUE(of_peer_->has_slots());
  ReceivedFds fds = FdsOf(*of_peer_, true);
  ASSERT_THAT(pages_.MapTheirs(kNodeC, fds), Is("OK"));
  EXPECT_NE(pages_.WithSlots(kNodeC, /*ours=*/false), nullptr);
  EXPECT_EQ(pages_.WithSlots(kNodeC, /*ours=*/true), nullptr);
  pages_.Make(kNodeC);
  EXPECT_EQ(pages_.WithSlots(kNodeC, /*ours=*/true).get(), pages_.Ours(kNodeC));
}

TEST_F(LinkPagesTest, APeerThatComesAgainKeepsItsPlace) {
  pages_.Make(kNodeC);
  pages_.AddPeer(kNodeC, "node-c");
  EXPECT_NE(pages_.Ours(kNodeC), nullptr);
  pages_.AddPeer(PeerId(3), "node-d");
  EXPECT_THAT(pages_.StillValid(PeerId(3)), Is("UNAVAILABLE/PEER_UNREACHABLE", "node-d"));
}

}  // namespace
}  // namespace ferry::testing
