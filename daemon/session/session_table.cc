// SPDX-License-Identifier: Apache-2.0
#include "daemon/session/session_table.h"

#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/duration.h"
#include "base/field_error.h"
#include "base/flight_recorder.h"
#include "base/log.h"
#include "base/status.h"
#include "device/memfd.h"

namespace ferry {
namespace {

constexpr uint32_t kProtocol = 1;
constexpr size_t kTokenBytes = 32;
constexpr absl::Duration kFdsRetry = absl::Seconds(1);
constexpr char kDrains[] =
    " is draining; attach again when it serves: after its next start, or `ferryctl undrain` there";

std::string NewToken() {
  std::string token(kTokenBytes, '\0');
  FERRY_CHECK(getrandom(token.data(), token.size(), 0) == static_cast<ssize_t>(kTokenBytes));
  return token;
}

bool IsSameFile(int fd, int other) {
  struct stat file, others;
  return fstat(fd, &file) == 0 && fstat(other, &others) == 0 && file.st_dev == others.st_dev &&
         file.st_ino == others.st_ino;
}

bool GoodName(const std::string& name) {
  return !name.empty() && name.size() <= 63 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
}

// Frees `pages` once no lane looks at them any more. Each lane has its own share of them, because
// lanes stop one by one: none may have to hand them on to another.
void RetirePages(const LocalDevices& devices, std::shared_ptr<TimelinePages> pages) {
  for (const auto& device : devices.list) {
    Lane* const lane = device->lane.get();
    lane->Post([lane, pages] { lane->UnwatchPages(pages->begin(), pages->end()); });
  }
}

void SayOpened(const Session& session, const AttachHello& hello) {
  const Credentials& process = session.credentials();
  const char* const event = hello.resume.has_value() ? "session.resume" : "session.open";
  FlightRecorder::Get().Record(event, session.id().value(), process.uid, process.pid, hello.name);
  if (session.logged) {
    FERRY_LOG(info, event,
              LogFields("session", session.id(), "name", hello.name, "pid", process.pid, "uid",
                        process.uid),
              "client {}", hello.client_version);
  } else {
    FERRY_LOG_LIMITED(warn, "session.unlogged", LogFields("uid", process.uid),
                      "opens sessions faster than they are logged");
  }
}

}  // namespace

SessionTable::SessionTable(Executor& control, LocalDevices& devices, Options options, Hooks hooks)
    : control_(control),
      devices_(devices),
      options_(std::move(options)),
      hooks_(std::move(hooks)),
      next_session_(options_.first_session) {}

SessionTable::~SessionTable() {
  // A memory thread may still be at a mapping (Populate): they go where all mappings go.
  for (auto& [id, session] : sessions_) {
    for (std::unique_ptr<Arena>& arena : session->arenas().TakeAll()) {
      LocalDevice* device = devices_.Find(arena->device);
      if (device != nullptr) device->memory->Post([mapping = std::move(arena->mapping)] {});
    }
    RetirePages(devices_, session->TakeTimelines());  // a lane may still look at them
  }
}

void SessionTable::OnConnected(Door::ConnectionId connection, const Credentials& credentials) {
  size_t of_uid = 0;
  for (const auto& [other, stranger] : before_hello_) {
    if (stranger.credentials.uid == credentials.uid) ++of_uid;
  }
  before_hello_[connection] = {credentials, control_.Now() + kHelloTimeout};
  // Each holds descriptors, which are everybody's.
  if (of_uid < options_.sessions_per_uid) return;
  TurnAway(connection, 0, credentials,
           Error(absl::StatusCode::kResourceExhausted, Reason::kTooManySessions,
                 absl::StrCat("attach: ", of_uid, " connections of uid ", credentials.uid,
                              " have not said hello yet, and at most as many may as it may have "
                              "sessions")));
}

void SessionTable::OnCommand(Door::ConnectionId connection, const Credentials& credentials,
                             AttachCommand command, ReceivedFds fds) {
  if (!Known(connection)) return;  // it was closed while this was on its way
  if (auto* hello = std::get_if<AttachHello>(&command.body)) {
    return OnHello(connection, credentials, command.sequence, *hello, std::move(fds));
  }
  auto it = by_connection_.find(connection);
  if (it == by_connection_.end()) {
    return OnGarbage(connection, credentials,
                     Error(absl::StatusCode::kFailedPrecondition, Reason::kProtocolError,
                           "attach: the first packet of a session must be `hello`"));
  }
  Session& session = *Find(it->second);
  if (auto* request = std::get_if<AttachRegisterArena>(&command.body)) {
    OnRegister(connection, session.id(), command.sequence, *request, std::move(fds));
  } else if (auto* release = std::get_if<AttachReleaseArena>(&command.body)) {
    OnRelease(connection, session, command.sequence, *release);
  } else if (auto* reset = std::get_if<AttachResetTimeline>(&command.body)) {
    if (reset->timeline >= FERRY_TIMELINE_COUNTERS) {
      return Refuse(connection, command.sequence,
                    FieldError("timeline", absl::StrCat("reset 'over' counter ", reset->timeline,
                                                        ": there are ", FERRY_TIMELINE_COUNTERS)));
    }
    session.timelines().ResetFailures(reset->timeline);
    Reply(connection, {command.sequence, absl::OkStatus(), AttachTimelineReset{}});
  } else if (auto* prepared = std::get_if<AttachReleasePrepared>(&command.body)) {
    OnReleasePrepared(connection, session, command.sequence, prepared->batch);
  } else if (std::holds_alternative<AttachPing>(command.body)) {
    Reply(connection, {command.sequence, absl::OkStatus(), AttachPong{}});
  } else if (auto* batch = std::get_if<PostBatch>(&command.body)) {
    OnPost(connection, session, command.sequence, std::move(*batch));
  }
}

void SessionTable::OnFdsLost(Door::ConnectionId connection, const Credentials& credentials,
                             const AttachCommand& command) {
  if (!Known(connection)) return;
  const bool session = by_connection_.contains(connection);
  absl::Status why = WithRetryAfter(
      Error(absl::StatusCode::kResourceExhausted,
            session ? Reason::kQuotaArenas : Reason::kTooManySessions,
            absl::StrCat(session ? "register an arena" : "attach",
                         ": this daemon has no descriptors left; its operator can raise the limit "
                         "(LimitNOFILE), or find who holds them (ferryctl sessions)")),
      kFdsRetry);
  if (session) return Refuse(connection, command.sequence, std::move(why));
  TurnAway(connection, command.sequence, credentials, std::move(why));
}

void SessionTable::TurnAway(Door::ConnectionId connection, uint64_t sequence,
                            const Credentials& credentials, absl::Status why) {
  ++counts_.refused;
  FERRY_LOG_LIMITED(warn, "session.refused",
                    LogFields("pid", credentials.pid, "uid", credentials.uid), "{}",
                    std::string(why.message()));
  Refuse(connection, sequence, std::move(why));
  hooks_.close(connection);
  OnClosed(connection);
}

void SessionTable::OnGarbage(Door::ConnectionId connection, const Credentials& credentials,
                             const absl::Status& why) {
  FERRY_LOG_LIMITED(warn, "attach.garbage",
                    LogFields("pid", credentials.pid, "uid", credentials.uid), "closed: {}",
                    std::string(why.message()));
  Refuse(connection, 0, why);
  hooks_.close(connection);
  OnClosed(connection);
}

absl::StatusOr<std::unique_ptr<TimelinePages>> SessionTable::PagesFor(const AttachHello& hello,
                                                                      ReceivedFds fds) const {
  if (!hello.resume.has_value()) return TimelinePages::Create();
  const AttachResume& resume = *hello.resume;
  if (fds.size() != 1) {
    return FieldError("resume",
                      absl::StrCat("attach: the memfd of the timelines must come with `resume`, ",
                                   fds.size(), " descriptors did"));
  }
  if (resume.next_transfer_id == 0 ||
      resume.next_transfer_id >= (uint64_t{1} << kTransferSequenceBits)) {
    return FieldError(
        "resume.next_transfer_id",
        absl::StrCat("attach: transfer ids cannot go on from ", resume.next_transfer_id));
  }
  // Before anything else is asked of it: what is no memfd may not answer.
  if (absl::Status fit = CheckMemfd(fds[0].get(), FERRY_TIMELINE_BYTES); !fit.ok()) {
    return OfField(Annotate(fit, "attach: resuming a session's timelines"), "resume");
  }
  const bool same_daemon = resume.incarnation == options_.incarnation;
  struct stat pages {};
  if (same_daemon && fstat(fds[0].get(), &pages) == 0 &&
      std::count(closed_by_operators_.begin(), closed_by_operators_.end(),
                 std::pair(pages.st_dev, pages.st_ino)) > 0) {
    return ClosedByOperator();
  }
  for (const auto& [id, session] : sessions_) {
    // It was given up while we were stopped, and what is still under way writes into its pages.
    if (same_daemon && IsSameFile(session->timelines().memfd(), fds[0].get())) {
      return Error(absl::StatusCode::kUnavailable, Reason::kNotReady,
                   absl::StrCat("attach: ", id.ToString(), ", which is to be resumed, has ",
                                session->use().transfers_in_flight,
                                " transfers that are not over; try again in a moment"));
    }
  }
  const bool prepared_from = (hello.features & kFeaturePreparedFrom) != 0;
  return TimelinePages::Resume(std::move(fds[0]), resume.over,
                               prepared_from ? resume.prepared_from : 0, same_daemon);
}

absl::Status SessionTable::CheckHello(Door::ConnectionId connection, const Credentials& credentials,
                                      const AttachHello& hello) const {
  if (by_connection_.contains(connection)) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kProtocolError,
                 "attach: this connection said hello before");
  }
  if (!hello.token.empty()) {
    if (by_token_.contains(hello.token)) {
      return Error(absl::StatusCode::kAlreadyExists, Reason::kSessionInUse,
                   "attach: the session of this token is attached already; attach without a token "
                   "to open another one");
    }
    return Error(absl::StatusCode::kUnauthenticated, Reason::kSessionInvalid,
                 "attach: no session has this token; attach without a token to open a new one");
  }
  if (hello.protocol_min > kProtocol || hello.protocol_max < kProtocol) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kProtocolVersion,
                 absl::StrCat("attach: the client speaks versions ", hello.protocol_min, " to ",
                              hello.protocol_max, ", this daemon speaks ", kProtocol),
                 {{"min", absl::StrCat(kProtocol)}, {"max", absl::StrCat(kProtocol)}});
  }
  if (!GoodName(hello.name)) {
    return FieldError("name", "attach: name must be 1 to 63 characters of [A-Za-z0-9._-]");
  }
  if (draining_) {
    return Error(absl::StatusCode::kUnavailable, Reason::kDraining,
                 absl::StrCat("attach: ", options_.node, kDrains));
  }
  const size_t of_uid = SessionsOf(credentials.uid);
  if (sessions_.size() < options_.sessions && of_uid < options_.sessions_per_uid) {
    return absl::OkStatus();
  }
  return WithRetryAfter(Error(absl::StatusCode::kResourceExhausted, Reason::kTooManySessions,
                              absl::StrCat("attach: ", sessions_.size(), " of ", options_.sessions,
                                           " sessions are open, ", of_uid, " of ",
                                           options_.sessions_per_uid, " of uid ", credentials.uid)),
                        sessions_closed_.For(control_.Now(), 1));
}

