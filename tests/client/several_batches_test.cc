// SPDX-License-Identifier: Apache-2.0
// Batches of several devices and counters: which counter they take, and waiting for several.
#include <string>
#include <thread>
#include <vector>

#include "tests/client/client_fixture.h"

namespace ferry::testing {
namespace {

using SeveralBatchesTest = ClientTest;

uint32_t TimelineOf(Session& session, uint64_t device, uint32_t wanted = 0) {
  PostOptions options;
  options.over_timeline = wanted;
  auto batch = session.Send(device, {Keyed("echo")}, options);
  EXPECT_TRUE(batch.ok()) << batch.status().ToString();
  EXPECT_TRUE(batch->Wait(kSoon).ok());
  return batch->timeline();
}

// Posts that differ from each other in the counter that they end by.
Result<Batch> Post(Session& session, const std::string& key, uint32_t timeline = 0) {
  PostOptions options;
  options.over_timeline = timeline;
  return session.Send(0, {Keyed(key)}, options);
}

TEST_F(SeveralBatchesTest, EachDeviceHasACounterThatNobodyNamed) {
  FakeDaemon::Behaviour behaviour;
  behaviour.devices = 70;
  Restart(behaviour);
  Session session = Open();
  EXPECT_EQ(TimelineOf(session, 1), 0u);
  EXPECT_EQ(TimelineOf(session, 0, 62), 62u);
  EXPECT_EQ(TimelineOf(session, 0), 63u);
  EXPECT_EQ(TimelineOf(session, 2), 61u) << "62 is the application's";
  EXPECT_EQ(TimelineOf(session, 1), 0u);
  EXPECT_EQ(TimelineOf(session, 0), 63u);
  for (uint64_t device = 3; device < 63; ++device) {
    EXPECT_EQ(TimelineOf(session, device), 63 - device) << "of device " << device;
  }
  const auto none = session.Send(63, {Keyed("echo")});
  EXPECT_EQ(none.status().reason(), "FIELD_INVALID");
  ASSERT_EQ(none.status().violations().size(), 1u);
  EXPECT_EQ(none.status().violations()[0].field, "options.over_timeline");
  EXPECT_EQ(TimelineOf(session, 63, 5), 5u) << "the daemon's word counts, not ours";
}

TEST_F(SeveralBatchesTest, ARefusedDeviceTakesNoCounter) {
  Session session = Open();
  EXPECT_FALSE(session.Send(500, {Keyed("bad")}).ok());
  EXPECT_EQ(TimelineOf(session, 1), 0u);
}

TEST_F(SeveralBatchesTest, WaitAnyTellsWhichIsOver) {
  Session session = Open();
  auto never = Post(session, "never", 1);
  auto later = session.Receive(1, {Keyed("later", {}, 0)});
  ASSERT_OK(never);
  ASSERT_OK(later);
  size_t index = 7;
  std::vector<Batch*> batches = {&*never, nullptr, &*later};
  const Status none = WaitAny(batches, &index, Duration{0});
  EXPECT_EQ(none.code_name(), "DEADLINE_EXCEEDED");
  EXPECT_EQ(none.reason(), "");
  EXPECT_EQ(index, 7u);
  Status woken;
  std::thread waiter([&] { woken = WaitAny(batches, &index, kSoon); });
  daemon_->WaitForEventWaiter();
  auto send = Post(session, "later", 2);
  waiter.join();
  ASSERT_OK(woken);
  EXPECT_EQ(index, 2u);
  auto failed = Post(session, "fail", 3);
  batches[1] = &*failed;
  EXPECT_EQ(WaitAny(batches, &index, kSoon).reason(), "TRANSFER_MISMATCH");
  EXPECT_EQ(index, 1u) << "the first in the list";
  batches = {&*never};
  daemon_->Kill();
  EXPECT_EQ(WaitAny(batches, &index, kSoon).reason(), "DAEMON_LOST");
  EXPECT_EQ(index, 0u);
}

TEST_F(SeveralBatchesTest, WaitAllTellsTheFirstFailureOnceAllAreOver) {
  Session session = Open();
  Session other = Open();
  auto well = Post(session, "echo");
  auto first = Post(session, "fail first", 2);
  auto second = other.Send(0, {Keyed("fail second")});
  auto never = Post(other, "never", 3);
  ASSERT_OK(WaitAll({&*well, nullptr}, kSoon));
  ASSERT_OK(WaitAll({}, kSoon));
  size_t index = 7;
  const Status failed = WaitAll({&*well, nullptr, &*first, &*second}, kSoon, &index);
  EXPECT_EQ(failed.message(), "failed as asked: fail first");
  EXPECT_EQ(index, 2u);
  const Status late = WaitAll({&*first, &*never, &*well}, Duration{0}, &index);
  EXPECT_EQ(late.code_name(), "DEADLINE_EXCEEDED");
  EXPECT_EQ(late.reason(), "");
  EXPECT_EQ(index, 1u);
}

TEST_F(SeveralBatchesTest, WhatCannotBeWaitedForIsNamed) {
  Session session = Open();
  Session other = Open();
  auto here = Post(session, "never");
  auto there = Post(other, "never");
  ferry_batch* freed = nullptr;
  const ferry_transfer echo{1, "echo", 4};
  ASSERT_OK(Status(ferry_cross_host_send(session.get(), 0, &echo, 1, nullptr, &freed)));
  ferry_batch_free(freed);
  size_t index = 0;
  const auto field = [](const Status& status) {
    return status.violations().size() == 1 ? std::string(status.violations()[0].field) : "";
  };
  EXPECT_EQ(field(WaitAny({&*here, &*there}, &index)), "batches[1]");
  EXPECT_EQ(field(WaitAny({nullptr, nullptr}, &index)), "batches");
  ferry_batch* const raw[] = {here->get(), freed};
  EXPECT_EQ(field(Status(ferry_wait_any(raw, 2, 0, &index))), "batches[1]");
  EXPECT_EQ(field(Status(ferry_wait_all(raw, 2, 0, &index))), "batches[1]");
}

}  // namespace
}  // namespace ferry::testing
