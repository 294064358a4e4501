// SPDX-License-Identifier: Apache-2.0
#include "client/timelines.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <utility>

namespace ferry::client {
namespace {

template <typename T>
std::atomic_ref<T> Word(const T& word) {  // the pages are shared, so every access is atomic
  return std::atomic_ref<T>(const_cast<T&>(word));
}

// The futex is the low half of `value`: both supported architectures are little-endian.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
uint32_t* Low(const uint64_t& value) {
  return reinterpret_cast<uint32_t*>(const_cast<uint64_t*>(&value));
}

// Returns at a wake, at a different value, at a signal, or at the deadline.
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
  if (pages_ != nullptr && !stays_mapped_) munmap(pages_, bytes_);
  if (doorbell_ >= 0) close(doorbell_);
  if (memfd_ >= 0) close(memfd_);
}

StatusPtr Timelines::Map(int memfd, int doorbell) {
  memfd_ = memfd;
  doorbell_ = doorbell;
  struct stat info;
  if (fstat(memfd, &info) != 0 || info.st_size < FERRY_TIMELINE_BYTES) {
    return Error(kInternal, kReasonProtocol,
                 "mapping the session's timelines: the daemon's memfd is too short");
  }
  void* mapped = mmap(nullptr, FERRY_TIMELINE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
  if (mapped == MAP_FAILED) {
    return ErrnoError(kResourceExhausted, kReasonDeviceMemory, "mapping the session's timelines",
                      errno);
  }
  bytes_ = FERRY_TIMELINE_BYTES;
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
  // Stores the word, then looks whether a lane sleeps; the lane says that it sleeps, then looks at
  // the word. Because of the fence one of the two sees the other.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const int doorbell = doorbell_.load();
  if (Word(pages_->signals.lane_parked).load() != 0 && doorbell >= 0) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(doorbell, &one, sizeof(one));
  }
}

uint64_t Timelines::Defined(uint32_t timeline) const {
  if (timeline >= FERRY_TIMELINE_COUNTERS) return 0;
  return Word(pages_->defined[timeline].value).load(std::memory_order_acquire);
}

CounterLine Timelines::Over(uint32_t timeline) const {
  if (timeline >= FERRY_TIMELINE_COUNTERS) return {};
  const ferry_timeline_line& line = pages_->over[timeline];
  CounterLine read;
  read.value = Word(line.value).load(std::memory_order_acquire);
  read.first_failed = Word(line.first_failed).load(std::memory_order_acquire);
  read.failures = Word(line.failures).load(std::memory_order_acquire);
  return read;
}

CounterLines Timelines::Lines() const {
  CounterLines lines;
  for (uint32_t i = 0; i < FERRY_TIMELINE_COUNTERS; ++i) lines[i] = Over(i);
  return lines;
}

Timelines::Wait Timelines::WaitOver(uint32_t timeline, uint64_t value, uint64_t deadline_ns) {
  const uint64_t turn = turns_.load();
  return WaitFor(pages_->over[timeline], value, deadline_ns,
                 [this, turn] { return turn % 2 != 0 || turns_.load() != turn; });
}

template <typename IsOver>
Timelines::Wait Timelines::WaitFor(ferry_timeline_line& line, uint64_t value, uint64_t deadline_ns,
                                   IsOver ended) {
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
      // End() may still be on its way to this counter.
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

void Timelines::WaitEvents(uint32_t seen, uint64_t deadline_ns) {
  sleepers_.fetch_add(1);
  Word(pages_->signals.event_waiters).fetch_add(1);
  if (!Ended()) FutexWait(&pages_->signals.events, seen, deadline_ns);
  Word(pages_->signals.event_waiters).fetch_sub(1);
  sleepers_.fetch_sub(1);
}

CounterLine Timelines::Prepared(const Life& life, uint32_t number) const {
  const ferry_timeline_line& line = pages_->prepared_over[number];
  const auto firing = [from = life.prepared_from()](uint64_t value) {
    return value > from ? value - from : 0;
  };
  CounterLine read;
  read.value = Word(line.value).load(std::memory_order_acquire);
  if (read.value != FERRY_PREPARED_ENDED) read.value = firing(read.value);
  read.first_failed = firing(Word(line.first_failed).load(std::memory_order_acquire));
  read.failures = Word(line.failures).load(std::memory_order_acquire);
  return read;
}

uint64_t Timelines::PreparedValue(const Life& life, uint64_t n) {
  return life.prepared_from() + std::min(n, FERRY_PREPARED_ENDED - life.prepared_from());
}

bool Timelines::NotePrepared(const Life& life, uint64_t n) {
  if (life.ended()) return false;
  // A thread that waits for more firings than the batch lives to see waits for its end.
  constexpr uint64_t kMostFirings = uint64_t{1} << 48;
  constexpr uint64_t kMostResumed = (uint64_t{1} << 62) - 1;
  if (n <= kMostFirings) {
    prepared_from_ = std::max(prepared_from_, std::min(PreparedValue(life, n), kMostResumed));
  }
  return true;
}

bool Timelines::TellStream(const Life& life, uint64_t n) {
  std::lock_guard lock(mutex_);
  return NotePrepared(life, n);
}

uint64_t Timelines::prepared_from() const {
  std::lock_guard lock(mutex_);
  return prepared_from_;
}

bool Timelines::Fire(const Life& life, uint32_t number, uint64_t n) {
  {
    // Atomic with End(), which comes before another batch can be given the number.
    std::lock_guard lock(mutex_);
    if (!NotePrepared(life, n)) return false;
    Word(pages_->prepared_defined[number].value).store(PreparedValue(life, n));
  }
  Ring();
  return true;
}

Timelines::Wait Timelines::WaitPrepared(const Life& life, uint32_t number, uint64_t n,
                                        uint64_t deadline_ns, const std::atomic<bool>& released) {
  return WaitFor(pages_->prepared_over[number], PreparedValue(life, n), deadline_ns,
                 [&] { return released.load() || life.ended(); });
}

void Timelines::PreparedBegan(uint32_t number) {
  std::lock_guard lock(mutex_);
  ++prepared_[number];
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
}

uint64_t Timelines::posted(uint32_t timeline) const {
  std::lock_guard lock(mutex_);
  return std::max(posted_[timeline], Over(timeline).value);
}

void Timelines::Write(uint32_t timeline, const CounterLine& now) {
  ferry_timeline_line& line = pages_->over[timeline];
  Word(line.first_failed).store(now.first_failed);
  Word(line.failures).store(now.failures);
  Word(line.value).store(now.value);
  FutexWakeAll(Low(line.value));
}

void Timelines::FailPosted(uint32_t timeline) {
  CounterLine& line = ended_[timeline];
  const uint64_t last = posted_[timeline];
  if (line.value < last) {
    if (line.first_failed == 0 || line.first_failed > line.value) {
      line.first_failed = line.value + 1;
    }
    line.failures += last - line.value;
    line.value = last;
  }
  Write(timeline, line);
}

void Timelines::Fail(uint32_t timeline, uint64_t value) {
  std::lock_guard lock(mutex_);
  posted_[timeline] = std::max(posted_[timeline], value);
  if (Ended()) FailPosted(timeline);
}

void Timelines::End() {
  decltype(prepared_) prepared;
  {
    std::lock_guard lock(mutex_);
    if (Ended()) return;
    turns_.fetch_add(1);
    for (uint32_t i = 0; i < FERRY_TIMELINE_COUNTERS; ++i) {
      ended_[i] = Over(i);
      FailPosted(i);
    }
    prepared = std::exchange(prepared_, {});
    for (uint32_t i = 0; i < FERRY_PREPARED_BATCHES; ++i) {
      if (prepared[i] != 0) EndPrepared(i);
    }
    Word(pages_->signals.events).fetch_add(1);
  }
  // A sleeper that looked at turns_ just before it changed sleeps on a word that may never change
  // again. So this wakes until the last sleeper has left. The daemon's own store to the word for
  // events may undo ours, so that word is woken too.
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

CounterLines Timelines::Settle() {
  std::lock_guard lock(mutex_);
  for (uint32_t i = 0; i < FERRY_TIMELINE_COUNTERS; ++i) {
    // A value that is over was handed out, though the client was perhaps never told.
    ended_[i].value = std::max(ended_[i].value, Over(i).value);
    posted_[i] = ended_[i].value;
    Write(i, ended_[i]);
  }
  return ended_;
}

void Timelines::EndAttempt() {
  std::lock_guard lock(mutex_);
  const auto prepared = std::exchange(prepared_, {});
  for (uint32_t i = 0; i < FERRY_PREPARED_BATCHES; ++i) {
    if (prepared[i] != 0) EndPrepared(i);
  }
}

void Timelines::Begin(int doorbell) {
  const int before = doorbell_.load();
  if (before < 0 || doorbell < 0) {
    doorbell_ = doorbell;
  } else {
    dup3(doorbell, before, O_CLOEXEC);  // keeps the number, which Define() may be ringing just now
    close(doorbell);
  }
  turns_.fetch_add(1);
}

}  // namespace ferry::client
