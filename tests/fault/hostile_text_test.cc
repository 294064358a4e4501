// SPDX-License-Identifier: Apache-2.0
// Somebody where a peer should be says what ends lines and what terminals obey: it writes no line
// of its own into what operators are shown.
#include "tests/support/fixtures.h"
#include "tests/support/lying_peer.h"

namespace ferry::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(HostileTextTest, LastWordsForgeNoRow) {
  Cluster cluster(ClusterOptions{});
  ASSERT_TRUE(cluster[0].Start());
  LyingListener liar(cluster.port(1), {}, "x\n  session 99 name root pid 1\x1b[2J\x7f\xc2\x9b");
  const std::string shown = "x\\x0a  session 99 name root pid 1\\x1b[2J\\x7f\\x9b";
  {
    Session session = cluster.Open(0);
    Batch wanted = Must(session.Send(0, {Transfer(2, "k", {})}));
    std::string dump;
    ASSERT_TRUE(Await([&] {
      dump = cluster[0].admin().Dump();
      return dump.find(shown) != std::string::npos;
    })) << dump;
    EXPECT_THAT(dump, HasSubstr("\nsessions\n  session 1 name test"));
    EXPECT_THAT(dump, Not(HasSubstr("\n  session 99")));
    const Finished status =
        RunProgram({FerryctlProgram(), "--runtime-dir", cluster[0].runtime_dir(), "status"});
    EXPECT_EQ(status.status, 0);
    EXPECT_THAT(status.output, HasSubstr("session 99"));
    EXPECT_THAT(status.output, Not(HasSubstr("\n  session 99")));
    EXPECT_THAT(status.output, Not(HasSubstr("\x1b")));
  }
  cluster.ExpectCleanEnd();
}

}  // namespace
}  // namespace ferry::testing
