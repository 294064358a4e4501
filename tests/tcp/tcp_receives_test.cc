// SPDX-License-Identifier: Apache-2.0
// TcpReceives: which bytes a receive must not be sent.
#include "transfer/tcp/tcp_receives.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/tcp/made_ops.h"

namespace ferry {
namespace {

TEST(TcpReceivesTest, AReceiveTakesEachOfItsBytesOnceAndNoOthers) {
  std::byte memory[100];
  TcpOp receive(MadeOp(LaunchRole::kReceive, 1, memory, sizeof(memory)));
  const uint64_t most = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(TcpReceives::Objection(receive, {1, 0, 100}), "");
  EXPECT_EQ(TcpReceives::Objection(receive, {1, 99, 1}), "");
  EXPECT_EQ(TcpReceives::Objection(receive, {1, 100, 1}), "bytes beyond its end came");
  EXPECT_EQ(TcpReceives::Objection(receive, {1, 0, 101}), "bytes beyond its end came");
  EXPECT_EQ(TcpReceives::Objection(receive, {1, most, 2}), "bytes beyond its end came");
  EXPECT_EQ(TcpReceives::Objection(receive, {1, 2, most}), "bytes beyond its end came");
  EXPECT_EQ(TcpReceives::Objection(receive, {1, 50, 0}), "an entry without bytes came");
  receive.cut = 60;
  EXPECT_EQ(TcpReceives::Objection(receive, {1, 60, 40}), "");
  EXPECT_EQ(TcpReceives::Objection(receive, {1, 0, 41}), "bytes came twice");
}

}  // namespace
}  // namespace ferry
