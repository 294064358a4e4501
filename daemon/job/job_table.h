// SPDX-License-Identifier: Apache-2.0
// The daemon's jobs, which are runs of programs over memory of sessions: compiles programs and
// keeps them (ProgramCache), takes batches of runs, and has each run when its turn has come.
//
// A job waits until its memory is defined and the transfers that it comes after are over. Then it
// waits for its turn: sessions share the compute thread equally, by the time that their jobs take.
// On a GPU it also waits while its user has had more than his share (JobLimits::gpu_time).
// Transfers that a program makes by itself (sends and receives) are posted with the job as
// transfers of its session. A job stops where its plan has to wait for one of them, and goes on
// later.
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

#include <cstdint>
#include <functional>
#include <map>
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
#include "daemon/job/compiled_program.h"
#include "daemon/job/job.h"
#include "daemon/job/job_binding.h"
#include "daemon/job/job_queue.h"
#include "daemon/job/job_runner.h"
#include "daemon/job/prepared_jobs.h"
#include "daemon/local_devices.h"
#include "daemon/post.h"
#include "daemon/run_time.h"
#include "daemon/session/session_table.h"
#include "transfer/engine.h"

namespace ferry {

class JobTable {
 public:
  // Where programs are computed.
  struct Computing {
    Executor& home;
    JobRunner& runner;  // must be the one that runs on `home`
    // Who multiplies matrices on a GPU, asked on `compiler`; null: our own kernels do.
    compute::GpuMultiplier* multiplier = nullptr;
  };
  struct Homes {
    Executor& control;
    Executor& compiler;
    Computing host;                            // of all host devices
    std::map<GlobalDeviceId, Computing> gpus;  // of each GPU
    // Machine code of kernels; used on `compiler`. Null: there are no GPUs.
    compute::KernelStore* kernels = nullptr;
    // Programs that GPUs do not run; null: they run all.
    const BarredPrograms* barred = nullptr;
  };
  struct Hooks {
    // Gives a job's ending to its session. OnOver is called for it afterwards.
    std::function<void(const Ended&)> over;
    // Whether a transfer is posted and not over.
    std::function<bool(TransferId)> in_flight;
    // Ends a transfer: what it waits for will never be defined.
    std::function<void(TransferId, const absl::Status& why)> poison;
    // For the transfers that jobs make by themselves. What is wrong with them; nothing: they may be
    // posted.
    std::function<std::vector<TransferEngine::EntryError>(absl::Span<const TransferSpec>)> check;
    // Posts them.
    std::function<void(absl::Time posted, TransferId first, std::vector<TransferSpec>)> post;
    // The job's run has come to this transfer: its data is defined.
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
  void OnFiringFailed(TransferId job, const absl::Status& why);

  // --- A transfer or a job is over, and its session knows.
  void OnOver(const Ended& ended);
  // Looks again at the transfers that jobs come after. Must be called when sessions know of all
  // endings. False if there was nothing to do; else jobs may have ended.
  bool Join();

  // --- From the session table.
  void EndSession(SessionId session);

  // The limits of programs that are compiled from now on.
  void SetLimits(const JobLimits& limits);
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
    uint64_t firings = 0;   // firings of a prepared job that are over
    RunTime run_time = {};  // what its runs have taken
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
  // The users of a GPU, and how many posted jobs wait for their shares of its time.
  struct GpuUse {
    GlobalDeviceId device;
    const TimeQuotas* users = nullptr;
    size_t held = 0;
  };
  struct Use {
    absl::Duration run_time;  // of all runs, on all devices
    std::vector<GpuUse> gpus;
  };
  Use use() const;

 private:
  // The jobs of all host devices, or those of a GPU.
  struct Place {
    Place(JobTable& table, const Computing& computing);

    const Computing computing;
    TimeQuotas quotas;  // with a limit on GPUs alone
    JobQueue queue;
    PreparedJobs prepared;
    size_t jobs = 0;    // jobs here that are not over
    bool used = false;  // the runner may hold something since it last let go
  };

  absl::Status CheckDevice(GlobalDeviceId device) const;
  // What programs are compiled for on this device, which CheckDevice has found good.
  Target TargetOf(GlobalDeviceId device) const;
  // Refuses memory that a GPU's kernels do not take.
  void CheckAlignment(const std::vector<BoundJob>& bound, std::vector<Violation>& violations) const;
  Place& PlaceOf(const LocalDevice& device) const {
    return device.gpu == nullptr ? *places_.front() : *gpu_places_.find(device.id)->second;
  }
  Place& PlaceOf(const Job& job) const { return PlaceOf(*job.device); }
  // Hands jobs to all compute threads.
  void Pump();
  // Has runners of GPUs whose memory nobody uses any more let go.
  void LetGoOfGpus();
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
  // Sections of the job, or some of its transfers, are over: goes on if MayGoOn, or ends the job.
  void GoOn(Job& job);
  // Ends the job: at once, or when the transfers that it makes by itself have ended.
  void EndWith(Job& job, absl::Status status);
  std::string WaitsFor(const Job& job) const;
  compute::HostProgram::StepOver DefineByStep(const Job& job);

  void Watch(Job& job);
  // Goes on to wait for the next transfer that the job comes after.
  void Advance(Job& job);
  void OnDefined(TransferId id);
  void ReadyIfSo(Job& job);
  // The compute thread has run the job, or some sections of it.
  void OnRan(Job& job, absl::Status status);
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
  ProgramCache programs_;
  Jobs jobs_;
  // Deadlines of jobs that were not told to end.
  absl::btree_set<std::pair<absl::Time, TransferId>> deadlines_;
  // The jobs that wait for each transfer. A job waits for one transfer at a time.
  absl::flat_hash_map<TransferId, absl::flat_hash_set<TransferId>> awaited_;
  std::vector<TransferId> joining_;  // jobs to look at in Join: what they waited for is over
  // From a transfer that a job makes by itself, to the job
  absl::flat_hash_map<TransferId, TransferId> own_transfers_;
  std::vector<std::unique_ptr<Place>> places_;  // that of host devices, then those of GPUs
  std::map<GlobalDeviceId, Place*> gpu_places_;
  Counts counts_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
