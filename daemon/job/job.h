// SPDX-License-Identifier: Apache-2.0
// One run of a program over memory of a session, from its posting until its session knows its end.
// Jobs are made, owned and destroyed by JobTable; JobQueue and PreparedJobs keep pointers to those
// that are with them. Home: control, except where a field says otherwise.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "daemon/job/compiled_program.h"
#include "daemon/job/job_runner.h"
#include "daemon/job/time_quota.h"
#include "daemon/local_devices.h"
#include "daemon/post.h"
#include "daemon/run_time.h"
#include "daemon/session/session_map.h"
#include "transfer/fair_queue.h"
#include "transfer/types.h"

namespace ferry {

struct Job : FairQueue::Item {
  using FairQueue::Item::Item;

  // What a job waits for. kWaiting: its memory or transfers. kReady: its turn. kAtRunner: the
  // compute thread, which has begun it or will. kArmed: prepared, with the JobRunner. kEnding: its
  // transfers to end.
  enum class State : uint8_t { kWaiting, kReady, kAtRunner, kArmed, kEnding };
  // More state, of a job whose program sends or receives by itself. The transfers are the
  // session's, but no client knows them; they are posted with the job and begin when the plan comes
  // to them. The job's memory, an arena of its own, is where they read and write.
  struct OwnTransfers {
    // Written out, since clang has no implicit constructor of a nested struct yet where Job makes
    // an optional of it.
    OwnTransfers() {}
    ArenaId memory;
    bool mapped = false;
    TransferId first;        // id of the first transfer; the rest follow in the program's order
    std::vector<bool> over;  // whether each transfer is over
    size_t left = 0;         // transfers that are not over
    size_t section = 0;      // section of the program that runs next
    Sections at_runner;      // those that the compute thread has, or had last
    bool late = false;       // the deadline has come while the job waited for transfers
    // How the job ends, once no transfer uses its memory any more; nothing: it goes on.
    std::optional<absl::Status> outcome;
  };

  TransferId id;
  LocalDevice* device = nullptr;
  std::shared_ptr<const CompiledProgram> program;
  std::vector<Range> memory;  // by buffer
  TransferSpec spec;          // the same ranges as bound, and the job's deadline
  absl::Time posted;
  JobSpec::Transfers feeds;  // transfers that are poisoned if the job fails
  uint32_t defines_timeline = 0;
  uint64_t defines_value = 0;
  JobSpec::Transfers after;           // transfers not known to be over that the job comes after
  std::optional<TransferId> awaited;  // the first of `after`
  State state = State::kWaiting;
  AtRunner* at_runner = nullptr;  // its place while it is kAtRunner
  std::vector<Joint> joints;      // the batches that a prepared job fires
  std::optional<OwnTransfers> own;
  std::atomic<bool> stop{false};  // read by the compute thread between launches
  absl::Status stopped_by;
  // Read by the compute thread while the job is kAtRunner: whether jobs of other sessions wait.
  std::atomic<bool> others{false};
  bool aside = false;              // the compute thread has put it aside at least once
  TimeQuota* quota = nullptr;      // its user's, of the compute thread
  std::atomic<int64_t> run_ns{0};  // what its runs have taken; the compute thread adds to it
  int64_t charged_ns = 0;          // the part of `run_ns` that was charged to its session
  uint64_t served = 0;             // the work that its last turn was served
  RunTime run_time() const {
    const absl::Duration time = absl::Nanoseconds(run_ns.load(std::memory_order_relaxed));
    return device->gpu == nullptr ? RunTime{.host = time, .gpu = {}}
                                  : RunTime{.host = {}, .gpu = time};
  }
  JobRunner::Account account() { return {spec.uid, &run_ns, quota}; }

  // Ends a run that has begun, before its next launch, because of `why`.
  void Stop(absl::Status why) {
    stopped_by = std::move(why);
    stop.store(true, std::memory_order_relaxed);
  }
};

using Jobs = absl::flat_hash_map<TransferId, std::unique_ptr<Job>>;

// The memory of each of a job's buffers.
using JobMemoryOf = std::function<std::vector<absl::Span<std::byte>>(const Job&)>;

// The status of a job or transfer that waits for something that has failed. `what` and `how` as in
// "transfer 5, which was waited for, failed".
absl::Status PoisonedBy(TransferId cause, const absl::Status& status,
                        const char* what = "transfer ", const char* how = "which was waited for");

// The status of a run of the job. If there was no memory for it, with the sessions that hold most
// on its device.
absl::Status WithHolders(const absl::Status& status, const Job& job, const SessionMap& sessions);

}  // namespace ferry
