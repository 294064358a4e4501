// SPDX-License-Identifier: Apache-2.0
// ferryctl doctor, with real daemons.
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/fd.h"
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class DoctorTest : public ClusterTest {
 protected:
  void AwaitLink() {
    Ferryctl("route 0 2");
    ASSERT_TRUE(nodes().AwaitLink(0, 1));
  }
};

TEST_F(DoctorTest, OfANodeThatIsWell) {
  Start();
  AwaitLink();
  EXPECT_THAT(Ferryctl("doctor"),
              AllOf(HasSubstr("ok       daemon: node-a serves"), HasSubstr("peer node-b: up"),
                    HasSubstr("routes to node-b: mapped"), HasSubstr("\n0 wrong, ")));
  EXPECT_THAT(
      Ferryctl("doctor"),
      AllOf(
          HasSubstr(absl::StrCat("ok       peer.listen: 127.0.0.1:", nodes().port(0), " answers")),
          HasSubstr("ok       metrics.listen: not set: "),
          HasSubstr(absl::StrCat("ok       port of node-b: 127.0.0.1:", nodes().port(1),
                                 " is reached from here")),
          HasSubstr("ok       attach.sock: 0666 "), HasSubstr("gpus: no GPU: "),
          HasSubstr("ok       peer access: no GPU\n"), HasSubstr("ok       CUDA IPC: no GPU\n")));
  const auto findings = nlohmann::json::parse(Ferryctl("--json doctor"));
  EXPECT_GT(findings.size(), 8u);
  for (const auto& finding : findings) {
    EXPECT_NE(finding.at("severity"), "wrong") << finding.dump();
    EXPECT_FALSE(finding.at("check").get<std::string>().empty());
  }
}

TEST_F(DoctorTest, ALostPeerAndADaemonThatIsNotThereAreWrong) {
  Start();
  AwaitLink();
  node(1).Kill();
  ASSERT_TRUE(Await([&] { return absl::StrContains(Ferryctl("status"), " lost "); }));
  std::string said = Ferryctl("doctor", 8);
  EXPECT_THAT(said, HasSubstr("wrong    peer node-b: "));
  node(0).Kill();
  said = Ferryctl("doctor", 8);
  EXPECT_THAT(said, HasSubstr("no daemon listens there"));
  EXPECT_THAT(said, HasSubstr("wrong    daemon"));
}

TEST_F(DoctorTest, MemoryThatIsNotSharedThoughItCouldBeIsAWarning) {
  ClusterOptions options;
  options.secret = true;
  options.uids = {0, 54321};
  options.transfer = "order: [local, mapped, tcp]";
  if (geteuid() != 0) GTEST_SKIP() << "other uids need root";
  Start(options);
  AwaitLink();
  EXPECT_THAT(Ferryctl("doctor"), AllOf(HasSubstr("warning  routes to node-b: no mapped"),
                                        HasSubstr("peer.uids"), HasSubstr("\n0 wrong")));
}

