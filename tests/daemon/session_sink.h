// SPDX-License-Identifier: Apache-2.0
// A SessionSink of functions, of which a test gives those that it is about. A function that is not
// given does nothing, or fails the test if it has to answer.
#pragma once

#include <functional>
#include <vector>

#include "daemon/session/session_sink.h"

namespace ferry::testing {

struct SinkFunctions {
  std::function<bool(Door::ConnectionId, const AttachReply&, const std::vector<int>& fds)> send =
      [](Door::ConnectionId, const AttachReply&, const std::vector<int>&) { return true; };
  std::function<void(Door::ConnectionId)> close = [](Door::ConnectionId) {};
  std::function<PostReply(Session&, PostBatch)> post = {};
  std::function<void(Task)> later = {};
  std::function<void(SessionId)> ended = [](SessionId) {};
  std::function<void(ArenaId)> arena_gone = [](ArenaId) {};
  std::function<void(TransferId, const absl::Status&)> end_prepared = {};
};

class TestSink : public SessionSink {
 public:
  explicit TestSink(SinkFunctions functions) : functions_(std::move(functions)) {}

  bool Send(Door::ConnectionId connection, const AttachReply& reply,
            const std::vector<int>& fds) override {
    return functions_.send(connection, reply, fds);
  }
  void Close(Door::ConnectionId connection) override { functions_.close(connection); }
  PostReply Post(Session& session, PostBatch batch) override {
    return functions_.post(session, std::move(batch));
  }
  void Later(Task task) override { functions_.later(std::move(task)); }
  void OnEnded(SessionId session) override { functions_.ended(session); }
  void OnArenaGone(ArenaId arena) override { functions_.arena_gone(arena); }
  void EndPrepared(TransferId member, const absl::Status& why) override {
    functions_.end_prepared(member, why);
  }
  void OnSessions(const Credentials&, int) override {}

 private:
  const SinkFunctions functions_;
};

}  // namespace ferry::testing
