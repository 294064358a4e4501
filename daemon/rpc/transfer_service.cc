// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "daemon/rpc/client_services.h"
#include "daemon/rpc/convert.h"
#include "daemon/rpc/status_proto.h"
#include "daemon/rpc/stream_output.h"
#include "ferry/v1/transfer.grpc.pb.h"

namespace ferry {
namespace {

constexpr int kMaxIds = 4096;
// How many of the last endings are looked through, on control.
constexpr uint64_t kRoutesKnown = 4096;

absl::Status TooManyIds(int count) {
  return Error(absl::StatusCode::kInvalidArgument, Reason::kBatchTooLarge,
               absl::StrCat(count, " transfer ids in one call, at most ", kMaxIds));
}

// The state of a transfer, for its session. NOT_FOUND if there never was one.
absl::Status Describe(RpcCore& core, const Session& session, uint64_t sequence, v1::Transfer* out) {
  out->set_transfer_id(sequence);
  if (!session.IsKnown(sequence)) {
    return Error(absl::StatusCode::kNotFound, Reason::kTransferNotFound,
                 absl::StrCat("transfer ", sequence, " was never posted by this session"));
  }
  if (std::optional<TransferRow> row =
          core.driver.engine().view().Find(MakeTransferId(session.id(), sequence))) {
    const absl::string_view state = row->state;
    out->set_state(state == "armed"      ? v1::TRANSFER_STATE_ARMED
                   : state == "launched" ? v1::TRANSFER_STATE_LAUNCHED
                   : state == "matched"  ? v1::TRANSFER_STATE_MATCHED
                                         : v1::TRANSFER_STATE_WAITING);
    out->set_route(static_cast<v1::Route>(row->route));
    return absl::OkStatus();
  }
  if (std::optional<JobTable::Row> job = core.jobs.Find(MakeTransferId(session.id(), sequence))) {
    out->set_state(job->prepared    ? v1::TRANSFER_STATE_ARMED
                   : job->running() ? v1::TRANSFER_STATE_LAUNCHED
                                    : v1::TRANSFER_STATE_MATCHED);
    return absl::OkStatus();
  }
  out->set_state(v1::TRANSFER_STATE_OVER);
  if (std::optional<absl::Status> failure = session.endings().FindFailure(sequence)) {
    ToProto(*failure, {}, out->mutable_status());
  } else if (sequence <= session.endings().forgotten_failures()) {
    ToProto(Error(absl::StatusCode::kNotFound, Reason::kTransferNotFound,
                  absl::StrCat(
                      "transfer ", sequence, " is over, but how it ended is not known: more than ",
                      session.limits().failures_kept, " failed since (limits.session_failures)")),
            {}, out->mutable_status());
  }
  return absl::OkStatus();
}

// Adds the routes of transfers that are over, if they are among the session's last endings.
void AddRoutes(const Session& session, v1::GetTransfersResponse& response) {
  std::vector<v1::Transfer*> over;
  for (v1::Transfer& transfer : *response.mutable_transfers()) {
    if (transfer.state() == v1::TRANSFER_STATE_OVER) over.push_back(&transfer);
  }
  const auto id = [](const v1::Transfer* transfer) { return transfer->transfer_id(); };
  std::sort(over.begin(), over.end(), [&](auto* a, auto* b) { return id(a) < id(b); });
  const uint64_t end = session.endings().next();
  const uint64_t first = std::max(session.endings().first(), end - std::min(end, kRoutesKnown));
  size_t left = over.size();
  for (uint64_t number = end; number > first && left > 0; --number) {
    const EndedTransfer& ended = session.endings().at(number - 1);
    auto found = std::lower_bound(over.begin(), over.end(), ended.sequence,
                                  [&](auto* a, uint64_t sequence) { return id(a) < sequence; });
    for (; found != over.end() && id(*found) == ended.sequence; ++found, --left) {
      (*found)->set_route(static_cast<v1::Route>(ended.route));
    }
  }
}

// WatchTransfers: control fills one response at a time from the events that the session keeps. So a
// slow reader costs only its position.
class WatchStream final : public grpc::ServerWriteReactor<v1::WatchTransfersResponse> {
 public:
  using Output = StreamOutput<v1::WatchTransfersResponse, grpc::Status>;

