// SPDX-License-Identifier: Apache-2.0
// One rank of one attempt of a clique's communicator. NCCL's calls may hang, and what frees one
// that does is an abort from another thread: so three threads meet here, each with its part, and a
// gate between them. An opener thread opens it and warms it up; then the lane launches groups on
// it; a reaper thread aborts it, once nobody is inside NCCL with it any more, or whoever is does
// not come out by itself. Blocking communicators only: what they queue is on its stream when the
// call returns.
//
// Owned by CommTable, which destroys it when all three are done with it. Any thread may look.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_stream.h"
#include "transfer/nccl/nccl_api.h"

namespace ferry {

class Communicator {
 public:
  enum class State : uint8_t {
    kOpening,
    kOpen,
    kEnded,  // nobody begins a call any more
  };
  // One operation of a group: contiguous bytes to or from the other rank.
  struct Operation {
    bool send = false;
    std::byte* memory = nullptr;
    size_t bytes = 0;
  };
  // How long the reaper waits for who is inside NCCL: a peer that died often ends a call by itself.
  static constexpr absl::Duration kGrace = absl::Milliseconds(100);

  // Rank 0 is the leader's. `max_ctas`, the same at both, 0: NCCL's choice.
  Communicator(const NcclApi& api, CudaDevice& device, int rank, int max_ctas);
  ~Communicator();

  State state() const { return state_; }
  int rank() const { return rank_; }

  // --- An opener's thread.
  // A fresh id, of the leader.
  absl::StatusOr<std::string> MakeId();
  struct Opened {
    absl::Duration took;
    uint64_t bytes = 0;  // of the GPU's memory that went meanwhile
  };
  // ROUTE_UNAVAILABLE, or that it was ended.
  absl::StatusOr<Opened> Open(const std::string& unique_id);

  // --- The lane.
  // Queues the operations as one group. Not OK: COMM_ABORTED, and it is of no use any more.
  absl::Status Launch(const CudaStream& stream, absl::Span<const Operation> operations);
  // What NCCL has noticed by itself.
  absl::Status AsyncError(absl::string_view doing = "run a group");

  // --- Control.
  void End() { state_ = State::kEnded; }

  // --- A reaper's thread, once, after End. May hang as NCCL does.
  void Reap();

 private:
  absl::Status OpenAndWarm(const std::string& unique_id, Opened& opened);
  absl::Status OpenInside(const ncclUniqueId& id);
  absl::Status AwaitWarm();
  absl::Status CallGroup(void* stream, absl::Span<const Operation> operations);
  // False if it has ended; else Leave follows.
  bool Enter();
  void Leave();
  // Until nobody is inside; false if it takes longer.
  bool AwaitEmpty(absl::Duration patience);
  // Until neither that nor an opener's use of `warm_` goes on.
  void AwaitOut();

  const NcclApi& api_;
  CudaDevice& device_;
  const int rank_;
  const int max_ctas_;
  std::atomic<State> state_{State::kOpening};
  // Written by NCCL as soon as there is one, while its call goes on: what an abort needs.
  ncclComm_t comm_ = nullptr;
  std::atomic<bool> initialized_{false};  // and that call is over
  Mutex mutex_;
  std::condition_variable_any left_;
  int inside_ ABSL_GUARDED_BY(mutex_) = 0;
  bool opening_ ABSL_GUARDED_BY(mutex_) = false;  // an opener, inside or not
  // The opener's until it is back, then the reaper's. Holds the context.
  std::unique_ptr<CudaStream> warm_;
};

}  // namespace ferry
