// SPDX-License-Identifier: Apache-2.0
#include <signal.h>

#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "bench/cases.h"
#include "ferry/ferry.hpp"
#include "tools/ferryctl/statistics.h"

namespace ferry::bench {
namespace {

constexpr int kWaiters = 64;
constexpr uint64_t kBytes = 1 << 20;
constexpr uint32_t kSendTimeline = 32;

// Each waiter is a thread that sleeps on a transfer of its own, which nobody will answer.
absl::StatusOr<absl::Duration> KillUnderWaiters(Session& session, pid_t daemon) {
  std::vector<Batch> batches;
  for (int i = 0; i < kWaiters; ++i) {
    PostOptions options;
    options.over_timeline = static_cast<uint32_t>(i) % kSendTimeline;
    Result<Batch> batch = session.Receive(1, {Transfer(0, absl::StrCat("never ", i))}, options);
    if (!batch.ok()) return Failed("post a receive", batch.status());
    batches.push_back(std::move(*batch));
  }
  std::vector<std::thread> waiters;
  for (Batch& batch : batches) waiters.emplace_back([&batch] { (void)batch.Wait(); });
  const absl::Time killed = absl::Now();
  kill(daemon, SIGKILL);
  for (std::thread& waiter : waiters) waiter.join();
  return absl::Now() - killed;
}

absl::StatusOr<absl::Duration> RestartToTransfer(Session& session, Arena& from, Arena& to,
                                                 Nodes& nodes) {
  const absl::Time started = absl::Now();
  RETURN_IF_ERROR(nodes.Restart(0));
  if (Status status = session.WaitAttached(); !status.ok()) return Failed("re-attach", status);
  Result<Batch> receive = session.Receive(1, {Transfer(0, "first", {to.All()})});
  if (!receive.ok()) return Failed("post the first receive", receive.status());
  PostOptions options;
  options.over_timeline = kSendTimeline;  // of the other device
  Result<Batch> send = session.Send(0, {Transfer(1, "first", {from.All()})}, options);
  if (!send.ok()) return Failed("post the first send", send.status());
  for (Batch* batch : {&*receive, &*send}) {
    if (Status status = batch->Wait(); !status.ok()) return Failed("first transfer", status);
  }
  const absl::Duration took = absl::Now() - started;
  if (std::memcmp(from.data(), to.data(), kBytes) != 0) {
    return Error(absl::StatusCode::kDataLoss, Reason::kInternal, "the bytes differ");
  }
  return took;
}

}  // namespace

absl::Status Failed(const char* doing, const Status& why) {
  return Error(absl::StatusCode::kInternal, Reason::kInternal,
               absl::StrCat(doing, ": ", why.ToString()));
}

absl::Status MeasureLoss(const Settings& settings, Nodes& nodes, Report& report) {
  SessionOptions options;
  options.client_dir = nodes.ClientDir(0);
  Result<Session> session = Session::Open(options);
  if (!session.ok()) return Failed("open a session", session.status());
  Result<Arena> from = session->CreateArena(0, kBytes);
  if (!from.ok()) return Failed("make an arena", from.status());
  Result<Arena> to = session->CreateArena(1, kBytes);
  if (!to.ok()) return Failed("make an arena", to.status());
  std::vector<double> ended, back;
  for (int round = 0; round < settings.rounds; ++round) {
    std::memset(from->data(), round + 1, kBytes);  // the other arena has those of the last round
    ASSIGN_OR_RETURN(absl::Duration waited, KillUnderWaiters(*session, nodes.pid(0)));
    ASSIGN_OR_RETURN(absl::Duration away, RestartToTransfer(*session, *from, *to, nodes));
    ended.push_back(absl::ToDoubleMilliseconds(waited));
    back.push_back(absl::ToDoubleMilliseconds(away));
  }
  Row row;
  row.name = absl::StrCat("daemon killed: all of ", kWaiters, " waiters ended");
  row.unit = "ms";
  row.warm = tools::Median(ended);
  row.at_most = true;
  row.target = 100;
  report.Add(row);
  row.name = "its restart: 1 MiB by the client that stayed";
  row.warm = tools::Median(back);
  row.target = 1000;
  report.Add(row);
  return absl::OkStatus();
}

}  // namespace ferry::bench
