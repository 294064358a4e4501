// SPDX-License-Identifier: Apache-2.0
// The session's tie to one life of the daemon: the sockets, calls, posts and the daemon's welcome.
// A re-attach makes a new Connection. Any thread, but Open() (one thread, before all else) and
// WaitForEnd() (the session's thread). Shared by the session and by callers inside a call, so that
// a call that a re-attach overtakes ends on the connection that it began on. Invariant: a broken
// connection stays broken, and every call on it ends soon.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "client/attach.h"
#include "client/fork.h"
#include "client/life.h"
#include "client/rpc.h"
#include "client/unheard.h"

namespace ferry::client {

class Connection {
 public:
  // `number`: the connection's place among those of the session, from 1.
  Connection(uint64_t number, uint64_t last_transfer_id);

  // Attaches. `resume` null: as a new session, whose timelines' memfd goes to `memfd`; else
  // `*memfd` is sent along. It and `doorbell` (may be -1) are the caller's.
  StatusPtr Open(const std::string& dir, const std::string& name, uint64_t deadline_ns,
                 const Resumption* resume, int* memfd, int* doorbell);
  // Marks the connection as lost; any thread, also while it is being opened.
  void Break(const std::string& why) { attach_.Break(why); }
  bool broken() { return attach_.broken(); }
  // On the session's thread: waits until the connection is lost and returns why; "" if the
  // descriptor `stop` became readable first.
  std::string WaitForEnd(int stop) { return attach_.WaitForEnd(stop); }
  StatusPtr told() { return attach_.told(); }
  // Ends all calls and closes the attach socket: the daemon takes everything back.
  void Close();

  uint64_t number() const { return number_; }
  const Welcome& welcome() const { return welcome_; }
  Unheard& unheard() { return unheard_; }
  Rpc& rpc() { return rpc_; }

  // What the daemon answered. `fd` is the caller's; only kCudaAllocate gives one.
  //
  // For RegisterArena() and every call below: if the daemon does not answer for 30 s the connection
  // is given up as lost, so that no other call waits as long. Method::kCompile may take longer.
  struct RegisteredArena {
    uint64_t id = 0;
    uint64_t mapped_bytes = 0;
    int fd = -1;
  };
  StatusPtr RegisterArena(const ArenaRequest& arena, std::span<const int> fds,
                          RegisteredArena* registered);
  // `freed`: the arena's handle is freed, so the daemon does not refuse while transfers use the
  // arena.
  StatusPtr ReleaseArena(uint64_t id, uint64_t bytes, bool freed);
  uint64_t arena_bytes() const { return arena_bytes_; }
  StatusPtr ResetTimeline(uint32_t timeline);
  StatusPtr ReleasePrepared(uint32_t number);
  // Posts by the session's socket, or by a gRPC call if the batch does not fit a packet of it.
  StatusPtr Post(const PostBatch& batch, PostAnswer* answer);
  StatusPtr Call(Method method, std::string request, std::string* response);

  // The life of the transfers that are posted here. Set before the session has this connection.
  std::shared_ptr<Life> life;

 private:
  StatusPtr TryPost(const PostBatch& batch, PostAnswer* answer);
  StatusPtr PostByCall(const PostBatch& batch, PostAnswer* answer);
  // `error`; if it is that the daemon has not answered in time, breaks the connection and returns
  // that the daemon is lost.
  StatusPtr GiveUp(StatusPtr error);
  StatusPtr Ask(uint64_t sequence, const std::string& packet, AttachResponse::Kind expected,
                AttachResponse* response, std::span<const int> fds = {}, int* received = nullptr);

  const uint64_t number_;
  ForkFds fds_;
  AttachSocket attach_;
  Rpc rpc_;
  Welcome welcome_;
  Unheard unheard_;
  std::atomic<uint64_t> arena_bytes_{0};
};

}  // namespace ferry::client
