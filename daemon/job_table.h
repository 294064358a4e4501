// SPDX-License-Identifier: Apache-2.0
// The daemon's jobs, which are runs of programs over memory of sessions: compiles programs and
// keeps them (ProgramCache), takes batches of runs, and has each run when its turn has come.
//
// A job waits until its memory is defined and the transfers that it comes after are over. Then it
// waits for its turn: sessions share the compute thread equally, by what their jobs cost. Transfers
// that a program makes by itself (sends and receives) are posted with the job as transfers of its
// session. A job stops where its plan has to wait for one of them, and goes on later.
//
// When a job has gone well, the value that it defines is stored. When it has failed, the transfers
// that it feeds are poisoned. So jobs and transfers know each other only by words and ids. A job
// that is not over by its deadline ends: at once if it has not begun, else before its next launch.
//
// A prepared batch of jobs is with JobRunner until it ends. All jobs of the batch end together, and
// with them the prepared batches of transfers that they are joined to.
//
// Refused: jobs while the daemon drains, programs and jobs beyond JobLimits, programs beyond
// kMostCompiling. Owns jobs and compiled programs. Home: control. Programs are compiled on
// `compiler` and run on `compute`, one at a time each, so that neither holds up a transfer; both
// executors must be stopped before the table is destroyed.
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
#include "base/home.h"
#include "base/ids.h"
#include "daemon/compiled_program.h"
#include "daemon/job_binding.h"
#include "daemon/job_runner.h"
#include "daemon/local_devices.h"
#include "daemon/post.h"
#include "daemon/session/session_table.h"
#include "transfer/engine.h"
#include "transfer/fair_queue.h"

namespace ferry {

class JobTable {
 public:
  struct Homes {
    Executor& control;
    Executor& compiler;
    Executor& compute;
    JobRunner& runner;  // must be the one that runs on `compute`
  };
  struct Hooks {
    // Gives a job's ending to its session. OnOver is called for it afterwards.
    std::function<void(const Ended&)> over;
    // Whether a transfer is posted and not over.
    std::function<bool(TransferId)> in_flight;
    // Ends a transfer: what it waits for will never be defined.
    std::function<void(TransferId, const absl::Status& why)> poison;
    // For the transfers that jobs make by themselves: what is wrong with them; post them; the turn
    // of one has come.
    std::function<std::vector<TransferEngine::EntryError>(absl::Span<const TransferSpec>)> check;
    std::function<void(absl::Time posted, TransferId first, std::vector<TransferSpec>)> post;
    std::function<void(TransferId)> define;
  };
  // The most programs that may wait to be compiled.
  static constexpr size_t kMostCompiling = 64;

  JobTable(Homes homes, LocalDevices& devices, SessionTable& sessions, JobLimits limits,
           Hooks hooks);

  // --- From gRPC and attach.sock.
  // Compiles a program. `keep`: keeps it in the cache, so that it can be run. `done` is called on
  // control.
  void Compile(GlobalDeviceId device, ProgramSource source, bool keep,
               std::function<void(CompileResult)> done);
  // Takes a batch of runs, all or none.
  PostReply Post(Session& session, PostBatch batch);
  // Asks a job to end; a job that has begun ends before its next launch. False if there is no such
  // job.
  bool Cancel(TransferId job, const absl::Status& why);
  // A firing of a prepared job could not be carried out, so the job ends.
  void OnFiringFailed(TransferId job, const absl::Status& why) {
    home_.Check();
    Cancel(job, why);
  }

  // --- A transfer or a job is over, and its session knows.
  void OnOver(const Ended& ended);
  // Looks again at the transfers that jobs come after. Must be called when sessions know of all
  // endings. False if there was nothing to do; else jobs may have ended.
  bool Join();

  // --- From the session table.
  void EndSession(SessionId session);

  // The limits of programs that are compiled from now on.
  void SetLimits(const JobLimits& limits) {
    home_.Check();
    limits_ = limits;
  }
  // With true, refuses new jobs.
  void SetDraining(bool draining) {
    home_.Check();
    draining_ = draining;
  }
  // Ends all jobs; those that run end before their next launch.
  void CancelAll(const absl::Status& why);
  // Ends jobs whose deadline has come. Returns when it wants to be called again.
  absl::Time OnTime(absl::Time now);

