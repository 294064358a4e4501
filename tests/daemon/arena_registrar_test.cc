// SPDX-License-Identifier: Apache-2.0
// Registering memory, without a client: what is answered, and what counts meanwhile.
#include "daemon/session/arena_registrar.h"

#include <optional>
#include <utility>
#include <vector>

#include "tests/daemon/session_parts.h"

namespace ferry::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ArenaRegistrarTest : public ::testing::Test {
 protected:
  void Register(Session& session, uint64_t bytes, uint64_t device = 1) {
    std::vector<UniqueFd> fds;
    fds.push_back(SealedMemfd(bytes));
    answer_.reset();
    parts_.registrar.Register(
        session, {GlobalDeviceId(device), {MemoryKind::kMemfd, bytes}, false}, std::move(fds),
        [this](absl::StatusOr<ArenaRegistrar::Registered> made) { answer_ = std::move(made); });
  }
  ArenaId MustRegister(Session& session, uint64_t bytes) {
    Register(session, bytes);
    parts_.Settle();
    EXPECT_TRUE(answer_.has_value() && answer_->ok());
    return answer_.has_value() && answer_->ok() ? (*answer_)->answer.arena : ArenaId();
  }

  SessionParts parts_;
  std::optional<absl::StatusOr<ArenaRegistrar::Registered>> answer_;
};

TEST_F(ArenaRegistrarTest, MemoryCountsFromTheRequestOn) {
  Session& session = parts_.Open(1);
  Register(session, 4096);
  EXPECT_FALSE(answer_.has_value());
  EXPECT_EQ(session.use().bytes, 4096u);
  EXPECT_EQ(parts_.device().coming_bytes, 4096u);
  EXPECT_EQ(parts_.device().arenas, 0u);
  parts_.Settle();
  ASSERT_TRUE(answer_.has_value());
  ASSERT_THAT(*answer_, Is("OK"));
  const Arena* const arena = parts_.arenas.Find((*answer_)->answer.arena);
  ASSERT_NE(arena, nullptr);
  EXPECT_NE(arena->mapping, nullptr);
  EXPECT_THAT((*answer_)->fds, IsEmpty()) << "the client made it";
  EXPECT_EQ(parts_.device().coming_bytes, 0u);
  EXPECT_EQ(parts_.device().arena_bytes, 4096u);
}

TEST_F(ArenaRegistrarTest, ARefusalIsSaidAtOnceAndTakesNothing) {
  Session& session = parts_.Open(1);
  Register(session, 4096, /*device=*/3);
  ASSERT_TRUE(answer_.has_value());
  EXPECT_THAT(*answer_, Is("NOT_FOUND/DEVICE_UNKNOWN", "device 3 is not a device of node-a"));
  Register(session, 8193);
  ASSERT_TRUE(answer_.has_value());
  EXPECT_THAT(*answer_, Is("RESOURCE_EXHAUSTED/QUOTA_BYTES", "largest holders: no session"));
  EXPECT_EQ(session.use().bytes, 0u);
  EXPECT_EQ(parts_.device().coming_bytes, 0u);
}

TEST_F(ArenaRegistrarTest, NobodyIsToldWhenTheClientIsGone) {
  Session& session = parts_.Open(1);
  Register(session, 4096);
  session.client_gone = true;
  parts_.Settle();
  EXPECT_FALSE(answer_.has_value());
  EXPECT_EQ(parts_.device().coming_bytes, 0u);
  EXPECT_EQ(parts_.device().arenas, 0u);
}

TEST_F(ArenaRegistrarTest, ReleasingTellsOfItAndGivesJobsTheRoom) {
  Session& session = parts_.Open(1);
  const ArenaId arena = MustRegister(session, 4096);
  std::vector<ArenaId> given;
  const auto taken = parts_.job_memory.Take(session, parts_.device(), 4096,
                                            [&](ArenaId id, const absl::Status& status) {
                                              EXPECT_THAT(status, Is("OK"));
                                              given.push_back(id);
                                            });
  ASSERT_THAT(taken, Is("OK"));
  const auto waits = parts_.job_memory.Take(session, parts_.device(), 4000,
                                            [&](ArenaId id, const absl::Status& status) {
                                              EXPECT_THAT(status, Is("OK"));
                                              given.push_back(id);
                                            });
  ASSERT_THAT(waits, Is("OK"));
  parts_.Settle();
  EXPECT_TRUE(parts_.job_memory.Awaits(*waits));
  EXPECT_THAT(parts_.registrar.Release(session, {arena}), Is("OK"));
  parts_.Settle();
  EXPECT_THAT(parts_.gone, ElementsAre(arena));
  EXPECT_EQ(parts_.arenas.Find(arena), nullptr);
  EXPECT_THAT(given, ElementsAre(*taken, *waits));
  EXPECT_THAT(parts_.registrar.Release(session, {arena}), Is("NOT_FOUND/ID_STALE"));
}

TEST_F(ArenaRegistrarTest, WhatJobsHaveLeftMakesRoomForAClient) {
  Session& session = parts_.Open(1);
  const auto taken =
      parts_.job_memory.Take(session, parts_.device(), 6000, [](ArenaId, const absl::Status&) {});
  ASSERT_THAT(taken, Is("OK"));
  parts_.Settle();
  parts_.job_memory.Return(*taken);
  EXPECT_THAT(parts_.job_memory.spares(session.id()), ElementsAre(*taken));
  MustRegister(session, 8192);
  EXPECT_THAT(parts_.job_memory.spares(session.id()), IsEmpty());
  EXPECT_THAT(parts_.gone, ElementsAre(*taken));
  EXPECT_EQ(parts_.job_memory.bytes(), 0u);
}

// A session that is destroyed leaves nothing that counts, and wakes up who waits.
TEST_F(ArenaRegistrarTest, AForgottenSessionsJobMemoryIsOthers) {
  Session& one = parts_.Open(1);
  Session& other = parts_.Open(2);
  std::vector<ArenaId> given;
  const auto mapped = [&](ArenaId id, const absl::Status&) { given.push_back(id); };
  const auto first = parts_.job_memory.Take(one, parts_.device(), 8000, mapped);
  const auto second = parts_.job_memory.Take(other, parts_.device(), 8000, mapped);
  parts_.Settle();
  ASSERT_THAT(first, Is("OK"));
  ASSERT_THAT(second, Is("OK"));
  EXPECT_THAT(given, ElementsAre(*first));
  EXPECT_THAT(parts_.job_memory.TextOf(*second),
              ::testing::HasSubstr("session 1 (trainer) 8000 bytes"));
  parts_.job_memory.Forget(one);
  for (auto& arena : one.arenas().TakeAll()) parts_.arenas.LetGo(std::move(arena));
  parts_.sessions.Erase(one.id());
  parts_.job_memory.OnFreed();
  parts_.Settle();
  EXPECT_THAT(given, ElementsAre(*first, *second));
  EXPECT_EQ(parts_.job_memory.bytes(), 8000u);
  EXPECT_EQ(parts_.device().arenas, 1u);
}

}  // namespace
}  // namespace ferry::testing
