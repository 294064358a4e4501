// SPDX-License-Identifier: Apache-2.0
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/status.h"
#include "bench/cases.h"
#include "bench/echo.h"
#include "bench/futex_echo.h"
#include "ferry/program.hpp"
#include "tools/ferryctl/statistics.h"

namespace ferry::bench {
namespace {

constexpr uint64_t kJobBytes = 4096;

// A program over 4 KiB, with the memory that it is bound to.
struct SmallProgram {
  Session session;
  Arena arena;
  Program program;

  ProgramRun Run() const {
    return program.Run(
        {{"x", arena.Range(0, kJobBytes)}, {"y", arena.Range(kJobBytes, kJobBytes)}});
  }
};

absl::StatusOr<SmallProgram> MakeSmall(const Nodes& nodes) {
  SessionOptions options;
  options.client_dir = nodes.ClientDir(0);
  Result<Session> session = Session::Open(options);
  if (!session.ok()) return Failed("open a session", session.status());
  Result<Arena> arena = session->CreateArena(0, 2 * kJobBytes);
  if (!arena.ok()) return Failed("make an arena", arena.status());
  ProgramBuilder builder;
  const TensorType type{FERRY_F32, {kJobBytes / sizeof(float)}};
  builder.Store("y", builder.Multiply(builder.Input("x", type), builder.Splat(3, type)));
  Result<Program> program = Program::Compile(*session, 0, builder.Text());
  if (!program.ok()) return Failed("compile a program", program.status());
  return SmallProgram{std::move(*session), std::move(*arena), std::move(*program)};
}

// Fires all of `batches`, then waits for each.
absl::StatusOr<absl::Duration> FireAll(const std::vector<Prepared*>& batches) {
  const absl::Time begin = absl::Now();
  for (Prepared* batch : batches) {
    if (Status status = batch->Fire(); !status.ok()) return Failed("fire", status);
  }
  for (Prepared* batch : batches) {
    if (Status status = batch->Wait(); !status.ok()) return Failed("wait for a firing", status);
  }
  return absl::Now() - begin;
}

}  // namespace

absl::Status MeasureJobs(const Settings& settings, const Nodes& nodes, Report& report) {
  ASSIGN_OR_RETURN(EchoClient echo, EchoClient::Start(settings.self));
  ASSIGN_OR_RETURN(FutexEcho futex, FutexEcho::Start(settings.self, FutexRoad::kPair));
  ASSIGN_OR_RETURN(SmallProgram small, MakeSmall(nodes));
  Result<Prepared> job = PreparePrograms(small.session, 0, {small.Run()});
  if (!job.ok()) return Failed("prepare a job", job.status());
  // The daemon's lane between the same words, with nothing to do: no bytes, of a client to itself.
  Result<Prepared> receive = small.session.PrepareReceive(1, {Transfer(0, "nothing")});
  if (!receive.ok()) return Failed("prepare a receive", receive.status());
  Result<Prepared> send = small.session.PrepareSend(0, {Transfer(1, "nothing")});
  if (!send.ok()) return Failed("prepare a send", send.status());

  const auto run_posted = [&]() -> absl::StatusOr<absl::Duration> {
    const absl::Time begin = absl::Now();
    Result<Batch> batch = RunPrograms(small.session, 0, {small.Run()});
    if (!batch.ok()) return Failed("run a program", batch.status());
    if (Status status = batch->Wait(); !status.ok()) return Failed("wait for a job", status);
    return absl::Now() - begin;
  };
  std::vector<double> calls, runs, futexes, trips, firings;
  for (int round = 0; round < settings.rounds; ++round) {
    ASSIGN_OR_RETURN(double call, MedianMicroseconds([&] { return echo.SmallCall(); }));
    ASSIGN_OR_RETURN(double run, MedianMicroseconds(run_posted));
    ASSIGN_OR_RETURN(double futex_trip, MedianMicroseconds([&]() -> absl::StatusOr<absl::Duration> {
                       return futex.RoundTrip();
                     }));
    ASSIGN_OR_RETURN(double trip, MedianMicroseconds([&] { return FireAll({&*receive, &*send}); }));
    ASSIGN_OR_RETURN(double firing, MedianMicroseconds([&] { return FireAll({&*job}); }));
    calls.push_back(call);
    runs.push_back(run);
    futexes.push_back(futex_trip);
    trips.push_back(trip);
    firings.push_back(firing);
  }
  Row row;
  row.name = "4 KiB job, posted";
  row.unit = "us";
  row.warm = tools::Median(runs);
  row.peer = "gRPC unary round trip";
  row.peer_warm = tools::Median(calls);
  row.at_most = true;
  row.target = 3;
  report.Add(row);
  row.name = "4 KiB job, prepared";
  row.warm = tools::Median(firings);
  row.peer = "nothing prepared, local: the daemon's words there and back";
  row.peer_warm = tools::Median(trips);
  row.target = 2;
  report.Add(row);
  row.target.reset();
  row.peer = "futex-word round trip";
  row.peer_warm = tools::Median(futexes);
  report.Add(row);
  return absl::OkStatus();
}

}  // namespace ferry::bench
