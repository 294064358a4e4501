// SPDX-License-Identifier: Apache-2.0
// The insides of TcpTransport, private to transfer/tcp. tcp_transport.cc sets up, launches and
// answers; tcp_links.cc opens and closes connections; tcp_send.cc and tcp_receive.cc move bytes;
// tcp_staged.cc moves those of GPUs; tcp_prepared.cc fires prepared transfers. Home: the lane.
//
// Ownership: `links` own their connections and queues; `ops` has every op until it is answered. An
// op that has ended, but whose bytes a GPU still copies, is in `ops` with `ended` set and on no
// link.
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
#include "transfer/trigger.h"

namespace ferry {

struct TcpTransport::Impl : Poller {
  struct Op;
  struct DeviceLink;
  struct Bundle;
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
    SegmentMap memory;  // op.segments as one row of bytes
    DeviceLink* link = nullptr;
    absl::Status status;  // how it ended; set with `ended`
    bool ended = false;   // it is answered when nothing copies its bytes any more
    size_t copying = 0;   // chunks that are being copied from or to the GPU
    // Sends: bytes that are in messages or chunks; receives: bytes that are claimed.
    uint64_t cut = 0;
    uint64_t over = 0;         // bytes that were written or have arrived
    std::optional<Turn> turn;  // sends that are not cut to their end
    // Prepared. `firing`: the firing that `cut` and `over` count bytes of. `wanted`: receives, not
    // 0: the other end has announced itself; sends: the firing that the other end wants. `fired`:
    // the last firing that was over.
    Bundle* bundle = nullptr;
    uint64_t firing = 0;
    uint64_t wanted = 0;
    uint64_t fired = 0;

    bool receive() const { return op.role == LaunchRole::kReceive; }
    uint64_t bytes() const { return memory.bytes(); }
    bool small() const { return bytes() <= kSmallBytes; }
  };

  // The ops of one prepared batch on one link in one direction: a bundle, and as TCP does not know
  // the peer's batches perhaps several. Their words are looked at once.
  struct Bundle {
    Bundle(Lane& lane, const Op& op)
        : own(op.op.prepared->own),
          link(op.link),
          receives(op.receive()),
          silent(op.op.prepared->silent),
          trigger(lane, {own, nullptr, nullptr, std::nullopt}) {}
    PreparedBatch* const own;
    DeviceLink* const link;
    const bool receives;
    const bool silent;  // a GPU may write the batch's word, and rings no doorbell
    std::vector<Op*> ops;
    Trigger trigger;  // a firing has begun when this end wants it
  };

  // Bytes of one op on their way through host memory. A send's chunk lives from its queue until it
  // is written; a receive's from the beginning of its entry until it is copied.
  struct Chunk {
    Impl* owner = nullptr;
    Op* op = nullptr;  // null once it has ended
    DeviceLink* link = nullptr;
    bool receives = false;
    uint64_t at = 0;  // where in the op's bytes the chunk begins
    HostStaging::Message message;
  };

  // The message that is being written on a connection.
  struct Outgoing {
    // The bytes of one op in the message.
    struct OpBytes {
      Op* op = nullptr;  // null: the op has ended
      uint64_t bytes = 0;
      size_t first_piece = 0;
      size_t end_piece = 0;
      std::unique_ptr<Chunk> chunk;  // set if the bytes are a GPU's
    };
    std::vector<TcpEntry> entries;
    std::string head;
    std::vector<iovec> pieces;
    // First piece that is not wholly written; it begins where the writing goes on.
    size_t next_piece = 0;
    std::vector<OpBytes> op_bytes;
    // Copies of bytes whose ops have ended and got their memory back.
    std::vector<std::unique_ptr<std::byte[]>> kept;
    bool idle() const { return next_piece == pieces.size(); }
  };

  // What is being read from a connection, message by message.
  struct Incoming {
    // One entry of the message, and where its bytes go.
    struct Part {
      TcpEntry entry;
      bool known = false;            // the tag was looked up
      bool dropped = false;          // nobody wants the bytes
      std::unique_ptr<Chunk> chunk;  // set if the bytes go to a GPU
    };
    // Bytes that were read and not looked at are [begin, end).
    std::array<std::byte, 16 << 10> ahead;
    size_t begin = 0;
    size_t end = 0;
    TcpKind kind = TcpKind::kBytes;
    std::vector<Part> parts;  // by entry of the present message
    size_t next = 0;          // index of the part that is being read
    uint64_t done = 0;        // bytes of that part that have come
    bool in_message() const { return next < parts.size(); }
  };

