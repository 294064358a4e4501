// SPDX-License-Identifier: Apache-2.0
#include "tests/support/listeners.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace ferry::testing {
namespace {

constexpr int kListens = 0x0a;            // TCP_LISTEN, in the tables of TCP
constexpr int kConnected = 0x01;          // TCP_ESTABLISHED, in those of UDP too
constexpr int kUnixAccepts = 0x00010000;  // __SO_ACCEPTCON

// The inodes of its sockets.
std::set<uint64_t> SocketsOf(pid_t process) {
  std::set<uint64_t> sockets;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(absl::StrCat("/proc/", process, "/fd"), error)) {
    std::error_code closed;  // meanwhile
    const std::string target = std::filesystem::read_symlink(entry.path(), closed).string();
    absl::string_view inode = target;
    uint64_t number = 0;
    if (absl::ConsumePrefix(&inode, "socket:[") && absl::ConsumeSuffix(&inode, "]") &&
        absl::SimpleAtoi(inode, &number)) {
      sockets.insert(number);
    }
  }
  EXPECT_FALSE(error) << "the descriptors of " << process << ": " << error.message();
  return sockets;
}

// Rows of a table of /proc/PID/net, without its heading, by words.
std::vector<std::vector<std::string>> Rows(pid_t process, const std::string& table) {
  std::vector<std::vector<std::string>> rows;
  std::ifstream stream(absl::StrCat("/proc/", process, "/net/", table));
  EXPECT_TRUE(stream.is_open() || table != "tcp") << "no table of " << process << "'s network";
  std::string line;
  for (std::getline(stream, line); std::getline(stream, line);) {
    rows.push_back(absl::StrSplit(line, ' ', absl::SkipEmpty()));
  }
  return rows;
}

// "0100007F:1CF3" is 127.0.0.1:7411: words of four bytes as this machine has them in memory.
std::string AddressOf(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  in6_addr raw{};
  for (size_t i = 0; i < parts[0].size() / 8; ++i) {
    const uint32_t word = static_cast<uint32_t>(std::stoul(parts[0].substr(8 * i, 8), nullptr, 16));
    memcpy(raw.s6_addr + 4 * i, &word, sizeof(word));
  }
  const bool six = parts[0].size() > 8;
  char host[INET6_ADDRSTRLEN] = {};
  inet_ntop(six ? AF_INET6 : AF_INET, &raw, host, sizeof(host));
  const unsigned long port = std::stoul(parts[1], nullptr, 16);
  return six ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

}  // namespace

std::set<std::string> ListenersOf(pid_t process) {
  std::set<std::string> found;
  const std::set<uint64_t> sockets = SocketsOf(process);
  const auto its = [&](const std::string& inode) {
    uint64_t number = 0;
    return absl::SimpleAtoi(inode, &number) && sockets.contains(number);
  };
  // sl, local_address, rem_address, st, tx:rx, tr:when, retrnsmt, uid, timeout, inode
  for (const std::string table :
       {"tcp", "tcp6", "udp", "udp6", "udplite", "udplite6", "raw", "raw6", "icmp", "icmp6"}) {
    const bool tcp = absl::StartsWith(table, "tcp");
    for (const auto& row : Rows(process, table)) {
      if (row.size() < 10 || !its(row[9])) continue;
      const int state = static_cast<int>(std::stoul(row[3], nullptr, 16));
      if (tcp ? state != kListens : state == kConnected) continue;
      found.insert(absl::StrCat(absl::StripSuffix(table, "6"), " ", AddressOf(row[1])));
    }
  }
  // sk, RefCnt, Type, Proto, Iface, R, Rmem, User, Inode; sk, Eth, Pid, Groups, ..., Inode
  for (const auto& row : Rows(process, "packet")) {
    if (row.size() > 8 && its(row[8])) found.insert("packet");
  }
  // Num, RefCount, Protocol, Flags, Type, St, Inode, Path
  for (const auto& row : Rows(process, "unix")) {
    if (row.size() < 8 || !its(row[6])) continue;
    const bool datagrams = row[4] == "0002";
    if (datagrams || (std::stoul(row[3], nullptr, 16) & kUnixAccepts) != 0) {
      found.insert(absl::StrCat("unix ", row[7]));
    }
  }
  return found;
}

}  // namespace ferry::testing
