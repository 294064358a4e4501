// SPDX-License-Identifier: Apache-2.0
// The insides of TcpTransport, private to transfer/tcp: tcp_transport.cc sets up, launches and
// answers, tcp_links.cc opens and closes connections, tcp_send.cc and tcp_receive.cc move bytes,
// tcp_staged.cc those of GPUs, tcp_prepared.cc fires what is prepared. Home: the lane.
//
// Ownership: `links` own their connections and queues, `ops` every op until it is answered. An op
// that has ended but whose bytes a GPU still copies is in `ops` with `ended` set, and on no link.
#pragma once

#include <sys/uio.h>

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/fd.h"
#include "base/status.h"
#include "transfer/fair_queue.h"
#include "transfer/tcp/segment_map.h"
#include "transfer/tcp/tcp_transport.h"

namespace ferry {

struct TcpTransport::Impl : Poller {
  struct Op;
  struct Link;
  struct Group;
  using OpKey = std::pair<TransferId, uint32_t>;
  using LinkKey = std::pair<PeerId, GlobalDeviceId>;

  // A send that waits in one of its link's queues.
  struct Turn : FairQueue::Item {
    explicit Turn(Op& op);
    Op& op;
  };

  struct Op {
    explicit Op(TransportOp launched);
    TransportOp op;
    SegmentMap memory;  // of op.segments
    Link* link = nullptr;
    absl::Status status;  // once it has ended
    bool ended = false;   // it is answered when nothing copies its bytes any more
    size_t copying = 0;   // chunks that are copied from or to the GPU
    uint64_t cut = 0;     // sends: bytes that are in messages or chunks; receives: that are claimed
    uint64_t over = 0;    // bytes that were written, or have arrived
    std::optional<Turn> turn;  // a send that was not cut to its end
    // Prepared: which firing both counts are of, whether the other end has announced itself (a
    // receive) or which firing it wants (a send), and the last that was over.
    Group* group = nullptr;
    uint64_t firing = 0;
    uint64_t wanted = 0;
    uint64_t fired = 0;

    bool receive() const { return op.role == LaunchRole::kReceive; }
    uint64_t bytes() const { return memory.bytes(); }
    bool small() const { return bytes() <= kSmallBytes; }
  };

  // The ops of one prepared batch on one link, in one direction: they are looked at as one.
  struct Group {
    PreparedBatch* own = nullptr;
    Link* link = nullptr;
    bool receives = false;
    bool silent = false;  // a GPU may write its word, which rings no doorbell
    std::vector<Op*> ops;
    uint64_t next = 1;   // the firing that is looked for
    bool begun = false;  // our end wants it
    size_t over = 0;     // ops of which it is over
  };

  // Bytes of one op on their way by host memory: from its queue until they are written, or from
  // their entry's beginning until they are copied.
  struct Chunk {
    Impl* owner = nullptr;
    Op* op = nullptr;  // null once it has ended
    Link* link = nullptr;
    bool receives = false;
    uint64_t at = 0;  // of the op's bytes
    HostStaging::Message message;
  };

  // One message that is being written.
  struct Outgoing {
    struct Part {
      Op* op = nullptr;  // null: it has ended
      uint64_t bytes = 0;
      size_t first_piece = 0;
      size_t end_piece = 0;
      std::unique_ptr<Chunk> chunk;  // of a GPU
    };
    std::vector<TcpEntry> entries;
    std::string head;
    std::vector<iovec> pieces;
    size_t next_piece = 0;  // the first that is not written whole; it begins where that goes on
    std::vector<Part> parts;
    // Bytes of ops that have ended: these have got their memory back.
    std::vector<std::unique_ptr<std::byte[]>> kept;
    bool idle() const { return next_piece == pieces.size(); }
  };

  // What is being read, message by message.
  struct Incoming {
    struct Part {
      TcpEntry entry;
      bool known = false;            // it was looked up
      bool dropped = false;          // nobody wants its bytes
      std::unique_ptr<Chunk> chunk;  // of a GPU
    };
    std::array<std::byte, 16 << 10> ahead;  // what was read and not looked at, [begin, end)
    size_t begin = 0;
    size_t end = 0;
    TcpKind kind = TcpKind::kBytes;
    std::vector<Part> parts;  // of the message that is being read, by entry
    size_t next = 0;          // the part that is being read
    uint64_t done = 0;        // bytes of that part
    bool in_message() const { return next < parts.size(); }
  };