  // A job as operators see it.
  struct Row {
    TransferId job;
    GlobalDeviceId device;
    std::string fingerprint;  // fingerprint of the program, 32 bytes
    const char* state = "";   // "waiting", "ready", "running", "armed"
    bool running() const { return waits_for.empty(); }
    absl::Time posted;
    uint64_t bytes = 0;    // size of its buffers
    uint64_t scratch = 0;  // memory that it takes beside its buffers
    // What the job waits for, for people; "" while it runs.
    std::string waits_for;
    bool prepared = false;
    uint64_t firings = 0;  // firings of a prepared job that are over
  };
  std::optional<Row> Find(TransferId job) const;
  // Oldest first.
  std::vector<Row> List(size_t limit) const;
  size_t in_flight() const { return jobs_.size(); }
  const ProgramCache& programs() const { return programs_; }

  struct Counts {
    uint64_t ok = 0, failed = 0;  // jobs that are over
    uint64_t compiled = 0, refused_programs = 0;
  };
  const Counts& counts() const { return counts_; }
  absl::Duration run_time() const { return homes_.runner.run_time(); }

 private:
  // What a job waits for. kWaiting: its memory or transfers. kReady: its turn. kAtRunner: the
  // compute thread, which has begun it or will. kArmed: prepared, with the JobRunner. kEnding: its
  // transfers to end.
  enum class State { kWaiting, kReady, kAtRunner, kArmed, kEnding };
  // What a job of a program that sends or receives has besides. The transfers are the session's,
  // but no client knows them; they are posted with the job and begin when the plan comes to them.
  // The job's memory, an arena of its own, is where they read and write.
  struct OwnTransfers {
    ArenaId memory;
    bool mapped = false;
    TransferId first;        // id of the first transfer; the rest follow in the program's order
    std::vector<bool> over;  // whether each transfer is over
    // Transfers that are not over.
    size_t left = 0;
    size_t section = 0;  // section of the program that runs next
    bool late = false;   // the deadline has come while the job waited for transfers
    // How the job ends, once no transfer uses its memory any more; nothing: it goes on.
    std::optional<absl::Status> outcome;
  };
  struct Job : FairQueue::Item {
    using FairQueue::Item::Item;
    TransferId id;
    LocalDevice* device = nullptr;
    std::shared_ptr<const CompiledProgram> program;
    std::vector<Range> memory;  // by buffer
    TransferSpec spec;          // the same ranges as bound, and the job's deadline
    absl::Time posted;
    // Transfers that are poisoned if the job fails.
    JobSpec::Transfers feeds;
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
    bool aside = false;  // the compute thread has put it aside at least once
  };
  // A prepared batch of jobs, from its posting until its last job is over.
  struct Prepared {
    PreparedBatch* batch = nullptr;
    std::vector<TransferId> jobs;
    absl::Duration deadline;  // the longest time from when a firing may begin to when it begins
    bool ending = false;
    TransferId culprit;  // the transfer or job whose end, for the reason `why`, ends all
    absl::Status why;
    // Control looks now and then whether a firing that may begin has been kept from beginning for
    // too long.
    uint64_t seen = 0;  // number of the firing that may begin; 0: none
    // Since when `seen` may begin; when to look again.
    absl::Time since;
    absl::Time look;
  };
  // A prepared batch, by its session and its number.
  using PreparedKey = std::pair<SessionId, uint32_t>;
  // How many jobs are handed to the compute thread at a time. With two, the next job need not come
  // from control first.
  static constexpr size_t kAtOnce = 2;

