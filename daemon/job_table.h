// SPDX-License-Identifier: Apache-2.0
// Jobs: runs of programs over memory of sessions. Compiles programs and keeps them; takes batches
// of runs, holds each until its memory is defined, the transfers before it are over and it is its
// turn (sessions share equally, by what their jobs cost), and has it run. What a program sends and
// receives itself are transfers of its session, posted with the job; it stops where it has to wait
// for one. What a job has made it
// says is defined; transfers that wait for what a failed one would have made are poisoned: so jobs
// and transfers are joined by words and ids, and neither knows the other. A job that is not
// over by its deadline ends: at once, or once it has begun before its next launch. Prepared jobs
// are with the JobRunner until they end, all of a batch at once, with the batches of transfers that
// they are joined to. Home: control. Programs are compiled on `compiler` and run on `compute`, one
// at a time each, so that neither holds up a transfer; these are stopped before the table goes.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/time/time.h"
#include "base/executor.h"
#include "base/ids.h"
#include "daemon/compiled_program.h"
#include "daemon/job_binding.h"
#include "daemon/job_runner.h"
#include "daemon/local_devices.h"
#include "daemon/post.h"
#include "daemon/session_table.h"
#include "transfer/engine.h"
#include "transfer/fair_queue.h"

namespace ferry {

class JobTable {
 public:
  struct Homes {
    Executor& control;
    Executor& compiler;
    Executor& compute;
    JobRunner& runner;  // compute's
  };
  struct Hooks {
    // Gives a job's ending to its session; it comes back by OnOver.
    std::function<void(const Ended&)> over;
    // Whether a transfer is posted and not over.
    std::function<bool(TransferId)> in_flight;
    // What a transfer waits for will never be there.
    std::function<void(TransferId, const absl::Status& why)> poison;
    // Of transfers that are parts of jobs: what is wrong with them, posting them, and saying of one
    // that its turn has come.
    std::function<std::vector<TransferEngine::EntryError>(absl::Span<const TransferSpec>)> check;
    std::function<void(absl::Time posted, TransferId first, std::vector<TransferSpec>)> post;
    std::function<void(TransferId)> define;
  };
  // Programs that wait to be compiled.
  static constexpr size_t kMostCompiling = 64;

  JobTable(Homes homes, LocalDevices& devices, SessionTable& sessions, JobLimits limits,
           Hooks hooks);

  // --- From gRPC and attach.sock.
  // `keep`: so that it can be run. `done` is called on control.
  void Compile(GlobalDeviceId device, ProgramSource source, bool keep,
               std::function<void(CompileResult)> done);
  PostReply Post(Session& session, PostBatch batch);
  // False if there is no such job. One that has begun ends before its next launch.
  bool Cancel(TransferId job, const absl::Status& why);
  // A firing of a prepared job could not be carried out.
  void OnFiringFailed(TransferId job, const absl::Status& why) { Cancel(job, why); }

  // --- A transfer or a job is over, its session knows.
  void OnOver(const Ended& ended);
  // Looks how the transfers stand that jobs come after. To be called when sessions know of all
  // endings; false if there was nothing to do, else there may be endings.
  bool Join();

  // --- From the session table.
  void EndSession(SessionId session);

  // For programs that are compiled from then on.
  void SetLimits(const JobLimits& limits) { limits_ = limits; }
  // Refuses new jobs.
  void SetDraining(bool draining) { draining_ = draining; }
  // Ends them all, those that run before their next launch.
  void CancelAll(const absl::Status& why);
  // Ends those whose deadline has come; when it wants to be called again.
  absl::Time OnTime(absl::Time now);

  struct Row {
    TransferId job;
    GlobalDeviceId device;
    std::string fingerprint;  // of the program, 32 bytes
    const char* state = "";   // "waiting", "ready", "running", "armed"
    bool running() const { return waits_for.empty(); }
    absl::Time posted;
    uint64_t bytes = 0;    // of its buffers
    uint64_t scratch = 0;  // that it takes besides
    std::string waits_for;
    bool prepared = false;
    uint64_t firings = 0;  // that are over
  };
  std::optional<Row> Find(TransferId job) const;
  // Oldest first.
  std::vector<Row> List(size_t limit) const;
  size_t in_flight() const { return jobs_.size(); }
  const ProgramCache& programs() const { return programs_; }

  struct Counts {
    uint64_t ok = 0, failed = 0;  // that are over
    uint64_t compiled = 0, refused_programs = 0;
  };
  const Counts& counts() const { return counts_; }
  absl::Duration run_time() const { return homes_.runner.run_time(); }

