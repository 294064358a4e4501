// SPDX-License-Identifier: Apache-2.0
#include "client/timelines.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

namespace ferry::client {
namespace {

template <typename T>
std::atomic_ref<T> Word(const T& word) {  // the pages are shared: every access is atomic
  return std::atomic_ref<T>(const_cast<T&>(word));
}

// The futex is the low half of `value`; both supported architectures are little-endian.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
uint32_t* Low(const uint64_t& value) {
  return reinterpret_cast<uint32_t*>(const_cast<uint64_t*>(&value));
}

// Returns at a wake, at a different value, at a signal or at the deadline.
void FutexWait(uint32_t* word, uint32_t expected, uint64_t deadline_ns) {
  timespec deadline{static_cast<time_t>(deadline_ns / 1000000000),
                    static_cast<long>(deadline_ns % 1000000000)};
  syscall(SYS_futex, word, FUTEX_WAIT_BITSET, expected,
          deadline_ns == kForever ? nullptr : &deadline, nullptr, FUTEX_BITSET_MATCH_ANY);
}

void FutexWakeAll(uint32_t* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

uint64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec);
}

uint64_t DeadlineAfter(uint64_t timeout_ns) {
  const uint64_t now = NowNs();
  // The kernel refuses seconds beyond a signed 64-bit count; 100 years are as good as for ever.
  constexpr uint64_t kCentury = 100ull * 365 * 24 * 3600 * 1000000000;
  return timeout_ns > kCentury ? kForever : now + timeout_ns;
}

Timelines::~Timelines() {
  if (pages_ != nullptr) munmap(pages_, bytes_);
  if (doorbell_ >= 0) close(doorbell_);
}

StatusPtr Timelines::Map(int memfd, int doorbell) {
  doorbell_ = doorbell;
  struct stat info;
  if (fstat(memfd, &info) != 0 || info.st_size < FERRY_TIMELINE_BASE_BYTES) {
    return Error(kInternal, kReasonProtocol,
                 "mapping the session's timelines: the daemon's memfd is too short");
  }
  const size_t bytes =
      info.st_size < FERRY_TIMELINE_BYTES ? FERRY_TIMELINE_BASE_BYTES : FERRY_TIMELINE_BYTES;
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
  if (mapped == MAP_FAILED) {
    return ErrnoError(kResourceExhausted, kReasonDeviceMemory, "mapping the session's timelines",
                      errno);
  }
  bytes_ = bytes;
  pages_ = static_cast<ferry_timeline_pages*>(mapped);
  return nullptr;
}

void Timelines::Define(uint32_t timeline, uint64_t value) {
  if (timeline >= FERRY_TIMELINE_COUNTERS) return;
  auto word = Word(pages_->defined[timeline].value);
  uint64_t seen = word.load(std::memory_order_relaxed);
  while (seen < value && !word.compare_exchange_weak(seen, value)) {
  }
  Ring();
}

void Timelines::Ring() {
  // Store, then look whether a lane sleeps; the lane says that it sleeps, then looks at the word.
  // The fence makes one of the two see the other.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (Word(pages_->signals.lane_parked).load() != 0 && doorbell_ >= 0) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(doorbell_, &one, sizeof(one));
  }
}

uint64_t Timelines::Defined(uint32_t timeline) const {
  if (timeline >= FERRY_TIMELINE_COUNTERS) return 0;
  return Word(pages_->defined[timeline].value).load(std::memory_order_acquire);
}

Timelines::Line Timelines::Over(uint32_t timeline) const {
  if (timeline >= FERRY_TIMELINE_COUNTERS) return {};
  const ferry_timeline_line& line = pages_->over[timeline];
  Line read;
  read.value = Word(line.value).load(std::memory_order_acquire);
  read.first_failed = Word(line.first_failed).load(std::memory_order_acquire);
  read.failures = Word(line.failures).load(std::memory_order_acquire);
  return read;
}

Timelines::Wait Timelines::WaitOver(uint32_t timeline, uint64_t value, uint64_t deadline_ns) {
  return WaitFor(pages_->over[timeline], value, deadline_ns, [this] { return ended_.load(); });
}

template <typename Ended>
Timelines::Wait Timelines::WaitFor(ferry_timeline_line& line, uint64_t value, uint64_t deadline_ns,
                                   Ended ended) {
  auto word = Word(line.value);
  if (word.load(std::memory_order_acquire) >= value) return Wait::kReached;
  Wait result = Wait::kTimeout;
  sleepers_.fetch_add(1);
  Word(line.waiters).fetch_add(1);
  while (true) {
    const uint64_t now = word.load();
    if (now >= value) {
      result = Wait::kReached;
      break;
    }
    if (ended()) {
      // End() may still be on its way to this counter; Posted() and it share the lock.
      std::lock_guard lock(mutex_);
      result = word.load() >= value ? Wait::kReached : Wait::kEnded;
      break;
    }
    if (deadline_ns != kForever && NowNs() >= deadline_ns) break;
    FutexWait(Low(line.value), static_cast<uint32_t>(now), deadline_ns);
  }
  Word(line.waiters).fetch_sub(1);
  sleepers_.fetch_sub(1);
  return result;
}

