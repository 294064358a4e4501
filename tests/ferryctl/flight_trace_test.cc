// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/flight_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"

namespace ferry::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;
using Json = nlohmann::json;

constexpr int64_t kStart = 1'000'000;  // ms

class Dump {
 public:
  // Its clock is so much ahead.
  explicit Dump(const std::string& node, int64_t ahead_ms = 0) : ahead_ms_(ahead_ms) {
    flight.set_node(node);
  }
  void Add(int64_t ms, const char* what, uint64_t session, uint64_t transfer, uint64_t c = 0,
           const std::string& fingerprint = "", const std::string& text = "", uint64_t b = 0) {
    auto* event = flight.add_events();
    const int64_t at = kStart + ms + ahead_ms_;
    event->mutable_time()->set_seconds(at / 1000);
    event->mutable_time()->set_nanos(static_cast<int32_t>(at % 1000 * 1'000'000));
    event->set_what(what);
    event->set_session_id(session);
    event->set_transfer_id(transfer);
    event->set_b(b);
    event->set_c(c);
    event->set_fingerprint(fingerprint);
    event->set_text(text);
  }
  Flight flight;

 private:
  const int64_t ahead_ms_;
};

// One transfer of node-a to node-b: posted at 0 and 10, matched at 20, launched at 30, over at 50.
Dump Sender(int64_t ahead_ms = 0) {
  Dump dump("node-a", ahead_ms);
  dump.Add(0, "post.send", 1, 7, 1);
  dump.Add(52, "end.send", 1, 7, 0, "f1");
  return dump;
}
Dump Receiver(int64_t ahead_ms = 0) {
  Dump dump("node-b", ahead_ms);
  dump.Add(5, "peer.up", 0, 1);
  dump.Add(10, "post.receive", 3, 4, 1);
  dump.Add(20, "offer", 1, 7);  // by the sender's ids: no transfer of this node
  dump.Add(20, "match", 3, 4);
  dump.Add(30, "launch", 3, 4);
  dump.Add(50, "end.receive", 3, 4, 0, "f1");
  return dump;
}

std::vector<Json> Of(const std::string& trace, const std::string& phase, int pid) {
  std::vector<Json> found;
  const Json parsed = Json::parse(trace);
  for (const Json& event : parsed.at("traceEvents")) {
    if (event.at("ph") == phase && event.at("pid") == pid) found.push_back(event);
  }
  return found;
}

// "name from to", in milliseconds.
std::vector<std::string> Slices(const std::string& trace, int pid) {
  std::vector<std::string> slices;
  for (const Json& event : Of(trace, "X", pid)) {
    const auto begin = event.at("ts").get<double>() / 1000;
    slices.push_back(event.at("name").get<std::string>() + " " +
                     std::to_string(std::lround(begin)) + " " +
                     std::to_string(std::lround(begin + event.at("dur").get<double>() / 1000)));
  }
  return slices;
}

