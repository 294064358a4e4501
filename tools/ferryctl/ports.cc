// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/ports.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/duration.h"
#include "base/fd.h"

namespace ferry::tools {
namespace {

namespace admin = ferry::admin::v1;
using Kind = PortAnswer::Kind;

// How many connections are made at once, so that a process with few descriptors can ask.
constexpr size_t kAtOnce = 64;

struct Place {
  std::string host, port;
};

Place PlaceOf(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return {address, ""};
  Place place{address.substr(0, colon), address.substr(colon + 1)};
  if (place.host.size() > 2 && place.host.front() == '[' && place.host.back() == ']') {
    place.host = place.host.substr(1, place.host.size() - 2);
  }
  return place;
}

using Resolved = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

Resolved Resolve(const Place& place, std::string& why) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(place.host.c_str(), place.port.c_str(), &hints, &found);
  if (error != 0) {
    why = error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error);
    found = nullptr;
  }
  return Resolved(found, [](addrinfo* all) {
    if (all != nullptr) freeaddrinfo(all);
  });
}

PortAnswer AnswerOf(int error) {
  if (error == 0) return {};
  const Kind kind = error == ECONNREFUSED ? Kind::kRefused
                    : error == ETIMEDOUT  ? Kind::kSilent
                                          : Kind::kOther;
  return {kind, strerror(error)};
}

// One connection that is being made. If a name has several addresses only the first is tried, as
// the daemon does.
struct Attempt {
  UniqueFd socket;
  PortAnswer answer;
  bool over = true;

  void Begin(const std::string& address) {
    Place place = PlaceOf(address);
    if (place.host == "0.0.0.0") place.host = "127.0.0.1";
    if (place.host == "::") place.host = "::1";
    std::string why;
    const Resolved to = Resolve(place, why);
    if (to == nullptr) {
      answer = {Kind::kNoName, why};
      return;
    }
    socket.Reset(::socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.valid()) {
      answer = AnswerOf(errno);
    } else if (connect(socket.get(), to->ai_addr, to->ai_addrlen) != 0) {
      over = errno != EINPROGRESS;
      if (over) answer = AnswerOf(errno);
    }
  }
  void Look() {
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    answer = AnswerOf(error);
    over = true;
  }
};

void AwaitAll(std::vector<Attempt>& attempts, absl::Duration patience) {
  const absl::Time until = absl::Now() + patience;
  while (true) {
    std::vector<pollfd> waits;
    std::vector<Attempt*> whose;
    for (Attempt& attempt : attempts) {
      if (attempt.over) continue;
      waits.push_back({attempt.socket.get(), POLLOUT, 0});
      whose.push_back(&attempt);
    }
    const auto left = std::max(absl::ToInt64Milliseconds(until - absl::Now()), int64_t{0});
    if (waits.empty() || left == 0) break;
    if (poll(waits.data(), waits.size(), static_cast<int>(left)) < 0 && errno != EINTR) break;
    for (size_t i = 0; i < waits.size(); ++i) {
      if (waits[i].revents != 0) whose[i]->Look();
    }
  }
  for (Attempt& attempt : attempts) {
    if (attempt.over) continue;
    attempt.answer = {Kind::kSilent, absl::StrCat("no answer in ", DurationText(patience))};
  }
}

std::string WhoHas(const std::string& port) {
  return absl::StrCat("`ss -ltnp 'sport = :", port,
                      "'` says whose it is; a daemon that is just ending lets go of it");
}

std::string AdviceFor(Kind kind, const admin::Peer& peer) {
  switch (kind) {
    case Kind::kRefused:
      return absl::StrCat("nothing listens there: is ferryd up on ", peer.node(),
                          ", and is that its peer.listen?");
    case Kind::kSilent:
      return absl::StrCat("a firewall or a missing route: let this host reach TCP port ",
                          PlaceOf(peer.address()).port, " of ", peer.node());
    case Kind::kNoName:
      return "DNS or /etc/hosts of this host must know the name, or membership.nodes have an IP "
             "address";
    default:
      return absl::StrCat("`ip route get` to that address, and the address of ", peer.node(),
                          " in membership.nodes");
  }
}

