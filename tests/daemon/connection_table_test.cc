// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/connection_table.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <set>
#include <string>
#include <vector>

#include "base/executor.h"
#include "tests/daemon/support.h"
#include "tests/support/await.h"

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
  absl::StatusOr<int> fd = table.Admit(std::move(Pair().ours), who, Admission::Pass());
  EXPECT_THAT(fd, Is("OK"));
  return UniqueFd(fd.ok() ? *fd : -1);
}
std::string GrpcPeer(int fd) { return absl::StrCat("fd:", fd); }

TEST(ConnectionTable, AnAdmittedConnectionIsTheSameSocketUnderANumberOfItsOwn) {
  ConnectionTable table(ConnectionTable::Of::kClients);
  Pair pair;
  const int before = pair.ours.get();
  const absl::StatusOr<int> fd = table.Admit(std::move(pair.ours), kAlice, Admission::Pass());
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
  ConnectionTable table(ConnectionTable::Of::kClients);
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
  ConnectionTable table(ConnectionTable::Of::kClients);
  const UniqueFd alice = Admit(table, kAlice);
  for (const std::string& peer :
       {std::string(""), std::string("fd:"), std::string("fd:x"),
        absl::StrCat(GrpcPeer(alice.get()), "x"), GrpcPeer(alice.get() + 1),
        absl::StrCat(alice.get()), std::string("unix:"), std::string("ipv4:127.0.0.1:1")}) {
    EXPECT_FALSE(table.Find(peer).has_value()) << peer;
  }
}

TEST(ConnectionTable, AConnectionIsAliveUntilItIsClosed) {
  ConnectionTable table(ConnectionTable::Of::kClients);
  UniqueFd fd = Admit(table, kAlice);
  const int connection = table.Find(GrpcPeer(fd.get()))->connection;
  EXPECT_TRUE(table.Alive(connection));
  EXPECT_FALSE(table.Alive(connection + 1));
  EXPECT_FALSE(table.Alive(-1));
  fd.Reset();
  EXPECT_FALSE(table.Alive(connection));
}

TEST(ConnectionTable, AnotherSocketUnderTheSameNumberIsNotTheConnection) {
  ConnectionTable table(ConnectionTable::Of::kClients);
  UniqueFd fd = Admit(table, kAlice);
  const int connection = table.Find(GrpcPeer(fd.get()))->connection;
  Pair other;
  ASSERT_EQ(dup2(other.ours.get(), fd.get()), fd.get());
  EXPECT_FALSE(table.Alive(connection));
}

// gRPC says nothing when it closes one.
TEST(ConnectionTable, AConnectionHasItsPlaceUntilItIsClosed) {
  ConnectionTable* swept = nullptr;
  Admission admission({"a test", 2, 2, 1000, 1000}, [&swept] { swept->Sweep(); });
  ConnectionTable table(ConnectionTable::Of::kClients);
  swept = &table;
  const auto come = [&]() -> UniqueFd {
    absl::StatusOr<Admission::Pass> pass = admission.Admit({"uid 1000"}, MonotonicNow());
    if (!pass.ok()) return UniqueFd();
    return UniqueFd(*table.Admit(std::move(Pair().ours), kAlice, *std::move(pass)));
  };
  UniqueFd one = come();
  const UniqueFd two = come();
  ASSERT_TRUE(one.valid() && two.valid());
  EXPECT_FALSE(come().valid());
  one.Reset();
  EXPECT_TRUE(testing::Await([&] { return come().valid(); }));
}

