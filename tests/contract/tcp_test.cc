// SPDX-License-Identifier: Apache-2.0
// What only TcpTransport has: firings, sets of connections that end and come back, and peers that
// lie. What it has in common with the others is in manners_test.cc and staged_test.cc.
#include <fake_cuda.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <random>

#include "base/mutex.h"
#include "base/status.h"
#include "tests/contract/prepared_client.h"
#include "tests/contract/tcp_rig.h"

namespace ferry {
namespace {

constexpr uint64_t kTcpArena = uint64_t{64} << 20;

absl::Status ByTheTest() {
  return Error(absl::StatusCode::kCancelled, Reason::kCancelled, "the test wants it to end");
}

// --- Firings.

class TcpPrepared : public ::testing::TestWithParam<const char*> {
 protected:
  TcpPrepared() { FillRandom(rig_->arena(0), kTcpArena, 1); }
  // Arms transfers of these sizes, end to end, from end 0 to end 1.
  void Arm(int end, PreparedBatch& batch, const std::vector<uint64_t>& sizes, uint64_t first = 1,
           uint64_t offset = 0) {
    std::vector<TransportOp> ops;
    for (size_t i = 0; i < sizes.size(); ++i, offset += sizes[i - 1]) {
      TransportOp op;
      op.transfer = TransferId(first + i);
      op.attempt = 1;
      op.role = end == 0 ? LaunchRole::kSend : LaunchRole::kReceive;
      op.peer = PeerId(static_cast<uint32_t>(1 - end));
      op.remote_device = GlobalDeviceId(static_cast<uint64_t>(1 - end));
      op.tag = first + i;
      op.prepared = PreparedEnds{&batch, nullptr, nullptr, 0};
      if (sizes[i] > 0) op.segments.push_back({rig_->arena(end) + offset, sizes[i]});
      ops.push_back(std::move(op));
    }
    rig_->lane(end).RunAndWait([&] { rig_->transport(end).Launch(std::move(ops)); });
  }
  void Change(uint64_t n, uint64_t bytes) {
    for (uint64_t at = 0; at + 8 <= bytes; at += 4096) std::memcpy(rig_->arena(0) + at, &n, 8);
  }
  bool Arrived(uint64_t bytes) { return std::memcmp(rig_->arena(0), rig_->arena(1), bytes) == 0; }

