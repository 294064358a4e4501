// SPDX-License-Identifier: Apache-2.0
#include "daemon/runtime_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/daemon/sockets.h"
#include "tests/daemon/support.h"

namespace ferry {
namespace {

using testing::Directory;
using testing::Is;

mode_t ModeOf(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(lstat(path.c_str(), &info), 0) << path;
  return info.st_mode & 07777;
}

absl::StatusOr<UniqueFd> Take(const std::string& path, SocketAccess client = 0666,
                              SocketAccess admin = 0660, const LockPatience& patience = {}) {
  return TakeRuntimeDir(path, client, admin, patience);
}

TEST(RuntimeDir, IsMadeWithItsModesWhateverWasThere) {
  Directory directory;
  const std::string path = directory / "run/ferry";
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(Take(path).status(), Is("OK"));
    EXPECT_EQ(ModeOf(path), 0755u);
    EXPECT_EQ(ModeOf(path + "/client"), 0755u);
    EXPECT_EQ(ModeOf(path + "/admin"), 0750u);
    EXPECT_EQ(ModeOf(path + "/peer"), 0755u);
    EXPECT_EQ(ModeOf(path + "/lock"), 0600u) << "who can open it can lock it";
    // As an older daemon, or a careless hand, may have left it.
    EXPECT_EQ(chmod((path + "/lock").c_str(), 0644), 0);
    EXPECT_EQ(chmod((path + "/admin").c_str(), 0777), 0);
  }
}

TEST(RuntimeDirOwners, ItsPartsAreOpenToWhomTheirSocketsAreFor) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  Directory directory;
  const std::string path = directory / "f";
  SocketAccess client = 0660, admin = 0600;
  client.group = 61235;
  admin.owner = 61234;
  EXPECT_THAT(Take(path, client, admin).status(), Is("OK"));
  EXPECT_EQ(ModeOf(path + "/client"), 0750u);
  EXPECT_EQ(ModeOf(path + "/admin"), 0701u) << "its owner is not the directory's";
  struct stat info {};
  ASSERT_EQ(stat((path + "/client").c_str(), &info), 0);
  EXPECT_EQ(info.st_gid, 61235u);
  EXPECT_EQ(info.st_uid, geteuid()) << "nobody else may put sockets there";
}

TEST(RuntimeDir, HasOneDaemon) {
  Directory directory;
  absl::StatusOr<UniqueFd> first = Take(directory / "f");
  EXPECT_THAT(first.status(), Is("OK"));
  EXPECT_THAT(Take(directory / "f").status(),
              Is("ALREADY_EXISTS/CONFIG_INVALID", "another daemon"));
  first->Reset();
  EXPECT_THAT(Take(directory / "f/").status(), Is("OK"));
}

TEST(RuntimeDir, TheEndOfADaemonThatStillHoldsItIsWaitedFor) {
  Directory directory;
  absl::StatusOr<UniqueFd> first = Take(directory / "f");
  ASSERT_THAT(first.status(), Is("OK"));
  std::string file;
  int told = 0;
  const LockPatience ends{absl::InfiniteDuration(), [&](const std::string& held) {
                            file = held;
                            ++told;
                            first->Reset();
                          }};
  absl::StatusOr<UniqueFd> second = Take(directory / "f", 0666, 0660, ends);
  EXPECT_THAT(second.status(), Is("OK"));
  EXPECT_EQ(file, directory / "f/lock");
  EXPECT_EQ(told, 1);
  // Who does not end is not waited for for ever.
  const LockPatience short_one{absl::Milliseconds(30), [&](const std::string&) { ++told; }};
  EXPECT_THAT(Take(directory / "f", 0666, 0660, short_one).status(),
              Is("ALREADY_EXISTS/CONFIG_INVALID", "another daemon"));
  EXPECT_EQ(told, 2);
}

TEST(RuntimeDir, LinksAreNotFollowed) {
  Directory directory;
  const std::string path = directory / "f", elsewhere = directory / "elsewhere";
  ASSERT_EQ(mkdir(elsewhere.c_str(), 0700), 0);
  ASSERT_EQ(symlink(elsewhere.c_str(), path.c_str()), 0);
  EXPECT_THAT(Take(path).status(), Is("PERMISSION_DENIED/CONFIG_INVALID", "a link"));
  ASSERT_EQ(unlink(path.c_str()), 0);
  ASSERT_EQ(mkdir(path.c_str(), 0755), 0);
  for (const char* name : {"client", "admin", "peer"}) {
    const std::string part = path + "/" + name;
    ASSERT_EQ(symlink(elsewhere.c_str(), part.c_str()), 0);
    EXPECT_THAT(Take(path).status(), Is("PERMISSION_DENIED/CONFIG_INVALID", name));
    ASSERT_EQ(unlink(part.c_str()), 0);
  }
  const std::string lock = path + "/lock", other = elsewhere + "/made";
  unlink(lock.c_str());
  ASSERT_EQ(symlink(other.c_str(), lock.c_str()), 0);
  EXPECT_THAT(Take(path).status(), Is("PERMISSION_DENIED/CONFIG_INVALID", "lock"));
  EXPECT_EQ(access(other.c_str(), F_OK), -1) << "nothing was made there";
  EXPECT_EQ(ModeOf(elsewhere), 0700u);
}

