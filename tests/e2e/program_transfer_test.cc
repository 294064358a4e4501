// SPDX-License-Identifier: Apache-2.0
// Jobs with transfers: 'scale, quantise to MXFP8, send' on one daemon and 'receive, dequantise,
// accumulate' on the other, joined by the daemons, with no memory beside what is sent; and what
// becomes of the one when the other fails.
#include <gmock/gmock.h>

#include <cstring>

#include "ferry/program.hpp"
#include "tests/support/await.h"
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kNumbers = 1024;
constexpr uint64_t kNumberBytes = kNumbers * sizeof(float);
constexpr uint64_t kQuantised = kNumbers;
constexpr uint64_t kScales = kNumbers / 32;
// In the arena of either end: the numbers, then what is sent.
constexpr uint64_t kWire = kNumberBytes;

std::string Text(const char* name) {
  return ReadFile(std::string(FERRY_SOURCE "/docs/programs/") + name + ".program");
}

class ProgramTransferTest : public ClusterTest {
 protected:
  void Open() {
    Start();
    source_ = OpenEnd(0, kNumberBytes + kQuantised + kScales, 0, "source");
    destination_ = OpenEnd(1, kNumberBytes + kQuantised + kScales, 0, "destination");
    quantise_ = Must(Program::Compile(source_.session, source_.device, Text("quantise")));
    accumulate_ =
        Must(Program::Compile(destination_.session, destination_.device, Text("accumulate")));
  }
  static float* Numbers(const End& end) { return static_cast<float*>(end.arena.data()); }

  // The two ends of what is sent; of the source it is defined when counter 1 is `value`.
  std::vector<Transfer> Wire(const End& end, const End& other, uint64_t value) {
    std::vector<Transfer> transfers = {
        Transfer(other.device, "elements", {end.arena.Range(kWire, kQuantised)}),
        Transfer(other.device, "scales", {end.arena.Range(kWire + kQuantised, kScales)})};
    if (value != 0) {
      for (Transfer& transfer : transfers) transfer.defined_at = Transfer::DefinedAt{1, value};
    }
    return transfers;
  }
  ProgramRun Quantise() {
    return quantise_.Run(
        {{"grad", source_.arena.Range(0, kNumberBytes), FERRY_F32},
         {"elements", source_.arena.Range(kWire, kQuantised), FERRY_F8E4M3FN},
         {"scales", source_.arena.Range(kWire + kQuantised, kScales), FERRY_F8E8M0FNU}});
  }
  ProgramRun Accumulate() {
    return accumulate_.Run({{"elements", destination_.arena.Range(kWire, kQuantised)},
                            {"scales", destination_.arena.Range(kWire + kQuantised, kScales)},
                            {"sum", destination_.arena.Range(0, kNumberBytes)}});
  }
  struct Posted {
    Batch transfers, job;
  };
  // The job waits for 'defined' counter 0, which the test sets; the sends for the job.
  Posted PostSource(uint64_t value) {
    Posted posted;
    posted.transfers =
        Must(source_.session.Send(source_.device, Wire(source_, destination_, value)));
    ProgramRun run = Quantise();
    run.defined_at = Transfer::DefinedAt{0, value};
    run.defines = Transfer::DefinedAt{1, value};
    run.feeds = &posted.transfers;
    posted.job = Must(RunPrograms(source_.session, source_.device, {run}));
    return posted;
  }
  Posted PostDestination() {
    Posted posted;
    posted.transfers =
        Must(destination_.session.Receive(destination_.device, Wire(destination_, source_, 0)));
    ProgramRun run = Accumulate();
    run.after = &posted.transfers;
    posted.job = Must(RunPrograms(destination_.session, destination_.device, {run}));
    return posted;
  }
  // What is sent and what is received have met.
  bool AwaitMatch() {
    return Await([&] { return node(1).admin().Count("matched") == 2; });
  }
  void TearDown() override {
    quantise_ = Program();
    accumulate_ = Program();
    source_ = End();
    destination_ = End();
    ClusterTest::TearDown();
  }

  End source_, destination_;
  Program quantise_, accumulate_;
};

