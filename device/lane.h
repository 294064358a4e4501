// SPDX-License-Identifier: Apache-2.0
// One device's thread: the only one that launches and polls transfers of that device. It runs
// posted tasks, polls its pollers, and looks at 'defined' words that transfers wait for. With
// nothing to poll it parks in epoll on: its own wake-up, the pollers' descriptors, the doorbells of
// sessions whose words it watches. Posting and the destructor are for any thread; everything else
// is the lane's own.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "base/executor.h"
#include "base/fd.h"
#include "base/ids.h"
#include "base/mutex.h"

namespace ferry {

// Something that wants to be called again and again while it has work. Home: lane.
class Poller {
 public:
  virtual ~Poller() = default;
  // Makes progress; true if anything happened.
  virtual bool Poll() = 0;
  // True while work is outstanding. A poller without work is not polled, and may stop the lane from
  // parking only through `PrepareToPark`.
  virtual bool Busy() const = 0;
  // True while it watches words whose doorbells the lane hears: then Poll looks at them each time
  // round and before the lane parks, which it may all the same.
  virtual bool Watching() const { return false; }
  // True while what it watches rings nobody (words that a GPU writes): the lane looks every
  // Lane::kLook at least.
  virtual bool Restless() const { return false; }
  // Readable when Poll would find something; -1 if there is none: then the lane spins while it is
  // Busy, or looks every Lane::kLook where it may not spin.
  virtual int EventFd() const { return -1; }
  // Last thing before the lane sleeps on EventFd. False: there is something to do; Poll is called,
  // Busy or not.
  virtual bool PrepareToPark() { return true; }
};

// What wakes a parked lane from another process: it counts itself into `parked`, looks at its words
// once more and sleeps; whoever stores a word of it afterwards sees that and writes to the eventfd.
// The other process has `fd` too, and with it the flags and the count that decide whether a write
// or a read of it waits: so this daemon does neither, and rings its own lanes by `own`, which
// nobody else has.
struct Doorbell {
  uint32_t* parked = nullptr;
  int fd = -1;
  int own = -1;  // -1: this daemon never rings it
};

// A 'defined' counter in shared memory that a lane can wait for; see TimelinePages.
struct DefinedWord {
  const uint64_t* value = nullptr;  // in shared memory: read atomically, believed only as "go"
  uint32_t* parked = nullptr;       // the session's lane_parked flag
  int doorbell = -1;                // eventfd the client writes to while the flag is set
  bool silent = false;              // a GPU may write it, which rings nothing
  // If set, the word is believed up to one more than this, whatever is stored in it. It lives as
  // long as the word's pages; who advances it rings the doorbell if the word is ahead.
  const std::atomic<uint64_t>* over = nullptr;
  int own_bell = -1;  // as in Doorbell
};

class Lane : public Executor {
 public:
  // How long the lane spins before it parks: 0 on machines of one or two cores.
  static absl::Duration DefaultSpin();
  // How long it sleeps at a time while it waits for what wakes nobody.
  static constexpr absl::Duration kLook = absl::Microseconds(50);

  Lane(std::string name, absl::Duration spin);
  ~Lane() override;
  void Stop();

  void Post(Task task) override;
  absl::Time Now() override { return MonotonicNow(); }
  bool IsCurrent() const override;
  // Runs `task` on the lane and waits. Not from the lane. Once the lane has stopped, the caller
  // stands in for it, so that what lived on the lane can be taken down in any order.
  void RunAndWait(Task task);
  // That its thread has taken so far, spinning too; zero once it has stopped. Not while Stop runs.
  absl::Duration CpuTime() const;

  // --- Lane only.
  void AddPoller(Poller* poller);  // not owned; until RemovePoller
  void RemovePoller(Poller* poller);
  // Listens to a doorbell while parked, as often as it was asked to and not told otherwise. Words
  // that are watched have theirs listened to anyway.
  void Hear(const Doorbell& doorbell);
  void Unhear(const Doorbell& doorbell);
  // Calls `reached(transfer)` once, on the lane, when word >= target; never inline.
  void WatchWord(TransferId transfer, DefinedWord word, uint64_t target,
                 std::function<void(TransferId)> reached);
  // Forgets a watch if it is still there; afterwards its word is not read.
  void Unwatch(TransferId transfer);
  // Forgets all watches whose word lies in [begin, end): before a session's pages are unmapped.
  void UnwatchPages(const void* begin, const void* end);
  size_t watches() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry
