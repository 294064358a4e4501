// SPDX-License-Identifier: Apache-2.0
// What jobs take of a GPU's time is counted, and a user who has had his share waits for more. The
// GPU is the fake CUDA's: its first run alone takes longer than the share of many minutes, since
// the host's compiler makes the kernel.
#include <stdlib.h>
#include <unistd.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "ferry/program.hpp"
#include "tests/support/await.h"
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr uint64_t kBytes = 4096;
constexpr char kAdding[] =
    "program 1\nbuffer @x read_write 4096 donated\n%x = input @x : f32[1024]\n"
    "%one = constant splat=1 : f32[1024]\n%y = add %x, %one\nstore @x, %y\n";

class GpuShareTest : public ClusterTest {};

TEST_F(GpuShareTest, AUserWhoHasHadHisShareWaitsUntilThereIsMore) {
  ClusterOptions options;
  options.nodes = 1;
  options.devices = 1;
  options.gpus = 1;
  options.limits = "gpu_ms_per_second: 1";
  options.environment = {absl::StrCat("FERRY_DEVICES__NVRTC_LIBRARY=", FakeNvrtcLibrary())};
  setenv("FERRY_CUDA_LIBRARY", FakeCudaLibrary(), 1);
  setenv("FERRY_FAKE_CUDA", absl::StrCat("devices=1;seed=", getpid()).c_str(), 1);
  Start(options);
  End end = OpenEnd(0, kBytes, 1);
  Fill(end.arena, 0, kBytes, 0);
  const Program program = Must(Program::Compile(end.session, end.device, kAdding));
  const auto post = [&] {
    return Must(RunPrograms(end.session, end.device, {program.Run({{"x", end.arena.All()}})}));
  };
  EXPECT_THAT(post().Wait(kSoon), IsOk());
  Batch waits = post();
  EXPECT_TRUE(Await([&] {
    return absl::StrContains(Ferryctl("program list"), "its user's share of the GPU's time, 1 ms");
  }));
  const std::string jobs = Ferryctl("jobs");
  EXPECT_THAT(jobs, StartsWith("1 job\nSESSION  JOB  DEVICE  PROGRAM"));
  EXPECT_THAT(jobs, HasSubstr("its user's share of the GPU's time, 1 ms"));
  const auto metrics = [&] {
    return HttpGet(node(0).runtime_dir() + "/admin/metrics.sock", "/metrics");
  };
  EXPECT_THAT(metrics(), HasSubstr("ferry_gpu_jobs_held{device=\"1\"} 1\n"));
  EXPECT_THAT(metrics(), HasSubstr(absl::StrCat("ferry_gpu_run_seconds_total{device=\"1\",uid=\"",
                                                getuid(), "\"} ")));
  const admin::v1::ListSessionsResponse sessions = node(0).admin().Sessions();
  ASSERT_EQ(sessions.sessions_size(), 1);
  EXPECT_GT(sessions.sessions(0).gpu_time().seconds() + sessions.sessions(0).gpu_time().nanos(), 0);
  EXPECT_EQ(sessions.sessions(0).host_time().nanos(), 0);
  EXPECT_THAT(Ferryctl("sessions"), HasSubstr("ON GPUS"));

  WriteFile(node(0).config_file(), absl::StrReplaceAll(ReadFile(node(0).config_file()),
                                                       {{"gpu_ms_per_second: 1", "sessions: 9"}}));
  EXPECT_THAT(Ferryctl("reload --wait"), HasSubstr("limits.gpu_ms_per_second: 1, now 1000"));
  EXPECT_THAT(waits.Wait(kSoon), IsOk());
  EXPECT_THAT(metrics(), HasSubstr("ferry_gpu_jobs_held{device=\"1\"} 0\n"));
}

}  // namespace
}  // namespace ferry::testing
