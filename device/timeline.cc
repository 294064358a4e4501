// SPDX-License-Identifier: Apache-2.0
#include "device/timeline.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "device/futex.h"
#include "device/memfd.h"

namespace ferry {
namespace {

// Of what a client may say its counters stand at: far from where they would run over.
constexpr uint64_t kMaxResumed = uint64_t{1} << 62;

absl::Status CreateError(absl::string_view what) {
  if (errno == EMFILE || errno == ENFILE) {
    return WithRetryAfter(
        Error(absl::StatusCode::kResourceExhausted, Reason::kTooManySessions,
              absl::StrCat(what,
                           ": this daemon has no descriptors left; its operator can raise the "
                           "limit (LimitNOFILE), or find who holds them (ferryctl sessions)")),
        absl::Seconds(1));
  }
  return ErrnoError(absl::StatusCode::kResourceExhausted, Reason::kDeviceMemory, what, errno);
}

}  // namespace

// Which values above `over` have ended already: a ring of bits, one for each value in
// (over, over + capacity]. The bit of value v is at v modulo the capacity, a power of two, so
// nothing moves when the mark advances; 100,000 outstanding take 16 KiB.
struct TimelinePages::Counter {
  static constexpr uint64_t kWord = 64;

  uint64_t reserved = 0;      // last value handed out
  uint64_t over = 0;          // low-water mark
  uint64_t written = 0;       // what Flush wrote last
  uint64_t first_failed = 0;  // lowest value that failed since the reset
  uint64_t failures = 0;
  std::vector<uint64_t> ended;

  uint64_t capacity() const { return ended.size() * kWord; }
  uint64_t& Word(uint64_t value) { return ended[(value & (capacity() - 1)) / kWord]; }
  static uint64_t Bit(uint64_t value) { return uint64_t{1} << (value % kWord); }

  void Grow() {
    std::vector<uint64_t> old = std::exchange(ended, {});
    const uint64_t old_capacity = old.size() * kWord;
    uint64_t size = 1;
    while (size * kWord < reserved - over) size *= 2;
    ended.resize(size);
    for (uint64_t value = over + 1; value <= over + old_capacity; ++value) {
      if (old[(value & (old_capacity - 1)) / kWord] & Bit(value)) Word(value) |= Bit(value);
    }
  }

