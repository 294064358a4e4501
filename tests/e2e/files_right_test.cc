// SPDX-License-Identifier: Apache-2.0
// ferryctl send and recv: that a file is the one that was sent, whatever else goes on, and what is
// said of one that cannot be put where it should be.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/fd.h"
#include "tests/e2e/files_fixture.h"
#include "tools/ferryctl/file_protocol.h"

namespace ferry::testing {
namespace {

using ::testing::HasSubstr;

class FilesRightTest : public FilesTest {
 protected:
  // Eight tensors t0 to t7 of 8 MiB, so that they do not fit a ring at once.
  static std::string Checkpoint(uint64_t seed) {
    constexpr uint64_t kEach = 8 * kMiB;
    std::string json = "{";
    for (int i = 0; i < 8; ++i) {
      absl::StrAppend(&json, i == 0 ? "" : ",", "\"t", i, "\":{\"dtype\":\"U8\",\"shape\":[", kEach,
                      "],\"data_offsets\":[", i * kEach, ",", (i + 1) * kEach, "]}");
    }
    std::string data(8 * kEach, '\0');
    FillPattern(data.data(), data.size(), seed);
    return Safetensors(json + "}", data);
  }
  // A hundred of them, where so many transfers may be in flight.
  void MoveManyTensors(int limit) {
    ClusterOptions options;
    options.limits = absl::StrCat("transfers_in_flight: ", limit);
    Start(options);
    std::string json = "{";
    for (int i = 0; i < 100; ++i) {
      absl::StrAppend(&json, i == 0 ? "" : ",", "\"t", i,
                      R"(":{"dtype":"U8","shape":[1],"data_offsets":[)", i, ",", i + 1, "]}");
    }
    const std::string file = Safetensors(json + "}", Bytes(100));
    WriteFile(directory_ / "in.safetensors", file);
    Move(directory_ / "in.safetensors", directory_ / "out");
    EXPECT_EQ(sent_, std::optional<int>(0)) << Output();
    EXPECT_EQ(received_, std::optional<int>(0)) << Output();
    EXPECT_TRUE(ReadFile(directory_ / "out") == file);
  }
  Process Ferryctl(size_t at, const std::string& verb, const std::string& file,
                   const std::string& key, const std::vector<std::string>& more = {}) {
    SpawnOptions spawn;
    spawn.arguments = {FerryctlProgram(),
                       "--runtime-dir",
                       node(at).runtime_dir(),
                       verb,
                       file,
                       at == 0 ? "--to" : "--from",
                       at == 0 ? "2" : "0",
                       "--key",
                       key};
    spawn.arguments.insert(spawn.arguments.end(), more.begin(), more.end());
    spawn.output = directory_ / (key + verb);
    return Process(spawn);
  }
};

// The first one is in the middle: its sender has posted tensors that its receiver has not asked for
// yet, since nobody reads what that writes.
TEST_F(FilesRightTest, TwoCheckpointsOfOneModelGoBetweenTwoDevicesAtATime) {
  Start();
  const std::string first = Checkpoint(1), second = Checkpoint(2);
  WriteFile(directory_ / "1.safetensors", first);
  WriteFile(directory_ / "2.safetensors", second);
  const std::string pipe = directory_ / "pipe";
  FERRY_CHECK(mkfifo(pipe.c_str(), 0600) == 0);
  UniqueFd reader(open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  Process first_recv = Ferryctl(1, "recv", pipe, "step-1");
  Process first_send = Ferryctl(0, "send", directory_ / "1.safetensors", "step-1");
  ASSERT_TRUE(Await([&] {
    size_t waiting = 0;
    const auto rows = node(0).admin().Transfers();
    for (const auto& row : rows.transfers()) waiting += row.key().starts_with("'t") ? 1 : 0;
    return waiting > 0;
  }));
  Process second_recv = Ferryctl(1, "recv", directory_ / "2.out", "step-2", {"--checksum"});
  Process second_send = Ferryctl(0, "send", directory_ / "2.safetensors", "step-2", {"--checksum"});
  EXPECT_EQ(second_send.Wait(), std::optional<int>(0)) << ReadFile(directory_ / "step-2send");
  EXPECT_EQ(second_recv.Wait(), std::optional<int>(0)) << ReadFile(directory_ / "step-2recv");
  EXPECT_TRUE(ReadFile(directory_ / "2.out") == second);
  fcntl(reader.get(), F_SETFL, 0);
  std::string got(first.size() + 1, '\0');
  size_t have = 0;
  for (ssize_t more = 1; more > 0 && have < got.size();) {
    more = read(reader.get(), got.data() + have, got.size() - have);
    if (more > 0) have += more;
  }
  got.resize(have);
  EXPECT_TRUE(got == first);
  EXPECT_EQ(first_send.Wait(), std::optional<int>(0)) << ReadFile(directory_ / "step-1send");
  EXPECT_EQ(first_recv.Wait(), std::optional<int>(0)) << ReadFile(directory_ / "step-1recv");
}

// What each of these is read as SafetensorsTest says.
TEST_F(FilesRightTest, WhatTheReferenceReadsArrives) {
  Start();
  const std::string file =
      Safetensors(R"({"__metadata__":null,"":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},)"
                  R"("a":{"dtype":"U8","shape":[5],"data_offsets":[5,10],"more":{"deep":[[[1]]]}},)"
                  R"("b":{"dtype":"Q7","shape":[3],"data_offsets":[10,15]}})",
                  "bytes of three.");
  WriteFile(directory_ / "in.safetensors", file);
  Move(directory_ / "in.safetensors", directory_ / "out");
  EXPECT_EQ(sent_, std::optional<int>(0)) << Output();
  EXPECT_EQ(received_, std::optional<int>(0)) << Output();
  EXPECT_TRUE(ReadFile(directory_ / "out") == file);
}

TEST_F(FilesRightTest, MoreTensorsThanMayBeInFlightGoInParts) { MoveManyTensors(40); }
TEST_F(FilesRightTest, TensorsGoOneByOneIfTheyMust) { MoveManyTensors(4); }

TEST_F(FilesRightTest, TheSendersSumIsCompared) {
  EXPECT_THAT(RunProgram({FerryctlProgram(), "send", "--help"}).output,
              HasSubstr("recv compares it with its own"));
  Start();
  StartReceiver(directory_ / "out");
  End sender = OpenEnd(0, 4096);
  tools::Preamble preamble{tools::FileKind::kRaw, 0, 5, 7, /*summed=*/true};
  char* const data = static_cast<char*>(sender.arena.data());
  const std::string head = tools::EncodePreamble(preamble);
  memcpy(data, head.data(), head.size());
  memcpy(data + 1024, "bytes", 5);
  memset(data + 2048, '0', tools::kSumBytes);
  Batch sent = Must(sender.session.Send(
      0,
      {Transfer(2, tools::SentKey("the-file", 7), {}),
       Transfer(2, "the-file#file", {sender.arena.Range(0, head.size())}),
       Transfer(2, "the-file#0@0000000000000007", {sender.arena.Range(1024, 5)}),
       Transfer(2, tools::SumKey("the-file", 7), {sender.arena.Range(2048, tools::kSumBytes)})}));
  Batch met = Must(sender.session.Receive(0, {Transfer(2, tools::MetKey("the-file", 7), {})}));
  EXPECT_EQ(receiver_->Wait(), std::optional<int>(1)) << Output();
  EXPECT_THAT(Output(), HasSubstr("DATA_LOSS: receive "));
  EXPECT_THAT(Output(), HasSubstr("that of what was sent is 000000"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "out"));
  EXPECT_THAT(sent.Wait(kSoon), IsOk());
}

// Before any byte has moved, to both ends, and with a word for what to mend.
TEST_F(FilesRightTest, WhereAFileCannotBePutIsToldToBothAtOnce) {
  Start();
  WriteFile(directory_ / "in.bin", Bytes(100'000));
  WriteFile(directory_ / "file", "a file");
  std::filesystem::create_symlink("loop", directory_ / "loop");
  const struct {
    std::string to;
    std::string says;
    int status;
  } cases[] = {
      {directory_ / "file/out", "INVALID_ARGUMENT FIELD_INVALID: create ", 1},
      {directory_ / "loop", "INVALID_ARGUMENT FIELD_INVALID: create ", 1},
      {directory_ / std::string(300, 'n'), "INVALID_ARGUMENT FIELD_INVALID: create ", 1},
      {directory_ / "none/out", "NOT_FOUND FIELD_INVALID: create ", 3},
      {directory_.path(), "exists and is not a regular file", 1},
  };
  for (const auto& c : cases) {
    StartSender(directory_ / "in.bin");
    ASSERT_TRUE(Await(
        [&] { return node(1).admin().Dump().find("offers waiting 2") != std::string::npos; }));
    StartReceiver(c.to);
    EXPECT_EQ(receiver_->Wait(), std::optional<int>(c.status)) << c.to << Output();
    EXPECT_THAT(ReadFile(directory_ / "recv.out"), HasSubstr(c.says)) << c.to;
    EXPECT_EQ(sender_->Wait(), std::optional<int>(1)) << c.to << Output();
    EXPECT_THAT(ReadFile(directory_ / "send.out"), HasSubstr("the receiver gave up: create "));
  }
  // What is to be replaced is where another file system is mounted.
  const std::string mounted = absl::StrCat("mount --bind ", directory_ / "in.bin", " ",
                                           directory_ / "file", " && exec \"$@\"");
  StartSender(directory_ / "in.bin");
  StartReceiver(directory_ / "file", {},
                {"/usr/bin/unshare", "-m", "/bin/sh", "-c", mounted, "sh"});
  EXPECT_EQ(receiver_->Wait(), std::optional<int>(1)) << Output();
  EXPECT_EQ(sender_->Wait(), std::optional<int>(1)) << Output();
  EXPECT_THAT(Output(), HasSubstr("the receiver gave up: create "));
  EXPECT_THAT(Output(), HasSubstr("is a mount point"));
  EXPECT_EQ(ReadFile(directory_ / "file"), "a file");
}

// Not even root replaces it, and says so before any byte has moved.
TEST_F(FilesRightTest, WhatIsImmutableIsNotReplaced) {
  Start();
  WriteFile(directory_ / "in.bin", Bytes(100'000));
  WriteFile(directory_ / "file", "a file");
  const UniqueFd file(open((directory_ / "file").c_str(), O_RDONLY | O_CLOEXEC));
  for (const int flag : {FS_IMMUTABLE_FL, FS_APPEND_FL}) {
    int before = 0;
    ioctl(file.get(), FS_IOC_GETFLAGS, &before);
    const int after = before | flag;
    if (ioctl(file.get(), FS_IOC_SETFLAGS, &after) != 0) {
      GTEST_SKIP() << "make " << (directory_ / "file") << " immutable: " << strerror(errno);
    }
    StartSender(directory_ / "in.bin");
    StartReceiver(directory_ / "file");
    EXPECT_EQ(receiver_->Wait(), std::optional<int>(5)) << Output();
    EXPECT_EQ(sender_->Wait(), std::optional<int>(1)) << Output();
    ASSERT_EQ(ioctl(file.get(), FS_IOC_SETFLAGS, &before), 0) << strerror(errno);
    EXPECT_THAT(ReadFile(directory_ / "recv.out"), HasSubstr("PERMISSION_DENIED NOT_ALLOWED"));
    EXPECT_THAT(ReadFile(directory_ / "send.out"), HasSubstr("the receiver gave up: create "));
    EXPECT_THAT(Output(), HasSubstr("it is immutable or append-only; `chattr -i -a`"));
    EXPECT_EQ(ReadFile(directory_ / "file"), "a file");
  }
}

TEST_F(FilesRightTest, ALongNameIsNoHindrance) {
  Start();
  WriteFile(directory_ / "in.bin", Bytes(100'000));
  Move(directory_ / "in.bin", directory_ / std::string(255, 'n'));
  EXPECT_EQ(received_, std::optional<int>(0)) << Output();
  EXPECT_TRUE(ReadFile(directory_ / std::string(255, 'n')) == Bytes(100'000));
}

TEST_F(FilesRightTest, NoProcIsNoHindrance) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer itself needs /proc";
#endif
  Start();
  WriteFile(directory_ / "in.bin", Bytes(100'000));
  // Without /proc the loader cannot tell where a program is, so it finds libraries that are not in
  // its own folders, as those of a build, only where it is told to look.
  StartReceiver(
      directory_ / "out", {},
      {"/usr/bin/unshare", "-m", "/bin/sh", "-c",
       "mount -t tmpfs none /proc && LD_LIBRARY_PATH=\"${1%/bin/*}/lib\" exec \"$@\"", "sh"});
  StartSender(directory_ / "in.bin");
  EXPECT_EQ(sender_->Wait(), std::optional<int>(0)) << Output();
  EXPECT_EQ(receiver_->Wait(), std::optional<int>(0)) << Output();
  EXPECT_TRUE(ReadFile(directory_ / "out") == Bytes(100'000));
}

// To one's own device: it works if somebody receives, and who waits is told how.
TEST_F(FilesRightTest, ADeviceMaySendToItself) {
  Start({.nodes = 1});
  WriteFile(directory_ / "in.bin", Bytes(100'000));
  SpawnOptions spawn;
  spawn.arguments = {FerryctlProgram(),
                     "--runtime-dir",
                     node(0).runtime_dir(),
                     "send",
                     directory_ / "in.bin",
                     "--from",
                     "0",
                     "--to",
                     "0"};
  spawn.output = directory_ / "send.out";
  Process sender(spawn);
  ASSERT_TRUE(Await([&] {
    return absl::StrContains(Output(),
                             "waits for the receiver: key 'in.bin' from device 0 at node-a "
                             "to device 0 at node-a, by `ferryctl recv FILE --from 0 --to "
                             "0 --key in.bin` here (both ends are the same device)\n");
  })) << Output();
  const Finished received =
      RunProgram({FerryctlProgram(), "--runtime-dir", node(0).runtime_dir(), "recv",
                  directory_ / "out", "--from", "0", "--to", "0", "--key", "in.bin"});
  EXPECT_EQ(received.status, 0) << received.output;
  EXPECT_EQ(sender.Wait(), std::optional<int>(0)) << Output();
  EXPECT_TRUE(ReadFile(directory_ / "out") == Bytes(100'000));
}

}  // namespace
}  // namespace ferry::testing
