// SPDX-License-Identifier: Apache-2.0
// ferryctl doctor, with real daemons.
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
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

}  // namespace
}  // namespace ferry::testing