TEST_F(ProgramTransferTest, QuantisesSendsReceivesAndAccumulatesAgainAndAgain) {
  Open();
  for (int i = 0; i < kNumbers; ++i) Numbers(destination_)[i] = 0;
  std::vector<float> sum(kNumbers);
  for (uint64_t step = 1; step <= 20; ++step) {
    Posted receiver = PostDestination();
    Posted sender = PostSource(step);
    EXPECT_FALSE(receiver.job.over());
    EXPECT_FALSE(sender.job.over());
    for (int i = 0; i < kNumbers; ++i) {
      // Eighths of these are E4M3 numbers: nothing is lost on the way.
      const float value = static_cast<float>((i + static_cast<int>(step)) % 15 - 7);
      Numbers(source_)[i] = value;
      sum[i] += value / 8;
    }
    EXPECT_THAT(source_.session.Define(0, step), IsOk());
    ASSERT_THAT(receiver.job.Wait(kSoon), IsOk());
    ASSERT_THAT(sender.job.Wait(kSoon), IsOk());
    ASSERT_THAT(sender.transfers.Wait(kSoon), IsOk());
    for (int i = 0; i < kNumbers; ++i) ASSERT_EQ(Numbers(destination_)[i], sum[i]) << step << i;
  }
  EXPECT_EQ(source_.session.DefinedValue(1), 20u);
}

// 16 rows in five parts: of three rows, the last one of four.
TEST_F(ProgramTransferTest, PartsAreTakenByAProgramOrByAClient) {
  Start();
  source_ = OpenEnd(0, kNumberBytes, 0, "source");
  destination_ = OpenEnd(1, kNumberBytes, 0, "destination");
  ProgramBuilder builder;
  builder.Send(builder.Convert(builder.Input("x", {FERRY_F32, {16, 64}}), FERRY_BF16), "other", "k",
               5);
  const Program sends = Must(Program::Compile(source_.session, source_.device, builder.Text()));
  const Program adds = Must(Program::Compile(
      destination_.session, destination_.device,
      "program 1\nbuffer @y read_write 4096 donated\n"
      "%h = recv peer=\"other\" key=\"k\" parts=5 : bf16[16,64]\n%w = convert %h : f32[16,64]\n"
      "%y = input @y : f32[16,64]\n%s = add %y, %w\nstore @y, %s\n"));
  const auto run = [](const Program& program, const char* buffer, End& end, const End& other,
                      const char* suffix) {
    ProgramRun run = program.Run({{buffer, end.arena.All()}});
    run.peers = {{"other", other.device}};
    run.key_suffix = suffix;
    return Must(RunPrograms(end.session, end.device, {run}));
  };
  for (int i = 0; i < kNumbers; ++i) {
    Numbers(source_)[i] = static_cast<float>(i % 251);  // bf16 has them
    Numbers(destination_)[i] = static_cast<float>(i);
  }
  Batch added = run(adds, "y", destination_, source_, "/a");
  Batch sent = run(sends, "x", source_, destination_, "/a");
  ASSERT_THAT(added.Wait(kSoon), IsOk());
  ASSERT_THAT(sent.Wait(kSoon), IsOk());
  for (int i = 0; i < kNumbers; ++i) ASSERT_EQ(Numbers(destination_)[i], i + i % 251) << i;
  std::vector<Transfer> parts;
  for (uint64_t part = 0; part < 5; ++part) {
    parts.push_back(
        Transfer(source_.device, absl::StrCat("k/", part, "/b"),
                 {destination_.arena.Range(part * 3 * 128, (part == 4 ? 4 : 3) * 128)}));
  }
  Batch taken = Must(destination_.session.Receive(destination_.device, parts));
  sent = run(sends, "x", source_, destination_, "/b");
  ASSERT_THAT(taken.Wait(kSoon), IsOk());
  ASSERT_THAT(sent.Wait(kSoon), IsOk());
  for (int i = 0; i < kNumbers; ++i) {
    uint16_t code = 0;
    memcpy(&code, static_cast<const std::byte*>(destination_.arena.data()) + 2 * i, sizeof(code));
    const uint32_t wide = uint32_t{code} << 16;
    float value = 0;
    memcpy(&value, &wide, sizeof(value));
    ASSERT_EQ(value, static_cast<float>(i % 251)) << i;
  }
}

