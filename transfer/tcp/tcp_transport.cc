// SPDX-License-Identifier: Apache-2.0
#include "transfer/tcp/tcp_transport.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "transfer/tcp/tcp_state.h"

namespace ferry {
namespace {

constexpr int kEventsAtOnce = 64;

}  // namespace

TcpTransport::Impl::Turn::Turn(Op& op)
    : Item(SessionOf(op.op.transfer).value(), op.op.priority, op.bytes()), op(op) {}

TcpTransport::Impl::Op::Op(TransportOp launched)
    : op(std::move(launched)), memory(absl::MakeConstSpan(op.segments)) {}

void TcpTransport::Impl::SetUp() {
  epoll.Reset(epoll_create1(EPOLL_CLOEXEC));
  timer.Reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  FERRY_CHECK(epoll.valid() && timer.valid());
  epoll_event event = {};
  event.events = EPOLLIN;
  FERRY_CHECK(epoll_ctl(epoll.get(), EPOLL_CTL_ADD, timer.get(), &event) == 0);
  lane.AddPoller(this);
}

void TcpTransport::Impl::TakeDown() {
  const absl::Status why =
      Error(absl::StatusCode::kAborted, Reason::kDraining, "tcp: the lane is being taken down");
  for (auto& [key, link] : links) {
    EndOps(*link, why);
    CloseSet(*link);
  }
  while (!chunks.empty()) staging->Poll();
  lane.RemovePoller(this);
  FERRY_CHECK(ops.empty());
  Answer();
}

absl::Status TcpTransport::Impl::OpError(absl::StatusCode code, Reason reason,
                                         const TransportOp& op, absl::string_view why) const {
  const bool receive = op.role == LaunchRole::kReceive;
  return Error(
      code, reason,
      absl::StrCat(receive ? "receiving " : "sending ", op.transfer.ToString(),
                   receive ? " from " : " to ", op.remote_device.ToString(), " by tcp: ", why));
}

void TcpTransport::Impl::Refuse(const TransportOp& op, absl::Status why) {
  results.push_back({op.transfer, op.attempt, std::move(why)});
}

void TcpTransport::Impl::Start(TransportOp launched) {
  FERRY_CHECK(launched.role != LaunchRole::kCopy);
  DeviceLink* const link = Find(launched.peer, launched.remote_device);
  if (link == nullptr) {
    return Refuse(launched, OpError(absl::StatusCode::kAborted, Reason::kPeerUnreachable, launched,
                                    "the link with its daemon was lost"));
  }
  const bool receive = launched.role == LaunchRole::kReceive;
  if (link->state == DeviceLink::State::kClosed && MonotonicNow() < link->retry_at) {
    return Refuse(launched, link->refused);
  }
  if (link->tags[receive].contains(launched.tag)) {
    return Refuse(launched, OpError(absl::StatusCode::kInternal, Reason::kProtocolError, launched,
                                    absl::StrCat("its tag ", launched.tag, " is in use")));
  }
  const OpKey key{launched.transfer, launched.attempt};
  const auto [place, fresh] = ops.try_emplace(key, std::make_unique<Op>(std::move(launched)));
  FERRY_CHECK(fresh);
  Op& op = *place->second;
  op.link = link;
  ++link->ops;
  link->tags[receive].emplace(op.op.tag, &op);
  if (op.op.prepared) {
    Join(op);
  } else {
    ++active;
    if (op.bytes() == 0) return End(op, absl::OkStatus());
    if (!receive) Enqueue(op);
  }
  if (link->state == DeviceLink::State::kClosed) OpenSet(*link);  // may end the op
}

void TcpTransport::Impl::End(Op& op, absl::Status status) {
  if (std::exchange(op.ended, true)) return;
  op.status = std::move(status);
  DeviceLink& link = *op.link;
  link.tags[op.receive()].erase(op.op.tag);
  --link.ops;
  if (op.bundle != nullptr) {
    Leave(op);
  } else {
    --active;
  }
  if (op.turn && op.turn->waiting()) link.queues[op.small()].Remove(*op.turn);
  for (std::unique_ptr<Chunk>& chunk : link.ready[op.small()]) {
    if (chunk->op == &op) GiveBack(std::move(chunk));
  }
  std::erase(link.ready[op.small()], nullptr);
  for (const auto& connection : link.connections) {
    LetGo(connection->out, op);
    for (Incoming::Part& part : connection->in.parts) {
      if (part.chunk != nullptr && part.chunk->op == &op) part.chunk->op = nullptr;
    }
  }
  AnswerIfQuiet(op);
}

void TcpTransport::Impl::AnswerIfQuiet(Op& op) {
  if (!op.ended || op.copying > 0) return;
  results.push_back({op.op.transfer, op.op.attempt, std::move(op.status)});
  ops.erase(OpKey{op.op.transfer, op.op.attempt});
}

void TcpTransport::Impl::Answer() {
  if (!results.empty()) hooks.sink(std::exchange(results, {}));
}

void TcpTransport::Impl::MarkDue(Connection& connection) {
  if (connection.link.state != DeviceLink::State::kOpen || std::exchange(connection.due, true))
    return;
  due.push_back(&connection);
}

void TcpTransport::Impl::MarkDue(DeviceLink& link, bool small) {
  if (link.state != DeviceLink::State::kOpen) return;
  if (small) return MarkDue(*link.connections.front());
  for (size_t i = 1; i < link.connections.size(); ++i) MarkDue(*link.connections[i]);
}

bool TcpTransport::Impl::Serve(Connection& connection) {
  connection.due = false;
  bool any = false;
  if (connection.readable && !connection.waiting) any |= Read(connection);
  if (connection.state != Connection::State::kOpen) return true;  // it has ended meanwhile
  if (connection.writable && HasMore(connection)) any |= Write(connection);
  if (connection.state != Connection::State::kOpen) return true;
  const bool reads = connection.readable && !connection.waiting;
  if (reads || (connection.writable && HasMore(connection))) MarkDue(connection);
  return any;
}

bool TcpTransport::Impl::Poll() {
  bool any = false;
  epoll_event events[kEventsAtOnce];
  const int count = epoll_wait(epoll.get(), events, kEventsAtOnce, 0);
  for (int i = 0; i < count; ++i) {
    any = true;
    if (events[i].data.ptr == nullptr) {
      OnTimer();
    } else {
      OnEvent(*static_cast<Connection*>(events[i].data.ptr), events[i].events);
    }
  }
  for (size_t i = 0; i < bundles.size(); ++i) any |= Advance(*bundles[i]);
  for (Connection* const connection : std::exchange(starved, {})) {
    connection->waiting = false;
    connection->readable = true;
    MarkDue(*connection);
  }
  for (size_t left = wanting.size(); left > 0; --left) {
    DeviceLink& link = *wanting.front();
    wanting.pop_front();
    link.wanting = false;
    any |= Stage(link);
  }
  for (Connection* const connection : std::exchange(due, {})) {
    if (connection->due) any |= Serve(*connection);
  }
  any |= !results.empty();
  Answer();
  closed.clear();
  return any;
}

bool TcpTransport::Impl::PrepareToPark() {
  return due.empty() && results.empty() && closed.empty() &&
         std::none_of(bundles.begin(), bundles.end(),
                      [this](const auto& bundle) { return Ready(*bundle); });
}

std::unique_ptr<TcpTransport> TcpTransport::Create(Lane& lane, GlobalDeviceId device,
                                                   Options options, Hooks hooks,
                                                   GpuStaging* staging) {
  auto impl = std::make_unique<Impl>(lane, device, options, std::move(hooks), staging);
  lane.RunAndWait([&] { impl->SetUp(); });
  return std::unique_ptr<TcpTransport>(new TcpTransport(std::move(impl)));
}

TcpTransport::TcpTransport(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

TcpTransport::~TcpTransport() {
  impl_->lane.RunAndWait([this] { impl_->TakeDown(); });
  impl_->lane.RunAndWait([] {});  // what was posted to look at a tag again
}

void TcpTransport::Launch(std::vector<TransportOp> ops) {
  FERRY_CHECK(impl_->lane.IsCurrent());
  for (TransportOp& op : ops) impl_->Start(std::move(op));
}

void TcpTransport::Abort(TransferId transfer, uint32_t attempt, const absl::Status& why) {
  FERRY_CHECK(impl_->lane.IsCurrent());
  const auto found = impl_->ops.find(Impl::OpKey{transfer, attempt});
  if (found == impl_->ops.end()) return;
  Impl::Op& op = *found->second;
  // The destination may have let go before: what it has done by then counts at this end too.
  if (op.op.prepared && !op.receive() && op.link->state == Impl::DeviceLink::State::kOpen) {
    Impl::Connection& connection = *op.link->connections.front();
    connection.readable = true;
    impl_->Read(connection);
    if (!impl_->ops.contains(Impl::OpKey{transfer, attempt})) return;
  }
  impl_->End(op, why);
}

}  // namespace ferry
