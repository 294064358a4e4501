// SPDX-License-Identifier: Apache-2.0
// ferryctl send and recv: files through two daemons, and what goes wrong with them.
#include <signal.h>

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

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
  // ferryctl recv on the second node from device 0.
  void StartReceiver(const std::string& to, const std::vector<std::string>& more = {},
                     std::vector<std::string> by = {}) {
    SpawnOptions spawn;
    spawn.arguments = std::move(by);
    const std::vector<std::string> receive = {
        FerryctlProgram(), "--runtime-dir", node(1).runtime_dir(), "recv", to, "--from", "0",
        "--key",           "the-file"};
    spawn.arguments.insert(spawn.arguments.end(), receive.begin(), receive.end());
    spawn.arguments.insert(spawn.arguments.end(), more.begin(), more.end());
    spawn.output = directory_ / "recv.out";
    receiver_.emplace(spawn);
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
  std::optional<Process> receiver_;
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
  Move(directory_ / "in.bin", directory_ / "out.bin");
  EXPECT_THAT(Output(), HasSubstr("mapped")) << "which nobody asked for";
  for (const char* route : {"mapped", "tcp"}) {
    Move(directory_ / "in.bin", directory_ / "out.bin", {"--route", route});
    ASSERT_EQ(sent_, std::optional<int>(0)) << Output();
    ASSERT_EQ(received_, std::optional<int>(0)) << Output();
    EXPECT_THAT(Output(), HasSubstr(route));
    EXPECT_TRUE(ReadFile(directory_ / "out.bin") == Bytes(300'000));
  }
}

TEST_F(FilesTest, WhoWaitsForTheOtherEndSaysSo) {
  Start();
  WriteFile(directory_ / "in.bin", Bytes(5000));
  StartReceiver(directory_ / "out.bin", {"--json"});
  ASSERT_TRUE(Await([&] {
    return absl::StrContains(Output(),
                             "waits for the sender: key 'the-file' from device 0 at node-a to "
                             "device 2 at node-b\n");
  })) << Output();
  SpawnOptions spawn;
  spawn.arguments = {FerryctlProgram(),
                     "--runtime-dir",
                     node(0).runtime_dir(),
                     "send",
                     directory_ / "in.bin",
                     "--to",
                     "2",
                     "--key",
                     "another-file"};
  spawn.output = directory_ / "send.out";
  Process sender(spawn);
  ASSERT_TRUE(Await([&] {
    return absl::StrContains(Output(),
                             "waits for the receiver: key 'another-file' from device 0 at node-a "
                             "to device 2 at node-b\n");
  })) << Output();
  sender.Kill();
  spawn.arguments.back() = "the-file";
  EXPECT_EQ(Process(spawn).Wait(), std::optional<int>(0)) << Output();
  EXPECT_EQ(receiver_->Wait(), std::optional<int>(0)) << Output();
  EXPECT_TRUE(ReadFile(directory_ / "out.bin") == Bytes(5000));
}

TEST_F(FilesTest, AWrongKeyIsToldAtTheDeadline) {
  Start();
  WriteFile(directory_ / "in.bin", "bytes");
  StartReceiver(directory_ / "out.bin", {"--deadline", "1s"});
  const Finished sent = RunProgram({FerryctlProgram(), "--runtime-dir", node(0).runtime_dir(),
                                    "send", directory_ / "in.bin", "--to", "2", "--key",
                                    "the-other-file", "--deadline", "1s"});
  EXPECT_NE(sent.status, 0);
  EXPECT_THAT(sent.output, HasSubstr("a receive of key 'the-file"));
  EXPECT_THAT(sent.output, HasSubstr("see `ferryctl flight diff`"));
  EXPECT_NE(receiver_->Wait(), std::optional<int>(0));
  EXPECT_THAT(Output(), HasSubstr("a send of key 'the-other-file"));
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
  EXPECT_EQ(run({"send", directory_ / "in.bin", "--to", "1", "--deadline", "100ms"}), 7);
  EXPECT_EQ(
      RunProgram({FerryctlProgram(), "--runtime-dir", directory_ / "nowhere", "status"}).status, 4);
  EXPECT_EQ(RunProgram({FerryctlProgram(), "--runtime-dir", directory_ / "nowhere", "send",
                        directory_ / "in.bin", "--to", "1"})
                .status,
            4);
}

TEST_F(FilesTest, OutputThatNobodyGetsIsAFailure) {
  Start({.nodes = 1});
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {"/bin/sh", "-c", "exec \"$@\" > /dev/full", "sh", FerryctlProgram(),
                      "--runtime-dir", node(0).runtime_dir()});
    return RunProgram(arguments);
  };
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"status"}, {"--json", "dump"}, {"flight", "dump"}}) {
    const Finished lost = run(command);
    EXPECT_EQ(lost.status, 1) << command[0];
    EXPECT_THAT(lost.output, HasSubstr("No space left on device")) << command[0];
  }
  const auto flight = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {FerryctlProgram(), "--runtime-dir", node(0).runtime_dir(), "flight"});
    return RunProgram(arguments);
  };
  EXPECT_EQ(flight({"dump", "-o", directory_ / "nowhere/a.flight"}).status, 3);
  ASSERT_EQ(flight({"dump", "-o", directory_ / "a.flight"}).status, 0);
  EXPECT_EQ(flight({"diff", directory_ / "none", directory_ / "a.flight"}).status, 3);
  const Finished folder = flight({"diff", directory_.path(), directory_ / "a.flight"});
  EXPECT_EQ(folder.status, 1);
  EXPECT_THAT(folder.output, HasSubstr("Is a directory"));
}

