// SPDX-License-Identifier: Apache-2.0
#include "bench/network_peers.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/fd.h"
#include "base/status.h"
#include "tools/ferryctl/bench_end.h"
#include "tools/ferryctl/host_copy.h"
#include "tools/ferryctl/statistics.h"

namespace ferry::bench {
namespace {

absl::Status Failed(absl::string_view doing) {
  return ErrnoError(absl::StatusCode::kInternal, Reason::kInternal,
                    absl::StrCat("raw TCP: ", doing), errno);
}

// Both ends of a connection over loopback.
absl::StatusOr<std::pair<UniqueFd, UniqueFd>> Connect() {
  UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener.get(), raw, size) != 0 || listen(listener.get(), 1) != 0 ||
      getsockname(listener.get(), raw, &size) != 0) {
    return Failed("listen");
  }
  UniqueFd first(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(first.get(), raw, size) != 0) return Failed("connect");
  UniqueFd second(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!second.valid()) return Failed("accept");
  const int one = 1;
  for (const int socket : {first.get(), second.get()}) {
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  }
  return std::make_pair(std::move(first), std::move(second));
}

}  // namespace

double ParseUcxPerftest(absl::string_view output) {
  double found = 0;
  for (absl::string_view line : absl::StrSplit(output, '\n')) {
    // iterations, latency of a percentile, average and overall, MiB/s average and overall,
    // messages/s ...
    std::vector<absl::string_view> words = absl::StrSplit(line, ',');
    double mib = 0;
    if (words.size() == 8 && absl::SimpleAtod(words[5], &mib)) found = mib * 1048576 / 1e9;
  }
  return found;
}

