// SPDX-License-Identifier: Apache-2.0
#include "daemon/door.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/daemon/mailbox.h"
#include "tests/daemon/sockets.h"
#include "tests/daemon/support.h"

namespace ferry {
namespace {

using testing::ConnectUnix;
using testing::Directory;
using testing::Mailbox;
using testing::ReceivedPacket;
using testing::ReceivePacket;
using testing::SendPacket;
using testing::SocketPair;

// A door whose packets and closings the test waits for.
struct DoorRig {
  Mailbox<Door::Packet> packets;
  Mailbox<Door::ConnectionId> closed;
  Door door;

  Door::ConnectionId Add(UniqueFd socket, UniqueFd process = UniqueFd()) {
    return door.AddPackets(
        std::move(socket), std::move(process),
        [this](Door::ConnectionId, Door::Packet packet) { packets.Put(std::move(packet)); },
        [this](Door::ConnectionId id) { closed.Put(id); });
  }
};

TEST(Door, PacketsArriveWholeAndInOrder) {
  DoorRig rig;
  SocketPair pair;
  rig.Add(std::move(pair.daemon));
  for (int i = 0; i < 100; ++i)
    ASSERT_TRUE(SendPacket(pair.client.get(), absl::StrCat("packet ", i)));
  for (int i = 0; i < 100; ++i) {
    const auto packet = rig.packets.Take();
    ASSERT_TRUE(packet.has_value());
    EXPECT_EQ(packet->bytes, absl::StrCat("packet ", i));
    EXPECT_TRUE(packet->fds.empty());
    EXPECT_FALSE(packet->truncated);
  }
}

TEST(Door, DescriptorsTravelBothWaysAndStayTheSenders) {
  DoorRig rig;
  SocketPair pair;
  const Door::ConnectionId id = rig.Add(std::move(pair.daemon));
  const UniqueFd one(eventfd(1, EFD_CLOEXEC)), two(eventfd(2, EFD_CLOEXEC));
  const auto value = [](const UniqueFd& fd) {
    uint64_t value = 0;
    EXPECT_EQ(read(fd.get(), &value, sizeof(value)), static_cast<ssize_t>(sizeof(value)));
    return value;
  };
  ASSERT_TRUE(SendPacket(pair.client.get(), "in", {one.get(), two.get()}));
  const auto packet = rig.packets.Take();
  ASSERT_TRUE(packet.has_value());
  ASSERT_EQ(packet->fds.size(), 2u);
  EXPECT_FALSE(packet->truncated);
  EXPECT_NE(fcntl(packet->fds[0].get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(value(packet->fds[0]), 1u);
  EXPECT_EQ(value(packet->fds[1]), 2u);

  ASSERT_EQ(eventfd_write(one.get(), 7), 0);
  ASSERT_TRUE(rig.door.Send(id, "out", {one.get()}));
  const ReceivedPacket received = ReceivePacket(pair.client.get());
  EXPECT_EQ(received.bytes, "out");
  ASSERT_EQ(received.fds.size(), 1u);
  EXPECT_EQ(value(received.fds[0]), 7u);
  EXPECT_GE(fcntl(one.get(), F_GETFD), 0);
}

TEST(Door, APacketThatIsTooLongIsMarked) {
  DoorRig rig;
  SocketPair pair;
  rig.Add(std::move(pair.daemon));
  ASSERT_TRUE(SendPacket(pair.client.get(), std::string(Door::kMaxPacket, 'x')));
  auto packet = rig.packets.Take();
  ASSERT_TRUE(packet.has_value());
  EXPECT_FALSE(packet->truncated);
  EXPECT_EQ(packet->bytes, std::string(Door::kMaxPacket, 'x'));
  ASSERT_TRUE(SendPacket(pair.client.get(), std::string(Door::kMaxPacket + 1, 'x')));
  packet = rig.packets.Take();
  ASSERT_TRUE(packet.has_value());
  EXPECT_TRUE(packet->truncated);
}

TEST(Door, APacketWithTooManyDescriptorsIsMarked) {
  DoorRig rig;
  SocketPair pair;
  rig.Add(std::move(pair.daemon));
  const UniqueFd fd(eventfd(0, EFD_CLOEXEC));
  for (const size_t count : {size_t{Door::kMaxFds + 1}, size_t{253}}) {  // the kernel sends no more
    ASSERT_TRUE(SendPacket(pair.client.get(), "x", std::vector<int>(count, fd.get())));
    const auto packet = rig.packets.Take();
    ASSERT_TRUE(packet.has_value());
    EXPECT_TRUE(packet->truncated) << count;
  }
}

TEST(Door, WhatHadArrivedBeforeAConnectionWasFinishedIsRead) {
  DoorRig rig;
  SocketPair pair;
  // The door is kept busy until everything has arrived.
  Mailbox<bool> busy, go_on;
  SocketPair first;
  rig.door.AddPackets(
      std::move(first.daemon), UniqueFd(),
      [&](Door::ConnectionId, Door::Packet) {
        busy.Put(true);
        go_on.Take();
      },
      [](Door::ConnectionId) {});
  ASSERT_TRUE(SendPacket(first.client.get(), "x"));
  ASSERT_TRUE(busy.Take().has_value());
  const Door::ConnectionId id = rig.Add(std::move(pair.daemon));
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(SendPacket(pair.client.get(), absl::StrCat(i)));
  rig.door.Finish(id);
  EXPECT_FALSE(SendPacket(pair.client.get(), "too late"));
  EXPECT_EQ(ReceivePacket(pair.client.get()).size, 0);
  go_on.Put(true);
  EXPECT_EQ(rig.closed.Take(), id);
  ASSERT_EQ(rig.packets.size(), 40u);
  for (int i = 0; i < 40; ++i) EXPECT_EQ(rig.packets.Take()->bytes, absl::StrCat(i));
  rig.door.Finish(id);  // it is gone: nothing
}

TEST(Door, AClosedConnectionIsToldOnce) {
  DoorRig rig;
  SocketPair pair;
  const Door::ConnectionId id = rig.Add(std::move(pair.daemon));
  ASSERT_TRUE(SendPacket(pair.client.get(), "last words"));
  pair.client.Reset();
  const auto packet = rig.packets.Take();  // what was said before is heard
  ASSERT_TRUE(packet.has_value());
  EXPECT_EQ(packet->bytes, "last words");
  EXPECT_EQ(rig.closed.Take(), id);
  EXPECT_EQ(rig.door.connections(), 0u);
  EXPECT_FALSE(rig.door.Send(id, "x"));
  rig.door.Close(id);  // means nothing any more
  rig.door.Stop();
  EXPECT_EQ(rig.closed.size(), 0u);
}

TEST(Door, OnesOwnCloseIsSeenByTheClientAndNotToldBack) {
  DoorRig rig;
  SocketPair pair;
  const Door::ConnectionId id = rig.Add(std::move(pair.daemon));
  ASSERT_TRUE(rig.door.Send(id, "refused"));
  rig.door.Close(id);
  EXPECT_EQ(ReceivePacket(pair.client.get()).bytes, "refused");
  EXPECT_EQ(ReceivePacket(pair.client.get()).size, 0);
  EXPECT_FALSE(rig.door.Send(id, "x"));
  rig.door.Stop();
  EXPECT_EQ(rig.closed.size(), 0u);
}

TEST(Door, AHandlerMayCloseItsConnectionAndGetsNoMoreOfIt) {
  Mailbox<std::string> seen;
  SocketPair pair, other;
  for (const char* text : {"one", "two", "three"}) ASSERT_TRUE(SendPacket(pair.client.get(), text));
  Door door;
  door.AddPackets(
      std::move(pair.daemon), UniqueFd(),
      [&](Door::ConnectionId id, Door::Packet packet) {
        door.Close(id);
        seen.Put(packet.bytes);
      },
      [&](Door::ConnectionId) { seen.Put("closed"); });
  // Closed; or reset, since two packets were never read.
  EXPECT_LE(ReceivePacket(pair.client.get()).size, 0);
  // The door has turned to somebody else since.
  door.AddPackets(
      std::move(other.daemon), UniqueFd(),
      [&](Door::ConnectionId, Door::Packet) { seen.Put("other"); }, [](Door::ConnectionId) {});
  ASSERT_TRUE(SendPacket(other.client.get(), "x"));
  EXPECT_EQ(seen.Take(), "one");
  EXPECT_EQ(seen.Take(), "other");
}

TEST(Door, TheDeathOfTheProcessIsSeenThoughItsSocketLivesOn) {
  DoorRig rig;
  SocketPair pair;
  int gate[2];
  ASSERT_EQ(pipe2(gate, O_CLOEXEC), 0);
  const UniqueFd read_end(gate[0]);
  UniqueFd write_end(gate[1]);
  const pid_t child = fork();
  if (child == 0) {
    close(gate[1]);
    char byte;
    _exit(static_cast<int>(read(gate[0], &byte, 1)));
  }
  ASSERT_GT(child, 0);
  UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
  ASSERT_TRUE(process.valid());
  const Door::ConnectionId id = rig.Add(std::move(pair.daemon), std::move(process));
  ASSERT_TRUE(SendPacket(pair.client.get(), "alive"));
  EXPECT_TRUE(rig.packets.Take().has_value());
  EXPECT_EQ(rig.closed.size(), 0u);
  write_end.Reset();  // lets it go
  EXPECT_EQ(rig.closed.Take(), id);
  EXPECT_EQ(ReceivePacket(pair.client.get()).size, 0);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

TEST(Door, AClientThatDoesNotReadGetsNoMoreAndHoldsNobodyUp) {
  DoorRig rig;
  SocketPair pair, other;
  const Door::ConnectionId id = rig.Add(std::move(pair.daemon));
  const Door::ConnectionId reader = rig.Add(std::move(other.daemon));
  int taken = 0;
  while (taken < 100'000 && rig.door.Send(id, std::string(4096, 'x'))) ++taken;
  EXPECT_GT(taken, 0);
  EXPECT_LT(taken, 100'000);
  EXPECT_EQ(rig.door.connections(), 2u);  // it is the caller who closes it
  EXPECT_TRUE(rig.door.Send(reader, "y"));
  EXPECT_EQ(ReceivePacket(other.client.get()).bytes, "y");
}

// Answers are kept for it in their order, and nothing more is read from it until it took them: else
// they would pass the bound.
TEST(Door, AClientThatReadsLateGetsAllAndIsNotHeardMeanwhile) {
  constexpr int kRequests = 2000;
  const std::string filling(4096, 'x');
  SocketPair pair, other;
  Mailbox<bool> refused;
  Door door;
  const auto answer = [&](Door::ConnectionId id, Door::Packet packet) {
    if (!door.Send(id, absl::StrCat(packet.bytes, filling))) refused.Put(true);
  };
  door.AddPackets(std::move(pair.daemon), UniqueFd(), answer, [](Door::ConnectionId) {});
  door.AddPackets(std::move(other.daemon), UniqueFd(), answer, [](Door::ConnectionId) {});
  std::thread asker([&] {
    for (int i = 0; i < kRequests; ++i) ASSERT_TRUE(SendPacket(pair.client.get(), absl::StrCat(i)));
  });
  ASSERT_TRUE(SendPacket(other.client.get(), "y"));
  EXPECT_EQ(ReceivePacket(other.client.get()).bytes, absl::StrCat("y", filling));
  for (int i = 0; i < kRequests; ++i) {
    ASSERT_EQ(ReceivePacket(pair.client.get()).bytes, absl::StrCat(i, filling));
  }
  asker.join();
  EXPECT_EQ(refused.size(), 0u);
}

TEST(Door, AnswersThatNobodyReadGoWithTheirClient) {
  DoorRig rig;
  SocketPair pair;
  const Door::ConnectionId id = rig.Add(std::move(pair.daemon));
  while (rig.door.Send(id, std::string(4096, 'x'))) {
  }
  pair.client.Reset();
  EXPECT_EQ(rig.closed.Take(), id);
  EXPECT_EQ(rig.door.connections(), 0u);
}

TEST(Door, AStreamIsReadByItsHandler) {
  Mailbox<std::string> seen;
  SocketPair pair(SOCK_STREAM);
  Door door;
  door.AddStream(std::move(pair.daemon), absl::Hours(1), [&](Door::ConnectionId id, int fd) {
    char buffer[16];
    const ssize_t size = read(fd, buffer, sizeof(buffer));
    if (size <= 0) door.Close(id);
    seen.Put(std::string(buffer, size > 0 ? static_cast<size_t>(size) : 0));
  });
  ASSERT_EQ(write(pair.client.get(), "GET", 3), 3);
  EXPECT_EQ(seen.Take(), "GET");
  pair.client.Reset();
  EXPECT_EQ(seen.Take(), "");
  EXPECT_EQ(door.connections(), 0u);
}

TEST(Door, AStreamThatSaysNothingIsDroppedInTheEnd) {
  SocketPair pair(SOCK_STREAM);
  Door door;
  door.AddStream(std::move(pair.daemon), absl::Milliseconds(1), [](Door::ConnectionId, int) {});
  char byte;
  EXPECT_EQ(read(pair.client.get(), &byte, 1), 0);  // waits for the end
  EXPECT_EQ(door.connections(), 0u);
}

TEST(Door, AcceptedConnectionsKnowWhoIsThere) {
  Directory directory;
  Mailbox<UniqueFd> accepted;
  Door door;
  auto listener = ListenUnix(directory / "s", SOCK_SEQPACKET, 0600, Descriptors::kTaken);
  ASSERT_TRUE(listener.ok()) << listener.status();
  door.Listen("test", *std::move(listener),
              [&](UniqueFd socket, Admission::Pass) { accepted.Put(std::move(socket)); });
  const UniqueFd client = ConnectUnix(directory / "s", SOCK_SEQPACKET);
  ASSERT_TRUE(client.valid());
  const auto socket = accepted.Take();
  ASSERT_TRUE(socket.has_value());
  const auto credentials = PeerCredentials(socket->get());
  ASSERT_TRUE(credentials.ok());
  EXPECT_EQ(credentials->pid, getpid());
  EXPECT_EQ(credentials->uid, geteuid());
  EXPECT_EQ(credentials->gid, getegid());
  EXPECT_TRUE(PeerPidFd(socket->get(), credentials->pid).valid());
}

// A door that is full, and of whose places one is being left: that has not been closed yet.
struct FullDoor {
  Directory directory;
  Admission admission{{"test", 8, 8, 1e6, 1e6}};
  Mailbox<Admission::Pass> passes;
  Mailbox<Door::Packet> packets;
  Door door;
  std::vector<UniqueFd> clients;
  std::vector<Admission::Pass> held;

  FullDoor() {
    auto listener = ListenUnix(directory / "s", SOCK_SEQPACKET, 0600, Descriptors::kTaken);
    EXPECT_TRUE(listener.ok()) << listener.status();
    door.Listen(
        "test", *std::move(listener),
        [this](UniqueFd socket, Admission::Pass pass) {
          pass.MayGiveWay([] {});
          door.AddPackets(
              std::move(socket), UniqueFd(),
              [this](Door::ConnectionId, Door::Packet packet) { packets.Put(std::move(packet)); },
              [](Door::ConnectionId) {});
          passes.Put(std::move(pass));
        },
        &admission);
    for (int i = 0; i < 8; ++i) Come();
    for (int i = 0; i < 8; ++i) held.push_back(*passes.Take());
  }
  void Come() { clients.push_back(ConnectUnix(directory / "s", SOCK_SEQPACKET)); }
  // What the door did with those who came is done when it has heard who came before, twice.
  void Settle() {
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(SendPacket(clients.front().get(), "here"));
      EXPECT_TRUE(packets.Take().has_value());
    }
  }
};

TEST(Door, WhoComesWhileAPlaceIsBeingLeftGetsIt) {
  FullDoor full;
  full.Come();
  full.Settle();
  EXPECT_EQ(full.admission.refused(), 0u);
  EXPECT_EQ(full.passes.size(), 0u);
  full.held.front() = Admission::Pass();  // the oldest, which was asked to leave
  EXPECT_TRUE(full.passes.Take().has_value());
  EXPECT_EQ(full.admission.refused(), 0u);
}

TEST(Door, WhoComesWhileAPlaceIsLeftTooSlowlyIsRefused) {
  FullDoor full;
  full.Come();
  EXPECT_EQ(ReceivePacket(full.clients.back().get()).size, 0);
  EXPECT_EQ(full.admission.refused(), 1u);
}

// In a process of its own, because it takes all descriptors. 0 if all was well, else the line.
int AcceptWithoutDescriptors() {
#define REQUIRE(condition) \
  if (!(condition)) return __LINE__ % 256
  Directory directory;
  auto listener = ListenUnix(directory / "s", SOCK_SEQPACKET, 0600, Descriptors::kTaken);
  REQUIRE(listener.ok());
  Mailbox<UniqueFd> accepted;
  Door door;
  door.Listen("test", *std::move(listener),
              [&](UniqueFd socket, Admission::Pass) { accepted.Put(std::move(socket)); });
  UniqueFd clients[4];
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = directory / "s";
  memcpy(address.sun_path, path.data(), path.size());
  for (UniqueFd& client : clients) {
    client.Reset(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    testing::SetPatience(client.get());
  }
  const auto connect_one = [&](int i) {
    return connect(clients[i].get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  };
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const int first_free = dup(clients[0].get());
  close(first_free);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(first_free);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  // Each gets an answer instead of a hang: more than one, so the spare comes back.
  for (int i = 0; i < 3; ++i) {
    REQUIRE(connect_one(i));
    REQUIRE(ReceivePacket(clients[i].get()).size == 0);
  }
  REQUIRE(accepted.size() == 0);
  // The answer to the last is out before it is counted; the next accept comes after.
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  REQUIRE(connect_one(3));
  const auto socket = accepted.Take();
  REQUIRE(socket.has_value());
  REQUIRE(door.refused_for_fds() >= 3);
  REQUIRE(SendPacket(socket->get(), "served"));
  REQUIRE(ReceivePacket(clients[3].get()).bytes == "served");
  return 0;
#undef REQUIRE
}

TEST(Door, WithoutDescriptorsConnectionsAreRefusedAndLaterServedAgain) {
  const pid_t child = fork();
  if (child == 0) _exit(AcceptWithoutDescriptors());
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0) << "line % 256 of door_test.cc";
}

}  // namespace
}  // namespace ferry
