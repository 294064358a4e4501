// SPDX-License-Identifier: Apache-2.0
#include "client/session.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <system_error>

#include "base/thread_limit_text.h"
#include "base/thread_room.h"
#include "client/parked_streams.h"
#include "client/signals.h"

namespace ferry::client {
namespace {

// The time between the end of a dying daemon's calls and the end of its sockets.
constexpr std::chrono::milliseconds kGrace{100};

// The open sessions of the process, for Session::All.
struct OpenedSessions {
  std::mutex mutex;
  std::vector<std::weak_ptr<Session>> all;
};
OpenedSessions& Opened() {
  static OpenedSessions* const all = new OpenedSessions;  // handles may outlive every static
  return *all;
}

}  // namespace

Session::Session(const Options& options)
    : options_(options), streams_(&timelines_), callbacks_(&timelines_) {}

Session::~Session() {
  Close();
  if (stop_ >= 0) close(stop_);
}

StatusPtr Session::Open(const Options& options, std::shared_ptr<Session>* session) {
  if (!ClaimGrpc()) {
    return Error(kFailedPrecondition, kReasonForked,
                 "opening a session in process " + std::to_string(getpid()) +
                     ": before the fork that made it a session was opened, and gRPC does not work "
                     "in such a child; call exec, or fork before the first session is opened");
  }
  SignalsBlocked blocked;  // gRPC starts threads too
  static std::atomic<bool> grpc_has_its_threads{false};
  if (!grpc_has_its_threads) {
    if (const int error = RoomForThreads(kGrpcThreads)) {
      return Error(kResourceExhausted, kReasonNotReady,
                   "opening a session: starting its threads: " +
                       std::generic_category().message(error) + ThreadLimitText(kGrpcThreads));
    }
  }
  std::shared_ptr<Session> made(new Session(options));
  FERRY_CLIENT_RETURN_IF_ERROR(made->Start());
  grpc_has_its_threads = true;
  {
    std::lock_guard lock(Opened().mutex);
    auto& all = Opened().all;
    all.erase(std::remove_if(all.begin(), all.end(), [](auto& one) { return one.expired(); }),
              all.end());
    all.push_back(made);
  }
  *session = std::move(made);
  return nullptr;
}

std::vector<std::shared_ptr<Session>> Session::All() {
  std::vector<std::shared_ptr<Session>> all;
  std::lock_guard lock(Opened().mutex);
  for (const std::weak_ptr<Session>& one : Opened().all) {
    if (std::shared_ptr<Session> session = one.lock()) all.push_back(std::move(session));
  }
  return all;
}

StatusPtr Session::Start() {
  auto connection = std::make_shared<Connection>(1, 0);
  int memfd = -1;
  int doorbell = -1;
  FERRY_CLIENT_RETURN_IF_ERROR(connection->Open(options_.client_dir, options_.name,
                                                DeadlineAfter(options_.timeout_ns), nullptr, &memfd,
                                                &doorbell));
  FERRY_CLIENT_RETURN_IF_ERROR(timelines_.Map(memfd, doorbell));
  connection->life = std::make_shared<Life>(CounterLines{});
  stop_ = eventfd(0, EFD_CLOEXEC);
  if (stop_ < 0) {
    return ErrnoError(kResourceExhausted, kReasonInternal, "making the session's eventfd", errno);
  }
  welcomes_.push_back(std::make_unique<Welcome>(connection->welcome()));
  welcome_ = welcomes_.back().get();
  connection_ = std::move(connection);
  return StartThread(
      "ferry-session", [this] { Run(); }, &thread_);
}

std::shared_ptr<Connection> Session::EndConnection(StatusPtr cause) {
  std::shared_ptr<Connection> ended = std::move(connection_);
  if (ended != nullptr) ended->life->End(Copy(cause), timelines_.Lines());
  cause_ = std::move(cause);
  changed_.notify_all();
  return ended;
}

void Session::Close() {
  if (closed_) return;
  closed_ = true;
  std::shared_ptr<Connection> ended;
  std::thread watch;
  {
    std::lock_guard lock(mutex_);
    if (!over_) {
      over_ = true;
      ended = EndConnection(Error(kCancelled, kReasonCancelled, "the session was closed"));
      // The watch's last call tells of them together.
      if (ended != nullptr) ended->unheard().TakeAll();
    }
    for (const auto& connection : {ended, opening_}) {  // the session's thread may be using them
      if (connection != nullptr) connection->Break("the session was closed");
    }
    watch.swap(watch_);
  }
  if (thread_.joinable()) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(stop_, &one, sizeof(one));
    thread_.join();
  }
  if (ended != nullptr) ended->Close();
  if (timelines_.mapped()) timelines_.End();
  EndStreams();
  if (watch.joinable()) watch.join();
  callbacks_.Stop();
}