TEST_F(FilesTest, UsageErrorsNameWhatIsWrong) {
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), FerryctlProgram());
    return RunProgram(arguments);
  };
  const struct {
    std::vector<std::string> arguments;
    const char* says;
  } cases[] = {
      {{}, "a command is required"},
      {{"frobnicate"}, "there is no command 'frobnicate'"},
      {{"--frobnicate", "status"}, "--frobnicate"},
      {{"send", "f", "--to", "1", "--deadline", "0s"}, "--deadline"},
      {{"send", "f", "--to", "1", "--deadline", "soon"}, "--deadline"},
      {{"send", "f", "--to", "1", "--route", "pigeon"}, "--route"},
      {{"send", "f", "--to", "1", "--domain", std::string(33, 'd')}, "at most 32 bytes, not 33"},
      {{"recv", "f", "--from", "1", "--to", "-2"}, "0 to 9223372036854775807"},
      {{"bench", "latency", "--size", "large"}, "--size"},
      {{"bench", "latency", "--count", "0"}, "--count: '0' is not a whole number in 1 to 18446744"},
      {{"bench", "many-small", "--count", "-3"}, "--count: '-3' is not a whole number in 1 to "},
      {{"bench", "many-small", "--iterations", "many"}, "--iterations: 'many' is not"},
      {{"bench", "many-small", "--to", "-5"}, "--to: '-5' is not a whole number in 0 to "},
      {{"transfers", "--limit", "0"}, "1 to 4294967295"},
      {{"health", "--wait", "x"}, "--wait"},
      {{"--runtime-dir", std::string(120, 'r'), "status"}, "at most 107 are possible"},
      {{"--timeout", "x", "status"}, "--timeout"},
  };
  for (const auto& c : cases) {
    const Finished plain = run(c.arguments);
    EXPECT_EQ(plain.status, 2) << plain.output;
    EXPECT_THAT(plain.output, HasSubstr(c.says));
    std::vector<std::string> with_json = c.arguments;
    with_json.push_back("--json");
    const Finished json = run(with_json);
    EXPECT_EQ(json.status, 2) << json.output;
    EXPECT_THAT(json.output, ::testing::StartsWith(R"({"error":{"code":"INVALID_ARGUMENT",)"));
    EXPECT_THAT(json.output, HasSubstr(c.says));
  }
}

TEST_F(FilesTest, ErrorsSpeakOfTheFileAndAreToldOnce) {
  Start({.nodes = 1});
  WriteFile(directory_ / "in.bin", "bytes");
  const Finished refused = RunProgram({FerryctlProgram(), "--runtime-dir", node(0).runtime_dir(),
                                       "send", directory_ / "in.bin", "--to", "55"});
  const size_t said = refused.output.find("no node has device 55");
  EXPECT_NE(said, std::string::npos) << refused.output;
  EXPECT_EQ(refused.output.find("no node has device 55", said + 1), std::string::npos);
  EXPECT_THAT(refused.output, HasSubstr("'in.bin'"));
  EXPECT_THAT(refused.output, Not(HasSubstr("#preamble")));
  const Finished late =
      RunProgram({FerryctlProgram(), "--runtime-dir", node(0).runtime_dir(), "send",
                  directory_ / "in.bin", "--to", "1", "--deadline", "100ms"});
  EXPECT_THAT(late.output, HasSubstr("'in.bin'"));
  EXPECT_THAT(late.output, Not(HasSubstr("#preamble")));
  const Finished bench = RunProgram({FerryctlProgram(), "--runtime-dir", node(0).runtime_dir(),
                                     "bench", "latency", "--to", "77"});
  EXPECT_THAT(bench.output, HasSubstr("NOT_FOUND DEVICE_UNKNOWN: receiver: device 77"));
}

TEST_F(FilesTest, ABenchThatAsksForTooMuchSaysOfWhat) {
  ClusterOptions options;
  options.nodes = 1;
  options.more = "limits: { transfers_in_flight: 100 }\n";
  Start(options);
  const auto bench = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {FerryctlProgram(), "--runtime-dir", node(0).runtime_dir(), "bench"});
    const Finished refused = RunProgram(arguments);
    EXPECT_EQ(refused.status, 1) << refused.output;
    return refused.output;
  };
  EXPECT_THAT(bench({"many-small", "--count", "101"}),
              HasSubstr("RESOURCE_EXHAUSTED QUEUE_FULL: bench many-small: --count 101 at once, and "
                        "a session may have 100 transfers in flight (limits.transfers_in_flight)"));
  // 2^64 bytes and a few are not a few.
  EXPECT_THAT(bench({"many-small", "--size", "4GiB", "--count", "4294967297"}),
              HasSubstr("bench many-small: 4294967297 buffers of 4294967296 bytes are more than"));
  EXPECT_THAT(
      bench({"memcpy", "--size", "2097152TiB"}),
      HasSubstr("RESOURCE_EXHAUSTED DEVICE_MEMORY: bench memcpy: map 2305843009213693952 "));
}

