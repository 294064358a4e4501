// SPDX-License-Identifier: Apache-2.0
#include "device/lane.h"

#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "base/check.h"
#include "base/fd.h"
#include "base/home.h"
#include "base/mutex.h"

namespace ferry {
namespace {

// A busy poller is asked again for this long before the lane parks, whatever the spin budget: what
// it waits for is in flight, and sleeping between the pieces of one message halves its bandwidth.
constexpr absl::Duration kPollerSpin = absl::Microseconds(50);
// How often a lane that does not park looks at the descriptors that a parked one sleeps on.
constexpr absl::Duration kListen = absl::Milliseconds(1);
constexpr int kEvents = 16;  // that one look takes

void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

uint64_t Load(const uint64_t* word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }

}  // namespace

struct Lane::Impl {
  using Reached = std::function<void(TransferId)>;
  struct Word {
    uint32_t* parked = nullptr;
    bool silent = false;
    const std::atomic<uint64_t>* over = nullptr;
    absl::btree_map<std::pair<uint64_t, TransferId>, Reached> waiting;  // by target
  };
  // What to set and what to listen to while parked, and for how many words and watchers.
  struct Heard {
    Doorbell bell;
    size_t uses = 0;
    bool listening = false;
  };
  struct Place {
    const uint64_t* word = nullptr;
    uint64_t target = 0;
  };

  Impl(std::string name, absl::Duration spin) : home(std::move(name)), spin(spin) {
    epoll.Reset(epoll_create1(EPOLL_CLOEXEC));
    wakeup.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    FERRY_CHECK(epoll.valid() && wakeup.valid());
    FERRY_CHECK(Listen(wakeup.get(), EPOLLIN | EPOLLET, nullptr));
  }

  Home home;
  const absl::Duration spin;
  UniqueFd epoll;
  UniqueFd wakeup;  // edge triggered and never read: only that it was written to counts

  Mutex mutex;
  std::vector<Task> queue ABSL_GUARDED_BY(mutex);
  bool sleeping ABSL_GUARDED_BY(mutex) = false;
  bool stopping ABSL_GUARDED_BY(mutex) = false;

  std::atomic<bool> finished{false};  // the thread touches nothing any more

  // Lane only.
  std::vector<Poller*> pollers;
  std::map<const uint64_t*, Word> words;  // none is empty; ordered, so that pages are a range of it
  absl::flat_hash_map<TransferId, Place> places;
  absl::flat_hash_map<uint32_t*, Heard> heard;  // by the flag
  std::vector<std::pair<TransferId, Place>> reached;
  size_t silent_words = 0;
  absl::Time listened = absl::InfinitePast();  // the last look at the descriptors
  std::thread thread;

  bool Listen(int fd, uint32_t events, Poller* poller) {
    epoll_event event = {};
    event.events = events;
    event.data.ptr = poller;
    return epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  }

  void StopListening(int fd) { epoll_ctl(epoll.get(), EPOLL_CTL_DEL, fd, nullptr); }

  // False if the kernel refuses: one of the two is another process's, or there are too many.
  bool ListenTo(const Doorbell& bell) {
    if (!Listen(bell.fd, EPOLLIN | EPOLLET, nullptr)) return false;
    if (bell.own < 0 || Listen(bell.own, EPOLLIN | EPOLLET, nullptr)) return true;
    StopListening(bell.fd);
    return false;
  }

  bool Post(Task task) {
    bool wake = false;
    {
      MutexLock lock(mutex);
      if (stopping) return false;
      queue.push_back(std::move(task));
      wake = std::exchange(sleeping, false);
    }
    if (wake) Wake();
    return true;
  }

  void Wake() {
    const uint64_t one = 1;
    // Fails only if the counter is full, which is readable too.
    [[maybe_unused]] ssize_t ignored = write(wakeup.get(), &one, sizeof(one));
  }