  struct Connection {
    Connection(DeviceLink& link, uint32_t index) : link(link), index(index) {}
    DeviceLink& link;
    const uint32_t index;  // 0: the connection for small messages
    UniqueFd socket;
    enum class State { kAbsent, kConnecting, kProving, kOpen } state = State::kAbsent;
    bool readable = false;
    bool writable = false;
    bool ended = false;  // the peer sends nothing more
    bool due = false;    // is in `due`
    bool tried = false;  // an unknown tag was looked up before
    // Reads no more until tasks were run, or until there is memory to receive into.
    bool waiting = false;
    std::string answer;  // kProving: the expected bytes that have not come yet
    Outgoing out;
    Incoming in;
  };

  // The way to one device of a peer: a set of connections, and what waits for it.
  struct DeviceLink {
    TcpTransport::Impl* owner = nullptr;
    LinkKey key;
    uint64_t number = 0;  // TcpPeer::link
    std::string peer_name;
    std::string secret;
    std::string id;  // TcpLinkId() of `secret`
    TcpAddress address;
    enum class State { kClosed, kOpening, kOpen } state = State::kClosed;
    uint64_t serial = 0;
    std::vector<std::unique_ptr<Connection>> connections;
    absl::Time open_by = absl::InfiniteFuture();  // ops wait for the set to be open until then
    // When to dial again connections that the peer has not taken.
    absl::Time redial_at = absl::InfiniteFuture();
    absl::Time retry_at = absl::InfinitePast();  // until then ops are refused with `refused`
    absl::Status refused;
    size_t ops = 0;
    // Sends, [0] large and [1] small. For GPUs, `ready` has chunks that are copied and can be
    // written.
    FairQueue queues[2];
    std::deque<std::unique_ptr<Chunk>> ready[2];
    size_t staged = 0;                              // bytes of sends that have staging memory
    std::deque<std::pair<TcpKind, TcpEntry>> said;  // what connection 0 is to say
    // Ops by tag: [0] sends, whose tags the peer chose; [1] receives, whose tags this daemon chose.
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
  // The op ends with `status`; no connection and no queue has it any more. It is answered at once,
  // or when nothing copies its bytes.
  void End(Op& op, absl::Status status);
  void AnswerIfQuiet(Op& op);
  void Answer();
  absl::Status OpError(absl::StatusCode code, Reason reason, const TransportOp& op,
                       absl::string_view why) const;
  bool Poll() override;
  bool Busy() const override { return active > 0 || !results.empty(); }
  bool Watching() const override { return !bundles.empty(); }
  bool Restless() const override { return silent > 0; }
  int EventFd() const override { return epoll.get(); }
  bool PrepareToPark() override;

  // Reads and writes as much as the connection allows.
  bool Serve(Connection& connection);
  void MarkDue(Connection& connection);
  // Marks the link's connections that carry small, or large, ops.
  void MarkDue(DeviceLink& link, bool small);

  // --- tcp_links.cc
  void OpenSet(DeviceLink& link);
  absl::Status Connect(Connection& connection);
  void Watch(Connection& connection);
  void OnEvent(Connection& connection, uint32_t events);
  void OnConnected(Connection& connection);
  void Prove(Connection& connection);
  // The peer takes no more strangers at once, or does not know the link yet: dials again in a
  // moment.
  void Redial(Connection& connection);
  // The set is open if all its connections are.
  void OpenIfWhole(DeviceLink& link);
  // A set could not be opened: its ops end in a way that lets another route be tried.
  void FailOpening(DeviceLink& link, absl::Status why);
  // A set that was open has failed: its ops end.
  void FailSet(DeviceLink& link, absl::string_view why);
  void CloseSet(DeviceLink& link);
  void EndOps(DeviceLink& link, const absl::Status& status);
  void SetTimer(absl::Time at);
  void OnTimer();
  DeviceLink* Find(PeerId peer, GlobalDeviceId device);

