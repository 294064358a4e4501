// SPDX-License-Identifier: Apache-2.0
#include "base/closer.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

#include <memory>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

namespace ferry {
namespace {

// The handler of kWake does nothing: the signal only ends waits.
constexpr int kWake = SIGURG;
constexpr std::chrono::seconds kIdle{10};
constexpr size_t kStack = 256 * 1024;

// Asked without a file system. Nothing is written back when such a descriptor is closed: only the
// last close of the socket may wait.
bool IsSocket(int fd) {
  int type;
  socklen_t size = sizeof(type);
  return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0;
}

// Sends kWake to the thread that made it, again and again, from kPatience after Start until Stop.
// Once would not be enough: a signal that comes before the thread waits is handled, and gone.
class Alarm {
 public:
  Alarm() {
    static const bool handled [[maybe_unused]] = [] {
      struct sigaction nothing {};
      nothing.sa_handler = [](int) {};
      nothing.sa_flags = SA_RESTART;
      return sigaction(kWake, &nothing, nullptr) == 0;
    }();
    sigset_t others;
    sigfillset(&others);
    sigdelset(&others, kWake);
    pthread_sigmask(SIG_SETMASK, &others, nullptr);
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = kWake;
    event.sigev_notify_thread_id = static_cast<pid_t>(syscall(SYS_gettid));
    made_ = timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
  }
  ~Alarm() {
    if (made_) timer_delete(timer_);
  }
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;
  void Start() { Set(std::chrono::nanoseconds(Closer::kPatience).count()); }
  void Stop() { Set(0); }

 private:
  void Set(long every) {
    const itimerspec when{{0, every}, {0, every}};
    if (made_) timer_settime(timer_, 0, &when, nullptr);
  }
  timer_t timer_{};
  bool made_ = false;
};

void CloseSoon(UniqueFd fd) {
  thread_local Alarm alarm;
  alarm.Start();
  fd.Reset();
  alarm.Stop();
}

}  // namespace

Closer& Closer::Get() {
  static Closer* only = [] {
    pthread_atfork(nullptr, nullptr, [] { only = new Closer(CloseSoon); });
    return new Closer(CloseSoon);
  }();
  return *only;
}

void Closer::Close(uid_t uid, UniqueFd fd, Closed closed) {
  const bool socket = IsSocket(fd.get());
  MutexLock lock(mutex_);
  Pool& pool = socket ? sockets_ : others_;
  ++waiting_;
  pool.owners[uid].queue.push_back({std::move(fd), std::move(closed)});
  GiveTurn(pool, uid);
}

bool Closer::Clogged(uid_t uid) const {
  if (waiting() <= kMost) return false;
  MutexLock lock(mutex_);
  size_t queued = 0;
  for (const Pool* pool : {&sockets_, &others_}) {
    const auto owner = pool->owners.find(uid);
    if (owner != pool->owners.end()) queued += owner->second.queue.size();
  }
  return queued >= kMost;
}

// Gives the owner a turn if it has something to close and may have one more thread; starts a thread
// for that if none is free.
void Closer::GiveTurn(Pool& pool, uid_t uid) {
  Owner& owner = pool.owners[uid];
  if (!owner.has_turn && !owner.queue.empty() && owner.closing < pool.most_each) {
    owner.has_turn = true;
    pool.turns.push_back(uid);
  }
  if (pool.idle >= pool.turns.size() || pool.threads == pool.most) return pool.more.notify_one();
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, kStack);
  auto start = std::make_unique<Thread>(Thread{*this, pool});
  pthread_t thread;
  // If no thread can be started, the descriptors that wait are looked at with the next one that
  // comes.
  if (pthread_create(&thread, &attributes, Run, start.get()) == 0) {
    start.release();
    ++pool.threads;
  }
  pthread_attr_destroy(&attributes);
}

void* Closer::Run(void* given) {
  pthread_setname_np(pthread_self(), "closer");
  const std::unique_ptr<Thread> thread(static_cast<Thread*>(given));
  MutexLock lock(thread->closer.mutex_);
  thread->closer.Serve(thread->pool);
  return nullptr;
}

void Closer::Serve(Pool& pool) {
  while (true) {
    ++pool.idle;
    bool late = false;
    // The last thread stays: there may be no room to start another.
    while (pool.turns.empty() && (!late || pool.threads == 1)) {
      late = pool.more.wait_for(mutex_, kIdle) == std::cv_status::timeout;
    }
    --pool.idle;
    if (pool.turns.empty()) {
      --pool.threads;
      return;
    }
    CloseNext(pool);
  }
}

void Closer::CloseNext(Pool& pool) {
  const uid_t uid = pool.turns.front();
  pool.turns.pop_front();
  {
    Owner& owner = pool.owners[uid];
    owner.has_turn = false;
    ++owner.closing;
    Waiting next = std::move(owner.queue.front());
    owner.queue.pop_front();
    GiveTurn(pool, uid);
    mutex_.Unlock();
    close_(std::move(next.fd));
    if (next.closed) next.closed();
    next.closed = nullptr;
    mutex_.Lock();
  }
  --waiting_;
  Owner& owner = pool.owners[uid];
  --owner.closing;
  if (owner.closing == 0 && owner.queue.empty()) {
    pool.owners.erase(uid);
  } else {
    GiveTurn(pool, uid);
  }
}

}  // namespace ferry
