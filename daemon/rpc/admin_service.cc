// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/admin_service.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "daemon/rpc/status_proto.h"
#include "daemon/rpc/stream_output.h"
#include "ferry/admin/v1/admin.grpc.pb.h"

namespace ferry {
namespace {

namespace pb = admin::v1;

void SetDuration(absl::Duration duration, google::protobuf::Duration* out) {
  absl::Duration rest;
  out->set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &rest));
  out->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
}

// Dump: chunks that were all made before the first is written.
class DumpStream final : public grpc::ServerWriteReactor<pb::DumpResponse> {
 public:
  using Output = StreamOutput<pb::DumpResponse, grpc::Status>;
  explicit DumpStream(AdminCore& core) {
    output_ =
        std::make_shared<Output>([this](const pb::DumpResponse* message) { StartWrite(message); },
                                 [this](grpc::Status status) { Finish(status); });
    core.rpc.control.Post([&core, output = output_] {
      const std::string text = core.dump();
      constexpr size_t kChunk = 64 << 10;
      for (size_t at = 0; at < text.size(); at += kChunk) {
        pb::DumpResponse response;
        response.set_chunk(text.substr(at, kChunk));
        output->Push(std::move(response));
      }
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

class AdminServiceImpl final : public pb::AdminService::CallbackService {
 public:
  explicit AdminServiceImpl(AdminCore& core) : core_(core) {}

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const pb::GetStatusRequest*,
                                      pb::GetStatusResponse* response) override {
    return OnControl(context, [this, response] {
      const TransferMetrics& metrics = core_.rpc.driver.metrics();
      response->set_node(core_.config.node.name);
      response->set_version(FERRY_VERSION);
      response->set_incarnation(core_.incarnation.value());
      SetDuration(core_.rpc.control.Now() - core_.started, response->mutable_uptime());
      response->set_draining(core_.rpc.driver.draining());
      response->set_sessions(core_.rpc.sessions.open());
      response->set_transfers_in_flight(core_.rpc.driver.engine().in_flight());
      response->set_transfers_ok(metrics.ok());
      response->set_transfers_failed(metrics.failed());
      response->set_bytes_received(metrics.bytes_received());
      for (const PeerTable::Row& row : core_.peers.List()) {
        pb::Peer* peer = response->add_peers();
        peer->set_node(row.node);
        peer->set_address(row.address);
        peer->set_state(row.state);
        peer->set_incarnation(row.incarnation.value());
        peer->set_error(row.error);
        peer->set_mapped(row.mapped);
        for (const GlobalDeviceId id : row.devices) peer->add_global_device_ids(id.value());
      }
      response->set_ucx(core_.ucx);
      response->set_log_level(LogLevel());
      response->set_pid(static_cast<uint64_t>(getpid()));
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* ListDevices(grpc::CallbackServerContext* context,
                                        const pb::ListDevicesRequest*,
                                        pb::ListDevicesResponse* response) override {
    return OnControl(context, [this, response] {
      for (const auto& device : core_.devices.list) {
        pb::ClusterDevice* out = response->add_devices();
        SetDevice(device->id, device->name, out);
        out->set_node(core_.config.node.name);
        out->set_local(true);
        out->set_arenas(device->arenas);
        out->set_arena_bytes(device->arena_bytes);
      }
      for (const PeerTable::Row& row : core_.peers.List()) {
        for (size_t i = 0; i < row.devices.size(); ++i) {
          pb::ClusterDevice* out = response->add_devices();
          SetDevice(row.devices[i], absl::StrCat("host", i), out);
          out->set_node(row.node);
        }
      }
      std::sort(response->mutable_devices()->begin(), response->mutable_devices()->end(),
                [](const pb::ClusterDevice& a, const pb::ClusterDevice& b) {
                  return a.device().global_device_id() < b.device().global_device_id();
                });
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* ListSessions(grpc::CallbackServerContext* context,
                                         const pb::ListSessionsRequest*,
                                         pb::ListSessionsResponse* response) override {
    return OnControl(context, [this, response] {
      const absl::Time now = core_.rpc.control.Now();
      for (const Session* session : core_.rpc.sessions.List()) {
        pb::Session* out = response->add_sessions();
        const SessionUse use = session->use();
        out->set_session_id(session->id().value());
        out->set_name(session->name());
        out->set_pid(session->credentials().pid);
        out->set_uid(session->credentials().uid);
        SetDuration(now - session->opened(), out->mutable_age());
        out->set_arenas(use.arenas);
        out->set_bytes(use.bytes);
        out->set_transfers_in_flight(use.transfers_in_flight);
        out->set_transfers_ok(session->transfers_ok());
        out->set_transfers_failed(session->transfers_failed());
        out->set_closing(session->closing);
      }
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* ListTransfers(grpc::CallbackServerContext* context,
                                          const pb::ListTransfersRequest* request,
                                          pb::ListTransfersResponse* response) override {
    const size_t limit = request->limit() == 0 ? 1000 : request->limit();
    return OnControl(context, [this, limit, response] {
      const TransferEngine& engine = core_.rpc.driver.engine();
      const absl::Time now = core_.rpc.control.Now();
      for (const TransferEngine::Row& row : engine.List(limit)) {
        pb::TransferRow* out = response->add_transfers();
        out->set_session_id(SessionOf(row.transfer).value());
        out->set_transfer_id(SequenceOf(row.transfer));
        out->set_side(row.side == Side::kSend ? "send" : "receive");
        out->set_src_global_device_id(row.key.source.value());
        out->set_dst_global_device_id(row.key.destination.value());
        out->set_key(PrintableKey(row.key.key));
        out->set_domain_fingerprint(DomainFingerprint(row.key.domain));
        out->set_bytes(row.bytes);
        out->set_state(row.state);
        out->set_route(static_cast<v1::Route>(row.route));
        SetDuration(now - row.posted, out->mutable_age());
        out->set_waits_for(row.waits_for);
      }
      response->set_total(engine.in_flight());
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* ExplainRoute(grpc::CallbackServerContext* context,
                                         const pb::ExplainRouteRequest* request,
                                         pb::ExplainRouteResponse* response) override {
    const GlobalDeviceId source(request->src_global_device_id());
    const GlobalDeviceId destination(request->dst_global_device_id());
    const auto explain = [this, source, destination, response]() -> absl::Status {
      response->Clear();
      ASSIGN_OR_RETURN(const std::vector<TransferEngine::RouteOption> options,
                       core_.rpc.driver.engine().Explain(source, destination));
      for (const TransferEngine::RouteOption& option : options) {
        pb::RouteOption* out = response->add_options();
        out->set_route(static_cast<v1::Route>(option.route));
        out->set_available(option.available);
        out->set_reason(option.reason);
        if (option.available && response->chosen() == v1::ROUTE_UNSPECIFIED) {
          response->set_chosen(static_cast<v1::Route>(option.route));
        }
      }
      return absl::OkStatus();
    };
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    core_.rpc.control.Post([this, source, destination, reactor, explain] {
      if (absl::Status refused = explain(); !refused.ok()) return reactor->Finish(ToGrpc(refused));
      // A link that nobody has wanted yet is not open; what could be had is known once it is.
      core_.peers.WhenTried(source, [this, destination, reactor, explain] {
        core_.peers.WhenTried(destination,
                              [reactor, explain] { reactor->Finish(ToGrpc(explain())); });
      });
    });
    return reactor;
  }

  grpc::ServerWriteReactor<pb::DumpResponse>* Dump(grpc::CallbackServerContext*,
                                                   const pb::DumpRequest*) override {
    return new DumpStream(core_);
  }

  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const pb::DrainRequest* request,
                                  pb::DrainResponse* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    absl::Duration deadline = core_.config.drain.timeout;
    if (request->has_deadline()) {
      deadline = absl::Seconds(request->deadline().seconds()) +
                 absl::Nanoseconds(request->deadline().nanos());
    }
    core_.rpc.control.Post([this, reactor, response, deadline] {
      core_.drain(deadline, [reactor, response](uint64_t cancelled) {
        response->set_cancelled(cancelled);
        reactor->Finish(grpc::Status::OK);
      });
    });
    return reactor;
  }

  grpc::ServerUnaryReactor* Undrain(grpc::CallbackServerContext* context, const pb::UndrainRequest*,
                                    pb::UndrainResponse*) override {
    return OnControl(context, [this] {
      core_.undrain();
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* SetLogLevel(grpc::CallbackServerContext* context,
                                        const pb::SetLogLevelRequest* request,
                                        pb::SetLogLevelResponse*) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(ToGrpc(::ferry::SetLogLevel(request->level())));
    return reactor;
  }

 private:
  static void SetDevice(GlobalDeviceId id, const std::string& name, pb::ClusterDevice* out) {
    out->mutable_device()->set_global_device_id(id.value());
    out->mutable_device()->set_kind(v1::Device::KIND_HOST);
    out->mutable_device()->set_name(name);
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
