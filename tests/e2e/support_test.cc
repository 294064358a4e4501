// SPDX-License-Identifier: Apache-2.0
// `ferryctl support`: what a bug report takes along, and what it does not.
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/support/fixtures.h"
#include "tools/ferryctl/support.h"

namespace ferry::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

class SupportTest : public ClusterTest {
 protected:
  // Makes an archive and unpacks it: the text of each file, by its name.
  std::map<std::string, std::string> Archive(const std::string& options = "") {
    const std::string archive = directory_ / "a.tar.gz", unpacked = directory_ / "unpacked";
    said_ = Ferryctl(absl::StrCat("support -o ", archive, options));
    fs::create_directory(unpacked);
    const Finished tar = RunProgram({"/bin/tar", "-xzf", archive, "-C", unpacked});
    EXPECT_EQ(tar.status, 0) << tar.output;
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(unpacked)) {
      if (entry.is_regular_file()) {
        files[entry.path().filename().string()] = ReadFile(entry.path().string());
      }
    }
    return files;
  }
  TemporaryDirectory directory_;
  std::string said_;
};

TEST_F(SupportTest, TheArchiveHasWhatTheNodeSaysAndNoKeyDomainOrSecret) {
  ClusterOptions options;
  options.secret = true;
  Start(options);
  End source = OpenEnd(0, 4096), destination = OpenEnd(1, 4096);
  ExpectTransfer(source, destination, "kkkk-moved");
  // One that waits, with a partner that nearly fits, so that texts name keys.
  PostOptions in_domain;
  in_domain.domain = "dddd-domain";
  Batch send = Send(source, destination, "kkkk-waits-1", {});
  Batch receive = Receive(destination, source, "kkkk-waits-2", {});
  Batch other = Send(source, destination, std::string("\xff\x01kkkk", 6), {}, in_domain);
  ASSERT_TRUE(Await([&] { return node(0).admin().Count("offered") == 2; }));
  // And one that has ended, of which the recorder tells.
  EXPECT_TRUE(send.Cancel().ok());
  ASSERT_TRUE(Await([&] { return send.over(); }));

  const std::map<std::string, std::string> files = Archive();
  for (const char* name :
       {"host.txt", "doctor.json", "status.json", "devices.json", "sessions.json", "jobs.json",
        "comms.json", "flight.json", "metrics.txt", "proc-version"}) {
    EXPECT_EQ(files.count(name), 1u) << name;
    EXPECT_THAT(said_, HasSubstr(absl::StrCat("  ", name, ", ")));
  }
  EXPECT_THAT(files.at("status.json"), HasSubstr("\"node\":\"node-a\""));
  EXPECT_THAT(files.at("flight.json"), HasSubstr("\"transfers\""));
  EXPECT_THAT(files.at("metrics.txt"), HasSubstr("ferry_sessions 1"));
  EXPECT_EQ(files.count("missing.txt"), 0u);
  for (const auto& [name, text] : files) {
    for (const char* secret : {"kkkk", "6b6b6b6b", "dddd", Cluster::kSecret}) {
      EXPECT_THAT(text, Not(HasSubstr(secret))) << name;
    }
  }
  EXPECT_TRUE(receive.Cancel().ok());
  EXPECT_TRUE(other.Cancel().ok());
}

TEST_F(SupportTest, TheConfigurationGoesAlongIfItIsNamed) {
  Start();
  const auto files = Archive(absl::StrCat(" --config ", node(0).config_file()));
  bool found = false;
  for (const auto& [name, text] : files) found |= text == ReadFile(node(0).config_file());
  EXPECT_TRUE(found);
}

TEST_F(SupportTest, WithoutADaemonItHasWhatTheHostSays) {
  Start();
  node(0).Stop();
  const auto files = Archive();
  EXPECT_EQ(files.count("status.json"), 0u);
  EXPECT_THAT(files.at("missing.txt"), HasSubstr("no daemon listens there"));
  EXPECT_THAT(files.at("doctor.json"), HasSubstr("admin.sock"));
  EXPECT_THAT(said_, HasSubstr("not in it: the daemon: "));
}

TEST(SupportText, WhatFollowsTheWordKeyIsLeftOut) {
  EXPECT_EQ(tools::WithoutKeys("the other half"), "the other half");
  EXPECT_EQ(tools::WithoutKeys("a send of key 'x' waits"), "a send of (a key, left out)");
}

}  // namespace
}  // namespace ferry::testing
