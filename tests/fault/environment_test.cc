// SPDX-License-Identifier: Apache-2.0
// Variables of the environment that libraries read.
#include "absl/strings/str_cat.h"
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

class EnvironmentTest : public ClusterTest {};

// With these UCX keeps a receive whose sender's daemon was killed for ever.
TEST_F(EnvironmentTest, WhatEndsDependOnIsNotTakenFromOutsideAndStatusSaysSo) {
  ClusterOptions options;
  options.transfer = kUcxTcpRoute.transfer;
  options.environment = {"UCX_RNDV_THRESH=inf", "UCX_RNDV_SCHEME=am", "UCX_KEEPALIVE_INTERVAL=inf"};
  Start(options);
  EXPECT_THAT(Ferryctl("status"),
              HasSubstr("not taken from the environment: UCX_RNDV_THRESH=inf, UCX_RNDV_SCHEME=am, "
                        "UCX_KEEPALIVE_INTERVAL=inf"));
  constexpr uint64_t kBytes = 256 * kMiB;
  End source = OpenEnd(0, kBytes), destination = OpenEnd(1, kBytes);
  PostOptions by_ucx;
  by_ucx.route = FERRY_ROUTE_UCX;
  Batch receive = Receive(destination, source, "k", {destination.arena.All()}, by_ucx);
  Batch send = Send(source, destination, "k", {source.arena.All()}, by_ucx);
  ASSERT_TRUE(Await([&] { return node(1).admin().Count("launched") > 0; }));
  node(0).Kill();
  EXPECT_THAT(receive.Wait(kSoon),
              AnyOf(IsOk(), Is("UNAVAILABLE/PEER_UNREACHABLE"), Is("ABORTED/COMM_ABORTED")));
  EXPECT_THAT(send.Wait(kSoon), AnyOf(IsOk(), Is("UNAVAILABLE/DAEMON_LOST")));
}

TEST_F(EnvironmentTest, UcxGoesByTheInterfaceOfTheLinksUnlessSomebodySaysOtherwise) {
  ClusterOptions options;
  options.transfer = kUcxTcpRoute.transfer;
  Start(options);
  EXPECT_THAT(Ferryctl("status"), HasSubstr(", by lo"));
  TearDown();
  options.environment = {"UCX_NET_DEVICES=all"};
  Start(options);
  EXPECT_THAT(Ferryctl("status"), HasSubstr(", by all"));
  EXPECT_THAT(Ferryctl("status"), Not(HasSubstr("not taken")));
}

// gRPC tells of a variable that it does not understand as of all that it has to tell.
TEST_F(EnvironmentTest, OfGrpcsOwnLinesUsersSeeThoseTheyAskedFor) {
  Start({.nodes = 1});
  constexpr char kLine[] = "Unknown trace var";
  const auto output = [&](std::vector<std::string> variables, std::vector<std::string> command) {
    variables.insert(variables.begin(), {"/usr/bin/env", "GRPC_TRACE=no-such-tracer"});
    variables.insert(variables.end(), command.begin(), command.end());
    const Finished finished = RunProgram(variables);
    EXPECT_EQ(finished.status, 0) << finished.output;
    return finished.output;
  };
  const std::vector<std::string> commands[] = {
      {FerryctlProgram(), "--runtime-dir", node(0).runtime_dir(), "status"},  // ferryctl's gRPC
      // libferry's, in a program of somebody else's
      {"/bin/sh", "-c", "\"$@\" < /dev/null", "sh", ClientProgram(), node(0).client_dir(), "c"}};
  for (const std::vector<std::string>& command : commands) {
    EXPECT_THAT(output({}, command), Not(HasSubstr(kLine)));
    EXPECT_THAT(output({"GRPC_VERBOSITY=error"}, command), HasSubstr(kLine));
  }
}

}  // namespace
}  // namespace ferry::testing
