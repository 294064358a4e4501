// SPDX-License-Identifier: Apache-2.0
// Clients that give a daemon much to do or to keep with few bytes: batches of millions of blocks,
// layouts of thousands of ranges, runs that take minutes. Others do not notice.
#include "absl/strings/str_cat.h"
#include "ferry/program.hpp"
#include "tests/support/fixtures.h"
#include "tests/support/raw_session.h"

namespace ferry::testing {
namespace {

constexpr uint64_t kBlocks = 1 << 20;  // that a layout may have

class HostileWorkTest : public ClusterTest {
 protected:
  // Sends that nobody receives.
  v1::CrossHostSendRequest SendTo(uint64_t remote, int count, int batch) {
    v1::CrossHostSendRequest request;
    request.set_device_id(nodes().Device(0));
    for (int i = 0; i < count; ++i) {
      request.add_transfer_keys(absl::StrCat(batch, ".", i));
      request.add_dst_global_device_ids(remote);
      request.add_buffers();
    }
    return request;
  }
  absl::Status Post(RawSession& session, const v1::CrossHostSendRequest& request) {
    v1::CrossHostSendResponse response;
    return session.Call([&](auto* context) {
      return session.transfers().CrossHostSend(context, request, &response);
    });
  }
};

TEST_F(HostileWorkTest, MillionsOfBlocksThatTouchHoldNobodyUp) {
  Start();
  End source = OpenEnd(0, kMiB), destination = OpenEnd(1, kMiB);
  ExpectTransfer(source, destination, "before");
  RawSession bad(node(0).client_dir());
  ASSERT_TRUE(bad.Hello().has_welcome());
  const uint64_t arena = bad.MakeArena(nodes().Device(0), 2 * kBlocks);
  v1::CrossHostSendRequest request = SendTo(nodes().Device(1), 4096, 0);
  for (v1::Buffer& buffer : *request.mutable_buffers()) {
    buffer.mutable_strided()->set_arena_id(arena);
    buffer.mutable_strided()->set_block_bytes(1);
    buffer.mutable_strided()->set_stride_bytes(1);
    buffer.mutable_strided()->set_count(kBlocks);
  }
  for (int batch = 0; batch < 5; ++batch) {
    for (int i = 0; i < 4096; ++i) request.set_transfer_keys(i, absl::StrCat(batch, ".", i));
    const absl::Status posted = Post(bad, request);
    EXPECT_TRUE(posted.ok()) << posted;
    ExpectTransfer(source, destination, absl::StrCat("beside ", batch));
  }
  EXPECT_EQ(node(0).admin().PeerState("node-b"), "up");

  // As many that do not touch are too much for one batch, which is told of each entry.
  for (int i = 0; i < 4096; ++i) {
    request.set_transfer_keys(i, absl::StrCat("apart ", i));
    request.mutable_buffers(i)->mutable_strided()->set_stride_bytes(2);
  }
  const absl::Status refused = Post(bad, request);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(refused.message()),
      ::testing::AllOf(::testing::HasSubstr("4095 problems"), ::testing::HasSubstr("buffers[1]"),
                       ::testing::HasSubstr("post several batches")));
}

TEST_F(HostileWorkTest, WhatASessionMakesTheDaemonKeepIsBoundedInBytes) {
  ClusterOptions options;
  options.limits = "session_kept_bytes: 16MiB, uid_kept_bytes: 24MiB";
  options.nodes = 1;
  Start(options);
  const auto post_until_full = [&](RawSession& session, int first) {
    const uint64_t arena = session.MakeArena(nodes().Device(0), kMiB);
    int posted = 0;
    absl::Status status;
    for (; posted < 200; ++posted) {
      v1::CrossHostSendRequest request = SendTo(nodes().Device(0, 1), 1, first + posted);
      for (uint64_t i = 0; i < 20'000; ++i) {
        v1::BufferRange& range = *request.mutable_buffers(0)->add_ranges();
        range.set_arena_id(arena);
        range.set_offset(2 * i);
        range.set_length(1);
      }
      status = Post(session, request);
      if (!status.ok()) break;
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << posted;
    EXPECT_LT(posted, 60);
    return std::make_pair(posted, std::string(status.message()));
  };
  auto first = std::make_unique<RawSession>(node(0).client_dir());
  auto second = std::make_unique<RawSession>(node(0).client_dir());
  ASSERT_TRUE(first->Hello().has_welcome());
  ASSERT_TRUE(second->Hello().has_welcome());
  const auto [of_first, why_first] = post_until_full(*first, 0);
  EXPECT_THAT(why_first, ::testing::HasSubstr("limits.session_kept_bytes"));
  EXPECT_GT(of_first, 20);
  const auto [of_second, why_second] = post_until_full(*second, 1000);
  EXPECT_THAT(why_second, ::testing::HasSubstr("limits.uid_kept_bytes"));
  EXPECT_LT(of_second, of_first);
  first.reset();
  second.reset();
  ASSERT_TRUE(node(0).AwaitIdle());
  RawSession third(node(0).client_dir());
  ASSERT_TRUE(third.Hello().has_welcome());
  EXPECT_EQ(post_until_full(third, 2000).first, of_first) << "all of it was given back";
}

TEST_F(HostileWorkTest, ALongJobDoesNotHoldUpThoseOfOthers) {
  ClusterOptions options;
  options.nodes = 1;
  Start(options);
  constexpr uint64_t kSide = 2048;
  constexpr uint64_t kTensor = kSide * kSide * sizeof(float);
  End slow = OpenEnd(0, kTensor), quick = OpenEnd(0, 4096);
  // Minutes of it.
  const Program turns = Must(Program::Compile(
      slow.session, slow.device,
      absl::StrCat("program 1\nbuffer @x read_write ", kTensor, " donated\n%x = input @x : f32[",
                   kSide, ",", kSide, "]\n%r = repeat %x trips=16000 (%i, %a)\n",
                   "  %t = transpose %a permutation=[1,0]\n  yield %t\nstore @x, %r\n")));
  ProgramBuilder builder;
  const TensorType type{FERRY_F32, {16}};
  builder.Store("y", builder.Multiply(builder.Input("x", type), builder.Splat(2, type)));
  const Program doubles = Must(Program::Compile(quick.session, quick.device, builder.Text()));
  static_cast<float*>(quick.arena.data())[0] = 21;
  PostOptions hour;
  hour.deadline = std::chrono::hours(1);
  Batch runs = Must(RunPrograms(slow.session, slow.device,
                                {turns.Run({{"x", slow.arena.Range(0, kTensor)}})}, hour));
  for (int i = 0; i < 20; ++i) {
    Batch run = Must(RunPrograms(
        quick.session, quick.device,
        {doubles.Run({{"x", quick.arena.Range(0, 64)}, {"y", quick.arena.Range(64, 64)}})}));
    ASSERT_THAT(run.Wait(kSoon), IsOk());
    EXPECT_EQ(static_cast<float*>(quick.arena.data())[16], 42);
  }
  EXPECT_FALSE(runs.over());
  ASSERT_THAT(runs.Cancel(), IsOk());
  EXPECT_THAT(runs.Wait(kSoon), Is("CANCELLED/CANCELLED"));
}

}  // namespace
}  // namespace ferry::testing