// Neither waits for its deadline: the head's end is the data's too.
TEST_F(FilesTest, EndsThatInsistOnDifferentRoutesHearItAtOnce) {
  Start();
  WriteFile(directory_ / "in.bin", Bytes(1000));
  StartReceiver(directory_ / "out.bin", {"--route", "tcp"});
  const Finished sent =
      RunProgram({FerryctlProgram(), "--runtime-dir", node(0).runtime_dir(), "send",
                  directory_ / "in.bin", "--to", "2", "--key", "the-file", "--route", "mapped"});
  EXPECT_EQ(sent.status, 1);
  EXPECT_THAT(sent.output, HasSubstr("ROUTE_UNAVAILABLE"));
  EXPECT_EQ(receiver_->Wait(), std::optional<int>(1));
  EXPECT_THAT(Output(), HasSubstr("ROUTE_UNAVAILABLE"));
}

TEST_F(FilesTest, AReceiverThatCannotWriteDoesNotWaitForTheSender) {
  Start();
  StartReceiver(directory_ / "nowhere/out.bin");
  EXPECT_EQ(receiver_->Wait(), std::optional<int>(3));
  StartReceiver(directory_.path());
  EXPECT_EQ(receiver_->Wait(), std::optional<int>(1));
  EXPECT_THAT(Output(), HasSubstr("not a regular file"));
}

// The sender would wait for what nobody asks for.
TEST_F(FilesTest, ASenderHearsThatTheReceiversDiskIsFull) {
  Start();
  WriteFile(directory_ / "in.bin", Bytes(300'000));
  const std::string small = directory_ / "small";
  std::filesystem::create_directory(small);
  StartReceiver(small + "/out.bin", {},
                {"/usr/bin/unshare", "-m", "/bin/sh", "-c",
                 absl::StrCat("mount -t tmpfs -o size=64k none ", small, " && exec \"$@\""), "sh"});
  const Finished sent =
      RunProgram({FerryctlProgram(), "--runtime-dir", node(0).runtime_dir(), "send",
                  directory_ / "in.bin", "--to", "2", "--key", "the-file"});
  EXPECT_EQ(receiver_->Wait(), std::optional<int>(1));
  EXPECT_EQ(sent.status, 1) << sent.output << "\nthe receiver: " << Output();
  EXPECT_THAT(sent.output, HasSubstr("POISONED")) << "the receiver: " << Output();
  EXPECT_THAT(sent.output, HasSubstr("the receiver gave up: reserve 300000 bytes for "));
  EXPECT_THAT(Output(), HasSubstr("RESOURCE_EXHAUSTED: reserve 300000 bytes for "));
}

TEST_F(FilesTest, AnInterruptedReceiverLeavesNothing) {
  Start();
  WriteFile(directory_ / "out.bin", "what was there");
  StartReceiver(directory_ / "out.bin");
  ASSERT_TRUE(Await([&] { return node(1).admin().Count("waiting") == 1; }));
  receiver_->Kill();
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
    left.push_back(entry.path().filename());
  }
  EXPECT_THAT(left, ::testing::UnorderedElementsAre("out.bin", "recv.out"));
  EXPECT_EQ(ReadFile(directory_ / "out.bin"), "what was there");
}

// While it still reads its file: what it posted is poisoned.
TEST_F(FilesTest, ASenderThatDiesEarlyIsTold) {
  Start();
  WriteFile(directory_ / "in.bin", "");
  std::filesystem::resize_file(directory_ / "in.bin", 256 * kMiB);  // reading takes a while
  StartReceiver(directory_ / "out.bin");
  SpawnOptions spawn;
  spawn.arguments = {FerryctlProgram(),
                     "--runtime-dir",
                     node(0).runtime_dir(),
                     "send",
                     directory_ / "in.bin",
                     "--to",
                     "2",
                     "--key",
                     "the-file"};
  spawn.output = directory_ / "send.out";
  Process sender(spawn);
  ASSERT_TRUE(Await([&] {
    const auto rows = node(0).admin().Transfers();
    for (const auto& row : rows.transfers()) {
      if (absl::StrContains(row.key(), "the-file'")) return true;
    }
    return false;
  }));
  // Of a sender that dies before its node has a link nobody else can know.
  ASSERT_TRUE(nodes().AwaitLink(0, 1));
  sender.Kill();
  EXPECT_EQ(receiver_->Wait(), std::optional<int>(1));
  // Matched by then, or not yet.
  EXPECT_THAT(Output(), AnyOf(HasSubstr("POISONED"), HasSubstr("PEER_CLIENT_GONE")));
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
