// SPDX-License-Identifier: Apache-2.0
// The daemon's one epoll thread: accepts connections on every socket, reads packets of attach.sock
// and peer.sock, and sees clients die. Ferry has its own accept loop for two reasons: gRPC's of
// this version never recovers from one EMFILE, and only here the credentials of a connection are
// known.
//
// Home: any thread. Handlers run on the door's own thread; they parse and post, nothing more.
// Nothing here waits for a client: what a client does not take is kept, up to kMaxUnsent bytes, and
// nothing more is read from it until it has taken that. Owns its connections and listeners.
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
#include "base/home.h"
#include "base/mutex.h"
#include "daemon/admission.h"
#include "daemon/socket_access.h"

namespace ferry {

// Who is at the other end of a Unix socket, as the kernel saw it at connect. `pid` is 0 if it is in
// another PID namespace.
struct Credentials {
  pid_t pid = 0;
  uid_t uid = static_cast<uid_t>(-1);
  gid_t gid = static_cast<gid_t>(-1);
};
absl::StatusOr<Credentials> PeerCredentials(int socket);
// Who is at the other end of a connection, as an Admission counts: a uid on a Unix socket; on TCP
// the address, of IPv6 the 64-bit network, and for addresses of this host the uid too.
absl::StatusOr<Visitor> VisitorOf(int socket);
// A descriptor that is readable once the process at the other end has exited; invalid if the kernel
// cannot make one.
UniqueFd PeerPidFd(int socket, pid_t pid);

// Whether a socket takes descriptors. kRefused: nobody may send any. Since Linux 6.16 the kernel
// then refuses them to the sender; an older kernel closes them in whatever thread reads.
enum class Descriptors { kTaken, kRefused };
// A listening Unix socket with the rights of `access`; replaces a stale socket file. `type` is
// SOCK_STREAM or SOCK_SEQPACKET.
absl::StatusOr<UniqueFd> ListenUnix(const std::string& path, int type, SocketAccess access,
                                    Descriptors descriptors);
// The same for a socket on which whoever started this process listens already; it keeps the rights
// that it has. INVALID_ARGUMENT/CONFIG_INVALID if it is of another type, or not at `path`, where
// clients look. `name` is for messages.
absl::StatusOr<UniqueFd> AdoptUnix(UniqueFd socket, const char* name, const std::string& path,
                                   int type, Descriptors descriptors);
// `address` as "127.0.0.1:7411" or "[::1]:7411"; with port 0 the kernel chooses a port.
absl::StatusOr<UniqueFd> ListenTcp(const std::string& address);
// OK if the host has this address and this user may listen on the port; the port may be in use. An
// error begins with `setting`.
absl::Status CheckListen(const char* setting, const std::string& address);
// The port on which a TCP listener listens.
int BoundPort(int listener);

class Door {
 public:
  using ConnectionId = uint64_t;
  // Accepts of one listener before others have their turn; and the pause (kRest) of a listener that
  // has refused somebody.
  static constexpr int kAcceptsAtOnce = 16;
  static constexpr absl::Duration kRest = absl::Milliseconds(1);
  // While seats are being left (Admission::BeingLeft), newcomers wait up to this long before they
  // are refused.
  static constexpr absl::Duration kLeavingTime = absl::Seconds(1);
  // While this many refused connections are not closed yet, none is accepted.
  static constexpr size_t kMostClosing = 16;
  static constexpr size_t kMaxPacket = 128 * 1024;
  static constexpr int kMaxFds = 250;  // most descriptors of one packet; the kernel's limit is 253
  static constexpr size_t kMaxUnsent = 1 << 20;  // bytes that wait for one connection

  struct Packet {
    std::string bytes;
    ReceivedFds fds;
    // The packet was longer than kMaxPacket or had more descriptors than kMaxFds.
    bool truncated = false;
    bool fds_lost = false;  // some of its descriptors are lost: this process could have no more
  };
  using OnAccept = std::function<void(UniqueFd, Admission::Pass)>;
  using OnPacket = std::function<void(ConnectionId, Packet)>;
  // Called once; afterwards the id means nothing. Not called for connections that Close has closed.
  using OnClosed = std::function<void(ConnectionId)>;

