// SPDX-License-Identifier: Apache-2.0
// ferryctl send and recv: what goes wrong at one end, and what the other hears of it.
#include <fcntl.h>
#include <sys/stat.h>

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/fd.h"
#include "tests/e2e/files_fixture.h"

namespace ferry::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kReceiverEnded[] =
    "ABORTED PEER_CLIENT_GONE: file 'the-file': the receiver ended before it had taken all of it";

class FilesEndTest : public FilesTest {
 protected:
  FilesEndTest() : pipe_(directory_ / "pipe") {
    FERRY_CHECK(mkfifo(pipe_.c_str(), 0600) == 0);
    writer_ = UniqueFd(open(pipe_.c_str(), O_RDWR | O_CLOEXEC));
  }
  // What runs the receiver so that `directory` has 64 KiB.
  static std::vector<std::string> SmallDisk(const std::string& directory) {
    std::filesystem::create_directory(directory);
    return {"/usr/bin/unshare",
            "-m",
            "/bin/sh",
            "-c",
            absl::StrCat("mount -t tmpfs -o size=64k none ", directory, " && exec \"$@\""),
            "sh"};
  }
  // The sender has offered its file and does nothing more, whatever the receiver does.
  void StartSenderAndStopIt(const std::string& file) {
    StartSender(file);
    ASSERT_TRUE(Waits(0, "the-file#file"));
    sender_->Signal(SIGSTOP);
  }
  // The receiver has the preamble: so its node counts it.
  bool AwaitMeeting() {
    return Await([&] { return node(1).admin().Status().transfers_ok() >= 1; });
  }
  void ExpectSenderHears(const std::string& text) {
    EXPECT_EQ(sender_->Wait(), std::optional<int>(1)) << Output();
    EXPECT_THAT(ReadFile(directory_ / "send.out"), HasSubstr(text)) << Output();
  }

  const std::string pipe_;
  UniqueFd writer_;  // to the pipe, which has no end as long as this is there
};

// Neither waits for its deadline: the preamble's end is the data's too.
TEST_F(FilesEndTest, EndsThatInsistOnDifferentRoutesHearItAtOnce) {
  Start();
  WriteFile(directory_ / "in.bin", Bytes(1000));
  StartReceiver(directory_ / "out.bin", {"--route", "tcp"});
  StartSender(directory_ / "in.bin", {"--route", "mapped"});
  ExpectSenderHears("ROUTE_UNAVAILABLE");
  EXPECT_EQ(receiver_->Wait(), std::optional<int>(1));
  EXPECT_THAT(ReadFile(directory_ / "recv.out"), HasSubstr("ROUTE_UNAVAILABLE"));
}

TEST_F(FilesEndTest, AReceiverThatCannotWriteDoesNotWaitForTheSender) {
  Start();
  StartReceiver(directory_ / "nowhere/out.bin");
  EXPECT_EQ(receiver_->Wait(), std::optional<int>(3));
}

// Whatever is wrong with its file, it is known before anything moves.
TEST_F(FilesEndTest, AReceiverThatWaitsHearsWhatTheSenderRefuses) {
  Start();
  WriteFile(directory_ / "no.safetensors", "short");
  WriteFile(directory_ / "bad.safetensors", Safetensors("{} x", ""));
  WriteFile(directory_ / "shape.safetensors",
            Safetensors(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}})", "1"));
  const std::pair<const char*, const char*> files[] = {
      {"nowhere.bin", "No such file or directory"},
      {".", "not a regular file"},
      {"no.safetensors", "fewer than the 8 of its length; --raw sends it as bytes"},
      {"bad.safetensors", "not valid JSON"},
      {"shape.safetensors", "dtype and shape need 2"}};
  for (const auto& [file, why] : files) {
    StartReceiver(directory_ / "out.bin");
    ASSERT_TRUE(Waits(1, "the-file#file"));
    StartSender(directory_ / file);
    EXPECT_NE(sender_->Wait(), std::optional<int>(0)) << Output();
    EXPECT_EQ(receiver_->Wait(), std::optional<int>(1)) << Output();
    EXPECT_THAT(ReadFile(directory_ / "send.out"), HasSubstr(why));
    EXPECT_THAT(ReadFile(directory_ / "recv.out"),
                AllOf(HasSubstr("POISONED"), HasSubstr("the sender gave up: "), HasSubstr(why)));
    EXPECT_FALSE(std::filesystem::exists(directory_ / "out.bin"));
  }
}

TEST_F(FilesEndTest, ASenderThatRefusesItsFileDoesNotWaitForAReceiver) {
  Start();
  StartSender(directory_ / "nowhere.bin");
  EXPECT_EQ(sender_->Wait(), std::optional<int>(3)) << Output();
}