uint32_t Timelines::Events() const { return Word(pages_->signals.events).load(); }

void Timelines::WaitEvents(uint32_t seen) {
  sleepers_.fetch_add(1);
  Word(pages_->signals.event_waiters).fetch_add(1);
  if (!ended_.load()) FutexWait(&pages_->signals.events, seen, kForever);
  Word(pages_->signals.event_waiters).fetch_sub(1);
  sleepers_.fetch_sub(1);
}

Timelines::Line Timelines::Prepared(uint32_t number) const {
  const ferry_timeline_line& line = pages_->prepared_over[number];
  Line read;
  read.value = Word(line.value).load(std::memory_order_acquire);
  read.first_failed = Word(line.first_failed).load(std::memory_order_acquire);
  read.failures = Word(line.failures).load(std::memory_order_acquire);
  return read;
}

void Timelines::Fire(uint32_t number, uint64_t n) {
  Word(pages_->prepared_defined[number].value).store(n);
  Ring();
}

Timelines::Wait Timelines::WaitPrepared(uint32_t number, uint64_t n, uint64_t deadline_ns,
                                        const std::atomic<bool>& released) {
  // Its own end, also by End(), reaches every value.
  return WaitFor(pages_->prepared_over[number], n, deadline_ns,
                 [&released] { return released.load(); });
}

void Timelines::PreparedBegan(uint32_t number) {
  std::lock_guard lock(mutex_);
  ++prepared_[number];
  if (ended_.load()) EndPrepared(number);
}

void Timelines::PreparedGone(uint32_t number) {
  std::lock_guard lock(mutex_);
  --prepared_[number];
}

void Timelines::EndPrepared(uint32_t number) {
  ferry_timeline_line& line = pages_->prepared_over[number];
  const uint64_t value = Word(line.value).load();
  if (value != FERRY_PREPARED_ENDED) {
    Word(line.first_failed).store(value + 1);
    Word(line.failures).store(1);
    Word(line.value).store(FERRY_PREPARED_ENDED);
  }
  FutexWakeAll(Low(line.value));
}

void Timelines::Posted(uint32_t timeline, uint64_t last) {
  if (timeline >= FERRY_TIMELINE_COUNTERS) return;
  std::lock_guard lock(mutex_);
  posted_[timeline] = std::max(posted_[timeline], last);
  if (ended_.load()) EndCounter(timeline);
}

void Timelines::EndCounter(uint32_t timeline) {
  ferry_timeline_line& line = pages_->over[timeline];
  const uint64_t value = Word(line.value).load();
  if (value < posted_[timeline]) {
    const uint64_t failed = Word(line.first_failed).load();
    if (failed == 0 || failed > value + 1) Word(line.first_failed).store(value + 1);
    Word(line.failures).fetch_add(posted_[timeline] - value);
    Word(line.value).store(posted_[timeline]);
  }
  FutexWakeAll(Low(line.value));
}

void Timelines::End() {
  decltype(prepared_) prepared;
  {
    std::lock_guard lock(mutex_);
    if (ended_.load()) return;
    prepared = prepared_;
    for (uint32_t i = 0; i < FERRY_TIMELINE_COUNTERS; ++i) at_end_[i] = Over(i);
    ended_.store(true);
    for (uint32_t i = 0; i < FERRY_TIMELINE_COUNTERS; ++i) EndCounter(i);
    for (uint32_t i = 0; i < FERRY_PREPARED_BATCHES; ++i) {
      if (prepared_[i] != 0) EndPrepared(i);
    }
    Word(pages_->signals.events).fetch_add(1);
  }
  // A sleeper that looked at ended_ just before it was set sleeps on a word that may never change
  // again: wake until the last one has left. The daemon's own word for events may undo ours, so
  // that one too.
  while (sleepers_.load() != 0) {
    for (ferry_timeline_line& line : pages_->over) FutexWakeAll(Low(line.value));
    for (uint32_t i = 0; i < FERRY_PREPARED_BATCHES; ++i) {
      if (prepared[i] != 0) FutexWakeAll(Low(pages_->prepared_over[i].value));
    }
    FutexWakeAll(&pages_->signals.events);
    const timespec pause{0, 200000};
    nanosleep(&pause, nullptr);
  }
}

Timelines::Line Timelines::AtEnd(uint32_t timeline) const {
  std::lock_guard lock(mutex_);
  return at_end_[timeline];
}

void Timelines::ForgetFailures(uint32_t timeline) {
  std::lock_guard lock(mutex_);
  forgotten_[timeline] = std::max(posted_[timeline], Over(timeline).value);
}

uint64_t Timelines::Forgotten(uint32_t timeline) const {
  std::lock_guard lock(mutex_);
  return forgotten_[timeline];
}

}  // namespace ferry::client