  // False when there is nothing left to run and the lane stops.
  bool RunTasks(bool* progress) {
    std::vector<Task> batch;
    {
      MutexLock lock(mutex);
      if (queue.empty()) return !stopping;
      batch.swap(queue);
    }
    for (Task& task : batch) task();
    *progress = true;
    return true;
  }

  bool PollPollers() {
    bool progress = false;
    for (size_t i = 0; i < pollers.size(); ++i) {  // by index: a poller may be removed on the way
      if (pollers[i]->Busy() || pollers[i]->Watching()) progress |= pollers[i]->Poll();
    }
    return progress;
  }

  // Up to where it is believed.
  static uint64_t Value(const uint64_t* address, const Word& word) {
    const uint64_t value = Load(address);
    return word.over == nullptr ? value : std::min(value, word.over->load() + 1);
  }

  bool PollWords() {
    for (const auto& [address, word] : words) {
      const uint64_t value = Value(address, word);
      for (const auto& [key, ignored] : word.waiting) {
        if (key.first > value) break;
        reached.push_back({key.second, {address, key.first}});
      }
    }
    if (reached.empty()) return false;
    // A callback may forget watches, also ones that were reached, and add others.
    for (const auto& [transfer, place] : std::exchange(reached, {})) {
      const auto found = places.find(transfer);
      if (found == places.end() || found->second.word != place.word ||
          found->second.target != place.target) {
        continue;
      }
      Reached callback = Forget(found);
      callback(transfer);
    }
    return true;
  }

  bool AnyReached() const {
    return std::any_of(words.begin(), words.end(), [](const auto& entry) {
      return Value(entry.first, entry.second) >= entry.second.waiting.begin()->first.first;
    });
  }

  void Watch(TransferId transfer, DefinedWord word, uint64_t target, Reached callback) {
    FERRY_CHECK(places.try_emplace(transfer, Place{word.value, target}).second);
    const auto [entry, fresh] = words.try_emplace(word.value);
    if (fresh) {
      entry->second.parked = word.parked;
      entry->second.silent = word.silent;
      entry->second.over = word.over;
      if (word.silent) ++silent_words;
      Hear({word.parked, word.doorbell, word.own_bell});
    }
    entry->second.waiting.emplace(std::make_pair(target, transfer), std::move(callback));
  }

  Reached Forget(absl::flat_hash_map<TransferId, Place>::iterator place) {
    const auto word = words.find(place->second.word);
    const auto watch = word->second.waiting.find({place->second.target, place->first});
    Reached callback = std::move(watch->second);
    word->second.waiting.erase(watch);
    places.erase(place);
    if (word->second.waiting.empty()) ForgetWord(word);
    return callback;
  }

  std::map<const uint64_t*, Word>::iterator ForgetWord(
      std::map<const uint64_t*, Word>::iterator word) {
    if (word->second.silent) --silent_words;
    Unhear(word->second.parked);
    return words.erase(word);
  }

  void Hear(const Doorbell& doorbell) {
    Heard& entry = heard[doorbell.parked];
    entry.bell = doorbell;
    ++entry.uses;
  }

  void Unhear(uint32_t* parked) {
    const auto entry = heard.find(parked);
    FERRY_CHECK(entry != heard.end());
    if (--entry->second.uses > 0) return;
    // At once: the descriptor may be closed next, and the client keeps the eventfd itself alive.
    if (entry->second.listening) {
      StopListening(entry->second.bell.fd);
      if (entry->second.bell.own >= 0) StopListening(entry->second.bell.own);
    }
    heard.erase(entry);
  }

  bool MaySpin(absl::Time idle_since) const {
    bool busy = false;
    for (const Poller* poller : pollers) {
      if (!poller->Busy()) continue;
      if (poller->EventFd() < 0 && spin > absl::ZeroDuration()) return true;
      busy = true;
    }
    const absl::Duration budget =
        busy ? std::max(spin, kPollerSpin) : (heard.empty() ? absl::ZeroDuration() : spin);
    return budget > absl::ZeroDuration() && MonotonicNow() - idle_since < budget;
  }

