// SPDX-License-Identifier: Apache-2.0
#include "daemon/session/session_table.h"

#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/flight_recorder.h"
#include "base/log.h"
#include "base/status.h"

namespace ferry {
namespace {

constexpr absl::Duration kFdsRetry = absl::Seconds(1);

// Frees `pages` once no lane looks at them any more. Each lane has its own share of them, because
// lanes stop one by one: none may have to hand them on to another.
void RetirePages(const LocalDevices& devices, std::shared_ptr<TimelinePages> pages) {
  for (const auto& device : devices.list) {
    Lane* const lane = device->lane.get();
    lane->Post([lane, pages] { lane->UnwatchPages(pages->begin(), pages->end()); });
  }
}

}  // namespace

SessionTable::SessionTable(Executor& control, LocalDevices& devices, Options options,
                           SessionSink& sink)
    : control_(control),
      devices_(devices),
      options_(std::move(options)),
      sink_(sink),
      arenas_(devices, [this](ArenaId arena) { sink_.OnArenaGone(arena); }),
      job_memory_(control, sessions_, arenas_, options_.job_memory, options_.gpu_bytes),
      registrar_({.control = control,
                  .devices = devices,
                  .sessions = sessions_,
                  .arenas = arenas_,
                  .job_memory = job_memory_},
                 {.node = options_.node, .gpu_bytes = options_.gpu_bytes}),
      next_session_(options_.first_session) {}

SessionTable::~SessionTable() {
  // A memory thread may still be at a mapping (Populate): they go where all mappings go.
  for (Session* const session : sessions_.List()) {
    for (std::unique_ptr<Arena>& arena : session->arenas().TakeAll()) {
      LocalDevice* device = devices_.Find(arena->device);
      if (device != nullptr) device->memory->Post([mapping = std::move(arena->mapping)] {});
    }
    RetirePages(devices_, session->TakeTimelines());  // a lane may still look at them
  }
}

void SessionTable::OnCommand(Door::ConnectionId connection, const Credentials& credentials,
                             AttachCommand command, ReceivedFds fds) {
  home_.Check();
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
    OnRegister(connection, session, command.sequence, *request, std::move(fds));
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
  home_.Check();
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
  sink_.Close(connection);
  OnClosed(connection);
}

void SessionTable::OnGarbage(Door::ConnectionId connection, const Credentials& credentials,
                             const absl::Status& why) {
  home_.Check();
  FERRY_LOG_LIMITED(warn, "attach.garbage",
                    LogFields("pid", credentials.pid, "uid", credentials.uid), "closed: {}",
                    std::string(why.message()));
  Refuse(connection, 0, why);
  sink_.Close(connection);
  OnClosed(connection);
}

void SessionTable::OnRegister(Door::ConnectionId connection, Session& session, uint64_t sequence,
                              const AttachRegisterArena& request, ReceivedFds fds) {
  registrar_.Register(
      session, request, std::move(fds),
      [this, connection, sequence](absl::StatusOr<ArenaRegistrar::Registered> made) {
        if (!made.ok()) return Refuse(connection, sequence, made.status());
        Reply(connection, {sequence, absl::OkStatus(), made->answer}, made->fds);
      });
}

void SessionTable::OnRelease(Door::ConnectionId connection, Session& session, uint64_t sequence,
                             const AttachReleaseArena& request) {
  if (absl::Status refused = registrar_.Release(session, request); !refused.ok()) {
    return Refuse(connection, sequence, OfField(refused, "arena_id"));
  }
  Reply(connection, {sequence, absl::OkStatus(), AttachArenaReleased{}});
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
  sink_.EndPrepared(record->first, Error(absl::StatusCode::kCancelled, Reason::kCancelled,
                                         absl::StrCat("the prepared batch from ",
                                                      record->of_jobs ? "job " : "transfer ", first,
                                                      " was released by its client")));
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
  sink_.Later([this, connection, reply = std::move(reply)] {
    if (sink_.Send(connection, reply, {})) return;
    // As in Reply; but what the session's end causes belongs to another batch of tasks.
    sink_.Close(connection);
    control_.Post([this, connection] { OnClosed(connection); });
  });
}

void SessionTable::Reply(Door::ConnectionId connection, const AttachReply& reply,
                         const std::vector<int>& fds) {
  if (sink_.Send(connection, reply, fds)) return;
  // Gone, or does not read its answers: either way it is lost.
  sink_.Close(connection);
  OnClosed(connection);
}

void SessionTable::Refuse(Door::ConnectionId connection, uint64_t sequence, absl::Status why) {
  AttachReply reply;
  reply.sequence = sequence;
  reply.error = std::move(why);
  sink_.Send(connection, reply, {});
}

void SessionTable::OnClosed(Door::ConnectionId connection) {
  home_.Check();
  before_hello_.erase(connection);
  auto it = by_connection_.find(connection);
  if (it == by_connection_.end()) return;
  const SessionId id = it->second;
  by_connection_.erase(it);
  Session& session = *Find(id);
  ++(session.use().transfers_in_flight > 0 ? counts_.lost : counts_.closed);
  FlightRecorder::Get().Record("session.close", id.value(), session.use().transfers_in_flight);
  if (session.logged) {
    FERRY_LOG(info, "session.close", LogFields("session", id, "name", session.name()),
              "with {} transfers in flight", session.use().transfers_in_flight);
  }
  by_token_.erase(session.token());
  session.client_gone = true;
  session.endings().NotifyWatchers();
  sink_.OnSessions(session.credentials(), -1);
  sink_.OnEnded(id);
  if (Session* still = Find(id); still != nullptr) OnIdle(*still);
}

void SessionTable::OnIdle(Session& session) {
  home_.Check();
  std::vector<std::unique_ptr<Arena>> unused = session.arenas().TakeUnused();
  const bool room = !unused.empty();
  for (std::unique_ptr<Arena>& arena : unused) arenas_.LetGo(std::move(arena));
  if (room) job_memory_.OnFreed();
  for (const PreparedRecord::Asker& asker : session.TakeReleased()) {
    if (session.client_gone) continue;
    if (sink_.Send(asker.connection,
                   {asker.sequence, absl::OkStatus(), AttachPreparedReleased{}, {}}, {})) {
      continue;
    }
    sink_.Close(asker.connection);  // as in OnPost
    control_.Post([this, connection = asker.connection] { OnClosed(connection); });
  }
  if (!session.client_gone || session.use().transfers_in_flight > 0) return;
  Destroy(session);
}

void SessionTable::Destroy(Session& session) {
  const SessionId id = session.id();
  const uid_t uid = session.credentials().uid;
  job_memory_.Forget(session);
  for (std::unique_ptr<Arena>& arena : session.arenas().TakeAll()) arenas_.LetGo(std::move(arena));
  auto timelines = session.TakeTimelines();
  FlightRecorder::Get().Record("session.gone", id.value());
  sessions_.Erase(id);  // counts its firings, whose words are in the timelines
  RetirePages(devices_, std::move(timelines));
  if (sessions_.CountOf(uid) == 0) records_by_uid_.erase(uid);
  sessions_closed_.OnFreed(control_.Now());
  job_memory_.OnFreed();
}

void SessionTable::SetLimits(const Options& options) {
  home_.Check();
  options_.quota = options.quota;
  options_.default_deadline = options.default_deadline;
  options_.failures_kept = options.failures_kept;
  options_.sessions = options.sessions;
  options_.sessions_per_uid = options.sessions_per_uid;
  options_.session_kept_bytes = options.session_kept_bytes;
  options_.uid_kept_bytes = options.uid_kept_bytes;
  options_.gpu_bytes = options.gpu_bytes;
  registrar_.SetGpuBytes(options.gpu_bytes);
  job_memory_.SetGpuBytes(options.gpu_bytes);
  for (auto& [uid, kept] : records_by_uid_) kept.SetMost(options.uid_kept_bytes);
  job_memory_.OnFreed();  // more may be allowed than before
}

void SessionTable::SetDraining(bool draining) {
  home_.Check();
  draining_ = draining;
  AttachReply notice;
  notice.body = AttachNotice{draining};
  for (const auto& [connection, id] : by_connection_) sink_.Send(connection, notice, {});
}

}  // namespace ferry
