// SPDX-License-Identifier: Apache-2.0
// Questions that are asked of all sessions.
#include "daemon/session/session_map.h"

#include <memory>
#include <utility>

#include "tests/daemon/session_parts.h"

namespace ferry::testing {
namespace {

using ::testing::ElementsAre;

class SessionMapTest : public ::testing::Test {
 protected:
  void Add(Session& session, uint64_t bytes, uint64_t device = 1) {
    EXPECT_THAT(session.arenas().Reserve(bytes), Is("OK"));
    auto arena = std::make_unique<Arena>();
    arena->session = session.id();
    arena->device = GlobalDeviceId(device);
    arena->bytes = arena->held = bytes;
    parts_.arenas.Add(session.arenas(), std::move(arena));
  }
  uint32_t Prepare(Session& session) {
    PostBatch batch;
    batch.prepare = true;
    batch.specs.resize(1);
    return session.Admit(batch).prepared_batch;
  }

  SessionParts parts_;
  SessionMap& sessions_ = parts_.sessions;
};

TEST_F(SessionMapTest, TheyAreFoundByIdAndListedInItsOrder) {
  Session& seven = parts_.Open(7);
  Session& three = parts_.Open(3);
  EXPECT_EQ(sessions_.Find(SessionId(7)), &seven);
  EXPECT_EQ(sessions_.Find(SessionId(4)), nullptr);
  EXPECT_THAT(sessions_.List(), ElementsAre(&three, &seven));
  EXPECT_EQ(sessions_.CountOf(1003), 1u);
  EXPECT_EQ(sessions_.CountOf(1004), 0u);
  sessions_.Erase(SessionId(3));
  EXPECT_THAT(sessions_.List(), ElementsAre(&seven));
  EXPECT_EQ(sessions_.CountOf(1003), 0u);
}

TEST_F(SessionMapTest, FiveWhoHoldMostAreNamedOfAllDevicesOrOfOne) {
  EXPECT_EQ(sessions_.LargestHolders(), "no session of this daemon");
  for (uint32_t id = 1; id <= 6; ++id) Add(parts_.Open(id, id == 2 ? "eval" : "trainer"), id * 100);
  Add(*sessions_.Find(SessionId(1)), 1000, /*device=*/2);
  EXPECT_EQ(
      sessions_.LargestHolders(),
      "session 1 (trainer) 1100 bytes, session 6 (trainer) 600 bytes, session 5 (trainer) 500 "
      "bytes, session 4 (trainer) 400 bytes, session 3 (trainer) 300 bytes");
  EXPECT_EQ(sessions_.LargestHolders(&parts_.device(1)),
            "session 6 (trainer) 600 bytes, session 5 (trainer) 500 bytes, session 4 (trainer) 400 "
            "bytes, session 3 (trainer) 300 bytes, session 2 (eval) 200 bytes");
}

TEST_F(SessionMapTest, FiringsOfSessionsThatAreGoneCount) {
  Session& one = parts_.Open(1);
  Session& other = parts_.Open(2);
  for (Session* const session : {&one, &other}) {
    PreparedBatch& batch = *session->prepared().Find(Prepare(*session))->batch;
    batch.Arm();
    batch.Over(1, 1);
  }
  EXPECT_EQ(sessions_.prepared_armed(), 2u);
  EXPECT_EQ(sessions_.prepared_firings(), 2u);
  EXPECT_THAT(sessions_.IdlePrepared(),
              ElementsAre(MakeTransferId(one.id(), 1), MakeTransferId(other.id(), 1)));
  sessions_.Erase(one.id());
  EXPECT_EQ(sessions_.prepared_armed(), 1u);
  EXPECT_EQ(sessions_.prepared_firings(), 2u);
  EXPECT_THAT(sessions_.IdlePrepared(), ElementsAre(MakeTransferId(other.id(), 1)));
}

}  // namespace
}  // namespace ferry::testing
