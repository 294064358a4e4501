// SPDX-License-Identifier: Apache-2.0
#include "client/rpc.h"

#include <errno.h>
#include <fcntl.h>
#include <grpc/support/log.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/impl/client_unary_call.h>
#include <grpcpp/impl/rpc_method.h>
#include <grpcpp/support/channel_arguments.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstdlib>

#include "client/attach.h"
#include "client/timelines.h"

namespace ferry::client {
namespace {

using grpc::internal::RpcMethod;

constexpr int kMaxReceiveBytes = 16 << 20;
constexpr size_t kCopyBelow = 4096;

const RpcMethod& MethodOf(Method method) {
  static const auto& kMethods = *new std::array<RpcMethod, 9>{{
      {"/ferry.v1.TransferService/CrossHostSend", RpcMethod::NORMAL_RPC},
      {"/ferry.v1.TransferService/CrossHostReceive", RpcMethod::NORMAL_RPC},
      {"/ferry.v1.TransferService/CancelTransfers", RpcMethod::NORMAL_RPC},
      {"/ferry.v1.TransferService/GetTransfers", RpcMethod::NORMAL_RPC},
      {"/ferry.v1.TransferService/WatchTransfers", RpcMethod::SERVER_STREAMING},
      {"/ferry.v1.ProgramService/Compile", RpcMethod::NORMAL_RPC},
      {"/ferry.v1.ProgramService/Run", RpcMethod::NORMAL_RPC},
      {"/ferry.v1.SessionService/ListClusterDevices", RpcMethod::NORMAL_RPC},
      {"/ferry.v1.SessionService/JoinDomain", RpcMethod::NORMAL_RPC},
  }};
  return kMethods[static_cast<int>(method)];
}

// The gRPC in libferry belongs to libferry alone, and its errors are in the statuses. So it writes
// to the program's stderr only if gRPC's variable asks for it.
void QuietGrpc() {
  static const bool kDone = [] {
    if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function([](gpr_log_func_args*) {});
    return true;
  }();
  (void)kDone;
}

// `deadline_ns`, which is not kForever, as a time for gRPC. gRPC looks at the wall clock once, when
// it is given the time.
std::chrono::system_clock::time_point GrpcTime(uint64_t deadline_ns) {
  const uint64_t now = NowNs();
  return std::chrono::system_clock::now() +
         std::chrono::nanoseconds(deadline_ns > now ? deadline_ns - now : 0);
}

}  // namespace

grpc::ByteBuffer ToBuffer(std::string bytes) {
  if (bytes.size() < kCopyBelow) {
    grpc::Slice slice(bytes.data(), bytes.size());
    return grpc::ByteBuffer(&slice, 1);
  }
  auto* kept = new std::string(std::move(bytes));
  grpc::Slice slice(
      kept->data(), kept->size(), [](void* owner) { delete static_cast<std::string*>(owner); },
      kept);
  return grpc::ByteBuffer(&slice, 1);
}

std::string FromBuffer(const grpc::ByteBuffer& buffer) {
  grpc::Slice slice;
  if (!buffer.Valid() || !buffer.DumpToSingleSlice(&slice).ok()) return "";
  return std::string(reinterpret_cast<const char*>(slice.begin()), slice.size());
}

Rpc::Call::Call(Rpc* rpc, uint64_t deadline_ns) : rpc_(rpc) {
  context_.AddMetadata("ferry-session-bin", rpc_->token_);
  if (deadline_ns != kForever) {
    context_.set_deadline(GrpcTime(deadline_ns));
  }
  std::lock_guard lock(rpc_->mutex_);
  rpc_->calls_.insert(&context_);
  if (rpc_->cancelled_) context_.TryCancel();  // cancelled before it starts, so it ends at once
}

Rpc::Call::~Call() {
  std::lock_guard lock(rpc_->mutex_);
  rpc_->calls_.erase(&context_);
}

Rpc::~Rpc() {
  if (channel_ != nullptr) fds_->Forget(ForkFds::kGrpc);  // gRPC closes the descriptor
}

StatusPtr Rpc::Open(const std::string& dir, std::string token, uint64_t deadline_ns) {
  int fd;
  FERRY_CLIENT_RETURN_IF_ERROR(
      ConnectUnix(dir, "client.sock", SOCK_STREAM, fds_, ForkFds::kRpc, deadline_ns, &fd));
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  fd = fds_->Duplicate(ForkFds::kRpc, ForkFds::kGrpc);
  if (fd < 0) {
    return ErrnoError(kResourceExhausted, kReasonNotReady, "opening a session at " + dir, errno);
  }
  token_ = std::move(token);
  QuietGrpc();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxReceiveBytes);
  arguments.SetMaxSendMessageSize(-1);  // only the daemon's limit holds
  arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "localhost");
  channel_ = grpc::CreateCustomInsecureChannelFromFd("ferryd", fd, arguments);
  return nullptr;
}

void Rpc::Cancel() {
  std::lock_guard lock(mutex_);
  cancelled_ = true;
  for (grpc::ClientContext* context : calls_) context->TryCancel();
  // A call whose message the daemon has not read to its end would not notice that it is cancelled.
  fds_->Shutdown(ForkFds::kRpc);
}

StatusPtr Rpc::Unary(Method method, std::string request, uint64_t deadline_ns,
                     std::string* response) {
  Call call(this, deadline_ns);
  const grpc::ByteBuffer sent = ToBuffer(std::move(request));
  grpc::ByteBuffer received;
  const grpc::Status status = grpc::internal::BlockingUnaryCall(channel_.get(), MethodOf(method),
                                                                call.context(), sent, &received);
  if (!status.ok()) return Explain(method, status);
  *response = FromBuffer(received);
  return nullptr;
}

std::unique_ptr<grpc::ClientReader<grpc::ByteBuffer>> Rpc::ServerStream(Call* call, Method method,
                                                                        std::string request) {
  using Factory = grpc::internal::ClientReaderFactory<grpc::ByteBuffer>;
  return std::unique_ptr<grpc::ClientReader<grpc::ByteBuffer>>(Factory::Create(
      channel_.get(), MethodOf(method), call->context(), ToBuffer(std::move(request))));
}

StatusPtr Rpc::Explain(Method method, const grpc::Status& status) {
  if (status.ok()) return nullptr;
  StatusPtr error = DecodeStatus(status.error_details());
  if (error == nullptr) error = Error(kInternal, "", "");
  error->code = status.error_code();
  if (error->message.empty()) error->message = status.error_message();
  // ferryd gives a reason with every error. An error without one is of the connection.
  if (error->code == kUnavailable && error->reason.empty()) {
    error->reason = kReasonDaemonLost;
    broken_("the connection to client.sock is closed (" + error->message + ")");
  } else if (error->code == kDeadlineExceeded && error->reason.empty()) {
    error->reason = kReasonNotReady;
    error->message = std::string(MethodOf(method).name()) + ": the daemon did not answer in time";
  }
  return error;
}

}  // namespace ferry::client
