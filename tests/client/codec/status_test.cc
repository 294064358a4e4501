// SPDX-License-Identifier: Apache-2.0
// The client's errors name the caller's arguments, whatever the daemon's message calls them.
#include "client/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ferry::client {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

StatusPtr Refused(std::vector<std::pair<std::string, std::string>> violations) {
  StatusPtr error = Error(kInvalidArgument, kReasonFieldInvalid, "register an arena: bad");
  error->violations = std::move(violations);
  return error;
}

TEST(ClientStatusTest, WhatTheDaemonNamesIsTheArgument) {
  const StatusPtr error =
      InArguments(Refused({{"device_id", "a"},
                           {"segment_bytes[3]", "b"},
                           {"resume.over", "c"},
                           {"bytes", "d"},
                           {"device_ids", "e"}}),
                  {{"device_id", "device"}, {"segment_bytes", "pointer"}, {"resume", "session"}});
  EXPECT_THAT(error->violations,
              ElementsAre(Pair("device", "a"), Pair("pointer", "b"), Pair("session", "c"),
                          Pair("bytes", "d"), Pair("device_ids", "e")));
  EXPECT_EQ(error->message, "register an arena: bad");
}

TEST(ClientStatusTest, WhereNobodySaysItIsTheOneThatIsGiven) {
  StatusPtr error = OfField(InArguments(Refused({}), {{"memory", "memfd"}}), "memfd");
  EXPECT_THAT(error->violations, ElementsAre(Pair("memfd", "register an arena: bad")));
  error = OfField(InArguments(Refused({{"memory", "small"}}), {{"memory", "memfd"}}), "device");
  EXPECT_THAT(error->violations, ElementsAre(Pair("memfd", "small")));
  EXPECT_EQ(InArguments(nullptr, {{"memory", "memfd"}}), nullptr);
}

}  // namespace
}  // namespace ferry::client
