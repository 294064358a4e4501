// SPDX-License-Identifier: Apache-2.0
// A daemon runs programs on a GPU, the fake CUDA's, by first tiers of their kernels until these are
// compiled in full.
#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ferry/program.hpp"
#include "tests/support/await.h"
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kArenaBytes = 4096;
constexpr uint32_t kFailsInFull = 0xfa11ed11;  // the fake NVRTC's sign

class ProgramTiersTest : public ClusterTest {
 protected:
  // One node with a host device, 0, and a GPU, 1.
  void Open() {
    ClusterOptions options;
    options.nodes = 1;
    options.devices = 1;
    options.gpus = 1;
    options.environment = {absl::StrCat("FERRY_DEVICES__NVRTC_LIBRARY=", FakeNvrtcLibrary())};
    setenv("FERRY_CUDA_LIBRARY", FakeCudaLibrary(), 1);
    setenv("FERRY_FAKE_CUDA", absl::StrCat("devices=1;seed=", getpid()).c_str(), 1);
    Start(options);
    end_ = OpenEnd(0, kArenaBytes, 1);
    Fill(end_.arena, 0, kArenaBytes, 0);
  }
  static std::string Adding(uint32_t number) {
    return absl::StrCat(
        "program 1\nbuffer @x read_write 4096 donated\n%x = input @x : u32[1024]\n"
        "%n = constant splat=",
        number, " : u32[1024]\n%y = add %x, %n\nstore @x, %y\n");
  }
  std::string Metrics() {
    return HttpGet(node(0).runtime_dir() + "/admin/metrics.sock", "/metrics");
  }
  bool AwaitFull() {
    return Await([&] { return absl::StrContains(Metrics(), "\nferry_kernels_waiting 0\n"); });
  }
  void TearDown() override {
    end_ = End();
    ClusterTest::TearDown();
  }

  End end_;
};

TEST_F(ProgramTiersTest, FiringsOfAPreparedJobChangeOverByThemselves) {
  Open();
  const Program program = Must(Program::Compile(end_.session, end_.device, Adding(5)));
  Prepared job =
      Must(PreparePrograms(end_.session, end_.device, {program.Run({{"x", end_.arena.All()}})}));
  for (int firing = 0; firing < 2; ++firing) {
    ASSERT_THAT(job.Fire(), IsOk());
    ASSERT_THAT(job.Wait(kSoon), IsOk());
    ASSERT_TRUE(AwaitFull());
  }
  EXPECT_THAT(Metrics(),
              AllOf(HasSubstr("ferry_kernels_compiled_total{tier=\"first\",result=\"ok\"} 1\n"),
                    HasSubstr("ferry_kernels_compiled_total{tier=\"full\",result=\"ok\"} 1\n")));
}

TEST_F(ProgramTiersTest, AKernelThatDoesNotCompileInFullRunsAllTheSameAndIsLoggedOnce) {
  Open();
  for (int i = 0; i < 2; ++i) {
    const Program program = Must(Program::Compile(end_.session, end_.device, Adding(kFailsInFull)));
    Batch batch =
        Must(RunPrograms(end_.session, end_.device, {program.Run({{"x", end_.arena.All()}})}));
    ASSERT_THAT(batch.Wait(kSoon), IsOk());
    ASSERT_TRUE(AwaitFull());
  }
  EXPECT_THAT(Metrics(),
              AllOf(HasSubstr("ferry_kernels_compiled_total{tier=\"first\",result=\"ok\"} 1\n"),
                    HasSubstr("ferry_kernels_compiled_total{tier=\"full\",result=\"error\"} 1\n")));
  const std::string log = node(0).Log();
  const size_t said = log.find("kernels.full");
  ASSERT_NE(said, std::string::npos) << log;
  EXPECT_EQ(log.find("kernels.full", said + 1), std::string::npos) << log;
}

}  // namespace
}  // namespace ferry::testing
