// SPDX-License-Identifier: Apache-2.0
#include "transfer/tcp/tcp_transport.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "transfer/tcp/tcp_state.h"

namespace ferry {

absl::StatusOr<TcpAddress> TcpAddress::Parse(absl::string_view text) {
  const size_t colon = text.rfind(':');
  TcpAddress address;
  uint32_t port = 0;
  if (colon != absl::string_view::npos && absl::SimpleAtoi(text.substr(colon + 1), &port) &&
      port <= 65535) {
    std::string host(text.substr(0, colon));
    auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
    if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
      v4->sin_family = AF_INET;
      v4->sin_port = htons(static_cast<uint16_t>(port));
      address.size = sizeof(*v4);
      return address;
    }
    if (host.size() > 2 && host.front() == '[' && host.back() == ']' &&
        inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &v6->sin6_addr) == 1) {
      v6->sin6_family = AF_INET6;
      v6->sin6_port = htons(static_cast<uint16_t>(port));
      address.size = sizeof(*v6);
      return address;
    }
  }
  return Error(absl::StatusCode::kInvalidArgument, Reason::kRouteUnavailable,
               absl::StrCat("'", text, "' is no address of a host and a port"));
}

void TcpTransport::Impl::TakeDown() {
  sets.CloseAll(
      Error(absl::StatusCode::kAborted, Reason::kDraining, "tcp: the lane is being taken down"));
  staging.Finish();
  lane.RemovePoller(this);
  FERRY_CHECK(ops.empty());
  ops.Answer();
}

void TcpTransport::Impl::Start(TransportOp launched) {
  FERRY_CHECK(launched.role != LaunchRole::kCopy);
  TcpDeviceLink* const link = sets.Find(launched.peer, launched.remote_device);
  if (link == nullptr) {
    return ops.Refuse(
        launched, TcpOps::OpError(absl::StatusCode::kAborted, Reason::kPeerUnreachable, launched,
                                  "the link with its daemon was lost"));
  }
  if (link->state == TcpDeviceLink::State::kClosed && MonotonicNow() < link->retry_at) {
    return ops.Refuse(launched, link->refused);
  }
  TcpOp* const op = ops.Add(std::move(launched), *link);
  if (op == nullptr) return;
  if (op->op.prepared) {
    firings.Join(*op);
  } else if (op->bytes() == 0) {
    return ops.End(*op, absl::OkStatus());
  } else if (!op->receive()) {
    sends.Enqueue(*op);
  }
  if (link->state == TcpDeviceLink::State::kClosed) sets.Open(*link);  // may end the op
}

bool TcpTransport::Impl::Serve(TcpConnection& connection) {
  connection.due = false;
  bool any = false;
  if (connection.readable && !connection.waiting) any |= receives.Read(connection);
  if (connection.state != TcpConnection::State::kOpen) return true;  // it has ended meanwhile
  if (connection.writable && sends.HasMore(connection)) any |= sends.Write(connection);
  if (connection.state != TcpConnection::State::kOpen) return true;
  const bool reads = connection.readable && !connection.waiting;
  if (reads || (connection.writable && sends.HasMore(connection))) due.Mark(connection);
  return any;
}

bool TcpTransport::Impl::Poll() {
  bool any = sets.Poll();
  any |= firings.Poll();
  due.FeedStarved();
  any |= sends.Stage();
  for (TcpConnection* const connection : due.Take()) {
    if (connection->due) any |= Serve(*connection);
  }
  any |= ops.has_answers();
  ops.Answer();
  sets.DropClosed();
  return any;
}

bool TcpTransport::Impl::PrepareToPark() {
  return due.empty() && !ops.has_answers() && !sets.has_closed() && !bundles.AnyReady();
}

std::unique_ptr<TcpTransport> TcpTransport::Create(Lane& lane, GlobalDeviceId device,
                                                   Options options, Hooks hooks,
                                                   GpuStaging* staging) {
  auto impl = std::make_unique<Impl>(lane, device, options, std::move(hooks), staging);
  lane.RunAndWait([&] { lane.AddPoller(impl.get()); });
  return std::unique_ptr<TcpTransport>(new TcpTransport(std::move(impl)));
}

TcpTransport::TcpTransport(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

TcpTransport::~TcpTransport() {
  impl_->lane.RunAndWait([this] { impl_->TakeDown(); });
  impl_->lane.RunAndWait([] {});  // what was posted to look at a tag again
}

void TcpTransport::AddPeer(TcpPeer peer) {
  FERRY_CHECK(impl_->lane.IsCurrent());
  impl_->sets.AddPeer(peer);
}

void TcpTransport::RemovePeer(PeerId peer, const absl::Status& why) {
  FERRY_CHECK(impl_->lane.IsCurrent());
  impl_->sets.RemovePeer(peer, why);
}

void TcpTransport::Open(PeerId peer, GlobalDeviceId device) {
  FERRY_CHECK(impl_->lane.IsCurrent());
  TcpDeviceLink* const link = impl_->sets.Find(peer, device);
  if (link != nullptr && link->state == TcpDeviceLink::State::kClosed) impl_->sets.Open(*link);
}

void TcpTransport::Accept(PeerId peer, const TcpPreamble& preamble, UniqueFd socket) {
  FERRY_CHECK(impl_->lane.IsCurrent());
  impl_->sets.Accept(peer, preamble, std::move(socket));
}

void TcpTransport::Launch(std::vector<TransportOp> ops) {
  FERRY_CHECK(impl_->lane.IsCurrent());
  for (TransportOp& op : ops) impl_->Start(std::move(op));
}

void TcpTransport::Abort(TransferId transfer, uint32_t attempt, const absl::Status& why) {
  FERRY_CHECK(impl_->lane.IsCurrent());
  TcpOp* op = impl_->ops.Find(transfer, attempt);
  if (op == nullptr || op->ended) return;  // an ended one may have outlived its link
  // The destination may have let go before: what it has done by then counts at this end too.
  if (op->op.prepared && !op->receive() && op->link->state == TcpDeviceLink::State::kOpen) {
    TcpConnection& connection = *op->link->connections.front();
    connection.readable = true;
    impl_->receives.Read(connection);
    op = impl_->ops.Find(transfer, attempt);
    if (op == nullptr) return;
  }
  impl_->ops.End(*op, why);
}

}  // namespace ferry
