// SPDX-License-Identifier: Apache-2.0
// Events of a link are numbered, whichever road their frames take.
#include "daemon/peer/link_frames.h"

#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "tests/daemon/peer_parts.h"

namespace ferry::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;
using Road = LinkFrames::Road;

class LinkFramesTest : public ::testing::Test {
 protected:
  static PeerFrame Gone(size_t count) { return {{{}, std::vector<ArenaId>(count, ArenaId(5))}}; }
  static PeerEvents Heard(uint64_t first, uint64_t arena) { return {{}, {ArenaId(arena)}, first}; }
  ManualExecutor control_;
  Devices devices_{{2}};
  PlayedSockets played_;
  TheirSockets sockets_{control_, devices_.table, played_.hooks, [](PeerId, ArenaId, auto) {}};
  FrameCounts counts_;
  LinkFrames frames_{sockets_, kNodeC, counts_};
  std::shared_ptr<StreamRecord> record_ = std::make_shared<StreamRecord>();
  FakeStream stream_{record_};
};

TEST_F(LinkFramesTest, GoByTheStreamWithoutAConnection) {
  EXPECT_EQ(frames_.Say(stream_, Gone(2)), Road::kStream);
  EXPECT_EQ(frames_.Say(stream_, Gone(1)), Road::kStream);
  ASSERT_THAT(record_->sent, SizeIs(2));
  EXPECT_EQ(record_->sent[0].first_event, 1u);
  EXPECT_EQ(record_->sent[1].first_event, 3u);
  EXPECT_EQ(counts_.stream, 2u);
  EXPECT_EQ(counts_.socket, 0u);
}

TEST_F(LinkFramesTest, GoByPeerSockIfItTakesThem) {
  ASSERT_THAT(sockets_.Connect(kNodeC, "/c/peer.sock", {}), Is("OK"));
  EXPECT_EQ(frames_.Say(stream_, Gone(2)), Road::kSocket);
  played_.taken = false;
  EXPECT_EQ(frames_.Say(stream_, Gone(1)), Road::kStream);
  played_.taken = true;
  EXPECT_EQ(frames_.Say(stream_, Gone(LinkFrames::kMostBySocket)), Road::kSocket);
  EXPECT_EQ(frames_.Say(stream_, Gone(LinkFrames::kMostBySocket + 1)), Road::kStream);
  record_->waiting = 1;
  EXPECT_EQ(frames_.Say(stream_, Gone(1)), Road::kStream) << "it overtakes none";
  EXPECT_EQ(std::get<PeerFrame>(played_.requests[1].request.body).first_event, 1u);
  EXPECT_EQ(record_->sent[0].first_event, 3u);
  EXPECT_EQ(std::get<PeerFrame>(played_.requests[2].request.body).first_event, 4u);
  EXPECT_EQ(counts_.socket, 2u);
  EXPECT_EQ(counts_.stream, 3u);
}

TEST_F(LinkFramesTest, AreHeardInOrderAndAnewAfterALoss) {
  ASSERT_THAT(frames_.Hear(Heard(2, 12)), Is("OK"));
  EXPECT_FALSE(frames_.Take().has_value());
  ASSERT_THAT(frames_.Hear(Heard(1, 11)), Is("OK"));
  for (const uint64_t arena : {11, 12}) {
    const std::optional<PeerEvents> events = frames_.Take();
    ASSERT_TRUE(events.has_value());
    EXPECT_THAT(events->arenas_gone, ElementsAre(ArenaId(arena)));
  }
  EXPECT_FALSE(frames_.Hear(Heard(1, 11)).ok()) << "it came before";
  frames_.Say(stream_, Gone(3));
  frames_.Restart();
  EXPECT_THAT(frames_.Hear(Heard(1, 11)), Is("OK"));
  frames_.Say(stream_, Gone(1));
  EXPECT_EQ(record_->sent.back().first_event, 1u);
}

}  // namespace
}  // namespace ferry::testing