  // --- tcp_send.cc
  void Enqueue(Op& send);
  // Says it on connection 0, with the next message.
  void Say(DeviceLink& link, TcpKind kind, const TcpEntry& entry);
  bool HasMore(const Connection& connection) const;
  // Writes until the connection takes no more, but about one message at most; false if nothing was
  // written.
  bool Write(Connection& connection);
  // Makes the next message; false if there is nothing for one.
  bool NextMessage(Connection& connection);
  TcpKind TakeSaid(DeviceLink& link, Outgoing& out);
  void TakeSends(FairQueue& queue, Outgoing& out);
  void TakeChunks(std::deque<std::unique_ptr<Chunk>>& ready, Outgoing& out);
  void Written(Outgoing& out);
  // Gives an op that ends, or whose firing ends, its memory back: the message keeps copies of the
  // op's bytes that are not written.
  void LetGo(Outgoing& out, Op& send);

  // --- tcp_receive.cc
  // Reads until nothing more is there, but about one message at most; false if nothing was read.
  bool Read(Connection& connection);
  // One call of the kernel; returns how many bytes came.
  size_t ReadSome(Connection& connection);
  // Goes on with the bytes that were read ahead, until more must come or something else must
  // happen.
  void Parse(Connection& connection);
  bool BeginMessage(Connection& connection);
  // Handles an entry that has no bytes; false if it cannot be understood yet.
  bool Hear(Connection& connection, const TcpEntry& entry);
  // Whether it is known where the part's bytes go. If not, the connection waits, if it may.
  bool Settle(Connection& connection, Incoming::Part& part, bool may_wait);
  // No receive has the part's tag, nor will have: its bytes are dropped.
  static bool Drop(Incoming::Part& part) { return part.known = part.dropped = true; }
  // Why a receive must not be sent these bytes; "" if it may.
  static absl::string_view Objection(const Op& receive, const TcpEntry& entry);
  // Appends the memory for `size` bytes of the part from `done` on, in about `most` pieces. Returns
  // how many bytes were appended.
  size_t AddPieces(DeviceLink& link, Incoming::Part& part, uint64_t done, size_t size, size_t most);
  // `bytes` more bytes of the present parts have come.
  void Advance(Connection& connection, size_t bytes);
  void EndPart(DeviceLink& link, Incoming::Part& part);
  void OnArrived(Op& receive, uint64_t bytes);
  // An op that is not known may still be on its way to this lane: it is if it is here once the
  // tasks that wait now have run. True if that must be waited for, false if it was.
  bool MayBeOnItsWay(Connection& connection);

  // --- tcp_staged.cc
  void Want(DeviceLink& link);
  // Makes a chunk of an op that is to be copied; it has no memory yet.
  std::unique_ptr<Chunk> MakeChunk(DeviceLink& link, Op& op, uint64_t at, size_t size);
  // Copies the chunks that have memory; false if none has.
  bool Stage(DeviceLink& link);
  void Copy(std::unique_ptr<Chunk> chunk);
  void Copied(HostStaging::Message& message);
  // Gives back the chunk's memory, if it has some.
  void GiveBack(std::unique_ptr<Chunk> chunk);

  // --- tcp_prepared.cc
  void Join(Op& op);
  void Leave(Op& op);
  bool Ready(const Bundle& bundle) const;
  bool Advance(Bundle& bundle);
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
  UniqueFd epoll;             // watches connections and the timer
  UniqueFd timer;
  absl::Time timer_at = absl::InfiniteFuture();
  absl::flat_hash_map<LinkKey, std::unique_ptr<DeviceLink>> links;
  absl::flat_hash_map<OpKey, std::unique_ptr<Op>> ops;
  size_t active = 0;  // ops that are not prepared
  // Connections that can read, or can write and have something to write.
  std::vector<Connection*> due;
  std::deque<DeviceLink*> wanting;   // GPUs: links with sends that have no memory yet
  std::vector<Connection*> starved;  // GPUs: connections that wait for memory to receive into
  // Closed connections that a caller further up the stack may still look at: destroyed by the next
  // Poll().
  std::vector<std::unique_ptr<Connection>> closed;
  std::vector<std::unique_ptr<Bundle>> bundles;
  size_t silent = 0;  // bundles whose words a GPU may write
  std::vector<OpResult> results;
  // By message that is being copied.
  absl::flat_hash_map<HostStaging::Message*, std::unique_ptr<Chunk>> chunks;
  std::vector<iovec> pieces;                // kept for its memory
  std::array<std::byte, 64 << 10> nowhere;  // takes bytes that nobody wants
};

}  // namespace ferry
