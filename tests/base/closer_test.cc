// SPDX-License-Identifier: Apache-2.0
#include "base/closer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include <atomic>
#include <string>
#include <vector>

namespace ferry {
namespace {

template <typename Condition>
bool Eventually(Condition condition) {
  for (int i = 0; i < 30'000; ++i) {
    if (condition()) return true;
    poll(nullptr, 0, 1);
  }
  return false;
}

// A pipe whose other end tells when this one was closed.
struct Watched {
  Watched() {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    watch.Reset(ends[0]);
    fd.Reset(ends[1]);
  }
  bool Closed() const {
    pollfd state{watch.get(), 0, 0};
    return poll(&state, 1, 0) == 1 && (state.revents & POLLHUP) != 0;
  }
  UniqueFd watch, fd;
};

struct Connected {
  explicit Connected(const std::string& said = "") {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    fd.Reset(ends[0]);
    const UniqueFd other(ends[1]);
    EXPECT_EQ(send(other.get(), said.data(), said.size(), 0), static_cast<ssize_t>(said.size()));
  }
  UniqueFd fd;
};

void SendFd(int socket, int fd) {
  char byte = 'x';
  iovec part{&byte, 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(header), &fd, sizeof(int));
  EXPECT_EQ(sendmsg(socket, &message, 0), 1);
}

// A socket whose close() waits until `reader` is closed.
struct Lingering {
  Lingering() {
    const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const to = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener.get(), to, size), 0);
    EXPECT_EQ(listen(listener.get(), 1), 0);
    EXPECT_EQ(getsockname(listener.get(), to, &size), 0);
    fd.Reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(fd.get(), to, size), 0);
    reader.Reset(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::vector<char> bytes(1 << 16);
    while (send(fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
    }
    const linger wait{1, 3600};
    EXPECT_EQ(setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof(wait)), 0);
  }
  UniqueFd fd, reader;
};

// Of all but sockets: a file of FUSE is as slow as whoever serves it.
std::atomic<bool> gate_open = false;
void CloseOnceOpen(UniqueFd fd) {
  while (!gate_open) poll(nullptr, 0, 1);
  fd.Reset();
}
Closer& Gated() {
  static Closer* const gated = new Closer(CloseOnceOpen);
  gate_open = false;
  return *gated;
}
UniqueFd Plain() { return UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

// Ends when `closer` has closed all of it.
void OpenGate(Closer& closer) {
  gate_open = true;
  EXPECT_TRUE(Eventually([&] { return closer.waiting() == 0; }));
}

TEST(Closer, AClosingThatWaitsHoldsUpItsOwnersAlone) {
  Closer& gated = Gated();
  gated.Close(1, Plain());
  gated.Close(2, Plain());
  std::atomic<bool> own = false, socket = false;
  gated.Close(1, Plain(), [&] { own = true; });
  gated.Close(1, std::move(Connected().fd), [&] { socket = true; });
  EXPECT_EQ(gated.waiting(), 4u);
  EXPECT_FALSE(own || socket);
  OpenGate(gated);
  EXPECT_TRUE(own && socket);
}

TEST(Closer, AnOwnerOfWhomTooManyWaitIsClogged) {
  Closer& gated = Gated();
  for (size_t i = 0; i <= Closer::kMost; ++i) gated.Close(1, Plain());
  EXPECT_TRUE(Eventually([&] { return gated.Clogged(1); }));
  EXPECT_FALSE(gated.Clogged(2));
  OpenGate(gated);
  EXPECT_FALSE(gated.Clogged(1));
}

// So many threads at most are one user's, and the others' close.
TEST(Closer, OwnersTakeTurns) {
  static std::atomic<int> of_others = 0;
  static Closer* const closer = new Closer([](UniqueFd fd) {
    char name;
    // Who has written is somebody else.
    if (recv(fd.get(), &name, 1, MSG_DONTWAIT) == 1) ++of_others;
    while (!gate_open && of_others < 3) poll(nullptr, 0, 1);
  });
  gate_open = false;
  for (int i = 0; i < 200; ++i) closer->Close(1, std::move(Connected().fd));
  for (uid_t uid = 2; uid < 5; ++uid) {
    Connected other("x");
    closer->Close(uid, std::move(other.fd));
  }
  EXPECT_TRUE(Eventually([&] { return of_others == 3; }));
  OpenGate(*closer);
}

// Without an alarm each of these waits for an hour.
TEST(Closer, SocketsThatLingerAreClosedAtOnce) {
  Closer& closer = Closer::Get();
  std::vector<Lingering> lingering(40);
  std::vector<UniqueFd> readers;
  for (Lingering& one : lingering) {
    readers.push_back(std::move(one.reader));
    closer.Close(1, std::move(one.fd));
  }
  Watched other;
  closer.Close(2, std::move(other.fd));
  EXPECT_TRUE(Eventually([&] { return other.Closed() && closer.waiting() == 0; }));
}

TEST(Closer, AndSoIsWhatIsInTheQueueOfOne) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  UniqueFd ours(ends[0]), theirs(ends[1]);
  std::vector<UniqueFd> readers;
  for (int i = 0; i < 4; ++i) {
    Lingering one;
    SendFd(theirs.get(), one.fd.get());
    readers.push_back(std::move(one.reader));
  }
  Closer::Get().Close(1, std::move(ours));
  EXPECT_TRUE(Eventually([&] { return Closer::Get().waiting() == 0; }));
}

TEST(ReceivedFds, WhatIsNotTakenIsClosedElsewhere) {
  Watched taken, left;
  UniqueFd kept;
  {
    ReceivedFds fds(1);
    fds.Add(std::move(taken.fd));
    fds.Add(std::move(left.fd));
    ReceivedFds moved = std::move(fds);
    EXPECT_EQ(moved.size(), 2u);
    kept = std::move(moved[0]);
  }
  EXPECT_TRUE(Eventually([&] { return left.Closed(); }));
  EXPECT_FALSE(taken.Closed());
}

}  // namespace
}  // namespace ferry