void SessionTable::OnHello(Door::ConnectionId connection, const Credentials& credentials,
                           uint64_t sequence, const AttachHello& hello, ReceivedFds fds) {
  if (absl::Status why = CheckHello(connection, credentials, hello); !why.ok()) {
    return TurnAway(connection, sequence, credentials, std::move(why));
  }
  absl::StatusOr<std::unique_ptr<TimelinePages>> pages = PagesFor(hello, std::move(fds));
  if (!pages.ok()) {
    return TurnAway(connection, sequence, credentials, OfField(pages.status(), "resume"));
  }
  Session& session = Open(connection, credentials, hello, *std::move(pages));
  SayOpened(session, hello);
  std::vector<int> shown = {session.timelines().doorbell()};
  if (!hello.resume.has_value()) shown.insert(shown.begin(), session.timelines().memfd());
  Reply(connection, {sequence, absl::OkStatus(), WelcomeTo(session)}, shown);
}

Session& SessionTable::Open(Door::ConnectionId connection, const Credentials& credentials,
                            const AttachHello& hello, std::unique_ptr<TimelinePages> pages) {
  before_hello_.erase(connection);
  const SessionId id = NewId();
  auto session = std::make_unique<Session>(
      id, hello.name, NewToken(), credentials, std::move(pages),
      Session::Limits{options_.quota, options_.default_deadline, options_.failures_kept,
                      options_.session_kept_bytes, options_.domain_key},
      kept_by_uid_.try_emplace(credentials.uid, options_.uid_kept_bytes).first->second,
      control_.Now(), hello.resume.has_value() ? hello.resume->next_transfer_id : 1);
  session->features = hello.features & kAttachFeatures;
  session->logged = MayLog(credentials.uid);
  by_connection_[connection] = id;
  by_token_[session->token()] = id;
  Session& opened = *session;
  sessions_[id] = std::move(session);
  hooks_.sessions_changed(credentials, 1);
  ++counts_.opened;
  return opened;
}