// Where no daemon serves, the configuration says what one needs.
TEST_F(DoctorTest, APortThatIsTakenIsWrong) {
  cluster_ = std::make_unique<Cluster>(ClusterOptions());
  const std::string ask = absl::StrCat("doctor --config ", node(0).config_file());
  const std::string place = absl::StrCat("127.0.0.1:", nodes().port(0));
  EXPECT_THAT(Ferryctl(ask, 8), AllOf(HasSubstr(absl::StrCat(node(0).config_file(), " is good")),
                                      HasSubstr("peer.listen: " + place + " is free")));
  UniqueFd taken(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int one = 1;
  setsockopt(taken.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(nodes().port(0)));
  ASSERT_EQ(bind(taken.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(taken.get(), 1), 0);
  EXPECT_THAT(Ferryctl(ask, 8),
              HasSubstr(absl::StrCat("wrong    peer.listen: ", place,
                                     " is taken by another process\n         -> `ss -ltnp")));
  WriteFile(node(0).config_file(), "limits: { session_bites: 1 }\n");
  EXPECT_THAT(Ferryctl(ask, 8), AllOf(HasSubstr("wrong    configuration: "),
                                      HasSubstr("limits.session_bites: unknown key")));
}

TEST_F(DoctorTest, APeerThatCannotBeReachedIsWrong) {
  cluster_ = std::make_unique<Cluster>(ClusterOptions());
  ASSERT_TRUE(node(0).Start());
  EXPECT_THAT(Ferryctl("doctor", 8),
              HasSubstr(absl::StrCat("wrong    port of node-b: 127.0.0.1:", nodes().port(1),
                                     " is not reached from here: Connection refused\n         -> "
                                     "nothing listens there: is ferryd up on node-b")));
  ASSERT_TRUE(node(1).Start());
  EXPECT_THAT(Ferryctl("doctor"), HasSubstr("\n0 wrong"));
}

// Each daemon knows its own links alone, so those of others are asked of others.
TEST_F(DoctorTest, OtherNodesDaemonsAreAskedForTheLinksBetweenThem) {
  ClusterOptions options;
  options.nodes = 3;
  Start(options);
  const std::string ask =
      absl::StrCat("doctor ", node(1).runtime_dir(), " ", node(2).runtime_dir());
  Ferryctl("route 2 4", 0, 1);
  ASSERT_TRUE(nodes().AwaitLink(1, 2));
  EXPECT_THAT(Ferryctl(ask), HasSubstr("ok       links of others: up: node-b and node-c\n"));
  node(2).Kill();
  ASSERT_TRUE(Await([&] { return absl::StrContains(Ferryctl("status", 0, 1), " lost "); }));
  EXPECT_THAT(Ferryctl(ask, 8),
              AllOf(HasSubstr("wrong    link of node-b and node-c: node-b says lost: "),
                    HasSubstr(absl::StrCat("wrong    daemon at ", node(2).runtime_dir(), ": ")),
                    HasSubstr("no daemon listens there")));
}

TEST_F(DoctorTest, PermissionsThatKeepUsersOutOrLetThemInAreTold) {
  ClusterOptions options;
  options.nodes = 1;
  Start(options);
  ASSERT_EQ(chmod((node(0).client_dir() + "/client.sock").c_str(), 0600), 0);
  ASSERT_EQ(chmod((node(0).runtime_dir() + "/admin/admin.sock").c_str(), 0666), 0);
  ASSERT_EQ(chmod((node(0).runtime_dir() + "/admin").c_str(), 0755), 0);
  EXPECT_THAT(Ferryctl("doctor"),
              AllOf(HasSubstr("warning  client.sock: 0600 "), HasSubstr("no other user may attach"),
                    HasSubstr("warning  admin.sock: 0666 "),
                    HasSubstr("every user of this host may operate the daemon"),
                    HasSubstr("sockets.admin.mode, or SocketMode= of ferryd-admin.socket")));
  ASSERT_EQ(chmod(node(0).client_dir().c_str(), 0700), 0);
  EXPECT_THAT(
      Ferryctl("doctor", 8),
      AllOf(HasSubstr("wrong    attach.sock: 0666 "), HasSubstr(node(0).client_dir() + " is 0700 "),
            HasSubstr("-> chmod the directory"), Not(HasSubstr("wrong    client.sock"))));
}

TEST_F(DoctorTest, GpusWithoutPeerAccessAreAWarning) {
  ClusterOptions options;
  options.nodes = 1;
  options.gpus = 2;
  options.fake_cuda = "no_peer=1";
  Start(options);
  EXPECT_THAT(Ferryctl("doctor"),
              AllOf(HasSubstr("warning  peer access: none between GPUs 2 and 3: "),
                    HasSubstr("ok       CUDA IPC: memory of cudaMalloc can be handed over")));
}

}  // namespace
}  // namespace ferry::testing