  // Moves the mark over what has ended, a word of bits at a time.
  void Advance() {
    while (over < reserved) {
      const uint64_t next = over + 1;
      uint64_t& word = Word(next);
      const uint64_t run =
          std::min<uint64_t>(std::countr_one(word >> (next % kWord)), kWord - next % kWord);
      if (run == 0) return;
      const uint64_t mask = run == kWord ? ~uint64_t{0} : ((uint64_t{1} << run) - 1);
      word &= ~(mask << (next % kWord));
      over += run;
    }
  }
};

TimelinePages::TimelinePages() : counters_(FERRY_TIMELINE_COUNTERS) {}

absl::StatusOr<std::unique_ptr<TimelinePages>> TimelinePages::Create() {
  std::unique_ptr<TimelinePages> pages(new TimelinePages());
  pages->memfd_.Reset(memfd_create("ferry-timelines", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!pages->memfd_.valid()) return CreateError("making a session's timelines: memfd");
  if (ftruncate(pages->memfd_.get(), FERRY_TIMELINE_BYTES) != 0) {
    return CreateError("making a session's timelines: size");
  }
  // Sealed, so that a client which shrinks it cannot fault the daemon.
  if (fcntl(pages->memfd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return CreateError("making a session's timelines: seals");
  }
  RETURN_IF_ERROR(pages->MapAndRing());
  return pages;
}

absl::Status TimelinePages::MapAndRing() {
  void* const memory =
      mmap(nullptr, FERRY_TIMELINE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memfd_.get(), 0);
  if (memory == MAP_FAILED) return CreateError("making a session's timelines: mapping");
  pages_ = static_cast<ferry_timeline_pages*>(memory);
  madvise(memory, FERRY_TIMELINE_BYTES, MADV_DONTFORK);
  doorbell_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  own_bell_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!doorbell_.valid() || !own_bell_.valid()) {
    return CreateError("making a session's timelines: doorbells");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<TimelinePages>> TimelinePages::Resume(UniqueFd memfd,
                                                                     const std::vector<Mark>& over,
                                                                     uint64_t prepared_from,
                                                                     bool same_daemon) {
  if (absl::Status fit = CheckMemfd(memfd.get(), FERRY_TIMELINE_BYTES); !fit.ok()) {
    return Annotate(fit, "resuming a session's timelines");
  }
  const auto invalid = [](const auto&... why) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
                 absl::StrCat("resuming a session's timelines: ", why...));
  };
  if (over.size() > FERRY_TIMELINE_COUNTERS) {
    return invalid(over.size(), " 'over' counters, there are ", FERRY_TIMELINE_COUNTERS);
  }
  for (size_t i = 0; i < over.size(); ++i) {
    if (over[i].value >= kMaxResumed || over[i].first_failed > over[i].value ||
        over[i].failures > over[i].value) {
      return invalid("'over' counter ", i, " cannot stand at ", over[i].value, " with ",
                     over[i].failures, " failures from ", over[i].first_failed);
    }
  }
  if (prepared_from >= kMaxResumed) {
    return invalid("words of prepared batches cannot begin at ", prepared_from);
  }
  std::unique_ptr<TimelinePages> pages(new TimelinePages());
  pages->memfd_ = std::move(memfd);
  pages->prepared_from_ = prepared_from;
  RETURN_IF_ERROR(pages->MapAndRing());
  for (uint32_t i = 0; i < FERRY_TIMELINE_COUNTERS; ++i) {
    const Mark mark = i < over.size() ? over[i] : Mark{};
    if (mark.value != 0) {
      auto counter = std::make_unique<Counter>();
      counter->reserved = counter->over = counter->written = mark.value;
      counter->first_failed = mark.first_failed;
      counter->failures = mark.failures;
      pages->counters_[i] = std::move(counter);
    }
    // What the lost daemon wrote last may not be what the client made of it.
    ferry_timeline_line& line = pages->pages_->over[i];
    __atomic_store_n(&line.first_failed, mark.first_failed, __ATOMIC_RELAXED);
    __atomic_store_n(&line.failures, mark.failures, __ATOMIC_RELAXED);
    __atomic_store_n(&line.value, mark.value, __ATOMIC_SEQ_CST);
  }
  // A daemon that was killed has left its lanes' marks behind.
  if (!same_daemon) __atomic_store_n(&pages->pages_->signals.lane_parked, 0, __ATOMIC_SEQ_CST);
  return pages;
}

TimelinePages::~TimelinePages() {
  if (pages_ != nullptr) FERRY_CHECK(munmap(pages_, FERRY_TIMELINE_BYTES) == 0);
}

uint64_t TimelinePages::Reserve(uint32_t timeline, uint64_t count) {
  home_.Check();
  FERRY_CHECK(timeline < FERRY_TIMELINE_COUNTERS);
  std::unique_ptr<Counter>& counter = counters_[timeline];
  if (counter == nullptr) counter = std::make_unique<Counter>();
  const uint64_t first = counter->reserved + 1;
  counter->reserved += count;
  if (counter->reserved - counter->over > counter->capacity()) counter->Grow();
  return first;
}

uint64_t TimelinePages::reserved(uint32_t timeline) const {
  home_.Check();
  FERRY_CHECK(timeline < FERRY_TIMELINE_COUNTERS);
  return counters_[timeline] == nullptr ? 0 : counters_[timeline]->reserved;
}

void TimelinePages::End(uint32_t timeline, uint64_t value, bool ok) {
  home_.Check();
  FERRY_CHECK(timeline < FERRY_TIMELINE_COUNTERS && counters_[timeline] != nullptr);
  Counter& counter = *counters_[timeline];
  FERRY_CHECK(value > counter.over && value <= counter.reserved);
  uint64_t& word = counter.Word(value);
  FERRY_CHECK((word & Counter::Bit(value)) == 0);
  word |= Counter::Bit(value);
  if (!ok) {
    ++counter.failures;
    if (counter.first_failed == 0 || value < counter.first_failed) counter.first_failed = value;
    dirty_ |= uint64_t{1} << timeline;
  }
  if (value == counter.over + 1) {
    counter.Advance();
    dirty_ |= uint64_t{1} << timeline;
  }
}

void TimelinePages::Flush() {
  home_.Check();
  bool advanced = false;
  for (uint64_t left = dirty_; left != 0; left &= left - 1) {
    const int timeline = std::countr_zero(left);
    Counter& counter = *counters_[timeline];
    ferry_timeline_line& line = pages_->over[timeline];
    __atomic_store_n(&line.first_failed, counter.first_failed, __ATOMIC_RELAXED);
    __atomic_store_n(&line.failures, counter.failures, __ATOMIC_RELAXED);
    if (counter.over == counter.written) continue;
    counter.written = counter.over;
    advanced = true;
    __atomic_store_n(&line.value, counter.over, __ATOMIC_SEQ_CST);
    FutexWakeIf(line.waiters, line.value);
  }
  dirty_ = 0;
  if (!advanced) return;
  ferry_timeline_signals& signals = pages_->signals;
  __atomic_fetch_add(&signals.events, 1, __ATOMIC_SEQ_CST);
  FutexWakeIf(signals.event_waiters, signals.events);
}

void TimelinePages::ResetFailures(uint32_t timeline) {
  home_.Check();
  FERRY_CHECK(timeline < FERRY_TIMELINE_COUNTERS);
  if (counters_[timeline] != nullptr) {
    counters_[timeline]->first_failed = 0;
    counters_[timeline]->failures = 0;
  }
  __atomic_store_n(&pages_->over[timeline].first_failed, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&pages_->over[timeline].failures, 0, __ATOMIC_RELEASE);
}

uint64_t TimelinePages::over_value(uint32_t timeline) const {
  home_.Check();
  FERRY_CHECK(timeline < FERRY_TIMELINE_COUNTERS);
  return counters_[timeline] == nullptr ? 0 : counters_[timeline]->over;
}

uint64_t TimelinePages::DefinedValue(uint32_t timeline) const {
  home_.Check();
  FERRY_CHECK(timeline < FERRY_TIMELINE_COUNTERS);
  return __atomic_load_n(&pages_->defined[timeline].value, __ATOMIC_ACQUIRE);
}

DefinedWord TimelinePages::Defined(uint32_t timeline) const {
  FERRY_CHECK(timeline < FERRY_TIMELINE_COUNTERS);
  DefinedWord word;
  word.value = &pages_->defined[timeline].value;
  word.parked = &pages_->signals.lane_parked;
  word.doorbell = doorbell_.get();
  word.own_bell = own_bell_.get();
  return word;
}

void TimelinePages::Define(uint32_t timeline, uint64_t value) {
  home_.Check();
  FERRY_CHECK(timeline < FERRY_TIMELINE_COUNTERS);
  uint64_t* const word = &pages_->defined[timeline].value;
  uint64_t seen = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (seen < value && !__atomic_compare_exchange_n(word, &seen, value, /*weak=*/true,
                                                      __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
  }
  // Whether a lane sleeps is the client's page to say, so it is not asked.
  RingDoorbell(own_bell_.get());
}

std::unique_ptr<PreparedBatch> TimelinePages::Prepare(uint32_t number, uint32_t transfers) {
  home_.Check();
  if (firings_over_ == nullptr) {
    firings_over_ = std::make_unique<std::atomic<uint64_t>[]>(FERRY_PREPARED_BATCHES);
  }
  const Doorbell bell{&pages_->signals.lane_parked, doorbell_.get(), own_bell_.get()};
  return std::make_unique<PreparedBatch>(*pages_, bell, number, transfers, prepared_from_,
                                         firings_over_[number]);
}

}  // namespace ferry
