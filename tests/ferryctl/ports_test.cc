// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/ports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "absl/strings/str_cat.h"
#include "base/fd.h"

namespace ferry::tools {
namespace {

using ::testing::HasSubstr;
using Kind = PortAnswer::Kind;

constexpr absl::Duration kPatience = absl::Seconds(5);

// A socket of the loopback, which listens if `listens`; its port.
struct Local {
  explicit Local(bool listens) : socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    if (listens) {
      EXPECT_EQ(listen(socket.get(), 8), 0);
    }
    getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port = ntohs(address.sin_port);
  }
  std::string at(const std::string& host = "127.0.0.1") const {
    return absl::StrCat(host, ":", port);
  }
  UniqueFd socket;
  int port = 0;
};

TEST(Ports, SomeAnswerAndTheOthersSayWhyNot) {
  const Local open(true), closed(false);
  const std::vector<PortAnswer> answers =
      TryPorts({open.at(), closed.at(), open.at("0.0.0.0"), open.at("localhost"), "no port",
                "name.invalid:7411"},
               kPatience);
  ASSERT_EQ(answers.size(), 6u);
  EXPECT_EQ(answers[0].kind, Kind::kAnswers);
  EXPECT_EQ(answers[1].kind, Kind::kRefused);
  EXPECT_EQ(answers[1].why, "Connection refused");
  EXPECT_EQ(answers[2].kind, Kind::kAnswers) << "of all addresses, the loopback";
  EXPECT_NE(answers[3].kind, Kind::kNoName);
  EXPECT_EQ(answers[4].kind, Kind::kNoName);
  EXPECT_EQ(answers[5].kind, Kind::kNoName);
}

TEST(Ports, MoreThanAreTriedAtOnceAllGetTheirOwnAnswer) {
  const Local open(true), closed(false);
  std::vector<std::string> addresses(150, closed.at());
  addresses[0] = addresses[64] = addresses[149] = open.at();
  const std::vector<PortAnswer> answers = TryPorts(addresses, kPatience);
  ASSERT_EQ(answers.size(), addresses.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i].kind, addresses[i] == open.at() ? Kind::kAnswers : Kind::kRefused) << i;
  }
}

TEST(Ports, ALinkThatThePeerDialledIsNotLostByAPortThatIsClosed) {
  const Local closed(false);
  admin::v1::GetStatusResponse status;
  admin::v1::Peer* const peer = status.add_peers();
  peer->set_node("node-b");
  peer->set_address(closed.at());
  peer->set_state("up");
  status.add_peers()->set_state("refused");  // it has no address
  const Findings up = PeerPortFindings(status, kPatience);
  ASSERT_EQ(up.size(), 1u);
  EXPECT_EQ(up[0].severity, Severity::kWarning);
  EXPECT_THAT(up[0].found, HasSubstr("the link is up because the other node dialled it"));
  peer->set_state("idle");
  EXPECT_EQ(PeerPortFindings(status, kPatience)[0].severity, Severity::kWrong);
  EXPECT_THAT(PeerPortFindings(status, kPatience)[0].advice, HasSubstr("is ferryd up on node-b"));
}

TEST(Ports, WhatCannotBeListenedOnIsWrong) {
  const Local taken(true);
  EXPECT_EQ(CouldListenFinding("peer.listen", taken.at()).severity, Severity::kWrong);
  EXPECT_THAT(CouldListenFinding("peer.listen", taken.at()).found, HasSubstr("is taken"));
  EXPECT_THAT(CouldListenFinding("peer.listen", "203.0.113.7:7411").found,
              HasSubstr("cannot be listened on"));
  EXPECT_EQ(CouldListenFinding("peer.listen", "127.0.0.1:0").severity, Severity::kOk);
  EXPECT_EQ(ListensFinding("peer.listen", taken.at(), "", kPatience).severity, Severity::kOk);
  EXPECT_THAT(ListensFinding("peer.listen", "", "nobody may dial", kPatience).found,
              "not set: nobody may dial");
  const Local closed(false);
  EXPECT_EQ(ListensFinding("peer.listen", closed.at(), "", kPatience).severity, Severity::kWarning);
}

TEST(Ports, AreFoundInAConfigurationAsFerrydPrintsIt) {
  const std::string printed =
      "node:\n  name: \"a\"\npeer:\n  listen: \"[::]:7411\"\n  insecure: false\n"
      "metrics:\n  listen: \"\"\n";
  EXPECT_EQ(ListenOf(printed, "peer"), "[::]:7411");
  EXPECT_EQ(ListenOf(printed, "metrics"), "");
  EXPECT_EQ(ListenOf(printed, "node"), "");
}

}  // namespace
}  // namespace ferry::tools
