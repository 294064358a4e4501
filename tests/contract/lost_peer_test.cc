// SPDX-License-Identifier: Apache-2.0
// UCX with a peer that is killed or stopped: whatever UCX itself sees of that, RemovePeer makes
// every op come back, and the transport serves the next peer and can be taken down.
#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "base/status.h"
#include "tests/contract/peer_process.h"
#include "tests/contract/rig.h"

namespace ferry {
namespace {

constexpr uint64_t kLarge = uint64_t{200} << 20;  // does not fit any socket's or queue's buffers
const GlobalDeviceId kDevice{1};

class LostPeer : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto api = LoadUcx();
    ASSERT_TRUE(api.ok()) << api.status();
    if (absl::EndsWith(GetParam(), "_gpu")) {
      gpu_ = std::make_unique<CudaDevice>(FAKE_CUDA_LIBRARY, (*FindGpus(FAKE_CUDA_LIBRARY))[0],
                                          std::vector<int>{0});
      staging_ = StagingOf(lane_, *gpu_);
      auto arena = gpu_->Map({MemoryKind::kCudaAllocate, kLarge}, {});
      ASSERT_TRUE(arena.ok()) << arena.status();
      arena_ = *std::move(arena);
    } else {
      auto arena = HostMapping::Map(MakeArena(kLarge), kLarge, HostMapping::Access::kReadWrite);
      ASSERT_TRUE(arena.ok()) << arena.status();
      arena_ = *std::move(arena);
    }
    auto transport =
        UcxTransport::Create(**api, OnlyKind(kind()), lane_, answers_.Sink(), staging_.get());
    ASSERT_TRUE(transport.ok()) << transport.status();
    transport_ = *std::move(transport);
  }
  std::string kind() const { return absl::StartsWith(GetParam(), "net") ? "net" : "shm"; }

  std::unique_ptr<PeerProcess> Join(uint32_t id) {
    auto peer = std::make_unique<PeerProcess>(kind(), transport_->addresses(PeerId(0))[0]);
    lane_.RunAndWait([&] { transport_->AddPeer(PeerId(id), kDevice, peer->address(), 0); });
    return peer;
  }
  void Launch(uint32_t peer, LaunchRole role, uint64_t tag, uint64_t bytes) {
    lane_.RunAndWait([&] {
      TransportOp op;
      op.transfer = TransferId(tag);
      op.attempt = 1;
      op.role = role;
      op.peer = PeerId(peer);
      op.remote_device = kDevice;
      op.tag = tag;
      op.segments.push_back({arena_->data(), bytes});
      std::vector<TransportOp> ops;
      ops.push_back(std::move(op));
      answers_.BeginCall();
      transport_->Launch(std::move(ops));
      answers_.EndCall();
    });
  }
  void Remove(uint32_t peer) {
    lane_.RunAndWait([&] {
      answers_.BeginCall();
      transport_->RemovePeer(PeerId(peer), Error(absl::StatusCode::kAborted,
                                                 Reason::kPeerUnreachable, "its link was lost"));
      answers_.EndCall();
    });
  }
  // One small op each way, so that the connection is there.
  void Greet(PeerProcess& peer, uint32_t id, uint64_t tag) {
    Launch(id, LaunchRole::kReceive, tag, 8);
    peer.Send(tag, 8);
    peer.Receive(tag + 1, 8);
    Launch(id, LaunchRole::kSend, tag + 1, 8);
    for (uint64_t i : {tag, tag + 1}) {
      const absl::Status status = answers_.Await(TransferId(i));
      ASSERT_TRUE(status.ok()) << status;
    }
  }
  void ExpectFailed(uint64_t tag) {
    const absl::Status status = answers_.Await(TransferId(tag));
    // The last: UCX saw the death itself, and an op that had not begun found no way to open it
    // again.
    EXPECT_TRUE(HasReason(status, Reason::kPeerUnreachable) ||
                HasReason(status, Reason::kCommAborted) ||
                HasReason(status, Reason::kRouteUnavailable))
        << status;
  }

