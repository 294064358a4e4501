// SPDX-License-Identifier: Apache-2.0
#include "tests/support/network_namespaces.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/support/await.h"
#include "tests/support/process.h"

namespace ferry::testing {
namespace {

// Documentation addresses (RFC 5737, RFC 3849): nobody routes them.
constexpr char kNet[] = "192.0.2.";
constexpr char kNet6[] = "2001:db8::";
constexpr char kCable[] = "cable";
constexpr uint64_t kSeed = 1;  // of what happens to packets

// "" if it went well, else what it printed.
std::string Run(const std::string& command) {
  const std::vector<std::string> words = absl::StrSplit(command, ' ');
  std::vector<std::string> arguments = {"/usr/bin/env"};
  arguments.insert(arguments.end(), words.begin(), words.end());
  const Finished finished = RunProgram(arguments);
  if (finished.status == 0) return "";
  return absl::StrCat(command, ": exit status ", finished.status, ": ", finished.output);
}

}  // namespace

NetworkNamespaces::NetworkNamespaces() : prefix_(absl::StrCat("ferry-test-", getpid(), "-")) {}

std::unique_ptr<NetworkNamespaces> NetworkNamespaces::Create(Cable cable, std::string* why) {
  std::unique_ptr<NetworkNamespaces> made(new NetworkNamespaces);
  const auto run = [&](const std::string& command) {
    if (why->empty()) *why = Run(command);
  };
  for (size_t i = 0; i < 2; ++i) run(absl::StrCat("ip netns add ", made->name(i)));
  if (cable == kOfTheKernel) {
    run(absl::StrCat("ip link add ", kCable, " netns ", made->name(0), " type veth peer name ",
                     kCable, " netns ", made->name(1)));
  } else if (why->empty()) {
    made->packets_ = PacketCable::Create({made->name(0), made->name(1)}, kCable, kSeed, why);
  }
  for (size_t i = 0; i < 2; ++i) {
    const std::string ip = absl::StrCat("ip -netns ", made->name(i));
    run(absl::StrCat(ip, " address add ", made->address(i), "/24 dev ", kCable));
    run(absl::StrCat(ip, " address add ", made->address6(i), "/64 dev ", kCable, " nodad"));
    run(absl::StrCat(ip, " link set ", kCable, " up"));
    run(absl::StrCat(ip, " link set lo up"));
  }
  // The kernel takes its time to say so, and who starts before has no such interface.
  for (size_t i = 0; i < 2 && why->empty(); ++i) {
    if (!made->AwaitRunning(i)) *why = "the cable does not come up";
  }
  return why->empty() ? std::move(made) : nullptr;
}

bool NetworkNamespaces::AwaitRunning(size_t i) {
  const std::vector<std::string> show = {"/usr/bin/env", "ip",   "-netns", name(i),
                                         "link",         "show", kCable};
  return Await([&] {
    const std::string shown = RunProgram(show).output;
    return absl::StrContains(shown, ",LOWER_UP") && !absl::StrContains(shown, "NO-CARRIER");
  });
}

NetworkNamespaces::~NetworkNamespaces() {
  for (size_t i = 0; i < 2; ++i) Run(absl::StrCat("ip netns delete ", name(i)));
}

std::string NetworkNamespaces::address(size_t i) const { return absl::StrCat(kNet, i + 1); }

std::string NetworkNamespaces::address6(size_t i) const { return absl::StrCat(kNet6, i + 1); }

void NetworkNamespaces::AddAddress(size_t i, const std::string& address) {
  EXPECT_EQ(Run(absl::StrCat("ip -netns ", name(i), " address add ", address, " dev ", kCable)),
            "");
}

void NetworkNamespaces::AddInterface(size_t i, const std::string& interface,
                                     const std::string& address) {
  const std::string ip = absl::StrCat("ip -netns ", name(i));
  EXPECT_EQ(
      Run(absl::StrCat(ip, " link add ", interface, " type veth peer name ", interface, "-end")),
      "");
  EXPECT_EQ(Run(absl::StrCat(ip, " address add ", address, " dev ", interface)), "");
  for (const char* end : {"", "-end"}) {
    EXPECT_EQ(Run(absl::StrCat(ip, " link set ", interface, end, " up")), "");
  }
}

std::vector<std::string> NetworkNamespaces::launcher(size_t i) const {
  return {"/usr/bin/env", "ip", "netns", "exec", name(i)};
}

void NetworkNamespaces::SetCable(bool plugged) {
  EXPECT_EQ(
      Run(absl::StrCat("ip -netns ", name(0), " link set ", kCable, plugged ? " up" : " down")),
      "");
  if (plugged) {
    EXPECT_TRUE(AwaitRunning(0) && AwaitRunning(1));
  }
}

void NetworkNamespaces::SetRate(const std::string& rate) {
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(Run(absl::StrCat("tc -netns ", name(i), " qdisc replace dev ", kCable,
                               " root tbf rate ", rate, " burst 256k latency 50ms")),
              "");
  }
}

}  // namespace ferry::testing
