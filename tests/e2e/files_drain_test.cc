// SPDX-License-Identifier: Apache-2.0
// ferryctl send and recv while a daemon drains: a file that is under way comes to its end, or is
// told why it does not.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/fd.h"
#include "tests/e2e/files_fixture.h"
#include "tools/ferryctl/file_protocol.h"

namespace ferry::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// At the sender's node, at the receiver's, or at both.
class FilesDrainTest : public FilesTest, public ::testing::WithParamInterface<std::vector<size_t>> {
 protected:
  // More than all that either end posts ahead of what the other has taken.
  static constexpr uint64_t kLong = 80 * kMiB;

  FilesDrainTest() : pipe_(directory_ / "pipe") {
    FERRY_CHECK(mkfifo(pipe_.c_str(), 0600) == 0);
    pipe_end_ = UniqueFd(open(pipe_.c_str(), O_RDWR | O_CLOEXEC));
  }
  std::string DrainOutput(size_t i) const { return directory_ / absl::StrCat("drain.", i); }
  // Until it has begun and, if there are two, the other node knows.
  void StartDrain(size_t i, const std::string& timeout) {
    SpawnOptions spawn;
    spawn.arguments = {FerryctlProgram(), "--runtime-dir", node(i).runtime_dir(),
                       "--timeout",       timeout,         "drain"};
    spawn.output = DrainOutput(i);
    drains_.emplace(i, spawn);
    ASSERT_TRUE(Await([&] { return node(i).admin().Status().draining(); }));
    ASSERT_TRUE(Await([&] { return node(1 - i).admin().Status().peers(0).draining(); }));
  }
  void ExpectDrains(int exit_status) {
    for (auto& [i, drain] : drains_) {
      EXPECT_EQ(drain.Wait(), std::optional<int>(exit_status)) << ReadFile(DrainOutput(i));
    }
  }
  void ReadPipe(std::string& read, size_t bytes) {
    const size_t before = read.size();
    read.resize(before + bytes);
    for (size_t at = before; at < read.size();) {
      const ssize_t got = ::read(pipe_end_.get(), read.data() + at, read.size() - at);
      ASSERT_GT(got, 0);
      at += static_cast<size_t>(got);
    }
  }
  void WritePipe(absl::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t wrote = ::write(pipe_end_.get(), bytes.data(), bytes.size());
      ASSERT_GT(wrote, 0);
      bytes.remove_prefix(static_cast<size_t>(wrote));
    }
  }
  // A stream is under way whose sender waits until more is written to the pipe.
  void StartStream(absl::string_view first) {
    StartReceiver(directory_ / "out.bin");
    StartSender(pipe_);
    WritePipe(first);
    ASSERT_TRUE(
        Await([&] { return node(1).admin().Status().bytes_received() > tools::kPreambleBytes; }));
  }
  // A file is under way whose receiver waits until the pipe is read.
  void StartLongFile() {
    WriteFile(directory_ / "in.bin", Bytes(kLong));
    StartReceiver(pipe_);
    StartSender(directory_ / "in.bin", {"--checksum"});
    ReadPipe(read_, 1);
  }

  const std::string pipe_;
  UniqueFd pipe_end_;
  std::string read_;
  std::map<size_t, Process> drains_;
};

INSTANTIATE_TEST_SUITE_P(At, FilesDrainTest,
                         ::testing::Values(std::vector<size_t>{0}, std::vector<size_t>{1},
                                           std::vector<size_t>{0, 1}),
                         [](const auto& test) {
                           return test.param.size() == 2 ? std::string("Both")
                                  : test.param[0] == 0   ? std::string("Sender")
                                                         : std::string("Receiver");
                         });

TEST_P(FilesDrainTest, AFileThatIsUnderWayComesToItsEnd) {
  Start();
  StartLongFile();
  for (const size_t i : GetParam()) StartDrain(i, "2h");
  ReadPipe(read_, kLong - 1);
  EXPECT_EQ(sender_->Wait(), std::optional<int>(0)) << Output();
  EXPECT_EQ(receiver_->Wait(), std::optional<int>(0)) << Output();
  EXPECT_TRUE(read_ == Bytes(kLong));
  ExpectDrains(0);
}

// Whose end nobody knows: so it is not there before the drain.
TEST_P(FilesDrainTest, SoDoesAStream) {
  Start();
  const std::string bytes = Bytes(3 * kMiB);
  StartStream(absl::string_view(bytes).substr(0, kMiB));
  for (const size_t i : GetParam()) StartDrain(i, "2h");
  WritePipe(absl::string_view(bytes).substr(kMiB));
  pipe_end_.Reset();
  EXPECT_EQ(sender_->Wait(), std::optional<int>(0)) << Output();
  EXPECT_EQ(receiver_->Wait(), std::optional<int>(0)) << Output();
  EXPECT_TRUE(ReadFile(directory_ / "out.bin") == bytes);
  ExpectDrains(0);
}

TEST_P(FilesDrainTest, TheDeadlineCutsItAndAllAreToldSo) {
  Start();
  StartStream(Bytes(kMiB));
  if (GetParam().size() == 2) StartDrain(1, "2h");  // which has nothing to cut
  StartDrain(GetParam()[0], "300ms");
  EXPECT_EQ(drains_.at(GetParam()[0]).Wait(), std::optional<int>(6));
  EXPECT_EQ(sender_->Wait(), std::optional<int>(4)) << Output();
  EXPECT_EQ(receiver_->Wait(), std::optional<int>(4)) << Output();
  for (const char* output : {"send.out", "recv.out"}) {
    EXPECT_THAT(ReadFile(directory_ / output),
                AllOf(HasSubstr("UNAVAILABLE DRAINING"), HasSubstr("post again when it serves")));
  }
  if (GetParam().size() == 2) {
    EXPECT_EQ(drains_.at(1).Wait(), std::optional<int>(0));
  }
}

// Nothing is left for which the drain would wait until its deadline.
TEST_P(FilesDrainTest, AnEndThatDiesEndsItsDrainToo) {
  Start();
  StartLongFile();
  for (const size_t i : GetParam()) StartDrain(i, "2h");
  receiver_->Kill();
  EXPECT_EQ(sender_->Wait(), std::optional<int>(1)) << Output();
  EXPECT_THAT(ReadFile(directory_ / "send.out"), HasSubstr("the receiver ended before"));
  ExpectDrains(0);
}

}  // namespace
}  // namespace ferry::testing
