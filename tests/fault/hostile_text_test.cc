// SPDX-License-Identifier: Apache-2.0
// Names that clients give themselves with what ends lines and what terminals obey: nobody writes a
// line of its own into what operators are shown.
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(HostileTextTest, ANameForgesNoRow) {
  Cluster cluster({.nodes = 1});
  ASSERT_TRUE(cluster.Start());
  const std::string forged = "x\n  session 99 name root pid 1\x1b[2J\x7f\xc2\x9b";
  {
    Session session = cluster.Open(0, forged);
    const std::string dump = cluster[0].admin().Dump();
    EXPECT_THAT(dump, HasSubstr("\nsessions\n  session 1 name x"));
    EXPECT_THAT(dump, Not(HasSubstr("\n  session 99")));
    EXPECT_THAT(dump, HasSubstr("x\\x0a  session 99 name root pid 1\\x1b[2J\\x7f\\x9b"));
    const Finished shown =
        RunProgram({FerryctlProgram(), "--runtime-dir", cluster[0].runtime_dir(), "sessions"});
    EXPECT_EQ(shown.status, 0);
    EXPECT_THAT(shown.output, HasSubstr("x\\x0a  session 99"));
    EXPECT_THAT(shown.output, Not(HasSubstr("\x1b")));
  }
  cluster.ExpectCleanEnd();
}

}  // namespace
}  // namespace ferry::testing
