// SPDX-License-Identifier: Apache-2.0
// Two nodes whose configurations do not fit each other: each says why, in the same words.
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/support/fixtures.h"

namespace ferry::testing {
namespace {

using ::testing::HasSubstr;

class MembershipTest : public ClusterTest {
 protected:
  // Two nodes, of which `changed` reads `from` as `to`.
  void StartWith(const std::string& from, const std::string& to, size_t changed) {
    cluster_ = std::make_unique<Cluster>(ClusterOptions{});
    const std::string before = ReadFile(node(changed).config_file());
    const std::string after = absl::StrReplaceAll(before, {{from, to}});
    ASSERT_NE(before, after) << from;
    WriteFile(node(changed).config_file(), after);
    ASSERT_TRUE(nodes().Start());
  }
  // Once somebody wants the link, status and log of both have `words`.
  void ExpectBothSay(const std::string& words) {
    Session session = nodes().Open(0);
    Batch send = Must(session.Send(0, {Transfer(2, "k", {})}));
    for (size_t i = 0; i < 2; ++i) {
      std::string status;
      EXPECT_TRUE(Await([&] {
        status = Ferryctl("status", 0, i);
        return absl::StrContains(status, words);
      })) << "node "
          << i << " says\n"
          << status;
      EXPECT_THAT(node(i).Log(), HasSubstr(words)) << "node " << i;
    }
  }
};

TEST_F(MembershipTest, IdsThatWhoDialsFindsWrongAreToldToBoth) {
  StartWith("ids: [2, 3]", "ids: [2, 4]", 0);
  ExpectBothSay(
      "link between node-a and node-b: node-b has the global device ids 2, 3, and by "
      "membership.nodes of node-a it would have 2, 4; membership.nodes must be the same on both");
}

TEST_F(MembershipTest, IdsThatWhoIsDialledFindsWrongAreToldToBoth) {
  StartWith("ids: [0, 1]", "ids: [0]", 1);
  ExpectBothSay(
      "link between node-b and node-a: node-a has the global device ids 0, 1, and by "
      "membership.nodes of node-b it would have 0; membership.nodes must be the same on both");
}

TEST_F(MembershipTest, ANameThatWhoDialsDoesNotExpectIsToldToBoth) {
  StartWith("name: node-b", "name: node-c", 1);
  ExpectBothSay(absl::StrCat("link between node-a and node-b: the daemon at 127.0.0.1:",
                             nodes().port(1), " is 'node-c'; check membership.nodes on both"));
}

TEST_F(MembershipTest, ANameThatWhoIsDialledDoesNotKnowIsToldToBoth) {
  StartWith("name: node-a", "name: node-0", 0);
  ExpectBothSay(
      "link between node-b and 'node-0': 'node-0' is not among membership.nodes of node-b");
}

TEST_F(MembershipTest, NamesByWhichBothWouldDialAreToldToBoth) {
  StartWith("name: node-b", "name: node-0", 1);
  ExpectBothSay("link between node-0 and 'node-a': of these names it is node-0 that dials");
}

// Whichever it is. Bytes go both ways: who opened the link opens the data connections too.
TEST_F(MembershipTest, OneThatCanDialIsEnough) {
  for (const size_t cannot : {0, 1}) {
    ClusterOptions options;
    options.transfer = "order: [local, tcp]";
    cluster_ = std::make_unique<Cluster>(options);
    const size_t other = 1 - cannot;
    const std::string before = ReadFile(node(cannot).config_file());
    const std::string after = absl::StrReplaceAll(
        before, {{absl::StrCat("127.0.0.1:", nodes().port(other)), "127.0.0.1:1"}});
    ASSERT_NE(before, after);
    WriteFile(node(cannot).config_file(), after);
    ASSERT_TRUE(nodes().Start());
    End source = OpenEnd(0, kMiB), destination = OpenEnd(1, kMiB);
    ExpectTransfer(source, destination, "there");
    ExpectTransfer(destination, source, "back");
  }
}

// Though whoever can has nothing to do there. Who cannot says why, until the other one comes.
TEST_F(MembershipTest, OneThatCanDialComesForTheOthersWork) {
  for (const size_t cannot : {0, 1}) {
    ClusterOptions options;
    options.transfer = "order: [local, tcp]";
    cluster_ = std::make_unique<Cluster>(options);
    const std::string before = ReadFile(node(cannot).config_file());
    const std::string after = absl::StrReplaceAll(
        before, {{absl::StrCat("127.0.0.1:", nodes().port(1 - cannot)), "127.0.0.1:1"}});
    ASSERT_NE(before, after);
    WriteFile(node(cannot).config_file(), after);
    ASSERT_TRUE(nodes().Start());
    Session session = nodes().Open(cannot);
    Batch send = Must(session.Send(2 * cannot, {Transfer(2 - 2 * cannot, "k", {})}));
    for (const size_t i : {cannot, 1 - cannot}) {
      std::string status;
      EXPECT_TRUE(Await([&] {
        status = Ferryctl("status", 0, i);
        return absl::StrContains(status, " up ");
      })) << "node "
          << i << " says\n"
          << status << node(cannot).Log();
    }
    EXPECT_THAT(node(cannot).Log(), HasSubstr("127.0.0.1:1"));
  }
}

TEST_F(MembershipTest, SecretsThatDifferAreToldToBoth) {
  ClusterOptions options;
  options.secret = true;
  cluster_ = std::make_unique<Cluster>(options);
  WriteFile(node(1).runtime_dir() + ".secret", "not the secret of that test's cluster");
  ASSERT_TRUE(nodes().Start());
  ExpectBothSay(absl::StrCat("link between node-a and node-b: the daemon at 127.0.0.1:",
                             nodes().port(1), " did not prove that it has the secret of node-a"));
}

// A name server that is away, at the start too: each node serves what is its own, and says whom it
// does not find.
TEST_F(MembershipTest, NamesThatDoNotResolveAreSaidAndHoldNothingUp) {
  ClusterOptions options;
  options.secret = true;
  cluster_ = std::make_unique<Cluster>(options);
  for (const size_t i : {0, 1}) {
    WriteFile(
        node(i).config_file(),
        absl::StrReplaceAll(
            ReadFile(node(i).config_file()),
            {{absl::StrCat("address: \"127.0.0.1:", nodes().port(0)), "address: \"a.invalid:1"},
             {absl::StrCat("address: \"127.0.0.1:", nodes().port(1)), "address: \"b.invalid:2"},
             {"insecure: false", "insecure: true"}}));
  }
  ASSERT_TRUE(nodes().Start());
  End here = OpenEnd(0, 4096), other = OpenEnd(0, 4096, 1);
  ExpectTransfer(here, other, "within the node");
  Batch waits = Must(here.session.Send(0, {Transfer(2, "k", {})}));
  EXPECT_TRUE(Await([&] {
    const std::string status = Ferryctl("status");
    return absl::StrContains(status, "b.invalid:2") && absl::StrContains(status, "lost");
  })) << Ferryctl("status");
  EXPECT_THAT(node(0).Log(), HasSubstr("b.invalid"));
}

}  // namespace
}  // namespace ferry::testing
