// SPDX-License-Identifier: Apache-2.0
// Jobs that send and receive by themselves: what they post, when they stop and go on, and how they
// end. The transfers are played.
#include <cstring>
#include <string>
#include <vector>

#include "daemon/domain_tag.h"
#include "tests/daemon/job_transfers_rig.h"

namespace ferry::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class JobTransfersTest : public JobTransfersRig {};

TEST_F(JobTransfersTest, TransfersArePostedWithTheJobAndBeginInTheirTurn) {
  const PostReply reply = jobs_.Post(*session_, Exchange());
  ASSERT_THAT(reply.status, Is("OK")) << ::testing::PrintToString(Fields(reply));
  ASSERT_EQ(posted_.size(), 2u);
  EXPECT_THAT(defined_, IsEmpty());
  EXPECT_EQ(session_->use().transfers_in_flight, 3u);
  const TransferId send = Posted(Side::kSend);
  const TransferId receive = Posted(Side::kReceive);
  EXPECT_EQ(SequenceOf(std::min(send, receive)), reply.first_transfer_id + 1);
  const TransferSpec& sent = posted_.at(send);
  EXPECT_EQ(sent.key.source, GlobalDeviceId(1));
  EXPECT_EQ(sent.key.destination, GlobalDeviceId(7));
  EXPECT_EQ(sent.key.key, "k");
  EXPECT_EQ(sent.key.domain, TagOfUid("", 1000));
  EXPECT_EQ(sent.bytes, 64u);
  EXPECT_EQ(sent.data_type, DataType::kF32);
  EXPECT_THAT(sent.shape.dims, ElementsAre(16));
  EXPECT_FALSE(sent.defined);
  EXPECT_EQ(sent.route, Route::kMapped);
  EXPECT_FALSE(sent.prompt);
  EXPECT_TRUE(posted_.at(receive).prompt);
  EXPECT_EQ(posted_.at(receive).key.source, GlobalDeviceId(7));
  EXPECT_EQ(posted_.at(receive).key.destination, GlobalDeviceId(1));

  Run();
  // It has sent before it waits for what it receives.
  EXPECT_THAT(defined_, ::testing::UnorderedElementsAre(send, receive));
  for (int i = 0; i < 16; ++i) EXPECT_EQ(Memory(send)[i], 2.0f * static_cast<float>(i));
  EXPECT_THAT(ended_, IsEmpty());
  const auto row = jobs_.Find(MakeTransferId(session_->id(), reply.first_transfer_id));
  ASSERT_TRUE(row.has_value());
  EXPECT_STREQ(row->state, "waiting");
  EXPECT_THAT(row->waits_for, HasSubstr("its receive 'k' from 'other'"));

  for (int i = 0; i < 16; ++i) Memory(receive)[i] = 100.0f;
  Over(receive);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(Floats(arena_, 64)[i], 100.0f - static_cast<float>(i));
  EXPECT_EQ(jobs_.in_flight(), 1u) << "what it sends is not over";
  EXPECT_EQ(session_->timelines().over_value(0), 0u);
  Over(send);
  EXPECT_EQ(jobs_.in_flight(), 0u);
  EXPECT_EQ(jobs_.counts().ok, 1u);
  EXPECT_EQ(session_->timelines().over_value(0), 1u);
  EXPECT_EQ(session_->use().transfers_in_flight, 0u);
  // Of its transfers the client is told nothing.
  EXPECT_EQ(session_->endings().next() - session_->endings().first(), 1u);
}

// Receives three parts, and stores each.
class JobPartsTest : public JobTransfersTest {
 protected:
  static constexpr char kThree[] =
      "program 1\nbuffer @y read_write 4096\n"
      "%a = recv peer=\"other\" key=\"a\" : f32[16]\nstore @y, %a offset=64\n"
      "%b = recv peer=\"other\" key=\"b\" : f32[16]\nstore @y, %b offset=128\n"
      "%c = recv peer=\"other\" key=\"c\" : f32[16]\nstore @y, %c offset=192\n";

