// SPDX-License-Identifier: Apache-2.0
#include "base/closer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

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

TEST(Closer, AClosingThatWaitsHoldsUpItsOwnersAlone) {
  Closer& closer = Closer::Get();
  Lingering lingering[2];
  closer.Close(1, std::move(lingering[0].fd));
  closer.Close(2, std::move(lingering[1].fd));
  Watched own, others;
  closer.Close(1, std::move(own.fd));
  closer.Close(3, std::move(others.fd));
  EXPECT_TRUE(Eventually([&] { return others.Closed(); }));
  EXPECT_FALSE(own.Closed());
  lingering[0].reader.Reset();
  EXPECT_TRUE(Eventually([&] { return own.Closed(); }));
  lingering[1].reader.Reset();
  EXPECT_TRUE(Eventually([&] { return closer.waiting() == 0; }));
}

TEST(Closer, AnOwnerOfWhomTooManyWaitIsClogged) {
  Closer& closer = Closer::Get();
  Lingering lingering;
  closer.Close(1, std::move(lingering.fd));
  for (size_t i = 0; i <= Closer::kMost; ++i) {
    closer.Close(1, UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)));
  }
  EXPECT_TRUE(closer.Clogged(1));
  EXPECT_FALSE(closer.Clogged(2));
  lingering.reader.Reset();
  EXPECT_TRUE(Eventually([&] { return closer.waiting() == 0; }));
  EXPECT_FALSE(closer.Clogged(1));
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
