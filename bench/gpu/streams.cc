// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/streams.h"

#include <signal.h>

#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "bench/gpu/peer_copy.h"
#include "tools/ferryctl/bench_end.h"
#include "tools/ferryctl/statistics.h"

namespace ferry::bench {
namespace {

// For what takes milliseconds.
constexpr std::chrono::seconds kPatience{20};

absl::Status Good(const Status& status) {
  return status.ok() ? absl::OkStatus()
                     : Error(absl::StatusCode::kInternal, Reason::kInternal, status.ToString());
}

absl::StatusOr<Session> OpenSession(const std::string& client_dir) {
  SessionOptions options;
  options.client_dir = client_dir;
  Result<Session> session = Session::Open(options);
  RETURN_IF_ERROR(Good(session.status()));
  return *std::move(session);
}

}  // namespace

absl::StatusOr<std::unique_ptr<StreamPair>> StreamPair::Open(const testing::GpuDriver& driver,
                                                             const End& source,
                                                             const End& destination, int route) {
  std::unique_ptr<StreamPair> pair(new StreamPair(driver));
  const End* const ends[] = {&source, &destination};
  for (int i = 0; i < 2; ++i) {
    ASSIGN_OR_RETURN(pair->sessions_[i], OpenSession(ends[i]->client_dir));
    Result<Arena> arena = pair->sessions_[i].CreateArena(ends[i]->device, 8);
    RETURN_IF_ERROR(Good(arena.status()));
    pair->arenas_[i] = *std::move(arena);
    pair->contexts_[i] = driver.context(cuda::Device(pair->arenas_[i]));
    driver.cuCtxSetCurrent(pair->contexts_[i]);
    RETURN_IF_ERROR(FromCuda(driver,
                             driver.cuStreamCreate(&pair->streams_[i], CU_STREAM_NON_BLOCKING),
                             "make a stream"));
  }
  PostOptions post;
  post.route = route;
  const auto half = [&](int own) {
    return std::vector<Transfer>{
        Transfer(ends[1 - own]->device, "stream", {pair->arenas_[own].All()})};
  };
  Result<Prepared> receive = pair->sessions_[1].PrepareReceive(destination.device, half(1), post);
  RETURN_IF_ERROR(Good(receive.status()));
  Result<Prepared> send = pair->sessions_[0].PrepareSend(source.device, half(0), post);
  RETURN_IF_ERROR(Good(send.status()));
  pair->receive_ = *std::move(receive);
  pair->send_ = *std::move(send);
  return pair;
}

StreamPair::~StreamPair() {
  for (int i = 0; i < 2; ++i) {
    if (streams_[i] == nullptr) continue;
    driver_.cuCtxSetCurrent(contexts_[i]);
    driver_.cuStreamSynchronize(streams_[i]);
    driver_.cuStreamDestroy(streams_[i]);
  }
}

absl::StatusOr<absl::Duration> StreamPair::Median(uint64_t times) {
  constexpr uint64_t kWarmUp = 10;
  std::vector<absl::Duration> took;
  for (uint64_t i = 0; i < times + kWarmUp; ++i) {
    uint64_t firing = 0;
    RETURN_IF_ERROR(Good(receive_.Fire(&firing)));
    RETURN_IF_ERROR(Good(cuda::Wait(receive_, streams_[1], firing)));
    const int64_t start = tools::MonotonicNanoseconds();
    RETURN_IF_ERROR(Good(cuda::Fire(send_, streams_[0])));
    RETURN_IF_ERROR(FromCuda(driver_, driver_.cuStreamSynchronize(streams_[1]), "await"));
    if (i >= kWarmUp) took.push_back(absl::Nanoseconds(tools::MonotonicNanoseconds() - start));
    RETURN_IF_ERROR(Good(send_.Wait(kPatience)));
  }
  return tools::Median(took);
}

absl::StatusOr<absl::Duration> KillUnderStreams(const testing::GpuDriver& driver, Nodes& nodes,
                                                int node, uint64_t device) {
  constexpr uint32_t kStreams = 6;  // as many as may wait with 8 connections
  ASSIGN_OR_RETURN(Session session, OpenSession(nodes.ClientDir(node)));
  Result<Arena> arena = session.CreateArena(device, 8);
  RETURN_IF_ERROR(Good(arena.status()));
  driver.cuCtxSetCurrent(driver.context(cuda::Device(*arena)));
  std::vector<Batch> batches;
  std::vector<CUstream> streams(kStreams);
  for (uint32_t i = 0; i < kStreams; ++i) {
    PostOptions options;
    options.over_timeline = i;
    Result<Batch> batch = session.Receive(
        device, {Transfer(device, absl::StrCat("never ", i), {arena->All()})}, options);
    RETURN_IF_ERROR(Good(batch.status()));
    batches.push_back(*std::move(batch));
    RETURN_IF_ERROR(FromCuda(driver, driver.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING),
                             "make a stream"));
    RETURN_IF_ERROR(Good(cuda::Wait(batches.back(), streams[i])));
  }
  const int64_t start = tools::MonotonicNanoseconds();
  kill(nodes.pid(node), SIGKILL);
  for (CUstream stream : streams) {
    CUresult result;
    while ((result = driver.cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY) {
      if (tools::MonotonicNanoseconds() - start > std::chrono::nanoseconds(kPatience).count()) {
        return Error(absl::StatusCode::kDeadlineExceeded, Reason::kInternal,
                     "a stream still waits for a transfer of a daemon that was killed");
      }
    }
    RETURN_IF_ERROR(FromCuda(driver, result, "await a stream"));
  }
  const absl::Duration took = absl::Nanoseconds(tools::MonotonicNanoseconds() - start);
  for (Batch& batch : batches) {
    if (batch.Wait(kPatience).reason() != "DAEMON_LOST") {
      return Error(absl::StatusCode::kInternal, Reason::kInternal,
                   "a transfer of a daemon that was killed does not say so");
    }
  }
  for (CUstream stream : streams) driver.cuStreamDestroy(stream);
  RETURN_IF_ERROR(nodes.Restart(node));
  RETURN_IF_ERROR(Annotate(Good(session.WaitAttached(kPatience)), "attach to the next daemon"));
  return took;
}

}  // namespace ferry::bench
