// SPDX-License-Identifier: Apache-2.0
// Prepared transfers on every route, with real clients: fired many times, refused, ended.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "absl/strings/str_cat.h"
#include "proto/ferry/v1/timeline_layout.h"
#include "tests/support/fixtures.h"
#include "tests/support/raw_session.h"

namespace ferry::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A client made by hand with one prepared batch of sends, whose words are its to scribble on.
class RogueSends {
 public:
  RogueSends(const std::string& client_dir, uint64_t from, uint64_t to,
             const std::vector<std::string>& keys, int route)
      : session_(client_dir) {
    EXPECT_TRUE(session_.Hello().has_welcome());
    void* const memory = mmap(nullptr, FERRY_TIMELINE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
                              session_.fds()[0].get(), 0);
    if (memory == MAP_FAILED) throw std::runtime_error("cannot map the session's pages");
    doorbell_ = std::move(session_.fds()[1]);
    pages_ = static_cast<ferry_timeline_pages*>(memory);
    v1::CrossHostSendRequest request;
    request.set_prepare(true);
    request.set_device_id(from);
    request.mutable_options()->set_route(static_cast<v1::Route>(route));
    const uint64_t arena = session_.MakeArena(from, 4096);
    for (const std::string& key : keys) {
      v1::BufferRange* range = request.add_buffers()->add_ranges();
      range->set_arena_id(arena);
      range->set_length(8);
      request.add_dst_global_device_ids(to);
      request.add_transfer_keys(key);
    }
    const v1::AttachResponse posted = session_.Send(request);
    EXPECT_TRUE(posted.has_send()) << posted.DebugString();
    number_ = posted.send().prepared_batch();
  }
  RogueSends(const RogueSends&) = delete;
  RogueSends& operator=(const RogueSends&) = delete;
  ~RogueSends() { munmap(pages_, FERRY_TIMELINE_BYTES); }

  void Store(uint64_t value) {
    __atomic_store_n(&pages_->prepared_defined[number_].value, value, __ATOMIC_SEQ_CST);
    eventfd_write(doorbell_.get(), 1);
  }
  void Scribble() { memset(pages_, 0xFF, FERRY_TIMELINE_BYTES); }
  uint64_t over() const {
    return __atomic_load_n(&pages_->prepared_over[number_].value, __ATOMIC_SEQ_CST);
  }

 private:
  RawSession session_;
  UniqueFd doorbell_;
  ferry_timeline_pages* pages_ = nullptr;
  uint32_t number_ = 0;
};

class PreparedTest : public RouteTest {
 protected:
  void Open(uint64_t bytes) {
    source_ = OpenSource(bytes);
    destination_ = OpenDestination(bytes);
  }
  // A batch of one whole arena at each end.
  void Prepare(const std::string& key = "k") {
    receive_ = Must(destination_.session.PrepareReceive(
        destination_.device, {Transfer(source_.device, key, {destination_.arena.All()})},
        options()));
    send_ = Must(source_.session.PrepareSend(
        source_.device, {Transfer(destination_.device, key, {source_.arena.All()})}, options()));
  }
  void FireBoth() {
    ASSERT_THAT(receive_.Fire(), IsOk());
    ASSERT_THAT(send_.Fire(), IsOk());
    ASSERT_THAT(receive_.Wait(kSoon), IsOk());
    ASSERT_THAT(send_.Wait(kSoon), IsOk());
  }
  void TearDown() override {
    send_ = Prepared();
    receive_ = Prepared();
    source_ = End();
    destination_ = End();
    RouteTest::TearDown();
  }
  End source_, destination_;
  Prepared send_, receive_;
};
INSTANTIATE_ALL_ROUTES(PreparedTest);