  bool Restless() const {
    return silent_words > 0 || std::any_of(pollers.begin(), pollers.end(), [](Poller* poller) {
             return poller->Restless() || (poller->Busy() && poller->EventFd() < 0);
           });
  }

  // `deaf`: a doorbell could not be listened to.
  int Sleep(epoll_event* events, int most, bool deaf) const {
    if (!deaf && !Restless()) return epoll_wait(epoll.get(), events, most, -1);
    const timespec look = absl::ToTimespec(kLook);
    const int ready = epoll_pwait2(epoll.get(), events, most, &look, nullptr);
    return ready < 0 && errno == ENOSYS ? epoll_wait(epoll.get(), events, most, 1) : ready;
  }

  // A poller may be removed by what another one does.
  void PollIfThere(Poller* poller) {
    if (std::find(pollers.begin(), pollers.end(), poller) != pollers.end()) poller->Poll();
  }

  void PollReady(const epoll_event* events, int ready) {
    for (int i = 0; i < ready; ++i) PollIfThere(static_cast<Poller*>(events[i].data.ptr));
  }

  // A poller without work is not polled until its descriptor is readable. Park() sees that; a lane
  // whose other pollers keep it from parking sees it here.
  bool ListenWithoutParking() {
    const absl::Time now = MonotonicNow();
    if (now < listened + kListen) return false;
    listened = now;
    epoll_event events[kEvents];
    const int ready = epoll_wait(epoll.get(), events, kEvents, 0);
    FERRY_CHECK(ready >= 0 || errno == EINTR);
    PollReady(events, ready);
    return ready > 0;
  }

  // Sleeps until something may be there. Every source is told first and looked at once more
  // afterwards, so that what came in between is not slept through. False if it only was time to
  // look.
  bool Park() {
    bool deaf = false;
    for (auto& [parked, entry] : heard) {
      if (!entry.listening) entry.listening = ListenTo(entry.bell);
      deaf |= !entry.listening;
      // A count and not a flag, because other lanes may be parked for the same session.
      __atomic_fetch_add(parked, 1, __ATOMIC_SEQ_CST);
    }
    bool sleep = !AnyReached();
    absl::InlinedVector<Poller*, 4> unready;
    for (Poller* poller : pollers) {
      if (!poller->PrepareToPark()) unready.push_back(poller);
    }
    sleep = sleep && unready.empty();
    if (sleep) {
      MutexLock lock(mutex);
      sleep = sleeping = queue.empty() && !stopping;
    }
    epoll_event events[kEvents];
    int ready = 0;
    if (sleep) {
      ready = Sleep(events, kEvents, deaf);
      FERRY_CHECK(ready >= 0 || errno == EINTR);
      listened = MonotonicNow();
      MutexLock lock(mutex);
      sleeping = false;
    }
    for (auto& [parked, entry] : heard) __atomic_fetch_sub(parked, 1, __ATOMIC_SEQ_CST);
    for (Poller* poller : unready) PollIfThere(poller);
    PollReady(events, ready);
    return !sleep || ready > 0;
  }

