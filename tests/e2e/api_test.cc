// SPDX-License-Identifier: Apache-2.0
// Manners of the API: request ids, callbacks, watching, 'over' counters, XLA's argument texts.
#include <atomic>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "tests/support/fixtures.h"
#include "tests/support/raw_session.h"

namespace ferry::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

class ApiTest : public ClusterTest {};

TEST_F(ApiTest, ARepeatedRequestIdPostsNothingTwice) {
  Start();
  End source = OpenEnd(0, 8192);
  End destination = OpenEnd(1, 8192);
  PostOptions options;
  options.request_id = "step-1";
  const Transfer send(destination.device, "k", {source.arena.Range(0, 4096)});
  Batch first = Must(source.session.Send(0, {send}, options));
  Batch again = Must(source.session.Send(0, {send}, options));
  EXPECT_EQ(first.first_id(), again.first_id());
  EXPECT_EQ(first.first_value(), again.first_value());
  EXPECT_EQ(node(0).admin().Status().transfers_in_flight(), 1u);
  // Another body, another call, or another domain under the same id.
  const auto reused = Is("ALREADY_EXISTS/REQUEST_ID_REUSED", HasSubstr("step-1"));
  EXPECT_THAT(
      source.session.Send(0, {Transfer(destination.device, "other", {source.arena.Range(0, 4096)})},
                          options),
      reused);
  options.domain = "elsewhere";
  EXPECT_THAT(source.session.Send(0, {send}, options), reused);
  EXPECT_EQ(node(0).admin().Status().transfers_in_flight(), 1u);
  Batch receive = Receive(destination, source, "k", {destination.arena.Range(0, 4096)});
  EXPECT_THAT(receive.Wait(kSoon), IsOk());
  EXPECT_THAT(first.Wait(kSoon), IsOk());
  // Also when it is over.
  options.domain = "";
  Batch late = Must(source.session.Send(0, {send}, options));
  EXPECT_EQ(first.first_id(), late.first_id());
  EXPECT_THAT(late.Wait(kSoon), IsOk());
  EXPECT_EQ(node(0).admin().Status().transfers_ok(), 1u);
  // Another session's request ids are its own.
  End other = OpenEnd(0, 4096);
  EXPECT_THAT(
      other.session.Send(0, {Transfer(destination.device, "mine", {other.arena.All()})}, options),
      IsOk());
}

TEST_F(ApiTest, ASessionPostsOnTwoDevicesWithoutACounterOfItsOwn) {
  Start({.nodes = 1});
  End end = OpenEnd(0, 4096);
  Arena there = Must(end.session.CreateArena(1, 4096));
  Batch receive = Must(end.session.Receive(1, {Transfer(0, "k", {there.All()})}));
  Batch send = Must(end.session.Send(0, {Transfer(1, "k", {end.arena.All()})}));
  EXPECT_NE(send.timeline(), receive.timeline());
  EXPECT_THAT(WaitAll({&send, &receive}, kSoon), IsOk());
  size_t index = 9;
  EXPECT_THAT(WaitAny({nullptr, &send}, &index, kSoon), IsOk());
  EXPECT_EQ(index, 1u);
}

TEST_F(ApiTest, AClientLearnsOfEveryDeviceFromItsDaemon) {
  Start();
  const auto listed = [](Session& session) {
    std::vector<std::string> named;
    for (const ClusterDevice& one : Must(session.ClusterDevices())) {
      named.push_back(absl::StrCat(one.global_device_id, " ", one.node, " '", one.name, "' ",
                                   one.kind, one.local ? " local" : ""));
    }
    return named;
  };
  End source = OpenEnd(0, 4096);
  End destination = OpenEnd(1, 4096);
  // Membership has the ids; what else there is to say of a device its daemon says, once linked.
  EXPECT_THAT(listed(source.session),
              ::testing::ElementsAre("0 node-a 'host0' 1 local", "1 node-a 'host1' 1 local",
                                     "2 node-b '' 0", "3 node-b '' 0"));
  ExpectTransfer(source, destination, "k");
  EXPECT_THAT(listed(source.session),
              ::testing::ElementsAre("0 node-a 'host0' 1 local", "1 node-a 'host1' 1 local",
                                     "2 node-b 'host0' 1", "3 node-b 'host1' 1"));
}

TEST_F(ApiTest, TheSameIdMeansAnotherThingToSendsAndReceives) {
  Start({.nodes = 1});
  End end = OpenEnd(0, 4096);
  PostOptions options;
  options.request_id = "r";
  Batch send = Must(end.session.Send(0, {Transfer(0, "k", {})}, options));
  EXPECT_THAT(end.session.Receive(0, {Transfer(0, "k", {})}, options),
              Is("ALREADY_EXISTS/REQUEST_ID_REUSED"));
}