  // The status of a job that waits for something that has failed. `what` and `how` as in "transfer
  // 5, which was waited for, failed".
  static absl::Status PoisonedBy(TransferId cause, const absl::Status& status,
                                 const char* what = "transfer ",
                                 const char* how = "which was waited for");
  absl::Status CheckDevice(GlobalDeviceId device) const;
  Job& Add(SessionId session, const PostReply& reply, size_t index, PostBatch& batch,
           BoundJob bound);
  // The memory of each of the program's buffers.
  std::vector<absl::Span<std::byte>> MemoryOf(const Job& job);
  void Prepare(Session& session, const PostReply& reply, PostBatch& batch,
               std::vector<BoundJob> bound);
  // --- job_transfers.cc
  // Checks what the runs send and receive, and takes memory for each run that does. If something is
  // wrong, it is added to `violations` and no memory is taken.
  std::vector<ArenaId> MakeOwnTransfers(Session& session, PostBatch& batch,
                                        const std::vector<BoundJob>& bound,
                                        std::vector<Violation>& violations);
  void PostOwnTransfers(Job& job, Session& session, ArenaId memory,
                        std::vector<TransferSpec> specs);
  void OnMapped(TransferId job, ArenaId memory, const absl::Status& status);
  void OnOwnTransferOver(const Ended& ended);
  // True if there is memory and the transfers that the next section waits for are over.
  bool MayGoOn(const Job& job) const;
  // A section of the job, or some of its transfers, are over: goes on if MayGoOn, or ends the job.
  void GoOn(Job& job);
  // Ends the job: at once, or when the transfers that it makes by itself have ended.
  void EndWith(Job& job, absl::Status status);
  std::string WaitsFor(const Job& job) const;
  compute::HostProgram::StepOver DefineByStep(const Job& job);

  // Begins to end all jobs of a prepared batch, and the batches that they are joined to.
  void EndPrepared(PreparedKey key, TransferId culprit, const absl::Status& why);
  void OnDisarmed(PreparedKey key);
  void LookAtFiring(PreparedKey key, Prepared& prepared, absl::Time now);
  void Watch(Job& job);
  // Goes on to wait for the next transfer that the job comes after.
  void Advance(Job& job);
  void OnDefined(TransferId id);
  void ReadyIfSo(Job& job);
  // --- job_handover.cc
  // Hands jobs to the compute thread, in the order of their turns, while places are free.
  void Pump();
  void Hand(Job& job, AtRunner& place);
  size_t CountAtRunner(AtRunner::State state) const;
  // The compute thread has finished with a job that it was handed. No status: the job was taken
  // back before it began. `left`: the work that is left if the job was put aside, else 0.
  void OnRan(TransferId id, AtRunner& place, std::optional<absl::Status> status, uint64_t left);
  // Tells each handed job, and JobRunner, whether other sessions wait.
  void ShareOut();
  // Takes a handed job that has not begun back; it waits for its turn again.
  void TakeBack(Job& job);
  // Ends a job that has begun, before its next launch, because of `why`.
  void Stop(Job& job, absl::Status why);
  // Ends all jobs, or those of one session.
  void EndAll(std::optional<SessionId> session, const absl::Status& why);
  // Takes the job out of all lists of what it waits for.
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
  std::array<AtRunner, kAtOnce> at_runner_;
  std::vector<Job*> handed_;  // handed jobs that were not taken back, in the order of handing
  ProgramCache programs_;
  absl::flat_hash_map<TransferId, std::unique_ptr<Job>> jobs_;
  // Deadlines of jobs that were not told to end.
  absl::btree_set<std::pair<absl::Time, TransferId>> deadlines_;
  // The jobs that wait for each transfer. A job waits for one transfer at a time.
  absl::flat_hash_map<TransferId, absl::flat_hash_set<TransferId>> awaited_;
  std::vector<TransferId> joining_;  // jobs to look at in Join: what they waited for is over
  // From a transfer that a job makes by itself, to the job
  absl::flat_hash_map<TransferId, TransferId> own_transfers_;
  FairQueue ready_;
  absl::flat_hash_map<PreparedKey, Prepared> prepared_;
  // From a prepared batch of transfers to the job that fires it.
  absl::flat_hash_map<PreparedKey, TransferId> joined_;
  absl::Time next_look_ = absl::InfiniteFuture();
  Counts counts_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
