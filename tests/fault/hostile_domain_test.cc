// SPDX-License-Identifier: Apache-2.0
// Clients that say another user's domain. As root only: becoming others takes that.
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr uid_t kVictim = 61003, kThief = 61004;

class HostileDomainTest : public ClusterTest {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can become other users";
  }
};

// The victim gives no domain, so that it meets only its own processes. The thief says what the
// daemon once called that.
TEST_F(HostileDomainTest, AnotherUsersDefaultDomainCannotBeSaid) {
  Start();
  for (const size_t where : {size_t{0}, size_t{1}}) {  // beside the victim, and at its peer
    SCOPED_TRACE(where);
    const uint64_t to = nodes().Device(where);
    ClientProcess victim(node(0).client_dir(), "victim", kVictim);
    ClientProcess thief(node(where).client_dir(), "thief", kThief);
    ASSERT_EQ(victim.Tell("arena 0 4096"), "OK 0");
    ASSERT_EQ(thief.Tell(absl::StrCat("arena ", to, " 4096")), "OK 0");
    ASSERT_EQ(victim.Tell(absl::StrCat("send 0 ", to, " k 0 0 4096 deadline_ms=1000")), "OK 0");
    ASSERT_EQ(thief.Tell(absl::StrCat("receive ", to,
                                      " 0 k 0 0 4096 deadline_ms=1000 domain=uid:", kVictim)),
              "OK 0");
    EXPECT_THAT(thief.Tell("wait 0 20000"),
                ::testing::StartsWith("DEADLINE_EXCEEDED/WAITING_FOR_PEER"));
    EXPECT_THAT(victim.Tell("wait 0 20000"),
                ::testing::StartsWith("DEADLINE_EXCEEDED/WAITING_FOR_PEER"));
  }
}

// What operators see of a domain are digits that are the cluster's own, and the same at both ends.
TEST_F(HostileDomainTest, ADomainIsShownByDigitsOfTheCluster) {
  std::string digits[2];
  for (const bool secret : {false, true}) {
    ClusterOptions options;
    options.secret = secret;
    Cluster cluster(options);
    ASSERT_TRUE(cluster.Start());
    {
      ClientProcess source(cluster[0].client_dir(), "source", kVictim);
      ClientProcess destination(cluster[1].client_dir(), "destination", kVictim);
      ASSERT_EQ(source.Tell("arena 0 4096"), "OK 0");
      ASSERT_EQ(destination.Tell("arena 2 4096"), "OK 0");
      ASSERT_EQ(source.Tell("send 0 2 k 0 0 4096"), "OK 0");
      ASSERT_EQ(destination.Tell("receive 2 0 other 0 0 4096"), "OK 0");
      const admin::v1::ListTransfersResponse here = cluster[0].admin().Transfers();
      const admin::v1::ListTransfersResponse there = cluster[1].admin().Transfers();
      ASSERT_EQ(here.transfers_size(), 1);
      ASSERT_EQ(there.transfers_size(), 1);
      digits[secret] = here.transfers(0).domain_fingerprint();
      EXPECT_EQ(digits[secret].size(), 16u);
      EXPECT_EQ(digits[secret], there.transfers(0).domain_fingerprint());
      EXPECT_THAT(cluster[0].admin().Dump(), HasSubstr(digits[secret]));
      EXPECT_THAT(cluster[0].admin().Dump(), Not(HasSubstr(absl::StrCat("uid:", kVictim))));
    }
    cluster.ExpectCleanEnd();
  }
  EXPECT_NE(digits[0], digits[1]);
}

}  // namespace
}  // namespace ferry::testing