TEST_F(ApiTest, CallbacksComeOnceForEveryEnding) {
  Start();
  End source = OpenEnd(0, 4096);
  End destination = OpenEnd(1, 4096);
  std::atomic<int> good = 0, bad = 0, already = 0;
  Batch receive = Receive(destination, source, "good", {destination.arena.All()});
  EXPECT_THAT(receive.OnOver([&] { ++good; }), IsOk());
  PostOptions soon;
  soon.deadline = milliseconds(100);
  Batch lonely = Receive(destination, source, "lonely", {destination.arena.All()}, soon);
  EXPECT_THAT(lonely.OnOver([&] { ++bad; }), IsOk());
  Batch send = Send(source, destination, "good", {source.arena.All()});
  EXPECT_TRUE(Await([&] { return good == 1 && bad == 1; }));
  ASSERT_THAT(send.Wait(kSoon), IsOk());
  EXPECT_THAT(send.OnOver([&] { ++already; }), IsOk());
  EXPECT_TRUE(Await([&] { return already == 1; }));
  std::future<Status> future = Send(source, destination, "future", {source.arena.All()}).Future();
  Batch last = Receive(destination, source, "future", {destination.arena.All()});
  ASSERT_EQ(future.wait_for(kSoon), std::future_status::ready);
  EXPECT_THAT(future.get(), IsOk());
  EXPECT_EQ(good, 1);
  EXPECT_EQ(bad, 1);
}

TEST_F(ApiTest, AWatcherSeesEveryEndingInOrder) {
  Start({.nodes = 1});
  End end = OpenEnd(0, 4096);
  std::mutex mutex;
  std::vector<std::pair<uint64_t, std::string>> seen;
  auto watcher = [&](uint64_t id, const ferry_status* status) {
    std::lock_guard lock(mutex);
    seen.emplace_back(id, status == nullptr ? "OK" : ferry_status_reason(status));
  };
  ASSERT_THAT(end.session.Watch(&watcher), IsOk());
  std::vector<std::pair<uint64_t, std::string>> expected;
  for (int i = 0; i < 50; ++i) {
    const std::string key = absl::StrCat("k", i);
    Batch send = Must(end.session.Send(0, {Transfer(0, key, {})}));
    if (i % 5 == 0) {
      ASSERT_THAT(send.Cancel(), IsOk());
      expected.emplace_back(send.first_id(), "CANCELLED");
      EXPECT_THAT(send.Wait(kSoon), Is("CANCELLED/CANCELLED"));
      continue;
    }
    Batch receive = Must(end.session.Receive(0, {Transfer(0, key, {})}));
    ASSERT_THAT(send.Wait(kSoon), IsOk());
    ASSERT_THAT(receive.Wait(kSoon), IsOk());
    expected.emplace_back(send.first_id(), "OK");
    expected.emplace_back(receive.first_id(), "OK");
  }
  ASSERT_TRUE(Await([&] {
    std::lock_guard lock(mutex);
    return seen.size() >= expected.size();
  }));
  std::sort(expected.begin(), expected.end());
  {
    std::lock_guard lock(mutex);
    std::vector<std::pair<uint64_t, std::string>> sorted = seen;
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(sorted, expected);
  }
  end.session.Close();  // the watcher must not outlive `seen`
}

// The stream itself: numbered events, resumed after any of them.
TEST_F(ApiTest, TheWatchStreamResumes) {
  Start({.nodes = 1});
  RawSession session(node(0).client_dir());
  ASSERT_TRUE(session.Hello().has_welcome());
  constexpr uint64_t kCount = 20;
  v1::CrossHostSendRequest send;
  v1::CrossHostReceiveRequest receive;
  for (uint64_t i = 0; i < kCount / 2; ++i) {
    send.add_buffers();
    send.add_dst_global_device_ids(0);
    send.add_transfer_keys(absl::StrCat(i));
    receive.add_buffers();
    receive.add_src_global_device_ids(0);
    receive.add_transfer_keys(absl::StrCat(i));
  }
  v1::CrossHostSendResponse sent;
  v1::CrossHostReceiveResponse received;
  ASSERT_THAT(
      session.Call([&](auto* c) { return session.transfers().CrossHostSend(c, send, &sent); }),
      IsOk());
  ASSERT_THAT(session.Call([&](auto* c) {
    return session.transfers().CrossHostReceive(c, receive, &received);
  }),
              IsOk());
  const auto watch = [&](uint64_t after, uint64_t count) {
    std::vector<std::pair<uint64_t, uint64_t>> events;  // number, transfer
    const absl::Status ended = session.Call([&](grpc::ClientContext* context) {
      v1::WatchTransfersRequest request;
      request.set_after_event(after);
      auto stream = session.transfers().WatchTransfers(context, request);
      v1::WatchTransfersResponse response;
      while (events.size() < count && stream->Read(&response)) {
        for (int i = 0; i < response.ended_size(); ++i) {
          events.emplace_back(response.first_event() + static_cast<uint64_t>(i),
                              response.ended(i).transfer_id());
        }
      }
      context->TryCancel();
      return stream->Finish();
    });
    EXPECT_EQ(ended.code(), absl::StatusCode::kCancelled) << ended.ToString();
    return events;
  };
  const auto all = watch(0, kCount);
  ASSERT_EQ(all.size(), kCount);
  for (uint64_t i = 0; i < kCount; ++i) EXPECT_EQ(all[i].first, i + 1);
  const auto rest = watch(13, kCount - 13);
  EXPECT_EQ(rest, std::vector(all.begin() + 13, all.end()));
}