TEST(FlightTrace, ATransferIsASliceAtEachEndWithAnArrowBetweenThem) {
  const std::string trace = FlightTrace({Sender().flight, Receiver().flight});
  EXPECT_THAT(Slices(trace, 1), ElementsAre("send 1/7 0 52"));
  EXPECT_THAT(Slices(trace, 2), ElementsAre("receive 3/4 10 50", "waits for the other half 10 20",
                                            "waits to be launched 20 30", "moves 30 50"));
  const std::vector<Json> begins = Of(trace, "s", 1), ends = Of(trace, "f", 2);
  ASSERT_THAT(begins, SizeIs(1));
  ASSERT_THAT(ends, SizeIs(1));
  EXPECT_EQ(begins[0].at("id"), ends[0].at("id"));
  EXPECT_EQ(std::lround(ends[0].at("ts").get<double>()), 50'000);
  ASSERT_THAT(Of(trace, "i", 2), SizeIs(1));
  EXPECT_EQ(Of(trace, "i", 2)[0].at("name"), "peer.up");
  EXPECT_EQ(Of(trace, "M", 2)[0].at("args").at("name"), "node-b");
}

TEST(FlightTrace, ClocksThatCannotBothBeRightAreBroughtTogether) {
  EXPECT_EQ(ClockAhead(Sender().flight, Receiver().flight), absl::ZeroDuration());
  // Within the length of the transfer nothing shows.
  EXPECT_EQ(ClockAhead(Sender().flight, Receiver(-20).flight), absl::ZeroDuration());
  for (const int64_t ahead_ms : {-5000, 5000}) {
    const int64_t found =
        absl::ToInt64Milliseconds(ClockAhead(Sender().flight, Receiver(ahead_ms).flight));
    EXPECT_NEAR(static_cast<double>(found), static_cast<double>(ahead_ms), 52) << ahead_ms;
    EXPECT_NEAR(static_cast<double>(absl::ToInt64Milliseconds(
                    ClockAhead(Receiver(ahead_ms).flight, Sender().flight))),
                static_cast<double>(-ahead_ms), 52);
    const std::string trace = FlightTrace({Sender().flight, Receiver(ahead_ms).flight});
    const double end = Of(trace, "f", 2).at(0).at("ts").get<double>();
    EXPECT_GE(end, Of(trace, "s", 1).at(0).at("ts").get<double>()) << "not before it was sent";
  }
}

TEST(FlightTrace, WhatOverlapsHasRowsOfItsOwnAndWhatDoesNotSharesOne) {
  Dump dump("node-a");
  dump.Add(0, "post.send", 1, 1, 2);  // a batch of two
  dump.Add(10, "end.send", 1, 1, 0, "f1");
  dump.Add(20, "end.send", 1, 2, 0, "f2");
  dump.Add(30, "post.send", 1, 3, 1);
  dump.Add(40, "end.send", 1, 3, 0, "f3");
  std::vector<int> rows;
  for (const Json& slice : Of(FlightTrace({dump.flight}), "X", 1)) rows.push_back(slice.at("tid"));
  EXPECT_THAT(rows, ElementsAre(1, 2, 1));
}

TEST(FlightTrace, AConvoyIsOneSliceUntilItFailsOrIsTakenApart) {
  Dump dump("node-a");
  dump.Add(0, "post.send", 1, 1, 9);
  dump.Add(0, "convoy", 1, 1, 0, "", "", 3);
  dump.Add(0, "convoy", 1, 4, 0, "", "", 3);
  dump.Add(0, "convoy", 1, 7, 0, "", "", 3);
  dump.Add(1, "convoy.apart", 1, 4, 0, "", "", 3);
  dump.Add(2, "end.send", 1, 1, 0, "f1");
  for (uint64_t id = 4; id <= 6; ++id) dump.Add(3, "end.send", 1, id, 0, "f2");
  dump.Add(3, "launch", 1, 7);
  for (uint64_t id = 7; id <= 9; ++id) dump.Add(4, "end.send", 1, id, 14, "f3", "lost");
  std::vector<std::string> names;
  for (const Json& slice : Of(FlightTrace({dump.flight}), "X", 1)) {
    const std::string name = slice.at("name").get<std::string>();
    if (absl::StartsWith(name, "send")) names.push_back(name);
  }
  EXPECT_THAT(names, UnorderedElementsAre("send 1/1-3", "send 1/4", "send 1/5", "send 1/6",
                                          "send 1/7-9", "send 1/8", "send 1/9"));
}

// "name: slice, slice" of each row, in order.
std::vector<std::string> Tracks(const std::string& trace, int pid) {
  std::map<int, std::string> rows;
  for (const Json& event : Of(trace, "M", pid)) {
    if (event.at("name") == "thread_name") {
      rows[event.at("tid")] = event.at("args").at("name").get<std::string>() + ":";
    }
  }
  for (const Json& event : Of(trace, "X", pid)) {
    rows.at(event.at("tid")) += " " + event.at("name").get<std::string>() + ",";
  }
  std::vector<std::string> tracks;
  for (const auto& [row, text] : rows) tracks.push_back(text);
  return tracks;
}

TEST(FlightTrace, EachLaneHasATrackForWhatItReceivesAndSendsAndOneForItsGroups) {
  Dump dump("node-a");
  dump.Add(0, "post.receive", 1, 1, 1, "", "from 9", 6);
  dump.Add(0, "post.receive", 1, 2, 1, "", "from 9", 2);
  dump.Add(1, "post.send", 1, 3, 1, "", "to 9", 2);
  dump.Add(2, "post.receive", 1, 4, 1, "", "from 9", 2);
  dump.Add(4, "group.run", 0, 77, 4096, "", "GPUs 2 and 9, group 3", 2);
  dump.Add(4, "group.run", 0, 78, 64, "", "GPUs 6 and 9, group 1", 6);
  dump.Add(5, "end.receive", 1, 6, 0, "f1");  // its post was overwritten
  dump.Add(8, "group.over", 0, 77);
  dump.Add(9, "group.over", 0, 55);  // its beginning was
  EXPECT_THAT(Tracks(FlightTrace({dump.flight}), 1),
              ElementsAre("links, sessions, daemon:", "lane of device 2: receives: receive 1/2,",
                          "lane of device 2: receives (2): receive 1/4,",
                          "lane of device 2: sends: send 1/3,",
                          "lane of device 2: groups: group: GPUs 2 and 9, group 3,",
                          "lane of device 6: receives: receive 1/1,",
                          "lane of device 6: groups: group: GPUs 6 and 9, group 1,",
                          "posted before: receive 1/6,"));
  EXPECT_THAT(Slices(FlightTrace({dump.flight}), 1),
              ::testing::IsSupersetOf(
                  {"group: GPUs 2 and 9, group 3 4 8", "group: GPUs 6 and 9, group 1 4 9"}));
  EXPECT_THAT(Of(FlightTrace({dump.flight}), "i", 1), IsEmpty()) << "groups are slices, no marks";
}

TEST(FlightTrace, EachDeviceHasATrackForItsJobsAndWhatOverlapsHasFurtherRows) {
  Dump dump("node-a");
  dump.Add(0, "job.run", 1, 1, 0, "", "device 3");
  dump.Add(1, "job.run", 2, 1, 0, "", "device 3");  // the first one was put aside
  dump.Add(2, "job.run", 3, 1, 0, "", "device 0");
  dump.Add(3, "job.over", 2, 1);
  dump.Add(4, "job.over", 1, 1);
  dump.Add(5, "job.over", 3, 1);
  dump.Add(6, "job.run", 2, 2, 0, "", "device 3");
  dump.Add(7, "job.over", 2, 2);
  dump.Add(8, "job.over", 2, 3);  // its run was overwritten
  EXPECT_THAT(Tracks(FlightTrace({dump.flight}), 1),
              ElementsAre("links, sessions, daemon:", "jobs of device 0: job 3/1, runs,",
                          "jobs of device 3: job 1/1, runs, job 2/2, runs,",
                          "jobs of device 3 (2): job 2/1, runs,", "jobs: job 2/3,"));
}

// There `b` of a send is its destination, which may have the number of a lane of this node.
TEST(FlightTrace, ADumpOfAnOlderDaemonHasItsSendsAndJobsOnTracksOfTheirOwn) {
  Dump dump("node-a");
  dump.Add(0, "post.receive", 1, 1, 1, "", "", 2);
  dump.Add(1, "post.send", 1, 2, 1, "", "", 2);
  dump.Add(1, "post.send", 1, 3, 1, "", "", 9);
  dump.Add(3, "job.run", 1, 4);
  dump.Add(9, "end.send", 1, 2, 0, "f1");
  EXPECT_THAT(Tracks(FlightTrace({dump.flight}), 1),
              ElementsAre("links, sessions, daemon:", "lane of device 2: receives: receive 1/1,",
                          "sends: send 1/2,", "sends (2): send 1/3,", "jobs: job 1/4, runs,"));
}

TEST(FlightTrace, WhatIsNotOverGoesOnToTheEnd) {
  Dump dump("node-a");
  dump.Add(0, "post.receive", 1, 1, 1);
  dump.Add(70, "session.open", 0, 9);
  const std::string trace = FlightTrace({dump.flight});
  EXPECT_THAT(Slices(trace, 1), ElementsAre("receive 1/1 0 70"));
  EXPECT_EQ(Of(trace, "X", 1)[0].at("args").at("state"), "not over");
}

TEST(FlightTrace, AFailureSaysWhy) {
  Dump dump("node-a");
  dump.Add(0, "post.send", 1, 1, 1);
  dump.Add(9, "end.send", 1, 1, 4, "f1", "the deadline came");
  EXPECT_EQ(Of(FlightTrace({dump.flight}), "X", 1)[0].at("args").at("why"), "the deadline came");
}

TEST(FlightTrace, AKeyThatIsUsedAgainIsPairedFromTheLastOne) {
  Dump sender("node-a"), receiver("node-b");  // the first send is no longer in the recorder
  sender.Add(30, "post.send", 1, 2, 1);
  sender.Add(40, "end.send", 1, 2, 0, "f1");
  for (const int64_t at : {0, 30}) {
    receiver.Add(at, "post.receive", 1, static_cast<uint64_t>(at + 1), 1);
    receiver.Add(at + 9, "end.receive", 1, static_cast<uint64_t>(at + 1), 0, "f1");
  }
  const std::vector<Json> ends = Of(FlightTrace({sender.flight, receiver.flight}), "f", 2);
  ASSERT_THAT(ends, SizeIs(1));
  EXPECT_EQ(std::lround(ends[0].at("ts").get<double>()), 39'000);
}

TEST(FlightTrace, OfNothingIsATraceAllTheSame) {
  const std::string trace = FlightTrace({Dump("node-a").flight});
  EXPECT_THAT(Of(trace, "X", 1), IsEmpty());
}

}  // namespace
}  // namespace ferry::tools
