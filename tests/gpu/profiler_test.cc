// SPDX-License-Identifier: Apache-2.0
// What a profiler that is attached to a daemon is told of: a range for each run of a job, and for
// each group.
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "ferry/program.hpp"
#include "tests/gpu/nccl_fixture.h"

namespace ferry::testing {
namespace {

class MultiGpuProfilerTest : public MultiGpuNcclTest {
 protected:
  bool StartProfiled() {
    if (driver_ != nullptr && !fake()) {
      [&] { GTEST_SKIP() << "NEEDS the profiler of the tests, which no bundle has"; }();
      return false;
    }
    ClusterOptions options;
    options.environment = {absl::StrCat("NVTX_INJECTION64_PATH=", FAKE_NVTX_LIBRARY),
                           absl::StrCat("FERRY_FAKE_NVTX=", file_)};
    return StartDaemons(2, std::move(options));
  }
  // Of the ranges whose names have `what`, how many have begun, and how many are over. Both daemons
  // write to the file, and number their ranges from 1.
  std::pair<size_t, size_t> RangesOf(const std::string& what) const {
    std::stringstream text;
    text << std::ifstream(file_).rdbuf();
    const std::vector<std::string> lines = absl::StrSplit(text.str(), '\n');
    size_t begun = 0, over = 0;
    for (const std::string& line : lines) {
      if (!absl::StartsWith(line, "begin ") || !absl::StrContains(line, what)) continue;
      ++begun;
      const std::vector<std::string> words = absl::StrSplit(line, ' ');
      for (const std::string& other : lines)
        over += other == absl::StrCat("end ", words[1]) ? 1 : 0;
    }
    return {begun, over};
  }

  const std::string file_ = gates_ / "ranges";
};

TEST_F(MultiGpuProfilerTest, JobsAndGroupsAreRanges) {
  if (!StartProfiled()) return;
  End a = Open(0, 0, 2 * kNcclBytes), b = Open(1, 0, 2 * kNcclBytes);
  ExpectMoves(a, b);
  const std::string group = absl::StrCat(" ferry GPUs ", a.device, " and ", b.device, ", group 1, ",
                                         kNcclBytes, " bytes");
  EXPECT_TRUE(Await([&] {
    const auto [begun, over] = RangesOf(group);
    return begun == 2 && over >= 2;  // one at each end
  })) << RangesOf(group).first
      << " begun, " << RangesOf(group).second << " over";

  const uint64_t host = nodes().Device(0);
  Arena arena = Must(a.session.CreateArena(host, 64));
  const Program program = Must(Program::Compile(
      a.session, host,
      "program 1\nbuffer @x read_write 16 donated\n%x = input @x : f32[4]\n%y = add %x, %x\n"
      "store @x, %y\n"));
  ASSERT_THAT(
      Must(RunPrograms(a.session, host, {program.Run({{"x", arena.Range(0, 16)}})})).Wait(kSoon),
      IsOk());
  const std::string job = absl::StrCat(" ferry job ", a.session.id(), "/");
  EXPECT_TRUE(Await([&] {
    const auto [begun, over] = RangesOf(job);
    return begun == 1 && over >= 1;
  }));
}

}  // namespace
}  // namespace ferry::testing