  // Posts the job; part i comes to `received_[i]`, and is the number i + 1.
  void SetUp() override {
    JobTransfersTest::SetUp();
    PostBatch batch;
    AddRun(batch, Fingerprint(kThree), {{"y", At(arena_, 0, 4096)}});
    batch.jobs[0].peers = {{"other", GlobalDeviceId(7)}};
    reply_ = jobs_.Post(*session_, std::move(batch));
    ASSERT_THAT(reply_.status, Is("OK"));
    Run();
    ASSERT_EQ(posted_.size(), 3u);
    for (const auto& [id, spec] : posted_) {
      Memory(id)[0] = static_cast<float>(received_.size() + 1);
      Ended& ended = received_.emplace_back();
      ended.transfer = id;
      ended.side = spec.side;
      ended.bytes = spec.bytes;
      ended.layout = spec.layout;
    }
  }
  // The part has come; returns how often the compute thread was called.
  size_t Come(size_t part) {
    OnOver(received_[part]);
    jobs_.Join();
    return compute_.RunAll();
  }
  float PartAt(uint64_t offset) { return Floats(arena_, offset)[0]; }

  PostReply reply_;
  std::vector<Ended> received_;
};

TEST_F(JobPartsTest, WhatHasComeMeanwhileIsDoneInOneRun) {
  EXPECT_EQ(Come(0), 1u);
  // Nobody knows yet that the first one was done.
  EXPECT_EQ(Come(1), 0u);
  EXPECT_EQ(Come(2), 0u);
  EXPECT_EQ(PartAt(64), 1);
  EXPECT_EQ(PartAt(128), 0);
  rig_.control.RunAll();
  EXPECT_EQ(compute_.RunAll(), 1u);
  EXPECT_EQ(PartAt(128), 2);
  EXPECT_EQ(PartAt(192), 3);
  Run();
  EXPECT_EQ(jobs_.in_flight(), 0u);
  EXPECT_EQ(jobs_.counts().ok, 1u);
}

TEST_F(JobPartsTest, ARunThatFailsEndsTheJobAndItsTransfers) {
  EXPECT_EQ(Come(0), 1u);
  Run();
  computer_->refuses = true;
  EXPECT_EQ(Come(1), 1u);
  Run();
  ASSERT_EQ(poisoned_.size(), 1u);
  EXPECT_EQ(poisoned_.begin()->first, received_[2].transfer);
  received_[2].status = poisoned_.begin()->second;
  EXPECT_EQ(Come(2), 0u);
  EXPECT_EQ(jobs_.in_flight(), 0u);
  EXPECT_EQ(jobs_.counts().failed, 1u);
  EXPECT_THAT(*session_->endings().FindFailure(reply_.first_transfer_id),
              Is("INTERNAL/INTERNAL", "refused"));
  EXPECT_EQ(PartAt(64), 1);
  EXPECT_EQ(PartAt(128), 0);
}

TEST_F(JobTransfersTest, OthersHaveTheirTurnWhileOneWaits) {
  ASSERT_THAT(jobs_.Post(*session_, Exchange()).status, Is("OK"));
  ASSERT_THAT(jobs_.Post(*session_, Exchange(128, "/2")).status, Is("OK"));
  Run();
  EXPECT_EQ(defined_.size(), 4u) << "both have begun";
  ASSERT_THAT(jobs_.Post(*session_, Half(arena_, 0, 192)).status, Is("OK"));
  Run();
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_THAT(ended_[0].status, Is("OK"));
  std::vector<std::string> keys;
  for (const auto& [id, spec] : posted_) keys.push_back(spec.key.key);
  EXPECT_THAT(keys, ::testing::UnorderedElementsAre("k", "k", "k/2", "k/2"));
  for (const auto& [id, spec] : std::map(posted_)) Over(id);
  EXPECT_EQ(jobs_.in_flight(), 0u);
}