  WatchStream(RpcCore& core, const RpcCaller& caller, uint64_t after) : core_(core) {
    output_ = std::make_shared<Output>(
        [this](const v1::WatchTransfersResponse* message) { StartWrite(message); },
        [this](grpc::Status status) { Finish(status); });
    position_ = std::make_shared<Position>();
    core_.control.Post([&core = core_, output = output_, position = position_, caller, after] {
      absl::StatusOr<Session*> session = caller.Authenticate(core);
      if (!session.ok()) return output->Finish(ToGrpc(session.status()));
      position->session = (*session)->id();
      position->next = after == 0 ? (*session)->endings().first() : after + 1;
      position->watcher = (*session)->endings().AddWatcher(
          [&core, output, position] { More(core, output, position); });
      // gRPC sends the headers with the first message, so an empty one tells the reader that the
      // watch stands.
      v1::WatchTransfersResponse hello;
      hello.set_first_event((*session)->endings().next());
      output->Push(std::move(hello));
      More(core, output, position);
    });
  }
  void OnWriteDone(bool ok) override {
    output_->OnWriteDone(ok);
    core_.control.Post(
        [&core = core_, output = output_, position = position_] { More(core, output, position); });
  }
  void OnCancel() override { output_->Finish(grpc::Status::CANCELLED); }
  void OnDone() override {
    output_->Detach();
    core_.control.Post([&core = core_, position = position_] {
      Session* session = core.sessions.Find(position->session);
      if (session != nullptr && position->watcher != 0)
        session->endings().RemoveWatcher(position->watcher);
    });
    delete this;
  }

 private:
  static constexpr int kMaxEvents = 4096;
  struct Position {  // touched on control
    SessionId session;
    uint64_t watcher = 0;
    uint64_t next = 1;
  };

  static void More(RpcCore& core, const std::shared_ptr<Output>& output,
                   const std::shared_ptr<Position>& position) {
    Session* session = core.sessions.Find(position->session);
    if (session == nullptr || session->client_gone) return output->Finish(grpc::Status::OK);
    if (output->waiting() > 0) return;
    if (position->next < session->endings().first()) {
      return output->Finish(ToGrpc(Error(
          absl::StatusCode::kOutOfRange, Reason::kSlowConsumer,
          absl::StrCat("event ", position->next, " is no longer kept; the oldest is ",
                       session->endings().first(), "; ask GetTransfers for what was missed"))));
    }
    if (position->next >= session->endings().next()) return;
    v1::WatchTransfersResponse response;
    response.set_first_event(position->next);
    while (position->next < session->endings().next() && response.ended_size() < kMaxEvents) {
      const EndedTransfer& ended = session->endings().at(position->next++);
      v1::Transfer* out = response.add_ended();
      out->set_transfer_id(ended.sequence);
      out->set_state(v1::TRANSFER_STATE_OVER);
      out->set_route(static_cast<v1::Route>(ended.route));
      if (ended.ok) continue;
      ToProto(session->endings()
                  .FindFailure(ended.sequence)
                  .value_or(Error(absl::StatusCode::kUnknown, Reason::kTransferNotFound,
                                  "failed; why is no longer kept")),
              {}, out->mutable_status());
    }
    output->Push(std::move(response));
  }

  RpcCore& core_;
  std::shared_ptr<Output> output_;
  std::shared_ptr<Position> position_;
};

class TransferServiceImpl final : public v1::TransferService::CallbackService {
 public:
  explicit TransferServiceImpl(RpcCore& core) : core_(core) {}

