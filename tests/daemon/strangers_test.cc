// SPDX-License-Identifier: Apache-2.0
// Daemons that nobody knows are remembered: not too many, and not for ever.
#include "daemon/peer/strangers.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/daemon/support.h"

namespace ferry::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class StrangersTest : public ::testing::Test {
 protected:
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const Strangers::Stranger& stranger : strangers_.List()) names.push_back(stranger.node);
    return names;
  }
  ManualExecutor control_;
  Strangers strangers_{control_};
  const absl::Status refused_ = absl::PermissionDeniedError("not a member");
};

TEST_F(StrangersTest, AreListedOnceTheLatestLast) {
  strangers_.Add("node-x", refused_);
  strangers_.Add("node-y", refused_);
  strangers_.Add("node-x", absl::PermissionDeniedError("still no member"));
  EXPECT_THAT(Names(), ElementsAre("node-y", "node-x"));
  EXPECT_EQ(strangers_.List().back().why, "still no member");
}

TEST_F(StrangersTest, TheOldestMakesRoom) {
  for (size_t i = 0; i <= Strangers::kMost; ++i) strangers_.Add(absl::StrCat("x", i), refused_);
  EXPECT_EQ(Names().size(), Strangers::kMost);
  EXPECT_EQ(Names().front(), "x1");
}

TEST_F(StrangersTest, AreListedForATime) {
  strangers_.Add("node-x", refused_);
  control_.Advance(Strangers::kKept - absl::Nanoseconds(1));
  strangers_.Add("node-y", refused_);
  EXPECT_THAT(Names(), ElementsAre("node-x", "node-y"));
  control_.Advance(absl::Nanoseconds(1));
  EXPECT_THAT(Names(), ElementsAre("node-y"));
}

TEST_F(StrangersTest, AnyBytesMayBeAName) {
  strangers_.Add("a\nb", refused_);
  EXPECT_EQ(Names().front().find('\n'), std::string::npos);
  strangers_.Forget("node-x");
  EXPECT_EQ(Names().size(), 1u);
  strangers_.Forget("a\nb");
  EXPECT_THAT(Names(), IsEmpty()) << "it is a peer now";
}

}  // namespace
}  // namespace ferry::testing
