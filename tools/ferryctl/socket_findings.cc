// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/socket_findings.h"

#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/ferryctl/admin_client.h"

namespace ferry::tools {
namespace {

struct Door {
  const char* name;
  const char* setting;
  const char* units;
  const char* who;  // who may connect, in words
  bool of_clients;
};

constexpr char kClientUnits[] = "ferryd-client.socket and ferryd-attach.socket";
constexpr char kOperators[] = "the operators: root, and the group of sockets.admin";
constexpr char kClients[] = "those that sockets.client (or the unit of the socket) lets attach";
constexpr Door kDoors[] = {
    {"client/attach.sock", "sockets.client.mode", kClientUnits, kClients, true},
    {"client/client.sock", "sockets.client.mode", kClientUnits, kClients, true},
    {"admin/admin.sock", "sockets.admin.mode", "ferryd-admin.socket", kOperators, false},
    {"admin/metrics.sock", "sockets.admin.mode", "ferryd-metrics.socket", kOperators, false}};

std::string NameOfUser(uid_t uid) {
  const passwd* const user = getpwuid(uid);
  return user == nullptr ? absl::StrCat(uid) : user->pw_name;
}

std::string NameOfGroup(gid_t gid) {
  const group* const found = getgrgid(gid);
  return found == nullptr ? absl::StrCat(gid) : found->gr_name;
}

std::string ModeText(const struct stat& of) {
  return absl::StrFormat("0%03o %s:%s", of.st_mode & 0777u, NameOfUser(of.st_uid),
                         NameOfGroup(of.st_gid));
}

// The first directory above `path`, from `top` down, that those whom the socket's mode lets connect
// cannot pass.
std::optional<std::string> InTheWay(const std::string& top, const std::string& name,
                                    const struct stat& socket) {
  const bool all = (socket.st_mode & S_IWOTH) != 0;
  const bool some = (socket.st_mode & S_IWGRP) != 0;
  for (const std::string& path : {top, absl::StrCat(top, "/", name.substr(0, name.find('/')))}) {
    struct stat directory = {};
    if (stat(path.c_str(), &directory) != 0) continue;
    const bool lets_all = (directory.st_mode & S_IXOTH) != 0;
    const bool lets_group =
        lets_all || ((directory.st_mode & S_IXGRP) != 0 && directory.st_gid == socket.st_gid);
    if ((all && !lets_all) || (some && !lets_group)) {
      return absl::StrCat(path, " is ", ModeText(directory));
    }
  }
  return std::nullopt;
}

Finding LookAt(const std::string& runtime_dir, const Door& door) {
  const std::string name = door.name;
  const std::string path = absl::StrCat(runtime_dir, "/", name);
  Finding finding{Severity::kOk, name.substr(name.find('/') + 1), path, ""};
  if (const absl::Status status = CheckSocket(path); !status.ok()) {
    finding.severity = Severity::kWrong;
    finding.found = std::string(status.message());
    if (absl::IsPermissionDenied(status)) {
      finding.advice = absl::StrCat("this user is not one of ", door.who);
    }
    return finding;
  }
  struct stat socket = {};
  if (stat(path.c_str(), &socket) != 0) return finding;
  finding.found = absl::StrCat(ModeText(socket), " ", path);
  const std::string mend =
      absl::StrCat(door.setting, ", or SocketMode= of ", door.units, " under systemd");
  if (const auto way = InTheWay(runtime_dir, name, socket)) {
    finding.severity = Severity::kWrong;
    absl::StrAppend(&finding.found, ", and ", *way,
                    ": those whom the socket lets connect do not get to it");
    finding.advice = absl::StrCat(
        "chmod the directory (0755 for all, 0750 and its group for a "
        "group), or restart the daemon, which makes it so");
  } else if (door.of_clients && (socket.st_mode & (S_IWOTH | S_IWGRP)) == 0) {
    finding.severity = Severity::kWarning;
    absl::StrAppend(&finding.found, ": no other user may attach");
    finding.advice = mend;
  } else if (!door.of_clients && (socket.st_mode & S_IWOTH) != 0) {
    finding.severity = Severity::kWarning;
    absl::StrAppend(&finding.found, ": every user of this host may operate the daemon");
    finding.advice = mend;
  }
  return finding;
}

}  // namespace

Findings SocketFindings(const std::string& runtime_dir) {
  Findings findings;
  for (const Door& door : kDoors) findings.push_back(LookAt(runtime_dir, door));
  return findings;
}

}  // namespace ferry::tools
