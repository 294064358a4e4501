// SPDX-License-Identifier: Apache-2.0
// Programs that a daemon runs on a GPU, for clients whose buffers are there.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compute/passes/passes.h"
#include "compute/program/text.h"
#include "ferry/program.hpp"
#include "tests/compute/program_runs.h"
#include "tests/compute/program_weaver.h"
#include "tests/compute/reference/evaluate.h"
#include "tests/gpu/gpu_fixture.h"
#include "tests/support/admin.h"
#include "tests/support/await.h"

namespace ferry::testing {
namespace {

using ::testing::HasSubstr;

namespace fc = ferry::compute;
using fc::testing::Bytes;

constexpr int64_t kElements = 1024;
constexpr uint64_t kBytes = kElements * sizeof(float);

class GpuProgramTest : public GpuTest {
 protected:
  bool Open(uint64_t bytes = 4 * kBytes, std::vector<std::string> environment = {}) {
    if (!Need(1)) return false;
    StartNodes(1, 1, "", std::move(environment));
    end_ = GpuTest::Open(0, 0, bytes);
    stream_ = MakeStream(end_);
    staging_ = Pinned(bytes);
    return true;
  }
  void CloseEnds() override { end_ = End(); }

  void Write(uint64_t offset, const void* bytes, uint64_t count) {
    std::memcpy(staging_, bytes, count);
    ASSERT_CU(driver_->cuMemcpyHtoDAsync(Address(end_.arena, offset), staging_, count, stream_));
    ASSERT_CU(Synchronize(stream_));
  }
  const char* Read(uint64_t offset, uint64_t count) {
    EXPECT_CU(driver_->cuMemcpyDtoHAsync(staging_, Address(end_.arena, offset), count, stream_));
    EXPECT_CU(Synchronize(stream_));
    return staging_;
  }
  void Count(uint64_t offset) {
    std::vector<float> numbers(kElements);
    for (int i = 0; i < kElements; ++i) numbers[static_cast<size_t>(i)] = static_cast<float>(i);
    Write(offset, numbers.data(), kBytes);
  }
  void ExpectTimes(float factor, uint64_t offset) {
    std::vector<float> got(kElements);
    std::memcpy(got.data(), Read(offset, kBytes), kBytes);
    for (int i = 0; i < kElements; ++i) {
      ASSERT_EQ(got[static_cast<size_t>(i)], factor * static_cast<float>(i)) << i;
    }
  }
  // y = 3 x
  static std::string Triple() {
    ProgramBuilder builder;
    const TensorType type{FERRY_F32, {kElements}};
    const auto x = builder.Input("x", type);
    builder.Store("y", builder.Multiply(x, builder.Splat(3, type)));
    return builder.Text();
  }
  ProgramRun RunAt(const Program& program, uint64_t x, uint64_t y) {
    return program.Run({{"x", end_.arena.Range(x, kBytes)}, {"y", end_.arena.Range(y, kBytes)}});
  }

