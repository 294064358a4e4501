// SPDX-License-Identifier: Apache-2.0
// The NCCL communicators of this daemon's GPUs, from the engine's order to open one until nothing
// of it is left. CommTable carries out the engine's orders: each opening runs on an opener's
// thread, groups run on the GPU's lane, each end runs on a reaper's thread. CommCache keeps the
// books (memory, use). Home: control.
//
// A communicator is destroyed when four things have happened: its opener is back, its groups are
// answered, its lane has let go of it, and its reaper has ended it. If that takes longer than
// kGiveUp, this process aborts: something in NCCL or the driver hangs for good, with clients'
// memory in use.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/executor.h"
#include "base/home.h"
#include "daemon/local_devices.h"
#include "transfer/engine.h"
#include "transfer/nccl/call_threads.h"
#include "transfer/nccl/comm_cache.h"
#include "transfer/nccl/communicator.h"
#include "transfer/nccl/nccl_transport.h"

namespace ferry {

struct NcclOptions {
  const NcclApi* api = nullptr;  // null: NCCL is not there
  std::string missing;           // if `api` is null: why
  // The bound of CommCache for each GPU, in bytes; and how long a communicator may be unused before
  // it is evicted.
  uint64_t bytes_per_gpu = uint64_t{2} << 30;
  absl::Duration idle = absl::Minutes(10);
  // The transport of each GPU of ours; all have one, or none has.
  absl::flat_hash_map<GlobalDeviceId, NcclTransport*> transports = {};
};

class CommTable {
 public:
  // The first four tell the engine what has happened, `evict` asks the engine for something, and
  // the last two ask what other parts know.
  struct Hooks {
    // The leader's opener has made the unique id, which the other daemon needs.
    std::function<void(const Clique&, uint32_t attempt, std::string unique_id)> made_id;
    std::function<void(const Clique&, uint32_t attempt)> opened;
    std::function<void(const Clique&, uint32_t attempt, const absl::Status&)> failed;
    std::function<void(uint64_t group, const absl::Status&)> group_over;
    // Asks the engine to close the clique's communicator: if it is idle, or (`busy`) as soon as its
    // groups are over.
    std::function<void(const Clique&, bool busy)> evict;
    // The incarnation of the daemon that owns the device.
    std::function<Incarnation(GlobalDeviceId)> incarnation;
    // The most CTAs that a peer wants communicators of its device to have; 0: it has not said.
    std::function<int(GlobalDeviceId)> max_ctas;
  };
  // The longest that the end of a communicator may take; see above.
  static constexpr absl::Duration kGiveUp = absl::Seconds(30);

  // `devices` and `control` outlive the table, and so does NCCL's api.
  CommTable(Executor& control, LocalDevices& devices, NcclOptions options, Hooks hooks);
  ~CommTable();

  // --- From the engine's outbox, in the order of the outbox. An order names a communicator by its
  // clique and attempt.
  void Open(CommunicatorOpen order);
  void GatherAhead(const GroupAhead& order);
  // `parts`: our part of each of the launch's chunks, except that chunks of bundles have none.
  void Launch(const GroupLaunch& order, std::vector<GroupPart> parts);
  void Closing(const CommunicatorClosing& order);
  void End(const CommunicatorEnd& order);

  // --- From lanes, posted to control.
  void OnGroupsOver(std::vector<std::pair<uint64_t, absl::Status>> over);
  void OnFailed(const Communicator* communicator, const absl::Status& why);
  void OnLetGo(const Communicator* communicator);

  // Starts openings for which there is room, asks for evictions, and aborts the process if an end
  // takes too long. Returns when to be called again.
  absl::Time OnTime(absl::Time now);
  // Ends all communicators and waits for that. Control must have stopped; the lanes must still run.
  void Stop();

  const CommCache& cache() const { return cache_; }
  void SetBounds(uint64_t bytes_per_gpu, absl::Duration idle) {
    home_.Check();
    cache_.SetBounds(bytes_per_gpu, idle);
  }
  // Names one of the clique's communicators that have not ended: `attempt` if there is such a one,
  // or, with `attempt` 0, the only one. NOT_FOUND if there is none; INVALID_ARGUMENT if 0 could
  // mean several (a communicator that closes, and the next one).
  absl::StatusOr<uint32_t> Named(const Clique& clique, uint32_t attempt) const;
  // The attempt of the clique's newest communicator that has not ended; all older ones are closing.
  // NOT_FOUND if there is none.
  absl::StatusOr<uint32_t> NewestOf(const Clique& clique) const;

 private:
  // One communicator, from Open until nothing of it is left.
  struct Entry {
    CommCache::Id id = 0;
    Clique clique;
    uint32_t attempt = 0;
    LocalDevice* device = nullptr;
    NcclTransport* transport = nullptr;  // of that device
    std::unique_ptr<Communicator> communicator;
    std::string unique_id;
    bool waiting = true;   // it waits for memory: it has no opener yet
    bool opening = true;   // its opener is waiting to start, or has not come back
    bool ended = false;    // the engine has ordered its end
    bool reaping = false;  // its reaper was started
    bool reaped = false;   // its reaper has come back
    bool let_go = false;   // its lane uses it no more, except for groups
    size_t groups = 0;     // launched groups that are not answered
    absl::Status why;      // how it ended; OK: it was closed and may finish its groups
    // When the process gives up; infinite until the end was ordered.
    absl::Time give_up = absl::InfiniteFuture();
  };

  // The stream on which a GPU's lane launches groups. The first opener makes it; it is given back
  // after the last entry of the GPU.
  struct LaneStream {
    size_t users = 0;   // entries of this GPU
    bool made = false;  // it exists, or an opener is making it
  };

  // Starts an opener for each entry that CommCache has room for now.
  void OpenWaiting();
  void StartOpener(Entry& entry);
  // The opener's work; runs on its thread.
  absl::StatusOr<Communicator::Opened> OpenOnThread(CommCache::Id id, LocalDevice& device,
                                                    Communicator& communicator, bool makes_stream,
                                                    std::string unique_id);
  // The opener of `maker` could not make the lane's stream; openings that count on the stream fail.
  void OnNoStream(CommCache::Id maker, LocalDevice& device, const absl::Status& why);
  void FailToOpen(Entry& entry, const absl::Status& why);
  void OnId(CommCache::Id id, std::string unique_id);
  void OnOpened(CommCache::Id id, absl::StatusOr<Communicator::Opened> opened);
  void OnReaped(CommCache::Id id);
  // Does the next steps of an entry's end, as far as they can be done now.
  void GoOn(Entry& entry);
  [[noreturn]] static void GiveUp(const std::string& what);
  std::string NameOf(const Entry& entry) const;
  // The clique's entries that have not ended, the oldest first.
  std::vector<const Entry*> StandingOf(const Clique& clique) const;

  Executor& control_;
  LocalDevices& devices_;
  const NcclOptions options_;
  const Hooks hooks_;
  CommCache cache_;
  absl::btree_map<CommCache::Id, Entry> entries_;
  // The entries that have not ended, by clique and attempt.
  absl::flat_hash_map<std::pair<Clique, uint32_t>, CommCache::Id> in_use_;
  // Groups that are not answered, by number.
  absl::flat_hash_map<uint64_t, CommCache::Id> groups_;
  absl::flat_hash_map<LocalDevice*, LaneStream> streams_;
  absl::Time next_look_ = absl::InfinitePast();  // for evictions, and for ends that take too long
  CallThreads threads_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
