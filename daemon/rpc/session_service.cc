// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/client_services.h"
#include "daemon/rpc/session_use.h"
#include "daemon/rpc/status_proto.h"
#include "ferry/v1/session.grpc.pb.h"

namespace ferry {
namespace {

class SessionServiceImpl final : public v1::SessionService::CallbackService {
 public:
  SessionServiceImpl(RpcCore& core, const LocalDevices& devices, const PeerTable& peers,
                     const std::string& node)
      : core_(core), devices_(devices), peers_(peers), node_(node) {}

  grpc::ServerUnaryReactor* GetSession(grpc::CallbackServerContext* context,
                                       const v1::GetSessionRequest*,
                                       v1::GetSessionResponse* response) override {
    return WithSession(context, [response](Session& session) {
      response->set_session_id(session.id().value());
      SetUse(session.limits().quota, response->mutable_limits());
      SetUse(session.use(), response->mutable_used());
    });
  }

  grpc::ServerUnaryReactor* ListArenas(grpc::CallbackServerContext* context,
                                       const v1::ListArenasRequest*,
                                       v1::ListArenasResponse* response) override {
    return WithSession(context, [response](Session& session) {
      for (const Arena* arena : session.arenas().List()) {
        if (arena->of_job) continue;
        v1::Arena* out = response->add_arenas();
        out->set_arena_id(arena->id.value());
        out->set_device_id(arena->device.value());
        out->set_bytes(arena->bytes);
        out->set_imported(arena->imported);
        out->set_transfers(arena->transfers);
        out->set_memory(static_cast<v1::ArenaMemory>(arena->kind));
      }
    });
  }

  grpc::ServerUnaryReactor* ListClusterDevices(grpc::CallbackServerContext* context,
                                               const v1::ListClusterDevicesRequest*,
                                               v1::ListClusterDevicesResponse* response) override {
    return WithSession(context, [this, response](Session&) {
      for (const ClusterDevice& device : ferry::ListClusterDevices(devices_, peers_, node_)) {
        ToProto(device, response->add_devices());
      }
    });
  }

  grpc::ServerUnaryReactor* JoinDomain(grpc::CallbackServerContext* context,
                                       const v1::JoinDomainRequest* request,
                                       v1::JoinDomainResponse*) override {
    return TryWithSession(context, [this, request](Session& session) {
      return core_.driver.Join(session, request->domain(), GlobalDeviceId(request->device_id()),
                               request->name());
    });
  }

 private:
  template <typename F>
  grpc::ServerUnaryReactor* WithSession(grpc::CallbackServerContext* context, F fill) {
    return TryWithSession(context, [fill](Session& session) {
      fill(session);
      return absl::OkStatus();
    });
  }
  template <typename F>
  grpc::ServerUnaryReactor* TryWithSession(grpc::CallbackServerContext* context, F serve) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    core_.control.Post([this, reactor, serve, caller = RpcCaller::Of(*context, core_.connections)] {
      absl::StatusOr<Session*> session = caller.Authenticate(core_);
      reactor->Finish(ToGrpc(session.ok() ? serve(**session) : session.status()));
    });
    return reactor;
  }

  RpcCore& core_;
  const LocalDevices& devices_;
  const PeerTable& peers_;
  const std::string& node_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeSessionService(RpcCore& core, const LocalDevices& devices,
                                                  const PeerTable& peers, const std::string& node) {
  return std::make_unique<SessionServiceImpl>(core, devices, peers, node);
}

}  // namespace ferry