TEST(ConnectionTable, WhoIsNotGreetedInTimeIsShutDown) {
  Admission admission({"a test", 9, 9, 1000, 1000});
  ConnectionTable table(ConnectionTable::Of::kPeers);
  const absl::Time start = absl::UnixEpoch();
  Pair silent, known, gone;
  const auto admit = [&](Pair& pair, absl::Duration patience) {
    return UniqueFd(
        *table.Admit(std::move(pair.ours), {}, *admission.Admit({"x"}, start), start + patience));
  };
  const UniqueFd first = admit(silent, absl::Seconds(5));
  const UniqueFd second = admit(known, absl::Seconds(6));
  UniqueFd third = admit(gone, absl::Seconds(7));
  table.Greeted(GrpcPeer(second.get()));
  table.Greeted("fd:x");
  EXPECT_EQ(admission.open(), 2u) << "who is known has no stranger's place any more";
  EXPECT_LT(table.CloseSilent(start + absl::Seconds(4)), start + absl::Seconds(5));
  char byte;
  EXPECT_EQ(recv(silent.theirs.get(), &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_LT(table.CloseSilent(start + absl::Seconds(5)), start + absl::Seconds(6));
  EXPECT_EQ(recv(silent.theirs.get(), &byte, 1, MSG_DONTWAIT), 0);
  third.Reset();
  EXPECT_EQ(table.CloseSilent(start + absl::Seconds(7)), absl::InfiniteFuture());
  EXPECT_EQ(recv(known.theirs.get(), &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(recv(gone.theirs.get(), &byte, 1, MSG_DONTWAIT), 0);
  table.Sweep();
  EXPECT_EQ(admission.open(), 1u) << "the first until it is closed";
}

// Connections of clients of which nobody knows what they are for.
class ConnectionStrangersTest : public ::testing::Test {
 protected:
  struct Connection {
    Pair pair;
    UniqueFd grpc;
    bool Open() const {
      char byte;
      return recv(pair.theirs.get(), &byte, 1, MSG_DONTWAIT) == -1;
    }
  };
  std::shared_ptr<Connection> Come(const Credentials& who = kAlice) {
    auto connection = std::make_shared<Connection>();
    absl::StatusOr<Admission::Pass> pass = admission_.Admit({"uid 1000"}, start_);
    EXPECT_THAT(pass, Is("OK"));
    if (!pass.ok()) return connection;
    connection->grpc.Reset(*table_.Admit(std::move(connection->pair.ours), who, *std::move(pass),
                                         start_ + Seconds(30)));
    return connection;
  }
  static absl::Duration Seconds(int count) { return absl::Seconds(count); }

  const absl::Time start_ = absl::UnixEpoch();
  Admission admission_{{"a test", 64, 2, 1000, 1000}};
  ConnectionTable table_{ConnectionTable::Of::kClients};
};

TEST_F(ConnectionStrangersTest, TheOldestGivesWayAndWhoIsKnownDoesNot) {
  const auto oldest = Come(kAlice), known = Come(kBob);
  table_.OnSessions(kBob, 1);
  EXPECT_EQ(admission_.open(), 2u) << "who is known keeps its place";
  const auto third = Come(kAlice), fourth = Come(kAlice);
  EXPECT_FALSE(oldest->Open());
  EXPECT_FALSE(third->Open());
  EXPECT_TRUE(known->Open());
  EXPECT_TRUE(fourth->Open());
  EXPECT_EQ(admission_.open(), 4u) << "until gRPC has closed them";
  for (const auto& left : {oldest, third}) left->grpc.Reset();
  table_.Sweep();
  EXPECT_EQ(admission_.open(), 2u);
  table_.OnSessions(kBob, -1);
  const auto fifth = Come(kAlice);
  EXPECT_FALSE(known->Open());
  EXPECT_TRUE(fourth->Open());
}

// libferry makes one for each, and may not use it for long.
TEST_F(ConnectionStrangersTest, AProcessThatHasSessionsIsKnownByTwoConnectionsForEach) {
  table_.OnSessions(kAlice, 1);
  const auto first = Come(kAlice), second = Come(kAlice);
  EXPECT_FALSE(admission_.Admit({"uid 1000"}, start_).ok()) << "both stay";
  EXPECT_EQ(table_.CloseSilent(start_ + Seconds(30)), absl::InfiniteFuture());
  EXPECT_TRUE(first->Open() && second->Open()) << "though nothing is called on them";
  first->grpc.Reset();  // without a word
  table_.Sweep();
  const auto third = Come(kAlice);
  EXPECT_TRUE(second->Open() && third->Open());
  EXPECT_FALSE(admission_.Admit({"uid 1000"}, start_).ok());
  table_.OnSessions(kAlice, -1);
  const auto fourth = Come(kAlice);
  EXPECT_FALSE(second->Open());
  EXPECT_TRUE(third->Open());
}

TEST_F(ConnectionStrangersTest, OnWhichNothingIsCalledAreShutDownInTime) {
  const auto silent = Come(), watch = Come();
  table_.Called(GrpcPeer(watch->grpc.get()));
  EXPECT_LT(table_.CloseSilent(start_ + Seconds(29)), start_ + Seconds(31));
  EXPECT_TRUE(silent->Open());
  EXPECT_EQ(table_.CloseSilent(start_ + Seconds(30)), absl::InfiniteFuture());
  EXPECT_FALSE(silent->Open());
  EXPECT_TRUE(watch->Open());
  const auto third = Come();
  EXPECT_TRUE(watch->Open()) << "the silent one is the oldest";
  const auto fourth = Come();
  EXPECT_FALSE(watch->Open()) << "its process has no session";
}

// gRPC has closed it, and its number is another's.
TEST_F(ConnectionStrangersTest, NobodyElseIsShutDown) {
  const auto gone = Come(), second = Come();
  Pair other;
  ASSERT_EQ(dup2(other.ours.get(), gone->grpc.get()), gone->grpc.get());
  const auto third = Come();
  char byte;
  EXPECT_EQ(recv(other.theirs.get(), &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_TRUE(second->Open());
}

TEST(ConnectionTable, NumbersAreNotDealtAgainAtOnce) {
  ConnectionTable table(ConnectionTable::Of::kClients);
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
