// SPDX-License-Identifier: Apache-2.0
#include "daemon/metrics_http.h"

#include <gmock/gmock.h>
#include <netinet/in.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/daemon/sockets.h"

namespace ferry {
namespace {

using ::testing::EndsWith;
using testing::SetPatience;
using ::testing::StartsWith;

// A port that answers with the number of pages that control has made.
class MetricsHttpTest : public ::testing::Test {
 protected:
  void Serve(absl::Duration page_age) {
    UniqueFd listener = *ListenTcp("127.0.0.1:0");
    port_ = BoundPort(listener.get());
    door_.Listen(
        "metrics", std::move(listener),
        ServeMetrics(
            door_, control_, [this] { return absl::StrCat("page ", ++pages_, "\n"); }, page_age));
  }
  // All of the answer, until the daemon's end closes.
  std::string Ask(const std::string& request = "GET /metrics HTTP/1.1\r\n\r\n") {
    const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port_));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    SetPatience(socket.get());
    EXPECT_EQ(connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    std::string answer;
    char part[512];
    for (ssize_t n = 0; (n = recv(socket.get(), part, sizeof(part), 0)) > 0;) {
      answer.append(part, static_cast<size_t>(n));
    }
    return answer;
  }

  int pages_ = 0;  // on control
  SerialExecutor control_{"control"};
  int port_ = 0;
  Door door_;
};

TEST_F(MetricsHttpTest, EachScrapeHasAPageOfItsOwn) {
  Serve(absl::ZeroDuration());
  for (int i = 1; i <= 3; ++i) {
    const std::string answer = Ask();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(answer, EndsWith(absl::StrCat("\r\n\r\npage ", i, "\n")));
  }
}

TEST_F(MetricsHttpTest, WhoAsksAgainAndAgainHasOnePageMade) {
  Serve(absl::InfiniteDuration());
  for (int i = 0; i < 100; ++i) EXPECT_THAT(Ask(), EndsWith("\r\n\r\npage 1\n"));
}

TEST_F(MetricsHttpTest, WhatIsNoScrapeHasNoPageMade) {
  Serve(absl::ZeroDuration());
  EXPECT_THAT(Ask("GET /\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Ask("GET /secrets HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Ask("POST /metrics HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(Ask("GET /metrics HTTP/1.1\r\nX: " + std::string(9000, 'x')),
              StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(Ask(), EndsWith("page 1\n"));
}

}  // namespace
}  // namespace ferry
