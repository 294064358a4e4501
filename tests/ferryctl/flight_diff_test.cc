// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/flight_diff.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/time_util.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/ids.h"
#include "tools/ferryctl/admin_client.h"
#include "transfer/types.h"

namespace ferry::tools {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int64_t kTaken = 1'800'000'000;  // both dumps, in seconds

// Node a has devices 0 and 1, node b has 2 and 3; both know of node c with device 9.
Flight MakeFlight(const std::string& node, uint64_t incarnation) {
  Flight flight;
  flight.set_node(node);
  flight.set_incarnation(incarnation);
  flight.mutable_taken()->set_seconds(kTaken);
  for (uint64_t id : {0, 1}) flight.add_global_device_ids(node == "node-a" ? id : id + 2);
  auto* peer = flight.add_peers();
  peer->set_node(node == "node-a" ? "node-b" : "node-a");
  peer->set_state("up");
  return flight;
}

class FlightDiffTest : public ::testing::Test {
 protected:
  struct Half {
    uint64_t from = 0, to = 2;
    std::string key = "k";
    std::string domain = "job";
    int age = 10;
    std::string state = "waiting";
  };
  ferry::admin::v1::TransferRow& Add(Flight& flight, const std::string& side, const Half& half) {
    auto* row = flight.add_transfers();
    row->set_session_id(7);
    row->set_transfer_id(static_cast<uint64_t>(flight.transfers_size()));
    row->set_side(side);
    Name(half, row);
    row->set_state(half.state);
    row->mutable_age()->set_seconds(half.age);
    row->set_waits_for("something");
    return *row;
  }
  template <typename Row>
  void Name(const Half& half, Row* row) {
    row->set_src_global_device_id(half.from);
    row->set_dst_global_device_id(half.to);
    row->set_key(PrintableKey(half.key));
    row->set_domain_fingerprint(DomainFingerprint(half.domain));
    row->set_fingerprint(Fingerprint(half));
  }
  static std::string Fingerprint(const Half& half) {
    return absl::StrCat(absl::Hex(MatchFingerprint({half.domain, GlobalDeviceId(half.from),
                                                    GlobalDeviceId(half.to), half.key}),
                                  absl::kZeroPad16));
  }
  void AddEnd(Flight& flight, const std::string& side, const Half& half, int before, int code,
              const std::string& reason) {
    auto* event = flight.add_events();
    event->set_number(1000);
    event->mutable_time()->set_seconds(kTaken - before);
    event->set_what(absl::StrCat("end.", side));
    event->set_session_id(3);
    event->set_transfer_id(4);
    event->set_c(static_cast<uint64_t>(code));
    event->set_text(reason);
    event->set_fingerprint(Fingerprint(half));
  }
  Flight a = MakeFlight("node-a", 11);
  Flight b = MakeFlight("node-b", 12);
};

TEST_F(FlightDiffTest, NothingInFlight) {
  const FlightDiff diff = CompareFlights(a, b);
  EXPECT_THAT(diff.lacks, IsEmpty());
  EXPECT_THAT(diff.pairs, IsEmpty());
  EXPECT_EQ(FlightDiffText(diff, 20),
            "0 without their other half, 0 with both, 0 with other nodes\n");
}

TEST_F(FlightDiffTest, AReceiveThatNobodyPosted) {
  Add(a, "send", {.state = "offered"});
  Name(Half{}, b.add_offers());
  const FlightDiff diff = CompareFlights(a, b);
  ASSERT_EQ(diff.lacks.size(), 1u);
  EXPECT_EQ(diff.lacks[0].node, "node-b");
  EXPECT_EQ(diff.lacks[0].side, "receive");
  EXPECT_THAT(diff.lacks[0].key, HasSubstr("key 'k' from device 0 to device 2"));
  EXPECT_THAT(diff.lacks[0].has,
              AllOf(HasSubstr("the send at node-a is offered"), HasSubstr("10 s")));
  EXPECT_THAT(diff.lacks[0].hints,
              ElementsAre("node-b has the offer, and nobody there has posted the receive"));
  EXPECT_THAT(FlightDiffText(diff, 20), HasSubstr("node-b lacks the receive of key 'k'"));
}

TEST_F(FlightDiffTest, ASendThatNobodyPosted) {
  Add(b, "receive", {});
  const FlightDiff diff = CompareFlights(b, a);  // in any order
  ASSERT_EQ(diff.lacks.size(), 1u);
  EXPECT_EQ(diff.lacks[0].node, "node-a");
  EXPECT_EQ(diff.lacks[0].side, "send");
  EXPECT_THAT(diff.lacks[0].hints, ElementsAre(HasSubstr("no offer of it has come from node-a")));
}

TEST_F(FlightDiffTest, AnOfferThatDidNotArrive) {
  a.mutable_peers(0)->set_state("lost");
  a.mutable_peers(0)->set_error("no answer for 5 s");
  Add(a, "send", {});
  EXPECT_THAT(CompareFlights(a, b).lacks.at(0).hints,
              ElementsAre("node-b has not got the offer; the link of node-a to node-b is lost: no "
                          "answer for 5 s"));
}

TEST_F(FlightDiffTest, HowTheOtherHalfEnded) {
  Add(a, "send", {.age = 60});
  AddEnd(b, "receive", {}, 40, 1, "CANCELLED");
  AddEnd(b, "receive", {}, 30, 4, "DEADLINE");
  AddEnd(b, "send", {}, 20, 0, "");                   // another side
  AddEnd(b, "receive", {.key = "other"}, 10, 0, "");  // another key
  EXPECT_THAT(CompareFlights(a, b).lacks.at(0).hints.front(),
              "the last receive of this key at node-b (session 3, transfer 4) ended 30 s before "
              "the dump with DEADLINE_EXCEEDED DEADLINE");
}

TEST_F(FlightDiffTest, SaysWhenTheRecorderDoesNotReachBack) {
  Add(a, "send", {.age = 60});
  AddEnd(b, "receive", {.key = "other"}, 10, 0, "");
  EXPECT_THAT(CompareFlights(a, b).lacks.at(0).hints.front(),
              HasSubstr("the recorder of node-b goes back 10 s only"));
}

TEST_F(FlightDiffTest, KeysOfSomethingElseAreCountedAndNotNamed) {
  Add(a, "send", {.key = "model"});
  Add(b, "receive", {.key = "weights"});
  const auto hints = [&] { return CompareFlights(a, b).lacks.at(0).hints; };
  EXPECT_THAT(hints(), Contains("a receive of another key waits at node-b"));
  Add(b, "receive", {.key = "logs"});
  EXPECT_THAT(hints(), Contains("2 receives of other keys wait at node-b"));
  EXPECT_THAT(hints(), Not(Contains(HasSubstr("logs"))));
}

TEST_F(FlightDiffTest, NearMissesNameWhatDiffers) {
  Add(a, "send", {.key = "layer.1"});
  Add(b, "receive", {.key = "layer.l"});
  EXPECT_THAT(
      CompareFlights(a, b).lacks.at(0).hints,
      Contains(AllOf(HasSubstr("'layer.l'"), HasSubstr("waits at node-b: the key differs"))));

  b.clear_transfers();
  Add(b, "receive", {.to = 3, .key = "layer.1"});
  EXPECT_THAT(CompareFlights(a, b).lacks.at(0).hints, Contains(HasSubstr(": the devices differ")));

  b.clear_transfers();
  Add(b, "receive", {.key = "layer.1", .domain = "other job"});
  EXPECT_THAT(CompareFlights(a, b).lacks.at(0).hints, Contains(HasSubstr(": the domain differs")));

  b.clear_transfers();
  Add(b, "receive", {.to = 3, .key = "layer.1", .domain = "other job"});  // too far off
  EXPECT_THAT(CompareFlights(a, b).lacks.at(0).hints, Not(Contains(HasSubstr("differ"))));

  b.clear_transfers();
  Add(b, "receive", {.key = "layer.2", .state = "launched"});  // has its half
  EXPECT_THAT(CompareFlights(a, b).lacks.at(0).hints, Not(Contains(HasSubstr("differ"))));
}

TEST_F(FlightDiffTest, BothHalvesAreOnePair) {
  Add(a, "send", {.state = "matched"}).set_waits_for("its data (defined timeline 3 >= 7)");
  Add(b, "receive", {.state = "matched"}).set_waits_for("data at node-a");
  const FlightDiff diff = CompareFlights(a, b);
  EXPECT_THAT(diff.lacks, IsEmpty());
  ASSERT_EQ(diff.pairs.size(), 1u);
  EXPECT_THAT(diff.pairs[0].send, HasSubstr("its data (defined timeline 3 >= 7)"));
  EXPECT_THAT(FlightDiffText(diff, 20), HasSubstr("both have key 'k'"));
}

TEST_F(FlightDiffTest, SaysWhichEndOfAPreparedPairHasNotFired) {
  auto& send = Add(a, "send", {.state = "armed"});
  auto& receive = Add(b, "receive", {.state = "armed"});
  for (auto* row : {&send, &receive}) {
    row->set_prepared(true);
    row->set_firings(3);
  }
  const auto hints = [&] { return CompareFlights(a, b).pairs.at(0).hints; };
  EXPECT_THAT(hints(), IsEmpty());  // of daemons that do not say
  send.set_fired(true);
  receive.set_fired(false);
  const char kReceive[] = "the receive at node-b has not fired: its defined word has not reached 4";
  EXPECT_THAT(hints(), ElementsAre(kReceive));
  EXPECT_THAT(FlightDiffText(CompareFlights(a, b), 20), HasSubstr(kReceive));
  EXPECT_THAT(FlightDiffJson(CompareFlights(a, b)), HasSubstr(kReceive));
  send.set_fired(false);
  EXPECT_THAT(hints(), ElementsAre(HasSubstr("the send at node-a has not fired"), kReceive));
  send.set_fired(true);
  receive.set_fired(true);
  EXPECT_THAT(hints(), ElementsAre(HasSubstr("both ends have fired")));
  receive.set_firings(2);
  EXPECT_THAT(hints(), Contains(HasSubstr("the send counts 3 firings, the receive 2")));
}

TEST_F(FlightDiffTest, WhatADumpSaysDoesNotReachTheTerminal) {
  for (Flight* flight : {&a, &b}) {
    flight->set_node(absl::StrCat(flight->node(), "\x1b[2J"));
    flight->mutable_peers(0)->set_node(absl::StrCat(flight->peers(0).node(), "\x1b[2J"));
    flight->mutable_peers(0)->set_state("up\x1b[2J");
    flight->mutable_peers(0)->set_error("error\x1b[2J");
    flight->mutable_peers(0)->set_incarnation(99);
  }
  const auto spoil = [](ferry::admin::v1::TransferRow& row) {
    row.set_key(absl::StrCat(row.key(), "\x1b[2J"));
    row.set_domain_fingerprint("d\x1b[2J");
    row.set_state("offered\x1b[2J");
    row.set_waits_for("something\n\x1b[2J");
  };
  spoil(Add(a, "send", {.key = "left"}));
  spoil(Add(a, "send", {.key = "both"}));
  spoil(Add(b, "receive", {.key = "both"}));
  AddEnd(b, "receive", {.key = "left"}, 5, 1, "CANCELLED\x1b[2J");
  const std::string text = FlightDiffText(CompareFlights(a, b), 20);
  EXPECT_THAT(text, AllOf(HasSubstr("node-b\\x1b[2J lacks the receive"), HasSubstr("both have"),
                          HasSubstr("CANCELLED\\x1b[2J"), HasSubstr("something\\x0a")));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST_F(FlightDiffTest, AKeyUsedAgainIsPairedInOrder) {
  Add(a, "send", {.age = 30, .state = "launched"});
  Add(b, "receive", {.age = 30, .state = "launched"});
  Add(b, "receive", {.age = 5});
  const FlightDiff diff = CompareFlights(a, b);
  EXPECT_EQ(diff.pairs.size(), 1u);
  ASSERT_EQ(diff.lacks.size(), 1u);
  EXPECT_THAT(diff.lacks[0].has, AllOf(HasSubstr("posted 5 s"), HasSubstr("transfer 2")));
}

TEST_F(FlightDiffTest, WithinOneNodeAndWithOthers) {
  Add(a, "send", {.from = 0, .to = 1});
  Add(a, "receive", {.from = 0, .to = 1});
  Add(a, "receive", {.from = 1, .to = 0});
  Add(a, "send", {.from = 0, .to = 9});
  const FlightDiff diff = CompareFlights(a, b);
  EXPECT_EQ(diff.pairs.size(), 1u);
  EXPECT_EQ(diff.elsewhere, 1u);
  ASSERT_EQ(diff.lacks.size(), 1u);
  EXPECT_EQ(diff.lacks[0].node, "node-a");
  EXPECT_EQ(diff.lacks[0].side, "send");
}

TEST_F(FlightDiffTest, SaysWhatLimitsTheComparison) {
  b.mutable_taken()->set_seconds(kTaken - 20);
  a.mutable_peers(0)->set_incarnation(99);
  Add(a, "send", {.age = 10});
  const FlightDiff diff = CompareFlights(a, b);
  EXPECT_THAT(diff.remarks, ElementsAre(HasSubstr("the dump of node-b is 20 s older"),
                                        HasSubstr("another life of node-b")));
  EXPECT_THAT(diff.lacks.at(0).hints.front(), HasSubstr("take that one again"));
}

TEST_F(FlightDiffTest, ThousandsAreCountedNotShown) {
  for (int i = 0; i < 1000; ++i) {
    Add(a, "send", {.key = absl::StrCat("left-", i), .age = 1000 - i});
    Add(a, "send", {.key = absl::StrCat("pair-", i)});
    Add(b, "receive", {.key = absl::StrCat("pair-", i)});
  }
  const FlightDiff diff = CompareFlights(a, b);
  const std::string text = FlightDiffText(diff, 2);
  EXPECT_THAT(text, AllOf(HasSubstr("'left-0'"), HasSubstr("'left-1'"), Not(HasSubstr("'left-2'")),
                          HasSubstr("998 more lack a half"), HasSubstr("998 more have both"),
                          HasSubstr("1,000 without their other half, 1,000 with both")));
  const auto json = nlohmann::json::parse(FlightDiffJson(diff));
  EXPECT_EQ(json["lacks"].size(), 1000u);
  EXPECT_EQ(json["lacks"][0]["node"], "node-b");
}

TEST_F(FlightDiffTest, DumpsSurviveTheFile) {
  Add(a, "send", {.key = std::string("\0\1bytes", 7)});
  AddEnd(a, "send", {}, 3, 0, "");
  a.set_incarnation(0xfeedfacecafebeef);
  const std::string json = MessageJson(a);
  EXPECT_THAT(json, HasSubstr("\"feedfacecafebeef\""));
  Flight again;
  ASSERT_TRUE(FromMessageJson(json, &again, "test").ok());
  EXPECT_EQ(again.SerializeAsString(), a.SerializeAsString());
  EXPECT_THAT(std::string(FromMessageJson("{\"node\": 3", &again, "read x").message()),
              HasSubstr("read x: it is no JSON object"));
  EXPECT_THAT(std::string(FromMessageJson("{\"transfers\": 3}", &again, "read x").message()),
              HasSubstr("read x: "));
}

}  // namespace
}  // namespace ferry::tools
