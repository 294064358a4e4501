// SPDX-License-Identifier: Apache-2.0
// What bad requests get: a specific status and text, nothing posted, nothing leaked.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "base/fd.h"
#include "tests/support/fixtures.h"
#include "tests/support/raw_session.h"

namespace ferry::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

class BadInputTest : public ClusterTest {
 protected:
  void SetUp() override {
    Start();
    end_ = OpenEnd(0, 8192);
    {  // what is opened once and stays is open now
      End destination = OpenEnd(1, 8192);
      PostOptions options;
      options.over_timeline = 63;  // it becomes a device's with its first use
      ExpectTransfer(end_, destination, "before", options);
    }
    AwaitCallConnection(end_.session);
    fds_ = node(0).process().OpenFds();
    mappings_ = node(0).process().MemfdMappings();
  }
  void TearDown() override {
    // Nothing was posted by any of it, and the daemon still serves.
    EXPECT_EQ(node(0).admin().Status().transfers_in_flight(), 0u);
    EXPECT_TRUE(Await([&] {
      return node(0).process().OpenFds() <= fds_ &&
             node(0).process().MemfdMappings() <= mappings_ && node(0).admin().ArenaBytes() == 8192;
    })) << node(0).process().OpenFds()
        << " descriptors, before " << fds_ << "; " << node(0).process().MemfdMappings()
        << " mappings, before " << mappings_ << "; " << node(0).admin().ArenaBytes()
        << " bytes of arenas";
    End destination = OpenEnd(1, 8192);
    ExpectTransfer(end_, destination, "after");
    end_ = End();
    destination = End();
    ClusterTest::TearDown();
  }
  Result<Batch> TrySend(std::vector<Transfer> sends, const PostOptions& options = {}) {
    return end_.session.Send(0, sends, options);
  }
  Transfer Keyed(const std::string& key, std::vector<Range> ranges = {}) {
    return Transfer(2, key, std::move(ranges));
  }
  End end_;
  size_t fds_ = 0, mappings_ = 0;
};