Finding PeerPortFinding(const admin::Peer& peer, const PortAnswer& answer) {
  Finding finding{Severity::kOk, absl::StrCat("port of ", peer.node()), peer.address(), ""};
  if (answer.kind == Kind::kAnswers) {
    absl::StrAppend(&finding.found, " is reached from here");
    return finding;
  }
  // A link that the other daemon has dialled works without this port.
  const bool up = peer.state() == "up";
  finding.severity = up ? Severity::kWarning : Severity::kWrong;
  absl::StrAppend(&finding.found, " is not reached from here: ", answer.why,
                  up ? "; the link is up because the other node dialled it" : "");
  finding.advice = AdviceFor(answer.kind, peer);
  return finding;
}

}  // namespace

std::vector<PortAnswer> TryPorts(const std::vector<std::string>& addresses,
                                 absl::Duration patience) {
  std::vector<PortAnswer> answers;
  for (size_t first = 0; first < addresses.size(); first += kAtOnce) {
    std::vector<Attempt> attempts(std::min(kAtOnce, addresses.size() - first));
    for (size_t i = 0; i < attempts.size(); ++i) attempts[i].Begin(addresses[first + i]);
    AwaitAll(attempts, patience);
    for (Attempt& attempt : attempts) answers.push_back(std::move(attempt.answer));
  }
  return answers;
}

Finding ListensFinding(const std::string& setting, const std::string& listen,
                       const std::string& lacks, absl::Duration patience) {
  if (listen.empty()) return {Severity::kOk, setting, absl::StrCat("not set: ", lacks), ""};
  if (PlaceOf(listen).port == "0") {
    return {Severity::kOk, setting, absl::StrCat(listen, ", a port of the kernel's choice"), ""};
  }
  const PortAnswer answer = TryPorts({listen}, patience)[0];
  if (answer.kind == Kind::kAnswers) {
    return {Severity::kOk, setting, absl::StrCat(listen, " answers"), ""};
  }
  return {Severity::kWarning, setting, absl::StrCat(listen, " is not reached: ", answer.why),
          "the daemon listens there: is this another network namespace, or does a firewall keep "
          "even this host out?"};
}

Finding CouldListenFinding(const std::string& setting, const std::string& listen) {
  const Place place = PlaceOf(listen);
  std::string why;
  const Resolved to = Resolve(place, why);
  if (to == nullptr) return {Severity::kOk, setting, listen, ""};  // --check-config reports it
  const UniqueFd socket(::socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int one = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  if (bind(socket.get(), to->ai_addr, to->ai_addrlen) == 0) {
    return {Severity::kOk, setting, absl::StrCat(listen, " is free"), ""};
  }
  if (errno == EADDRINUSE) {
    return {Severity::kWrong, setting, absl::StrCat(listen, " is taken by another process"),
            WhoHas(place.port)};
  }
  return {Severity::kWrong, setting,
          absl::StrCat(listen, " cannot be listened on: ", strerror(errno)),
          "an address of this host, and a port that its user may have (1024 or more)"};
}

Findings PeerPortFindings(const admin::GetStatusResponse& status, absl::Duration patience) {
  std::vector<const admin::Peer*> peers;
  std::vector<std::string> addresses;
  for (const admin::Peer& peer : status.peers()) {
    if (peer.address().empty()) continue;  // the entry of a stranger
    peers.push_back(&peer);
    addresses.push_back(peer.address());
  }
  const std::vector<PortAnswer> answers = TryPorts(addresses, patience);
  Findings findings;
  for (size_t i = 0; i < peers.size(); ++i) {
    findings.push_back(PeerPortFinding(*peers[i], answers[i]));
  }
  return findings;
}

std::string ListenOf(const std::string& printed, const std::string& section) {
  bool inside = false;
  for (absl::string_view line : absl::StrSplit(printed, '\n')) {
    if (!line.empty() && line[0] != ' ') inside = line == absl::StrCat(section, ":");
    line = absl::StripAsciiWhitespace(line);
    if (!inside || !absl::ConsumePrefix(&line, "listen: \"")) continue;
    return std::string(absl::StripSuffix(line, "\""));
  }
  return "";
}

}  // namespace ferry::tools
