// SPDX-License-Identifier: Apache-2.0
#include "tests/contract/tcp_rig.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace ferry {

TcpDoor::TcpDoor(std::string key, OnConnection on_connection)
    : key_(std::move(key)), on_connection_(std::move(on_connection)) {
  listener_.Reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  stop_.Reset(eventfd(0, EFD_CLOEXEC));
  sockaddr_in any = {};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  FERRY_CHECK(bind(listener_.get(), reinterpret_cast<sockaddr*>(&any), sizeof(any)) == 0);
  FERRY_CHECK(listen(listener_.get(), 64) == 0);
  address_.size = sizeof(address_.storage);
  FERRY_CHECK(getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address_.storage),
                          &address_.size) == 0);
  thread_ = std::thread([this] { Run(); });
}

TcpDoor::~TcpDoor() {
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

void TcpDoor::SetKey(std::string key) {
  MutexLock lock(mutex_);
  key_ = std::move(key);
}

void TcpDoor::Run() {
  pollfd watched[] = {{listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
  while (poll(watched, 2, -1) > 0 && watched[1].revents == 0) {
    UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::string bytes(kTcpPreambleBytes, '\0');
    if (refuse_ > 0 && refuse_-- > 0) continue;
    const bool whole = recv(socket.get(), bytes.data(), bytes.size(), MSG_WAITALL) ==
                       static_cast<ssize_t>(bytes.size());
    std::string key;
    {
      MutexLock lock(mutex_);
      key = key_;
    }
    if (!whole || !ProvesTcp(bytes, key)) continue;
    const auto preamble = DecodeTcpPreamble(bytes);
    if (!preamble.ok()) continue;
    const std::string answer = TcpAnswer(bytes, key);
    send(socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    on_connection_(*preamble, std::move(socket));
  }
}

TcpRig::TcpRig(uint64_t arena_bytes, std::array<bool, 2> gpus) : Rig(arena_bytes, gpus) {
  for (int end : {0, 1}) {
    transports_[end] =
        TcpTransport::Create(lane(end), GlobalDeviceId(static_cast<uint64_t>(end)), {},
                             {answers_[end].Sink(), nullptr}, staging_[end].get());
  }
  door_ = std::make_unique<TcpDoor>(
      std::string(kTcpTestKey), [this](const TcpPreamble& preamble, UniqueFd socket) {
        lane(1).Post([this, preamble, fd = std::make_shared<UniqueFd>(std::move(socket))] {
          if (transports_[1] == nullptr) return;
          transports_[1]->Accept(PeerId(0), preamble, std::move(*fd));
        });
      });
  Connect();
}

void TcpRig::Connect() {
  key_ = absl::StrCat(kTcpTestKey, " of link ", ++links_);
  door_->SetKey(key_);
  for (int end : {1, 0}) {
    const int other = 1 - end;
    TcpPeer peer;
    peer.id = PeerId(static_cast<uint32_t>(other));
    peer.name = end == 0 ? "node-b" : "node-a";
    peer.secret = key_;
    if (end == 0) peer.address = door_->address();
    peer.devices = {GlobalDeviceId(static_cast<uint64_t>(other))};
    lane(end).RunAndWait([&] { transports_[end]->AddPeer(std::move(peer)); });
  }
}

void TcpRig::Disconnect(int end) {
  lane(end).RunAndWait([&] {
    transports_[end]->RemovePeer(
        PeerId(static_cast<uint32_t>(1 - end)),
        Error(absl::StatusCode::kAborted, Reason::kPeerUnreachable, "the link was lost"));
  });
}

TcpRig::~TcpRig() {
  door_.reset();
  for (auto& transport : transports_) transport.reset();
}

}  // namespace ferry