AttachWelcome SessionTable::WelcomeTo(const Session& session) const {
  AttachWelcome welcome;
  welcome.features = session.features;
  welcome.session = session.id();
  welcome.token = session.token();
  welcome.incarnation = options_.incarnation;
  welcome.node = options_.node;
  welcome.limits = options_.quota;
  for (const auto& device : devices_.list) welcome.devices.push_back(device->info());
  return welcome;
}

SessionId SessionTable::NewId() {
  SessionId id;
  do {
    id = SessionId(next_session_);
    next_session_ = next_session_ % kMostSessionIds + 1;
  } while (sessions_.contains(id));
  return id;
}

bool SessionTable::MayLog(uid_t uid) {
  const absl::Time now = control_.Now();
  if (log_.size() > options_.sessions) {
    absl::erase_if(log_, [now](auto& entry) { return entry.second.Full(now); });
  }
  return log_.try_emplace(uid, TokenBucket(kLoggedASecond, kLoggedAtOnce, now))
      .first->second.Take(now);
}

void SessionTable::OnReleasePrepared(Door::ConnectionId connection, Session& session,
                                     uint64_t sequence, uint32_t number) {
  PreparedRecord* record = session.prepared().Find(number);
  if (record == nullptr || record->released.has_value()) {
    return Refuse(connection, sequence,
                  Error(absl::StatusCode::kNotFound, Reason::kIdStale,
                        absl::StrCat("release prepared batch ", number, ": ",
                                     session.id().ToString(), " has no such batch")));
  }
  record->released = {connection, sequence};
  if (record->left == 0) return OnIdle(session);
  // One takes the others along.
  const uint64_t first = SequenceOf(record->first);
  hooks_.end_prepared(record->first, Error(absl::StatusCode::kCancelled, Reason::kCancelled,
                                           absl::StrCat("the prepared batch from ",
                                                        record->of_jobs ? "job " : "transfer ",
                                                        first, " was released by its client")));
}

