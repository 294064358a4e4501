// SPDX-License-Identifier: Apache-2.0
// ferryctl send and recv: files through two daemons, what they cost, and what ferryctl says to bad
// usage.
#include <sys/stat.h>

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/e2e/files_fixture.h"
#include "tests/support/sanitizer.h"
#include "tools/ferryctl/file_protocol.h"
#include "tools/ferryctl/safetensors.h"

namespace ferry::testing {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using tools::kChunkBytes;
using tools::kFirstStreamBytes;
using tools::kTransferBytes;

TEST_F(FilesTest, AnyFileArrivesAsItWas) {
  Start();
  constexpr uint64_t kRing = 4 * kChunkBytes;
  for (const uint64_t size :
       {uint64_t{0}, uint64_t{1}, uint64_t{70'001}, kChunkBytes - 1, kChunkBytes, kChunkBytes + 1,
        kRing - 1, kRing, kRing + 1, 2 * kRing + 3}) {
    const std::string bytes = Bytes(size);
    WriteFile(directory_ / "in.bin", bytes);
    Move(directory_ / "in.bin", directory_ / "out.bin");
    ASSERT_EQ(sent_, std::optional<int>(0)) << size << "\n" << Output();
    ASSERT_EQ(received_, std::optional<int>(0)) << size << "\n" << Output();
    EXPECT_TRUE(ReadFile(directory_ / "out.bin") == bytes) << size;
  }
}

// "-" is standard input and output, and what ferryctl says is not in it.
TEST_F(FilesTest, StreamsArriveAsTheyWere) {
  Start();
  const std::string in = directory_ / "in.bin", out = directory_ / "out.bin";
  for (const uint64_t size : {uint64_t{0}, uint64_t{1}, kFirstStreamBytes - 1, kFirstStreamBytes,
                              kFirstStreamBytes + 1, 3 * kFirstStreamBytes, 5 * kChunkBytes + 3}) {
    const std::string bytes = Bytes(size);
    WriteFile(in, bytes);
    StartReceiver("-", {}, {"/bin/sh", "-c", absl::StrCat("exec \"$@\" > ", out), "sh"});
    StartSender("-", {}, {"/bin/sh", "-c", absl::StrCat("cat ", in, " | \"$@\""), "sh"});
    ASSERT_EQ(sender_->Wait(), std::optional<int>(0)) << size << "\n" << Output();
    ASSERT_EQ(receiver_->Wait(), std::optional<int>(0)) << size << "\n" << Output();
    EXPECT_TRUE(ReadFile(out) == bytes) << size;
    EXPECT_THAT(Output(), HasSubstr("received -, device 0 to device 2"));
  }
}

TEST_F(FilesTest, NamedPipesAreStreams) {
  Start();
  const std::string bytes = Bytes(300'000);
  const std::string in = directory_ / "in", out = directory_ / "out", got = directory_ / "got";
  ASSERT_EQ(mkfifo(in.c_str(), 0600), 0);
  ASSERT_EQ(mkfifo(out.c_str(), 0600), 0);
  WriteFile(directory_ / "in.bin", bytes);
  Process writer({{"/bin/sh", "-c", absl::StrCat("cat ", directory_ / "in.bin", " > ", in)}});
  Process reader({{"/bin/sh", "-c", absl::StrCat("cat ", out, " > ", got)}});
  Move(in, out);
  EXPECT_EQ(sent_, std::optional<int>(0)) << Output();
  EXPECT_EQ(received_, std::optional<int>(0)) << Output();
  EXPECT_EQ(reader.Wait(), std::optional<int>(0));
  EXPECT_TRUE(ReadFile(got) == bytes);
}

TEST_F(FilesTest, TheChecksumIsOfWhatMoved) {
  Start();
  const std::string in = directory_ / "in.safetensors";
  WriteFile(in, Safetensors(R"({"a":{"dtype":"U8","shape":[300000],"data_offsets":[0,300000]}})",
                            Bytes(300'000)));
  const Finished sum = RunProgram({"/usr/bin/sha256sum", in});
  ASSERT_EQ(sum.status, 0);
  const std::string says = absl::StrCat("\nsha256 ", sum.output.substr(0, 64), "\n");
  for (const char* raw : {"--checksum", "--raw"}) {
    StartReceiver(directory_ / "out.safetensors", {"--checksum"});
    StartSender(in, {"--checksum", raw});
    ASSERT_EQ(sender_->Wait(), std::optional<int>(0)) << Output();
    ASSERT_EQ(receiver_->Wait(), std::optional<int>(0)) << Output();
    EXPECT_THAT(ReadFile(directory_ / "send.out"), EndsWith(says));
    EXPECT_THAT(ReadFile(directory_ / "recv.out"), EndsWith(says));
  }
  StartReceiver("/dev/null", {"--checksum"});
  StartSender("-", {"--checksum"}, {"/bin/sh", "-c", absl::StrCat("cat ", in, " | \"$@\""), "sh"});
  ASSERT_EQ(sender_->Wait(), std::optional<int>(0)) << Output();
  ASSERT_EQ(receiver_->Wait(), std::optional<int>(0)) << Output();
  EXPECT_THAT(ReadFile(directory_ / "send.out"), EndsWith(says));
  EXPECT_THAT(ReadFile(directory_ / "recv.out"), EndsWith(says));
}

// Several times what an end may have.
TEST_F(FilesTest, MemoryDoesNotGrowWithTheFile) {
  Start();
  constexpr uint64_t kBytes = uint64_t{1} << 30;
  const std::string raw = directory_ / "in.bin", tensors = directory_ / "in.safetensors";
  WriteFile(raw, "");
  std::filesystem::resize_file(raw, kBytes);
  const std::string header = Safetensors(absl::StrCat(R"({"a":{"dtype":"U8","shape":[)", kBytes,
                                                      R"(],"data_offsets":[0,)", kBytes, "]}}"),
                                         "");
  WriteFile(tensors, header);
  std::filesystem::resize_file(tensors, header.size() + kBytes);
  for (const std::string& file : {raw, tensors}) {
    StartReceiver("/dev/null");
    StartSender(file);
    ASSERT_EQ(sender_->Wait(), std::optional<int>(0)) << Output();
    ASSERT_EQ(receiver_->Wait(), std::optional<int>(0)) << Output();
    EXPECT_LE(sender_->PeakMemory(), 320 * kMiB + kFreedAndKept) << file;
    EXPECT_LE(receiver_->PeakMemory(), 320 * kMiB + kFreedAndKept) << file;
  }
}

// The longest one that the format has, which is sent as it is, and the longest one that is read, of
// tensors as short as they can be beside some that are cut.
TEST_F(FilesTest, MemoryDoesNotGrowWithTheHeader) {
  Start();
  constexpr uint64_t kLong = 4 * kTransferBytes;
  std::string longest = R"({"__metadata__":{"a":")";
  longest.append(tools::kSafetensorsMaxHeaderBytes - longest.size() - 3, 'x').append("\"}}");
  std::string most = absl::StrCat(R"({"long":{"dtype":"U8","shape":[)", kLong,
                                  R"(],"data_offsets":[0,)", kLong, "]}");
  while (most.size() < tools::kLongestHeader - 80) {
    absl::StrAppend(&most, ",\"", most.size(),
                    R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})");
  }
  most += "}";
  const std::pair<std::string, uint64_t> files[] = {{longest, 0}, {most, kLong}};
  for (const auto& [header, bytes] : files) {
    const std::string file = Safetensors(header, "");
    WriteFile(directory_ / "in.safetensors", file);
    std::filesystem::resize_file(directory_ / "in.safetensors", file.size() + bytes);
    Move(directory_ / "in.safetensors", directory_ / "out.safetensors");
    ASSERT_EQ(sent_, std::optional<int>(0)) << Output();
    ASSERT_EQ(received_, std::optional<int>(0)) << Output();
    EXPECT_THAT(Output(), HasSubstr(bytes == 0 ? "BUFFERS" : "TENSORS"));
    EXPECT_LE(sender_->PeakMemory(), 320 * kMiB + kFreedAndKept) << bytes;
    EXPECT_LE(receiver_->PeakMemory(), 320 * kMiB + kFreedAndKept) << bytes;
    const Finished same =
        RunProgram({"/usr/bin/cmp", directory_ / "in.safetensors", directory_ / "out.safetensors"});
    EXPECT_EQ(same.status, 0) << same.output;
  }
}

// A ring of four such chunks would be more.
TEST_F(FilesTest, ASmallQuotaIsEnough) {
  ClusterOptions options;
  options.limits = absl::StrCat("session_bytes: ", kChunkBytes + 4096, "B");
  Start(options);
  const std::string bytes = Bytes(2 * kChunkBytes + 1);
  WriteFile(directory_ / "in.bin", bytes);
  Move(directory_ / "in.bin", directory_ / "out.bin");
  ASSERT_EQ(sent_, std::optional<int>(0)) << Output();
  ASSERT_EQ(received_, std::optional<int>(0)) << Output();
  EXPECT_TRUE(ReadFile(directory_ / "out.bin") == bytes);
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
                             "device 2 at node-b, by `ferryctl send FILE --from 0 --to 2 --key "
                             "the-file` there\n");
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
                             "to device 2 at node-b, by `ferryctl recv FILE --from 0 --to 2 --key "
                             "another-file` there\n");
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
  const Finished sent =
      RunProgram({FerryctlProgram(), "--runtime-dir", node(0).runtime_dir(), "send",
                  directory_ / "in.bin", "--to", "2", "--key", "the-file-2", "--deadline", "1s"});
  EXPECT_NE(sent.status, 0);
  EXPECT_THAT(sent.output, HasSubstr("a receive of key 'the-file"));
  EXPECT_THAT(sent.output, HasSubstr("see `ferryctl flight diff`"));
  EXPECT_NE(receiver_->Wait(), std::optional<int>(0));
  EXPECT_THAT(Output(), HasSubstr("a send of key 'the-file-2"));
}

// Files that somebody sent, and nobody has received, are no help to who waits for another one.
TEST_F(FilesTest, FilesOfSomethingElseAreNotNamed) {
  Start();
  WriteFile(directory_ / "in.bin", "bytes");
  SpawnOptions spawn;
  spawn.arguments = {FerryctlProgram(),
                     "--runtime-dir",
                     node(0).runtime_dir(),
                     "send",
                     directory_ / "in.bin",
                     "--to",
                     "2",
                     "--key",
                     "old-weights"};
  spawn.output = directory_ / "old.log";
  Process old(spawn);
  ASSERT_TRUE(Await([&] { return node(0).admin().Count("offered") > 1; }));
  StartReceiver(directory_ / "out.bin", {"--deadline", "2s"});
  EXPECT_NE(receiver_->Wait(), std::optional<int>(0));
  EXPECT_THAT(Output(), Not(HasSubstr("old-weights")));
  EXPECT_THAT(Output(), HasSubstr("other keys wait at node-a"));
  old.Kill();
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
  // Preamble, header, three tensors, and at each end two promises and what they begin with, two.
  EXPECT_EQ(node(0).admin().Status().transfers_ok(), 9u);
}

TEST_F(FilesTest, ALongTensorIsCut) {
  Start();
  const uint64_t bytes = kTransferBytes + 5;
  const std::string file = Safetensors(
      absl::StrCat(
          R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[)",
          bytes, R"(],"data_offsets":[3,)", 3 + bytes, "]}}"),
      Bytes(3 + bytes));
  WriteFile(directory_ / "in.safetensors", file);
  Move(directory_ / "in.safetensors", directory_ / "out.safetensors");
  ASSERT_EQ(sent_, std::optional<int>(0)) << Output();
  ASSERT_EQ(received_, std::optional<int>(0)) << Output();
  EXPECT_TRUE(ReadFile(directory_ / "out.safetensors") == file);
}

TEST_F(FilesTest, AMalformedHeaderIsRefusedBeforeAByteMoves) {
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
    EXPECT_THAT(sent.output, HasSubstr("--raw sends it as bytes"));
  }
  // Nothing was posted but the word for a receiver that might wait.
  EXPECT_EQ(node(0).admin().Status().transfers_ok(), 0u);
  EXPECT_EQ(node(1).admin().Status().bytes_received(), 0u);
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
      {{"trasfers"}, "there is no command 'trasfers' (did you mean 'transfers'?)"},
      {{"flight", "dmp"}, "there is no command 'flight dmp' (did you mean 'flight dump'?)"},
      {{"--frobnicate", "status"}, "--frobnicate"},
      {{"send", "f", "--to", "1", "--deadline", "0s"}, "--deadline"},
      {{"send", "f", "--to", "1", "--deadline", "soon"}, "--deadline"},
      {{"send", "f", "--to", "1", "--route", "pigeon"}, "--route"},
      {{"send", "f", "--to", "1", "--route", "maped"}, "(did you mean 'mapped'?)"},
      {{"bench", "lateny"},
       "'lateny' is none of latency, bandwidth, many-small, rate, memcpy (did you mean "
       "'latency'?)"},
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
  EXPECT_THAT(refused.output, Not(HasSubstr("#")));
  const Finished late =
      RunProgram({FerryctlProgram(), "--runtime-dir", node(0).runtime_dir(), "send",
                  directory_ / "in.bin", "--to", "1", "--deadline", "100ms"});
  EXPECT_THAT(late.output, HasSubstr("'in.bin'"));
  EXPECT_THAT(late.output, Not(HasSubstr("#")));
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
