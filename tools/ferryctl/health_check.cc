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

absl::StatusOr<ServingStatus> Ask(::grpc::health::v1::Health::Stub& stub, const std::string& socket,
                                  const std::string& service, absl::Time deadline,
                                  bool wait_for_ready) {
  grpc::ClientContext context;
  context.set_wait_for_ready(wait_for_ready);
  context.set_deadline(absl::ToChronoTime(deadline));
  ::grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  ::grpc::health::v1::HealthCheckResponse response;
  RETURN_IF_ERROR(FromCall(stub.Check(&context, request, &response), socket));
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
  auto stub = ::grpc::health::v1::Health::NewStub(AdminChannel(socket));
  auto answer = Ask(*stub, socket, service, absl::Now() + timeout, /*wait_for_ready=*/false);
  if (absl::IsDeadlineExceeded(answer.status())) return NoHealth(socket, timeout);
  return answer;
}

absl::StatusOr<ServingStatus> AwaitServing(const std::string& socket, const std::string& service,
                                           absl::Duration patience) {
  const absl::Time deadline = absl::Now() + patience;
  auto stub = ::grpc::health::v1::Health::NewStub(AdminChannel(socket));
  while (true) {
    auto answer = Ask(*stub, socket, service, deadline, /*wait_for_ready=*/true);
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
