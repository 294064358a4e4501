// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/top_source.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tools/ferryctl/admin_client.h"

namespace ferry::tools {
namespace {

Globals Of(const Globals& globals, std::string runtime_dir) {
  Globals own = globals;
  own.runtime_dir = std::move(runtime_dir);
  return own;
}

absl::Status TooOld(const std::string& socket) {
  return Error(absl::StatusCode::kUnimplemented, Reason::kProtocolVersion,
               absl::StrCat("ask ", socket, ": this ferryd is older than ferryctl and cannot say ",
                            "what moves"));
}

}  // namespace

TopSource::TopSource(const Globals& globals, std::string runtime_dir, uint32_t limit, int answered)
    : globals_(Of(globals, std::move(runtime_dir))),
      limit_(limit),
      answered_(answered),
      stub_(ferry::admin::v1::AdminService::NewStub(AdminChannel(globals_.AdminSocket()))) {}

TopSource::~TopSource() {
  if (call_ == nullptr) return;
  call_->context.TryCancel();
  MutexLock lock(call_->mutex);
  while (!call_->status.has_value()) call_->changed.wait(call_->mutex);
}

absl::Duration TopSource::Timeout() const { return globals_.timeout.value_or(kAdminTimeout); }

void TopSource::Ask(absl::Time now) {
  if (call_ != nullptr) return;
  heard_ = std::min(heard_, now);
  if (absl::Status socket = CheckSocket(globals_.AdminSocket()); !socket.ok()) {
    status_ = std::move(socket);
    return;
  }
  call_ = std::make_unique<Call>();
  call_->request.set_limit(limit_);
  call_->context.set_deadline(absl::ToChronoTime(absl::Now() + Timeout()));
  stub_->async()->GetActivity(&call_->context, &call_->request, &call_->response,
                              [call = call_.get(), answered = answered_](grpc::Status status) {
                                MutexLock lock(call->mutex);
                                call->status = std::move(status);
                                call->changed.notify_all();
                                const uint64_t one = 1;
                                [[maybe_unused]] ssize_t ignored =
                                    write(answered, &one, sizeof(one));
                              });
}

void TopSource::Collect(absl::Time now) {
  if (call_ == nullptr) return;
  {
    MutexLock lock(call_->mutex);
    if (!call_->status.has_value()) return;
    const std::string socket = globals_.AdminSocket();
    switch (call_->status->error_code()) {
      case grpc::StatusCode::UNIMPLEMENTED:
        status_ = TooOld(socket);
        break;
      case grpc::StatusCode::DEADLINE_EXCEEDED:
        status_ = NoAnswer(socket, Timeout());
        break;
      default:
        status_ = FromCall(*call_->status, socket);
    }
  }
  const std::unique_ptr<Call> call = std::move(call_);
  if (!status_.ok()) return;
  heard_ = now;
  before_ = std::exchange(now_, std::move(call->response));
  if (before_ && before_->incarnation() != now_->incarnation()) before_.reset();
  if (first_life_ == 0) first_life_ = now_->incarnation();
  node_ = now_->node();
}

DaemonSample TopSource::Sample(absl::Time now, absl::Duration fresh) const {
  DaemonSample sample;
  sample.runtime_dir = globals_.runtime_dir;
  sample.node = node_;
  sample.unheard = std::max(now - heard_, absl::ZeroDuration());
  if (!status_.ok() && !absl::IsDeadlineExceeded(status_)) {
    sample.trouble = std::string(status_.message());
  }
  if (!now_ || !status_.ok() || sample.unheard > fresh) return sample;
  sample.now = now_;
  sample.before = before_;
  sample.begun_anew = now_->incarnation() != first_life_;
  return sample;
}

}  // namespace ferry::tools
