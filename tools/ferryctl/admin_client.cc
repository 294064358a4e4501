// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/admin_client.h"

#include <errno.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/duration.h"
#include "base/fd.h"
#include "base/grpc_target.h"
#include "base/status.h"
#include "base/thread_limit_text.h"
#include "base/thread_room.h"

namespace ferry::tools {
namespace {

constexpr absl::Duration kBeforeNextTry = absl::Milliseconds(20);

// No connection, so the daemon has not seen the call.
bool IsNotConnected(const grpc::Status& status) {
  // gRPC's own text, the only thing that tells this from a daemon's refusal.
  return status.error_code() == grpc::StatusCode::UNAVAILABLE && status.error_details().empty() &&
         absl::StrContains(status.error_message(), "failed to connect");
}

bool SomebodyListens(const std::string& socket) {
  const sockaddr_un address = SocketAddress(socket);
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  return connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ||
         errno == EAGAIN;  // more wait than the listener has room for
}

}  // namespace

std::shared_ptr<grpc::Channel> AdminChannel(const std::string& socket) {
  grpc::ChannelArguments arguments;
  // Tries again soon, because the daemon may be just starting.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(-1);
  return grpc::CreateCustomChannel(UnixTarget(socket), grpc::InsecureChannelCredentials(),
                                   arguments);
}

sockaddr_un SocketAddress(const std::string& socket) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  FERRY_CHECK(socket.size() < sizeof(address.sun_path));
  std::memcpy(address.sun_path, socket.data(), socket.size());
  return address;
}

absl::Status CheckSocket(const std::string& socket) {
  if (access(socket.c_str(), R_OK | W_OK) == 0) return absl::OkStatus();
  if (errno == EACCES) {
    return ErrnoError(absl::StatusCode::kPermissionDenied, Reason::kNotAllowed,
                      absl::StrCat("connect to ", socket), errno);
  }
  return NobodyListens(socket);
}

absl::Status NobodyListens(const std::string& socket) {
  return Error(absl::StatusCode::kUnavailable, Reason::kNotReady,
               absl::StrCat("connect to ", socket, ": no daemon listens there (is ferryd running? ",
                            "--runtime-dir or FERRY_RUNTIME_DIR says where)"));
}

absl::Status NoAnswer(const std::string& socket, absl::Duration timeout) {
  return Error(absl::StatusCode::kDeadlineExceeded, Reason::kNotReady,
               absl::StrCat("asking ", socket, ": no answer in ", DurationText(timeout),
                            " (stopped, or busy?); --timeout says how long to wait"));
}

absl::Status FromCall(const grpc::Status& status, const std::string& socket) {
  return IsNotConnected(status) ? NobodyListens(socket) : FromGrpc(status);
}

absl::Status CallSocket(grpc::Channel& channel, const std::string& socket, absl::Duration timeout,
                        absl::FunctionRef<grpc::Status(grpc::ClientContext*)> call) {
  const absl::Time deadline = absl::Now() + timeout;
  while (true) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(deadline));
    const grpc::Status called = call(&context);
    if (!IsNotConnected(called) || !SomebodyListens(socket)) {
      const absl::Status status = FromCall(called, socket);
      return absl::IsDeadlineExceeded(status) ? NoAnswer(socket, timeout) : status;
    }
    if (absl::Now() >= deadline) return NoAnswer(socket, timeout);
    // gRPC goes on connecting only while somebody waits for its channel: a sleep would not do.
    channel.WaitForConnected(absl::ToChronoTime(absl::Now() + kBeforeNextTry));
  }
}

absl::StatusOr<AdminClient> AdminClient::Open(const Globals& globals) {
  RETURN_IF_ERROR(CheckSocket(globals.AdminSocket()));
  if (const int error = RoomForThreads(kGrpcThreads)) {
    return Error(absl::StatusCode::kResourceExhausted, Reason::kNotReady,
                 absl::StrCat("call the daemon: starting threads: ", strerror(error),
                              ThreadLimitText(kGrpcThreads)));
  }
  AdminClient client;
  client.channel_ = AdminChannel(globals.AdminSocket());
  client.stub_ = ferry::admin::v1::AdminService::NewStub(client.channel_);
  client.socket_ = globals.AdminSocket();
  client.timeout_ = globals.timeout.value_or(kAdminTimeout);
  return client;
}

void PrintAnswer(const Globals& globals, const google::protobuf::Message& response,
                 const std::string& text) {
  std::printf("%s\n", globals.json ? MessageJson(response).c_str() : text.c_str());
}

}  // namespace ferry::tools