TEST_F(JobTransfersTest, MemoryIsUsedAgain) {
  for (int i = 0; i < 3; ++i) {
    ASSERT_THAT(jobs_.Post(*session_, Exchange()).status, Is("OK"));
    Run();
    for (const auto& [id, spec] : std::map(posted_)) Over(id);
    posted_.clear();
    EXPECT_EQ(jobs_.in_flight(), 0u);
    EXPECT_EQ(session_->use().arenas, 2u);
  }
  EXPECT_EQ(rig_.table.job_memory().spares(session_->id()).size(), 1u);
  // No client has it.
  EXPECT_THAT(session_->arenas().Find(rig_.table.job_memory().spares(session_->id())[0]).status(),
              Is("NOT_FOUND/ARENA_NOT_FOUND"));
  // It makes room for what the client asks for: four arenas are its quota.
  for (int i = 0; i < 3; ++i) rig_.RegisterGood(kConnection, 4096);
  EXPECT_THAT(rig_.table.job_memory().spares(session_->id()), IsEmpty());
  EXPECT_EQ(session_->use().arenas, 4u);
  EXPECT_THAT(jobs_.Post(*session_, Exchange()).status,
              Is("RESOURCE_EXHAUSTED/QUOTA_ARENAS", "memory of what it sends"));
  EXPECT_THAT(posted_, IsEmpty());
  EXPECT_EQ(session_->use().transfers_in_flight, 0u);
}

TEST_F(JobTransfersTest, AJobFailsWithATransferAndPoisonsTheOthers) {
  const PostReply reply = jobs_.Post(*session_, Exchange());
  ASSERT_THAT(reply.status, Is("OK"));
  Run();
  const TransferId send = Posted(Side::kSend);
  Over(Posted(Side::kReceive),
       Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable, "node-b is gone"));
  ASSERT_EQ(poisoned_.size(), 1u);
  EXPECT_THAT(poisoned_.at(send), Is("ABORTED/POISONED", "node-b is gone"));
  EXPECT_EQ(jobs_.in_flight(), 1u) << "a lane may still read its memory";
  EXPECT_STREQ(jobs_.List(1)[0].state, "ending");
  Over(send, poisoned_.at(send));
  EXPECT_EQ(jobs_.in_flight(), 0u);
  EXPECT_THAT(*session_->endings().FindFailure(reply.first_transfer_id),
              Is("UNAVAILABLE/PEER_UNREACHABLE", "its receive 'k' from 'other'"));
  EXPECT_EQ(rig_.table.job_memory().spares(session_->id()).size(), 1u);
}

TEST_F(JobTransfersTest, ACancelledJobEndsItsTransfersBeforeAndAfterItRan) {
  for (const bool ran : {false, true}) {
    SCOPED_TRACE(ran);
    const PostReply reply = jobs_.Post(*session_, Exchange());
    ASSERT_THAT(reply.status, Is("OK"));
    if (ran) Run();
    const TransferId job = MakeTransferId(session_->id(), reply.first_transfer_id);
    EXPECT_TRUE(jobs_.Cancel(
        job, Error(absl::StatusCode::kCancelled, Reason::kCancelled, "not needed any more")));
    EXPECT_EQ(poisoned_.size(), 2u);
    for (const auto& [id, why] : std::map(poisoned_)) Over(id, why);
    EXPECT_EQ(jobs_.in_flight(), 0u);
    EXPECT_THAT(*session_->endings().FindFailure(reply.first_transfer_id),
                Is("CANCELLED/CANCELLED"));
    posted_.clear();
    poisoned_.clear();
  }
}

TEST_F(JobTransfersTest, ADeadlineBeforeItsStartEndsItsTransfers) {
  PostBatch batch = Exchange();
  batch.specs[0].defined = false;
  batch.specs[0].defined_value = 1;
  batch.deadlines[0] = absl::Seconds(2);
  ASSERT_THAT(jobs_.Post(*session_, batch).status, Is("OK"));
  Run();
  EXPECT_THAT(defined_, IsEmpty());
  jobs_.OnTime(rig_.control.Now() + absl::Seconds(3));
  EXPECT_EQ(poisoned_.size(), 2u);
  for (const auto& [id, why] : std::map(poisoned_)) Over(id, why);
  EXPECT_EQ(jobs_.in_flight(), 0u);
}

