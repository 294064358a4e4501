// SPDX-License-Identifier: Apache-2.0
// Two daemons and two clients of four different users. As root only: becoming others takes that.
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "tests/support/fixtures.h"
#include "tests/support/other_user.h"
#include "tests/support/raw_socket.h"

namespace ferry::testing {
namespace {

using ::testing::HasSubstr;

constexpr uid_t kDaemons[2] = {61001, 61002};
constexpr uid_t kClients[2] = {61003, 61004};

class UsersTest : public ClusterTest {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can become other users";
  }
  void StartAsUsers(std::vector<uint32_t> trusted, bool secret = false) {
    ClusterOptions options;
    options.uids = {kDaemons[0], kDaemons[1]};
    options.trusted_uids = std::move(trusted);
    options.secret = secret;
    Start(options);
  }
  // From the first client to the second, under one domain, since without a name each uid has its
  // own.
  void Move(int route) {
    constexpr uint64_t kBytes = 3 * kMiB;
    ClientProcess source(node(0).client_dir(), "source", kClients[0]);
    ClientProcess destination(node(1).client_dir(), "destination", kClients[1]);
    ASSERT_EQ(source.Tell(absl::StrCat("arena 0 ", kBytes)), "OK 0");
    ASSERT_EQ(destination.Tell(absl::StrCat("arena 2 ", kBytes)), "OK 0");
    ASSERT_EQ(source.Tell(absl::StrCat("fill 0 0 ", kBytes, " 6")), "OK");
    const std::string what = absl::StrCat(" k 0 0 ", kBytes, " domain=job route=", route);
    ASSERT_EQ(source.Tell("send 0 2" + what), "OK 0");
    ASSERT_EQ(destination.Tell("receive 2 0" + what), "OK 0");
    EXPECT_EQ(source.Tell("wait 0 20000"), "OK");
    EXPECT_EQ(destination.Tell("wait 0 20000"), "OK");
    EXPECT_EQ(destination.Tell(absl::StrCat("check 0 0 ", kBytes, " 6")), "OK");
    const admin::v1::ListSessionsResponse sessions = node(0).admin().Sessions();
    ASSERT_EQ(sessions.sessions_size(), 1);
    EXPECT_EQ(sessions.sessions(0).uid(), kClients[0]);
    EXPECT_EQ(sessions.sessions(0).pid(), source.pid());
    EXPECT_EQ(source.Finish(), std::optional<int>(0));
    EXPECT_EQ(destination.Finish(), std::optional<int>(0));
  }
};

TEST_F(UsersTest, MappedWhenTheDaemonsTrustEachOther) {
  StartAsUsers({kDaemons[0], kDaemons[1]});
  Move(FERRY_ROUTE_MAPPED);
  EXPECT_EQ(node(0).admin().Explain(0, 2).chosen(), v1::ROUTE_MAPPED);
}

// Each knows that the other one is who it says, by their secret, and maps nothing of its all the
// same.
TEST_F(UsersTest, TcpWhenTheyDoNot) {
  StartAsUsers({}, /*secret=*/true);
  Move(FERRY_ROUTE_TCP);
  const admin::v1::ExplainRouteResponse explained = node(0).admin().Explain(0, 2);
  EXPECT_EQ(explained.chosen(), v1::ROUTE_TCP);
  EXPECT_FALSE(explained.options(1).available());
  EXPECT_THAT(explained.options(1).reason(), HasSubstr("peer.uids"));
  Move(FERRY_ROUTE_ANY);
}

// Clients of different users meet only by a common name.
TEST_F(UsersTest, WithoutADomainUsersDoNotMeet) {
  StartAsUsers({kDaemons[0], kDaemons[1]});
  ClientProcess source(node(0).client_dir(), "source", kClients[0]);
  ClientProcess destination(node(1).client_dir(), "destination", kClients[1]);
  ASSERT_EQ(source.Tell("arena 0 4096"), "OK 0");
  ASSERT_EQ(destination.Tell("arena 2 4096"), "OK 0");
  ASSERT_EQ(source.Tell("send 0 2 k 0 0 4096"), "OK 0");
  ASSERT_EQ(destination.Tell("receive 2 0 k 0 0 4096 deadline_ms=300"), "OK 0");
  EXPECT_THAT(destination.Tell("wait 0 10000"),
              ::testing::StartsWith("DEADLINE_EXCEEDED/WAITING_FOR_PEER"));
  EXPECT_EQ(source.Tell("over 0"), "OK 0");
}

TEST_F(UsersTest, SocketsAreForWhomTheConfigurationSays) {
  ClusterOptions options;
  options.nodes = 1;
  options.more = absl::StrCat("sockets: { client: { group: ", kClients[0],
                              ", mode: 0660 }, admin: { owner: ", kClients[1],
                              ", group: ", kDaemons[0], ", mode: 0600 } }\n");
  Start(options);
  ClientProcess attached(node(0).client_dir(), "attached", kClients[0]);
  EXPECT_EQ(attached.Tell("arena 0 4096"), "OK 0");
  EXPECT_EQ(attached.Finish(), std::optional<int>(0));
  const auto status_of = [&](const char* command, uid_t user) {
    SpawnOptions spawn;
    spawn.arguments = {FerryctlProgram(), "--runtime-dir", node(0).runtime_dir(), command};
    spawn.output = "/dev/null";
    spawn.uid = user;
    return Process(spawn).Wait();
  };
  EXPECT_EQ(status_of("status", kClients[1]), std::optional<int>(0));
  for (const uid_t other : {kClients[0], kDaemons[0]}) {
    EXPECT_EQ(status_of("status", other), std::optional<int>(5)) << other;
  }
  // The operator is no client.
  const std::string attach = node(0).client_dir() + "/attach.sock";
  AsUser(kClients[1], [&] { EXPECT_FALSE(RawSocket(attach, SOCK_SEQPACKET).connected()); });
}

}  // namespace
}  // namespace ferry::testing