StatusPtr Session::CheckMine() const {
  if (Mine()) return nullptr;
  return Error(kFailedPrecondition, kReasonForked,
               "using session " + std::to_string(welcome().session_id) + " in process " +
                   std::to_string(getpid()) + ": it belongs to process " + std::to_string(pid_) +
                   ", and a fork does not inherit it; call exec, or fork before the first session "
                   "is opened");
}

StatusPtr Session::Check() const {
  FERRY_CLIENT_RETURN_IF_ERROR(CheckMine());
  std::lock_guard lock(mutex_);
  return Copy(cause_);
}

StatusPtr Session::WaitAttached(uint64_t timeout_ns) {
  FERRY_CLIENT_RETURN_IF_ERROR(CheckMine());
  const uint64_t deadline = DeadlineAfter(timeout_ns);
  std::unique_lock lock(mutex_);
  while (cause_ != nullptr && !over_) {
    const uint64_t now = NowNs();
    if (now >= deadline) {
      return Error(kDeadlineExceeded, "", "waiting for the daemon's return: " + cause_->message);
    }
    if (deadline == kForever) {
      changed_.wait(lock);
    } else {
      changed_.wait_for(lock, std::chrono::nanoseconds(deadline - now));
    }
  }
  return Copy(cause_);
}

bool Session::IsOver() const {
  std::lock_guard lock(mutex_);
  return over_;
}

void Session::EndStreams() {
  if (!timelines_.mapped()) return;
  // Firings are not among these: all prepared batches have ended.
  for (const ParkedStreams::Wait& wait :
       ParkedStreams::Get().On(&timelines_.pages(), timelines_.page_bytes())) {
    if (wait.timeline < 0) continue;
    streams_.KeepPages();
    timelines_.Fail(static_cast<uint32_t>(wait.timeline), wait.value);
  }
}

StatusPtr Session::LastLoss() const {
  std::lock_guard lock(mutex_);
  return Copy(over_ || loss_ == nullptr ? cause_ : loss_);
}

StatusPtr Session::Connected(std::shared_ptr<Connection>* connection) const {
  FERRY_CLIENT_RETURN_IF_ERROR(CheckMine());
  std::lock_guard lock(mutex_);
  if (cause_ != nullptr) return Copy(cause_);
  *connection = connection_;
  return nullptr;
}

std::shared_ptr<Connection> Session::Find(uint64_t number) const {
  std::lock_guard lock(mutex_);
  if (connection_ != nullptr && connection_->number() == number) return connection_;
  if (opening_ != nullptr && opening_->number() == number) return opening_;
  return nullptr;
}

StatusPtr Session::OrCause(const Connection& connection, StatusPtr error) const {
  if (error == nullptr) return nullptr;
  // A refusal by the daemon has a reason and is returned as it is. An error without a reason is
  // gRPC's. If the call ended because the daemon is about to end, the session's thread will know it
  // in a moment.
  if (!error->reason.empty() && error->reason != kReasonDaemonLost) return error;
  std::unique_lock lock(mutex_);
  const auto gone = [&] { return connection_.get() != &connection; };
  if (error->code != kResourceExhausted) changed_.wait_for(lock, kGrace, gone);
  if (!gone()) return error;
  return Copy(cause_ != nullptr ? cause_ : loss_);
}

const DeviceInfo* Session::FindDevice(uint64_t device) const {
  for (const DeviceInfo& known : welcome().devices) {
    if (known.id == device) return &known;
  }
  return nullptr;
}

uint64_t Session::TellAgain(Again again) {
  std::lock_guard lock(told_mutex_);
  told_.emplace(next_told_, std::move(again));
  return next_told_++;
}

void Session::Forget(uint64_t told) {
  std::lock_guard lock(told_mutex_);
  told_.erase(told);
}

uint64_t Session::ArenaBytesLeft() const {
  std::shared_ptr<Connection> connection;
  if (Connected(&connection) != nullptr) return 0;
  const uint64_t held = connection->arena_bytes();
  const uint64_t quota = connection->welcome().limits.bytes;
  return quota > held ? quota - held : 0;
}

std::string Session::ArenaUse() const {
  const uint64_t quota = welcome().limits.bytes;
  const uint64_t left = ArenaBytesLeft();
  return "session " + std::to_string(welcome().session_id) + " holds " +
         std::to_string(quota - left) + " of " + std::to_string(quota) + " bytes, " +
         std::to_string(left) + " are left";
}

StatusPtr Session::ResetTimeline(uint32_t timeline) {
  std::shared_ptr<Connection> connection;
  FERRY_CLIENT_RETURN_IF_ERROR(Connected(&connection));
  connection->life->BeginReset(timeline);
  StatusPtr error = OrCause(*connection, connection->ResetTimeline(timeline));
  StatusPtr lost = IfCurrent(
      *connection, [&] { connection->life->EndReset(timeline, timelines_.posted(timeline)); });
  return error != nullptr ? std::move(error) : std::move(lost);
}

