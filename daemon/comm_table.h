// SPDX-License-Identifier: Apache-2.0
// The communicators of this daemon's GPUs: carries out what the engine orders of them (openings,
// groups, ends) by an opener's thread each, the lanes, and a reaper's thread each, and keeps the
// books (CommCache). Home: control.
//
// A communicator is destroyed when its opener has come back, its groups are answered, its lane has
// let go of it and the reaper has ended it. If that takes too long the process is given up:
// something of NCCL or of the driver hangs that nothing frees, with a client's memory in its hands.
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
#include "daemon/local_devices.h"
#include "transfer/engine.h"
#include "transfer/nccl/call_threads.h"
#include "transfer/nccl/comm_cache.h"
#include "transfer/nccl/communicator.h"

namespace ferry {

struct NcclOptions {
  const NcclApi* api = nullptr;  // null: the route is not there
  std::string missing;           // why, then
  uint64_t bytes_per_gpu = uint64_t{2} << 30;
  absl::Duration idle = absl::Minutes(10);
};

class CommTable {
 public:
  // To the engine.
  struct Hooks {
    std::function<void(const Clique&, uint32_t attempt, std::string unique_id)> made_id;
    std::function<void(const Clique&, uint32_t attempt)> opened;
    std::function<void(const Clique&, uint32_t attempt, const absl::Status&)> failed;
    std::function<void(uint64_t group, const absl::Status&)> group_over;
    // If it is idle, or if `busy` when its groups are over.
    std::function<void(const Clique&, bool busy)> evict;
    // Of the daemon that owns a device.
    std::function<Incarnation(GlobalDeviceId)> incarnation;
    // What a peer wants its device's communicators to have at most; 0: it has not said.
    std::function<int(GlobalDeviceId)> max_ctas;
  };
  // From the end of a communicator to where nothing of it is left.
  static constexpr absl::Duration kGiveUp = absl::Seconds(30);

  CommTable(Executor& control, LocalDevices& devices, NcclOptions options, Hooks hooks);
  ~CommTable();

  // --- From the engine's outbox, in order.
  void Open(CommunicatorOpen order);
  void GatherAhead(const GroupAhead& order);
  // `parts` are of the launch's chunks, but for a bundle's.
  void Launch(const GroupLaunch& order, std::vector<GroupPart> parts);
  void Closing(const CommunicatorClosing& order);
  void End(const CommunicatorEnd& order);

  // --- From lanes (posted).
  void OnGroupsOver(std::vector<std::pair<uint64_t, absl::Status>> over);
  void OnFailed(const Communicator* communicator, const absl::Status& why);
  void OnLetGo(const Communicator* communicator);

  // Openings, evictions, and what takes too long; when to be called again.
  absl::Time OnTime(absl::Time now);
  // Ends all and waits for it. Control has stopped; the lanes have not.
  void Stop();

  const CommCache& cache() const { return cache_; }
  void SetBounds(uint64_t bytes_per_gpu, absl::Duration idle) {
    cache_.SetBounds(bytes_per_gpu, idle);
  }
  // Of the clique's communicators that have not ended: `attempt`, or, if that is 0, the only one.
  // NOT_FOUND; INVALID_ARGUMENT if there are several, such as one that closes and the next.
  absl::StatusOr<uint32_t> Named(const Clique& clique, uint32_t attempt) const;
  // All others of them are closing. NOT_FOUND.
  absl::StatusOr<uint32_t> NewestOf(const Clique& clique) const;

 private:
  struct Entry {
    CommCache::Id id = 0;
    Clique clique;
    uint32_t attempt = 0;
    LocalDevice* device = nullptr;
    std::unique_ptr<Communicator> communicator;
    std::string unique_id;
    bool waiting = true;  // for room: it has no opener yet
    bool opening = true;  // its opener has not come back
    bool ended = false;
    bool reaping = false;
    bool reaped = false;
    bool let_go = false;  // by its lane, but for groups
    size_t groups = 0;    // not answered
    absl::Status why;     // OK: it is closed
    absl::Time give_up = absl::InfiniteFuture();
  };

  struct LaneStream {
    size_t users = 0;   // entries
    bool made = false;  // or being made
  };

  // Those that have room now.
  void OpenWaiting();
  void StartOpener(Entry& entry);
  // On an opener's thread.
  absl::StatusOr<Communicator::Opened> OpenOnThread(CommCache::Id id, LocalDevice& device,
                                                    Communicator& communicator, bool makes_stream,
                                                    std::string unique_id);
  // The stream of a GPU's lane could not be made by this one's opener.
  void OnNoStream(CommCache::Id maker, LocalDevice& device, const absl::Status& why);
  void FailToOpen(Entry& entry, const absl::Status& why);
  void OnId(CommCache::Id id, std::string unique_id);
  void OnOpened(CommCache::Id id, absl::StatusOr<Communicator::Opened> opened);
  void OnReaped(CommCache::Id id);
  // Goes on with the end of an entry as far as that can be now.
  void GoOn(Entry& entry);
  [[noreturn]] static void GiveUp(const std::string& what);
  std::string NameOf(const Entry& entry) const;
  // Those of a clique that have not ended, oldest first.
  std::vector<const Entry*> StandingOf(const Clique& clique) const;

  Executor& control_;
  LocalDevices& devices_;
  const NcclOptions options_;
  const Hooks hooks_;
  CommCache cache_;
  absl::btree_map<CommCache::Id, Entry> entries_;
  // Those that have not ended.
  absl::flat_hash_map<std::pair<Clique, uint32_t>, CommCache::Id> in_use_;
  absl::flat_hash_map<uint64_t, CommCache::Id> groups_;
  absl::flat_hash_map<LocalDevice*, LaneStream> streams_;
  absl::Time next_look_ = absl::InfinitePast();  // for evictions, and what takes too long
  CallThreads threads_;
};

}  // namespace ferry