TEST_P(PreparedTest, FiresAgainAndAgain) {
  StartForRoute();
  Open(65'537);
  Prepare();
  for (uint64_t n = 1; n <= 100; ++n) {
    Fill(source_.arena, 0, 65'537, n);
    uint64_t firing = 0;
    ASSERT_THAT((n % 2 == 0 ? send_ : receive_).Fire(&firing), IsOk());
    ASSERT_THAT((n % 2 == 0 ? receive_ : send_).Fire(), IsOk());
    EXPECT_EQ(firing, n);
    ASSERT_THAT(receive_.Wait(n, kSoon), IsOk());
    ASSERT_THAT(send_.Wait(n, kSoon), IsOk());
    ASSERT_TRUE(Has(destination_.arena, 0, 65'537, n)) << n;
  }
  EXPECT_EQ(send_.over(), 100u);
  EXPECT_EQ(receive_.over(), 100u);
  EXPECT_THAT(send_.Health(), IsOk());
}

TEST_P(PreparedTest, LargeOnesAndEmptyOnesFireToo) {
  StartForRoute();
  for (const uint64_t bytes : {uint64_t{0}, 150 * kMiB}) {
    Open(std::max<uint64_t>(bytes, 4096));
    receive_ = Must(destination_.session.PrepareReceive(
        destination_.device, {Transfer(source_.device, "k", {destination_.arena.Range(0, bytes)})},
        options()));
    send_ = Must(source_.session.PrepareSend(
        source_.device, {Transfer(destination_.device, "k", {source_.arena.Range(0, bytes)})},
        options()));
    for (uint64_t n = 1; n <= 3; ++n) {
      Fill(source_.arena, 0, bytes, n);
      FireBoth();
      ASSERT_TRUE(Has(destination_.arena, 0, bytes, n)) << n;
    }
    ASSERT_THAT(send_.Release(), IsOk());
    ASSERT_THAT(receive_.Release(), Is("OK"));
  }
}

TEST_P(PreparedTest, TheEndsMayCutTheirBatchesAndBytesDifferently) {
  StartForRoute();
  constexpr uint64_t kBlocks = 64, kBytes = 512;
  Open(3 * kBlocks * kBytes);
  std::vector<Transfer> sends;
  std::vector<uint64_t> reversed(kBlocks);
  for (uint64_t i = 0; i < kBlocks; ++i) reversed[i] = kBlocks - 1 - i;
  for (uint64_t i = 0; i < 3; ++i) {
    sends.emplace_back(destination_.device, absl::StrCat("part.", i));
    sends.back().blocks = source_.arena.Blocks(i * kBlocks * kBytes, kBytes, reversed);
  }
  const auto receive = [&](std::vector<uint64_t> parts) {
    std::vector<Transfer> receives;
    for (const uint64_t i : parts) {
      receives.emplace_back(
          source_.device, absl::StrCat("part.", i),
          std::vector<Range>{destination_.arena.Range(i * kBlocks * kBytes, kBlocks * kBytes)});
    }
    return Must(destination_.session.PrepareReceive(destination_.device, receives, options()));
  };
  send_ = Must(source_.session.PrepareSend(source_.device, sends, options()));
  receive_ = receive({2, 0});
  Prepared other = receive({1});
  const auto* from = static_cast<const char*>(source_.arena.data());
  const auto* to = static_cast<const char*>(destination_.arena.data());
  for (uint64_t n = 1; n <= 20; ++n) {
    Fill(source_.arena, 0, 3 * kBlocks * kBytes, n);
    ASSERT_THAT(send_.Fire(), IsOk());
    ASSERT_THAT(receive_.Fire(), IsOk());
    ASSERT_THAT(receive_.Wait(kSoon), IsOk());
    EXPECT_EQ(send_.over(), n - 1);
    ASSERT_THAT(other.Fire(), IsOk());
    ASSERT_THAT(other.Wait(kSoon), IsOk());
    ASSERT_THAT(send_.Wait(kSoon), IsOk());
    for (uint64_t block = 0; block < 3 * kBlocks; ++block) {
      const uint64_t part = block / kBlocks * kBlocks;
      ASSERT_EQ(
          memcmp(to + block * kBytes, from + (part + reversed[block % kBlocks]) * kBytes, kBytes),
          0);
    }
  }
}

TEST_P(PreparedTest, ARefireIsRefusedUntilTheLastOneIsOver) {
  StartForRoute();
  Open(4096);
  Prepare();
  FireBoth();
  ASSERT_THAT(send_.Fire(), IsOk());
  EXPECT_THAT(send_.Fire(),
              Is("FAILED_PRECONDITION/FIELD_INVALID", HasSubstr("firing 2 is not over")));
  EXPECT_THAT(send_.Wait(2, std::chrono::milliseconds(1)), Is("DEADLINE_EXCEEDED"));
  ASSERT_THAT(receive_.Fire(), IsOk());
  ASSERT_THAT(send_.Wait(2, kSoon), IsOk());
  EXPECT_THAT(send_.Fire(), IsOk());
}

TEST_P(PreparedTest, BothEndsMustBePrepared) {
  StartForRoute();
  Open(4096);
  send_ = Must(source_.session.PrepareSend(
      source_.device, {Transfer(destination_.device, "k", {source_.arena.All()})}, options()));
  Batch receive = Receive(destination_, source_, "k", {destination_.arena.All()}, options());
  EXPECT_THAT(receive.Wait(kSoon), Is("FAILED_PRECONDITION/TRANSFER_MISMATCH",
                                      HasSubstr("the send is prepared, the receive is not")));
  EXPECT_THAT(send_.Wait(1, kSoon), Is("FAILED_PRECONDITION/TRANSFER_MISMATCH"));
  EXPECT_THAT(send_.Fire(), Is("FAILED_PRECONDITION/TRANSFER_MISMATCH"));
}

TEST_P(PreparedTest, AReleaseEndsBothEndsAndGivesTheMemoryBack) {
  StartForRoute();
  Open(4096);
  Prepare();
  FireBoth();
  EXPECT_THAT(source_.arena.Release(), Is("FAILED_PRECONDITION/FIELD_INVALID"));
  ASSERT_THAT(send_.Release(), IsOk());
  EXPECT_THAT(source_.arena.Release(), IsOk());
  EXPECT_THAT(send_.Fire(), Is("CANCELLED/CANCELLED"));
  EXPECT_THAT(receive_.Wait(2, kSoon), Is("CANCELLED/CANCELLED", HasSubstr("was released")));
  EXPECT_THAT(receive_.Wait(1, kSoon), IsOk()) << "that one was over";
  EXPECT_EQ(receive_.over(), 1u);
  ASSERT_THAT(receive_.Release(), IsOk());
  EXPECT_THAT(destination_.arena.Release(), IsOk());
}

TEST_P(PreparedTest, ASessionThatEndsTakesItsOtherEndsAlong) {
  StartForRoute();
  for (const bool source : {true, false}) {
    Open(4096);
    Prepare();
    FireBoth();
    Prepared& other = source ? receive_ : send_;
    ASSERT_THAT(other.Fire(), IsOk());
    (source ? source_ : destination_).session.Close();
    EXPECT_THAT(other.Wait(2, kSoon), Is("ABORTED/PEER_CLIENT_GONE"));
    EXPECT_THAT(other.Fire(), Is("ABORTED/PEER_CLIENT_GONE"));
    EXPECT_THAT((source ? send_ : receive_).Fire(), Is("CANCELLED/CANCELLED"));
  }
}

TEST_P(PreparedTest, OneTransferThatEndsTakesItsBatchAlong) {
  StartForRoute();
  Open(4096);
  const auto half = [&](const End& at, const End& other, int i) {
    return Transfer(other.device, absl::StrCat("k", i), {at.arena.Range(i * 2048, 2048)});
  };
  send_ = Must(source_.session.PrepareSend(
      source_.device, {half(source_, destination_, 0), half(source_, destination_, 1)}, options()));
  Prepared receives[2];
  for (int i : {0, 1}) {
    receives[i] = Must(destination_.session.PrepareReceive(
        destination_.device, {half(destination_, source_, i)}, options()));
    ASSERT_THAT(receives[i].Fire(), IsOk());
  }
  ASSERT_THAT(send_.Fire(), IsOk());
  ASSERT_THAT(send_.Wait(kSoon), IsOk());
  ASSERT_THAT(receives[1].Release(), IsOk());
  EXPECT_THAT(send_.Wait(2, kSoon), Is("CANCELLED/CANCELLED"));
  EXPECT_THAT(receives[0].Wait(2, kSoon),
              Is("CANCELLED/CANCELLED", HasSubstr("its prepared batch has ended with")));
}

TEST_P(PreparedTest, ADrainEndsThemWhenNoFiringIsUnderWay) {
  StartForRoute();
  Open(4096);
  Prepare();
  FireBoth();
  const bool two_nodes = destination_node() != 0;
  if (two_nodes) {
    ASSERT_THAT(send_.Fire(), IsOk());
  }
  node(0).Signal(SIGTERM);
  ASSERT_TRUE(Await([&] { return node(0).admin().Status().draining(); }));
  if (two_nodes) {
    Fill(source_.arena, 0, 4096, 7);
    ASSERT_THAT(receive_.Fire(), IsOk());
    EXPECT_THAT(receive_.Wait(2, kSoon), IsOk());
    EXPECT_TRUE(Has(destination_.arena, 0, 4096, 7));
    EXPECT_THAT(receive_.Wait(3, kSoon), Is("UNAVAILABLE/DRAINING", HasSubstr("node-a drains")));
  }
  EXPECT_EQ(node(0).process().Wait(), std::optional<int>(0));
  // Whoever is the daemon's own may see its end before it has asked.
  EXPECT_THAT(NameOf(send_.Wait(two_nodes ? 3 : 2, kSoon)),
              ::testing::AnyOf("UNAVAILABLE/DRAINING", "UNAVAILABLE/DAEMON_LOST"));
}

TEST_P(PreparedTest, PeopleSeeThem) {
  StartForRoute();
  Open(4096);
  Prepare();
  for (int i = 0; i < 3; ++i) FireBoth();
  const admin::v1::ListTransfersResponse all = node(destination_node()).admin().Transfers();
  bool seen = false;
  for (const auto& row : all.transfers()) {
    if (row.side() != "receive") continue;
    seen = true;
    EXPECT_EQ(row.state(), "armed");
    EXPECT_TRUE(row.prepared());
    EXPECT_EQ(row.firings(), 3u);
    EXPECT_EQ(static_cast<int>(row.route()), GetParam().route);
  }
  EXPECT_TRUE(seen);
  EXPECT_THAT(node(0).admin().Dump(), HasSubstr("firings 3"));
  const auto row_of = [this](const std::string& side) {
    const size_t at = side == "send" ? 0 : destination_node();
    const admin::v1::ListTransfersResponse now = node(at).admin().Transfers();
    for (const auto& row : now.transfers()) {
      if (row.side() == side) return row;
    }
    return admin::v1::TransferRow();
  };
  EXPECT_FALSE(row_of("send").fired());
  EXPECT_EQ(row_of("send").waits_for(), "this end to fire it: its defined word has not reached 4");
  ASSERT_THAT(receive_.Fire(), IsOk());
  EXPECT_TRUE(row_of("receive").fired());
  EXPECT_THAT(row_of("receive").waits_for(), StartsWith("the other end to fire it"));
  EXPECT_TRUE(row_of("send").has_fired());
  EXPECT_FALSE(row_of("send").fired());
  ASSERT_THAT(send_.Fire(), IsOk());
  ASSERT_THAT(receive_.Wait(kSoon), IsOk());
  ASSERT_THAT(send_.Wait(kSoon), IsOk());
  const Finished bench =
      RunProgram({FerryctlProgram(), "--runtime-dir", node(0).runtime_dir(), "bench", "rate",
                  "--prepared", "--peer-runtime-dir", node(destination_node()).runtime_dir(),
                  "--count", "5000", "--size", "4KiB", "--iterations", "2", "--route",
                  GetParam().route == FERRY_ROUTE_LOCAL    ? "local"
                  : GetParam().route == FERRY_ROUTE_MAPPED ? "mapped"
                  : GetParam().route == FERRY_ROUTE_TCP    ? "tcp"
                                                           : "ucx"});
  EXPECT_EQ(bench.status, 0) << bench.output;
}

class PreparedLimitsTest : public ClusterTest {};

TEST_F(PreparedLimitsTest, ASessionMayHave256) {
  Start();
  End end = OpenEnd(0, 4096);
  std::vector<Prepared> all;
  const auto prepare = [&](int i) {
    return end.session.PrepareReceive(end.device,
                                      {Transfer(1, absl::StrCat("k", i), {end.arena.Range(0, 8)})});
  };
  for (int i = 0; i < FERRY_PREPARED_BATCHES; ++i) all.push_back(Must(prepare(i)));
  EXPECT_THAT(prepare(1000), Is("RESOURCE_EXHAUSTED/QUEUE_FULL", HasSubstr("256")));
  ASSERT_THAT(all[77].Release(), IsOk());
  Prepared more = Must(prepare(1000));
  EXPECT_THAT(prepare(1001), Is("RESOURCE_EXHAUSTED/QUEUE_FULL"));
}

TEST_F(PreparedLimitsTest, WhatMeansNothingToThemIsRefused) {
  Start();
  End end = OpenEnd(0, 4096);
  Transfer transfer(1, "k", {end.arena.All()});
  transfer.defined_at = Transfer::DefinedAt{0, 1};
  EXPECT_THAT(end.session.PrepareSend(end.device, {transfer}),
              Is("INVALID_ARGUMENT/FIELD_INVALID", HasSubstr("fired by its batch's own words")));
  EXPECT_THAT(end.session.PrepareSend(end.device, {}), Is("INVALID_ARGUMENT/FIELD_INVALID"));
}

// One that stores whatever it likes, whenever: the other client sees its own firings only, and
// when.
TEST_F(PreparedLimitsTest, AClientThatStoresAheadHarmsNobody) {
  Start();
  End honest = OpenEnd(0, 8, 1, "honest");
  RogueSends rogue(node(0).client_dir(), 0, 1, {"k"}, FERRY_ROUTE_ANY);
  Prepared receive =
      Must(honest.session.PrepareReceive(1, {Transfer(0, "k", {honest.arena.All()})}));
  rogue.Store(1'000'000);
  for (uint64_t n = 1; n <= 1000; ++n) {
    ASSERT_THAT(receive.Fire(), IsOk());
    ASSERT_THAT(receive.Wait(kSoon), IsOk());
  }
  EXPECT_EQ(receive.over(), 1000u);
  // And all else it can write to.
  rogue.Scribble();
  ASSERT_THAT(receive.Fire(), IsOk());
  ASSERT_THAT(receive.Wait(kSoon), IsOk());
}

// Its firings stay apart all the same: none begins before the one before is over for the whole
// batch.
TEST_P(PreparedTest, WhoStoresAheadIsFiredOnceAfterAnother) {
  StartForRoute();
  destination_ = OpenDestination(4096);
  RogueSends rogue(node(source_node()).client_dir(), source_device(), destination_device(),
                   {"first", "second"}, GetParam().route);
  const auto prepare = [&](const char* key) {
    return Must(destination_.session.PrepareReceive(
        destination_.device, {Transfer(source_device(), key, {destination_.arena.Range(0, 8)})},
        options()));
  };
  Prepared first = prepare("first"), second = prepare("second");
  rogue.Store(1'000'000);
  for (uint64_t n = 1; n <= 20; ++n) {
    ASSERT_THAT(first.Fire(), IsOk());
    if (n > 1) {
      ASSERT_THAT(second.Fire(), IsOk());
      ASSERT_THAT(second.Wait(kSoon), IsOk());
    }
    ASSERT_THAT(first.Wait(kSoon), IsOk());
    EXPECT_LE(rogue.over(), n - 1);
  }
  ASSERT_THAT(second.Fire(), IsOk());
  ASSERT_THAT(second.Wait(kSoon), IsOk());
  EXPECT_TRUE(Await([&] { return rogue.over() == 20; })) << rogue.over();
}

}  // namespace
}  // namespace ferry::testing
