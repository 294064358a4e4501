// SPDX-License-Identifier: Apache-2.0
#include "tests/support/bad_data.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "transfer/tcp/tcp_wire.h"

namespace ferry::testing {
namespace {

constexpr size_t kMostForgotten = 8;
constexpr size_t kMostHeard = 64;
constexpr int kPatienceMilliseconds = 200;  // for a connection, and for what is to be written

}  // namespace

BadData::BadData(uint16_t port, std::vector<uint64_t> devices, std::vector<uint64_t> theirs,
                 Nonsense& nonsense)
    : port_(port), devices_(std::move(devices)), theirs_(std::move(theirs)), nonsense_(nonsense) {}

void BadData::OnLink(const std::string& key) {
  key_ = key;
  heard_.clear();
  for (UniqueFd& one : open_) forgotten_.push_back(std::move(one));
  open_.clear();
  while (forgotten_.size() > kMostForgotten) forgotten_.erase(forgotten_.begin());
}

void BadData::Step(const std::vector<uint64_t>& tags) {
  if (open_.empty() || nonsense_.Chance(2)) return Connect();
  const size_t which = nonsense_.Below(open_.size());
  if (nonsense_.Chance(2)) {
    open_[which].Reset();
    open_.erase(open_.begin() + static_cast<ptrdiff_t>(which));
    return;
  }
  const int socket = open_[which].get();
  Read(socket);
  std::string said = nonsense_.Chance(90) ? Message(tags) : nonsense_.Bytes(4096);
  if (nonsense_.Chance(5)) said = nonsense_.Broken(std::move(said));
  for (size_t at = 0; at < said.size();) {
    const ssize_t sent =
        send(socket, said.data() + at, said.size() - at, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) at += static_cast<size_t>(sent);
    pollfd writable{socket, POLLOUT, 0};
    if (sent <= 0 && (errno != EAGAIN || poll(&writable, 1, kPatienceMilliseconds) <= 0)) {
      open_.erase(open_.begin() + static_cast<ptrdiff_t>(which));  // with half a message
      return;
    }
  }
}

// A set of connections, with something wrong about it now and then.
void BadData::Connect() {
  OnLink(key_);
  TcpPreamble preamble;
  preamble.from = GlobalDeviceId(devices_[nonsense_.Below(devices_.size())]);
  preamble.to = GlobalDeviceId(nonsense_.Chance(95) ? theirs_[nonsense_.Below(theirs_.size())]
                                                    : nonsense_.Number());
  serial_ = nonsense_.Chance(90) ? serial_ + 1 : nonsense_.Number();
  preamble.serial = serial_;
  preamble.count = nonsense_.Chance(95) ? 2 + static_cast<uint32_t>(nonsense_.Below(2))
                                        : static_cast<uint32_t>(nonsense_.Number());
  const std::string key = nonsense_.Chance(95) ? key_ : "a guess";
  preamble.link_id = TcpLinkId(key_);
  for (uint32_t i = 0; i < preamble.count && i < 4; ++i) {
    preamble.index = nonsense_.Chance(98) ? i : static_cast<uint32_t>(nonsense_.Number());
    std::string bytes = EncodeTcpPreamble(preamble, key);
    if (nonsense_.Chance(2)) bytes = nonsense_.Broken(std::move(bytes));
    Dial(bytes);
  }
}

void BadData::Dial(const std::string& preamble) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port_);
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid() ||
      connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return;
  }
  send(fd.get(), preamble.data(), preamble.size(), MSG_NOSIGNAL);
  char answer[kHmacBytes];
  pollfd readable{fd.get(), POLLIN, 0};
  if (poll(&readable, 1, kPatienceMilliseconds) > 0 &&
      recv(fd.get(), answer, sizeof(answer), MSG_DONTWAIT) <= 0) {
    return;
  }
  open_.push_back(std::move(fd));
}

std::string BadData::Message(const std::vector<uint64_t>& tags) {
  const auto tag = [&] {
    const std::vector<uint64_t>& known = nonsense_.Chance(70) ? tags : heard_;
    return known.empty() || nonsense_.Chance(10) ? nonsense_.Number()
                                                 : known[nonsense_.Below(known.size())];
  };
  TcpHeader header;
  header.kind = static_cast<uint32_t>(1 + nonsense_.Below(nonsense_.Chance(98) ? 4 : 6));
  std::vector<TcpEntry> entries(nonsense_.Chance(97) ? 1 + nonsense_.Below(4)
                                                     : nonsense_.Below(600));
  header.entries = static_cast<uint32_t>(entries.size());
  size_t bytes = 0;
  for (TcpEntry& entry : entries) {
    entry.tag = tag();
    entry.at = nonsense_.Chance(80) ? nonsense_.Below(3) : nonsense_.Number();
    entry.bytes = nonsense_.Chance(95) ? nonsense_.Below(30'000) : nonsense_.Number();
    bytes += entry.bytes;
  }
  std::string message(reinterpret_cast<const char*>(&header), sizeof(header));
  message.append(reinterpret_cast<const char*>(entries.data()), entries.size() * sizeof(TcpEntry));
  if (header.kind == static_cast<uint32_t>(TcpKind::kBytes)) {
    message.append(bytes < (1 << 20) ? bytes : nonsense_.Below(1000), 'x');
  }
  return message;
}

// What it says is read most of the time, so that there is room for more.
void BadData::Read(int socket) {
  if (nonsense_.Chance(5)) return;
  char bytes[64 << 10];
  ssize_t got = 0;
  while ((got = recv(socket, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0) {
    if (static_cast<size_t>(got) < sizeof(TcpHeader) + sizeof(TcpEntry)) continue;
    TcpEntry entry;  // if a message begins here
    memcpy(&entry, bytes + sizeof(TcpHeader), sizeof(entry));
    if (heard_.size() == kMostHeard) heard_.erase(heard_.begin());
    heard_.push_back(entry.tag);
  }
}

}  // namespace ferry::testing
