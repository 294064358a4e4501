// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/link_findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <vector>

namespace ferry::tools {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Status = admin::v1::GetStatusResponse;

struct View {
  const char* node;
  const char* state;
  const char* error = "";
};

Status Of(const char* node, std::initializer_list<View> views) {
  Status status;
  status.set_node(node);
  for (const View& view : views) {
    admin::v1::Peer* const peer = status.add_peers();
    peer->set_node(view.node);
    peer->set_state(view.state);
    peer->set_error(view.error);
    peer->set_address(std::string(view.node) + ":7411");
  }
  return status;
}

MATCHER_P3(Is, severity, check, found, "") {
  return arg.severity == severity && arg.check == check && arg.found == found &&
         (severity < Severity::kNote || !arg.advice.empty());
}

TEST(LinkFindings, OfOneNodeAloneNothingIsSaid) {
  EXPECT_THAT(LinkFindings({Of("a", {{"b", "up"}, {"c", "lost", "silent"}})}), IsEmpty());
}

TEST(LinkFindings, TheNodesOwnLinksAreLeftOut) {
  EXPECT_THAT(LinkFindings({Of("a", {}), Of("b", {{"a", "lost", "silent"}})}), IsEmpty());
}

TEST(LinkFindings, PairsThatAreUpAreToldTogetherAlsoThoseOfWhichOneEndWasAsked) {
  EXPECT_THAT(LinkFindings({Of("a", {}), Of("b", {{"a", "up"}, {"c", "up"}, {"d", "up"}}),
                            Of("c", {{"b", "up", "mapped: another host"}})}),
              ElementsAre(Is(Severity::kOk, "links of others", "up: b and c, b and d")));
}

TEST(LinkFindings, OfManyPairsTheFirstAreNamed) {
  Status b = Of("b", {});
  for (int i = 0; i < 20; ++i) {
    admin::v1::Peer* const peer = b.add_peers();
    peer->set_node("peer" + std::to_string(100 + i));
    peer->set_state("up");
  }
  EXPECT_THAT(LinkFindings({Of("a", {}), b}),
              ElementsAre(Field(&Finding::found, AllOf(HasSubstr("b and peer107, and 12 more"),
                                                       Not(HasSubstr("peer108"))))));
}

// Such as a firewall between the two, of which the first node knows nothing.
TEST(LinkFindings, AFailureBetweenOthersIsWrongAndSaysWhatEachEndSays) {
  const Findings findings =
      LinkFindings({Of("a", {{"b", "up"}, {"c", "up"}}), Of("b", {{"c", "lost", "timed out"}}),
                    Of("c", {{"b", "idle"}})});
  EXPECT_THAT(findings, ElementsAre(Is(Severity::kWrong, "link of b and c",
                                       "b says lost: timed out; c says idle")));
  EXPECT_THAT(findings[0].advice, HasSubstr("is c at c:7411 from b, and b at b:7411 from c"));
  EXPECT_THAT(
      LinkFindings({Of("a", {}), Of("c", {{"b", "idle", "knock at b: refused"}})}),
      ElementsAre(Is(Severity::kWrong, "link of b and c", "c says idle: knock at b: refused")));
}

TEST(LinkFindings, WhatNobodyNeededOrOneEndHasNotHeardYetIsANote) {
  EXPECT_THAT(LinkFindings({Of("a", {}), Of("b", {{"c", "idle"}}), Of("c", {{"b", "idle"}})}),
              ElementsAre(Is(Severity::kNote, "link of b and c", "b says idle; c says idle")));
  EXPECT_THAT(LinkFindings({Of("a", {}), Of("b", {{"c", "up"}}), Of("c", {{"b", "lost", "x"}})}),
              ElementsAre(Is(Severity::kNote, "link of b and c", "b says up; c says lost: x")));
}

TEST(LinkFindings, ANodeThatTheOtherDoesNotKnowIsAWarning) {
  EXPECT_THAT(
      LinkFindings({Of("a", {}), Of("b", {{"c", "lost", "x"}}), Of("c", {})}),
      ElementsAre(Is(Severity::kWarning, "link of b and c", "b says lost: x; c does not know b")));
}

TEST(LinkFindings, ADaemonThatIsNamedTwiceCountsOnce) {
  const Status b = Of("b", {{"c", "up"}});
  EXPECT_THAT(LinkFindings({Of("a", {}), b, b, Of("a", {{"c", "lost", "x"}})}),
              ElementsAre(Is(Severity::kOk, "links of others", "up: b and c")));
}

}  // namespace
}  // namespace ferry::tools
