// SPDX-License-Identifier: Apache-2.0
// Transfers without bytes between GPUs, which are the fake CUDA's: what has no bytes has no memory
// that would keep a GPU's context open.
#include <vector>

#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

constexpr uint64_t kFrom = 1, kNear = 2, kFar = 4;

class GpuEmptyTest : public ClusterTest {
 protected:
  // Node i has a host device and two GPUs, with ids in this order.
  void StartNodes() {
    ClusterOptions options;
    options.devices = 1;
    options.gpus = 2;
    Start(options);
  }
};

TEST_F(GpuEmptyTest, NeedsNoMemory) {
  StartNodes();
  Session a = nodes().Open(0), b = nodes().Open(1);
  const auto move = [&](Session& receiver, uint64_t to, int route) {
    PostOptions options;
    options.route = route;
    Batch receive = Must(receiver.Receive(to, {Transfer(kFrom, "k", {})}, options));
    Batch send = Must(a.Send(kFrom, {Transfer(to, "k", {})}, options));
    EXPECT_THAT(receive.Wait(kSoon), IsOk());
    EXPECT_THAT(send.Wait(kSoon), IsOk());
  };
  move(a, kNear, FERRY_ROUTE_LOCAL);
  move(b, kFar, FERRY_ROUTE_MAPPED);
  move(b, kFar, FERRY_ROUTE_TCP);
}

TEST_F(GpuEmptyTest, NeedsNoneWherePrepared) {
  StartNodes();
  Session a = nodes().Open(0), b = nodes().Open(1);
  Prepared receive = Must(b.PrepareReceive(kFar, {Transfer(kFrom, "k", {})}));
  Prepared send = Must(a.PrepareSend(kFrom, {Transfer(kFar, "k", {})}));
  EXPECT_THAT(send.Fire(), IsOk());
  EXPECT_THAT(receive.Fire(), IsOk());
  EXPECT_THAT(send.Wait(kSoon), IsOk());
  EXPECT_THAT(receive.Wait(kSoon), IsOk());
}

}  // namespace
}  // namespace ferry::testing
