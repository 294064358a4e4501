// SPDX-License-Identifier: Apache-2.0
// The session's thread: sees that the daemon is gone, ends what was outstanding, attaches to the
// daemon's next life, and tells it what the session keeps.
#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "client/parked_streams.h"
#include "client/queued_stores.h"
#include "client/session.h"

namespace ferry::client {
namespace {

// The pause between attempts. Short just after the loss, for a supervisor that restarts quickly.
// Then so long that a thousand clients are no load, and so short that the daemon's return is
// noticed at once.
constexpr int kFirstPauseMs = 10;
constexpr int kLongestPauseMs = 250;
// How long a daemon that listens may take to welcome us; connecting itself must not wait at all.
constexpr uint64_t kHelloTimeoutNs = 10ull * 1000000000;

// False if another attempt would get the same answer: from a daemon that cannot resume sessions, or
// that finds fault with what we resume. True if the refusal may pass: because of the runtime
// directory, a drain, a limit, or a start in progress.
bool WorthAnother(const ferry_status& error) {
  switch (error.code) {
    case kUnavailable:
    case kDeadlineExceeded:
    case kResourceExhausted:
    case kPermissionDenied:
      return true;
    default:
      return false;
  }
}

// Ends now only what somebody waits for: a stream whose value nobody has posted yet stays parked
// until the next daemon's transfers reach the value. It must happen now, because an older daemon
// begins the words of prepared batches anew.
void ForgetEnded() {
  ParkedStreams::Get().ForgetReached();
  QueuedStores::Get().ForgetMade();
}

}  // namespace

void Session::Run() {
  std::shared_ptr<Connection> connection;
  {
    std::lock_guard lock(mutex_);
    connection = connection_;
  }
  while (connection != nullptr) {
    const std::string why = connection->WaitForEnd(stop_);
    if (why.empty()) return;
    const StatusPtr told = connection->told();
    const std::string loss =
        told != nullptr ? told->message : "the daemon of this session is lost: " + why;
    const bool for_good = !options_.reattach || (told != nullptr && !WorthAnother(*told));
    {
      std::lock_guard lock(mutex_);
      if (over_) return;
      over_ = for_good;
      loss_ = Error(kUnavailable, kReasonDaemonLost, loss);
      EndConnection(for_good ? Copy(loss_)
                             : Error(kUnavailable, kReasonDaemonLost,
                                     loss + "; it is being re-attached, try again when it is back "
                                            "(ferry_session_wait)"));
    }
    timelines_.End();
    ForgetEnded();
    connection->Close();
    last_transfer_id_ = connection->unheard().Finish();
    connection.reset();
    if (!for_good) connection = Reattach(loss);
  }
  EndStreams();
}

std::shared_ptr<Connection> Session::Reattach(const std::string& loss) {
  const uint64_t deadline = DeadlineAfter(options_.reattach_timeout_ns);
  for (int pause = kFirstPauseMs;; pause = std::min(2 * pause, kLongestPauseMs)) {
    pollfd stop{stop_, POLLIN, 0};
    if (poll(&stop, 1, pause) > 0) return nullptr;
    std::shared_ptr<Connection> made;
    const StatusPtr error = Attempt(&made);
    std::lock_guard lock(mutex_);
    opening_ = nullptr;
    if (over_) return nullptr;
    if (error == nullptr) {
      welcomes_.push_back(std::make_unique<Welcome>(made->welcome()));
      welcome_ = welcomes_.back().get();
      connection_ = made;
      if (watching_) to_watch_.push_back(made);
      cause_ = nullptr;
      changed_.notify_all();
      return made;
    }
    if (!WorthAnother(*error) || NowNs() >= deadline) {
      over_ = true;
      cause_ = Error(kUnavailable, kReasonDaemonLost,
                     loss + "; it was not re-attached: " + error->message);
      changed_.notify_all();
      return nullptr;
    }
  }
}

StatusPtr Session::Attempt(std::shared_ptr<Connection>* made) {
  const CounterLines begin = timelines_.Settle();
  Resumption resume;
  resume.over.assign(begin.begin(), begin.end());
  while (!resume.over.empty() && resume.over.back().value == 0) resume.over.pop_back();
  resume.next_transfer_id = last_transfer_id_ + 1;
  resume.incarnation = welcome().incarnation;
  resume.prepared_from = timelines_.prepared_from();
  *made = std::make_shared<Connection>(++last_number_, last_transfer_id_);
  Connection& connection = **made;
  {
    std::lock_guard lock(mutex_);
    if (over_) return Copy(cause_);
    opening_ = *made;
  }
  int memfd = timelines_.memfd();
  int doorbell = -1;
  FERRY_CLIENT_RETURN_IF_ERROR(connection.Open(options_.client_dir, options_.name,
                                               DeadlineAfter(kHelloTimeoutNs), &resume, &memfd,
                                               &doorbell));
  connection.life = std::make_shared<Life>(begin, resume.prepared_from);
  RunKept(connection);
  if (connection.broken()) {
    if (doorbell >= 0) close(doorbell);
    StatusPtr gone = Error(kUnavailable, kReasonDaemonLost, "the daemon went again");
    std::unique_lock lock(mutex_);
    connection.life->End(Copy(gone), timelines_.Lines());
    changed_.notify_all();
    lock.unlock();
    timelines_.EndAttempt();
    ForgetEnded();
    return gone;
  }
  timelines_.Begin(doorbell);
  return nullptr;
}

void Session::RunKept(Connection& connection) {
  for (uint64_t done = 0;;) {
    std::lock_guard lock(told_mutex_);
    const auto next = told_.upper_bound(done);
    if (next == told_.end() || connection.broken()) return;
    next->second(connection);
    done = next->first;
  }
}

}  // namespace ferry::client