  void Run() {
    const AtHome at(home);
    pthread_setname_np(pthread_self(), home.name().substr(0, 15).c_str());
    absl::Time idle_since = MonotonicNow();
    while (true) {
      bool progress = false;
      if (!RunTasks(&progress)) break;
      progress |= PollPollers();
      progress |= PollWords();
      progress |= ListenWithoutParking();
      if (progress) {
        idle_since = absl::InfiniteFuture();
        continue;
      }
      if (idle_since == absl::InfiniteFuture()) idle_since = MonotonicNow();
      if (MaySpin(idle_since)) {
        Relax();
        continue;
      }
      if (Park()) idle_since = absl::InfiniteFuture();
    }
    finished.store(true, std::memory_order_release);
    finished.notify_all();
  }
};

absl::Duration Lane::DefaultSpin() {
  return std::thread::hardware_concurrency() > 2 ? absl::Microseconds(50) : absl::ZeroDuration();
}

Lane::Lane(std::string name, absl::Duration spin)
    : impl_(std::make_unique<Impl>(std::move(name), spin)) {
  impl_->thread = std::thread([impl = impl_.get()] { impl->Run(); });
}

Lane::~Lane() { Stop(); }

void Lane::Stop() {
  {
    MutexLock lock(impl_->mutex);
    impl_->stopping = true;
    impl_->sleeping = false;
  }
  impl_->Wake();
  if (impl_->thread.joinable()) impl_->thread.join();
  impl_->home.End();
}

void Lane::Post(Task task) { impl_->Post(std::move(task)); }

bool Lane::IsCurrent() const { return impl_->home.IsCurrent(); }

void Lane::RunAndWait(Task task) {
  FERRY_CHECK(!impl_->home.IsUnderWay());
  Mutex mutex;
  std::condition_variable_any done_cv;
  bool done = false;
  const bool posted = impl_->Post([&] {
    task();
    MutexLock lock(mutex);
    done = true;
    done_cv.notify_one();
  });
  if (!posted) {
    impl_->finished.wait(false, std::memory_order_acquire);
    const AtHome at(impl_->home);
    task();
    return;
  }
  MutexLock lock(mutex);
  while (!done) done_cv.wait(mutex);
}

absl::Duration Lane::CpuTime() const {
  clockid_t clock;
  timespec taken{};
  if (!impl_->thread.joinable() ||
      pthread_getcpuclockid(impl_->thread.native_handle(), &clock) != 0 ||
      clock_gettime(clock, &taken) != 0) {
    return absl::ZeroDuration();
  }
  return absl::DurationFromTimespec(taken);
}

void Lane::AddPoller(Poller* poller) {
  FERRY_CHECK(IsCurrent());
  impl_->pollers.push_back(poller);
  // Level triggered: what one Poll leaves behind is seen again.
  const int fd = poller->EventFd();
  FERRY_CHECK(fd < 0 || impl_->Listen(fd, EPOLLIN, poller));
}

void Lane::RemovePoller(Poller* poller) {
  FERRY_CHECK(IsCurrent());
  if (poller->EventFd() >= 0) {
    epoll_ctl(impl_->epoll.get(), EPOLL_CTL_DEL, poller->EventFd(), nullptr);
  }
  auto& pollers = impl_->pollers;
  pollers.erase(std::remove(pollers.begin(), pollers.end(), poller), pollers.end());
}

void Lane::Hear(const Doorbell& doorbell) {
  FERRY_CHECK(IsCurrent());
  impl_->Hear(doorbell);
}

void Lane::Unhear(const Doorbell& doorbell) {
  FERRY_CHECK(IsCurrent());
  impl_->Unhear(doorbell.parked);
}

void Lane::WatchWord(TransferId transfer, DefinedWord word, uint64_t target,
                     std::function<void(TransferId)> reached) {
  FERRY_CHECK(IsCurrent());
  impl_->Watch(transfer, word, target, std::move(reached));
}

void Lane::Unwatch(TransferId transfer) {
  FERRY_CHECK(IsCurrent());
  const auto place = impl_->places.find(transfer);
  if (place != impl_->places.end()) impl_->Forget(place);
}

void Lane::UnwatchPages(const void* begin, const void* end) {
  FERRY_CHECK(IsCurrent());
  auto& words = impl_->words;
  auto word = words.lower_bound(static_cast<const uint64_t*>(begin));
  while (word != words.end() && word->first < end) {
    for (const auto& [key, ignored] : word->second.waiting) impl_->places.erase(key.second);
    word = impl_->ForgetWord(word);
  }
}

size_t Lane::watches() const { return impl_->places.size(); }

}  // namespace ferry