  End end_;
  CUstream stream_ = nullptr;
  char* staging_ = nullptr;
};

TEST_F(GpuProgramTest, ItRunsWhereItsBuffersAre) {
  if (!Open()) return;
  Count(0);
  const Program program = Must(Program::Compile(end_.session, end_.device, Triple()));
  EXPECT_THAT(std::string(program.plan()), HasSubstr("\ngpu sm_"));
  // As often as somebody likes, also of what it has made.
  ASSERT_THAT(Must(RunPrograms(end_.session, end_.device, {RunAt(program, 0, kBytes)})).Wait(kSoon),
              IsOk());
  ExpectTimes(3, kBytes);
  ASSERT_THAT(Must(RunPrograms(end_.session, end_.device, {RunAt(program, kBytes, 2 * kBytes)}))
                  .Wait(kSoon),
              IsOk());
  ExpectTimes(9, 2 * kBytes);
}

TEST_F(GpuProgramTest, TheSameTextRunsOnAHostDevice) {
  if (!Open()) return;
  const Program gpu = Must(Program::Compile(end_.session, end_.device, Triple()));
  const uint64_t host = nodes().Device(0);
  Arena arena = Must(end_.session.CreateArena(host, 2 * kBytes));
  auto* const numbers = static_cast<float*>(arena.data());
  for (int i = 0; i < kElements; ++i) numbers[i] = static_cast<float>(i);
  const Program program = Must(Program::Compile(end_.session, host, Triple()));
  EXPECT_EQ(program.fingerprint(), gpu.fingerprint());
  const std::vector<ProgramRun> runs = {
      program.Run({{"x", arena.Range(0, kBytes)}, {"y", arena.Range(kBytes, kBytes)}})};
  ASSERT_THAT(Must(RunPrograms(end_.session, host, runs)).Wait(kSoon), IsOk());
  for (int i = 0; i < kElements; ++i) {
    ASSERT_EQ(numbers[kElements + i], 3.0f * static_cast<float>(i)) << i;
  }
}

// The files go to the GPU by transfers within the daemon, and what the program writes comes back.
TEST_F(GpuProgramTest, FerryctlRunsAProgramOverFiles) {
  if (!Open()) return;
  TemporaryDirectory directory;
  const std::string text = directory / "triple.program", x = directory / "x", y = directory / "y";
  std::ofstream(text) << Triple();
  std::vector<float> numbers(kElements, 2.5f);
  std::ofstream(x).write(reinterpret_cast<const char*>(numbers.data()), kBytes);
  Ferryctl(absl::StrCat("program run ", text, " --daemon --device ", end_.device, " --bind x=", x,
                        " --bind y=", y));
  std::vector<float> got(kElements);
  std::ifstream(y).read(reinterpret_cast<char*>(got.data()), kBytes);
  EXPECT_EQ(got, std::vector<float>(kElements, 7.5f));
}

TEST_F(GpuProgramTest, APreparedJobIsFiredOftenAndInOrder) {
  if (!Open()) return;
  Count(0);
  const Program program = Must(Program::Compile(end_.session, end_.device, Triple()));
  Prepared prepared = Must(PreparePrograms(end_.session, end_.device, {RunAt(program, 0, kBytes)}));
  for (int i = 0; i < 20; ++i) {
    uint64_t firing = 0;
    ASSERT_THAT(prepared.Fire(&firing), IsOk());
    ASSERT_THAT(prepared.Wait(firing, kSoon), IsOk());
  }
  ASSERT_THAT(prepared.Release(), IsOk());
  ExpectTimes(3, kBytes);
}

// The GPU does not pause between two runs: the second is handed to it while the first is under way.
// On a real GPU there is no gate, and the first is soon over.
TEST_F(GpuProgramTest, TheNextRunIsQueuedBehindOneThatIsUnderWay) {
  TemporaryDirectory directory;
  const std::string gate = directory / "gate";
  if (!Open(4 * kBytes, FakeWith(absl::StrCat("gate=", gate)))) return;
  Count(0);
  const Program program = Must(Program::Compile(end_.session, end_.device, Triple()));
  WriteFile(gate, "");
  Batch runs = Must(RunPrograms(end_.session, end_.device,
                                {RunAt(program, 0, kBytes), RunAt(program, 0, 2 * kBytes)}));
  const auto begun = [&] {
    size_t count = 0;
    const std::string dump = node(0).admin().Dump();
    for (size_t at = dump.find("job.run"); at != std::string::npos; ++count) {
      at = dump.find("job.run", at + 1);
    }
    return count;
  };
  EXPECT_TRUE(Await([&] { return begun() == 2; }));
  std::filesystem::remove(gate);
  ASSERT_THAT(runs.Wait(kSoon), IsOk());
  ExpectTimes(3, kBytes);
  ExpectTimes(3, 2 * kBytes);
}

TEST_F(GpuProgramTest, TheContextIsGivenBackAfterTheLastArena) {
  if (!Open()) return;
  const auto context = [&] { return node(0).admin().Devices().devices(1).context(); };
  const Program program = Must(Program::Compile(end_.session, end_.device, Triple()));
  for (int again = 0; again < 2; ++again) {
    Count(0);
    ASSERT_THAT(
        Must(RunPrograms(end_.session, end_.device, {RunAt(program, 0, kBytes)})).Wait(kSoon),
        IsOk());
    ExpectTimes(3, kBytes);
    EXPECT_TRUE(context());
    ASSERT_THAT(end_.arena.Release(), IsOk());
    ASSERT_TRUE(Await([&] { return !context(); })) << "what runs programs holds it";
    end_.arena = Must(end_.session.CreateArena(end_.device, 4 * kBytes));
  }
}

// y = r - x, where the other end sends r = 2 x.
std::string ExchangeText() {
  return absl::StrCat("program 1\nbuffer @x read ", kBytes, "\nbuffer @y write ", kBytes,
                      "\n%x = input @x : f32[", kElements, "]\n%two = add %x, %x\n",
                      "send %two peer=\"other\" key=\"k\"\n",
                      "%r = recv peer=\"other\" key=\"k\" : f32[", kElements, "]\n",
                      "%y = subtract %r, %x\nstore @y, %y\n");
}

// The two ends are GPUs, of one daemon or of two: the same text runs at both, again and again.
class GpuExchangeTest : public GpuProgramTest {
 protected:
  void CloseEnds() override {
    other_ = End();
    GpuProgramTest::CloseEnds();
  }
  Batch RunOne(const Program& program, End& end, const End& peer, const std::string& suffix) {
    ProgramRun run =
        program.Run({{"x", end.arena.Range(0, kBytes)}, {"y", end.arena.Range(kBytes, kBytes)}});
    run.peers = {{"other", peer.device}};
    run.key_suffix = suffix;
    return Must(RunPrograms(end.session, end.device, {run}));
  }
  void ExpectExchanges() {
    stream_ = MakeStream(end_);
    staging_ = Pinned(4 * kBytes);
    Count(0);
    std::vector<float> tens(kElements, 10.0f);
    std::memcpy(staging_, tens.data(), kBytes);
    const CUstream others = MakeStream(other_);
    ASSERT_CU(driver_->cuMemcpyHtoDAsync(Address(other_.arena), staging_, kBytes, others));
    ASSERT_CU(Synchronize(others));
    const Program here = Must(Program::Compile(end_.session, end_.device, ExchangeText()));
    const Program there = Must(Program::Compile(other_.session, other_.device, ExchangeText()));
    for (int i = 0; i < 3; ++i) {
      const std::string suffix = absl::StrCat("/", i);
      Batch ours = RunOne(here, end_, other_, suffix);
      Batch theirs = RunOne(there, other_, end_, suffix);
      ASSERT_THAT(ours.Wait(kSoon), IsOk());
      ASSERT_THAT(theirs.Wait(kSoon), IsOk());
    }
    MakeStream(end_);  // its context is current
    std::vector<float> got(kElements);
    std::memcpy(got.data(), Read(kBytes, kBytes), kBytes);
    for (int i = 0; i < kElements; ++i) {
      ASSERT_EQ(got[static_cast<size_t>(i)], 20.0f - static_cast<float>(i)) << i;
    }
  }