TEST_F(BadInputTest, UnknownForeignAndReleasedArenas) {
  RawSession raw(node(0).client_dir());
  ASSERT_TRUE(raw.Hello().has_welcome());
  const auto send = [&](uint64_t arena) {
    v1::CrossHostSendRequest request;
    v1::BufferRange* range = request.add_buffers()->add_ranges();
    range->set_arena_id(arena);
    range->set_length(16);
    request.add_dst_global_device_ids(2);
    request.add_transfer_keys("k");
    v1::CrossHostSendResponse response;
    return raw.Call([&](auto* c) { return raw.transfers().CrossHostSend(c, request, &response); });
  };
  const absl::Status foreign = send(end_.arena.id());
  const absl::Status unknown = send(987'654);
  EXPECT_THAT(foreign, Is("NOT_FOUND/ARENA_NOT_FOUND"));
  EXPECT_THAT(unknown, Is("NOT_FOUND/ARENA_NOT_FOUND"));
  // The same answer, but for the number that the caller gave.
  std::string a(foreign.message()), b(unknown.message());
  a.replace(a.find(absl::StrCat("arena ", end_.arena.id())),
            absl::StrCat("arena ", end_.arena.id()).size(), "#");
  b.replace(b.find("arena 987654"), std::string("arena 987654").size(), "#");
  EXPECT_EQ(a, b);
  const uint64_t mine = raw.MakeArena(0, 4096);
  ASSERT_NE(mine, 0u);
  ASSERT_FALSE(raw.Release(mine).has_error());
  EXPECT_THAT(send(mine), Is("NOT_FOUND/ID_STALE"));
  EXPECT_EQ(NameOf(raw.Release(mine).error()), "NOT_FOUND/ID_STALE");
  EXPECT_EQ(NameOf(raw.Release(end_.arena.id()).error()), "NOT_FOUND/ARENA_NOT_FOUND");
}

TEST_F(BadInputTest, RangesOutsideTheirArena) {
  const auto outside = Is("INVALID_ARGUMENT/RANGE_INVALID", HasSubstr("8192"));
  EXPECT_THAT(TrySend({Keyed("k", {end_.arena.Range(0, 8193)})}), outside);
  EXPECT_THAT(TrySend({Keyed("k", {end_.arena.Range(8192, 1)})}), outside);
  EXPECT_THAT(TrySend({Keyed("k", {end_.arena.Range(UINT64_MAX, 2)})}), outside);
  EXPECT_THAT(TrySend({Keyed("k", {end_.arena.Range(2, UINT64_MAX - 1)})}), outside);
  EXPECT_THAT(TrySend({Keyed("k", {end_.arena.Range(0, UINT64_MAX), end_.arena.Range(0, 2)})}),
              Is("INVALID_ARGUMENT/RANGE_INVALID"));  // their sum overflows
}

TEST_F(BadInputTest, RangesThatOverlap) {
  const auto overlap = Is("INVALID_ARGUMENT/RANGE_OVERLAP");
  // Within one buffer, and between two of a batch.
  EXPECT_THAT(
      end_.session.Receive(0, {Keyed("k", {end_.arena.Range(0, 100), end_.arena.Range(99, 100)})}),
      overlap);
  EXPECT_THAT(end_.session.Receive(0, {Keyed("a", {end_.arena.Range(0, 4096)}),
                                       Keyed("b", {end_.arena.Range(200, 10)})}),
              overlap);
  // What is only read may overlap.
  Batch reads = Must(
      TrySend({Keyed("a", {end_.arena.Range(0, 4096)}), Keyed("b", {end_.arena.Range(0, 4096)})}));
  EXPECT_THAT(reads.Cancel(), IsOk());
  EXPECT_THAT(reads.Wait(kSoon), Is("CANCELLED/CANCELLED"));
}

TEST_F(BadInputTest, TypeShapeAndBytesThatDoNotFit) {
  const auto sent = [&](int type, std::optional<std::vector<int64_t>> shape, uint64_t bytes) {
    Transfer transfer = Keyed("k", {end_.arena.Range(0, bytes)});
    transfer.data_type = type;
    transfer.shape = std::move(shape);
    return TrySend({transfer});
  };
  const std::string invalid = "INVALID_ARGUMENT/FIELD_INVALID";
  EXPECT_THAT(sent(FERRY_F32, {{10, 10}}, 404),
              Is(invalid, AllOf(HasSubstr("F32[10,10]"), HasSubstr("400"), HasSubstr("404"))));
  EXPECT_THAT(sent(FERRY_F32, {}, 402), Is(invalid, HasSubstr("402")));
  EXPECT_THAT(sent(99, {}, 400), Is(invalid, HasSubstr("99")));
  EXPECT_THAT(sent(FERRY_F32, {{-1, 4}}, 16), Is(invalid, HasSubstr("-1")));
  EXPECT_THAT(sent(FERRY_U8, std::vector<int64_t>(9, 1), 1),
              Is(invalid, HasSubstr("8 dimensions")));
  EXPECT_THAT(sent(FERRY_U8, {{INT64_MAX, INT64_MAX, 4}}, 1), Is(invalid, HasSubstr("overflow")));
}

// Also of what only the daemon can tell, and does not know by the names of ferry.h.
TEST_F(BadInputTest, RefusalsOfTheDaemonNameTheirField) {
  const auto field = [](const Status& status) {
    const auto violations = status.violations();
    return status.reason() == "FIELD_INVALID" && violations.size() == 1
               ? std::string(violations[0].field)
               : status.ToString();
  };
  EXPECT_EQ(field(end_.session.JoinDomain(std::string(33, 'd'), 0, "trainer")), "domain");
  EXPECT_EQ(field(end_.session.JoinDomain("", 0, "")), "name");
  EXPECT_EQ(field(end_.session.JoinDomain("", 0, std::string(65, 'n'))), "name");
  PostOptions options;
  options.priority = 101;
  EXPECT_EQ(field(TrySend({Keyed("k")}, options).status()), "options.priority");
  const UniqueFd small(memfd_create("small", MFD_ALLOW_SEALING | MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(small.get(), 4096), 0);
  ASSERT_EQ(fcntl(small.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  EXPECT_EQ(field(end_.session.ImportArena(0, small.get(), 8192).status()), "memfd");
  Batch uses = Must(TrySend({Keyed("k", {end_.arena.Range(0, 4096)})}));
  EXPECT_EQ(field(end_.arena.Release()), "arena");
  EXPECT_THAT(uses.Cancel(), IsOk());
  EXPECT_THAT(uses.Wait(kSoon), Is("CANCELLED/CANCELLED"));
}

TEST_F(BadInputTest, BlocksThatDoNotFit) {
  const auto sent = [&](auto edit) {
    Transfer transfer = Keyed("k");
    edit(transfer);
    return TrySend({transfer});
  };
  const std::string range = "INVALID_ARGUMENT/RANGE_INVALID";
  const uint64_t bytes = end_.arena.bytes();
  EXPECT_THAT(sent([&](Transfer& t) { t.strided = end_.arena.Strided(0, 1, bytes, 2); }),
              Is(range, AllOf(HasSubstr("sends[0].strided"), HasSubstr("are not inside"))));
  EXPECT_THAT(sent([&](Transfer& t) { t.blocks = end_.arena.Blocks(1, 64, {bytes / 64 - 1}); }),
              Is(range, AllOf(HasSubstr("sends[0].blocks: block 0 (index 127): bytes"),
                              HasSubstr("are not inside"))));
  EXPECT_THAT(sent([&](Transfer& t) { t.strided = end_.arena.Strided(0, 8, UINT64_MAX, 2); }),
              Is(range, HasSubstr("sends[0].strided: block 1 ends beyond 2^64")));
  EXPECT_THAT(sent([&](Transfer& t) { t.strided = end_.arena.Strided(0, 1, 0, 1048577); }),
              Is(range, HasSubstr("at most 1048576 blocks")));
  EXPECT_THAT(sent([&](Transfer& t) {
                t.ranges = {end_.arena.Range(0, 8)};
                t.blocks = end_.arena.Blocks(0, 8, {1});
              }),
              Is("INVALID_ARGUMENT/FIELD_INVALID", HasSubstr("at most one of")));
  EXPECT_THAT(sent([&](Transfer& t) {
                t.strided = StridedRange{nullptr, 0, 1, 1, 1};
              }),
              Is("INVALID_ARGUMENT/FIELD_INVALID", HasSubstr("sends[0].strided has no arena")));

  Transfer twice = Keyed("k");
  twice.blocks = end_.arena.Blocks(0, 64, {1, 2, 1});
  EXPECT_THAT(end_.session.Receive(end_.device, {twice}),
              Is("INVALID_ARGUMENT/RANGE_OVERLAP",
                 HasSubstr("receives[0].blocks: block 2 (index 1) writes bytes of")));
}

TEST_F(BadInputTest, EveryBadEntryIsListed) {
  std::vector<Transfer> sends;
  for (int i = 0; i < 10; ++i)
    sends.push_back(Keyed(absl::StrCat("k", i), {end_.arena.Range(0, 64)}));
  sends[2].ranges[0].length = 9000;
  sends[5].remote_device = 1234;
  sends[7].key = "";
  sends[9].key = std::string(65, 'x');
  Result<Batch> refused = TrySend(sends);
  ASSERT_FALSE(refused.ok());
  std::vector<std::string> fields;
  for (const Status::Violation& violation : refused.status().violations()) {
    fields.emplace_back(violation.field);
    EXPECT_FALSE(violation.text.empty());
  }
  EXPECT_THAT(fields, ::testing::UnorderedElementsAre("sends[7].key", "sends[9].key",
                                                      "sends[2].ranges[0]", "sends[5]"));
  EXPECT_THAT(TextOf(refused), HasSubstr("4 problems in a batch of 10"));
}

TEST_F(BadInputTest, ASecondHalfOfAKey) {
  Batch first = Must(TrySend({Keyed("k", {end_.arena.Range(0, 64)})}));
  EXPECT_THAT(TrySend({Keyed("k", {end_.arena.Range(0, 64)})}),
              Is("ALREADY_EXISTS/KEY_IN_USE", HasSubstr("'k'")));
  EXPECT_THAT(TrySend({Keyed("twice"), Keyed("twice")}),
              Is("ALREADY_EXISTS/KEY_IN_USE", HasSubstr("'twice'")));
  // Another session's half is as good as ours; another domain's is another key.
  End other = OpenEnd(0, 64);
  EXPECT_THAT(other.session.Send(0, {Keyed("k", {other.arena.All()})}),
              Is("ALREADY_EXISTS/KEY_IN_USE"));
  PostOptions elsewhere;
  elsewhere.domain = "another job";
  Batch foreign = Must(other.session.Send(0, {Keyed("k", {other.arena.All()})}, elsewhere));
  EXPECT_THAT(foreign.Cancel(), IsOk());
  EXPECT_THAT(first.Cancel(), IsOk());
  EXPECT_THAT(first.Wait(kSoon), Is("CANCELLED/CANCELLED"));
  EXPECT_THAT(foreign.Wait(kSoon), Is("CANCELLED/CANCELLED"));
}

TEST_F(BadInputTest, UnknownDevices) {
  EXPECT_THAT(TrySend({Transfer(77, "k", {end_.arena.All()})}),
              Is("NOT_FOUND/DEVICE_UNKNOWN", HasSubstr("77")));
  EXPECT_THAT(end_.session.Receive(0, {Transfer(77, "k", {end_.arena.All()})}),
              Is("NOT_FOUND/DEVICE_UNKNOWN", HasSubstr("77")));
  // Neither device is this daemon's.
  const Result<Batch> none = end_.session.Send(2, {Transfer(3, "k", {})});
  EXPECT_THAT(none.status().reason(), "DEVICE_UNKNOWN");
  EXPECT_THAT(end_.session.CreateArena(77, 4096), Is("NOT_FOUND/DEVICE_UNKNOWN", HasSubstr("77")));
  // A known device, but not the arena's.
  EXPECT_THAT(end_.session.Send(1, {Transfer(2, "k", {end_.arena.All()})}),
              Is("INVALID_ARGUMENT/FIELD_INVALID", HasSubstr("is on device 0")));
  // Whatever else does not fit an unknown device: its counter is device 0's by now, as the arena
  // is.
  Batch bound = Must(TrySend({Keyed("bound", {end_.arena.All()})}));
  const Result<Batch> other = end_.session.Send(77, {Keyed("k", {end_.arena.All()})});
  EXPECT_THAT(other,
              Is("NOT_FOUND/DEVICE_UNKNOWN", HasSubstr("no node has device 77; node-a has 0, 1")));
  ASSERT_THAT(other.status().violations(), ::testing::SizeIs(1));
  EXPECT_EQ(other.status().violations()[0].field, "device");
  EXPECT_THAT(end_.session.Receive(2, {Transfer(0, "k", {end_.arena.All()})}),
              Is("NOT_FOUND/DEVICE_UNKNOWN", HasSubstr("device 2 belongs to node-b")));
  EXPECT_THAT(bound.Cancel(), IsOk());
  EXPECT_THAT(bound.Wait(kSoon), Is("CANCELLED/CANCELLED"));
}

TEST_F(BadInputTest, BatchesOverTheLimit) {
  std::vector<Transfer> many;
  for (int i = 0; i < 4097; ++i) many.push_back(Keyed(absl::StrCat(i)));
  EXPECT_THAT(TrySend(many), Is("INVALID_ARGUMENT/BATCH_TOO_LARGE", HasSubstr("4096")));
  many.pop_back();
  Batch full = Must(TrySend(many));
  EXPECT_EQ(full.size(), 4096u);
  EXPECT_THAT(full.Cancel(), IsOk());
  EXPECT_THAT(full.Wait(kSoon), Is("CANCELLED/CANCELLED"));
  // Few transfers, but more than 1 MiB of message; and so much more that no call could carry it.
  const std::vector<Range> ranges(60'000, end_.arena.Range(8000, 100));
  EXPECT_THAT(TrySend({Keyed("a", ranges), Keyed("b", ranges), Keyed("c", ranges)}),
              Is("INVALID_ARGUMENT/BATCH_TOO_LARGE", HasSubstr("1048576")));
  std::vector<Transfer> fat;
  for (int i = 0; i < 16; ++i) fat.push_back(Keyed(absl::StrCat(i), ranges));
  EXPECT_THAT(TrySend(fat), Is("INVALID_ARGUMENT/BATCH_TOO_LARGE", HasSubstr("1048576")));
  // The next, good batch goes through all the same.
  Batch good = Must(TrySend({Keyed("good")}));
  EXPECT_THAT(good.Cancel(), IsOk());
  EXPECT_THAT(good.Wait(kSoon), Is("CANCELLED/CANCELLED"));
}

TEST_F(BadInputTest, OtherFieldsOutOfTheirBounds) {
  const std::string invalid = "INVALID_ARGUMENT/FIELD_INVALID";
  PostOptions options;
  options.domain = std::string(33, 'd');
  EXPECT_THAT(TrySend({Keyed("k")}, options), Is(invalid, HasSubstr("; options.domain: ")));
  options = {};
  options.over_timeline = 64;
  EXPECT_THAT(TrySend({Keyed("k")}, options), Is(invalid));
  options = {};
  options.priority = 101;
  EXPECT_THAT(TrySend({Keyed("k")}, options), Is(invalid, HasSubstr("101")));
  options = {};
  options.request_id = std::string(65, 'r');
  EXPECT_THAT(TrySend({Keyed("k")}, options), Is(invalid, HasSubstr("; options.request_id: ")));
  options = {};
  options.deadline = std::chrono::hours(24 * 400);
  EXPECT_THAT(TrySend({Keyed("k")}, options), Is(invalid, HasSubstr("; options.deadline_ns: ")));
  Transfer transfer = Keyed("k");
  transfer.defined_at = Transfer::DefinedAt{64, 1};
  EXPECT_THAT(TrySend({transfer}), Is(invalid));
  options = {};
  options.route = 17;
  EXPECT_THAT(TrySend({Keyed("k")}, options), Is(invalid, HasSubstr("17")));
}

TEST_F(BadInputTest, ArenasInUseAreNotReleased) {
  Batch send = Must(TrySend({Keyed("k", {end_.arena.Range(0, 64)})}));
  EXPECT_THAT(end_.arena.Release(),
              Is("FAILED_PRECONDITION/FIELD_INVALID", HasSubstr("1 transfers use it")));
  EXPECT_THAT(send.Cancel(), IsOk());
  EXPECT_THAT(send.Wait(kSoon), Is("CANCELLED/CANCELLED"));
  Arena another = Must(end_.session.CreateArena(0, 64));
  EXPECT_THAT(another.Release(), IsOk());
  EXPECT_THAT(another.Release(), Is("NOT_FOUND/ID_STALE"));
  static_cast<char*>(another.data())[63] = 1;  // still mapped
}

// The client never hears of it again, and TearDown finds the daemon without it.
TEST_F(BadInputTest, ArenasThatAreFreedInUseGoWithTheirLastTransfer) {
  std::vector<Batch> sends;
  {
    const Arena freed = Must(end_.session.CreateArena(0, 4096));
    for (const char* key : {"a", "b"}) sends.push_back(Must(TrySend({Keyed(key, {freed.All()})})));
  }
  EXPECT_EQ(node(0).admin().ArenaBytes(), 8192u + 4096u);
  EXPECT_THAT(sends[0].Cancel(), IsOk());
  EXPECT_THAT(sends[0].Wait(kSoon), Is("CANCELLED/CANCELLED"));
  EXPECT_EQ(node(0).admin().ArenaBytes(), 8192u + 4096u);
  EXPECT_THAT(sends[1].Cancel(), IsOk());
  EXPECT_THAT(sends[1].Wait(kSoon), Is("CANCELLED/CANCELLED"));
  EXPECT_TRUE(Await([&] { return node(0).admin().ArenaBytes() == 8192; }));
}

TEST_F(BadInputTest, BlocksOfUnknownArenas) {
  RawSession raw(node(0).client_dir());
  ASSERT_TRUE(raw.Hello().has_welcome());
  for (const bool strided : {true, false}) {
    v1::CrossHostSendRequest request;
    if (strided) {
      request.add_buffers()->mutable_strided()->set_count(1);
    } else {
      request.add_buffers()->mutable_blocks()->add_indices(0);
    }
    request.add_dst_global_device_ids(2);
    request.add_transfer_keys("k");
    v1::CrossHostSendResponse response;
    const absl::Status status =
        raw.Call([&](auto* c) { return raw.transfers().CrossHostSend(c, request, &response); });
    EXPECT_THAT(status, Is("NOT_FOUND/ARENA_NOT_FOUND",
                           HasSubstr(strided ? "buffers[0].strided" : "buffers[0].blocks")));
  }
}

class QuotaTest : public ClusterTest {};

TEST_F(QuotaTest, BytesArenasAndTransfers) {
  ClusterOptions options;
  options.nodes = 1;
  options.limits = "session_bytes: 1MiB, session_arenas: 3, transfers_in_flight: 5";
  Start(options);
  Session session = nodes().Open(0, "greedy");
  EXPECT_EQ(session.limits().bytes, kMiB);
  EXPECT_EQ(session.limits().arenas, 3u);
  EXPECT_EQ(session.limits().transfers_in_flight, 5u);
  AwaitCallConnection(session);
  const size_t fds = node(0).process().OpenFds();
  const size_t mappings = node(0).process().MemfdMappings();
  Arena most = Must(session.CreateArena(0, 700 * 1024));
  // What was asked, what is left, and who holds most.
  EXPECT_THAT(session.CreateArena(0, 400 * 1024),
              Is("RESOURCE_EXHAUSTED/QUOTA_BYTES",
                 AllOf(HasSubstr(absl::StrCat(400 * 1024)),
                       HasSubstr(absl::StrCat(kMiB - 700 * 1024, " are left")),
                       HasSubstr("largest holders"), HasSubstr("(greedy) 716800 bytes"))));
  // What the quota refuses is not populated first: this would be more than the machine has.
  EXPECT_THAT(session.CreateArena(0, uint64_t{10'000} << 30),
              Is("RESOURCE_EXHAUSTED/QUOTA_BYTES", HasSubstr("are left")));
  EXPECT_THAT(session.CreateArena(0, uint64_t{1} << 62),  // not even as addresses
              Is("RESOURCE_EXHAUSTED/DEVICE_MEMORY",
                 HasSubstr("holds 716800 of 1048576 bytes, 331776 are left")));
  Arena second = Must(session.CreateArena(1, 324 * 1024));  // to the last byte
  EXPECT_THAT(second.Release(), IsOk());
  Arena a = Must(session.CreateArena(0, 1)), b = Must(session.CreateArena(0, 1));
  EXPECT_THAT(session.CreateArena(0, 1),
              Is("RESOURCE_EXHAUSTED/QUOTA_ARENAS",
                 AllOf(HasSubstr("3 of 3"), HasSubstr("largest holders"))));
  std::vector<Batch> posted;
  for (int i = 0; i < 4; ++i)
    posted.push_back(Must(session.Send(0, {Transfer(1, absl::StrCat(i), {})})));
  auto full = session.Send(0, {Transfer(1, "x", {}), Transfer(1, "y", {})});
  EXPECT_THAT(full, Is("RESOURCE_EXHAUSTED/QUEUE_FULL", HasSubstr("4 of 5")));
  EXPECT_GT(full.status().retry_after().count(), 0);
  auto never = session.Send(0, std::vector<Transfer>(6, Transfer(1, "x", {})));
  EXPECT_THAT(never, Is("RESOURCE_EXHAUSTED/QUEUE_FULL", HasSubstr("post fewer at once")));
  EXPECT_EQ(never.status().retry_after().count(), 0);
  posted.push_back(Must(session.Send(0, {Transfer(1, "x", {})})));
  // Another session has its own.
  Session other = nodes().Open(0, "other");
  Batch theirs = Must(other.Send(0, {Transfer(1, "z", {})}));
  Arena large = Must(other.CreateArena(0, kMiB));
  for (Batch& batch : posted) EXPECT_THAT(batch.Cancel(), IsOk());
  for (Batch& batch : posted) EXPECT_THAT(batch.Wait(kSoon), Is("CANCELLED/CANCELLED"));
  EXPECT_THAT(session.Send(0, {Transfer(1, "x", {})}), IsOk());
  for (Arena* arena : {&most, &a, &b}) EXPECT_THAT(arena->Release(), IsOk());
  other.Close();
  EXPECT_TRUE(Await([&] {
    return node(0).process().OpenFds() <= fds && node(0).process().MemfdMappings() <= mappings;
  })) << node(0).process().OpenFds()
      << " descriptors, before " << fds;
}

TEST_F(QuotaTest, SessionsOfOneUser) {
  ClusterOptions options;
  options.nodes = 1;
  options.limits = "sessions_per_uid: 2";
  Start(options);
  Session one = nodes().Open(0), two = nodes().Open(0);
  SessionOptions third;
  third.client_dir = node(0).client_dir();
  EXPECT_THAT(Session::Open(third),
              Is("RESOURCE_EXHAUSTED/TOO_MANY_SESSIONS", HasSubstr("2 of 2")));
  two.Close();
  EXPECT_TRUE(Await([&] { return Session::Open(third).ok(); }));
}

}  // namespace
}  // namespace ferry::testing
