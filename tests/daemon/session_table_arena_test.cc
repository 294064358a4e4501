// SPDX-License-Identifier: Apache-2.0
// What sessions own, and what becomes of it when the client goes.
#include <unistd.h>

#include <cstring>
#include <string>
#include <variant>
#include <vector>

#include "tests/daemon/session_table_rig.h"

namespace ferry {
namespace {

using ::testing::ElementsAre;
using testing::Is;
using ::testing::IsEmpty;
using testing::kAlice;
using testing::kConnection;
using testing::SealedMemfd;
using testing::SessionTableRig;
using ::testing::SizeIs;

TEST(SessionTableArenas, RegisteredMemoryIsTheClientsOwn) {
  SessionTableRig rig;
  Session* session = rig.Open(kConnection);
  UniqueFd memfd = SealedMemfd(8192);
  const UniqueFd clients(dup(memfd.get()));
  const AttachReply reply = rig.Register(kConnection, 8192, std::move(memfd), /*device=*/2);
  ASSERT_THAT(reply.error, Is("OK"));
  const ArenaId id = std::get<AttachArenaRegistered>(reply.body).arena;
  Arena* arena = rig.table.FindArena(id);
  ASSERT_NE(arena, nullptr);
  EXPECT_EQ(*session->arenas().Find(id), arena);
  EXPECT_EQ(arena->session, session->id());
  EXPECT_EQ(arena->bytes, 8192u);
  ASSERT_EQ(pwrite(clients.get(), "ferry", 5, 5000), 5);
  EXPECT_EQ(memcmp(arena->mapping->data() + 5000, "ferry", 5), 0);
  EXPECT_EQ(session->use().bytes, 8192u);
  EXPECT_EQ(rig.devices.table.list[1]->arenas, 1u);
  EXPECT_EQ(rig.devices.table.list[1]->arena_bytes, 8192u);
  EXPECT_EQ(rig.devices.table.list[0]->arenas, 0u);
}

TEST(SessionTableArenas, WhatCannotBeRegisteredCostsNothing) {
  SessionTableRig rig;
  Session* session = rig.Open(kConnection);
  EXPECT_THAT(rig.Register(kConnection, 4096, SealedMemfd(4096), /*device=*/3).error,
              Is("NOT_FOUND/DEVICE_UNKNOWN", "device 3 is not a device of node-a, which has "));
  EXPECT_THAT(rig.Register(kConnection, 4096, SealedMemfd(4096, F_SEAL_SHRINK)).error,
              Is("INVALID_ARGUMENT/MEMFD_UNSEALED", "register an arena"));
  EXPECT_THAT(rig.Register(kConnection, 8192, SealedMemfd(4096)).error,
              Is("INVALID_ARGUMENT/FIELD_INVALID"));
  EXPECT_THAT(rig.Register(kConnection, 0, SealedMemfd(4096)).error,
              Is("INVALID_ARGUMENT/FIELD_INVALID"));
  const AttachRegisterArena request{GlobalDeviceId(1), {MemoryKind::kMemfd, 4096}, false};
  EXPECT_THAT(
      rig.Command(kConnection, request).error,
      Is("INVALID_ARGUMENT/FIELD_INVALID", "one file descriptor must come with the packet, 0 did"));
  std::vector<UniqueFd> two;
  two.push_back(SealedMemfd(4096));
  two.push_back(SealedMemfd(4096));
  EXPECT_THAT(rig.Command(kConnection, request, kAlice, std::move(two)).error,
              Is("INVALID_ARGUMENT/FIELD_INVALID", "2 did"));
  EXPECT_EQ(session->use().bytes, 0u);
  EXPECT_EQ(session->use().arenas, 0u);
  EXPECT_EQ(rig.devices.table.list[0]->arenas, 0u);
  EXPECT_THAT(rig.closed, IsEmpty());
}

TEST(SessionTableArenas, ARefusalForQuotaNamesTheLargestHolders) {
  SessionTableRig rig;
  rig.Open(1);
  rig.Open(2);
  rig.Open(3);  // holds nothing, and is not named
  rig.RegisterGood(2, 1 << 19);
  rig.RegisterGood(1, 4096);
  const AttachReply reply = rig.Register(2, (1 << 19) + 1, SealedMemfd(1 << 20));
  EXPECT_THAT(reply.error,
              Is("RESOURCE_EXHAUSTED/QUOTA_BYTES",
                 "; largest holders: session 2 (trainer) 524288 bytes, session 1 (trainer) 4096 "
                 "bytes"));
}

TEST(SessionTableArenas, RegistrationsOnTheirWayCountInTheQuota) {
  SessionTableRig rig;
  rig.Open(kConnection);
  rig.sent.clear();
  for (int i = 0; i < 2; ++i) {  // both before either is mapped
    std::vector<UniqueFd> fds;
    fds.push_back(SealedMemfd(1 << 20));
    rig.table.OnCommand(
        kConnection, kAlice,
        {100u + i,
         AttachRegisterArena{GlobalDeviceId(1), {MemoryKind::kMemfd, (1 << 19) + 1}, false}},
        std::move(fds));
  }
  rig.Settle();
  ASSERT_THAT(rig.sent, SizeIs(2));
  EXPECT_EQ(rig.sent[0].reply.sequence, 101u);
  EXPECT_THAT(rig.sent[0].reply.error, Is("RESOURCE_EXHAUSTED/QUOTA_BYTES"));
  EXPECT_EQ(rig.sent[1].reply.sequence, 100u);
  EXPECT_THAT(rig.sent[1].reply.error, Is("OK"));
}

TEST(SessionTableArenas, AReleaseTellsPeersAndGivesTheIdOutNoMore) {
  SessionTableRig rig;
  Session* session = rig.Open(kConnection);
  const ArenaId id = rig.RegisterGood(kConnection, 4096);
  EXPECT_THAT(rig.Command(kConnection, AttachReleaseArena{id}).error, Is("OK"));
  EXPECT_THAT(rig.arenas_gone, ElementsAre(id));
  EXPECT_EQ(rig.table.FindArena(id), nullptr);
  EXPECT_EQ(rig.devices.table.list[0]->arenas, 0u);
  EXPECT_EQ(rig.devices.table.list[0]->arena_bytes, 0u);
  EXPECT_EQ(session->use().bytes, 0u);
  EXPECT_THAT(rig.Command(kConnection, AttachReleaseArena{id}).error, Is("NOT_FOUND/ID_STALE"));
  EXPECT_NE(rig.RegisterGood(kConnection, 4096), id);
}

TEST(SessionTableArenas, OneInUseIsNotReleased) {
  SessionTableRig rig;
  Session* session = rig.Open(kConnection);
  const ArenaId id = rig.RegisterGood(kConnection, 4096);
  const Ended ended = rig.Start(*session, id);
  EXPECT_THAT(rig.Command(kConnection, AttachReleaseArena{id}).error,
              Is("FAILED_PRECONDITION/FIELD_INVALID", "release arena 1: 1 transfers use it"));
  EXPECT_NE(rig.table.FindArena(id), nullptr);
  session->OnEnded(ended);
  EXPECT_THAT(rig.Command(kConnection, AttachReleaseArena{id}).error, Is("OK"));
}

TEST(SessionTableArenas, AFreedOneInUseGoesWithItsLastTransfer) {
  SessionTableRig rig;
  Session* session = rig.Open(kConnection);
  const ArenaId id = rig.RegisterGood(kConnection, 1 << 20);  // all of the quota
  const Ended ended = rig.Start(*session, id);
  const AttachReply reply = rig.Command(kConnection, AttachReleaseArena{id, /*freed=*/true});
  EXPECT_THAT(reply.error, Is("OK"));  // at once
  EXPECT_TRUE(std::holds_alternative<AttachArenaReleased>(reply.body));
  EXPECT_THAT(rig.Command(kConnection, AttachReleaseArena{id}).error, Is("NOT_FOUND/ID_STALE"));
  EXPECT_THAT(rig.Command(kConnection, AttachReleaseArena{id, /*freed=*/true}).error,
              Is("NOT_FOUND/ID_STALE"));
  // What is under way still finds it, and peers may map it; and it takes what it took.
  ASSERT_NE(rig.table.FindArena(id), nullptr);
  EXPECT_NE(rig.table.FindArena(id)->mapping, nullptr);
  EXPECT_THAT(rig.arenas_gone, IsEmpty());
  EXPECT_EQ(rig.devices.table.list[0]->arena_bytes, 1u << 20);
  EXPECT_THAT(rig.Register(kConnection, 4096, SealedMemfd(4096)).error,
              Is("RESOURCE_EXHAUSTED/QUOTA_BYTES"));
  session->OnEnded(ended);
  rig.table.OnIdle(*session);
  EXPECT_EQ(rig.table.FindArena(id), nullptr);
  EXPECT_THAT(rig.arenas_gone, ElementsAre(id));
  EXPECT_EQ(rig.devices.table.list[0]->arenas, 0u);
  EXPECT_EQ(rig.devices.table.list[0]->arena_bytes, 0u);
  EXPECT_NE(rig.RegisterGood(kConnection, 1 << 20), id);
}

TEST(SessionTableArenas, AnotherSessionsArenaIsNotFound) {
  SessionTableRig rig;
  rig.Open(1);
  rig.Open(2);
  const ArenaId id = rig.RegisterGood(1, 4096);
  EXPECT_THAT(rig.Command(2, AttachReleaseArena{id}).error, Is("NOT_FOUND/ARENA_NOT_FOUND"));
  EXPECT_NE(rig.table.FindArena(id), nullptr);
}

TEST(SessionTableArenas, AResetForgetsTheCountersFailures) {
  SessionTableRig rig;
  Session* session = rig.Open(kConnection);
  Ended ended = rig.Start(*session, rig.RegisterGood(kConnection, 4096));
  ended.status = Error(absl::StatusCode::kAborted, Reason::kPoisoned, "NaN");
  session->OnEnded(ended);
  session->timelines().Flush();
  const auto* pages = static_cast<const ferry_timeline_pages*>(session->timelines().begin());
  EXPECT_EQ(pages->over[0].failures, 1u);
  const AttachReply reply = rig.Command(kConnection, AttachResetTimeline{0});
  EXPECT_THAT(reply.error, Is("OK"));
  EXPECT_TRUE(std::holds_alternative<AttachTimelineReset>(reply.body));
  EXPECT_EQ(pages->over[0].failures, 0u);
  EXPECT_EQ(pages->over[0].first_failed, 0u);
  EXPECT_THAT(rig.Command(kConnection, AttachResetTimeline{63}).error, Is("OK"));
  EXPECT_THAT(rig.Command(kConnection, AttachResetTimeline{64}).error,
              Is("INVALID_ARGUMENT/FIELD_INVALID", "reset 'over' counter 64"));
}

TEST(SessionTableEnd, AClientWithoutTransfersLeavesNothing) {
  SessionTableRig rig;
  const SessionId id = rig.Open(kConnection)->id();
  const ArenaId first = rig.RegisterGood(kConnection, 4096);
  const ArenaId second = rig.RegisterGood(kConnection, 4096);
  rig.table.OnClosed(kConnection);
  rig.Settle();
  EXPECT_THAT(rig.ended, ElementsAre(id));
  EXPECT_THAT(rig.arenas_gone, ::testing::UnorderedElementsAre(first, second));
  EXPECT_EQ(rig.table.Find(id), nullptr);
  EXPECT_EQ(rig.table.open(), 0u);
  EXPECT_EQ(rig.table.size(), 0u);
  EXPECT_EQ(rig.devices.table.list[0]->arenas, 0u);
  EXPECT_EQ(rig.table.counts().closed, 1u);
  EXPECT_EQ(rig.table.counts().lost, 0u);
  rig.table.OnClosed(kConnection);  // the door may say so twice
  EXPECT_THAT(rig.ended, SizeIs(1));
}

TEST(SessionTableEnd, OfAClientWithTransfersTheMemoryStaysUntilTheLastIsOver) {
  SessionTableRig rig;
  Session* session = rig.Open(kConnection);
  const SessionId id = session->id();
  const ArenaId arena = rig.RegisterGood(kConnection, 4096);
  const Ended first = rig.Start(*session, arena), second = rig.Start(*session, arena);
  int told = 0;
  session->endings().AddWatcher([&] { ++told; });
  rig.table.OnClosed(kConnection);
  EXPECT_EQ(told, 1);
  EXPECT_THAT(rig.ended, ElementsAre(id));
  EXPECT_TRUE(session->client_gone);
  EXPECT_EQ(rig.table.open(), 0u);
  EXPECT_THAT(rig.table.List(), ElementsAre(session));
  EXPECT_EQ(rig.table.counts().lost, 1u);
  EXPECT_EQ(rig.table.counts().closed, 0u);
  session->OnEnded(first);
  rig.table.OnIdle(*session);
  EXPECT_NE(rig.table.FindArena(arena), nullptr);
  session->OnEnded(second);
  rig.table.OnIdle(*session);
  EXPECT_EQ(rig.table.FindArena(arena), nullptr);
  EXPECT_EQ(rig.table.Find(id), nullptr);
  EXPECT_THAT(rig.arenas_gone, ElementsAre(arena));
}

// The pages of a session that ends last are on their way to the lanes while these are taken down.
TEST(SessionTableEnd, TheDaemonMayStopRightAfterwards) {
  for (int i = 0; i < 50; ++i) {
    SessionTableRig rig;
    rig.Open(kConnection);
    rig.table.OnClosed(kConnection);
    rig.devices.table.list.clear();
  }
}

TEST(SessionTableEnd, AnIdleSessionWhoseClientLivesStays) {
  SessionTableRig rig;
  Session* session = rig.Open(kConnection);
  rig.table.OnIdle(*session);
  EXPECT_THAT(rig.table.List(), ElementsAre(session));
}

TEST(SessionTableEnd, ARegistrationThatComesTooLateIsDropped) {
  SessionTableRig rig;
  rig.Open(kConnection);
  rig.sent.clear();
  std::vector<UniqueFd> fds;
  fds.push_back(SealedMemfd(4096));
  rig.table.OnCommand(
      kConnection, kAlice,
      {9, AttachRegisterArena{GlobalDeviceId(1), {MemoryKind::kMemfd, 4096}, false}},
      std::move(fds));
  rig.table.OnClosed(kConnection);
  rig.Settle();
  EXPECT_THAT(rig.sent, IsEmpty());
  EXPECT_THAT(rig.arenas_gone, IsEmpty());
  EXPECT_EQ(rig.devices.table.list[0]->arenas, 0u);
}

}  // namespace
}  // namespace ferry
