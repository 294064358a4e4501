// SPDX-License-Identifier: Apache-2.0
// One operator's call to drain, from start to end; deletes itself. What it has is touched by its
// tasks on control alone; gRPC calls its functions on threads of gRPC.
#pragma once

#include <grpcpp/grpcpp.h>

#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/rpc/admin_service.h"
#include "daemon/rpc/status_proto.h"
#include "ferry/admin/v1/admin.pb.h"

namespace ferry {

class DrainCall final : public grpc::ServerUnaryReactor {
 public:
  // Without `timeout` that of the configuration holds.
  DrainCall(AdminCore& core, std::optional<absl::Duration> timeout,
            admin::v1::DrainResponse* response)
      : core_(core) {
    core_.rpc.control.Post([this, timeout, response] {
      caller_ = core_.drain(timeout.value_or(core_.config.drain.timeout),
                            [this, response](const absl::StatusOr<uint64_t>& cut) {
                              if (cut.ok()) response->set_cancelled(*cut);
                              Finish(ToGrpc(cut.status()));
                            });
    });
  }
  // The operator has interrupted the call, or the call's deadline has passed.
  void OnCancel() override {
    core_.rpc.control.Post([this] {
      if (core_.leave_drain(caller_)) Finish(grpc::Status::CANCELLED);
    });
  }
  void OnDone() override {
    core_.rpc.control.Post([this] { delete this; });  // behind what OnCancel has posted
  }

 private:
  AdminCore& core_;
  Drain::Caller caller_ = 0;
};

}  // namespace ferry
