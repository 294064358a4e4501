// SPDX-License-Identifier: Apache-2.0
// Who gets a session: strangers, their hello, resuming, and whom operators have closed.
#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/duration.h"
#include "base/field_error.h"
#include "base/flight_recorder.h"
#include "base/log.h"
#include "base/status.h"
#include "daemon/session/session_table.h"
#include "device/memfd.h"

namespace ferry {
namespace {

constexpr size_t kTokenBytes = 32;
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

// What the client of a session is told that an operator has closed: at once, and when it tries to
// resume.
absl::Status ClosedByOperator() {
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kSessionInvalid,
               "an operator has closed this session (ferryctl sessions close); open another one");
}

}  // namespace

void SessionTable::OnConnected(Door::ConnectionId connection, const Credentials& credentials) {
  home_.Check();
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
  for (Session* const session : sessions_.List()) {
    // It was given up while we were stopped, and what is still under way writes into its pages.
    if (same_daemon && IsSameFile(session->timelines().memfd(), fds[0].get())) {
      return Error(
          absl::StatusCode::kUnavailable, Reason::kNotReady,
          absl::StrCat("attach: ", session->id().ToString(), ", which is to be resumed, has ",
                       session->use().transfers_in_flight,
                       " transfers that are not over; try again in a moment"));
    }
  }
  return TimelinePages::Resume(std::move(fds[0]), resume.over, resume.prepared_from, same_daemon);
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
  if (!kClientProtocol.Meet(hello.protocol)) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kProtocolVersion,
                 absl::StrCat("attach: the client speaks ", hello.protocol.ToString(),
                              " of the protocol with clients, this daemon speaks ",
                              kClientProtocol.ToString(), "; update ",
                              hello.protocol.newest < kClientProtocol.oldest
                                  ? "libferry, or the program that has its own"
                                  : "ferryd"),
                 {{"min", absl::StrCat(kClientProtocol.oldest)},
                  {"max", absl::StrCat(kClientProtocol.newest)}});
  }
  if (!GoodName(hello.name)) {
    return FieldError("name", "attach: name must be 1 to 63 characters of [A-Za-z0-9._-]");
  }
  if (draining_) {
    return Error(absl::StatusCode::kUnavailable, Reason::kDraining,
                 absl::StrCat("attach: ", options_.node, kDrains));
  }
  const size_t of_uid = sessions_.CountOf(credentials.uid);
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
      records_by_uid_.try_emplace(credentials.uid, options_.uid_kept_bytes).first->second,
      control_.Now(), hello.resume.has_value() ? hello.resume->next_transfer_id : 1);
  session->logged = MayLog(credentials.uid);
  by_connection_[connection] = id;
  by_token_[session->token()] = id;
  Session& opened = sessions_.Add(std::move(session));
  sink_.OnSessions(credentials, 1);
  ++counts_.opened;
  return opened;
}

AttachWelcome SessionTable::WelcomeTo(const Session& session) const {
  AttachWelcome welcome;
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
  } while (sessions_.Find(id) != nullptr);
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

absl::StatusOr<Session*> SessionTable::Authenticate(const std::string& token,
                                                    const Credentials& credentials,
                                                    int grpc_connection,
                                                    const std::function<bool(int)>& alive) {
  home_.Check();
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

void SessionTable::OnTime(absl::Time now) {
  home_.Check();
  while (!before_hello_.empty() && NextTimer() <= now) {
    const auto [connection, stranger] = *before_hello_.begin();
    OnGarbage(connection, stranger.credentials,
              Error(absl::StatusCode::kDeadlineExceeded, Reason::kProtocolError,
                    absl::StrCat("attach: no hello within ", DurationText(kHelloTimeout))));
  }
}

absl::Time SessionTable::NextTimer() const {
  home_.Check();
  // Connections count up, and so do their deadlines.
  return before_hello_.empty() ? absl::InfiniteFuture() : before_hello_.begin()->second.deadline;
}

void SessionTable::CloseByOperator(SessionId id) {
  home_.Check();
  const auto found = std::find_if(by_connection_.begin(), by_connection_.end(),
                                  [id](const auto& entry) { return entry.second == id; });
  if (found == by_connection_.end()) return;
  Session& session = *Find(id);
  struct stat pages {};
  if (fstat(session.timelines().memfd(), &pages) == 0) {
    closed_by_operators_.emplace_back(pages.st_dev, pages.st_ino);
    if (closed_by_operators_.size() > kMostClosed) closed_by_operators_.pop_front();
  }
  FERRY_LOG(info, "operator.close", LogFields("session", id, "name", session.name()),
            "with {} transfers in flight", session.use().transfers_in_flight);
  const Door::ConnectionId connection = found->first;
  Refuse(connection, 0, ClosedByOperator());
  sink_.Close(connection);
  OnClosed(connection);
}

}  // namespace ferry