TEST_F(FilesEndTest, ASenderHearsThatTheReceiversDiskIsFull) {
  Start();
  WriteFile(directory_ / "in.bin", Bytes(300'000));
  StartReceiver(directory_ / "small/out.bin", {}, SmallDisk(directory_ / "small"));
  StartSender(directory_ / "in.bin");
  ExpectSenderHears("POISONED");
  ExpectSenderHears("the receiver gave up: reserve 300000 bytes for ");
  EXPECT_EQ(receiver_->Wait(), std::optional<int>(1));
  EXPECT_THAT(ReadFile(directory_ / "recv.out"),
              HasSubstr("RESOURCE_EXHAUSTED: reserve 300000 bytes for "));
}

TEST_F(FilesEndTest, ASenderThatComesLateHearsItToo) {
  Start();
  WriteFile(directory_ / "in.bin", Bytes(300'000));
  StartSenderAndStopIt(directory_ / "in.bin");
  StartReceiver(directory_ / "small/out.bin", {}, SmallDisk(directory_ / "small"));
  EXPECT_EQ(receiver_->Wait(), std::optional<int>(1)) << Output();
  sender_->Signal(SIGCONT);
  ExpectSenderHears("the receiver gave up: reserve 300000 bytes for ");
}

// How long a stream is nobody knows beforehand.
TEST_F(FilesEndTest, ADiskThatIsFullInTheMiddleEndsAStream) {
  Start();
  StartReceiver(directory_ / "small/out.bin", {}, SmallDisk(directory_ / "small"));
  StartSender("/dev/zero");
  ExpectSenderHears("the receiver gave up: write ");
  ExpectSenderHears("No space left on device");
  EXPECT_EQ(receiver_->Wait(), std::optional<int>(1));
}

TEST_F(FilesEndTest, ASenderHearsThatNobodyReadsWhatIsReceived) {
  Start();
  StartReceiver("-", {}, {"/bin/sh", "-c", "\"$@\" | true", "sh"});
  StartSender("/dev/zero");
  ExpectSenderHears("the receiver gave up: write -: Broken pipe");
}

TEST_F(FilesEndTest, AQuotaThatIsTooSmallIsToldToBoth) {
  ClusterOptions options;
  options.limits = "session_bytes: 1MiB";
  Start(options);
  WriteFile(directory_ / "in.bin", Bytes(3 * kMiB));
  StartReceiver(directory_ / "out.bin");
  StartSender(directory_ / "in.bin");
  EXPECT_EQ(sender_->Wait(), std::optional<int>(1)) << Output();
  EXPECT_EQ(receiver_->Wait(), std::optional<int>(1)) << Output();
  EXPECT_THAT(Output(), HasSubstr("RESOURCE_EXHAUSTED QUOTA_BYTES"));
}

// The sender waits for its own pipe, and hears it all the same.
TEST_F(FilesEndTest, ASenderHearsThatTheReceiverWasKilled) {
  Start();
  StartReceiver(directory_ / "out.bin");
  StartSender(pipe_);
  ASSERT_TRUE(AwaitMeeting());
  receiver_->Kill();
  ExpectSenderHears(kReceiverEnded);
}

TEST_F(FilesEndTest, ASenderHearsThatTheReceiverWasKilledBeforeItPosted) {
  Start();
  WriteFile(directory_ / "in.bin", Bytes(300'000));
  StartSenderAndStopIt(directory_ / "in.bin");
  StartReceiver(directory_ / "out.bin");
  ASSERT_TRUE(AwaitMeeting());
  receiver_->Kill();
  sender_->Signal(SIGCONT);
  ExpectSenderHears(kReceiverEnded);
}

TEST_F(FilesEndTest, AnInterruptedReceiverLeavesNothing) {
  Start();
  WriteFile(directory_ / "out.bin", "what was there");
  StartReceiver(directory_ / "out.bin");
  ASSERT_TRUE(Waits(1, "the-file#file"));
  receiver_->Kill();
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
    left.push_back(entry.path().filename());
  }
  EXPECT_THAT(left, ::testing::UnorderedElementsAre("out.bin", "pipe", "recv.out"));
  EXPECT_EQ(ReadFile(directory_ / "out.bin"), "what was there");
}

// Of one that was there before nothing is believed: a note of it may still be at its peer.
TEST_F(FilesEndTest, AReceiverIsTakenForItselfAfterOneThatWasKilled) {
  Start();
  WriteFile(directory_ / "in.bin", Bytes(300'000));
  StartReceiver(directory_ / "out.bin");
  ASSERT_TRUE(Waits(1, "the-file#file"));
  ASSERT_TRUE(Await([&] { return absl::StrContains(node(0).admin().Dump(), "offers waiting 1"); }))
      << "of its promise";
  receiver_->Kill();
  StartSender(directory_ / "in.bin");
  ASSERT_TRUE(Waits(0, "the-file#file"));
  StartReceiver(directory_ / "out.bin");
  EXPECT_EQ(sender_->Wait(), std::optional<int>(0)) << Output();
  EXPECT_EQ(receiver_->Wait(), std::optional<int>(0)) << Output();
  EXPECT_TRUE(ReadFile(directory_ / "out.bin") == Bytes(300'000));
}

TEST_F(FilesEndTest, AReceiverHearsThatTheSenderWasKilled) {
  Start();
  StartReceiver(directory_ / "out.bin");
  StartSender(pipe_);
  ASSERT_TRUE(AwaitMeeting());
  sender_->Kill();
  EXPECT_EQ(receiver_->Wait(), std::optional<int>(1)) << Output();
  EXPECT_THAT(ReadFile(directory_ / "recv.out"),
              HasSubstr("ABORTED PEER_CLIENT_GONE: file 'the-file': the sender ended before it had "
                        "sent all of it"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "out.bin"));
}

// Between the preamble and its own promise: what it posts then has no link any more, and would wait
// for what the sender's next daemon knows nothing of.
TEST_F(FilesEndTest, AReceiverHearsThatTheSendersNodeWentWhileTheyMet) {
  Start();
  WriteFile(directory_ / "in.bin", Bytes(300'000));
  StartReceiver(directory_ / "out.bin");
  ASSERT_TRUE(Waits(1, "the-file#file"));
  receiver_->Signal(SIGSTOP);
  StartSender(directory_ / "in.bin");
  ASSERT_TRUE(AwaitMeeting());
  node(0).Kill();
  ASSERT_TRUE(Await([&] { return node(1).admin().Status().peers(0).state() == "lost"; }));
  receiver_->Signal(SIGCONT);
  EXPECT_EQ(sender_->Wait(), std::optional<int>(4)) << Output();
  EXPECT_EQ(receiver_->Wait(), std::optional<int>(4)) << Output();
  EXPECT_THAT(ReadFile(directory_ / "recv.out"), HasSubstr("UNAVAILABLE PEER_UNREACHABLE"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "out.bin"));
}

// Whichever of the promises it is that tells: who sends was not asked to receive anything.
TEST_F(FilesEndTest, ASenderHearsOfItsSendThatTheLinkWasLost) {
  Start();
  StartReceiver(directory_ / "out.bin");
  StartSender(pipe_);
  ASSERT_TRUE(AwaitMeeting());
  ASSERT_TRUE(Waits(0, "the-file#received@"));
  node(1).Kill();
  EXPECT_EQ(sender_->Wait(), std::optional<int>(4)) << Output();
  EXPECT_EQ(receiver_->Wait(), std::optional<int>(4)) << Output();
  EXPECT_THAT(ReadFile(directory_ / "send.out"),
              HasSubstr("UNAVAILABLE PEER_UNREACHABLE: the send of key 'the-file' from device 0 to "
                        "device 2: the link to node-b was lost"));
}

// The receiver's own promise is not told as a send of its own.
TEST_F(FilesEndTest, AReceiverHearsOfItsReceiveThatTheLinkWasLost) {
  Start();
  StartReceiver(directory_ / "out.bin");
  StartSender(pipe_);
  ASSERT_TRUE(AwaitMeeting());
  ASSERT_TRUE(Waits(1, "the-file#received@"));
  node(0).Kill();
  EXPECT_EQ(receiver_->Wait(), std::optional<int>(4)) << Output();
  EXPECT_THAT(ReadFile(directory_ / "recv.out"),
              HasSubstr("UNAVAILABLE PEER_UNREACHABLE: the receive of key 'the-file' from device 0 "
                        "to device 2: the link to node-a was lost"));
}

TEST_F(FilesEndTest, AReceiverHearsWhyTheSenderGaveUp) {
  Start();
  StartReceiver(directory_ / "out.bin");
  StartSender("-", {}, {"/bin/sh", "-c", "exec \"$@\" 0> /dev/null", "sh"});  // cannot be read
  EXPECT_EQ(sender_->Wait(), std::optional<int>(1)) << Output();
  EXPECT_EQ(receiver_->Wait(), std::optional<int>(1)) << Output();
  EXPECT_THAT(ReadFile(directory_ / "recv.out"),
              HasSubstr("the sender gave up: read -: Bad file descriptor"));
}

}  // namespace
}  // namespace ferry::testing