TEST_F(ProgramTransferTest, FerryctlDoesTheSameOverFiles) {
  Start();
  TemporaryDirectory directory;
  const auto spawn = [&](size_t i, const char* program, std::vector<std::string> more) {
    SpawnOptions options;
    options.arguments = {
        FerryctlProgram(), "--runtime-dir", node(i).runtime_dir(),
        "program",         "run",           std::string(FERRY_SOURCE "/docs/programs/") + program,
        "--daemon"};
    options.arguments.insert(options.arguments.end(), more.begin(), more.end());
    return options;
  };
  std::vector<float> numbers(kNumbers);
  for (int i = 0; i < kNumbers; ++i) numbers[i] = static_cast<float>(i % 15 - 7);
  WriteFile(directory / "grad", std::string(reinterpret_cast<char*>(numbers.data()), kNumberBytes));
  WriteFile(directory / "sum", std::string(kNumberBytes, '\0'));
  Process receiver(spawn(
      1, "accumulate.program",
      {"--recv", "elements=0:e", "--recv", "scales=0:s", "--bind", "sum=" + (directory / "sum")}));
  Process sender(spawn(0, "quantise.program",
                       {"--send", "elements=2:e", "--send", "scales=2:s", "--bind",
                        "grad=" + (directory / "grad")}));
  EXPECT_EQ(sender.Wait(), 0);
  EXPECT_EQ(receiver.Wait(), 0);
  const std::string sum = ReadFile(directory / "sum");
  ASSERT_EQ(sum.size(), kNumberBytes);
  for (int i = 0; i < kNumbers; ++i) {
    float got;
    std::memcpy(&got, &sum[sizeof(float) * static_cast<size_t>(i)], sizeof(got));
    ASSERT_EQ(got, numbers[static_cast<size_t>(i)] / 8) << i;
  }
}

TEST_F(ProgramTransferTest, AJobThatFailsPoisonsItsSendsAndWhoeverComesAfter) {
  Open();
  Posted receiver = PostDestination();
  Posted sender = PostSource(1);
  ASSERT_TRUE(AwaitMatch());
  ASSERT_THAT(sender.job.Poison("the optimiser gave up"), IsOk());
  EXPECT_THAT(sender.job.Wait(kSoon), Is("ABORTED/POISONED"));
  EXPECT_THAT(sender.transfers.Wait(kSoon), Is("ABORTED/POISONED", HasSubstr("gave up")));
  EXPECT_THAT(receiver.transfers.Wait(kSoon), Is("ABORTED/POISONED", HasSubstr("gave up")));
  EXPECT_THAT(receiver.job.Wait(kSoon), Is("ABORTED/POISONED", HasSubstr("gave up")));
  EXPECT_EQ(source_.session.DefinedValue(1), 0u);
}

TEST_F(ProgramTransferTest, TheReceivingJobEndsWithTheSourcesDaemonOrClient) {
  Open();
  Posted receiver = PostDestination();
  Posted sender = PostSource(1);
  ASSERT_TRUE(AwaitMatch());
  source_ = End();  // its client goes
  EXPECT_THAT(receiver.job.Wait(kSoon), Is("ABORTED/POISONED"));
  source_ = OpenEnd(0, kNumberBytes + kQuantised + kScales, 0, "source");
  quantise_ = Must(Program::Compile(source_.session, source_.device, Text("quantise")));
  Posted again = PostDestination();
  Posted sent = PostSource(1);
  ASSERT_TRUE(AwaitMatch());
  node(0).Kill();
  EXPECT_THAT(again.transfers.Wait(kSoon), Is("UNAVAILABLE/PEER_UNREACHABLE"));
  EXPECT_THAT(again.job.Wait(kSoon), Is("ABORTED/POISONED", HasSubstr("PEER_UNREACHABLE")));
  EXPECT_THAT(sent.job.Wait(kSoon), Is("UNAVAILABLE/DAEMON_LOST"));
  ASSERT_TRUE(node(0).Start());
  ASSERT_THAT(source_.session.WaitAttached(kSoon), IsOk());
}

}  // namespace
}  // namespace ferry::testing