absl::StatusOr<double> MeasureUcxPerftest(const std::string& transports, uint64_t bytes,
                                          int iterations, const std::vector<std::string>& more) {
  ASSIGN_OR_RETURN(int port, FreeTcpPort());
  UniqueFd nowhere(open("/dev/null", O_WRONLY | O_CLOEXEC));
  tools::SpawnOptions server;
  server.arguments = {"ucx_perftest", "-p", absl::StrCat(port)};
  server.environment = {"UCX_TLS=" + transports, "UCX_WARN_UNUSED_ENV_VARS=n"};
  server.output = nowhere.get();
  ASSIGN_OR_RETURN(tools::ChildProcess running, tools::ChildProcess::Spawn(server));
  tools::SpawnOptions client = server;
  client.arguments = {"timeout",      "60",
                      "ucx_perftest", "127.0.0.1",
                      "-p",           absl::StrCat(port),
                      "-t",           "tag_bw",
                      "-s",           absl::StrCat(bytes),
                      "-n",           absl::StrCat(iterations),
                      "-w",           "2",
                      "-f",           "-v"};
  client.arguments.insert(client.arguments.end(), more.begin(), more.end());
  absl::Status failure;
  // The server says nothing when it listens; the client is tried until it does.
  const absl::Time by = absl::Now() + absl::Seconds(60);
  for (int attempt = 0; attempt < 100 && absl::Now() < by; ++attempt) {
    auto output = tools::RunAndRead(client);
    if (output.ok()) {
      const double rate = ParseUcxPerftest(*output);
      if (rate > 0) return rate;
      return Error(absl::StatusCode::kInternal, Reason::kInternal,
                   absl::StrCat("read ucx_perftest's result: ", *output));
    }
    failure = output.status();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return failure;
}

absl::StatusOr<absl::Duration> BareTcpHalfRoundTrip(int times) {
  ASSIGN_OR_RETURN(const auto connection, Connect());
  const auto& [here, there] = connection;
  std::thread echo([socket = there.get()] {
    uint64_t word = 0;
    while (recv(socket, &word, sizeof(word), MSG_WAITALL) == sizeof(word)) {
      if (send(socket, &word, sizeof(word), MSG_NOSIGNAL) != sizeof(word)) return;
    }
  });
  std::vector<absl::Duration> halves;
  uint64_t word = 0;
  for (int i = 0; i < times; ++i) {
    const int64_t start = tools::MonotonicNanoseconds();
    if (send(here.get(), &word, sizeof(word), MSG_NOSIGNAL) != sizeof(word) ||
        recv(here.get(), &word, sizeof(word), MSG_WAITALL) != sizeof(word)) {
      break;
    }
    halves.push_back(absl::Nanoseconds(tools::MonotonicNanoseconds() - start) / 2);
  }
  shutdown(here.get(), SHUT_RDWR);
  echo.join();
  if (halves.empty()) return Failed("ping");
  return tools::Median(std::move(halves));
}

namespace {

// One end and its lane.
class RelayedEnd {
 public:
  explicit RelayedEnd(UniqueFd socket)
      : socket_(std::move(socket)), bell_(eventfd(0, EFD_CLOEXEC)), lane_([this] { Relay(); }) {}
  ~RelayedEnd() {
    HangUp();
    lane_.join();
  }
  RelayedEnd(const RelayedEnd&) = delete;
  RelayedEnd& operator=(const RelayedEnd&) = delete;

  void HangUp() const { shutdown(socket_.get(), SHUT_RDWR); }
  void Say() const { eventfd_write(bell_.get(), 1); }
  // Until the other end has said something for the `count`th time, or is gone.
  bool Hear(uint32_t count) const {
    for (uint32_t heard; (heard = heard_.load()) != kGone;) {
      if (heard == count) return true;
      heard_.wait(heard);
    }
    return false;
  }

 private:
  static constexpr uint32_t kGone = UINT32_MAX;

  void Relay() {
    uint64_t word = 0;
    while (true) {
      pollfd wait[] = {{bell_.get(), POLLIN, 0}, {socket_.get(), POLLIN, 0}};
      poll(wait, 2, -1);
      if (wait[0].revents != 0) {
        eventfd_t rung;
        eventfd_read(bell_.get(), &rung);
        if (send(socket_.get(), &word, sizeof(word), MSG_NOSIGNAL) != sizeof(word)) break;
      }
      if (wait[1].revents == 0) continue;
      if (recv(socket_.get(), &word, sizeof(word), MSG_WAITALL) != sizeof(word)) break;
      heard_.fetch_add(1);
      heard_.notify_one();
    }
    heard_.store(kGone);
    heard_.notify_all();
  }

  const UniqueFd socket_;
  const UniqueFd bell_;
  std::atomic<uint32_t> heard_{0};
  std::thread lane_;  // the last member: it uses the others
};

}  // namespace

absl::StatusOr<absl::Duration> RelayedTcpHalfRoundTrip(int times) {
  ASSIGN_OR_RETURN(auto connection, Connect());
  RelayedEnd here(std::move(connection.first));
  std::vector<absl::Duration> halves;
  {
    RelayedEnd there(std::move(connection.second));
    std::thread echo([&] {
      for (uint32_t count = 1; there.Hear(count); ++count) there.Say();
    });
    for (int i = 1; i <= times; ++i) {
      const int64_t start = tools::MonotonicNanoseconds();
      here.Say();
      if (!here.Hear(static_cast<uint32_t>(i))) break;
      halves.push_back(absl::Nanoseconds(tools::MonotonicNanoseconds() - start) / 2);
    }
    here.HangUp();
    echo.join();
  }
  if (halves.empty()) return Failed("ping");
  return tools::Median(std::move(halves));
}

struct RawTcp::Buffers {
  explicit Buffers(uint64_t size) : bytes(size), from(size), to(size) {
    from.Fill();
    to.Fill();
  }
  const uint64_t bytes;
  tools::Pages from;
  tools::Pages to;
};

RawTcp::RawTcp(uint64_t bytes) : buffers_(std::make_unique<Buffers>(bytes)) {}
RawTcp::~RawTcp() = default;

absl::StatusOr<absl::Duration> RawTcp::Run() {
  ASSIGN_OR_RETURN(const auto connection, Connect());
  const auto& writer = connection.first;  // no binding: clang 14 lets no lambda have one
  const auto& reader = connection.second;
  const uint64_t bytes = buffers_->bytes;
  const int64_t start = tools::MonotonicNanoseconds();
  std::thread sending([&] {
    for (uint64_t at = 0; at < bytes;) {
      const ssize_t put = send(writer.get(), buffers_->from.data() + at, bytes - at, MSG_NOSIGNAL);
      if (put <= 0) break;  // the reader sees the end of the stream too early
      at += static_cast<uint64_t>(put);
    }
    shutdown(writer.get(), SHUT_WR);
  });
  uint64_t at = 0;
  while (at < bytes) {
    const ssize_t got = recv(reader.get(), buffers_->to.data() + at, bytes - at, 0);
    if (got <= 0) break;
    at += static_cast<uint64_t>(got);
  }
  const int64_t end = tools::MonotonicNanoseconds();
  sending.join();
  if (at < bytes) return Failed("receive");
  return absl::Nanoseconds(end - start);
}

}  // namespace ferry::bench
