// SPDX-License-Identifier: Apache-2.0
// Daemons of one host in containers of their own: each has its runtime directory at the same path,
// and sees nothing of the other's. And hosts that cannot be told apart by their boot ids.
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/support/fixtures.h"
#include "tests/support/network_namespaces.h"

namespace ferry::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Runs "$@", a ferryd with `--config DIRECTORY.yaml`, where DIRECTORY is seen as `box` beside it.
constexpr char kInBox[] =
    "directory=${3%.yaml}; box=${directory%/*}/box; mkdir -p $directory $box;"
    "mount --bind $directory $box; export FERRY_NODE__RUNTIME_DIR=$box;";

class ContainerTest : public ClusterTest {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "mount namespaces need root";
  }
  // `first` is done in each daemon's mount namespace before it is run there.
  void StartInContainers(const std::string& first, ClusterOptions options) {
    for (int i = 0; i < options.nodes; ++i) {
      if (options.launchers.size() == static_cast<size_t>(i)) options.launchers.emplace_back();
      for (const std::string& word :
           {std::string("/usr/bin/unshare"), std::string("--mount"), std::string("--ipc"),
            std::string("sh"), std::string("-ec"), absl::StrCat(first, " exec \"$@\""),
            std::string("container")}) {
        options.launchers[static_cast<size_t>(i)].push_back(word);
      }
    }
    Start(options);
  }
  void ExpectTransfersByTcp() {
    End source = OpenEnd(0, kMiB), destination = OpenEnd(1, kMiB);
    for (const bool there : {true, false}) {
      ExpectTransfer(there ? source : destination, there ? destination : source, "k");
    }
    EXPECT_THAT(Ferryctl("route 0 2"), HasSubstr("tcp"));
  }
};

TEST_F(ContainerTest, DaemonsThatDoNotSeeEachOthersSocketsMoveBytesByTcp) {
  ClusterOptions options;
  options.secret = true;
  StartInContainers(kInBox, options);
  ExpectTransfersByTcp();
  for (size_t i = 0; i < 2; ++i) {
    const std::string routes = Ferryctl("route 0 2", 0, i);
    EXPECT_THAT(routes, HasSubstr("they are in containers of their own"));
    EXPECT_THAT(routes, Not(HasSubstr("peer.uids")));
  }
}

TEST_F(ContainerTest, WithNetworksOfTheirOwnToo) {
  std::string why;
  const auto hosts = NetworkNamespaces::Create(NetworkNamespaces::kOfTheKernel, &why);
  if (hosts == nullptr) GTEST_SKIP() << "no network namespaces: " << why;
  ClusterOptions options;
  for (size_t i = 0; i < 2; ++i) {
    options.hosts.push_back(hosts->address(i));
    options.launchers.push_back(hosts->launcher(i));
  }
  StartInContainers(kInBox, options);
  ExpectTransfersByTcp();
}

TEST_F(ContainerTest, WithoutASecretBothAreToldThatTheyNeedOne) {
  StartInContainers(kInBox, {});
  Session session = nodes().Open(0);
  Batch send = Must(session.Send(0, {Transfer(2, "k", {})}));
  for (size_t i = 0; i < 2; ++i) {
    std::string status;
    EXPECT_TRUE(Await([&] {
      status = Ferryctl("status", 0, i);
      return absl::StrContains(status, "they are in containers of their own") &&
             absl::StrContains(status, "peer.secret_file");
    })) << "node "
        << i << " says\n"
        << status;
    EXPECT_THAT(status, Not(HasSubstr("peer.uids")));
  }
}

TEST_F(ContainerTest, HostsWhoseBootIdsCannotBeRead) {
  ClusterOptions options;
  options.secret = true;
  StartInContainers(absl::StrCat(kInBox, "mount --bind /dev/null /proc/sys/kernel/random/boot_id;"),
                    options);
  ExpectTransfersByTcp();
}

// As two hosts have, but they are one: what could be shared is not looked for.
TEST_F(ContainerTest, BootIdsThatDiffer) {
  ClusterOptions options;
  options.secret = true;
  StartInContainers(absl::StrCat(kInBox,
                                 "echo $directory > $box/boot_id;"
                                 "mount --bind $box/boot_id /proc/sys/kernel/random/boot_id;"),
                    options);
  ExpectTransfersByTcp();
  EXPECT_THAT(Ferryctl("route 0 2"), HasSubstr("node-b is on another host"));
}

}  // namespace
}  // namespace ferry::testing
