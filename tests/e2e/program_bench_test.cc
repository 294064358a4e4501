// SPDX-License-Identifier: Apache-2.0
// ferryctl program bench --device and program plan --gpu --device: programs are measured by a
// running daemon, on a host device and on the fake CUDA's GPU.
#include <stdlib.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kDocs[] = FERRY_SOURCE "/docs/programs/";

class ProgramBenchTest : public ClusterTest {
 protected:
  // One node with a host device, 0, and a GPU, 1.
  void Open(const std::vector<std::string>& more = {}) {
    ClusterOptions options;
    options.nodes = 1;
    options.devices = 1;
    options.gpus = 1;
    options.environment = {absl::StrCat("FERRY_DEVICES__NVRTC_LIBRARY=", FakeNvrtcLibrary())};
    options.environment.insert(options.environment.end(), more.begin(), more.end());
    setenv("FERRY_CUDA_LIBRARY", FakeCudaLibrary(), 1);
    setenv("FERRY_FAKE_CUDA", absl::StrCat("devices=1;seed=", getpid()).c_str(), 1);
    Start(options);
  }
  nlohmann::json Bench(const std::string& program, int device) {
    return nlohmann::json::parse(Ferryctl(
        absl::StrCat("--json program bench ", program, " --iterations 3 --device ", device)));
  }
};

TEST_F(ProgramBenchTest, EveryStepTheRunAndACopyAreMeasuredOnEitherKindOfDevice) {
  Open();
  for (const int device : {0, 1}) {
    const nlohmann::json times = Bench(absl::StrCat(kDocs, "scale.program"), device);
    EXPECT_EQ(times["device"], device);
    EXPECT_EQ(times["runs"], 3);
    EXPECT_THAT(times["by"].get<std::string>(), HasSubstr(device == 0 ? "threads " : "gpu sm_"));
    ASSERT_EQ(times["steps"].size(), 3u);
    EXPECT_EQ(times["steps"][0]["step"], 0);
    EXPECT_EQ(times["steps"][0]["label"], "halved");
    EXPECT_EQ(times["steps"][1]["step"], "run");
    EXPECT_EQ(times["steps"][2]["step"], "copy");
    for (const nlohmann::json& row : times["steps"]) {
      EXPECT_EQ(row["bytes_read"].get<int>() + row["bytes_written"].get<int>(), 6144);
      EXPECT_GT(row["median_s"], 0);
      EXPECT_GE(row["p90_s"], row["median_s"]);
      EXPECT_GE(row["p99_s"], row["p90_s"]);
      EXPECT_GT(row["in_a_row_s"], 0);
      EXPECT_EQ(row.contains("estimated_s"), row["step"] != "copy");
    }
    EXPECT_GT(times["steps"][1]["estimated_s"], 0);
  }
}

TEST_F(ProgramBenchTest, ATableForPeopleSaysWhatRanIt) {
  Open();
  EXPECT_THAT(
      Ferryctl(absl::StrCat("program bench ", kDocs, "scale.program --iterations 2 --device 1")),
      AllOf(HasSubstr("IN A ROW"), HasSubstr("ESTIMATE"), HasSubstr("halved"),
            ContainsRegex("2 runs on device 1; [0-9.]+ of the copy's bytes per second; gpu sm_")));
}

// What is read has every type, also in buffers that have no whole word, and repeats are run.
TEST_F(ProgramBenchTest, BuffersOfAnyTypeAreFilledAndRepeatsAreMeasuredAsAWhole) {
  Open();
  std::string text = "program 1\nbuffer @small read 3\nbuffer @y read_write 4 donated\n";
  std::string body = "%s = input @small : u8[3]\nkeep %s\n";
  for (const char* type : {"f64", "f32", "f16", "bf16", "f8e4m3fn", "f8e5m2", "f8e8m0fnu", "i32"}) {
    absl::StrAppend(&text, "buffer @", type, " read 24\n");
    const int elements = type == std::string("f64") ? 3 : 4;
    absl::StrAppend(&body, "%", type, " = input @", type, " : ", type, "[", elements, "]\nkeep %",
                    type, "\n");
  }
  absl::StrAppend(&body,
                  "%a = input @y : f32[1]\n%r = repeat %a trips=3 (%n, %p)\n"
                  "  %q = add %p, %p\nyield %q\nstore @y, %r\n");
  const TemporaryDirectory directory;
  WriteFile(directory / "all", text + body);
  const nlohmann::json times = Bench(directory / "all", 0);
  bool repeats = false;
  for (const nlohmann::json& row : times["steps"]) {
    repeats = repeats || row["kind"] == "repeat";
    EXPECT_EQ(row.contains("median_s"), row["kind"] != "repeat");
  }
  EXPECT_TRUE(repeats);
}

TEST_F(ProgramBenchTest, APlanForAGpuMarksWhatIsAnEstimateAndWhatWasMeasured) {
  Open();
  const std::string plan = absl::StrCat("program plan ", kDocs, "scale.program --gpu sm_90a");
  const std::string planned = Ferryctl(plan);
  const std::string measured = Ferryctl(absl::StrCat(plan, " --iterations 2 --device 1"));
  EXPECT_THAT(
      measured,
      AllOf(HasSubstr(planned), ContainsRegex("on device 1, 2 runs each; gpu sm_90a, [^\n]+\n"),
            ContainsRegex("0 estimated: 1024 flops, 0 functions, 6144 bytes, [^;]+; "
                          "measured: [^,]+, [0-9.]+ GB/s"),
            ContainsRegex("copy of 6144 bytes: measured: ")));
}

TEST_F(ProgramBenchTest, APlanForAGpuIsMeasuredAsTheDaemonHasIt) {
  Open({"FERRY_DEVICES__CUBLASLT_LIBRARY=none"});
  const TemporaryDirectory directory;
  WriteFile(
      directory / "product",
      "program 1\nbuffer @a read 8192\nbuffer @b read 8192\nbuffer @c read_write 16384\n"
      "%a = input @a : bf16[64,64]\n%b = input @b : bf16[64,64]\n"
      "%c = dot_general %a, %b lhs_contract=[1] rhs_contract=[0] : f32[64,64]\nstore @c, %c\n");
  const std::string plan =
      absl::StrCat("program plan ", directory / "product", " --gpu sm_90a --iterations 2");
  EXPECT_THAT(Ferryctl(plan), HasSubstr("product cublaslt"));
  EXPECT_THAT(Ferryctl(absl::StrCat(plan, " --device 1")),
              AllOf(Not(HasSubstr("product cublaslt")), HasSubstr("0 launch"),
                    HasSubstr("0 estimated: 524288 flops")));
}

}  // namespace
}  // namespace ferry::testing
