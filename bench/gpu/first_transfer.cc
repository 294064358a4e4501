// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/first_transfer.h"

#include <cstdio>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "bench/cases.h"
#include "bench/gpu/bare_program.h"
#include "tools/ferryctl/bench_end.h"

namespace ferry::bench {
namespace {

absl::StatusOr<FirstTransferTimes> Run(const FirstTransferOf& of, int64_t spawned) {
  FirstTransferTimes times;
  int64_t at = spawned;
  const auto lap = [&] {
    const int64_t before = std::exchange(at, tools::MonotonicNanoseconds());
    return absl::Nanoseconds(at - before);
  };
  times.process = lap();
  tools::SessionOptions session;
  session.client_dir = of.client_dir;
  session.name = "bench-restarted";
  tools::PostTarget target;
  target.end = tools::End::kReceive;
  target.remote_device = of.remote_device;
  target.domain = of.domain;
  target.route = of.route;
  ASSIGN_OR_RETURN(tools::BenchEnd end, tools::BenchEnd::Open(session, std::move(target),
                                                              static_cast<int64_t>(of.device)));
  end.set_patience(kOrderPatience);
  times.session = lap();
  const std::optional<CudaStart> cuda = StartCuda(of.cuda_device);
  if (!cuda) {
    return Error(absl::StatusCode::kInternal, Reason::kInternal, "CUDA does not start");
  }
  lap();
  times.init = cuda->init;
  times.context = cuda->context;
  RETURN_IF_ERROR(end.MakeArena(of.bytes, 0));
  times.arena = lap();
  RETURN_IF_ERROR(end.PostMany(kFirstKey, 1, of.bytes));
  RETURN_IF_ERROR(end.Await().status());
  times.transfer = lap();
  RETURN_IF_ERROR(tools::CreateArena(end.session(), of.device, of.bytes).status());
  times.another = lap();
  return times;
}

}  // namespace

absl::StatusOr<FirstTransfer> FirstTransfer::Start(const std::string& self,
                                                   const FirstTransferOf& of) {
  FirstTransferTimes times;
  ASSIGN_OR_RETURN(
      Reporter process,
      Reporter::Start(
          {self, "first-transfer", of.client_dir, of.domain, absl::StrCat(of.device),
           absl::StrCat(of.remote_device), absl::StrCat(of.bytes), absl::StrCat(of.route),
           absl::StrCat(of.cuda_device), absl::StrCat(tools::MonotonicNanoseconds())},
          "start a client and receive its first transfer", &times, sizeof(times)));
  return FirstTransfer(std::move(process), times);
}

int RunFirstTransfer(char** arguments, int socket) {
  FirstTransferOf of;
  of.client_dir = arguments[0];
  of.domain = arguments[1];
  int64_t spawned = 0;
  if (!absl::SimpleAtoi(arguments[2], &of.device) ||
      !absl::SimpleAtoi(arguments[3], &of.remote_device) ||
      !absl::SimpleAtoi(arguments[4], &of.bytes) || !absl::SimpleAtoi(arguments[5], &of.route) ||
      !absl::SimpleAtoi(arguments[6], &of.cuda_device) ||
      !absl::SimpleAtoi(arguments[7], &spawned)) {
    return 2;
  }
  const absl::StatusOr<FirstTransferTimes> times = Run(of, spawned);
  if (times.ok()) return WriteReport(socket, &*times, sizeof(*times));
  std::fprintf(stderr, "first-transfer: %s\n", std::string(times.status().message()).c_str());
  return 1;
}

}  // namespace ferry::bench