  Door();
  ~Door();
  // Ends the thread and closes everything. Idempotent.
  void Stop();

  // Accepts on `listener` until Stop: a few connections at a time, after everything that has
  // arrived on other connections. A connection that `admission` (outlives the door) refuses is told
  // what `farewell` (if given) makes of the reason, and closed at once. Refused and closed as well:
  // a user whose sent descriptors are slow to close (Closer::Clogged), and everybody while this
  // process has no free descriptor; these are counted. A listener that refuses rests for kRest.
  void Listen(std::string name, UniqueFd listener, OnAccept on_accept,
              Admission* admission = nullptr,
              std::function<std::string(const absl::Status&)> farewell = nullptr);
  // Reads packets of a SEQPACKET socket. Calls on_closed when the socket closes or `process` (may
  // be invalid) becomes readable. The connection also ends when too many of the descriptors that
  // its uid (that of `pass`) has sent wait to be closed (Closer::Clogged).
  ConnectionId AddPackets(UniqueFd socket, UniqueFd process, OnPacket on_packet, OnClosed on_closed,
                          Admission::Pass pass = Admission::Pass());
  // From here on the connection is closed when its seat is needed (Admission). Call it in
  // OnAccept.
  void MayGiveWay(ConnectionId id);
  // Calls `readable` whenever the stream socket has data or was closed. Closes the connection after
  // `patience`, or when its seat is needed (Admission). For HTTP. Call it in OnAccept.
  ConnectionId AddStream(UniqueFd socket, absl::Duration patience,
                         std::function<void(ConnectionId, int fd)> readable,
                         Admission::Pass pass = Admission::Pass());
  // Only from within `readable`: takes the stream out of the door. It gives way no more.
  std::pair<UniqueFd, Admission::Pass> Take(ConnectionId id);
  // Sends one packet, in order; keeps it if the connection does not take it now. A packet with
  // descriptors is never kept, because the descriptors stay the caller's. False if the connection
  // is gone or takes no more (a client that does not read its answers); then the caller must close
  // it.
  bool Send(ConnectionId id, const std::string& bytes, const std::vector<int>& fds = {});
  void Close(ConnectionId id);
  // Closes the connection after everything that has arrived was read; on_closed is called.
  void Finish(ConnectionId id);
  // How often a connection was refused because this process had no free descriptor.
  uint64_t refused_for_fds() const { return refused_.load(std::memory_order_relaxed); }
  size_t connections() const;

 private:
  struct Entry;
  uint64_t Add(std::unique_ptr<Entry> entry);
  void Run();
  void Accept(Entry& entry);
  bool WaitsForSeats(Entry& listener);
  // False if the connection was refused.
  bool Welcome(Entry& listener, UniqueFd connection);
  void CloseRefused(uid_t uid, UniqueFd connection);
  void RefuseForFds(Entry& listener);
  void Rest(Entry& listener);
  void EndRest();
  void Read(const std::shared_ptr<Entry>& entry);
  void SendUnsent(Entry& entry);
  void DropClosed(uint64_t id);
  std::shared_ptr<Entry> Find(uint64_t id) const;

  Home home_{"door"};
  UniqueFd epoll_;
  UniqueFd wake_;
  UniqueFd spare_;
  // Listeners; touched by the door's thread alone, like `rest_ends_`
  std::vector<uint64_t> resting_;
  absl::Time rest_ends_;
  std::atomic<bool> stopping_ = false;
  std::atomic<uint64_t> refused_ = 0;
  // Refused connections that a Closer has not closed yet; outlives the door.
  const std::shared_ptr<std::atomic<size_t>> closing_ = std::make_shared<std::atomic<size_t>>(0);
  mutable Mutex mutex_;
  // shared_ptr: a sender on another thread may hold an entry while the door drops it.
  absl::flat_hash_map<uint64_t, std::shared_ptr<Entry>> entries_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::thread thread_;
};

}  // namespace ferry
