// SPDX-License-Identifier: Apache-2.0
// grpc.health.v1.Health, from its proto, so that reflection can describe it (gRPC's own cannot be
// described). Services: "" and "readiness" (the daemon can take requests), "liveness" (the daemon's
// loop turns), "startup" (the daemon has started). Any thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace ferry {

class HealthService final : public grpc::health::v1::Health::CallbackService {
 public:
  // `called` is told ServerContext::peer() of each call.
  explicit HealthService(std::function<void(const std::string&)> called = nullptr);
  ~HealthService() override;
  void SetServing(const std::string& service, bool serving);
  // Ends all watches; call it before the server is shut down.
  void Shutdown();

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const grpc::health::v1::HealthCheckRequest* request,
                                  grpc::health::v1::HealthCheckResponse* response) override;
  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext* context,
                                 const grpc::health::v1::HealthListRequest* request,
                                 grpc::health::v1::HealthListResponse* response) override;
  grpc::ServerWriteReactor<grpc::health::v1::HealthCheckResponse>* Watch(
      grpc::CallbackServerContext* context,
      const grpc::health::v1::HealthCheckRequest* request) override;

 private:
  class Watcher;
  using Status = grpc::health::v1::HealthCheckResponse::ServingStatus;
  void Called(const grpc::CallbackServerContext* context) {
    if (called_) called_(context->peer());
  }

  const std::function<void(const std::string&)> called_;
  Mutex mutex_;
  std::map<std::string, Status> statuses_ ABSL_GUARDED_BY(mutex_);
  std::map<Watcher*, std::string> watchers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ferry
