// SPDX-License-Identifier: Apache-2.0
// UCX's port obeys whoever reaches it, so that the configuration must say who does
// (transfer.ucx.open_to): what opens one is asked of the UCX that is here, not of its manual.
#include <dirent.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <memory>
#include <set>
#include <string>

#include "daemon/config/config.h"
#include "transfer/ucx/ucx_transport.h"
#include "transfer/ucx/ucx_worker.h"

namespace ferry {
namespace {

// This process's descriptors that take connections from the network.
std::set<int> Listening() {
  std::set<int> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir("/proc/self/fd"), closedir);
  while (const dirent* const entry = readdir(directory.get())) {
    const int fd = atoi(entry->d_name);
    int listens = 0;
    int domain = 0;
    socklen_t length = sizeof listens;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || listens == 0) continue;
    length = sizeof domain;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain != AF_UNIX) {
      found.insert(fd);
    }
  }
  return found;
}

// Whether a worker of these transports listens, as route `ucx` opens it.
bool Listens(const UcxApi& api, const std::string& tls) {
  const std::set<int> before = Listening();
  const auto worker = UcxWorker::Create(api, "net", {{"TLS", tls}, {"NET_DEVICES", "all"}});
  return worker.ok() && Listening() != before;
}

TEST(UcxListenTest, WhatOpensAPortIsKnownToDoSo) {
  const absl::StatusOr<const UcxApi*> api = LoadUcx();
  ASSERT_TRUE(api.ok()) << api.status();
  for (const char* tls : {"tcp", "all", "\\tcp", "sm,tcp", "self,\\tcp", "^sm", "^posix, tcp"}) {
    EXPECT_TRUE(Listens(**api, tls)) << tls << ": the look for ports must see one where one is";
    EXPECT_TRUE(NamesTcp(tls)) << tls;
  }
  // Whatever this version makes of them, what opens a port is known.
  for (const char* tls : {"self,tcp:aux",
                          "self,\\tcp:aux",
                          "self,all:aux",
                          "self,tcp:self",
                          "^tcp",
                          "^\\tcp",
                          "^sm,tcp",
                          "^tcp:aux",
                          "^t*",
                          "^all",
                          "^\\all",
                          "self,t*",
                          "self, tcp",
                          "self,TCP",
                          "self,*",
                          "tcp,^tcp",
                          "self,^tcp",
                          "self,^sm",
                          "sm",
                          "shm",
                          "mm",
                          "posix,sysv,cma,self",
                          "self",
                          "self,ib",
                          "rc,ud,dc,self",
                          "self,rc,ud:aux",
                          "self,cuda",
                          "self,net",
                          "self,any",
                          "self,default",
                          "self,gga",
                          "self,srd"}) {
    EXPECT_TRUE(NamesTcp(tls) || !Listens(**api, tls)) << tls;
  }
}

// The environment of the daemon's process, which UCX reads, adds none.
TEST(UcxListenTest, TheEnvironmentOpensNoPort) {
  const absl::StatusOr<const UcxApi*> api = LoadUcx();
  ASSERT_TRUE(api.ok()) << api.status();
  ASSERT_EQ(setenv("UCX_TLS", "all", /*overwrite=*/1), 0);
  EXPECT_FALSE(Listens(**api, "self,posix"));
  ASSERT_EQ(unsetenv("UCX_TLS"), 0);
}

}  // namespace
}  // namespace ferry