  struct Connection {
    Connection(Link& link, uint32_t index) : link(link), index(index) {}
    Link& link;
    const uint32_t index;  // 0: of what is small
    UniqueFd socket;
    enum class State { kAbsent, kConnecting, kProving, kOpen } state = State::kAbsent;
    bool readable = false;
    bool writable = false;
    bool ended = false;    // the peer sends no more than what has come
    bool due = false;      // is in `due`
    bool tried = false;    // an unknown tag was looked up before
    bool waiting = false;  // reads no more until tasks were run, or there is memory to receive into
    std::string answer;    // kProving: of what is expected, what has not come yet
    Outgoing out;
    Incoming in;
  };

  // The way to one device of a peer.
  struct Link {
    TcpTransport::Impl* owner = nullptr;
    LinkKey key;
    uint64_t number = 0;  // TcpPeer::link
    std::string peer_name;
    std::string secret;
    std::string id;  // TcpLinkId of the secret
    TcpAddress address;
    enum class State { kClosed, kOpening, kOpen } state = State::kClosed;
    uint64_t serial = 0;
    std::vector<std::unique_ptr<Connection>> connections;
    absl::Time open_by = absl::InfiniteFuture();    // ops wait for it to be open
    absl::Time redial_at = absl::InfiniteFuture();  // connections that the peer has not taken
    absl::Time retry_at = absl::InfinitePast();     // until then `refused` is what ops are told
    absl::Status refused;
    size_t ops = 0;
    // Sends, [0] large and [1] small ones; of GPUs also what is copied and can be written.
    FairQueue queues[2];
    std::deque<std::unique_ptr<Chunk>> ready[2];
    size_t staged = 0;                              // bytes of sends that have memory
    std::deque<std::pair<TcpKind, TcpEntry>> said;  // what connection 0 is to say
    // By tag: [0] sends, whose tags the peer has given, [1] receives, whose tags are ours.
    absl::flat_hash_map<uint64_t, Op*> tags[2];
    bool wanting = false;  // is in `wanting`
    bool dials() const { return address.size > 0; }
  };

  Impl(Lane& lane, GlobalDeviceId device, Options options, Hooks hooks, GpuStaging* staging)
      : lane(lane), device(device), options(options), hooks(std::move(hooks)), staging(staging) {}

  // --- tcp_transport.cc
  void SetUp();
  void TakeDown();
  void Start(TransportOp op);
  void Refuse(const TransportOp& op, absl::Status why);
  // The op ends with `status`, here: no connection and no queue has it any more. It is answered
  // at once, or when nothing copies its bytes.
  void End(Op& op, absl::Status status);
  void AnswerIfQuiet(Op& op);
  void Answer();
  absl::Status OpError(absl::StatusCode code, Reason reason, const TransportOp& op,
                       absl::string_view why) const;
  bool Poll() override;
  bool Busy() const override { return active > 0 || !results.empty(); }
  bool Watching() const override { return !groups.empty(); }
  bool Restless() const override { return silent > 0; }
  int EventFd() const override { return epoll.get(); }
  bool PrepareToPark() override;

  // Reads and writes what it can.
  bool Serve(Connection& connection);
  void MarkDue(Connection& connection);
  // Those that carry ops of this kind.
  void MarkDue(Link& link, bool small);

  // --- tcp_links.cc
  void OpenSet(Link& link);
  absl::Status Connect(Connection& connection);
  void Watch(Connection& connection);
  void OnEvent(Connection& connection, uint32_t events);
  void OnConnected(Connection& connection);
  void Prove(Connection& connection);
  // The peer takes no more strangers at once, or does not know the link yet: once more in a moment.
  void Redial(Connection& connection);
  // All connections of the set are open.
  void OpenIfWhole(Link& link);
  // Of a set that is not open: its ops end so that another route may be tried.
  void FailOpening(Link& link, absl::Status why);
  // Of one that is: its ops end.
  void FailSet(Link& link, absl::string_view why);
  void CloseSet(Link& link);
  void EndOps(Link& link, const absl::Status& status);
  void SetTimer(absl::Time at);
  void OnTimer();
  Link* Find(PeerId peer, GlobalDeviceId device);