StatusPtr Session::Post(const PostBatch& batch, PostAnswer* answer,
                        std::shared_ptr<const Life>* life) {
  std::shared_ptr<Connection> connection;
  FERRY_CLIENT_RETURN_IF_ERROR(Connected(&connection));
  const uint32_t timeline = batch.prepare ? kPreparedTimeline : batch.options->over_timeline;
  const uint64_t resets_over = connection->life->ResetsOver(timeline);
  FERRY_CLIENT_RETURN_IF_ERROR(OrCause(*connection, connection->Post(batch, answer)));
  // An answer that arrives together with the daemon's end counts as lost: the next daemon counts on
  // from what was known before.
  return IfCurrent(*connection, [&] {
    *life = connection->life;
    if (batch.count == 0) return;
    if (batch.prepare) {
      timelines_.PreparedBegan(answer->prepared_batch);
    } else {
      const uint64_t last = answer->first_over_value + batch.count - 1;
      timelines_.Posted(timeline, last);
      connection->life->Posted(timeline, last, resets_over);
      const DeviceInfo* device = FindDevice(batch.device);
      if (device != nullptr && device->kind == kGpuDevice && batch.direction != Direction::kRun) {
        streams_.Record(batch, *answer);
      }
    }
    if (!options_.reattach) return;
    connection->unheard().Posted(
        {answer->first_transfer_id, batch.count, timeline, answer->first_over_value});
    if (!watching_) connection->unheard().ForgetOver(timelines_);
  });
}

StatusPtr Session::ReleasePrepared(const Life& life, uint32_t number, uint64_t first_id,
                                   uint64_t count) {
  FERRY_CLIENT_RETURN_IF_ERROR(CheckMine());
  {
    // A batch that is prepared again with a daemon that comes back belongs to that daemon before
    // the session does.
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return cause_ == nullptr || over_ || life.ended(); });
  }
  if (life.ended()) return nullptr;  // it ended with its daemon
  std::shared_ptr<Connection> connection;
  FERRY_CLIENT_RETURN_IF_ERROR(Connected(&connection));
  if (connection->life.get() != &life) return nullptr;
  FERRY_CLIENT_RETURN_IF_ERROR(OrCause(*connection, connection->ReleasePrepared(number)));
  return IfCurrent(*connection, [&] {
    timelines_.PreparedGone(number);
    if (!watching_) connection->unheard().Forget(first_id, count);
  });
}

StatusPtr Session::Compile(uint64_t device, std::string_view text, ProgramInfo* program) {
  std::shared_ptr<Connection> connection;
  FERRY_CLIENT_RETURN_IF_ERROR(Connected(&connection));
  std::string response;
  FERRY_CLIENT_RETURN_IF_ERROR(OrCause(
      *connection, connection->Call(Method::kCompile, EncodeCompile(device, text), &response)));
  if (DecodeCompiled(response, program)) return nullptr;
  return Error(kInternal, kReasonProtocol, "compiling a program: the daemon's answer is none");
}

StatusPtr Session::ListClusterDevices(std::vector<ClusterDeviceInfo>* devices) {
  std::shared_ptr<Connection> connection;
  FERRY_CLIENT_RETURN_IF_ERROR(Connected(&connection));
  std::string response;
  FERRY_CLIENT_RETURN_IF_ERROR(
      OrCause(*connection, connection->Call(Method::kListDevices, "", &response)));
  if (DecodeClusterDevices(response, devices)) return nullptr;
  return Error(kInternal, kReasonProtocol,
               "listing the cluster's devices: the daemon's answer is none");
}

StatusPtr Session::JoinDomain(const DomainMember& member) {
  std::shared_ptr<Connection> connection;
  FERRY_CLIENT_RETURN_IF_ERROR(Connected(&connection));
  const std::string request = EncodeJoinDomain(member);
  std::string response;
  FERRY_CLIENT_RETURN_IF_ERROR(
      OrCause(*connection, connection->Call(Method::kJoin, request, &response)));
  std::lock_guard lock(joined_mutex_);
  uint64_t& told = joined_[{member.domain, member.device}];  // 0: joined for the first time
  if (told != 0) Forget(told);
  told = TellAgain([request](Connection& next) {
    std::string ignored;
    next.Call(Method::kJoin, request, &ignored);
  });
  // If the session has another connection by now, that one may have been told before this was
  // registered.
  return IfCurrent(*connection, [] {});
}

StatusPtr Session::Call(const Life& life, Method method, std::string request,
                        std::string* response) {
  std::shared_ptr<Connection> connection;
  FERRY_CLIENT_RETURN_IF_ERROR(Connected(&connection));
  if (connection->life.get() != &life) return LastLoss();
  return OrCause(*connection, connection->Call(method, std::move(request), response));
}

}  // namespace ferry::client
