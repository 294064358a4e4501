// SPDX-License-Identifier: Apache-2.0
// Prepared batches on route nccl: what they move beside posted ones, and what becomes of them when
// the communicator or the other daemon goes.
#include <filesystem>

#include "tests/gpu/nccl_fixture.h"

namespace ferry::testing {
namespace {

using MultiGpuNcclPreparedTest = MultiGpuNcclTest;

TEST_F(MultiGpuNcclPreparedTest, PreparedAndPostedShareACommunicatorBothWays) {
  if (!StartDaemons(2)) return;
  // More than one group of what is in pieces, and of what is in one.
  constexpr uint64_t kLarge = 70 * kMiB, kSmall = 3000;
  constexpr uint64_t kAll = kLarge + 10 * kSmall;
  End a = Open(0, 0, 2 * kAll), b = Open(1, 0, 2 * kAll);
  struct Way {
    End* from;
    End* to;
    Prepared send, receive;
  };
  Way ways[] = {{&a, &b, {}, {}}, {&b, &a, {}, {}}};
  for (Way& way : ways) {
    std::vector<Transfer> sends, receives;
    const auto add = [&](uint64_t offset, uint64_t bytes) {
      const std::string key = absl::StrCat("at-", offset);
      std::vector<Range> from = {way.from->arena.Range(offset, bytes)};
      if (way.from == &b && bytes == kLarge) {
        from = {way.from->arena.Range(offset, bytes / 2),
                way.from->arena.Range(offset + bytes / 2, bytes / 2)};
      }
      sends.emplace_back(way.to->device, key, from);
      receives.emplace_back(way.from->device, key,
                            std::vector<Range>{way.to->arena.Range(kAll + offset, bytes)});
    };
    add(0, kLarge);
    if (way.from == &b) {
      for (uint64_t i = 0; i < 10; ++i) add(kLarge + i * kSmall, kSmall);
    }
    way.receive = Must(way.to->session.PrepareReceive(way.to->device, std::move(receives), Nccl()));
    way.send = Must(way.from->session.PrepareSend(way.from->device, std::move(sends), Nccl()));
  }
  for (uint64_t round = 1; round <= 4; ++round) {
    for (Way& way : ways) Fill(way.from->arena, 0, kAll, 10 * round + (way.from == &a));
    for (Way& way : ways) {
      ASSERT_THAT(way.send.Fire(), IsOk());
      ASSERT_THAT(way.receive.Fire(), IsOk());
    }
    if (round % 2 == 0) {
      Batch receive = Receive(b, a, "posted", {b.arena.Range(kAll + kLarge, kSmall)}, Nccl());
      Batch send = Send(a, b, "posted", {a.arena.Range(kLarge, kSmall)}, Nccl());
      ASSERT_THAT(receive.Wait(kSoon), IsOk());
      ASSERT_THAT(send.Wait(kSoon), IsOk());
    }
    for (Way& way : ways) {
      ASSERT_THAT(way.receive.Wait(kSoon), IsOk());
      ASSERT_THAT(way.send.Wait(kSoon), IsOk());
      const uint64_t bytes = way.from == &b ? kAll : kLarge;
      ASSERT_TRUE(Has(way.to->arena, kAll, bytes, 10 * round + (way.from == &a)));
    }
  }
  for (size_t i : {0, 1}) EXPECT_EQ(node(i).admin().Comms().comms_size(), 1);
}

TEST_F(MultiGpuNcclPreparedTest, APreparedBatchOutlivesTheCommunicatorsThatNoFiringIsOn) {
  if (!StartDaemons(2)) return;
  End a = Open(0, 0, kNcclBytes), b = Open(1, 0, kNcclBytes);
  Prepared receive =
      Must(b.session.PrepareReceive(b.device, {Transfer(a.device, "k", {b.arena.All()})}, Nccl()));
  Prepared send =
      Must(a.session.PrepareSend(a.device, {Transfer(b.device, "k", {a.arena.All()})}, Nccl()));
  // It is opened before anybody fires.
  ASSERT_TRUE(Await([&] {
    return node(0).admin().CountComms("open") == 1 && node(1).admin().CountComms("open") == 1;
  }));
  for (uint32_t attempt = 1; attempt <= 3; ++attempt) {
    Fill(a.arena, 0, kNcclBytes, attempt);
    ASSERT_THAT(send.Fire(), IsOk());
    ASSERT_THAT(receive.Fire(), IsOk());
    ASSERT_THAT(receive.Wait(kSoon), IsOk());
    ASSERT_THAT(send.Wait(kSoon), IsOk());
    ASSERT_TRUE(Has(b.arena, 0, kNcclBytes, attempt));
    EXPECT_EQ(AttemptAt(0), attempt);
    if (attempt == 1) {
      node(1).admin().EvictComm(a.device, b.device);
    } else {
      node(1).admin().AbortComm(a.device, b.device);
    }
    ASSERT_TRUE(Await([&] {
      return node(0).admin().CountComms("open") == 0 && node(1).admin().CountComms("open") == 0;
    }));
  }
}

TEST_F(MultiGpuNcclPreparedTest, AFiringThatIsAbortedEndsItsBatchAndNoOther) {
  ClusterOptions options;
  options.fake_nccl = absl::StrCat("group_gate=", Gate("groups"));
  if (!StartDaemons(2, options)) return;
  if (!fake()) GTEST_SKIP() << "NEEDS the fake NCCL, which fails where a test wants it";
  End a = Open(0, 0, kNcclBytes), b = Open(1, 0, kNcclBytes);
  const auto prepare = [&](const std::string& key) {
    std::pair<Prepared, Prepared> both;
    both.first = Must(
        b.session.PrepareReceive(b.device, {Transfer(a.device, key, {b.arena.All()})}, Nccl()));
    both.second =
        Must(a.session.PrepareSend(a.device, {Transfer(b.device, key, {a.arena.All()})}, Nccl()));
    return both;
  };
  auto [receive, send] = prepare("hit");
  auto [other_receive, other_send] = prepare("other");
  const auto fire = [](Prepared& one, Prepared& another) {
    ASSERT_THAT(one.Fire(), IsOk());
    ASSERT_THAT(another.Fire(), IsOk());
  };
  fire(receive, send);
  ASSERT_THAT(receive.Wait(kSoon), IsOk());
  ASSERT_THAT(send.Wait(kSoon), IsOk());
  const auto groups = [&] { return node(1).admin().Comms().comms(0).groups(); };
  const uint64_t before = groups();
  WriteFile(Gate("groups"), "");
  fire(receive, send);
  ASSERT_TRUE(Await([&] { return groups() > before; }));
  node(0).admin().AbortComm(a.device, b.device);
  EXPECT_THAT(receive.Wait(kSoon), Is("ABORTED/COMM_ABORTED"));
  EXPECT_THAT(send.Wait(kSoon), Is("ABORTED/COMM_ABORTED"));
  std::filesystem::remove(Gate("groups"));
  fire(other_receive, other_send);
  EXPECT_THAT(other_receive.Wait(kSoon), IsOk());
  EXPECT_THAT(other_send.Wait(kSoon), IsOk());
}

TEST_F(MultiGpuNcclPreparedTest, ADaemonKilledInTheMiddleOfAFiringIsTold) {
  ClusterOptions options;
  options.fake_nccl = absl::StrCat("group_gate=", Gate("groups"));
  if (!StartDaemons(2, options)) return;
  const uint64_t bytes = fake() ? kNcclBytes : 1024 * kMiB;
  for (size_t survivor : {0, 1}) {
    End a = Open(0, 0, bytes), b = Open(1, 0, bytes);
    Prepared receive = Must(
        b.session.PrepareReceive(b.device, {Transfer(a.device, "k", {b.arena.All()})}, Nccl()));
    Prepared send =
        Must(a.session.PrepareSend(a.device, {Transfer(b.device, "k", {a.arena.All()})}, Nccl()));
    ASSERT_THAT(receive.Fire(), IsOk());
    ASSERT_THAT(send.Fire(), IsOk());
    ASSERT_THAT(receive.Wait(kSoon), IsOk());
    ASSERT_THAT(send.Wait(kSoon), IsOk());
    WriteFile(Gate("groups"), "");
    ASSERT_THAT(receive.Fire(), IsOk());
    ASSERT_THAT(send.Fire(), IsOk());
    node(1 - survivor).Kill();
    // It may have been over before.
    Prepared& left = survivor == 0 ? send : receive;
    if (left.Wait(kKilled).ok()) {
      ASSERT_THAT(left.Fire(), IsOk());
    }
    EXPECT_THAT(left.Wait(kKilled), Is("UNAVAILABLE/PEER_UNREACHABLE"));
    std::filesystem::remove(Gate("groups"));
    ASSERT_TRUE(node(1 - survivor).Start());
  }
  End a = Open(0, 0, bytes), b = Open(1, 0, bytes);
  ExpectMoves(a, b);
}

}  // namespace
}  // namespace ferry::testing
