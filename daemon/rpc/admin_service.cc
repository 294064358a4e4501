// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/admin_service.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/field_error.h"
#include "base/flight_recorder.h"
#include "base/log.h"
#include "base/status.h"
#include "base/version.h"
#include "daemon/rpc/activity.h"
#include "daemon/rpc/admin_rows.h"
#include "daemon/rpc/cluster_devices.h"
#include "daemon/rpc/convert.h"
#include "daemon/rpc/drain_call.h"
#include "daemon/rpc/operator_ends.h"
#include "daemon/rpc/status_proto.h"
#include "daemon/rpc/stream_output.h"
#include "ferry/admin/v1/admin.grpc.pb.h"
#include "transfer/engine_view.h"

namespace ferry {
namespace {

namespace pb = admin::v1;

template <typename Request>
Clique CliqueFrom(const Request& request) {
  return CliqueOf(GlobalDeviceId(request.device_id()), GlobalDeviceId(request.other_device_id()));
}

// The answer to an operation on an attempt.
template <typename Response>
absl::Status SetAttempt(const absl::StatusOr<uint32_t>& attempt, Response& response) {
  if (attempt.ok()) response.set_attempt(*attempt);
  return attempt.status();
}

// A stream of messages. `make` pushes them, on control, before the first is written.
template <typename Message>
class MadeStream final : public grpc::ServerWriteReactor<Message> {
 public:
  using Output = StreamOutput<Message, grpc::Status>;
  template <typename Make>
  MadeStream(Executor& control, Make make) {
    output_ =
        std::make_shared<Output>([this](const Message* message) { this->StartWrite(message); },
                                 [this](grpc::Status status) { this->Finish(status); });
    control.Post([output = output_, make] {
      make(*output);
      output->Finish(grpc::Status::OK);
    });
  }
  void OnWriteDone(bool ok) override { output_->OnWriteDone(ok); }
  void OnCancel() override { output_->Finish(grpc::Status::CANCELLED); }
  void OnDone() override {
    output_->Detach();
    delete this;
  }

