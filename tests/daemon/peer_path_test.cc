// SPDX-License-Identifier: Apache-2.0
#include "daemon/peer/peer_path.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/status.h"

namespace ferry {
namespace {

constexpr uid_t kAnother = 65534;

class PeerPathTest : public ::testing::Test {
 protected:
  PeerPathTest() {
    std::string path = (std::filesystem::temp_directory_path() / "peer-XXXXXX").string();
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    folder_ = path;
    std::filesystem::create_directories(folder_ / "run" / "deep");
    for (const std::string& at : {Socket(), (folder_ / "run" / "peer.sock").string()}) {
      EXPECT_EQ(mknod(at.c_str(), S_IFSOCK | 0600, 0), 0);
    }
  }
  ~PeerPathTest() override { std::filesystem::remove_all(folder_); }

  // With all users trusted but `stranger`.
  static absl::Status Check(const std::string& path, uid_t stranger) {
    return CheckPeerPath(path, [stranger](uid_t uid) { return uid != stranger; });
  }
  std::string Socket() const { return (folder_ / "run" / "deep" / "peer.sock").string(); }

  std::filesystem::path folder_;
};

TEST_F(PeerPathTest, DirectoriesOfTrustedUsersAreEntered) {
  EXPECT_TRUE(Check(Socket(), kAnother).ok()) << Check(Socket(), kAnother);
  std::filesystem::create_directory_symlink("run/deep", folder_ / "link");
  EXPECT_TRUE(Check(folder_ / "link" / "peer.sock", kAnother).ok());
  std::filesystem::create_directory_symlink(folder_ / "run", folder_ / "whole");
  EXPECT_TRUE(Check(folder_ / "whole" / "deep" / ".." / "peer.sock", kAnother).ok());
}

TEST_F(PeerPathTest, NothingIsEnteredThatIsAStrangers) {
  uid_t stranger = geteuid();
  if (stranger == 0) {  // root's own are always entered
    stranger = kAnother;
    ASSERT_EQ(chown((folder_ / "run").c_str(), kAnother, static_cast<gid_t>(-1)), 0);
  }
  const absl::Status status = Check(Socket(), stranger);
  EXPECT_TRUE(HasReason(status, Reason::kNotAllowed)) << status;
  EXPECT_NE(status.message().find("uid " + std::to_string(stranger)), absl::string_view::npos);
  // By a link as well.
  std::filesystem::create_directory_symlink(folder_ / "run", folder_ / "link");
  EXPECT_FALSE(Check(folder_ / "link" / "deep" / "peer.sock", stranger).ok());
  // Nor by a link in place of the socket, wherever that is.
  std::filesystem::create_symlink(Socket(), folder_ / "peer.sock");
  EXPECT_FALSE(Check(folder_ / "peer.sock", stranger).ok());
  if (geteuid() == 0) {
    ASSERT_EQ(chown((folder_ / "run").c_str(), 0, 0), 0);
    EXPECT_TRUE(Check(folder_ / "peer.sock", stranger).ok());
    ASSERT_EQ(lchown((folder_ / "peer.sock").c_str(), stranger, static_cast<gid_t>(-1)), 0);
    EXPECT_FALSE(Check(folder_ / "peer.sock", stranger).ok()) << "it may lead anywhere";
  }
}

TEST_F(PeerPathTest, WhatIsNoPathIsRefused) {
  for (const std::string& path :
       {std::string(), std::string("peer.sock"), std::string("\0abstract", 9), std::string("/"),
        std::string("/run\0/peer.sock", 15)}) {
    EXPECT_FALSE(Check(path, kAnother).ok()) << path;
  }
  std::filesystem::create_directory_symlink("loop", folder_ / "loop");
  EXPECT_FALSE(Check(folder_ / "loop" / "peer.sock", kAnother).ok());
  EXPECT_FALSE(Check(folder_ / "run", kAnother).ok()) << "a directory";
  const absl::Status missing = Check(folder_ / "missing" / "peer.sock", kAnother);
  EXPECT_TRUE(HasReason(missing, Reason::kRouteUnavailable)) << missing;
}

}  // namespace
}  // namespace ferry
