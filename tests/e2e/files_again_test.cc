// SPDX-License-Identifier: Apache-2.0
// ferryctl send and recv that are started again after one that had gone: what that left is neither
// taken for the file nor for the end of it.
#include <signal.h>

#include "absl/strings/str_cat.h"
#include "tests/e2e/files_fixture.h"
#include "tools/ferryctl/file_protocol.h"

namespace ferry::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Of `bytes`, with `version` instead of this one.
std::string OfVersion(uint32_t version, std::string bytes) {
  memcpy(bytes.data() + 8, &version, sizeof(version));
  return bytes;
}

class FilesAgainTest : public FilesTest {
 protected:
  FilesAgainTest() : in_(directory_ / "in.bin"), out_(directory_ / "out.bin") {
    WriteFile(in_, Bytes(300'000));
  }
  void Interrupt(std::optional<Process>& process) {
    process->Signal(SIGINT);
    EXPECT_NE(process->Wait(), std::optional<int>(0)) << Output();
  }
  bool Says(const std::string& file, const std::string& text) {
    return Await([&] { return absl::StrContains(ReadFile(directory_ / file), text); });
  }
  // Nothing of an end that has gone is offered at the node any more.
  bool NothingOffered(size_t at) {
    return Await([&] { return absl::StrContains(node(at).admin().Dump(), "offers waiting 0"); });
  }
  void ExpectFileArrives() {
    EXPECT_EQ(sender_->Wait(), std::optional<int>(0)) << Output();
    EXPECT_EQ(receiver_->Wait(), std::optional<int>(0)) << Output();
    EXPECT_TRUE(ReadFile(out_) == Bytes(300'000));
  }
  // A sender that nobody met, and that is gone.
  void SendAloneAndInterrupt() {
    StartSender(in_);
    ASSERT_TRUE(
        Await([&] { return absl::StrContains(node(1).admin().Dump(), "offers waiting 2"); }));
    Interrupt(sender_);
    ASSERT_TRUE(NothingOffered(1));
  }
  void ReceiveAloneAndInterrupt() {
    StartReceiver(out_);
    ASSERT_TRUE(Waits(1, "the-file#file"));
    ASSERT_TRUE(
        Await([&] { return absl::StrContains(node(0).admin().Dump(), "offers waiting 1"); }));
    Interrupt(receiver_);
    ASSERT_TRUE(NothingOffered(0));
  }

  const std::string in_, out_;
};

TEST_F(FilesAgainTest, AReceiverWaitsForTheSenderAfterOneThatWasInterrupted) {
  Start();
  SendAloneAndInterrupt();
  StartReceiver(out_);
  EXPECT_TRUE(Says("recv.out",
                   "key 'the-file': the sender of before is gone (PEER_CLIENT_GONE); waits for the "
                   "next one\n"))
      << Output();
  StartSender(in_);
  ExpectFileArrives();
}

TEST_F(FilesAgainTest, AReceiverWaitsForTheSenderAfterOneWhoseDeadlineWasOver) {
  Start();
  StartSender(in_, {"--deadline", "100ms"});
  EXPECT_EQ(sender_->Wait(), std::optional<int>(7)) << Output();
  StartReceiver(out_);
  EXPECT_TRUE(Says("recv.out", "the sender of before is gone (WAITING_FOR_PEER); waits"))
      << Output();
  StartSender(in_);
  ExpectFileArrives();
}

TEST_F(FilesAgainTest, ASenderWaitsForTheReceiverAfterOneWhoseDeadlineWasOver) {
  Start();
  StartReceiver(out_, {"--deadline", "100ms"});
  EXPECT_EQ(receiver_->Wait(), std::optional<int>(7)) << Output();
  StartSender(in_);
  EXPECT_TRUE(Says("send.out", "the receiver of before is gone (WAITING_FOR_PEER); waits"))
      << Output();
  StartReceiver(out_);
  ExpectFileArrives();
}

// Word of one before is not what it waits for: that is still until its own deadline.
TEST_F(FilesAgainTest, WhoWaitsForTheNextOneHasADeadlineToo) {
  Start();
  SendAloneAndInterrupt();
  StartReceiver(out_, {"--deadline", "300ms"});
  EXPECT_EQ(receiver_->Wait(), std::optional<int>(7)) << Output();
  EXPECT_THAT(Output(),
              AllOf(HasSubstr("waits for the next one"), HasSubstr("WAITING_FOR_PEER: ")));
}

// What cannot begin tells an end that waits, and does not become one that waits.
TEST_F(FilesAgainTest, AnEndThatCannotBeginDoesNotWaitForTheNextOne) {
  Start();
  SendAloneAndInterrupt();
  StartReceiver(directory_ / "nowhere/out.bin");
  EXPECT_EQ(receiver_->Wait(), std::optional<int>(3)) << Output();
  EXPECT_THAT(Output(), Not(HasSubstr("waits for the next one")));
}

TEST_F(FilesAgainTest, OthersThatWereInterruptedAloneAreNotHeardOf) {
  Start();
  ReceiveAloneAndInterrupt();
  StartSender(in_);
  ASSERT_TRUE(Waits(0, "the-file#file"));
  StartReceiver(out_);
  ExpectFileArrives();
  SendAloneAndInterrupt();
  StartSender(in_);
  ASSERT_TRUE(Waits(0, "the-file#file"));
  StartReceiver(out_);
  ExpectFileArrives();
  ReceiveAloneAndInterrupt();
  StartReceiver(out_);
  ASSERT_TRUE(Waits(1, "the-file#file"));
  StartSender(in_);
  ExpectFileArrives();
  EXPECT_THAT(Output(), Not(HasSubstr("of before")));
}

// A stream that nobody ends: either end is interrupted in its middle, and both start again in
// either order.
TEST_F(FilesAgainTest, AfterAnInterruptionInTheMiddleBothStartAgain) {
  Start();
  for (const bool sender_ends : {true, false}) {
    for (const bool sender_first : {true, false}) {
      StartReceiver("/dev/null");
      StartSender("/dev/zero");
      const uint64_t before = node(1).admin().Status().bytes_received();
      ASSERT_TRUE(Await([&] { return node(1).admin().Status().bytes_received() > before + kMiB; }));
      Interrupt(sender_ends ? sender_ : receiver_);
      EXPECT_EQ((sender_ends ? receiver_ : sender_)->Wait(), std::optional<int>(1)) << Output();
      if (sender_first) {
        StartSender(in_);
        ASSERT_TRUE(Waits(0, "the-file#file"));
        StartReceiver(out_);
      } else {
        StartReceiver(out_);
        ASSERT_TRUE(Waits(1, "the-file#file"));
        StartSender(in_);
      }
      ExpectFileArrives();
    }
  }
}

// The receiver has all that it needs to begin and is stopped; the sender dies, and another one
// comes before the receiver asks for what the first had promised.
TEST_F(FilesAgainTest, AReceiverDoesNotTakeThePromiseOfTheNextSender) {
  Start();
  StartReceiver(out_);
  ASSERT_TRUE(Waits(1, "the-file#file"));
  receiver_->Signal(SIGSTOP);
  StartSender(in_);
  ASSERT_TRUE(Await([&] { return node(1).admin().Status().transfers_ok() == 1; }));
  Interrupt(sender_);
  ASSERT_TRUE(NothingOffered(1));
  StartSender(in_);
  ASSERT_TRUE(Await([&] { return absl::StrContains(node(1).admin().Dump(), "offers waiting 2"); }));
  receiver_->Signal(SIGCONT);
  EXPECT_EQ(receiver_->Wait(), std::optional<int>(1)) << Output();
  EXPECT_THAT(ReadFile(directory_ / "recv.out"), HasSubstr("the sender ended before it had sent"));
  StartReceiver(out_);
  ExpectFileArrives();
}

TEST_F(FilesAgainTest, ASenderDoesNotTakeThePromiseOfTheNextReceiver) {
  Start();
  StartSender(in_);
  ASSERT_TRUE(Waits(0, "the-file#file"));
  sender_->Signal(SIGSTOP);
  StartReceiver(out_);
  ASSERT_TRUE(Waits(1, "the-file#met@"));
  Interrupt(receiver_);
  ASSERT_TRUE(NothingOffered(0));
  StartReceiver(out_);
  ASSERT_TRUE(Waits(1, "the-file#file"));
  ASSERT_TRUE(Await([&] { return absl::StrContains(node(0).admin().Dump(), "offers waiting 1"); }));
  sender_->Signal(SIGCONT);
  EXPECT_EQ(sender_->Wait(), std::optional<int>(1)) << Output();
  EXPECT_THAT(ReadFile(directory_ / "send.out"),
              HasSubstr("the receiver ended before it had taken"));
  StartSender(in_);
  ExpectFileArrives();
}

// Ends of another version are told so, by whatever of them that version asks for.
TEST_F(FilesAgainTest, ASenderOfAnotherVersionHearsIt) {
  Start();
  StartReceiver(out_);
  End sender = OpenEnd(0, 4096);
  const std::string head = OfVersion(3, tools::EncodePreamble({.id = 7}));
  memcpy(sender.arena.data(), head.data(), head.size());
  Batch sent = Must(
      sender.session.Send(0, {Transfer(2, "the-file#file", {sender.arena.Range(0, head.size())})}));
  EXPECT_THAT(sent.Wait(kSoon), IsOk());
  Batch received = Must(sender.session.Receive(0, {Transfer(2, "the-file#received", {})}));
  const char* const why =
      "version 3, this ferryctl knows 4: both ends need a ferryctl of one release";
  const Status told = received.Wait(kSoon);
  EXPECT_EQ(told.reason(), "POISONED");
  EXPECT_THAT(std::string(told.message()),
              AllOf(HasSubstr("the receiver gave up: "), HasSubstr(why)));
  EXPECT_EQ(receiver_->Wait(), std::optional<int>(1));
  EXPECT_THAT(Output(), HasSubstr(why));
}

TEST_F(FilesAgainTest, ASenderHearsOfAReceiverOfAnotherVersion) {
  Start();
  End receiver = OpenEnd(1, 4096);
  Transfer later(0, "the-file#received");
  later.defined_at = Transfer::DefinedAt{1, 1};
  PostOptions own_counter;  // it waits longer than what comes after it
  own_counter.over_timeline = 1;
  Batch promise = Must(receiver.session.Send(2, {later}, own_counter));
  Batch head = Must(receiver.session.Receive(
      2, {Transfer(0, "the-file#file", {receiver.arena.Range(0, tools::kPreambleBytes)})}));
  StartSender(in_);
  EXPECT_THAT(head.Wait(kSoon), IsOk());
  EXPECT_THAT(promise.Poison("the receiver gave up: its version is another one"), IsOk());
  EXPECT_EQ(sender_->Wait(), std::optional<int>(1));
  EXPECT_THAT(Output(), HasSubstr("the receiver gave up: its version is another one"));
}

}  // namespace
}  // namespace ferry::testing
