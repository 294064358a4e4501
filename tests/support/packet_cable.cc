// SPDX-License-Identifier: Apache-2.0
#include "tests/support/packet_cable.h"

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "tests/support/await.h"
#include "tests/support/tcp_packet.h"

namespace ferry::testing {
namespace {

// So much of what a connection's opener says first is kept.
constexpr size_t kOpening = 8;

// A thread that has no other use, for it does not come back from the namespace. The descriptor is
// good in ours.
UniqueFd OpenTun(const std::string& name, const std::string& interface, std::string* why) {
  UniqueFd tun;
  std::thread([&] {
    const auto failed = [&](const char* what) {
      *why = absl::StrCat(what, " in namespace ", name, ": ", strerror(errno));
      tun.Reset();
    };
    const UniqueFd space(open(absl::StrCat("/run/netns/", name).c_str(), O_RDONLY | O_CLOEXEC));
    if (!space.valid() || setns(space.get(), CLONE_NEWNET) != 0) return failed("being");
    tun.Reset(open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK));
    if (!tun.valid()) return failed("opening /dev/net/tun");
    ifreq request{};
    request.ifr_flags = IFF_TUN | IFF_NO_PI;
    strncpy(request.ifr_name, interface.c_str(), sizeof(request.ifr_name) - 1);
    if (ioctl(tun.get(), TUNSETIFF, &request) != 0) failed("making an interface");
  }).join();
  return tun;
}

struct Packet {
  int to = -1;
  uint64_t number = 0;  // of its direction, as it came
  std::string bytes;
};

}  // namespace

std::unique_ptr<PacketCable> PacketCable::Create(const std::string (&namespaces)[2],
                                                 const std::string& interface, uint64_t seed,
                                                 std::string* why) {
  UniqueFd ends[2];
  for (int i = 0; i < 2; ++i) {
    ends[i] = OpenTun(namespaces[i], interface, why);
    if (!ends[i].valid()) return nullptr;
  }
  return std::unique_ptr<PacketCable>(
      new PacketCable(std::move(ends[0]), std::move(ends[1]), seed));
}

PacketCable::PacketCable(UniqueFd first, UniqueFd second, uint64_t seed)
    : ends_{std::move(first), std::move(second)}, stop_(eventfd(0, EFD_CLOEXEC)) {
  FERRY_CHECK(stop_.valid());
  thread_ = std::thread([this, seed] { Run(seed); });
}

PacketCable::~PacketCable() {
  const uint64_t one = 1;
  FERRY_CHECK(write(stop_.get(), &one, sizeof(one)) == sizeof(one));
  thread_.join();
}

void PacketCable::Set(const PacketFaults& faults) {
  std::lock_guard lock(mutex_);
  faults_ = faults;
}

void PacketCable::SetRule(Rule rule) {
  std::lock_guard lock(mutex_);
  rule_ = std::move(rule);
}

bool PacketCable::Apply(const Rule& rule, int from, std::string& packet) {
  const std::optional<TcpPacket> tcp = TcpPacket::Of(packet);
  if (!tcp.has_value()) return true;
  auto ports = std::pair(tcp->source, tcp->destination);
  if (from == 1) std::swap(ports.first, ports.second);
  Connection& connection = connections_[ports];
  if (tcp->opens) connection = {from, ""};
  if (from == connection.opener && connection.opening.empty()) {
    connection.opening = std::string(tcp->payload.substr(0, kOpening));
  }
  const Fate fate = rule == nullptr
                        ? Fate::kCarried
                        : rule({from, tcp->source, tcp->destination, connection.opening});
  if (fate != Fate::kCarried) ++ruled_out_;
  if (fate == Fate::kReset) packet = ResetInsteadOf(packet);
  return fate != Fate::kLost;
}

void PacketCable::Run(uint64_t seed) {
  std::multimap<Clock::time_point, Packet> on_their_way;
  std::mt19937_64 random(seed);
  const auto up_to = [&](std::chrono::microseconds most) {
    return std::chrono::microseconds(
        std::uniform_int_distribution<std::chrono::microseconds::rep>(0, most.count())(random));
  };
  const auto chance = [&](double share) { return std::bernoulli_distribution(share)(random); };
  uint64_t came[2] = {0, 0}, latest[2] = {0, 0};
  std::string buffer(64 << 10, '\0');
  pollfd polled[3] = {
      {ends_[0].get(), POLLIN, 0}, {ends_[1].get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
  while (polled[2].revents == 0) {
    PacketFaults faults;
    Rule rule;
    {
      std::lock_guard lock(mutex_);
      faults = faults_;
      rule = rule_;
    }
    for (int from = 0; from < 2; ++from) {
      for (ssize_t got; (got = read(ends_[from].get(), buffer.data(), buffer.size())) > 0;) {
        std::string packet = buffer.substr(0, static_cast<size_t>(got));
        if (!Apply(rule, from, packet) || silent_[from]) continue;
        if (chance(faults.lost)) {
          ++lost_;
          continue;
        }
        const uint64_t number = ++came[from];
        const bool twice = chance(faults.doubled);
        if (twice) ++doubled_;
        for (int copies = twice ? 2 : 1; copies > 0; --copies) {
          auto due = Clock::now() + faults.delay;
          if (chance(faults.late)) due += up_to(faults.lateness);
          on_their_way.emplace(due, Packet{1 - from, number, packet});
        }
      }
    }
    auto next = on_their_way.begin();
    for (; next != on_their_way.end() && next->first <= Clock::now();
         next = on_their_way.erase(next)) {
      const Packet& packet = next->second;
      if (packet.number < latest[packet.to]) ++overtaken_;
      latest[packet.to] = std::max(latest[packet.to], packet.number);
      // An interface that is down takes none, as a host that is off would not.
      if (write(ends_[packet.to].get(), packet.bytes.data(), packet.bytes.size()) > 0) ++carried_;
    }
    timespec left{3600, 0};
    if (next != on_their_way.end()) {
      const auto wait = std::max(next->first - Clock::now(), Clock::duration::zero());
      left = {wait / std::chrono::seconds(1), (wait % std::chrono::seconds(1)).count()};
    }
    FERRY_CHECK(ppoll(polled, 3, &left, nullptr) >= 0 || errno == EINTR);
  }
}

}  // namespace ferry::testing
