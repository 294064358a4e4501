// SPDX-License-Identifier: Apache-2.0
// A lane is one device's thread: the only thread that launches and polls transfers of that device.
// It runs posted tasks, polls its pollers, and looks at the 'defined' words that transfers wait
// for. With nothing to poll it parks in epoll. What wakes it then: its own eventfd, the pollers'
// descriptors, and the doorbells of sessions whose words it watches. A lane that does not park
// looks at the pollers' descriptors every millisecond. Home: the lane itself, except that
// Executor's functions, RunAndWait(), CpuTime(), Stop() and the destructor are for any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "base/executor.h"
#include "base/ids.h"

namespace ferry {

// An object that wants to be called again and again while it has work. Home: lane.
class Poller {
 public:
  virtual ~Poller() = default;
  // Makes progress; true if anything happened.
  virtual bool Poll() = 0;
  // True while work is outstanding. A poller without work is polled when its descriptor is
  // readable, and keeps the lane from parking only by PrepareToPark().
  virtual bool Busy() const = 0;
  // True while the poller watches words whose doorbells the lane hears. Poll() then looks at the
  // words in each round, and once more before the lane parks; the lane may park nonetheless.
  virtual bool Watching() const { return false; }
  // True while the poller watches words whose writers ring no doorbell (a GPU): the lane then looks
  // at least every Lane::kLook.
  virtual bool Restless() const { return false; }
  // A descriptor that is readable when Poll() would find something; -1: there is none. Without one,
  // while the poller is Busy() the lane spins, or where it may not spin looks every Lane::kLook.
  virtual int EventFd() const { return -1; }
  // Called last before the lane sleeps on EventFd(). False: there is something to do, and Poll() is
  // called whether Busy() or not.
  virtual bool PrepareToPark() { return true; }
};

// What another process wakes a parked lane with. The lane counts itself into `parked`, looks at its
// words once more and sleeps. A process that stores a word afterwards sees the count and writes to
// `fd`. The other process has `fd` too, and so controls its flags and its count, which decide
// whether a write or read of it blocks. So this daemon neither reads nor writes `fd`; it rings its
// own lanes by `own`, which nobody else has.
struct Doorbell {
  uint32_t* parked = nullptr;
  int fd = -1;
  int own = -1;  // -1: this daemon never rings it
};

// A 'defined' word in shared memory that a lane can wait for; see TimelinePages.
struct DefinedWord {
  const uint64_t* value = nullptr;  // in shared memory: read atomically, believed only as "go"
  uint32_t* parked = nullptr;       // the session's lane_parked flag
  int doorbell = -1;                // eventfd that the client writes to while the flag is set
  bool silent = false;              // a GPU may write the word, which rings nothing
  // If set: the word counts as at most `*over` + 1, whatever is stored in it. The count lives as
  // long as the word's pages. Whoever advances it rings the doorbell if the word is ahead of it.
  const std::atomic<uint64_t>* over = nullptr;
  int own_bell = -1;  // as in Doorbell
};

class Lane : public Executor {
 public:
  // How long the lane spins before it parks: 0 on machines of one or two cores.
  static absl::Duration DefaultSpin();
  // How long the lane sleeps at a time while it waits for words whose writers wake nobody.
  static constexpr absl::Duration kLook = absl::Microseconds(50);

  Lane(std::string name, absl::Duration spin);
  ~Lane() override;
  void Stop();

  void Post(Task task) override;
  absl::Time Now() override { return MonotonicNow(); }
  bool IsCurrent() const override;
  // Runs `task` on the lane and waits for it. Not from the lane. Once the lane has stopped the
  // caller's thread runs the task as the lane, so that objects of the lane can be taken down in any
  // order.
  void RunAndWait(Task task);
  // CPU time that the lane's thread has taken so far, spinning too; zero once it has stopped. Not
  // while Stop() runs.
  absl::Duration CpuTime() const;

  // --- Lane only.
  void AddPoller(Poller* poller);  // not owned; until RemovePoller()
  void RemovePoller(Poller* poller);
  // Listens to a doorbell while the lane is parked. Each Hear() needs an Unhear(). The doorbells of
  // watched words are listened to without this.
  void Hear(const Doorbell& doorbell);
  void Unhear(const Doorbell& doorbell);
  // Calls `reached(transfer)` once, on the lane, when the word is >= `target`; never inline.
  void WatchWord(TransferId transfer, DefinedWord word, uint64_t target,
                 std::function<void(TransferId)> reached);
  // Drops the transfer's watch if there is one; its word is not read afterwards.
  void Unwatch(TransferId transfer);
  // Drops all watches of words in [begin, end): before a session's pages are unmapped.
  void UnwatchPages(const void* begin, const void* end);
  size_t watches() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry
