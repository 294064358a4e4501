// SPDX-License-Identifier: Apache-2.0
// How long control is at one thing, of the worst that limits allow: batches of a client, offers of
// a peer, ends of sessions, deadlines. It may be 5 ms; so ten times that, of the thread's own time.
#include <time.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/rpc/convert.h"
#include "tests/daemon/peer_rig.h"
#include "tests/support/await.h"

namespace ferry {
namespace {

using testing::kClient;
using testing::kNodeC;
using testing::PeerRig;

// Ten times what is promised. Under a sanitizer the same is done, and takes as long as it takes.
#ifdef __SANITIZE_ADDRESS__
constexpr absl::Duration kAllowed = absl::InfiniteDuration();
#else
constexpr absl::Duration kAllowed = absl::Milliseconds(10 * 5);
#endif
constexpr uint64_t kArenaBytes = uint64_t{64} << 20;

class ControlTimeTest : public ::testing::Test {
 protected:
  ControlTimeTest() : rig_({}, PeerRig::kSecret, {uint64_t{1} << 30, 64, 100'000, 4096}) {
    arena_ = rig_.Register(kArenaBytes);
    other_ = rig_.Register(kArenaBytes);
  }
  // Nothing that control does takes longer; `what` is one task of it.
  template <typename What>
  void Timed(What what) {
    const absl::Time before = Cpu();
    what();
    longest_ = std::max(longest_, Cpu() - before);
  }
  // What control does after its tasks, in as many goes as it wants.
  void RunAfterTasks() {
    absl::Time next;
    do {
      Timed([&] { next = rig_.driver->AfterTasks(); });
      ASSERT_LT(++rounds_, 10'000);
    } while (next <= rig_.control.Now());
  }
  void Post(const v1::CrossHostSendRequest& request) { PostBatchOf(Convert(request, 1)); }
  void Post(const v1::CrossHostReceiveRequest& request) { PostBatchOf(Convert(request, 1)); }
  void ExpectShort() const {
    EXPECT_LT(longest_, kAllowed);
    RecordProperty("longest_us", static_cast<int>(absl::ToInt64Microseconds(longest_)));
  }

  // As Convert knows a request's size: 1 MiB and no more, as one of these bytes each.
  template <typename Request>
  static v1::Buffer* AddBuffer(Request& request, uint64_t key) {
    request.set_device_id(2);
    request.add_transfer_keys(absl::StrCat("key ", key));
    return request.add_buffers();
  }
  static void SetStrided(v1::Buffer* buffer, ArenaId arena, uint64_t offset, uint64_t block,
                         uint64_t stride, uint64_t count) {
    v1::StridedRange* strided = buffer->mutable_strided();
    strided->set_arena_id(arena.value());
    strided->set_offset(offset);
    strided->set_block_bytes(block);
    strided->set_stride_bytes(stride);
    strided->set_count(count);
  }

  PeerRig rig_;
  ArenaId arena_, other_;
  absl::Duration longest_;
  int rounds_ = 0;

 private:
  void PostBatchOf(PostBatch batch) {
    batch.domain = "test";
    PostReply reply;
    Timed([&] { reply = rig_.driver->Post(rig_.session(), std::move(batch)); });
    ASSERT_THAT(reply.status, testing::Is("OK"));
    RunAfterTasks();
  }
  static absl::Time Cpu() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return absl::TimeFromTimespec(now);
  }
};

TEST_F(ControlTimeTest, ManyBlocksThatTouch) {
  rig_.NodeCUpElsewhere();
  v1::CrossHostSendRequest request;
  for (uint64_t i = 0; i < kMaxBatchTransfers; ++i) {
    SetStrided(AddBuffer(request, i), arena_, i, 1, 1, kMaxBlocks);
    request.add_dst_global_device_ids(3);
  }
  Post(request);
  ExpectShort();
}

TEST_F(ControlTimeTest, ManyRangesOfArenasInTurn) {
  rig_.NodeCUpElsewhere();
  v1::CrossHostSendRequest request;
  for (uint64_t i = 0; i < kMaxBatchTransfers; ++i) {
    v1::Buffer* const buffer = AddBuffer(request, i);
    for (uint64_t j = 0; j < kMaxBatchRanges / kMaxBatchTransfers; ++j) {
      v1::BufferRange* const range = buffer->add_ranges();
      range->set_arena_id((j % 2 == 0 ? arena_ : other_).value());
      range->set_offset(2 * (i * 16 + j));
      range->set_length(1);
    }
    request.add_dst_global_device_ids(3);
  }
  Post(request);
  ExpectShort();
}

// Small ones are copied by control itself; not when that is many small copies.
TEST_F(ControlTimeTest, ManySmallCopiesInManyPieces) {
  v1::CrossHostSendRequest send;
  v1::CrossHostReceiveRequest receive;
  constexpr uint64_t kEach = kMaxBatchStretches / kMaxBatchTransfers;
  for (uint64_t i = 0; i < kMaxBatchTransfers; ++i) {
    SetStrided(AddBuffer(send, i), arena_, i * 2 * kEach, 1, 2, kEach);
    send.add_dst_global_device_ids(2);
    SetStrided(AddBuffer(receive, i), other_, i * 2 * kEach, 1, 2, kEach);
    receive.add_src_global_device_ids(2);
  }
  rig_.devices.results = [this](std::vector<OpResult> results) {
    rig_.control.Post([this, results = std::move(results)]() mutable {
      rig_.driver->OnResults(std::move(results));
    });
  };
  Post(send);
  Post(receive);
  ExpectShort();
  // The lane has the memory until then.
  ASSERT_TRUE(testing::Await([&] {
    rig_.Turn();
    return rig_.driver->engine().view().in_flight() == 0;
  }));
}

TEST_F(ControlTimeTest, TablesOfAPeer) {
  const auto stream = rig_.NodeCUpElsewhere();
  constexpr uint64_t kOffers = 512;  // as many as are taken at a time
  std::vector<uint64_t> indices(4096);
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = i == 0 ? 4097 : i;
  v1::CrossHostReceiveRequest request;
  std::vector<PeerMessage> offers;
  for (uint64_t i = 0; i < kOffers; ++i) {
    SetStrided(AddBuffer(request, i), arena_, i * 4096, 4096, 4096, 1);
    request.add_src_global_device_ids(3);
    Offer offer = PeerRig::OfferOfNodeC(i + 1, ArenaId(77), 4096, absl::StrCat("key ", i));
    offer.layout = *Layout::BlockTable(ArenaId(77), 0, 1, indices);
    offer.ready = true;
    offers.emplace_back(std::move(offer));
  }
  Post(request);
  Timed([&] { rig_.driver->OnPeerMessages(kNodeC, std::move(offers)); });
  RunAfterTasks();
  ExpectShort();
}

TEST_F(ControlTimeTest, ManyThatWaitForOneArenaOfAPeer) {
  const auto stream = rig_.NodeCUp();
  constexpr uint64_t kMany = 5 * kMaxBatchTransfers;
  std::vector<std::string> keys;
  for (uint64_t i = 0; i < kMany; ++i) {
    keys.push_back(absl::StrCat("key ", i));
    if (keys.size() < kMaxBatchTransfers) continue;
    rig_.PostMany(Side::kReceive, arena_, 4096, keys);
    std::vector<PeerMessage> offers;
    for (const std::string& key : keys) {
      offers.emplace_back(PeerRig::OfferOfNodeC(i * kMaxBatchTransfers + offers.size() + 1,
                                                ArenaId(77), 4096, key));
      std::get<Offer>(offers.back()).ready = true;
    }
    rig_.driver->OnPeerMessages(kNodeC, std::move(offers));
    rig_.driver->AfterTasks();
    keys.clear();
  }
  EXPECT_EQ(rig_.driver->engine().view().in_flight(), kMany);
  rig_.Answer(kNodeC, absl::OkStatus(), ArenaLent{ArenaId(77), {MemoryKind::kMemfd, 4096}},
              testing::SealedMemfd(4096));
  rig_.devices.Settle();
  Timed([&] { rig_.control.RunAll(); });
  RunAfterTasks();
  EXPECT_EQ(rig_.driver->engine().view().in_flight(), 0u) << "control has copied what is so small";
  EXPECT_GT(rounds_, 30);
  ExpectShort();
}

TEST_F(ControlTimeTest, AHundredThousandTransfersAtTheEndOfTheirSession) {
  rig_.NodeCUp();
  std::vector<std::string> keys(kMaxBatchTransfers);
  size_t posted = 0;
  for (; posted + keys.size() <= 100'000; posted += keys.size()) {
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = absl::StrCat("key ", posted + i);
    Timed([&] { rig_.PostMany(Side::kReceive, arena_, 4096, keys); });
    RunAfterTasks();
  }
  ASSERT_GT(posted, 90'000u);
  EXPECT_GT(rig_.session().record_bytes(), posted * 1024);
  Timed([&] { rig_.sessions->OnClosed(kClient); });
  RunAfterTasks();
  EXPECT_EQ(rig_.driver->engine().view().in_flight(), 0u);
  EXPECT_EQ(rig_.sessions->size(), 0u);
  EXPECT_GT(rounds_, 100);
  ExpectShort();
}

// What waits instead of so many is looked for in between: a hundred thousand wait here too.
TEST_F(ControlTimeTest, ManyOffersAreWithdrawnAtTheirDeadline) {
  rig_.NodeCUp();
#ifdef __SANITIZE_ADDRESS__
  constexpr size_t kMany = 10'000;  // ten times as slow, and no time is asked for
#else
  constexpr size_t kMany = 100'000;
#endif
  std::vector<std::string> keys(kMaxBatchTransfers);
  for (size_t posted = 0; posted + keys.size() <= kMany; posted += keys.size()) {
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = absl::StrCat("step 41/", posted + i);
    rig_.PostMany(Side::kReceive, arena_, 4096, keys);
    RunAfterTasks();
  }
  for (size_t i = 0; i < kMany; ++i) {
    std::vector<PeerMessage> offers;
    offers.emplace_back(
        PeerRig::OfferOfNodeC(i + 1, ArenaId(77), 4096, absl::StrCat("step 42/", i)));
    rig_.driver->OnPeerMessages(kNodeC, std::move(offers));
  }
  RunAfterTasks();
  rig_.control.Advance(absl::Seconds(1));
  RunAfterTasks();
  constexpr size_t kAtOnce = 512;  // as many as are taken at a time
  for (size_t i = 0; i < kMany; i += kAtOnce) {
    std::vector<PeerMessage> withdrawn;
    for (size_t j = i; j < std::min(i + kAtOnce, kMany); ++j) {
      withdrawn.emplace_back(Withdraw{TransferId(j + 1), Error(absl::StatusCode::kDeadlineExceeded,
                                                               Reason::kWaitingForPeer, "alone")});
    }
    Timed([&] { rig_.driver->OnPeerMessages(kNodeC, std::move(withdrawn)); });
    RunAfterTasks();
    rig_.control.Advance(absl::Milliseconds(10));
  }
  EXPECT_EQ(rig_.driver->engine().view().waiting_offers(), 0u);
  ExpectShort();
}

TEST_F(ControlTimeTest, ManyDeadlinesAtOnce) {
  rig_.NodeCUp();
  std::vector<std::string> keys(kMaxBatchTransfers);
  for (int batch = 0; batch < 5; ++batch) {
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = absl::StrCat("key ", batch, " ", i);
    Timed([&] { rig_.PostMany(Side::kReceive, arena_, 4096, keys); });
    RunAfterTasks();
  }
  // Old enough to be found by who ends alone; late; and not answered by node-c.
  for (const absl::Duration step : {absl::Seconds(2), absl::Hours(2), absl::Milliseconds(100)}) {
    rig_.control.Advance(step);
    RunAfterTasks();
  }
  EXPECT_EQ(rig_.driver->engine().view().in_flight(), 0u);
  ExpectShort();
}

}  // namespace
}  // namespace ferry
