// SPDX-License-Identifier: Apache-2.0
// A client that has joined a domain is killed before it has posted anything: no half of it exists
// that could be lost, and whoever waits for that half is told all the same.
#include "absl/strings/str_cat.h"
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class MemberLossTest : public RouteTest {
 protected:
  void StartAll() {
    StartForRoute();
    source_ = SpawnSource(kMiB);
    destination_ = SpawnDestination(kMiB);
  }
  void TearDown() override {
    source_.reset();
    destination_.reset();
    RouteTest::TearDown();
  }
  std::string JoinSource(const std::string& name) {
    return source_->Tell(absl::StrCat("join job ", source_device(), " ", name));
  }
  std::string JoinDestination(const std::string& name) {
    return destination_->Tell(absl::StrCat("join job ", destination_device(), " ", name));
  }
  std::string Send(const std::string& key) {
    return source_->Tell(absl::StrCat("send ", source_device(), " ", destination_device(), " ", key,
                                      " 0 0 ", kMiB, route_option(), " domain=job"));
  }
  std::string Receive(const std::string& key) {
    return destination_->Tell(absl::StrCat("receive ", destination_device(), " ", source_device(),
                                           " ", key, " 0 0 ", kMiB, route_option(), " domain=job"));
  }
  // Members on a device, as a node knows it.
  uint32_t Count(size_t at, uint64_t device) {
    const admin::v1::ListMembersResponse members = node(at).admin().Members();
    for (const auto& row : members.rows()) {
      if (row.global_device_id() == device) return row.count();
    }
    return 0;
  }
  void ExpectTransferWorks(const std::string& key, int batch_of_source, int batch_of_destination) {
    ASSERT_EQ(source_->Tell(absl::StrCat("fill 0 0 ", kMiB, " 5")), "OK");
    ASSERT_EQ(Send(key), absl::StrCat("OK ", batch_of_source));
    ASSERT_EQ(Receive(key), absl::StrCat("OK ", batch_of_destination));
    EXPECT_EQ(source_->Tell(absl::StrCat("wait ", batch_of_source, " 10000")), "OK");
    EXPECT_EQ(destination_->Tell(absl::StrCat("wait ", batch_of_destination, " 10000")), "OK");
    EXPECT_EQ(destination_->Tell(absl::StrCat("check 0 0 ", kMiB, " 5")), "OK");
  }
  std::unique_ptr<ClientProcess> source_, destination_;
};
INSTANTIATE_ALL_ROUTES(MemberLossTest);

TEST_P(MemberLossTest, AReceiverHearsThatTheSenderDiedBeforeItPosted) {
  StartAll();
  ASSERT_EQ(JoinSource("trainer-0"), "OK");
  ASSERT_EQ(JoinDestination("engine-0"), "OK");
  ASSERT_EQ(Receive("step-1"), "OK 0");
  source_->Kill();
  EXPECT_THAT(destination_->Tell("wait 0 10000"),
              AllOf(StartsWith("ABORTED/PEER_CLIENT_GONE"), HasSubstr("'trainer-0', is gone")));
  // And so does who posts later, until there is a successor.
  ASSERT_EQ(Receive("step-2"), "OK 1");
  EXPECT_THAT(destination_->Tell("wait 1 10000"), StartsWith("ABORTED/PEER_CLIENT_GONE"));
  source_ = SpawnSource(kMiB);
  ASSERT_EQ(JoinSource("trainer-0"), "OK");
  ASSERT_TRUE(Await([&] { return Count(destination_node(), source_device()) == 1; }));
  ExpectTransferWorks("step-2", 0, 2);
}

TEST_P(MemberLossTest, ASenderHearsThatTheReceiverDiedBeforeItPosted) {
  StartAll();
  ASSERT_EQ(JoinSource("trainer-0"), "OK");
  ASSERT_EQ(JoinDestination("engine-0"), "OK");
  ASSERT_EQ(Send("step-1"), "OK 0");
  destination_->Kill();
  EXPECT_THAT(source_->Tell("wait 0 10000"),
              AllOf(StartsWith("ABORTED/PEER_CLIENT_GONE"), HasSubstr("'engine-0', is gone")));
}

TEST_P(MemberLossTest, ASecondMemberKeepsThePlace) {
  StartAll();
  ASSERT_EQ(JoinSource("trainer-0"), "OK");
  auto second = SpawnSource(kMiB);
  ASSERT_EQ(second->Tell(absl::StrCat("join job ", source_device(), " trainer-1")), "OK");
  ASSERT_EQ(Receive("step-1"), "OK 0");
  source_->Kill();
  ASSERT_TRUE(Await([&] { return Count(0, source_device()) == 1; }));
  EXPECT_EQ(destination_->Tell("over 0"), "OK 0");
  source_ = std::move(second);
  ASSERT_EQ(source_->Tell(absl::StrCat("fill 0 0 ", kMiB, " 5")), "OK");
  ASSERT_EQ(Send("step-1"), "OK 0");
  EXPECT_EQ(destination_->Tell("wait 0 10000"), "OK");
  EXPECT_EQ(destination_->Tell(absl::StrCat("check 0 0 ", kMiB, " 5")), "OK");
}

class MembersRestartTest : public ClusterTest {};

// Its client joins again by itself: a restart of the daemon is no end of a member.
TEST_F(MembersRestartTest, AMemberOfADaemonThatRestartsIsStillOne) {
  Start();
  ClientProcess trainer(node(0).client_dir(), "trainer");
  ClientProcess engine(node(1).client_dir(), "engine");
  ASSERT_EQ(trainer.Tell("join job 0 trainer-0"), "OK");
  ASSERT_EQ(engine.Tell("arena 2 4096"), "OK 0");
  const auto known = [&](size_t at, uint32_t count) {
    return Await([&] {
      const auto members = node(at).admin().Members();
      return members.rows_size() == 1 && members.rows(0).count() == count &&
             !members.rows(0).lost() && members.rows(0).global_device_id() == 0;
    });
  };
  ASSERT_EQ(engine.Tell("receive 2 0 first 0 0 4096 domain=job"), "OK 0");  // brings the link up
  ASSERT_TRUE(known(1, 1));
  node(0).Kill();
  EXPECT_THAT(engine.Tell("wait 0 10000"), StartsWith("UNAVAILABLE/"));
  ASSERT_TRUE(node(0).Start());
  ASSERT_TRUE(known(0, 1));
  EXPECT_THAT(Ferryctl("members"), HasSubstr("1: trainer-0 (session "));
  ASSERT_EQ(engine.Tell("receive 2 0 second 0 0 4096 domain=job"), "OK 1");
  ASSERT_TRUE(known(1, 1));
  EXPECT_EQ(engine.Tell("over 1"), "OK 0");
  trainer.Kill();
  EXPECT_THAT(engine.Tell("wait 1 10000"), StartsWith("ABORTED/PEER_CLIENT_GONE"));
  for (const size_t at : {0u, 1u}) {
    EXPECT_THAT(Ferryctl("members", 0, at), ::testing::ContainsRegex("deserted .* by trainer-0"));
  }
}

}  // namespace
}  // namespace ferry::testing
