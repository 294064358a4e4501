// SPDX-License-Identifier: Apache-2.0
// ferryctl send and recv: files through two daemons, and what goes wrong with them.
#include <signal.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

using ::testing::HasSubstr;

class FilesTest : public ClusterTest {
 protected:
  // ferryctl send on the first node to device 2 and recv on the second from device 0, both at once.
  void Move(const std::string& from, const std::string& to, std::vector<std::string> more = {}) {
    const auto options = [&](size_t i, const char* verb, const std::string& file) {
      SpawnOptions spawn;
      spawn.arguments = {FerryctlProgram(),
                         "--runtime-dir",
                         node(i).runtime_dir(),
                         verb,
                         file,
                         i == 0 ? "--to" : "--from",
                         i == 0 ? "2" : "0",
                         "--key",
                         "the-file"};
      spawn.arguments.insert(spawn.arguments.end(), more.begin(), more.end());
      spawn.output = directory_ / absl::StrCat(verb, ".out");
      return spawn;
    };
    std::filesystem::remove(directory_ / "send.out");
    std::filesystem::remove(directory_ / "recv.out");
    Process receiver(options(1, "recv", to));
    Process sender(options(0, "send", from));
    sent_ = sender.Wait();
    if (sent_ != 0) receiver.Signal(SIGTERM);
    received_ = receiver.Wait();
  }
  std::string Output() const {
    return ReadFile(directory_ / "send.out") + ReadFile(directory_ / "recv.out");
  }
  std::string Bytes(uint64_t count) {
    std::string bytes(count, '\0');
    FillPattern(bytes.data(), count, count);
    return bytes;
  }
  TemporaryDirectory directory_;
  std::optional<int> sent_, received_;
};

TEST_F(FilesTest, AnyFileArrivesAsItWas) {
  Start();
  for (const uint64_t size : {uint64_t{0}, uint64_t{1}, uint64_t{70'001}, 9 * kMiB + 3}) {
    const std::string bytes = Bytes(size);
    WriteFile(directory_ / "in.bin", bytes);
    Move(directory_ / "in.bin", directory_ / "out.bin");
    ASSERT_EQ(sent_, std::optional<int>(0)) << size << "\n" << Output();
    ASSERT_EQ(received_, std::optional<int>(0)) << size << "\n" << Output();
    EXPECT_TRUE(ReadFile(directory_ / "out.bin") == bytes) << size;
  }
}

TEST_F(FilesTest, EveryRouteCanBeAskedFor) {
  Start();
  WriteFile(directory_ / "in.bin", Bytes(300'000));
  for (const char* route : {"mapped", "ucx"}) {
    Move(directory_ / "in.bin", directory_ / "out.bin", {"--route", route});
    ASSERT_EQ(sent_, std::optional<int>(0)) << Output();
    ASSERT_EQ(received_, std::optional<int>(0)) << Output();
    EXPECT_THAT(Output(), HasSubstr(route));
    EXPECT_TRUE(ReadFile(directory_ / "out.bin") == Bytes(300'000));
  }
}

std::string Safetensors(const std::string& header, const std::string& data) {
  std::string file(8, '\0');
  const uint64_t size = header.size();
  memcpy(file.data(), &size, 8);
  return file + header + data;
}

TEST_F(FilesTest, ACheckpointTravelsTensorByTensor) {
  Start();
  const std::string file = Safetensors(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[10,100],"data_offsets":[0,2000]},)"
      R"("b":{"dtype":"F32","shape":[],"data_offsets":[2000,2004]},"c":{"dtype":"I64","shape":[0],"data_offsets":[2004,2004]}})",
      Bytes(2004));
  WriteFile(directory_ / "in.safetensors", file);
  Move(directory_ / "in.safetensors", directory_ / "out.safetensors");
  ASSERT_EQ(sent_, std::optional<int>(0)) << Output();
  ASSERT_EQ(received_, std::optional<int>(0)) << Output();
  EXPECT_TRUE(ReadFile(directory_ / "out.safetensors") == file);
  // Preamble, header and three tensors at each end.
  EXPECT_EQ(node(0).admin().Status().transfers_ok(), 5u);
}

TEST_F(FilesTest, AMalformedHeaderIsRefusedBeforeAnythingIsPosted) {
  Start();
  const std::string bad[] = {
      "short", Safetensors("not json", ""),
      Safetensors(R"({"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,3]}})", "abc"),
      Safetensors(R"({"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}})", ""),
      Safetensors("{}", "").replace(0, 8, "\xff\xff\xff\xff\xff\xff\xff\x7f", 8)};
  for (const std::string& file : bad) {
    WriteFile(directory_ / "in.safetensors", file);
    const Finished sent = RunProgram({FerryctlProgram(), "--runtime-dir", node(0).runtime_dir(),
                                      "send", directory_ / "in.safetensors", "--to", "2"});
    EXPECT_EQ(sent.status, 1) << sent.output;
    EXPECT_THAT(sent.output, HasSubstr("malformed safetensors header"));
  }
  EXPECT_EQ(node(0).admin().Status().transfers_failed(), 0u);
}

TEST_F(FilesTest, ExitStatusesMeanSomething) {
  Start({.nodes = 1});
  WriteFile(directory_ / "in.bin", "bytes");
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {FerryctlProgram(), "--runtime-dir", node(0).runtime_dir()});
    return RunProgram(arguments).status;
  };
  EXPECT_EQ(run({"frobnicate"}), 2);
  EXPECT_EQ(run({"send"}), 2);
  EXPECT_EQ(run({"send", directory_ / "none.bin", "--to", "1"}), 3);
  EXPECT_EQ(run({"send", directory_ / "in.bin", "--to", "55"}), 3);
  EXPECT_EQ(run({"send", directory_ / "in.bin", "--to", "1", "--deadline", "100ms"}), 1);
  EXPECT_EQ(
      RunProgram({FerryctlProgram(), "--runtime-dir", directory_ / "nowhere", "status"}).status, 4);
  EXPECT_EQ(RunProgram({FerryctlProgram(), "--runtime-dir", directory_ / "nowhere", "send",
                        directory_ / "in.bin", "--to", "1"})
                .status,
            4);
}

// One daemon, two of its devices.
TEST_F(FilesTest, WithinOneDaemon) {
  Start({.nodes = 1});
  WriteFile(directory_ / "in.bin", Bytes(100'000));
  SpawnOptions receive;
  receive.arguments = {FerryctlProgram(), "--runtime-dir", node(0).runtime_dir(), "recv",
                       directory_ / "out.bin"};
  for (const char* more : {"--from", "0", "--to", "1", "--key", "f"})
    receive.arguments.emplace_back(more);
  receive.output = directory_ / "recv.out";
  Process receiver(receive);
  const Finished sent =
      RunProgram({FerryctlProgram(), "--runtime-dir", node(0).runtime_dir(), "send",
                  directory_ / "in.bin", "--to", "1", "--from", "0", "--key", "f"});
  EXPECT_EQ(sent.status, 0) << sent.output;
  EXPECT_EQ(receiver.Wait(), std::optional<int>(0)) << ReadFile(receive.output);
  EXPECT_TRUE(ReadFile(directory_ / "out.bin") == Bytes(100'000));
}

}  // namespace
}  // namespace ferry::testing