  grpc::ServerUnaryReactor* CrossHostSend(grpc::CallbackServerContext* context,
                                          const v1::CrossHostSendRequest* request,
                                          v1::CrossHostSendResponse* response) override {
    return Post(context, Convert(*request), response);
  }
  grpc::ServerUnaryReactor* CrossHostReceive(grpc::CallbackServerContext* context,
                                             const v1::CrossHostReceiveRequest* request,
                                             v1::CrossHostReceiveResponse* response) override {
    return Post(context, Convert(*request), response);
  }
  grpc::ServerWriteReactor<v1::WatchTransfersResponse>* WatchTransfers(
      grpc::CallbackServerContext* context, const v1::WatchTransfersRequest* request) override {
    return new WatchStream(core_, RpcCaller::Of(*context, core_.connections),
                           request->after_event());
  }

  grpc::ServerUnaryReactor* CancelTransfers(grpc::CallbackServerContext* context,
                                            const v1::CancelTransfersRequest* request,
                                            v1::CancelTransfersResponse* response) override {
    return WithSession(context, [this, request, response](Session& session) -> absl::Status {
      if (request->transfer_ids_size() > kMaxIds) return TooManyIds(request->transfer_ids_size());
      for (const uint64_t id : request->transfer_ids()) {
        if (!session.IsKnown(id)) {
          return Error(absl::StatusCode::kNotFound, Reason::kTransferNotFound,
                       absl::StrCat("cancel: transfer ", id, " was never posted by this session"));
        }
      }
      const absl::Status why =
          request->has_poison()
              ? Error(absl::StatusCode::kAborted, Reason::kPoisoned,
                      absl::StrCat("poisoned by its client: ",
                                   request->poison().message().substr(0, 256)))
              : Error(absl::StatusCode::kCancelled, Reason::kCancelled, "cancelled by the client");
      const TransferDriver::CancelCounts counts = CancelOf(
          core_, session, {request->transfer_ids().begin(), request->transfer_ids().end()}, why);
      response->set_requested(counts.requested);
      response->set_over(counts.over);
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* GetTransfers(grpc::CallbackServerContext* context,
                                         const v1::GetTransfersRequest* request,
                                         v1::GetTransfersResponse* response) override {
    return WithSession(context, [this, request, response](Session& session) -> absl::Status {
      if (request->transfer_ids_size() > kMaxIds) return TooManyIds(request->transfer_ids_size());
      for (const uint64_t id : request->transfer_ids()) {
        if (absl::Status found = Describe(core_, session, id, response->add_transfers());
            !found.ok()) {
          return found;
        }
      }
      AddRoutes(session, *response);
      return absl::OkStatus();
    });
  }

 private:
  template <typename Response>
  grpc::ServerUnaryReactor* Post(grpc::CallbackServerContext* context, PostBatch batch,
                                 Response* response) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    core_.control.PostOrRun([this, reactor, response,
                             caller = RpcCaller::Of(*context, core_.connections),
                             batch = std::move(batch)]() mutable {
      absl::StatusOr<Session*> session = caller.Authenticate(core_);
      if (!session.ok()) return reactor->Finish(ToGrpc(session.status()));
      PostReply reply = core_.sessions.Post(**session, std::move(batch));
      response->set_first_transfer_id(reply.first_transfer_id);
      response->set_first_over_value(reply.first_over_value);
      response->set_prepared_batch(reply.prepared_batch);
      core_.later([reactor, reply = std::move(reply)] {
        reactor->Finish(ToGrpc(reply.status, reply.violations));
      });
    });
    return reactor;
  }

  // `act` runs on control. The request lives until the reactor is finished.
  template <typename F>
  grpc::ServerUnaryReactor* WithSession(grpc::CallbackServerContext* context, F act) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    core_.control.Post([this, reactor, act, caller = RpcCaller::Of(*context, core_.connections)] {
      absl::StatusOr<Session*> session = caller.Authenticate(core_);
      reactor->Finish(ToGrpc(session.ok() ? act(**session) : session.status()));
    });
    return reactor;
  }
  RpcCore& core_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeTransferService(RpcCore& core) {
  return std::make_unique<TransferServiceImpl>(core);
}

}  // namespace ferry