// A low-water mark in the order of posting: an early one that waits holds it, whatever ends behind
// it.
TEST_F(ApiTest, AnOverCounterIsALowWaterMark) {
  Start({.nodes = 1});
  End end = OpenEnd(0, 4096);
  PostOptions options;
  options.over_timeline = 5;
  Batch waits = Must(end.session.Send(0, {Transfer(0, "waits", {})}, options));
  Batch fails = Must(end.session.Send(0, {Transfer(0, "fails", {})}, options));
  Batch quick = Must(end.session.Send(0, {Transfer(0, "quick", {})}, options));
  PostOptions other;
  other.over_timeline = 6;
  Batch receive = Must(end.session.Receive(0, {Transfer(0, "quick", {})}, other));
  ASSERT_THAT(receive.Wait(kSoon), IsOk());
  ASSERT_THAT(fails.Cancel(), IsOk());
  ASSERT_TRUE(Await([&] { return node(0).admin().Status().transfers_in_flight() == 1; }));
  EXPECT_EQ(waits.first_value(), 1u);
  EXPECT_EQ(quick.first_value(), 3u);
  EXPECT_EQ(end.session.OverValue(5), 0u);
  EXPECT_EQ(end.session.OverValue(6), 1u);  // independent work, another counter
  EXPECT_THAT(end.session.WaitOver(5, 1, milliseconds(30)), Is("DEADLINE_EXCEEDED"));
  Batch meets = Must(end.session.Receive(0, {Transfer(0, "waits", {})}, other));
  EXPECT_THAT(end.session.WaitOver(5, 3, kSoon), IsOk());
  EXPECT_EQ(end.session.OverValue(5), 3u);
  EXPECT_EQ(end.session.OverFailures(5).count, 1u);
  EXPECT_EQ(end.session.OverFailures(5).first_failed, 2u);
  EXPECT_THAT(waits.Wait(kSoon), IsOk());
  EXPECT_THAT(fails.Wait(kSoon), Is("CANCELLED/CANCELLED"));
  EXPECT_THAT(quick.Wait(kSoon), IsOk());
  ASSERT_THAT(end.session.ResetOver(5), IsOk());
  EXPECT_EQ(end.session.OverFailures(5).count, 0u);
  EXPECT_EQ(end.session.OverFailures(5).first_failed, 0u);
  EXPECT_EQ(end.session.OverValue(5), 3u);
  ASSERT_THAT(meets.Wait(kSoon), IsOk());
}

TEST_F(ApiTest, AnOverCounterBelongsToTheDeviceOfItsFirstUse) {
  Start({.nodes = 1});
  Session session = nodes().Open(0);
  PostOptions options;
  options.over_timeline = 1;
  Batch first = Must(session.Send(0, {Transfer(0, "a", {})}, options));
  EXPECT_THAT(session.Send(1, {Transfer(0, "b", {})}, options),
              Is("INVALID_ARGUMENT/FIELD_INVALID", HasSubstr("bound to device 0")));
}

