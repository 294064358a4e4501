// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/connection_table.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <set>
#include <string>
#include <vector>

#include "tests/daemon/support.h"

namespace ferry {
namespace {

using testing::Is;

constexpr Credentials kAlice{100, 1000, 1000};
constexpr Credentials kBob{200, 1001, 1001};

// Two ends of a connection.
struct Pair {
  Pair() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    ours.Reset(fds[0]);
    theirs.Reset(fds[1]);
  }
  UniqueFd ours, theirs;
};

// Admits a connection; afterwards it lives as long as the result, as with gRPC.
UniqueFd Admit(ConnectionTable& table, const Credentials& who) {
  absl::StatusOr<int> fd = table.Admit(std::move(Pair().ours), who);
  EXPECT_THAT(fd, Is("OK"));
  return UniqueFd(fd.ok() ? *fd : -1);
}
std::string GrpcPeer(int fd) { return absl::StrCat("fd:", fd); }

TEST(ConnectionTable, AnAdmittedConnectionIsTheSameSocketUnderANumberOfItsOwn) {
  ConnectionTable table(8);
  Pair pair;
  const int before = pair.ours.get();
  const absl::StatusOr<int> fd = table.Admit(std::move(pair.ours), kAlice);
  ASSERT_THAT(fd, Is("OK"));
  const UniqueFd grpc(*fd);
  EXPECT_NE(*fd, before);
  EXPECT_EQ(fcntl(before, F_GETFD), -1);  // moved, not copied
  EXPECT_NE(fcntl(*fd, F_GETFD) & FD_CLOEXEC, 0);
  ASSERT_EQ(send(pair.theirs.get(), "x", 1, 0), 1);
  char byte = 0;
  EXPECT_EQ(recv(*fd, &byte, 1, 0), 1);
  EXPECT_EQ(byte, 'x');
}

TEST(ConnectionTable, GrpcsNameOfAPeerLeadsToItsCredentials) {
  ConnectionTable table(8);
  const UniqueFd alice = Admit(table, kAlice);
  const UniqueFd bob = Admit(table, kBob);
  const std::optional<Caller> found = table.Find(GrpcPeer(bob.get()));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->credentials.pid, kBob.pid);
  EXPECT_EQ(found->credentials.uid, kBob.uid);
  ASSERT_TRUE(table.Find(GrpcPeer(alice.get())).has_value());
  EXPECT_EQ(table.Find(GrpcPeer(alice.get()))->credentials.uid, kAlice.uid);
  EXPECT_NE(table.Find(GrpcPeer(alice.get()))->connection, found->connection);
  EXPECT_EQ(table.size(), 2u);
}

TEST(ConnectionTable, NobodyElseIsFound) {
  ConnectionTable table(8);
  const UniqueFd alice = Admit(table, kAlice);
  for (const std::string& peer :
       {std::string(""), std::string("fd:"), std::string("fd:x"),
        absl::StrCat(GrpcPeer(alice.get()), "x"), GrpcPeer(alice.get() + 1),
        absl::StrCat(alice.get()), std::string("unix:"), std::string("ipv4:127.0.0.1:1")}) {
    EXPECT_FALSE(table.Find(peer).has_value()) << peer;
  }
}

TEST(ConnectionTable, AConnectionIsAliveUntilItIsClosed) {
  ConnectionTable table(8);
  UniqueFd fd = Admit(table, kAlice);
  const int connection = table.Find(GrpcPeer(fd.get()))->connection;
  EXPECT_TRUE(table.Alive(connection));
  EXPECT_FALSE(table.Alive(connection + 1));
  EXPECT_FALSE(table.Alive(-1));
  fd.Reset();
  EXPECT_FALSE(table.Alive(connection));
}

TEST(ConnectionTable, AnotherSocketUnderTheSameNumberIsNotTheConnection) {
  ConnectionTable table(8);
  UniqueFd fd = Admit(table, kAlice);
  const int connection = table.Find(GrpcPeer(fd.get()))->connection;
  Pair other;
  ASSERT_EQ(dup2(other.ours.get(), fd.get()), fd.get());
  EXPECT_FALSE(table.Alive(connection));
}

TEST(ConnectionTable, AUserHasItsShareOfConnectionsAndNoMore) {
  ConnectionTable table(3);
  std::vector<UniqueFd> open;
  for (int i = 0; i < 3; ++i) open.push_back(Admit(table, kAlice));
  EXPECT_THAT(table.Admit(std::move(Pair().ours), kAlice),
              Is("RESOURCE_EXHAUSTED/TOO_MANY_SESSIONS", "uid 1000 has 3 connections already"));
  open.push_back(Admit(table, kBob));  // others are not kept out by her
  open.erase(open.begin());            // and who closes one may open another
  open.push_back(Admit(table, kAlice));
  EXPECT_THAT(table.Admit(std::move(Pair().ours), kAlice),
              Is("RESOURCE_EXHAUSTED/TOO_MANY_SESSIONS"));
}

TEST(ConnectionTable, ARefusedConnectionIsClosed) {
  ConnectionTable table(0);
  Pair pair;
  EXPECT_FALSE(table.Admit(std::move(pair.ours), kAlice).ok());
  char byte;
  EXPECT_EQ(recv(pair.theirs.get(), &byte, 1, MSG_DONTWAIT), 0);
}

TEST(ConnectionTable, NumbersAreNotDealtAgainAtOnce) {
  ConnectionTable table(8);
  std::set<int> seen;
  std::set<int> connections;
  for (int i = 0; i < 300; ++i) {
    const UniqueFd fd = Admit(table, kAlice);  // closed before the next one comes
    EXPECT_TRUE(seen.insert(fd.get()).second) << fd.get();
    EXPECT_TRUE(connections.insert(table.Find(GrpcPeer(fd.get()))->connection).second);
  }
  // Those that were closed are not kept for ever.
  EXPECT_LT(table.size(), 100u);
}

}  // namespace
}  // namespace ferry
