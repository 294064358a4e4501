// SPDX-License-Identifier: Apache-2.0
// How SessionTable's sessions close, and when what they leave behind is destroyed.
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "base/flight_recorder.h"
#include "base/log.h"
#include "base/status.h"
#include "daemon/session/session_table.h"

namespace ferry {

void SessionTable::OnClosed(Door::ConnectionId connection) {
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
  session.closing = true;
  session.endings().NotifyWatchers();
  hooks_.sessions_changed(session.credentials(), -1);
  hooks_.ended(id);
  if (Session* still = Find(id); still != nullptr) OnIdle(*still);
}

absl::Status SessionTable::ClosedByOperator() {
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kSessionInvalid,
               "an operator has closed this session (ferryctl sessions close); open another one");
}

void SessionTable::CloseByOperator(SessionId id) {
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
  hooks_.close(connection);
  OnClosed(connection);
}

void SessionTable::OnIdle(Session& session) {
  std::vector<std::unique_ptr<Arena>> unused = session.arenas().TakeUnused();
  const bool room = !unused.empty();
  for (std::unique_ptr<Arena>& arena : unused) LetGo(std::move(arena));
  if (room) GrantJobMemory();
  for (const PreparedRecord::Asker& asker : session.TakeReleased()) {
    if (session.closing) continue;
    if (hooks_.send(asker.connection,
                    {asker.sequence, absl::OkStatus(), AttachPreparedReleased{}, {}}, {})) {
      continue;
    }
    hooks_.close(asker.connection);  // as in OnPost
    control_.Post([this, connection = asker.connection] { OnClosed(connection); });
  }
  if (!session.closing || session.use().transfers_in_flight > 0) return;
  Destroy(session);
}

size_t SessionTable::SessionsOf(uid_t uid) const {
  return static_cast<size_t>(
      std::count_if(sessions_.begin(), sessions_.end(),
                    [uid](const auto& entry) { return entry.second->credentials().uid == uid; }));
}

}  // namespace ferry
