// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/client_services.h"
#include "daemon/rpc/status_proto.h"
#include "ferry/v1/session.grpc.pb.h"

namespace ferry {
namespace {

void SetUse(const SessionUse& use, v1::SessionLimits* out) {
  out->set_bytes(use.bytes);
  out->set_arenas(use.arenas);
  out->set_transfers_in_flight(use.transfers_in_flight);
  out->set_batch_transfers(use.batch_transfers);
}

class SessionServiceImpl final : public v1::SessionService::CallbackService {
 public:
  explicit SessionServiceImpl(RpcCore& core) : core_(core) {}

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
      for (const Arena* arena : session.ListArenas()) {
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

 private:
  template <typename F>
  grpc::ServerUnaryReactor* WithSession(grpc::CallbackServerContext* context, F fill) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    core_.control.Post([this, reactor, fill, caller = RpcCaller::Of(*context, core_.connections)] {
      absl::StatusOr<Session*> session = caller.Authenticate(core_);
      if (session.ok()) fill(**session);
      reactor->Finish(ToGrpc(session.status()));
    });
    return reactor;
  }
  RpcCore& core_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeSessionService(RpcCore& core) {
  return std::make_unique<SessionServiceImpl>(core);
}

}  // namespace ferry