void SessionTable::OnPost(Door::ConnectionId connection, Session& session, uint64_t sequence,
                          PostBatch batch) {
  using What = AttachPosted::What;
  const What what = batch.runs_programs            ? What::kRun
                    : batch.side == Side::kReceive ? What::kReceive
                                                   : What::kSend;
  PostReply posted = Post(session, std::move(batch));
  AttachReply reply{
      sequence, std::move(posted.status),
      AttachPosted{what, posted.first_transfer_id, posted.first_over_value, posted.prepared_batch},
      std::move(posted.violations)};
  hooks_.later([this, connection, reply = std::move(reply)] {
    if (hooks_.send(connection, reply, {})) return;
    // As in Reply; but what the session's end causes belongs to another batch of tasks.
    hooks_.close(connection);
    control_.Post([this, connection] { OnClosed(connection); });
  });
}

void SessionTable::Reply(Door::ConnectionId connection, const AttachReply& reply,
                         const std::vector<int>& fds) {
  if (hooks_.send(connection, reply, fds)) return;
  // Gone, or does not read its answers: either way it is lost.
  hooks_.close(connection);
  OnClosed(connection);
}

void SessionTable::Refuse(Door::ConnectionId connection, uint64_t sequence, absl::Status why) {
  AttachReply reply;
  reply.sequence = sequence;
  reply.error = std::move(why);
  hooks_.send(connection, reply, {});
}

absl::StatusOr<Session*> SessionTable::Authenticate(const std::string& token,
                                                    const Credentials& credentials,
                                                    int grpc_connection,
                                                    const std::function<bool(int)>& alive) {
  auto it = by_token_.find(token);
  Session* session = it == by_token_.end() ? nullptr : Find(it->second);
  if (session == nullptr || session->credentials().uid != credentials.uid ||
      session->credentials().pid != credentials.pid) {
    return Error(absl::StatusCode::kUnauthenticated, Reason::kSessionInvalid,
                 "the metadata ferry-session-bin is not the token of a session of this process; "
                 "attach first");
  }
  if (session->grpc_connection != grpc_connection) {
    if (session->grpc_connection >= 0 && alive(session->grpc_connection)) {
      return Error(absl::StatusCode::kPermissionDenied, Reason::kNotAllowed,
                   absl::StrCat(session->id().ToString(),
                                " has its gRPC connection already; a session has one"));
    }
    session->grpc_connection = grpc_connection;
  }
  return session;
}

