// SPDX-License-Identifier: Apache-2.0
// Posting over the session's socket: when it is taken, when not, and who gets which answer.
#include <thread>

#include "ferry/program.hpp"
#include "tests/client/client_fixture.h"

namespace ferry::testing {
namespace {

using PostSocketTest = ClientTest;

TEST_F(PostSocketTest, ARunWithoutAProgramIsNamed) {
  Session session = Open();
  Result<Batch> refused = RunPrograms(session, 0, {ProgramRun{}});
  ASSERT_FALSE(refused.ok());
  ASSERT_EQ(refused.status().violations().size(), 1u);
  EXPECT_EQ(refused.status().violations()[0].field, "runs[0].program");
}

TEST_F(PostSocketTest, WhatDoesNotFitAPacketGoesByACall) {
  Session session = Open();
  std::vector<Transfer> many(2000, Keyed(std::string("echo").append(60, 'x')));
  auto large = session.Send(0, many);  // some 140 KB
  ASSERT_OK(large);
  EXPECT_EQ(daemon_->socket_posts(), 0u);
  EXPECT_EQ(daemon_->unary_posts(), 1u);
  many.resize(1500);
  auto small = session.Send(0, many);
  ASSERT_OK(small);
  EXPECT_EQ(daemon_->socket_posts(), 1u);
  EXPECT_EQ(small->first_value(), large->first_value() + 2000);
  ASSERT_OK(small->Wait(kSoon));
}

// Posts and requests of many threads on one socket: each thread has a counter of its own, on which
// an answer that went astray would show.
TEST_F(PostSocketTest, AnswersFindTheirAskers) {
  Session session = Open();
  constexpr uint32_t kThreads = 8;
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      PostOptions options;
      options.over_timeline = t;
      for (uint64_t i = 1; i <= 200; ++i) {
        auto batch = session.Send(0, {Keyed("echo")}, options);
        ASSERT_OK(batch);
        EXPECT_EQ(batch->first_value(), i);
        if (i % 10 == 0) {
          ASSERT_OK(session.ResetOver(t));
        }
        if (i % 50 == 0) {
          auto arena = session.CreateArena(t % 2, 4096);
          ASSERT_OK(arena);
          ASSERT_OK(arena->Release());
        }
        if (i % 7 == 0) {
          EXPECT_EQ(session.Send(0, {Keyed("bad")}, options).status().reason(), "FIELD_INVALID");
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(daemon_->unary_posts(), 0u);
}

TEST_F(PostSocketTest, WhatNobodyAskedForIsPassedOver) {
  Session session = Open();
  v1::AttachResponse notice;
  notice.mutable_notice()->set_draining(true);
  daemon_->Say(notice.SerializeAsString());
  v1::AttachResponse stray;
  stray.set_sequence(1'000'000);
  stray.mutable_send();
  daemon_->Say(stray.SerializeAsString());
  ASSERT_OK(session.Send(0, {Keyed("echo")}));
  ASSERT_OK(session.Health());
}

TEST_F(PostSocketTest, AnAnswerToAnotherQuestionIsNotTaken) {
  Session session = Open();
  v1::AttachResponse wrong;
  wrong.set_sequence(2);  // hello was 1
  wrong.mutable_timeline_reset();
  daemon_->Say(wrong.SerializeAsString());
  EXPECT_EQ(session.Send(0, {Keyed("hang")}).status().code_name(), "INTERNAL");
  ASSERT_OK(session.Send(0, {Keyed("echo")}));
}

TEST_F(PostSocketTest, ADaemonThatTalksNonsenseIsLost) {
  Session session = Open();
  auto pending = session.Receive(0, {Keyed("never")});
  ASSERT_OK(pending);
  daemon_->Say("\xff\xff");
  EXPECT_EQ(session.Send(0, {Keyed("hang")}).status().reason(), "DAEMON_LOST");
  EXPECT_EQ(pending->Wait(kSoon).reason(), "DAEMON_LOST");
}

}  // namespace
}  // namespace ferry::testing
