// SPDX-License-Identifier: Apache-2.0
// A socket that blocks whoever closes it last. One thread.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <vector>

#include "base/fd.h"

namespace ferry::testing {

// close() of `fd` blocks until `reader` is closed.
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

}  // namespace ferry::testing