  Answers answers_;
  std::unique_ptr<CudaDevice> gpu_;  // null: a host device
  Lane lane_{"test-lane", Lane::DefaultSpin()};
  std::unique_ptr<GpuStaging> staging_;  // of a GPU
  std::unique_ptr<DeviceMemory> arena_;
  std::unique_ptr<UcxTransport> transport_;
};

INSTANTIATE_TEST_SUITE_P(Over, LostPeer, ::testing::Values("net", "shm", "net_gpu", "shm_gpu"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(LostPeer, KilledWithReceivesPosted) {
  auto peer = Join(1);
  Greet(*peer, 1, 1);
  Launch(1, LaunchRole::kReceive, 10, 8);
  Launch(1, LaunchRole::kReceive, 11, kLarge);
  peer->Kill();
  Remove(1);
  ExpectFailed(10);
  ExpectFailed(11);
}

TEST_P(LostPeer, StoppedWithReceivesPosted) {
  auto peer = Join(1);
  Greet(*peer, 1, 1);
  Launch(1, LaunchRole::kReceive, 10, 8);
  Launch(1, LaunchRole::kReceive, 11, kLarge);
  peer->Stop();
  Remove(1);
  ExpectFailed(10);
  ExpectFailed(11);
  // It comes back to life, and what it sends then must not hurt: nobody waits for it any more.
  peer->Continue();
  peer->Send(10, 8);
  auto other = Join(2);
  Greet(*other, 2, 100);
}

TEST_P(LostPeer, StoppedBeforeTheConnection) {
  auto peer = Join(1);
  peer->Stop();
  Launch(1, LaunchRole::kReceive, 10, 8);
  Remove(1);
  ExpectFailed(10);
}

TEST_P(LostPeer, KilledWithSendsOut) {
  auto peer = Join(1);
  Greet(*peer, 1, 1);
  for (uint64_t tag = 10; tag < 300; ++tag) Launch(1, LaunchRole::kSend, tag, kLarge);
  peer->Kill();
  Remove(1);
  for (uint64_t tag = 10; tag < 300; ++tag) ExpectFailed(tag);
}

TEST_P(LostPeer, StoppedWithSendsOut) {
  auto peer = Join(1);
  Greet(*peer, 1, 1);
  for (uint64_t tag = 10; tag < 300; ++tag) Launch(1, LaunchRole::kSend, tag, kLarge);
  peer->Stop();
  Remove(1);
  for (uint64_t tag = 10; tag < 300; ++tag) ExpectFailed(tag);
  // By now a worker of shared memory is gone for good.
  Launch(1, LaunchRole::kSend, 300, 8);
  EXPECT_EQ(answers_.Await(TransferId(300)).code(), absl::StatusCode::kUnavailable);
}

// In the middle of a message; it may also have come through in time.
TEST_P(LostPeer, StoppedOrKilledInTheMiddle) {
  for (const bool stop : {true, false}) {
    const uint32_t id = stop ? 1 : 2;
    const uint64_t tag = id * 1000;
    auto peer = Join(id);
    Greet(*peer, id, tag);
    // Its first bytes are there. Before that it may be writing into UCX's shared queue, which
    // nobody else can use if it never comes to the end of that.
    volatile std::byte* const first = arena_->data();
    *first = std::byte{0x5A};
    Launch(id, LaunchRole::kReceive, tag + 10, kLarge);
    peer->Send(tag + 10, kLarge);
    while (*first == std::byte{0x5A}) std::this_thread::yield();
    if (stop) {
      peer->Stop();
    } else {
      peer->Kill();
    }
    Remove(id);
    const absl::Status status = answers_.Await(TransferId(tag + 10));
    EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kAborted) << status;
  }
}

TEST_P(LostPeer, ServesTheNextPeer) {
  auto first = Join(1);
  Greet(*first, 1, 1);
  Launch(1, LaunchRole::kReceive, 10, 8);
  first->Kill();
  Remove(1);
  ExpectFailed(10);
  Launch(1, LaunchRole::kReceive, 11, 8);
  EXPECT_EQ(answers_.Await(TransferId(11)).code(), absl::StatusCode::kUnavailable);
  auto second = Join(1);
  Greet(*second, 1, 20);
  EXPECT_EQ(answers_.count(), 6u);
}

TEST_P(LostPeer, TakenDownWithAStoppedPeer) {
  auto peer = Join(1);
  Greet(*peer, 1, 1);
  Launch(1, LaunchRole::kReceive, 10, kLarge);
  Launch(1, LaunchRole::kSend, 11, kLarge);
  peer->Stop();
  transport_.reset();
  EXPECT_EQ(answers_.count(), 4u);
  EXPECT_FALSE(answers_.Await(TransferId(10)).ok());
  EXPECT_FALSE(answers_.Await(TransferId(11)).ok());
}

TEST_P(LostPeer, APeerThatSendsTooMuchOrTooLittle) {
  auto peer = Join(1);
  Greet(*peer, 1, 1);
  for (const uint64_t sent : {uint64_t{4}, uint64_t{4096}, uint64_t{50} << 20}) {
    const uint64_t tag = 10 + sent;
    std::memset(arena_->data(), 0x5A, 4096);
    Launch(1, LaunchRole::kReceive, tag, 100);
    peer->Send(tag, sent);
    const absl::Status status = answers_.Await(TransferId(tag));
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << sent;
    EXPECT_EQ(ReasonOf(status), Reason::kProtocolError) << sent;
    for (int i = 100; i < 4096; ++i) ASSERT_EQ(arena_->data()[i], std::byte{0x5A}) << "overrun";
  }
  Greet(*peer, 1, 5);
}

// What a batch of receives leaves behind is dropped to the last, though nothing else comes that
// would wake the lane: the senders are told.
TEST(UcxStrays, AllThatComesForAbortedReceivesIsDropped) {
  constexpr uint64_t kCount = 300;
  constexpr uint64_t kSize = uint64_t{64} << 10;
  for (const char* kind : {"net", "shm"}) {
    UcxRig rig(kind, kCount * kSize);
    std::vector<Move> moves;
    for (uint64_t id = 1; id <= kCount; ++id) {
      const uint64_t offset = (id - 1) * kSize;
      moves.push_back({id, {{offset, kSize}}, {{offset, kSize}}});
    }
    rig.LaunchHalf(1, 0, moves);
    for (uint64_t id = 1; id <= kCount; ++id) {
      rig.Abort(1, id, Error(absl::StatusCode::kCancelled, Reason::kCancelled, "by the test"));
    }
    rig.answers(1).AwaitCount(kCount);
    rig.LaunchHalf(0, 0, moves);
    rig.answers(0).AwaitCount(kCount);
  }
}

// A send cannot be taken back: if the peer does not take or drop it, the connection is closed, and
// the next op opens it again.
TEST(UcxNet, AbortedSendReopensTheConnection) {
  UcxRig rig("net", kLarge);
  rig.Launch(0, {{1, {{0, 8}}, {{0, 8}}}});
  ASSERT_TRUE(rig.Await(0, 1).ok());
  rig.LaunchHalf(0, 0, {{2, {{0, kLarge}}, {{0, kLarge}}}});
  rig.Abort(0, 2, Error(absl::StatusCode::kCancelled, Reason::kCancelled, "by the test"));
  EXPECT_EQ(ReasonOf(rig.answers(0).Await(TransferId(2))), Reason::kCancelled);
  // The other end may still have to find out; what it has on the old connection ends, and is tried
  // again.
  for (uint64_t id = 3;; ++id) {
    ASSERT_LT(id, 100u);
    rig.Launch(0, {{id, {{0, 8}}, {{0, 8}}}});
    if (rig.Await(0, id).ok()) break;
  }
}

// A peer that hangs is given up, its endpoint is closed by force, and then it lives on. What comes
// next does not go by its own endpoint, which has not heard of that.
TEST(UcxNet, AnEndpointThatThePeerClosedByForceIsNotUsedAgain) {
  UcxRig rig("net", kLarge);
  uint64_t id = 0;
  for (int round = 0; round < 5; ++round) {
    const auto whole = [&](uint64_t move) {
      return std::vector<Move>{{move, {{0, kLarge}}, {{0, kLarge}}}};
    };
    // The source hangs in the middle.
    const uint64_t broken = ++id;
    std::atomic_ref first(rig.arena(1)[0]);
    first = ~rig.arena(0)[0];
    const std::byte before = first;
    rig.Launch(0, whole(broken));
    while (first == before) std::this_thread::yield();
    absl::Notification hangs, wakes;
    rig.lane(0).Post([&] {
      hangs.Notify();
      wakes.WaitForNotification();
    });
    hangs.WaitForNotification();
    rig.Disconnect(1);
    const absl::Status given_up = rig.answers(1).Await(TransferId(broken));
    EXPECT_TRUE(given_up.ok() || ReasonOf(given_up) == Reason::kPeerUnreachable) << given_up;
    // One task: the source's lane does not look at its connections before the next transfer. A
    // receive is launched when its sender's daemon has come back.
    const uint64_t next = ++id;
    FillRandom(rig.arena(0), kLarge, next);
    rig.lane(0).Post([&] {
      rig.DisconnectOnLane(0);
      rig.ConnectOnLane(0);
      rig.lane(1).RunAndWait([&] {
        rig.ConnectOnLane(1);
        rig.LaunchOnLane(1, 0, whole(next));
      });
      rig.LaunchOnLane(0, 0, whole(next));
    });
    wakes.Notify();
    const absl::Status status = rig.Await(0, next);
    ASSERT_TRUE(status.ok()) << "round " << round << ": " << status;
    ASSERT_EQ(std::memcmp(rig.arena(0), rig.arena(1), kLarge), 0);
  }
  EXPECT_FALSE(rig.ucx(1).addresses(PeerId(0))[0].closings.empty()) << "nothing was closed";
}

// Links that are lost and back again and again, while both processes live: with nothing under way,
// with bytes on their way, with a receive whose sender never heard of it, with a send whose receive
// comes when its link is lost already. All of it is answered, no connection is closed for it, and
// the next link serves, both ways.
class UcxRelink : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Over, UcxRelink, ::testing::Values("net", "shm"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(UcxRelink, AgainAndAgain) {
  UcxRig rig(GetParam(), kLarge);
  std::minstd_rand random(7);
  uint64_t id = 0;
  size_t launched[2] = {0, 0};
  for (int round = 0; round < 40; ++round) {
    const auto launch = [&](int end, int from, const std::vector<Move>& moves) {
      rig.LaunchHalf(end, from, moves);
      ++launched[end];
    };
    std::vector<std::pair<int, std::vector<Move>>> late;  // receives
    for (const int from : {0, 1}) {
      const uint64_t size = std::vector<uint64_t>{8, 65536, kLarge / 2}[random() % 3];
      const std::vector<Move> moves = {{++id, {{0, size}}, {{kLarge / 2, size}}}};
      const auto kind = random() % 4;
      if (kind == 0) continue;
      if (kind != 1) launch(from, from, moves);
      if (kind != 2) launch(1 - from, from, moves);
      if (kind == 2) late.emplace_back(from, moves);
    }
    const int first = static_cast<int>(random() % 2);
    rig.Disconnect(first);
    rig.Disconnect(1 - first);
    for (const auto& [from, moves] : late) launch(1 - from, from, moves);
    for (const int end : {0, 1}) rig.answers(end).AwaitCount(launched[end]);
    rig.Connect();
    // One end first, or the other, or only one: they stay in step.
    for (const int from : {first, 1 - first}) {
      if (random() % 3 == 0) continue;
      FillRandom(rig.arena(from), 65536, id);
      rig.Launch(from, {{++id, {{0, 65536}}, {{kLarge / 2, 65536}}}});
      ++launched[0];
      ++launched[1];
      const absl::Status status = rig.Await(from, id);
      ASSERT_TRUE(status.ok()) << "round " << round << ": " << status;
      EXPECT_EQ(std::memcmp(rig.arena(from), rig.arena(1 - from) + kLarge / 2, 65536), 0);
    }
  }
  for (const int end : {0, 1}) rig.ExpectAnswered(end, launched[end]);
}

}  // namespace
}  // namespace ferry
