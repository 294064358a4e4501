// SPDX-License-Identifier: Apache-2.0
// A program at which a GPU is lost ends the daemon, and the next one does not run it on GPUs until
// an operator releases it. The GPU is the fake CUDA's.
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "ferry/program.hpp"
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kBytes = 4096;

std::string Adding(int number) {
  return absl::StrCat(
      "program 1\nbuffer @x read_write 4096 donated\n%x = input @x : f32[1024]\n"
      "%one = constant splat=",
      number, " : f32[1024]\n%y = add %x, %one\nstore @x, %y\n");
}

class BarredProgramTest : public ClusterTest {
 protected:
  // One node with a host device, 0, and a GPU, 1.
  void Open() {
    ClusterOptions options;
    options.nodes = 1;
    options.devices = 1;
    options.gpus = 1;
    options.fake_cuda = absl::StrCat("bad_kernels=", bad_kernels_);
    options.environment = {absl::StrCat("FERRY_DEVICES__NVRTC_LIBRARY=", FakeNvrtcLibrary())};
    setenv("FERRY_CUDA_LIBRARY", FakeCudaLibrary(), 1);
    setenv("FERRY_FAKE_CUDA", absl::StrCat("devices=1;seed=", getpid()).c_str(), 1);
    Start(options);
  }
  // Runs the program on a device; the status of the first step that fails, compile, post or run.
  Status Run(const std::string& text, uint64_t device) {
    End end = OpenEnd(0, kBytes, device);
    Fill(end.arena, 0, kBytes, 0);
    Result<Program> program = Program::Compile(end.session, end.device, text);
    if (!program.ok()) return std::move(program).status();
    Result<Batch> batch =
        RunPrograms(end.session, end.device, {program->Run({{"x", end.arena.All()}})});
    return batch.ok() ? batch->Wait(kSoon) : std::move(batch).status();
  }
  void SetBadKernels(bool bad) {
    if (bad) {
      WriteFile(bad_kernels_, "");
    } else {
      std::filesystem::remove(bad_kernels_);
    }
  }

  TemporaryDirectory gates_;
  const std::string bad_kernels_ = gates_ / "bad";
};

TEST_F(BarredProgramTest, IsRefusedByTheNextLifeListedReleasedAndRuns) {
  Open();
  EXPECT_EQ(Ferryctl("program barred"), "no program is barred from GPUs\n");
  ASSERT_THAT(Run(Adding(1), 1), IsOk());
  SetBadKernels(true);
  EXPECT_THAT(Run(Adding(2), 1), Is("UNAVAILABLE/DAEMON_LOST"));
  node(0).ExpectLoss(SIGABRT);
  EXPECT_THAT(node(0).Log(), AllOf(HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"),
                                   HasSubstr("from now on GPUs do not run "),
                                   HasSubstr(" program.barred session ")));
  SetBadKernels(false);

  ASSERT_TRUE(node(0).Start());
  EXPECT_THAT(node(0).Log(), HasSubstr("1 do not run on GPUs"));
  const Status refused = Run(Adding(2), 1);
  EXPECT_THAT(refused, Is("FAILED_PRECONDITION/NOT_ALLOWED"));
  EXPECT_THAT(refused.ToString(), AllOf(HasSubstr("is barred from the GPUs of this daemon"),
                                        HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS")));
  EXPECT_THAT(Run(Adding(1), 1), IsOk());  // another program
  EXPECT_THAT(Run(Adding(2), 0), IsOk());  // a host device
  const std::string metrics = HttpGet(node(0).runtime_dir() + "/admin/metrics.sock", "/metrics");
  EXPECT_THAT(metrics, AllOf(HasSubstr("\nferry_programs_barred 1\n"),
                             HasSubstr("\nferry_barred_refusals_total 1\n")));
  const std::string listed = Ferryctl("program barred");
  EXPECT_THAT(listed, AllOf(HasSubstr("GPU-"), HasSubstr(absl::StrCat(" ", getuid(), " ")),
                            HasSubstr(" yes "), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS")));
  const std::string name = listed.substr(listed.find('\n') + 1, 16);
  EXPECT_THAT(refused.ToString(), HasSubstr(absl::StrCat("ferryctl program release ", name)));

  node(0).Kill();  // it stays barred
  ASSERT_TRUE(node(0).Start());
  EXPECT_THAT(Run(Adding(2), 1), Is("FAILED_PRECONDITION/NOT_ALLOWED"));
  EXPECT_THAT(Ferryctl("program release 0000000000000000", 3), HasSubstr("is not barred"));
  EXPECT_EQ(Ferryctl(absl::StrCat("program release ", name)), "1 program released\n");
  EXPECT_THAT(Run(Adding(2), 1), IsOk());
  node(0).Kill();
  ASSERT_TRUE(node(0).Start());
  EXPECT_THAT(Run(Adding(2), 1), IsOk());
}

TEST_F(BarredProgramTest, ADamagedListIsAWarningAndNoRefusedStart) {
  Open();
  node(0).Stop();
  WriteFile(node(0).runtime_dir() + "/barred-programs", "nonsense");
  ASSERT_TRUE(node(0).Start());
  EXPECT_THAT(node(0).Log(), AllOf(HasSubstr("programs.barred"), HasSubstr("barred-programs.bad"),
                                   HasSubstr("does not begin with")));
  EXPECT_THAT(Run(Adding(1), 1), IsOk());
  EXPECT_EQ(Ferryctl("program release --all"), "0 programs released\n");
  EXPECT_THAT(Ferryctl("program release", 2), HasSubstr("either their fingerprints or --all"));
}

}  // namespace
}  // namespace ferry::testing
