// SPDX-License-Identifier: Apache-2.0
// What a program makes on one GPU goes to a program of another GPU in parts, on every route: by the
// programs' own sends and receives, and by prepared transfers that prepared jobs are joined to.
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ferry/program.hpp"
#include "tests/gpu/gpu_fixture.h"

namespace ferry::testing {
namespace {

constexpr int kParts = 8;
constexpr int kElements = 4096;  // of a part
constexpr uint64_t kWide = kParts * kElements * sizeof(float);
constexpr uint64_t kNarrow = kWide / 2;  // as bf16

class GpuFusedRouteTest : public GpuTest, public ::testing::WithParamInterface<GpuCase> {
 protected:
  bool Open() {
    if (!Need(2)) return false;
    const std::string order = absl::StrCat("order: [", RouteText(), "]");
    const std::string more = GetParam().transfer;
    StartNodes(GetParam().one_node ? 1 : 2, 2,
               more.empty() ? order : absl::StrCat(order, ", ", more));
    if (GetParam().route == FERRY_ROUTE_UCX && !NeedUcx()) return false;
    source_ = OpenSource(GetParam(), kWide + kNarrow);
    destination_ = OpenDestination(GetParam(), kWide + kNarrow);
    return true;
  }
  void CloseEnds() override {
    source_ = End();
    destination_ = End();
  }
  static std::string RouteText() {
    const std::string name = GetParam().name;
    return name.substr(0, name.find('_'));
  }

  // Whole numbers of at most 8 bits, which bf16 has: other ones for another `n`.
  static float ValueOf(int i, int n) { return static_cast<float>((i * 7 + n) % 256); }
  void Write(int n) {
    std::vector<float> values(kParts * kElements);
    for (size_t i = 0; i < values.size(); ++i) values[i] = ValueOf(static_cast<int>(i), n);
    ASSERT_THAT(source_.arena.Write(0, values.data(), kWide), IsOk());
    const std::vector<char> poison(kWide + kNarrow, 'x');
    ASSERT_THAT(destination_.arena.Write(0, poison.data(), poison.size()), IsOk());
  }
  void ExpectTwice(int n) {
    std::vector<float> values(kParts * kElements);
    ASSERT_THAT(destination_.arena.Read(0, values.data(), kWide), IsOk());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], 2 * ValueOf(static_cast<int>(i), n)) << i << ", " << n;
    }
  }
  static Program Compile(End& end, const std::string& text) {
    return Must(Program::Compile(end.session, end.device, text));
  }

  End source_, destination_;
};

TEST_P(GpuFusedRouteTest, ProgramsSendAndReceiveTheirParts) {
  if (!Open()) return;
  const std::string dims = absl::StrCat("[", kParts, ",", kElements, "]\n");
  const std::string travels = absl::StrCat(" peer=\"other\" key=\"k\" parts=", kParts);
  const Program sends = Compile(
      source_, absl::StrCat("program 1\nbuffer @x read ", kWide, "\n%x = input @x : f32", dims,
                            "%n = convert %x : bf16", dims, "send %n", travels, "\n"));
  const Program receives =
      Compile(destination_,
              absl::StrCat("program 1\nbuffer @y write ", kWide, "\n%n = recv", travels, " : bf16",
                           dims, "%w = convert %n : f32", dims, "%y = add %w, %w\nstore @y, %y\n"));
  for (int n = 0; n < 3; ++n) {
    Write(n);
    const auto post = [&](const Program& program, const char* buffer, End& end, const End& peer) {
      ProgramRun run = program.Run({{buffer, end.arena.Range(0, kWide)}});
      run.peers = {{"other", peer.device}};
      run.key_suffix = absl::StrCat("/", n);
      return Must(RunPrograms(end.session, end.device, {run}));
    };
    Batch received = post(receives, "y", destination_, source_);
    Batch sent = post(sends, "x", source_, destination_);
    ASSERT_THAT(received.Wait(kSoon), IsOk());
    ASSERT_THAT(sent.Wait(kSoon), IsOk());
    ExpectTwice(n);
  }
}

TEST_P(GpuFusedRouteTest, PreparedJobsAreJoinedToTheTransfersOfTheirParts) {
  if (!Open()) return;
  const std::string all = absl::StrCat("[", kParts * kElements, "]\n");
  const Program narrows =
      Compile(source_, absl::StrCat("program 1\nbuffer @x read ", kWide, "\nbuffer @n write ",
                                    kNarrow, "\n%x = input @x : f32", all, "%n = convert %x : bf16",
                                    all, "store @n, %n\n"));
  const Program widens = Compile(
      destination_, absl::StrCat("program 1\nbuffer @n read ", kNarrow, "\nbuffer @y write ", kWide,
                                 "\n%n = input @n : bf16", all, "%w = convert %n : f32", all,
                                 "%y = add %w, %w\nstore @y, %y\n"));
  std::vector<Transfer> sends, receives;
  for (int i = 0; i < kParts; ++i) {
    const uint64_t at = kWide + static_cast<uint64_t>(i) * kElements * 2;
    const auto range = [&](End& end) {
      return std::vector<Range>{end.arena.Range(at, kElements * 2)};
    };
    sends.emplace_back(destination_.device, absl::StrCat("k", i), range(source_));
    receives.emplace_back(source_.device, absl::StrCat("k", i), range(destination_));
  }
  PostOptions options;
  options.route = GetParam().route;
  Prepared in = Must(destination_.session.PrepareReceive(destination_.device, receives, options));
  Prepared out = Must(source_.session.PrepareSend(source_.device, sends, options));
  const auto prepare = [](End& end, const Program& program, const char* wide,
                          const Prepared* with) {
    return Must(PreparePrograms(
        end.session, end.device,
        {program.Run({{wide, end.arena.Range(0, kWide)},
                      {"n", end.arena.Range(kWide, kNarrow), FERRY_UNSPECIFIED, with}})}));
  };
  Prepared narrowing = prepare(source_, narrows, "x", &out);
  Prepared widening = prepare(destination_, widens, "y", &in);
  for (int n = 0; n < 5; ++n) {
    Write(n);
    ASSERT_THAT(widening.Fire(), IsOk());
    ASSERT_THAT(narrowing.Fire(), IsOk());
    ASSERT_THAT(widening.Wait(kSoon), IsOk());
    ASSERT_THAT(narrowing.Wait(kSoon), IsOk());
    ASSERT_THAT(out.Wait(static_cast<uint64_t>(n) + 1, kSoon), IsOk());
    ExpectTwice(n);
  }
}

INSTANTIATE_TEST_SUITE_P(MultiGpu, GpuFusedRouteTest,
                         ::testing::Values(kGpuLocal, kGpuMapped, kGpuNccl, kGpuTcp, kGpuUcxShm),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ferry::testing
