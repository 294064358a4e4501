// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/health_service.h"

#include <utility>

#include "daemon/rpc/stream_output.h"

namespace ferry {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

class HealthService::Watcher final : public grpc::ServerWriteReactor<HealthCheckResponse> {
 public:
  using Output = StreamOutput<HealthCheckResponse, grpc::Status>;
  explicit Watcher(HealthService& service) : service_(service) {
    output_ = std::make_shared<Output>(
        [this](const HealthCheckResponse* message) { StartWrite(message); },
        [this](grpc::Status status) { Finish(status); });
  }
  std::shared_ptr<Output> output() const { return output_; }
  static HealthCheckResponse Message(Status status) {
    HealthCheckResponse message;
    message.set_status(status);
    return message;
  }
  void OnWriteDone(bool ok) override { output_->OnWriteDone(ok); }
  void OnCancel() override { output_->Finish(grpc::Status::CANCELLED); }
  void OnDone() override {
    {
      MutexLock lock(service_.mutex_);
      service_.watchers_.erase(this);
    }
    output_->Detach();
    delete this;
  }

 private:
  HealthService& service_;
  std::shared_ptr<Output> output_;
};

HealthService::HealthService(std::function<void(const std::string&)> called)
    : called_(std::move(called)) {
  for (const char* service : {"", "startup", "readiness", "liveness", "ferry.v1.TransferService"}) {
    statuses_[service] = HealthCheckResponse::NOT_SERVING;
  }
}

HealthService::~HealthService() = default;

void HealthService::SetServing(const std::string& service, bool serving) {
  const Status status = serving ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
  std::vector<std::shared_ptr<Watcher::Output>> told;
  {
    MutexLock lock(mutex_);
    if (std::exchange(statuses_[service], status) == status) return;
    for (const auto& [watcher, name] : watchers_) {
      if (name == service) told.push_back(watcher->output());
    }
  }
  for (const auto& output : told) output->Push(Watcher::Message(status));
}

void HealthService::Shutdown() {
  std::vector<std::shared_ptr<Watcher::Output>> told;
  {
    MutexLock lock(mutex_);
    for (const auto& [watcher, name] : watchers_) told.push_back(watcher->output());
  }
  for (const auto& output : told)
    output->Finish(grpc::Status(grpc::StatusCode::UNAVAILABLE, "stopping"));
}

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* context,
                                               const HealthCheckRequest* request,
                                               HealthCheckResponse* response) {
  Called(context);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  MutexLock lock(mutex_);
  auto it = statuses_.find(request->service());
  if (it == statuses_.end()) {
    reactor->Finish(grpc::Status(grpc::StatusCode::NOT_FOUND,
                                 "health: there is no service '" + request->service() + "'"));
  } else {
    response->set_status(it->second);
    reactor->Finish(grpc::Status::OK);
  }
  return reactor;
}

grpc::ServerUnaryReactor* HealthService::List(grpc::CallbackServerContext* context,
                                              const grpc::health::v1::HealthListRequest*,
                                              grpc::health::v1::HealthListResponse* response) {
  Called(context);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  MutexLock lock(mutex_);
  for (const auto& [service, status] : statuses_) {
    (*response->mutable_statuses())[service].set_status(status);
  }
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerWriteReactor<HealthCheckResponse>* HealthService::Watch(
    grpc::CallbackServerContext* context, const HealthCheckRequest* request) {
  Called(context);
  auto* watcher = new Watcher(*this);  // deletes itself
  const std::shared_ptr<Watcher::Output> output = watcher->output();
  Status status = HealthCheckResponse::SERVICE_UNKNOWN;
  {
    MutexLock lock(mutex_);
    auto it = statuses_.find(request->service());
    if (it != statuses_.end()) status = it->second;
    watchers_[watcher] = request->service();
  }
  output->Push(Watcher::Message(status));
  return watcher;
}

}  // namespace ferry