  // --- tcp_send.cc
  void Enqueue(Op& send);
  // Says it on connection 0, with the next message.
  void Say(Link& link, TcpKind kind, const TcpEntry& entry);
  bool HasMore(const Connection& connection) const;
  // Writes until the connection takes no more, but about a message; false if nothing was written.
  bool Write(Connection& connection);
  // Makes the next message; false if there is none.
  bool NextMessage(Connection& connection);
  TcpKind TakeSaid(Link& link, Outgoing& out);
  void TakeSends(FairQueue& queue, Outgoing& out);
  void TakeChunks(std::deque<std::unique_ptr<Chunk>>& ready, Outgoing& out);
  void Written(Outgoing& out);
  // An op that ends, or whose firing does, gets its memory back: the message keeps copies of what
  // is left of its bytes.
  void LetGo(Outgoing& out, Op& send);

  // --- tcp_receive.cc
  // Reads until there is no more, but about a message; false if nothing was read.
  bool Read(Connection& connection);
  // One call of the kernel; how many bytes have come.
  size_t ReadSome(Connection& connection);
  // Goes on with what was read ahead, until something must come, or happen, first.
  void Parse(Connection& connection);
  bool BeginMessage(Connection& connection);
  // What is said of a transfer; false if it cannot be understood yet.
  bool Hear(Connection& connection, const TcpEntry& entry);
  // Whether it is settled where the part's bytes go; if not, the connection waits, if it may.
  bool Settle(Connection& connection, Incoming::Part& part, bool may_wait);
  // Neither is there a receive for its tag, nor will be.
  static bool Drop(Incoming::Part& part) { return part.known = part.dropped = true; }
  // Why a receive cannot be sent these bytes; "" if it can.
  static absl::string_view Objection(const Op& receive, const TcpEntry& entry);
  // Appends the memory of the part's `size` bytes from `done` on, of about `most` pieces; how many
  // bytes those are.
  size_t AddPieces(Link& link, Incoming::Part& part, uint64_t done, size_t size, size_t most);
  // So many bytes of the current parts have come.
  void Advance(Connection& connection, size_t bytes);
  void EndPart(Link& link, Incoming::Part& part);
  void OnArrived(Op& receive, uint64_t bytes);
  // An op that is not known may be on its way to this lane: it is, if it is here once the tasks
  // that wait now have run. True if that is to be seen, false if it was.
  bool MayBeOnItsWay(Connection& connection);

  // --- tcp_staged.cc
  void Want(Link& link);
  // A part of an op that is to be copied, without memory yet.
  std::unique_ptr<Chunk> MakeChunk(Link& link, Op& op, uint64_t at, size_t size);
  // Copies what has memory; false if nothing has.
  bool Stage(Link& link);
  void Copy(std::unique_ptr<Chunk> chunk);
  void Copied(HostStaging::Message& message);
  // Memory of a chunk, if there is one.
  void GiveBack(std::unique_ptr<Chunk> chunk);

  // --- tcp_prepared.cc
  void Join(Op& op);
  void Leave(Op& op);
  bool Ready(const Group& group) const;
  bool Advance(Group& group);
  void BeginFiring(Op& op);
  void FiringOver(Op& op);
  void OnArmed(Op& receive);
  void OnWanted(Op& send, uint64_t firing);
  void OnSaidArrived(Op& send, uint64_t firing);

  Lane& lane;
  const GlobalDeviceId device;
  const Options options;
  const Hooks hooks;
  GpuStaging* const staging;  // null: a host device
  UniqueFd epoll;             // connections, and the timer
  UniqueFd timer;
  absl::Time timer_at = absl::InfiniteFuture();
  absl::flat_hash_map<LinkKey, std::unique_ptr<Link>> links;
  absl::flat_hash_map<OpKey, std::unique_ptr<Op>> ops;
  size_t active = 0;                 // ops that are not prepared
  std::vector<Connection*> due;      // that can read, or write what there is to be written
  std::deque<Link*> wanting;         // of a GPU: links with sends that have no memory yet
  std::vector<Connection*> starved;  // of a GPU: that wait for memory to receive into
  // Closed, but somebody up the stack may look at them: gone with the next Poll.
  std::vector<std::unique_ptr<Connection>> closed;
  std::vector<std::unique_ptr<Group>> groups;
  size_t silent = 0;  // of these
  std::vector<OpResult> results;
  absl::flat_hash_map<HostStaging::Message*, std::unique_ptr<Chunk>> chunks;  // being copied
  std::vector<iovec> pieces;                                                  // kept for its memory
  std::array<std::byte, 64 << 10> nowhere;  // where bytes go that nobody wants
};

}  // namespace ferry