// xla-cross-host's FailedCrossHostSendArgsSizeMismatch and its like: XLA's texts.
TEST_F(ApiTest, XlaArgumentTexts) {
  Start({.nodes = 1});
  RawSession session(node(0).client_dir());
  ASSERT_TRUE(session.Hello().has_welcome());
  const auto send = [&](int buffers, int devices, int keys) {
    v1::CrossHostSendRequest request;
    for (int i = 0; i < buffers; ++i) request.add_buffers();
    for (int i = 0; i < devices; ++i) request.add_dst_global_device_ids(0);
    for (int i = 0; i < keys; ++i) request.add_transfer_keys(absl::StrCat(i));
    v1::CrossHostSendResponse response;
    return session.Call(
        [&](auto* c) { return session.transfers().CrossHostSend(c, request, &response); });
  };
  const auto receive = [&](int buffers, int devices, int keys) {
    v1::CrossHostReceiveRequest request;
    for (int i = 0; i < buffers; ++i) request.add_buffers();
    for (int i = 0; i < devices; ++i) request.add_src_global_device_ids(0);
    for (int i = 0; i < keys; ++i) request.add_transfer_keys(absl::StrCat(i));
    v1::CrossHostReceiveResponse response;
    return session.Call(
        [&](auto* c) { return session.transfers().CrossHostReceive(c, request, &response); });
  };
  const std::string sends =
      "CrossHostSendBuffers: buffers, dst_global_device_ids, and transfer_keys must have the "
      "same length, but got ";
  const std::string receives =
      "CrossHostReceiveBuffers: buffers, src_global_device_ids, and transfer_keys must "
      "have the same length, but got ";
  const std::string invalid = "INVALID_ARGUMENT/FIELD_INVALID";
  EXPECT_THAT(send(1, 2, 1), Is(invalid, HasSubstr(sends + "1, 2, and 1.")));
  EXPECT_THAT(send(1, 1, 2), Is(invalid, HasSubstr(sends + "1, 1, and 2.")));
  EXPECT_THAT(receive(1, 0, 1), Is(invalid, HasSubstr(receives + "1, 0, and 1.")));
  EXPECT_THAT(receive(1, 1, 2), Is(invalid, HasSubstr(receives + "1, 1, and 2.")));
  EXPECT_THAT(receive(0, 0, 0), Is(invalid, HasSubstr("empty")));
  EXPECT_THAT(send(0, 0, 0), IsOk());
  EXPECT_EQ(node(0).admin().Status().transfers_in_flight(), 0u);
}

TEST_F(ApiTest, AFailureThatIsNoLongerKeptIsSaidToBe) {
  Start({.nodes = 1, .limits = "session_failures: 2"});
  End end = OpenEnd(0, 4096);
  std::vector<Transfer> receives;
  for (int i = 0; i < 5; ++i) {
    receives.emplace_back(1, absl::StrCat("never ", i), std::vector<Range>{end.arena.Range(i, 1)});
  }
  Batch batch = Must(end.session.Receive(0, receives));
  EXPECT_THAT(batch.Cancel(), IsOk());
  EXPECT_THAT(batch.Wait(kSoon),
              Is("NOT_FOUND/TRANSFER_NOT_FOUND",
                 HasSubstr("more than 2 failed since (limits.session_failures)")));
  EXPECT_THAT(batch.TransferStatus(2), Is("NOT_FOUND/TRANSFER_NOT_FOUND"));
  EXPECT_THAT(batch.TransferStatus(4), Is("CANCELLED/CANCELLED"));
}

TEST_F(ApiTest, TransfersTellWhereTheyStand) {
  Start({.nodes = 1});
  RawSession session(node(0).client_dir());
  ASSERT_TRUE(session.Hello().has_welcome());
  v1::CrossHostSendRequest send;
  send.add_buffers();
  send.add_dst_global_device_ids(1);
  send.add_transfer_keys("k");
  v1::CrossHostSendResponse sent;
  ASSERT_THAT(
      session.Call([&](auto* c) { return session.transfers().CrossHostSend(c, send, &sent); }),
      IsOk());
  const auto get = [&](uint64_t id, v1::GetTransfersResponse* response) {
    v1::GetTransfersRequest request;
    request.add_transfer_ids(id);
    return session.Call(
        [&](auto* c) { return session.transfers().GetTransfers(c, request, response); });
  };
  v1::GetTransfersResponse response;
  ASSERT_THAT(get(sent.first_transfer_id(), &response), IsOk());
  EXPECT_EQ(response.transfers(0).state(), v1::TRANSFER_STATE_WAITING);
  EXPECT_THAT(get(sent.first_transfer_id() + 1, &response), Is("NOT_FOUND/TRANSFER_NOT_FOUND"));
  v1::CancelTransfersRequest cancel;
  cancel.add_transfer_ids(sent.first_transfer_id());
  v1::CancelTransfersResponse cancelled;
  ASSERT_THAT(session.Call([&](auto* c) {
    return session.transfers().CancelTransfers(c, cancel, &cancelled);
  }),
              IsOk());
  EXPECT_EQ(cancelled.requested(), 1u);
  ASSERT_THAT(get(sent.first_transfer_id(), &response), IsOk());
  EXPECT_EQ(response.transfers(0).state(), v1::TRANSFER_STATE_OVER);
  EXPECT_EQ(NameOf(response.transfers(0).status()), "CANCELLED/CANCELLED");
}

}  // namespace
}  // namespace ferry::testing