TEST(RuntimeDir, WhatAnotherUserHasPreparedIsNotTaken) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  Directory directory;
  const std::string path = directory / "f";
  constexpr uid_t kOther = 61234;
  for (const char* part : {"", "/client", "/admin", "/peer"}) {
    EXPECT_THAT(Take(path).status(), Is("OK"));
    ASSERT_EQ(chown((path + part).c_str(), kOther, kOther), 0);
    EXPECT_THAT(Take(path).status(),
                Is("PERMISSION_DENIED/CONFIG_INVALID", "it belongs to uid 61234"));
    ASSERT_EQ(chown((path + part).c_str(), 0, 0), 0);
  }
  ASSERT_EQ(chown((path + "/lock").c_str(), kOther, kOther), 0);
  EXPECT_THAT(Take(path).status(),
              Is("PERMISSION_DENIED/CONFIG_INVALID", "it belongs to uid 61234"));
}

TEST(RuntimeDir, DirectoriesAboveItAreMade) {
  Directory directory;
  EXPECT_THAT(Take(directory / "a/./b//c/../d/f/").status(), Is("OK"));
  EXPECT_EQ(ModeOf(directory / "a/b/d"), 0755u);
  EXPECT_EQ(ModeOf(directory / "a/b/d/f/lock"), 0600u);
  EXPECT_THAT(Take(directory / "a/b/d/f/lock/more/f").status(),
              Is("PERMISSION_DENIED/CONFIG_INVALID", "lock: it is no directory"));
  for (const char* path : {"/", "f", "/run/..", "/run/ferry/."}) {
    EXPECT_THAT(Take(path).status(), Is("PERMISSION_DENIED/CONFIG_INVALID", "of the form")) << path;
  }
}

TEST(RuntimeDir, AboveItNobodyElseMayWrite) {
  Directory directory;
  const std::string above = directory / "above", path = above + "/run/f";
  ASSERT_EQ(mkdir(above.c_str(), 0700), 0);
  for (const mode_t open : {0777, 0707, 0702}) {
    ASSERT_EQ(chmod(above.c_str(), open), 0);
    EXPECT_THAT(Take(path).status(),
                Is("PERMISSION_DENIED/CONFIG_INVALID",
                   absl::StrCat("the directory ", above, " on the way to it may be written by ",
                                "everybody")));
    EXPECT_EQ(access((above + "/run").c_str(), F_OK), -1) << "nothing was made there";
  }
  ASSERT_EQ(chmod(above.c_str(), 01777), 0);
  EXPECT_THAT(Take(path).status(), Is("OK")) << "as /tmp: each has what is its own";
  ASSERT_EQ(chmod((above + "/run").c_str(), 0777), 0);
  EXPECT_THAT(Take(path).status(),
              Is("PERMISSION_DENIED/CONFIG_INVALID", absl::StrCat("chmod go-w ", above, "/run)")));
}

TEST(RuntimeDir, LinksAboveItAreFollowedLinkByLink) {
  Directory directory;
  ASSERT_EQ(mkdir((directory / "real").c_str(), 0755), 0);
  ASSERT_EQ(mkdir((directory / "open").c_str(), 0755), 0);
  ASSERT_EQ(chmod((directory / "open").c_str(), 0777), 0);
  ASSERT_EQ(symlink("../real/./", (directory / "real/to").c_str()), 0);
  ASSERT_EQ(symlink((directory / "real/to").c_str(), (directory / "link").c_str()), 0);
  EXPECT_THAT(Take(directory / "link/run/f").status(), Is("OK"));
  EXPECT_EQ(ModeOf(directory / "real/run/f/lock"), 0600u);
  ASSERT_EQ(symlink("open/..", (directory / "by").c_str()), 0);
  EXPECT_THAT(
      Take(directory / "by/real/f").status(),
      Is("PERMISSION_DENIED/CONFIG_INVALID", absl::StrCat("chmod go-w ", directory / "open")))
      << "where a link leads by counts as well";
  ASSERT_EQ(symlink("loop", (directory / "loop").c_str()), 0);
  EXPECT_THAT(Take(directory / "loop/f").status(),
              Is("PERMISSION_DENIED/CONFIG_INVALID", "Too many levels of symbolic links"));
}

TEST(RuntimeDir, AboveItIsNobodyElses) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  Directory directory;
  const std::string above = directory / "eve", path = above + "/run/f";
  constexpr uid_t kOther = 61234;
  EXPECT_THAT(Take(path).status(), Is("OK"));
  ASSERT_EQ(chown(above.c_str(), kOther, kOther), 0);
  for (const mode_t mode : {0755, 01777}) {
    ASSERT_EQ(chmod(above.c_str(), mode), 0);
    EXPECT_THAT(Take(path).status(), Is("PERMISSION_DENIED/CONFIG_INVALID",
                                        absl::StrCat("the directory ", above,
                                                     " on the way to it belongs to uid 61234")));
  }
  ASSERT_EQ(chown(above.c_str(), 0, kOther), 0);
  ASSERT_EQ(chmod(above.c_str(), 0775), 0);
  EXPECT_THAT(Take(path).status(),
              Is("PERMISSION_DENIED/CONFIG_INVALID", "may be written by gid 61234"));
  ASSERT_EQ(chown(above.c_str(), 0, 0), 0);
  EXPECT_THAT(Take(path).status(), Is("OK")) << "nobody else is in the group of root";
  const std::string link = directory / "link";
  ASSERT_EQ(symlink("eve", link.c_str()), 0);
  EXPECT_THAT(Take(link + "/run/f").status(), Is("OK"));
  ASSERT_EQ(lchown(link.c_str(), kOther, kOther), 0);
  EXPECT_THAT(Take(link + "/run/f").status(),
              Is("PERMISSION_DENIED/CONFIG_INVALID",
                 absl::StrCat("the link ", link, " on the way to it belongs to uid 61234")));
}

}  // namespace
}  // namespace ferry
