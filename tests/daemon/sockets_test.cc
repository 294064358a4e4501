// SPDX-License-Identifier: Apache-2.0
// Listening sockets: what is taken, what is replaced, what is refused.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/stat.h>

#include <string>
#include <utility>

#include "daemon/door.h"
#include "tests/daemon/sockets.h"
#include "tests/daemon/support.h"
#include "tests/support/other_user.h"

namespace ferry {
namespace {

using testing::ConnectUnix;
using testing::Directory;
using ::testing::HasSubstr;
using testing::Is;

mode_t ModeOf(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 0777;
}

TEST(ListenUnix, TheSocketHasItsModeWhateverTheUmask) {
  Directory directory;
  const mode_t before = umask(077);
  const auto open = ListenUnix(directory / "open", SOCK_STREAM, 0666, Descriptors::kTaken);
  umask(0);
  const auto tight = ListenUnix(directory / "tight", SOCK_SEQPACKET, 0600, Descriptors::kTaken);
  umask(before);
  ASSERT_THAT(open, Is("OK"));
  ASSERT_THAT(tight, Is("OK"));
  EXPECT_EQ(ModeOf(directory / "open"), 0666u);
  EXPECT_EQ(ModeOf(directory / "tight"), 0600u);
  EXPECT_TRUE(ConnectUnix(directory / "open", SOCK_STREAM).valid());
  EXPECT_TRUE(ConnectUnix(directory / "tight", SOCK_SEQPACKET).valid());
}

TEST(ListenUnix, APathMayHave107BytesAndNoMore) {
  Directory directory;
  std::string name = directory / "";
  name.append(107 - name.size(), 'x');
  EXPECT_THAT(ListenUnix(name, SOCK_STREAM, 0600, Descriptors::kTaken), Is("OK"));
  name += "x";
  EXPECT_THAT(ListenUnix(name, SOCK_STREAM, 0600, Descriptors::kTaken),
              Is("INVALID_ARGUMENT/CONFIG_INVALID",
                 "at most 107 bytes, this one 108; choose a shorter "
                 "node.runtime_dir"));
}

TEST(ListenUnix, ALivingDaemonsSocketIsLeftAlone) {
  Directory directory;
  for (const int type : {SOCK_STREAM, SOCK_SEQPACKET}) {
    const std::string path = directory / absl::StrCat("s", type);
    const auto first = ListenUnix(path, type, 0600, Descriptors::kTaken);
    ASSERT_THAT(first, Is("OK"));
    EXPECT_THAT(
        ListenUnix(path, type, 0600, Descriptors::kTaken),
        Is("ALREADY_EXISTS/CONFIG_INVALID", "another daemon serves this runtime directory"));
    EXPECT_TRUE(ConnectUnix(path, type).valid());
  }
}

TEST(ListenUnix, ADeadDaemonsSocketIsReplaced) {
  Directory directory;
  for (int life = 0; life < 3; ++life) {
    const auto listener = ListenUnix(directory / "s", SOCK_SEQPACKET, 0600, Descriptors::kTaken);
    ASSERT_THAT(listener, Is("OK")) << life;
    EXPECT_TRUE(ConnectUnix(directory / "s", SOCK_SEQPACKET).valid());
  }  // closed; the file stays
  EXPECT_FALSE(ConnectUnix(directory / "s", SOCK_SEQPACKET).valid());
}

TEST(ListenUnix, WhereThereIsNoDirectoryTheTextSaysSo) {
  Directory directory;
  const auto listener = ListenUnix(directory / "missing/s", SOCK_STREAM, 0600, Descriptors::kTaken);
  EXPECT_THAT(listener, Is("UNAVAILABLE/INTERNAL", "bind: No such file or directory"));
  EXPECT_THAT(std::string(listener.status().message()), HasSubstr(directory / "missing/s"));
}

TEST(ListenTcp, WhatIsNoAddressAndPortIsRefused) {
  for (const char* text :
       {"", ":", "7411", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:-1",
        "127.0.0.1:65536", "127.0.0.1:99999999999", "[::1]", "[::1]:"}) {
    EXPECT_THAT(ListenTcp(text),
                Is("INVALID_ARGUMENT/CONFIG_INVALID",
                   absl::StrCat("listen on '", text, "': not of the form address:port")));
  }
  for (const char* text : {":7411", "localhost:7411", "127.0.0:7411", "127.0.0.256:7411",
                           "[::x]:7411", "[]:7411", " 127.0.0.1:7411", "node-a.example.org:7411"}) {
    EXPECT_THAT(ListenTcp(text), Is("INVALID_ARGUMENT/CONFIG_INVALID", "is not an IP address"))
        << text;
  }
}

TEST(ListenTcp, OnPort0TheKernelChoosesAndTwoGetTwo) {
  const auto first = ListenTcp("127.0.0.1:0");
  const auto second = ListenTcp("127.0.0.1:0");
  ASSERT_THAT(first, Is("OK"));
  ASSERT_THAT(second, Is("OK"));
  EXPECT_GT(BoundPort(first->get()), 0);
  EXPECT_NE(BoundPort(first->get()), BoundPort(second->get()));
  EXPECT_EQ(BoundPort(-1), 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(BoundPort(first->get())));
  const UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
}

TEST(ListenTcp, APortInUseIsToldWithTheAddress) {
  const auto first = ListenTcp("127.0.0.1:0");
  ASSERT_THAT(first, Is("OK"));
  const std::string address = absl::StrCat("127.0.0.1:", BoundPort(first->get()));
  EXPECT_THAT(ListenTcp(address),
              Is("UNAVAILABLE/CONFIG_INVALID",
                 absl::StrCat("listen on ", address, ": Address already in use")));
}

TEST(ListenTcp, AnIpv6AddressStandsInBrackets) {
  // Machines without IPv6 say so; that it is no address they do not say.
  const auto listener = ListenTcp("[::1]:0");
  if (listener.ok()) {
    EXPECT_GT(BoundPort(listener->get()), 0);
  } else {
    EXPECT_THAT(listener, Is("UNAVAILABLE/CONFIG_INVALID", "listen on [::1]:0"));
  }
}

// Both ends of a connection over loopback, and who the daemon takes the other one for.
struct Loopback {
  explicit Loopback(const char* address) : listener(*ListenTcp(address)) {}
  void Connect() {
    sockaddr_storage to{};
    socklen_t size = sizeof(to);
    auto* const name = reinterpret_cast<sockaddr*>(&to);
    EXPECT_EQ(getsockname(listener.get(), name, &size), 0);
    theirs.Reset(socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(theirs.get(), name, size), 0);
    ours.Reset(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  std::string Who() const {
    const absl::StatusOr<Visitor> visitor = VisitorOf(ours.get());
    return visitor.ok() ? visitor->name : std::string(visitor.status().message());
  }
  UniqueFd listener, ours, theirs;
};

TEST(VisitorOf, UsersOfThisHostAreToldApart) {
  for (const auto& [listen, address] :
       {std::pair("127.0.0.1:0", "127.0.0.1"), std::pair("[::1]:0", "::1")}) {
    Loopback loopback(listen);
    loopback.Connect();
    EXPECT_EQ(loopback.Who(), absl::StrCat(address, " of uid ", geteuid()));
    loopback.theirs.Reset();  // it has no owner now, which reads as root
    EXPECT_EQ(loopback.Who(), address);
    if (geteuid() != 0) continue;
    testing::AsUser(testing::kHostileUser, [&] { loopback.Connect(); });
    EXPECT_EQ(loopback.Who(), absl::StrCat(address, " of uid ", testing::kHostileUser));
  }
}

}  // namespace
}  // namespace ferry