  PreparedClient sender_, receiver_;  // first: they outlive the lanes
  std::unique_ptr<Rig> rig_ = Rig::Make(GetParam(), kTcpArena);
};
INSTANTIATE_TEST_SUITE_P(Over, TcpPrepared, ::testing::Values("tcp", "tcp_gpu", "tcp_gpu_to_host"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(TcpPrepared, FiresAgainAndAgainWhoeverIsFirst) {
  Arm(1, receiver_.Prepare(1), {8});
  Arm(0, sender_.Prepare(1), {8});
  for (uint64_t n = 1; n <= 500; ++n) {
    Change(n, 8);
    (n % 2 == 0 ? sender_ : receiver_).Fire(0, n);
    (n % 2 == 0 ? receiver_ : sender_).Fire(0, n);
    receiver_.AwaitOver(0, n);
    ASSERT_TRUE(Arrived(8)) << n;
    sender_.AwaitOver(0, n);
  }
  EXPECT_EQ(rig_->answers(0).count() + rig_->answers(1).count(), 0u);
}

TEST_P(TcpPrepared, ManyOfAllSizesAreOneFiring) {
  std::vector<uint64_t> sizes;
  std::mt19937_64 random(3);
  uint64_t bytes = 0;
  for (int i = 0; i < 600; ++i) {
    sizes.push_back(i % 50 == 0 ? 0 : random() % (i % 100 == 1 ? 5'000'000 : 9'000));
    bytes += sizes.back();
  }
  ASSERT_LE(bytes, kTcpArena);
  Arm(1, receiver_.Prepare(600), sizes);  // before the source is told to go
  Arm(0, sender_.Prepare(600), sizes);
  for (uint64_t n = 1; n <= 5; ++n) {
    Change(n, bytes);
    sender_.Fire(0, n);
    receiver_.Fire(0, n);
    receiver_.AwaitOver(0, n);
    ASSERT_TRUE(Arrived(bytes)) << n;
    sender_.AwaitOver(0, n);
  }
}

// More than the sockets take at once: of a message the first transfers are over while the last ones
// are not written yet.
TEST_P(TcpPrepared, NineHundredOf64KiBAgainAndAgain) {
  const std::vector<uint64_t> sizes(900, 65536);
  Arm(1, receiver_.Prepare(900), sizes);
  Arm(0, sender_.Prepare(900), sizes);
  for (uint64_t n = 1; n <= 20; ++n) {
    Change(n, 900 * 65536);
    sender_.Fire(0, n);
    receiver_.Fire(0, n);
    receiver_.AwaitOver(0, n);
    ASSERT_TRUE(Arrived(900 * 65536)) << n;
    sender_.AwaitOver(0, n);
  }
  EXPECT_EQ(rig_->answers(0).count() + rig_->answers(1).count(), 0u);
}

TEST_P(TcpPrepared, BatchesMayBeCutDifferently) {
  PreparedBatch& send = sender_.Prepare(2);
  Arm(1, receiver_.Prepare(1), {4096});
  Arm(1, receiver_.Prepare(1), {4096}, 2, 4096);
  Arm(0, send, {4096, 4096});
  for (uint64_t n = 1; n <= 300; ++n) {
    Change(n, 8192);
    sender_.Fire(0, n);
    receiver_.Fire(n % 2, n);
    receiver_.AwaitOver(n % 2, n);
    EXPECT_EQ(sender_.Over(0), n - 1) << "half of it is not over";
    receiver_.Fire(1 - n % 2, n);
    receiver_.AwaitOver(1 - n % 2, n);
    sender_.AwaitOver(0, n);
    ASSERT_TRUE(Arrived(8192)) << n;
  }
}

TEST_P(TcpPrepared, AnAbortAfterThePeerIsLostChangesNothing) {
  const bool copies = std::string(GetParam()) != "tcp";
  const auto started = [] {
    fake_cuda_counts counts;
    fake_cuda_get_counts(&counts);
    return counts.copies;
  };
  Arm(1, receiver_.Prepare(1), {4 << 20});
  Arm(0, sender_.Prepare(1), {4 << 20});
  const uint64_t before = started();
  fake_cuda_hold_copies(1);
  sender_.Fire(0, 1);
  receiver_.Fire(0, 1);
  while (copies && started() == before) rig_->lane(0).RunAndWait([] {});
  static_cast<TcpRig&>(*rig_).Disconnect(0);
  rig_->Abort(0, 1, ByTheTest());
  EXPECT_TRUE(!copies || rig_->answers(0).count() == 0) << "its bytes are still copied from";
  fake_cuda_hold_copies(0);
  EXPECT_EQ(ReasonOf(rig_->answers(0).Await(TransferId(1))), Reason::kPeerUnreachable);
  EXPECT_EQ(ReasonOf(rig_->answers(1).Await(TransferId(1))), Reason::kCommAborted);
  for (const int end : {0, 1}) rig_->ExpectAnswered(end, 1);
}

TEST_P(TcpPrepared, AnAbortIsAnsweredOnceAndNothingFiresAfterwards) {
  constexpr uint64_t kBytes = uint64_t{20} << 20;
  Arm(1, receiver_.Prepare(1), {kBytes});
  Arm(0, sender_.Prepare(1), {kBytes});
  sender_.Fire(0, 1);
  receiver_.Fire(0, 1);
  rig_->Abort(1, 1, ByTheTest());
  rig_->Abort(0, 1, ByTheTest());
  for (int end : {0, 1}) {
    EXPECT_EQ(ReasonOf(rig_->answers(end).Await(TransferId(1))), Reason::kCancelled);
  }
  const uint64_t over = receiver_.Over(0);
  EXPECT_LE(sender_.Over(0), over);
  receiver_.Fire(0, over + 1);
  sender_.Fire(0, over + 1);
  rig_->Launch(0, {{9, {{0, 4096}}, {{0, 4096}}}});  // the connections are as they were
  EXPECT_TRUE(rig_->Await(0, 9).ok());
  EXPECT_EQ(receiver_.Over(0), over);
  rig_->ExpectAnswered(0, 2);
  rig_->ExpectAnswered(1, 2);
}

TEST_P(TcpPrepared, ASetThatEndsEndsWhatIsArmedOnIt) {
  Arm(1, receiver_.Prepare(1), {8});
  Arm(0, sender_.Prepare(1), {8});
  receiver_.Fire(0, 1);
  sender_.Fire(0, 1);
  receiver_.AwaitOver(0, 1);
  sender_.AwaitOver(0, 1);
  static_cast<TcpRig&>(*rig_).Disconnect(1);
  EXPECT_EQ(ReasonOf(rig_->answers(1).Await(TransferId(1))), Reason::kPeerUnreachable);
  EXPECT_EQ(ReasonOf(rig_->answers(0).Await(TransferId(1))), Reason::kCommAborted);
}

// --- Links that are lost and come back.

TEST(TcpRelink, AgainAndAgain) {
  constexpr uint64_t kHalf = kTcpArena / 2;
  TcpRig rig(kTcpArena);
  std::minstd_rand random(7);
  uint64_t id = 0;
  size_t launched[2] = {0, 0};
  for (int round = 0; round < 40; ++round) {
    for (const int from : {0, 1}) {
      const uint64_t size = std::vector<uint64_t>{8, 65536, kHalf}[random() % 3];
      const std::vector<Move> moves = {{++id, {{0, size}}, {{kHalf, size}}}};
      for (const int end : {0, 1}) {
        if (random() % 4 == 0) continue;
        rig.LaunchHalf(end, from, moves);
        ++launched[end];
      }
    }
    const int first = static_cast<int>(random() % 2);
    rig.Disconnect(first);
    rig.Disconnect(1 - first);
    for (const int end : {0, 1}) rig.answers(end).AwaitCount(launched[end]);
    rig.Connect();
    for (const int from : {first, 1 - first}) {
      FillRandom(rig.arena(from), 65536, id);
      rig.Launch(from, {{++id, {{0, 65536}}, {{kHalf, 65536}}}});
      ++launched[0], ++launched[1];
      const absl::Status status = rig.Await(from, id);
      ASSERT_TRUE(status.ok()) << "round " << round << ": " << status;
      EXPECT_EQ(std::memcmp(rig.arena(from), rig.arena(1 - from) + kHalf, 65536), 0);
    }
  }
  for (const int end : {0, 1}) rig.ExpectAnswered(end, launched[end]);
}

// The door proved it while the link was up, and the lane hears of it late.
TEST(TcpRelink, AConnectionOfTheLinkBeforeIsClosed) {
  TcpRig rig(kTcpArena);
  const TcpPreamble late{TcpLinkId(rig.key()), GlobalDeviceId(0), GlobalDeviceId(1), 1, 0, 3};
  for (const int end : {0, 1}) rig.Disconnect(end);
  rig.Connect();
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd theirs(ends[0]);
  rig.lane(1).RunAndWait([&] { rig.tcp(1).Accept(PeerId(0), late, UniqueFd(ends[1])); });
  char byte;
  EXPECT_EQ(recv(theirs.get(), &byte, 1, MSG_DONTWAIT), 0) << "it is closed";
  const uint64_t size = kTcpArena / 2;
  rig.Launch(0, {{1, {{0, size}}, {{size, size}}}});
  const absl::Status status = rig.Await(0, 1);
  EXPECT_TRUE(status.ok()) << status;
}

// --- A peer that knows the key and lies. It is dialled.

class TcpLiar : public ::testing::Test {
 protected:
  TcpLiar() {
    transport_ =
        TcpTransport::Create(lane_, GlobalDeviceId(0), Options(), {answers_.Sink(), nullptr});
    TcpPeer peer{PeerId(1),          1, "liar", std::string(kTcpTestKey), door_.address(),
                 {GlobalDeviceId(1)}};
    lane_.RunAndWait([&] { transport_->AddPeer(peer); });
    arena_.assign(kTcpArena, std::byte{0x5A});
  }
  static TcpTransport::Options Options() {
    TcpTransport::Options options;
    options.bulk_connections = 1;
    return options;
  }
  void Launch(LaunchRole role, uint64_t tag, uint64_t bytes, PreparedBatch* batch = nullptr) {
    TransportOp op;
    op.transfer = TransferId(tag);
    op.attempt = 1;
    op.role = role;
    op.peer = PeerId(1);
    op.remote_device = GlobalDeviceId(1);
    op.tag = tag;
    if (batch != nullptr) op.prepared = PreparedEnds{batch, nullptr, nullptr, 0};
    op.segments.push_back({arena_.data() + 4096, bytes});
    std::vector<TransportOp> ops;
    ops.push_back(std::move(op));
    lane_.RunAndWait([&] { transport_->Launch(std::move(ops)); });
  }
  // Our end of the next connection that is opened.
  UniqueFd Next() {
    MutexLock lock(mutex_);
    while (sockets_.empty()) came_.wait(mutex_);
    UniqueFd socket = std::move(sockets_.front());
    sockets_.pop_front();
    return socket;
  }
  static void Say(int socket, TcpKind kind, const std::vector<TcpEntry>& entries,
                  uint64_t bytes = 0) {
    const TcpHeader header{static_cast<uint32_t>(kind), static_cast<uint32_t>(entries.size())};
    std::string said(reinterpret_cast<const char*>(&header), sizeof(header));
    said.append(reinterpret_cast<const char*>(entries.data()), entries.size() * sizeof(TcpEntry));
    said.append(bytes, 'x');
    for (size_t at = 0; at < said.size();) {
      const ssize_t sent = send(socket, said.data() + at, said.size() - at, MSG_NOSIGNAL);
      if (sent <= 0) return;  // it has hung up
      at += static_cast<size_t>(sent);
    }
  }
  // Whether the next message is one that wants a firing of `tag`.
  static bool HearsWanted(int socket, uint64_t tag) {
    TcpHeader header;
    if (recv(socket, &header, sizeof(header), MSG_WAITALL) != ssize_t{sizeof(header)}) return true;
    std::vector<TcpEntry> entries(header.entries);
    recv(socket, entries.data(), entries.size() * sizeof(TcpEntry), MSG_WAITALL);
    return header.kind == static_cast<uint32_t>(TcpKind::kWanted) &&
           std::any_of(entries.begin(), entries.end(),
                       [&](const TcpEntry& entry) { return entry.tag == tag; });
  }
  void ExpectRefused(uint64_t tag) {
    EXPECT_EQ(ReasonOf(answers_.Await(TransferId(tag))), Reason::kProtocolError);
    ExpectUntouched(100);
  }
  // Nothing but the first bytes of the op's memory.
  void ExpectUntouched(uint64_t bytes) {
    for (size_t i = 0; i < 4096; ++i) ASSERT_EQ(arena_[i], std::byte{0x5A});
    for (size_t i = 4096 + bytes; i < 4 * 4096; ++i) ASSERT_EQ(arena_[i], std::byte{0x5A});
  }

  Answers answers_;
  std::vector<std::byte> arena_;
  Mutex mutex_;
  std::condition_variable_any came_;
  std::deque<UniqueFd> sockets_ ABSL_GUARDED_BY(mutex_);
  TcpDoor door_{std::string(kTcpTestKey), [this](const TcpPreamble&, UniqueFd socket) {
                  MutexLock lock(mutex_);
                  sockets_.push_back(std::move(socket));
                  came_.notify_all();
                }};
  PreparedClient client_;
  Lane lane_{"liar-lane", absl::ZeroDuration()};
  std::unique_ptr<TcpTransport> transport_;
};

TEST_F(TcpLiar, BytesGoNowhereElse) {
  Launch(LaunchRole::kReceive, 1, 100);
  const UniqueFd first = Next(), second = Next();
  const auto say = [&](uint64_t tag, uint64_t at, uint64_t bytes) {
    Say(first.get(), TcpKind::kBytes, {{tag, at, bytes}}, bytes);
  };
  say(77, 0, 5000);  // of nothing that anybody waits for
  say(1, 90, 11);    // beyond its end
  ExpectRefused(1);
  Launch(LaunchRole::kReceive, 2, 100);
  say(2, ~uint64_t{0}, 8);
  ExpectRefused(2);
  Launch(LaunchRole::kReceive, 3, 100);
  say(3, 0, 60);
  say(3, 20, 60);  // twice
  ExpectRefused(3);
  Launch(LaunchRole::kReceive, 4, 100);
  Say(first.get(), TcpKind::kBytes, {{4, 0, 50}, {4, 50, 50}}, 100);
  EXPECT_TRUE(answers_.Await(TransferId(4)).ok()) << "the connection serves on";
}

TEST_F(TcpLiar, AFiringThatNobodyWantsIsRefused) {
  Launch(LaunchRole::kReceive, 1, 100, &client_.Prepare(1));
  const UniqueFd first = Next(), second = Next();
  Say(first.get(), TcpKind::kArmed, {{1, 0, 0}, {9, 0, 0}});
  Say(first.get(), TcpKind::kBytes, {{1, 0, 100}}, 100);
  ExpectRefused(1);
  ExpectUntouched(0);
  PreparedBatch& send = client_.Prepare(1);
  Launch(LaunchRole::kSend, 2, 100, &send);
  Say(first.get(), TcpKind::kWanted, {{2, 2, 0}});
  ExpectRefused(2);
  Launch(LaunchRole::kSend, 3, 100, &client_.Prepare(1));
  Say(first.get(), TcpKind::kArrived, {{3, 1, 0}});
  ExpectRefused(3);
}

// A batch counts firings of all its transfers, of which others may be with honest peers: none
// counts twice, whatever the entries of a message say.
TEST_F(TcpLiar, AFiringIsOverOnceAndNotInPlaceOfAnother) {
  struct Case {
    uint64_t bytes;  // of the transfer
    std::vector<TcpEntry> entries;
  };
  const Case cases[] = {
      {100, {{0, 0, 100}, {0, 0, 0}}},
      {100, {{0, 0, 0}, {0, 0, 100}}},
      {100, {{0, 0, 60}, {0, 100, 0}, {0, 60, 40}}},
      {0, {{0, 0, 0}, {0, 0, 0}}},
  };
  uint64_t tag = 0;
  uint32_t batches = 0;
  UniqueFd first, second;
  for (Case lie : cases) {
    PreparedBatch& batch = client_.Prepare(2);
    const uint64_t liars = ++tag, other = ++tag;
    Launch(LaunchRole::kReceive, liars, lie.bytes, &batch);
    Launch(LaunchRole::kReceive, other, 100, &batch);
    if (!first.valid()) first = Next(), second = Next();
    Say(first.get(), TcpKind::kArmed, {{liars, 0, 0}, {other, 0, 0}});
    client_.Fire(batches++, 1);
    while (!HearsWanted(first.get(), liars)) {
    }
    uint64_t bytes = 0;
    for (TcpEntry& entry : lie.entries) {
      entry.tag = liars;
      bytes += entry.bytes;
    }
    Say(first.get(), TcpKind::kBytes, lie.entries, bytes);
    EXPECT_EQ(ReasonOf(answers_.Await(TransferId(liars))), Reason::kProtocolError);
    EXPECT_FALSE(batch.IsOver(1)) << "the other's bytes have not come";
    lane_.RunAndWait([&] { transport_->Abort(TransferId(other), 1, ByTheTest()); });
    EXPECT_EQ(ReasonOf(answers_.Await(TransferId(other))), Reason::kCancelled);
  }
}

TEST_F(TcpLiar, NonsenseEndsTheSetAndTheNextOneServes) {
  uint64_t tag = 0;
  const std::vector<std::string> nonsense = {
      std::string(8, '\0'),                                          // no kind
      std::string("\1\0\0\0\0\0\0\0", 8),                            // no entries
      std::string("\1\0\0\0\1\2\0\0", 8),                            // 513 of them
      std::string("\1\0\0\0\1\0\0\0", 8) + std::string(24, '\xff'),  // of 2^64 - 1 bytes
      "",                                                            // only the end
  };
  for (const std::string& bytes : nonsense) {
    Launch(LaunchRole::kReceive, ++tag, 100);
    UniqueFd first = Next(), second = Next();
    send(first.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (bytes.empty()) first.Reset();
    EXPECT_EQ(ReasonOf(answers_.Await(TransferId(tag))), Reason::kCommAborted);
    char end;
    EXPECT_LE(recv(second.get(), &end, 1, 0), 0) << "the set ends as one";
  }
  ExpectUntouched(0);
}

// Who does not read cannot keep an op: its memory is let go at once.
TEST_F(TcpLiar, ASendToWhoDoesNotReadIsAbortedAtOnce) {
  Launch(LaunchRole::kSend, 1, kTcpArena - 4096);
  Launch(LaunchRole::kSend, 2, 1000);
  const UniqueFd first = Next(), second = Next();
  EXPECT_TRUE(answers_.Await(TransferId(2)).ok());
  lane_.RunAndWait([&] { transport_->Abort(TransferId(1), 1, ByTheTest()); });
  EXPECT_EQ(ReasonOf(answers_.Await(TransferId(1))), Reason::kCancelled);
  // What was promised of the message comes all the same, as it was.
  std::memset(arena_.data(), 0xEE, arena_.size());
  Launch(LaunchRole::kReceive, 3, 100);
  Say(first.get(), TcpKind::kBytes, {{3, 0, 100}}, 100);
  EXPECT_TRUE(answers_.Await(TransferId(3)).ok());
  // Messages before it are in the kernel whole, so that there is one more or there is none.
  struct {
    TcpHeader header;
    TcpEntry entry;
  } head;
  for (char more; recv(second.get(), &more, 1, MSG_PEEK | MSG_DONTWAIT) == 1;) {
    ASSERT_EQ(recv(second.get(), &head, sizeof(head), MSG_WAITALL), ssize_t{sizeof(head)});
    std::string bytes(head.entry.bytes, '\0');
    ASSERT_EQ(recv(second.get(), bytes.data(), bytes.size(), MSG_WAITALL),
              static_cast<ssize_t>(bytes.size()));
    EXPECT_EQ(bytes.find('\xee'), std::string::npos) << "bytes of later";
  }
}

// A daemon takes so many strangers at once: who finds no place comes again.
TEST_F(TcpLiar, WhatIsNotTakenIsDialledAgain) {
  door_.Refuse(5);
  Launch(LaunchRole::kReceive, 1, 100);
  const UniqueFd first = Next(), second = Next();
  Say(first.get(), TcpKind::kBytes, {{1, 0, 100}}, 100);
  const absl::Status status = answers_.Await(TransferId(1));
  EXPECT_TRUE(status.ok()) << status;
}

// A stranger at the peer's address is told nothing of what is sent.
TEST_F(TcpLiar, WhoDoesNotKnowTheKeyGetsNothing) {
  UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in loopback = {};
  loopback.sin_family = AF_INET;
  loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&loopback), sizeof(loopback)), 0);
  ASSERT_EQ(listen(listener.get(), 8), 0);
  TcpPeer peer{PeerId(2), 1, "stranger", std::string(kTcpTestKey), {}, {GlobalDeviceId(2)}};
  peer.address.size = sizeof(peer.address.storage);
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&peer.address.storage),
              &peer.address.size);
  lane_.RunAndWait([&] {
    transport_->AddPeer(peer);
    TransportOp op;
    op.transfer = TransferId(1);
    op.attempt = 1;
    op.role = LaunchRole::kSend;
    op.peer = PeerId(2);
    op.remote_device = GlobalDeviceId(2);
    op.segments.push_back({arena_.data(), 4096});
    std::vector<TransportOp> ops;
    ops.push_back(std::move(op));
    transport_->Launch(std::move(ops));
  });
  UniqueFd stranger(accept(listener.get(), nullptr, nullptr));
  std::string heard(kTcpPreambleBytes, '\0');
  ASSERT_EQ(recv(stranger.get(), heard.data(), heard.size(), MSG_WAITALL),
            static_cast<ssize_t>(heard.size()));
  EXPECT_FALSE(ProvesTcp(heard, "another key, as long as that one"));
  // It cannot send back what it has heard, either.
  send(stranger.get(), heard.data() + heard.size() - kHmacBytes, kHmacBytes, MSG_NOSIGNAL);
  const absl::Status status = answers_.Await(TransferId(1));
  EXPECT_EQ(ReasonOf(status), Reason::kRouteUnavailable) << status;
  EXPECT_LE(recv(stranger.get(), heard.data(), 1, 0), 0) << "nothing else was said";
}

}  // namespace
}  // namespace ferry
