// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/health_check.h"

#include <grpcpp/client_context.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/duration.h"
#include "base/status.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "tools/ferryctl/admin_client.h"
#include "tools/ferryctl/failure.h"
#include "tools/ferryctl/format.h"

namespace ferry::tools {
namespace {

absl::StatusOr<ServingStatus> Ask(::grpc::health::v1::Health::Stub& stub, grpc::Channel& channel,
                                  const std::string& socket, const std::string& service,
                                  absl::Duration timeout, bool wait_for_ready) {
  ::grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  ::grpc::health::v1::HealthCheckResponse response;
  RETURN_IF_ERROR(CallSocket(channel, socket, timeout, [&](grpc::ClientContext* context) {
    context->set_wait_for_ready(wait_for_ready);
    return stub.Check(context, request, &response);
  }));
  return response.status();
}

constexpr absl::Duration kLastTry = absl::Milliseconds(100);

absl::Status NoHealth(const std::string& socket, absl::Duration patience) {
  return Error(absl::StatusCode::kUnavailable, Reason::kNotReady,
               absl::StrCat("health of ", socket, ": no answer within ", DurationText(patience)));
}

}  // namespace

absl::StatusOr<ServingStatus> CheckHealth(const std::string& socket, const std::string& service,
                                          absl::Duration timeout) {
  RETURN_IF_ERROR(CheckSocket(socket));
  const auto channel = AdminChannel(socket);
  const auto stub = ::grpc::health::v1::Health::NewStub(channel);
  auto answer = Ask(*stub, *channel, socket, service, timeout, /*wait_for_ready=*/false);
  if (absl::IsDeadlineExceeded(answer.status())) return NoHealth(socket, timeout);
  return answer;
}

absl::StatusOr<ServingStatus> AwaitServing(const std::string& socket, const std::string& service,
                                           absl::Duration patience) {
  const absl::Time deadline = absl::Now() + patience;
  const auto channel = AdminChannel(socket);
  const auto stub = ::grpc::health::v1::Health::NewStub(channel);
  while (true) {
    auto answer =
        Ask(*stub, *channel, socket, service, deadline - absl::Now(), /*wait_for_ready=*/true);
    if (answer.ok() && *answer == ::grpc::health::v1::HealthCheckResponse::SERVING) return answer;
    if (absl::Now() >= deadline) {
      if (!absl::IsDeadlineExceeded(answer.status())) return answer;
      // Nobody listens (with the text of every other command), or somebody who does not answer.
      const auto last = CheckHealth(socket, service, kLastTry);
      return HasReason(last.status(), Reason::kNotReady) ? last.status()
                                                         : NoHealth(socket, patience);
    }
    // The daemon answers and does not serve yet, or has just ended: asks again soon.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace ferry::tools