 private:
  std::shared_ptr<Output> output_;
};

// 0 where there is no /proc.
uint64_t PidNamespace() {
  struct stat found = {};
  return stat("/proc/self/ns/pid", &found) == 0 ? found.st_ino : 0;
}

class AdminServiceImpl final : public pb::AdminService::CallbackService {
 public:
  explicit AdminServiceImpl(AdminCore& core) : core_(core) {}

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const pb::GetStatusRequest*,
                                      pb::GetStatusResponse* response) override {
    return OnControl(context, [this, response] {
      const TransferMetrics& metrics = core_.rpc.driver.metrics();
      response->set_node(core_.config.node.name);
      response->set_version(Version());
      response->set_incarnation(core_.incarnation.value());
      SetDuration(core_.rpc.control.Now() - core_.started, response->mutable_uptime());
      response->set_draining(core_.rpc.driver.draining());
      response->set_sessions(core_.rpc.sessions.open());
      response->set_transfers_in_flight(core_.rpc.driver.engine().view().in_flight());
      response->set_transfers_ok(metrics.ok());
      response->set_transfers_failed(metrics.failed());
      response->set_bytes_received(metrics.bytes_received());
      const absl::Time now = core_.rpc.control.Now();
      for (const PeerTable::Row& row : core_.peers.List()) {
        SetPeer(row, now, response->add_peers());
      }
      response->set_ucx(core_.ucx);
      response->set_gpus(core_.gpus);
      response->set_nccl(core_.nccl);
      response->set_programs(core_.programs);
      for (std::string& variable : NcclEnvironment()) {
        response->add_nccl_environment(std::move(variable));
      }
      response->set_log_level(LogLevel());
      response->set_pid(static_cast<uint64_t>(getpid()));
      response->set_config_generation(core_.config_generation());
      response->set_peer_listen(core_.config.peer.listen);
      response->set_metrics_listen(core_.config.metrics.listen);
      response->set_pid_namespace(PidNamespace());
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* ListDevices(grpc::CallbackServerContext* context,
                                        const pb::ListDevicesRequest*,
                                        pb::ListDevicesResponse* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    core_.rpc.control.Post([this, reactor, response] {
      for (const ClusterDevice& device :
           ListClusterDevices(core_.devices, core_.peers, core_.config.node.name)) {
        pb::ClusterDevice* out = response->add_devices();
        ToProto(device, out);
        if (device.own != nullptr) SetOwn(*device.own, out);
      }
      AskGpus(reactor, response, 0);
    });
    return reactor;
  }

  grpc::ServerUnaryReactor* ReleaseDevice(grpc::CallbackServerContext* context,
                                          const pb::ReleaseDeviceRequest* request,
                                          pb::ReleaseDeviceResponse*) override {
    return OnGpu(context, request->global_device_id(), [](LocalDevice& device) {
      absl::Status released = OfField(device.gpu->Release(), "global_device_id");
      if (released.ok()) {
        FERRY_LOG(info, "gpu.released", LogFields("device", device.id),
                  "an operator took it: arenas on it are refused until it is reclaimed");
      }
      return released;
    });
  }

  grpc::ServerUnaryReactor* ReclaimDevice(grpc::CallbackServerContext* context,
                                          const pb::ReclaimDeviceRequest* request,
                                          pb::ReclaimDeviceResponse*) override {
    return OnGpu(context, request->global_device_id(), [](LocalDevice& device) {
      device.gpu->Reclaim();
      FERRY_LOG(info, "gpu.reclaimed", LogFields("device", device.id),
                "an operator gave it back: there may be arenas on it again");
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* ListSessions(grpc::CallbackServerContext* context,
                                         const pb::ListSessionsRequest*,
                                         pb::ListSessionsResponse* response) override {
    return OnControl(context, [this, response] {
      const absl::Time now = core_.rpc.control.Now();
      std::map<SessionId, RunTime> running;
      for (const JobTable::Row& row : core_.rpc.jobs.List(core_.rpc.jobs.in_flight())) {
        running[SessionOf(row.job)] += row.run_time;
      }
      for (const Session* session : core_.rpc.sessions.List()) {
        SetSession(*session, running[session->id()], now, response->add_sessions());
      }
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* GetActivity(grpc::CallbackServerContext* context,
                                        const pb::GetActivityRequest* request,
                                        pb::GetActivityResponse* response) override {
    const size_t limit = request->limit() == 0 ? 1000 : request->limit();
    return OnControl(context, [this, limit, response] {
      SetActivity(core_, limit, response);
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* ListTransfers(grpc::CallbackServerContext* context,
                                          const pb::ListTransfersRequest* request,
                                          pb::ListTransfersResponse* response) override {
    const size_t limit = request->limit() == 0 ? 1000 : request->limit();
    return OnControl(context, [this, limit, response] {
      const EngineView& transfers = core_.rpc.driver.engine().view();
      const absl::Time now = core_.rpc.control.Now();
      for (const TransferRow& row : transfers.List(limit)) {
        SetTransfer(row, now, core_.rpc.sessions, response->add_transfers());
      }
      response->set_total(transfers.in_flight());
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const pb::ListJobsRequest* request,
                                     pb::ListJobsResponse* response) override {
    const size_t limit = request->limit() == 0 ? 1000 : request->limit();
    return OnControl(context, [this, limit, response] {
      SetJobs(core_.rpc.jobs, core_.rpc.control.Now(), limit, response);
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* ListBarredPrograms(grpc::CallbackServerContext* context,
                                               const pb::ListBarredProgramsRequest*,
                                               pb::ListBarredProgramsResponse* response) override {
    for (const BarredProgram& program : core_.barred.List()) {
      SetBarred(program, response->add_programs());
    }
    return Finish(context, absl::OkStatus());
  }

  // Writes a file of at most 256 short lines, here on gRPC's thread: control must not wait for it.
  grpc::ServerUnaryReactor* ReleasePrograms(grpc::CallbackServerContext* context,
                                            const pb::ReleaseProgramsRequest* request,
                                            pb::ReleaseProgramsResponse* response) override {
    return Finish(context, Release(core_.barred, *request, response));
  }

  grpc::ServerUnaryReactor* ListMembers(grpc::CallbackServerContext* context,
                                        const pb::ListMembersRequest* request,
                                        pb::ListMembersResponse* response) override {
    const size_t limit = request->limit() == 0 ? 1000 : request->limit();
    return OnControl(context, [this, limit, response] {
      SetMembers(core_.rpc.driver, core_.rpc.control.Now(), limit, response);
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* ExplainRoute(grpc::CallbackServerContext* context,
                                         const pb::ExplainRouteRequest* request,
                                         pb::ExplainRouteResponse* response) override {
    const GlobalDeviceId source(request->src_global_device_id());
    const GlobalDeviceId destination(request->dst_global_device_id());
    const auto explain = [this, source, destination, bytes = request->bytes(),
                          response]() -> absl::Status {
      response->Clear();
      ASSIGN_OR_RETURN(const std::vector<RouteOption> options,
                       core_.rpc.driver.engine().view().Explain(core_.rpc.control.Now(), source,
                                                                destination, bytes));
      for (const RouteOption& option : options) {
        pb::RouteOption* out = response->add_options();
        out->set_route(static_cast<v1::Route>(option.route));
        out->set_available(option.available);
        out->set_reason(option.reason);
        if (option.route == Route::kUcx && option.available) {
          for (const GlobalDeviceId device : {source, destination}) {
            const std::string way = core_.peers.UcxWay(device);
            if (way.empty()) continue;
            absl::StrAppend(out->mutable_reason(), "; at device ", device.value(), " ", way);
          }
        }
        if (option.time) SetDuration(*option.time, out->mutable_estimate());
        if (option.latency) SetDuration(*option.latency, out->mutable_latency());
        out->set_bytes_per_second(option.bytes_per_second.value_or(0));
        out->set_measured(option.measured);
        out->set_sms_busy(option.sms_busy);
        if (option.chosen) response->set_chosen(static_cast<v1::Route>(option.route));
      }
      return absl::OkStatus();
    };
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    core_.rpc.control.Post([this, source, destination, reactor, explain] {
      if (absl::Status refused = explain(); !refused.ok()) return reactor->Finish(ToGrpc(refused));
      // A link that nobody has wanted yet is not open; which routes can be had is known once it is.
      core_.peers.WhenTried(source, [this, destination, reactor, explain] {
        core_.peers.WhenTried(destination,
                              [reactor, explain] { reactor->Finish(ToGrpc(explain())); });
      });
    });
    return reactor;
  }

  grpc::ServerUnaryReactor* ListComms(grpc::CallbackServerContext* context,
                                      const pb::ListCommsRequest*,
                                      pb::ListCommsResponse* response) override {
    return OnControl(context, [this, response] {
      const absl::Time now = core_.rpc.control.Now();
      for (const CommRow& row : core_.rpc.driver.comms().cache().List()) {
        SetComm(row, now, response->add_comms());
      }
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* WarmComm(grpc::CallbackServerContext* context,
                                     const pb::WarmCommRequest* request,
                                     pb::WarmCommResponse*) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    core_.rpc.control.Post([this, reactor, clique = CliqueFrom(*request)] {
      core_.peers.WhenTried(clique.low, [this, reactor, clique] {
        core_.peers.WhenTried(clique.high, [this, reactor, clique] {
          reactor->Finish(ToGrpc(core_.rpc.driver.WarmComm(clique)));
        });
      });
    });
    return reactor;
  }

  grpc::ServerUnaryReactor* EvictComm(grpc::CallbackServerContext* context,
                                      const pb::EvictCommRequest* request,
                                      pb::EvictCommResponse* response) override {
    return OnControl(context, [this, response, clique = CliqueFrom(*request)] {
      return SetAttempt(core_.rpc.driver.EvictComm(clique), *response);
    });
  }

  grpc::ServerUnaryReactor* AbortComm(grpc::CallbackServerContext* context,
                                      const pb::AbortCommRequest* request,
                                      pb::AbortCommResponse* response) override {
    const uint32_t attempt = request->attempt();
    return OnControl(context, [this, response, attempt, clique = CliqueFrom(*request)] {
      return SetAttempt(core_.rpc.driver.AbortComm(clique, attempt), *response);
    });
  }

  grpc::ServerWriteReactor<pb::DumpResponse>* Dump(grpc::CallbackServerContext*,
                                                   const pb::DumpRequest*) override {
    return new MadeStream<pb::DumpResponse>(core_.rpc.control, [this](auto& output) {
      const std::string text = core_.dump();
      constexpr size_t kChunk = 64 << 10;
      for (size_t at = 0, size; at < text.size(); at += size) {
        size = std::min(kChunk, text.size() - at);
        // Cuts between characters: a chunk that is not valid text could not be parsed.
        while (at + size < text.size() && (text[at + size] & 0xc0) == 0x80) --size;
        pb::DumpResponse response;
        response.set_chunk(text.substr(at, size));
        output.Push(std::move(response));
      }
    });
  }

  grpc::ServerWriteReactor<pb::GetFlightResponse>* GetFlight(grpc::CallbackServerContext*,
                                                             const pb::GetFlightRequest*) override {
    return new MadeStream<pb::GetFlightResponse>(core_.rpc.control,
                                                 [this](auto& output) { PushFlight(output); });
  }

  grpc::ServerUnaryReactor* CancelTransfers(grpc::CallbackServerContext* context,
                                            const pb::CancelTransfersRequest* request,
                                            pb::CancelTransfersResponse* response) override {
    return OnControl(context,
                     [this, request, response] { return Cancel(core_.rpc, *request, response); });
  }

  grpc::ServerUnaryReactor* CloseSession(grpc::CallbackServerContext* context,
                                         const pb::CloseSessionRequest* request,
                                         pb::CloseSessionResponse* response) override {
    return OnControl(context,
                     [this, request, response] { return Close(core_.rpc, *request, response); });
  }

  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext*, const pb::DrainRequest* request,
                                  pb::DrainResponse* response) override {
    std::optional<absl::Duration> timeout;
    if (request->has_deadline()) {
      timeout = absl::Seconds(request->deadline().seconds()) +
                absl::Nanoseconds(request->deadline().nanos());
    }
    return new DrainCall(core_, timeout, response);
  }

  grpc::ServerUnaryReactor* Undrain(grpc::CallbackServerContext* context, const pb::UndrainRequest*,
                                    pb::UndrainResponse*) override {
    return OnControl(context, [this] { return core_.undrain(); });
  }

  grpc::ServerUnaryReactor* Reload(grpc::CallbackServerContext* context,
                                   const pb::ReloadRequest* request,
                                   pb::ReloadResponse* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    if (!request->wait()) {
      core_.reload([](const absl::StatusOr<Reloaded>&) {});
      reactor->Finish(grpc::Status::OK);
      return reactor;
    }
    core_.reload([reactor, response](const absl::StatusOr<Reloaded>& outcome) {
      if (outcome.ok()) SetReloaded(*outcome, response);
      reactor->Finish(ToGrpc(outcome.status()));
    });
    return reactor;
  }

  grpc::ServerUnaryReactor* SetLogLevel(grpc::CallbackServerContext* context,
                                        const pb::SetLogLevelRequest* request,
                                        pb::SetLogLevelResponse*) override {
    return Finish(context, ::ferry::SetLogLevel(request->level()));
  }

 private:
  // Sends pieces of a few hundred kilobytes, however much is in flight.
  template <typename Output>
  void PushFlight(Output& output) {
    constexpr size_t kPiece = 1000;
    constexpr size_t kAll = std::numeric_limits<size_t>::max();
    pb::GetFlightResponse piece;
    const auto push_if_full = [&](size_t rows) {
      if (rows % kPiece == 0) output.Push(std::exchange(piece, {}));
    };
    piece.set_node(core_.config.node.name);
    piece.set_version(Version());
    piece.set_incarnation(core_.incarnation.value());
    SetTime(absl::Now(), piece.mutable_taken());
    for (const auto& device : core_.devices.list) piece.add_global_device_ids(device->id.value());
    const std::vector<PeerTable::Row> peers = core_.peers.List();
    const absl::Time now = core_.rpc.control.Now();
    for (const PeerTable::Row& row : peers) SetPeer(row, now, piece.add_peers());
    const EngineView& transfers = core_.rpc.driver.engine().view();
    size_t rows = 0;
    for (const TransferRow& row : transfers.List(kAll)) {
      SetTransfer(row, now, core_.rpc.sessions, piece.add_transfers());
      push_if_full(++rows);
    }
    for (const WaitingOfferRow& offer : transfers.ListOffers(kAll)) {
      pb::OfferRow* out = piece.add_offers();
      out->set_node(offer.node);
      out->set_session_id(SessionOf(offer.transfer).value());
      out->set_transfer_id(SequenceOf(offer.transfer));
      SetKey(offer.key, out);
      out->set_bytes(offer.bytes);
      push_if_full(++rows);
    }
    for (const FlightRecorder::Entry& event : FlightRecorder::Get().Snapshot()) {
      SetEvent(event, piece.add_events());
      push_if_full(++rows);
    }
    output.Push(std::move(piece));
  }

  // Asks NVML, or else the driver, on the memory threads, one GPU after the other. Finishes the
  // call with the last.
  void AskGpus(grpc::ServerUnaryReactor* reactor, pb::ListDevicesResponse* response, int next) {
    for (; next < response->devices_size(); ++next) {
      pb::ClusterDevice* out = response->mutable_devices(next);
      LocalDevice* device = core_.devices.Find(GlobalDeviceId(out->device().global_device_id()));
      if (device == nullptr || device->gpu == nullptr) continue;
      device->memory->Post([this, reactor, response, next, out, device] {
        SetAsked(*device, core_.devices, core_.nvml, out);
        AskGpus(reactor, response, next + 1);
      });
      return;
    }
    reactor->Finish(grpc::Status::OK);
  }

  // The part that blocks, on the GPU's memory thread. A refusal names the holders, which control
  // knows.
  grpc::ServerUnaryReactor* OnGpu(grpc::CallbackServerContext* context, uint64_t id,
                                  std::function<absl::Status(LocalDevice&)> act) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    LocalDevice* const device = core_.devices.Find(GlobalDeviceId(id));
    if (device == nullptr || device->gpu == nullptr) {
      reactor->Finish(
          ToGrpc(Error(absl::StatusCode::kNotFound, Reason::kDeviceUnknown,
                       absl::StrCat("device ", id, " is not a GPU of ", core_.config.node.name,
                                    ", which has the devices ", core_.devices.Shown()))));
      return reactor;
    }
    device->memory->Post([this, reactor, device, act] {
      const absl::Status done = act(*device);
      if (done.ok()) return reactor->Finish(grpc::Status::OK);
      core_.rpc.control.Post([this, reactor, device, done] {
        reactor->Finish(
            ToGrpc(WithText(done, absl::StrCat(done.message(), "; largest holders: ",
                                               core_.rpc.sessions.all().LargestHolders(device)))));
      });
    });
    return reactor;
  }

  static grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context,
                                          const absl::Status& status) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(ToGrpc(status));
    return reactor;
  }

  template <typename F>
  grpc::ServerUnaryReactor* OnControl(grpc::CallbackServerContext* context, F act) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    core_.rpc.control.Post([reactor, act] { reactor->Finish(ToGrpc(act())); });
    return reactor;
  }
  AdminCore& core_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeAdminService(AdminCore& core) {
  return std::make_unique<AdminServiceImpl>(core);
}

}  // namespace ferry