  End other_;
};

TEST_F(GpuExchangeTest, GpusOfOneDaemonSendWhatTheirProgramsMake) {
  if (!Need(2)) return;
  StartNodes(1, 2);
  end_ = GpuTest::Open(0, 0, 4 * kBytes, "ours");
  other_ = GpuTest::Open(0, 1, 4 * kBytes, "theirs");
  ExpectExchanges();
}

TEST_F(GpuExchangeTest, GpusOfTwoDaemonsSendWhatTheirProgramsMake) {
  if (!Need(2)) return;
  StartNodes(2, 2);
  end_ = GpuTest::Open(0, 0, 4 * kBytes, "ours");
  other_ = GpuTest::Open(1, 0, 4 * kBytes, "theirs");
  ExpectExchanges();
}

TEST_F(GpuExchangeTest, AGpuAndAHostDeviceRunTheSameText) {
  if (!Open()) return;
  other_ = GpuTest::Open(0, -1, 4 * kBytes, "host");
  Count(0);
  auto* const numbers = static_cast<float*>(other_.arena.data());
  std::fill_n(numbers, kElements, 10.0f);
  const Program here = Must(Program::Compile(end_.session, end_.device, ExchangeText()));
  const Program there = Must(Program::Compile(other_.session, other_.device, ExchangeText()));
  Batch ours = RunOne(here, end_, other_, "");
  Batch theirs = RunOne(there, other_, end_, "");
  ASSERT_THAT(ours.Wait(kSoon), IsOk());
  ASSERT_THAT(theirs.Wait(kSoon), IsOk());
  EXPECT_EQ(numbers[kElements + 7], 2 * 7.0f - 10.0f);
  std::vector<float> got(kElements);
  std::memcpy(got.data(), Read(kBytes, kBytes), kBytes);
  EXPECT_EQ(got[7], 20.0f - 7.0f);
}

TEST_F(GpuProgramTest, ABufferBeginsWhereKernelsTakeIt) {
  if (!Open()) return;
  const Program program = Must(Program::Compile(end_.session, end_.device, Triple()));
  const Result<Batch> refused =
      RunPrograms(end_.session, end_.device, {RunAt(program, 4, 2 * kBytes)});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.status().ToString()), HasSubstr("a multiple of 16"));
}

TEST_F(GpuProgramTest, RandomProgramsAreAsTheReferenceSays) {
  if (!Open(4 << 20)) return;
  const uint64_t seeds = fake() ? 3 : 100;  // the fake's compiler is the host's, which is slow
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    const fc::Program program = fc::Simplify(fc::testing::Weaver(seed, 8).Make());
    std::vector<fc::testing::Memory> reference;
    for (Bytes& bytes : fc::testing::RandomBuffers(program, seed)) {
      reference.emplace_back(std::move(bytes));
    }
    fc::testing::Evaluate(program, reference);
    const Program compiled = Must(Program::Compile(end_.session, end_.device, fc::Print(program)));
    const std::vector<Bytes> contents = fc::testing::RandomBuffers(program, seed);
    std::vector<Binding> bindings;
    std::vector<uint64_t> places;
    uint64_t at = 0;
    for (size_t i = 0; i < contents.size(); ++i) {
      Write(at, contents[i].data(), contents[i].size());
      bindings.push_back({program.buffers[i].name, end_.arena.Range(at, contents[i].size())});
      places.push_back(at);
      at += (contents[i].size() + 255) / 256 * 256;
      ASSERT_LE(at, uint64_t{4} << 20);
    }
    ASSERT_THAT(Must(RunPrograms(end_.session, end_.device, {compiled.Run(bindings)})).Wait(kSoon),
                IsOk());
    for (size_t i = 0; i < contents.size(); ++i) {
      const auto* const got =
          reinterpret_cast<const std::byte*>(Read(places[i], contents[i].size()));
      ASSERT_EQ(reference[i].DifferenceOf(Bytes(got, got + contents[i].size())), "")
          << "seed " << seed << ", @" << program.buffers[i].name << "\n"
          << fc::Print(program);
    }
  }
}

}  // namespace
}  // namespace ferry::testing
