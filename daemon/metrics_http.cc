// SPDX-License-Identifier: Apache-2.0
#include "daemon/metrics_http.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ferry {
namespace {

constexpr size_t kMaxRequest = 8192;

std::string Response(const char* status, const std::string& body) {
  return absl::StrCat(
      "HTTP/1.1 ", status,
      "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: ", body.size(),
      "\r\nConnection: close\r\n\r\n", body);
}

// The answer to a scrape fits a socket's buffer. A reader so slow that it does not gets a cut
// answer.
void Answer(Door& door, Door::ConnectionId id, int fd, const std::string& response) {
  size_t sent = 0;
  while (sent < response.size()) {
    const ssize_t n =
        send(fd, response.data() + sent, response.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    sent += static_cast<size_t>(n);
  }
  door.Close(id);
}

// The response with the last page that control has made. Home: control.
class LastPage {
 public:
  LastPage(Executor& control, std::function<std::string()> text, absl::Duration age)
      : control_(control), text_(std::move(text)), age_(age) {}
  const std::string& Take() {
    const absl::Time now = control_.Now();
    if (response_.empty() || now - made_ >= age_) {
      response_ = Response("200 OK", text_());
      made_ = now;
    }
    return response_;
  }

 private:
  Executor& control_;
  const std::function<std::string()> text_;
  const absl::Duration age_;
  std::string response_;
  absl::Time made_;
};

}  // namespace

Door::OnAccept ServeMetrics(Door& door, Executor& control, std::function<std::string()> text,
                            absl::Duration page_age) {
  auto page = std::make_shared<LastPage>(control, std::move(text), page_age);
  auto recent =
      // The connections that came last; some may be closed.
      std::make_shared<std::deque<Door::ConnectionId>>();
  return [&door, &control, recent, page](UniqueFd socket, Admission::Pass pass) {
    if (recent->size() == kScrapes) {
      door.Close(recent->front());
      recent->pop_front();
    }
    auto request = std::make_shared<std::string>();
    recent->push_back(door.AddStream(
        std::move(socket), kScrapePatience,
        [&door, &control, page, request](Door::ConnectionId id, int fd) {
          char buffer[2048];
          const ssize_t size = recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT);
          if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
          if (size <= 0) return door.Close(id);
          request->append(buffer, static_cast<size_t>(size));
          if (request->size() > kMaxRequest)
            return Answer(door, id, fd, Response("431 Request Too Large", ""));
          if (!absl::StrContains(*request, "\r\n\r\n")) return;
          const std::vector<std::string> line =
              absl::StrSplit(request->substr(0, request->find('\r')), ' ');
          if (line.size() != 3) return Answer(door, id, fd, Response("400 Bad Request", ""));
          if (line[1].substr(0, line[1].find('?')) != "/metrics") {
            return Answer(door, id, fd,
                          Response("404 Not Found", "only /metrics is served here\n"));
          }
          if (line[0] != "GET") {
            return Answer(door, id, fd, Response("405 Method Not Allowed\r\nAllow: GET", ""));
          }
          // The door may drop the connection while control works. This descriptor is a copy, and
          // control, which must not wait, may be the last to close it.
          auto own = std::make_shared<ReceivedFds>();
          own->Add(UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 3)));
          control.Post([&door, id, own, page] { Answer(door, id, (*own)[0].get(), page->Take()); });
        },
        std::move(pass)));
  };
}

}  // namespace ferry