TEST_F(JobTransfersTest, ADeadlineBetweenTwoSectionsHoldsWhateverTheTransfersSay) {
  for (const bool well : {false, true}) {
    SCOPED_TRACE(well);
    PostBatch batch = Exchange();
    batch.deadlines[0] = absl::Seconds(2);
    const PostReply reply = jobs_.Post(*session_, batch);
    ASSERT_THAT(reply.status, Is("OK"));
    Run();
    jobs_.OnTime(rig_.control.Now() + absl::Seconds(3));
    EXPECT_EQ(jobs_.in_flight(), 1u);
    // A copy that was under way ends well; what was not matched by then does not.
    Over(Posted(Side::kReceive),
         well ? absl::OkStatus()
              : Error(absl::StatusCode::kDeadlineExceeded, Reason::kWaitingForPeer, "no send"));
    ASSERT_EQ(poisoned_.size(), 1u);
    Over(Posted(Side::kSend), poisoned_.begin()->second);
    EXPECT_EQ(jobs_.in_flight(), 0u);
    EXPECT_THAT(*session_->endings().FindFailure(reply.first_transfer_id),
                Is(well ? "DEADLINE_EXCEEDED/NOT_READY" : "DEADLINE_EXCEEDED/WAITING_FOR_PEER"));
    posted_.clear();
    poisoned_.clear();
  }
}

TEST_F(JobTransfersTest, ASessionThatEndsTakesItsJobsAndTheirMemoryAlong) {
  ASSERT_THAT(jobs_.Post(*session_, Exchange()).status, Is("OK"));
  Run();
  const SessionId id = session_->id();
  rig_.table.OnClosed(kConnection);
  jobs_.EndSession(id);
  for (const auto& [transfer, why] : std::map(poisoned_)) Over(transfer, why);
  Run();
  EXPECT_EQ(jobs_.in_flight(), 0u);
  EXPECT_EQ(rig_.table.Find(id), nullptr);
  EXPECT_EQ(rig_.devices.table.Find(GlobalDeviceId(1))->arena_bytes, 0u);
}

TEST_F(JobTransfersTest, ACallThatWouldMakeTooManyTransfersIsRefusedBeforeItDoes) {
  std::string text = "program 1\n";
  for (int i = 0; i < 2000; ++i) {
    absl::StrAppend(&text, "%r", i, " = recv device=7 key=\"", i, "\" : f32[1]\n");
  }
  PostBatch batch;
  for (int i = 0; i < 9; ++i) {
    AddRun(batch, Fingerprint(text), {});
    batch.jobs.back().key_suffix = absl::StrCat("/", i);
  }
  EXPECT_THAT(Fields(jobs_.Post(*session_, batch)),
              ElementsAre("runs[8] INVALID_ARGUMENT/BATCH_TOO_LARGE"));
  EXPECT_EQ(session_->use().arenas, 1u);
}

TEST_F(JobTransfersTest, WhatIsWrongWithPeersAndKeysIsListed) {
  PostBatch batch = Exchange();
  batch.jobs[0].peers = {{"next", GlobalDeviceId(7)}, {"next", GlobalDeviceId(8)}};
  EXPECT_THAT(Fields(jobs_.Post(*session_, batch)),
              ElementsAre("runs[0].peers[1] INVALID_ARGUMENT/FIELD_INVALID",
                          "runs[0].peers INVALID_ARGUMENT/FIELD_INVALID",
                          "runs[0].peers INVALID_ARGUMENT/FIELD_INVALID",
                          "runs[0].peers INVALID_ARGUMENT/FIELD_INVALID"));
  EXPECT_THAT(Fields(jobs_.Post(*session_, Exchange(64, std::string(64, 'x')))),
              ElementsAre("runs[0].key_suffix INVALID_ARGUMENT/FIELD_INVALID"));
  batch = Half(arena_, 0, 64);
  batch.specs[0].route = Route::kUcx;
  EXPECT_THAT(Fields(jobs_.Post(*session_, batch)),
              ElementsAre("runs[0].fingerprint INVALID_ARGUMENT/FIELD_INVALID"));
  refused_ = {{1, Error(absl::StatusCode::kAlreadyExists, Reason::kKeyInUse, "in use")}};
  EXPECT_THAT(Fields(jobs_.Post(*session_, Exchange())),
              ElementsAre("runs[0] ALREADY_EXISTS/KEY_IN_USE"));
  batch = Exchange();
  batch.prepare = true;
  batch.specs[0].prepared = true;
  ASSERT_FALSE(batch.jobs[0].peers.empty());  // to the program, not to them
  EXPECT_THAT(jobs_.Post(*session_, batch).status,
              Is("UNIMPLEMENTED/FIELD_INVALID", "bound to prepared transfers"));
  EXPECT_THAT(posted_, IsEmpty());
  EXPECT_EQ(session_->use().arenas, 1u);
}

}  // namespace
}  // namespace ferry::testing