Session* SessionTable::Find(SessionId id) {
  auto it = sessions_.find(id);
  return it == sessions_.end() ? nullptr : it->second.get();
}

Arena* SessionTable::FindArena(ArenaId id) {
  auto it = arenas_.find(id);
  return it == arenas_.end() ? nullptr : it->second;
}

SessionTable::PreparedView SessionTable::ViewPrepared(const TransferEngine::Row& row) {
  PreparedView view;
  view.waits_for = row.waits_for;
  const PreparedRecord* record = Find(SessionOf(row.transfer))->prepared().Find(row.batch);
  if (record == nullptr) return view;
  const PreparedBatch& batch = *record->batch;
  view.firings = batch.firings();
  if (!row.fires) return view;
  if (!batch.armed()) {
    view.waits_for = "the rest of its batch, which is not armed yet";
    return view;
  }
  view.fired = batch.Firing();
  view.waits_for = *view.fired
                       ? absl::StrCat(
                             "the other end to fire it, or its bytes: the defined word of this "
                             "end has reached ",
                             view.firings + 1)
                       : absl::StrCat("this end to fire it: its defined word has not reached ",
                                      view.firings + 1);
  return view;
}

size_t SessionTable::prepared_armed() const {
  size_t armed = 0;
  for (const auto& [id, session] : sessions_) armed += session->prepared().armed();
  return armed;
}

uint64_t SessionTable::prepared_firings() const {
  uint64_t firings = past_firings_;
  for (const auto& [id, session] : sessions_) firings += session->prepared().firings();
  return firings;
}

std::vector<TransferId> SessionTable::IdlePrepared() const {
  std::vector<TransferId> batches;
  for (const auto& [id, session] : sessions_) session->prepared().ListIdle(batches);
  return batches;
}

void SessionTable::Destroy(Session& session) {
  for (std::unique_ptr<Arena>& arena : session.arenas().TakeAll()) LetGo(std::move(arena));
  past_firings_ += session.prepared().firings();
  RetirePages(devices_, session.TakeTimelines());
  FlightRecorder::Get().Record("session.gone", session.id().value());
  awaited_memory_.erase(session.id());
  const uid_t uid = session.credentials().uid;
  sessions_.erase(session.id());
  if (SessionsOf(uid) == 0) kept_by_uid_.erase(uid);
  sessions_closed_.OnFreed(control_.Now());
  GrantJobMemory();
}

void SessionTable::OnTime(absl::Time now) {
  while (!before_hello_.empty() && NextTimer() <= now) {
    const auto [connection, stranger] = *before_hello_.begin();
    OnGarbage(connection, stranger.credentials,
              Error(absl::StatusCode::kDeadlineExceeded, Reason::kProtocolError,
                    absl::StrCat("attach: no hello within ", DurationText(kHelloTimeout))));
  }
}

absl::Time SessionTable::NextTimer() const {
  // Connections count up, and so do their deadlines.
  return before_hello_.empty() ? absl::InfiniteFuture() : before_hello_.begin()->second.deadline;
}

void SessionTable::SetLimits(const Options& options) {
  options_.quota = options.quota;
  options_.default_deadline = options.default_deadline;
  options_.failures_kept = options.failures_kept;
  options_.sessions = options.sessions;
  options_.sessions_per_uid = options.sessions_per_uid;
  options_.session_kept_bytes = options.session_kept_bytes;
  options_.uid_kept_bytes = options.uid_kept_bytes;
  options_.gpu_bytes = options.gpu_bytes;
  for (auto& [uid, kept] : kept_by_uid_) kept.SetMost(options.uid_kept_bytes);
}

void SessionTable::SetDraining(bool draining) {
  draining_ = draining;
  AttachReply notice;
  notice.body = AttachNotice{draining};
  for (const auto& [connection, id] : by_connection_) hooks_.send(connection, notice, {});
}

}  // namespace ferry
