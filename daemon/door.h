// SPDX-License-Identifier: Apache-2.0
// The daemon's one epoll thread: it accepts on every socket, reads packets of session and peer
// sockets, and sees clients die. Our own accept loop, because gRPC's of this version never recovers
// from one EMFILE, and because only here a connection's credentials are known (operators' page:
// docs/architecture.md).
//
// Home: the door's own thread for handlers; the public functions are for any thread. Handlers parse
// and post, nothing more. Nothing here waits for a client: what it does not take yet is kept, up to
// a bound, and nothing more is read from it until it has taken that.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/closer.h"
#include "base/fd.h"
#include "base/mutex.h"
#include "daemon/admission.h"
#include "daemon/socket_access.h"

namespace ferry {

// Who is at the other end of a Unix socket, as the kernel saw it at connect. pid is 0 across PID
// namespaces.
struct Credentials {
  pid_t pid = 0;
  uid_t uid = static_cast<uid_t>(-1);
  gid_t gid = static_cast<gid_t>(-1);
};
absl::StatusOr<Credentials> PeerCredentials(int socket);
// Who that is to an Admission; of TCP the address, of IPv6 the network of 64 bits, and of this
// host's own the uid too.
absl::StatusOr<Visitor> VisitorOf(int socket);
// Readable once the process at the other end has exited; invalid if the kernel cannot say.
UniqueFd PeerPidFd(int socket, pid_t pid);

// A listening Unix socket that is open to `access`; replaces a stale socket file. `type`
// SOCK_STREAM or SOCK_SEQPACKET. Where no descriptors are to come the kernel refuses them to the
// sender (since Linux 6.16); before, it closes them in whatever thread reads.
enum class Descriptors { kTaken, kRefused };
absl::StatusOr<UniqueFd> ListenUnix(const std::string& path, int type, SocketAccess access,
                                    Descriptors descriptors);
// The same of a socket that whoever started this process listens on already, with the rights that
// they gave it. INVALID_ARGUMENT/CONFIG_INVALID if it is of another type, or not at `path`, where
// clients look. `name` is for messages.
absl::StatusOr<UniqueFd> AdoptUnix(UniqueFd socket, const char* name, const std::string& path,
                                   int type, Descriptors descriptors);
// "127.0.0.1:7411", "[::1]:7411"; port 0 lets the kernel choose.
absl::StatusOr<UniqueFd> ListenTcp(const std::string& address);
// Whether the host has that address and this user may have the port, be it in use or not;
// `setting` begins the error.
absl::Status CheckListen(const char* setting, const std::string& address);
// The port a TCP listener got.
int BoundPort(int listener);

class Door {
 public:
  using ConnectionId = uint64_t;
  static constexpr int kAcceptsAtOnce = 16;
  static constexpr absl::Duration kRest = absl::Milliseconds(1);
  // For so long nobody is refused for want of places that are being left.
  static constexpr absl::Duration kLeaving = absl::Seconds(1);
  // While so many that were refused are not closed yet none is accepted.
  static constexpr size_t kMostClosing = 16;
  static constexpr size_t kMaxPacket = 128 * 1024;
  static constexpr int kMaxFds = 250;            // a packet; the kernel takes 253
  static constexpr size_t kMaxUnsent = 1 << 20;  // bytes kept for one connection

  struct Packet {
    std::string bytes;
    ReceivedFds fds;
    bool truncated = false;  // longer than kMaxPacket, or more descriptors than kMaxFds
    bool fds_lost = false;   // this process had none left for some of its descriptors
  };
  using OnAccept = std::function<void(UniqueFd, Admission::Pass)>;
  using OnPacket = std::function<void(ConnectionId, Packet)>;
  // Once, after which the id means nothing. Not called for connections closed by Close.
  using OnClosed = std::function<void(ConnectionId)>;

  Door();
  ~Door();
  void Stop();

  // Accepts on `listener` until Stop, a few connections at a time and after everything that has
  // arrived on others. Whom `admission` (outlives the door) refuses hears what `farewell` makes of
  // why, if there is one, and is closed at once; so is who has sent what is slow to close, and
  // everybody, and counted, while there is no free descriptor. When many are refused the listener
  // rests for kRest.
  void Listen(std::string name, UniqueFd listener, OnAccept on_accept,
              Admission* admission = nullptr,
              std::function<std::string(const absl::Status&)> farewell = nullptr);
  // Reads packets of a SEQPACKET socket; when it closes, or `process` (may be invalid) becomes
  // readable, on_closed is called. The uid of `pass` answers for how long its descriptors take to
  // close: the connection ends when too many of them wait (Closer::Clogged).
  ConnectionId AddPackets(UniqueFd socket, UniqueFd process, OnPacket on_packet, OnClosed on_closed,
                          Admission::Pass pass = Admission::Pass());
  // From here on it is closed when its place is needed (Admission). Of OnAccept.
  void MayGiveWay(ConnectionId id);
  // Calls `readable` whenever the stream socket has data or was closed, and drops it once
  // `patience` is over, or when its place is needed (Admission); used for HTTP. Of OnAccept.
  ConnectionId AddStream(UniqueFd socket, absl::Duration patience,
                         std::function<void(ConnectionId, int fd)> readable,
                         Admission::Pass pass = Admission::Pass());
  // From `readable`: the door lets go of the stream, which goes on elsewhere, and does not give
  // way any more.
  std::pair<UniqueFd, Admission::Pass> Take(ConnectionId id);
  // Sends one packet, in order, or keeps it until the connection takes it; one with descriptors is
  // not kept, since those stay the caller's. False if the connection is gone or will not take it (a
  // client that does not read its answers); the caller closes it then.
  bool Send(ConnectionId id, const std::string& bytes, const std::vector<int>& fds = {});
  void Close(ConnectionId id);
  // As Close, but what has arrived is read before, and on_closed is called.
  void Finish(ConnectionId id);
  uint64_t refused_for_fds() const { return refused_.load(std::memory_order_relaxed); }
  size_t connections() const;

 private:
  struct Entry;
  uint64_t Add(std::unique_ptr<Entry> entry);
  void Run();
  void Accept(Entry& entry);
  bool WaitsForPlaces(Entry& listener);
  // False if it was refused.
  bool Welcome(Entry& listener, UniqueFd connection);
  void CloseRefused(uid_t uid, UniqueFd connection);
  void RefuseForFds(Entry& listener);
  void Rest(Entry& listener);
  void EndRest();
  void Read(const std::shared_ptr<Entry>& entry);
  void SendUnsent(Entry& entry);
  void DropClosed(uint64_t id);
  std::shared_ptr<Entry> Find(uint64_t id) const;

  UniqueFd epoll_;
  UniqueFd wake_;
  UniqueFd spare_;
  std::vector<uint64_t> resting_;  // listeners; the door's own thread's, as is
  absl::Time rest_ends_;
  std::atomic<bool> stopping_ = false;
  std::atomic<uint64_t> refused_ = 0;
  const std::shared_ptr<std::atomic<size_t>> closing_ = std::make_shared<std::atomic<size_t>>(0);
  mutable Mutex mutex_;
  // Shared: a sender on another thread may hold an entry while the door drops it.
  absl::flat_hash_map<uint64_t, std::shared_ptr<Entry>> entries_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::thread thread_;
};

}  // namespace ferry
