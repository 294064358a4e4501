// SPDX-License-Identifier: Apache-2.0
// One rank of one attempt of a clique's communicator. NCCL's calls may hang, and only an abort from
// another thread frees a call that hangs. So three threads meet here, with a gate between them. An
// opener thread opens the communicator and warms it up. Then the lane launches groups on it. A
// reaper thread aborts it, once no thread is inside NCCL with it any more, or if a thread that is
// does not come out by itself. Blocking communicators only: what a call queues is on its stream
// when the call returns.
//
// Owned by CommTable, which destroys it when all three threads are done with it. Any thread may
// read its state.
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
    kEnded,  // no thread begins a call any more
  };
  // One operation of a group: contiguous bytes to or from the other rank.
  struct Operation {
    bool send = false;
    std::byte* memory = nullptr;
    size_t bytes = 0;
  };
  // How long the reaper waits for a thread inside NCCL: the death of a peer often ends a call by
  // itself.
  static constexpr absl::Duration kGrace = absl::Milliseconds(100);

  // Rank 0 is the leader's. `max_ctas` is the same at both ranks; 0: NCCL chooses.
  Communicator(const NcclApi& api, CudaDevice& device, int rank, int max_ctas);
  ~Communicator();

  State state() const { return state_; }
  int rank() const { return rank_; }

  // --- An opener's thread.
  // The leader's rank only: makes a fresh unique id.
  absl::StatusOr<std::string> MakeId();
  struct Opened {
    absl::Duration took;
    uint64_t bytes = 0;  // GPU memory that went during the opening
  };
  // ROUTE_UNAVAILABLE; or that the communicator was ended meanwhile.
  absl::StatusOr<Opened> Open(const std::string& unique_id);

  // --- The lane.
  // Queues the operations as one NCCL group. COMM_ABORTED: the communicator is of no use any more.
  absl::Status Launch(const CudaStream& stream, absl::Span<const Operation> operations);
  // An error that NCCL has noticed by itself.
  absl::Status AsyncError(absl::string_view doing = "run a group");

  // --- Control.
  void End() { state_ = State::kEnded; }

  // On a reaper's thread: aborts the communicator. Once, after End(). May hang, as NCCL may.
  void Reap();

 private:
  absl::Status OpenAndWarm(const std::string& unique_id, Opened& opened);
  absl::Status OpenInside(const ncclUniqueId& id);
  absl::Status AwaitWarm();
  absl::Status CallGroup(void* stream, absl::Span<const Operation> operations);
  // Enters NCCL with the communicator; false if it has ended. After true, Leave() must follow.
  bool Enter();
  void Leave();
  // Waits until no thread is inside; false if that takes longer than `patience`.
  bool AwaitEmpty(absl::Duration patience);
  // Waits until neither that nor an opener's use of `warm_` goes on.
  void AwaitOut();

  const NcclApi& api_;
  CudaDevice& device_;
  const int rank_;
  const int max_ctas_;
  std::atomic<State> state_{State::kOpening};
  // NCCL writes it as soon as there is a communicator, while the call still runs: an abort needs
  // it.
  ncclComm_t comm_ = nullptr;
  std::atomic<bool> initialized_{false};  // the call that makes `comm_` is over
  Mutex mutex_;
  std::condition_variable_any left_;
  int inside_ ABSL_GUARDED_BY(mutex_) = 0;
  bool opening_ ABSL_GUARDED_BY(mutex_) = false;  // an opener is at work, inside NCCL or not
  // Belongs to the opener until that returns, then to the reaper. Holds the context.
  std::unique_ptr<CudaStream> warm_;
};

}  // namespace ferry