 private:
  // kHanded: to the compute thread, which has begun it or will.
  enum class State { kWaiting, kReady, kHanded, kArmed, kEnding };
  // What a job has whose program sends or receives: transfers of the session that no client knows,
  // posted with it and begun when the plan comes to them, and memory in which they are.
  struct Wire {
    ArenaId memory;
    bool mapped = false;
    TransferId first;        // of the transfers, in the program's order
    std::vector<bool> over;  // by transfer
    size_t left = 0;
    size_t stage = 0;   // of the program's: that is to run next
    bool late = false;  // its deadline has come while it waited for transfers
    // How the job ends, once no transfer has its memory any more.
    std::optional<absl::Status> outcome;
  };
  struct Job : FairQueue::Item {
    using FairQueue::Item::Item;
    TransferId id;
    LocalDevice* device = nullptr;
    std::shared_ptr<const CompiledProgram> program;
    std::vector<Range> memory;  // by buffer
    TransferSpec spec;          // with the same ranges, as they were bound
    absl::Time posted;
    JobSpec::Transfers feeds;
    uint32_t defines_timeline = 0;
    uint64_t defines_value = 0;
    JobSpec::Transfers after;           // that are not known to be over
    std::optional<TransferId> awaited;  // the first of them
    State state = State::kWaiting;
    Handover* handover = nullptr;  // while it is kHanded
    std::vector<Joint> joints;     // of a prepared one
    std::optional<Wire> wire;
    std::atomic<bool> stop{false};  // the compute thread looks at it between launches
    absl::Status stopped_by;
    // While it is kHanded: jobs of other sessions wait; the compute thread looks at it.
    std::atomic<bool> others{false};
    bool aside = false;  // the compute thread has put it aside at least once
  };
  // A prepared batch of jobs, from its posting until its last job is over.
  struct Prepared {
    PreparedBatch* batch = nullptr;
    std::vector<TransferId> jobs;
    absl::Duration deadline;  // of a firing, from when it may begin
    bool ending = false;
    TransferId culprit;  // whose end, for `why`, is that of all
    absl::Status why;
    // Control looks now and then whether a firing that may begin has not begun for too long.
    uint64_t seen = 0;  // the firing, 0: none
    absl::Time since;
    absl::Time look;
  };
  // By number.
  using PreparedKey = std::pair<SessionId, uint32_t>;
  // Jobs that are handed to the compute thread at a time: the next one need not come from control.
  static constexpr size_t kAtOnce = 2;

  // Of what waits for something that has failed: `what` and `how` as in "transfer 5, which was
  // waited for, failed".
  static absl::Status PoisonedBy(TransferId cause, const absl::Status& status,
                                 const char* what = "transfer ",
                                 const char* how = "which was waited for");
  absl::Status CheckDevice(GlobalDeviceId device) const;
  Job& Add(SessionId session, const PostReply& reply, size_t index, PostBatch& batch,
           BoundJob bound);
  // What the program's buffers are bound to.
  std::vector<absl::Span<std::byte>> MemoryOf(const Job& job);
  void Prepare(Session& session, const PostReply& reply, PostBatch& batch,
               std::vector<BoundJob> bound);
  // --- job_transfers.cc
  // Checks what the runs send and receive, and takes memory for it; `reply` lists what is wrong,
  // and then nothing is taken.
  std::vector<ArenaId> TakeWires(Session& session, PostBatch& batch,
                                 const std::vector<BoundJob>& bound, PostReply& reply);
  void PostWire(Job& job, Session& session, ArenaId memory, std::vector<TransferSpec> specs);
  void OnMapped(TransferId job, ArenaId memory, const absl::Status& status);
  void OnWireOver(const Ended& ended);
  // The transfers that the next stage awaits are over, and there is memory.
  bool MayGoOn(const Job& job) const;
  // A stage is over, or transfers are.
  void GoOn(Job& job);
  // Ends the job: at once, or with the transfers that are parts of it.
  void EndWith(Job& job, absl::Status status);
  std::string WaitsFor(const Job& job) const;
  compute::HostProgram::StepOver DefineByStep(const Job& job);

  // Begins to end all jobs of a batch, and what they are joined to.
  void EndPrepared(PreparedKey key, TransferId culprit, const absl::Status& why);
  void OnDisarmed(PreparedKey key);
  void LookAtFiring(PreparedKey key, Prepared& prepared, absl::Time now);
  void Watch(Job& job);
  // Goes on to the next transfer that is to be over before the job begins.
  void Advance(Job& job);
  void OnDefined(TransferId id);
  void ReadyIfSo(Job& job);
  // --- job_handover.cc
  // Hands over those whose turn it is.
  void Pump();
  void Hand(Job& job, Handover& place);
  size_t Handed(Handover::State state) const;
  // The compute thread is done with what it was handed; without a status it was taken back. `left`:
  // what it still costs, if it was put aside.
  void OnRan(TransferId id, Handover& place, std::optional<absl::Status> status, uint64_t left);
  // Tells what is handed whether others wait.
  void ShareOut();
  // A job that was handed and has not begun waits for its turn again.
  void TakeBack(Job& job);
  // Has a job that has begun end before its next launch, because of `why`.
  void Stop(Job& job, absl::Status why);
  // All jobs, or a session's.
  void EndAll(std::optional<SessionId> session, const absl::Status& why);
  // It waits for nothing any more.
  void Leave(Job& job);
  void End(Job& job, absl::Status status);
  absl::Status TooLate(const Job& job) const;
  Row RowOf(const Job& job) const;

  const Homes homes_;
  LocalDevices& devices_;
  SessionTable& sessions_;
  JobLimits limits_;
  const Hooks hooks_;
  bool draining_ = false;
  size_t compiling_ = 0;
  std::array<Handover, kAtOnce> handovers_;
  std::vector<Job*> handed_;  // and not taken back, in this order
  ProgramCache programs_;
  absl::flat_hash_map<TransferId, std::unique_ptr<Job>> jobs_;
  absl::btree_set<std::pair<absl::Time, TransferId>> deadlines_;  // of those not told to end
  // Of each transfer, the jobs that wait for it. A job waits for one at a time.
  absl::flat_hash_map<TransferId, absl::flat_hash_set<TransferId>> awaited_;
  std::vector<TransferId> joining_;  // jobs that may wait for something else from now on
  absl::flat_hash_map<TransferId, TransferId> wires_;  // transfers that are parts of jobs, to these
  FairQueue ready_;
  absl::flat_hash_map<PreparedKey, Prepared> prepared_;
  absl::flat_hash_map<PreparedKey, TransferId> joined_;  // batches of transfers, to the job
  absl::Time next_look_ = absl::InfiniteFuture();
  Counts counts_;
};

}  // namespace ferry
