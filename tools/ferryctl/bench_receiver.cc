// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/bench_receiver.h"

#include <errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "base/status.h"
#include "tools/ferryctl/bench_end.h"

namespace ferry::tools {
namespace {

absl::StatusOr<BenchEnd> Open(const BenchOrder& order) {
  SessionOptions options;
  options.client_dir = order.client_dir;
  options.name = "bench-receiver";
  PostTarget target;
  target.end = End::kReceive;
  target.remote_device = order.remote_device;
  target.domain = order.domain;
  target.route = order.route;
  ASSIGN_OR_RETURN(BenchEnd end, BenchEnd::Open(options, std::move(target), order.device));
  if (order.patience_ns != UINT64_MAX) {
    end.set_patience(absl::Nanoseconds(static_cast<int64_t>(order.patience_ns)));
  }
  return end;
}

absl::Status Obey(const BenchOrder& order, std::optional<BenchEnd>& end, BenchAnswer& answer) {
  if (order.kind != BenchOrderKind::kOpen && !end.has_value()) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kSessionInvalid, "no session yet");
  }
  switch (order.kind) {
    case BenchOrderKind::kOpen: {
      ASSIGN_OR_RETURN(BenchEnd opened, Open(order));
      end.emplace(std::move(opened));
      answer.value = end->target().device;
      return absl::OkStatus();
    }
    case BenchOrderKind::kArena: {
      const int64_t start = MonotonicNanoseconds();
      RETURN_IF_ERROR(end->MakeArena(order.bytes, order.flags));
      answer.nanoseconds = MonotonicNanoseconds() - start;
      return absl::OkStatus();
    }
    case BenchOrderKind::kFill:
      return end->Fill(order.key);
    case BenchOrderKind::kPost:
      return end->PostMany(order.key, order.count, order.bytes);
    case BenchOrderKind::kBlocks:
      return end->PostBlocks(order.key, order.count, order.bytes);
    case BenchOrderKind::kPrepare:
      return end->Prepare(order.key, order.count, order.bytes);
    case BenchOrderKind::kPrepareBlocks:
      return end->PrepareBlocks(order.key, order.count, order.bytes);
    case BenchOrderKind::kFire:
      return end->Fire();
    case BenchOrderKind::kPreparePing:
      return end->PreparePing(order.key, order.bytes);
    case BenchOrderKind::kPong:
      return end->Pong(order.count);
    case BenchOrderKind::kFireMany: {
      ASSIGN_OR_RETURN(answer.nanoseconds, end->FireMany(order.count));
      return absl::OkStatus();
    }
    case BenchOrderKind::kAwait: {
      ASSIGN_OR_RETURN(answer.nanoseconds, end->Await());
      return absl::OkStatus();
    }
    case BenchOrderKind::kStream: {
      ASSIGN_OR_RETURN(answer.nanoseconds,
                       end->Stream(order.key, order.count, order.bytes, order.batch, order.window));
      return absl::OkStatus();
    }
    case BenchOrderKind::kPark:
      return end->Park(order.key, order.count, order.bytes);
    case BenchOrderKind::kUnpark:
      return end->Unpark();
    case BenchOrderKind::kSum: {
      ASSIGN_OR_RETURN(answer.value, end->SumOfMoved());
      return absl::OkStatus();
    }
  }
  return Error(absl::StatusCode::kInvalidArgument, Reason::kProtocolError, "unknown order");
}

}  // namespace

int RunBenchReceiver(int socket) {
  std::optional<BenchEnd> end;
  while (true) {
    BenchOrder order;
    const ssize_t got = recv(socket, &order, sizeof(order), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) return 0;  // the measuring process has finished
    if (got != sizeof(order)) return 1;
    BenchAnswer answer;
    const absl::Status status = Obey(order, end, answer);
    answer.code = static_cast<int32_t>(status.code());
    answer.reason = static_cast<int32_t>(ReasonOf(status));
    const std::string text(status.message());
    text.copy(answer.text, sizeof(answer.text) - 1);
    if (send(socket, &answer, sizeof(answer), MSG_NOSIGNAL) != sizeof(answer)) return 1;
  }
}

}  // namespace ferry::tools
