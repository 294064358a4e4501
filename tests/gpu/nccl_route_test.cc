// SPDX-License-Identifier: Apache-2.0
// Route nccl where nobody names it: taken instead of staged tcp between GPUs whose memory cannot be
// mapped, and left by small transfers while the SMs are busy.
#include <filesystem>

#include "tests/gpu/nccl_fixture.h"

namespace ferry::testing {
namespace {

class MultiGpuNcclRouteTest : public MultiGpuNcclTest {
 protected:
  static ClusterOptions InOrder(const std::string& order) {
    ClusterOptions options;
    options.transfer = "order: [" + order + "]";
    return options;
  }
  uint64_t Moved() {
    const auto comms = node(1).admin().Comms();
    return comms.comms_size() == 0 ? 0 : comms.comms(0).moved_bytes();
  }
  // Of a small transfer from a to b, as node b, which decides, says.
  bool Chosen(const End& a, const End& b, v1::Route route, bool sms_busy) {
    const auto explained = node(1).admin().Explain(a.device, b.device);
    for (const auto& option : explained.options()) {
      if (option.route() == v1::ROUTE_NCCL && option.sms_busy() != sms_busy) return false;
    }
    return explained.chosen() == route;
  }
};

TEST_F(MultiGpuNcclRouteTest, NcclTakesOverFromStagedTcp) {
  constexpr uint64_t kBytes = 32 * kMiB;
  if (!StartDaemons(2, InOrder("local, tcp, nccl"))) return;
  End a = Open(0, 0, kBytes), b = Open(1, 0, kBytes);
  ExpectMoves(a, b, {}, kBytes);
  EXPECT_EQ(Moved(), 0u);  // nobody waits for an opening that was not asked for
  ASSERT_TRUE(Await([&] {
    ExpectMoves(a, b, {}, kBytes);
    return HasFatalFailure() || Moved() > 0;
  }));
  EXPECT_EQ(node(1).admin().CountComms("open"), 1u);
}

TEST_F(MultiGpuNcclRouteTest, SmallTransfersLeaveBusySmsAndReturn) {
  const std::string slice = absl::StrCat("slice_gate=", Gate("busy"));
  if (!StartWithFaults(slice, InOrder("nccl, tcp"), slice)) return;
  End a = Open(0, 0, kNcclBytes), b = Open(1, 0, kNcclBytes);
  ExpectMoves(a, b, {}, 8);
  ASSERT_TRUE(Await([&] { return Chosen(a, b, v1::ROUTE_NCCL, false); }));
  WriteFile(Gate("busy"), "");
  ASSERT_TRUE(Await([&] {  // busy for 10 ms at first, longer each time
    const uint64_t before = Moved();
    ExpectMoves(a, b, {}, 8);
    return HasFatalFailure() || (Moved() == before && Chosen(a, b, v1::ROUTE_TCP, true));
  }));
  std::filesystem::remove(Gate("busy"));
  EXPECT_TRUE(Await([&] { return Chosen(a, b, v1::ROUTE_NCCL, false); }));
}

}  // namespace
}  // namespace ferry::testing
