// SPDX-License-Identifier: Apache-2.0
// The session's tie to one life of the daemon: sockets, calls, posts, and the welcome. A re-attach
// replaces it whole. Any thread, but Open (one thread, before all else) and what it says of the
// session's thread; shared by the session and by who is in a call, so that a call that a re-attach
// overtakes ends on the connection it began on. Invariant: once broken, always broken, and then
// every call ends soon.
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
  // `number`: which connection of the session this is, from 1.
  Connection(uint64_t number, uint64_t last_transfer_id);

  // Attaches; `resume` null: as a new session. `memfd` is what goes along or what came; it and
  // `doorbell` (may be -1) are the caller's.
  StatusPtr Open(const std::string& dir, const std::string& name, uint64_t deadline_ns,
                 const Resumption* resume, int* memfd, int* doorbell);
  // From here on the connection is lost; any thread, also while it is being opened.
  void Break(const std::string& why) { attach_.Break(why); }
  bool broken() { return attach_.broken(); }
  // On the session's thread: why the connection is lost, once it is; "" if `stop` was readable
  // first.
  std::string WaitForEnd(int stop) {
    return attach_.WaitForEnd(stop, (welcome_.features & kFeaturePing) != 0);
  }
  StatusPtr told() { return attach_.told(); }
  // Ends all calls and closes the attach socket: the daemon takes everything back.
  void Close();

  uint64_t number() const { return number_; }
  const Welcome& welcome() const { return welcome_; }
  Unheard& unheard() { return unheard_; }
  Rpc& rpc() { return rpc_; }

  // What the daemon answered; `fd`, of kCudaAllocate only, is the caller's.
  // Of this and all that follow: if the daemon does not answer for 30 s the connection is given up
  // as lost, so that no other call waits as long. But for Method::kCompile, which may take longer.
  struct RegisteredArena {
    uint64_t id = 0;
    uint64_t mapped_bytes = 0;
    int fd = -1;
  };
  StatusPtr RegisterArena(const ArenaRequest& arena, std::span<const int> fds,
                          RegisteredArena* registered);
  // `freed`: not refused while transfers use it.
  StatusPtr ReleaseArena(uint64_t id, uint64_t bytes, bool freed);
  uint64_t arena_bytes() const { return arena_bytes_; }
  StatusPtr ResetTimeline(uint32_t timeline);
  StatusPtr ReleasePrepared(uint32_t number);
  // `post_by`: FERRY_POST_BY_...
  StatusPtr Post(const PostBatch& batch, int post_by, PostAnswer* answer);
  StatusPtr Call(Method method, std::string request, std::string* response);

  // Of the transfers posted here; set before the connection is the session's.
  std::shared_ptr<Life> life;

 private:
  StatusPtr TryPost(const PostBatch& batch, int post_by, PostAnswer* answer);
  // `error`, or that the daemon is lost because it has not answered in time.
  StatusPtr GiveUp(StatusPtr error);
  StatusPtr Ask(uint64_t sequence, const std::string& packet, AttachResponse::Kind expected,
                AttachResponse* response, std::span<const int> fds = {}, int* received = nullptr);

  const uint64_t number_;
  ForkFds fds_;
  AttachSocket attach_;
  Rpc rpc_;
  PostStream posts_;
  Welcome welcome_;
  Unheard unheard_;
  std::atomic<uint64_t> arena_bytes_{0};
};

}  // namespace ferry::client
