// SPDX-License-Identifier: Apache-2.0
// The insides of UcxTransport, private to transfer/ucx: ucx_transport.cc sets up and takes down,
// ucx_ops.cc moves the bytes of ops, ucx_staged.cc those that go by way of host memory,
// ucx_links.cc opens and fails endpoints. Home: the lane.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "transfer/fair_queue.h"
#include "transfer/staging/host_staging.h"
#include "transfer/ucx/ucx_api.h"
#include "transfer/ucx/ucx_transport.h"
#include "transfer/ucx/ucx_worker.h"

namespace ferry {

// Kinds of workers, as peers know them from the hello.
inline constexpr char kUcxNet[] = "net";
inline constexpr char kUcxShm[] = "shm";

// A transfer travels in messages of this size, so that a small one never waits behind a large one.
// They are cut by position in the transfer: so both ends cut alike, however each has laid out its
// bytes.
inline constexpr size_t kUcxMessageBytes = HostStaging::kSlot;

struct UcxTransport::Impl {
  struct Op;
  struct Link;
  struct Channel;
  // For so long requests may take to return by themselves: a peer that lives and has stopped its
  // half drops what comes, or has taken it, within a turn of its lane.
  static constexpr absl::Duration kTimeToLeave = absl::Milliseconds(250);
  using OpKey = std::pair<TransferId, uint32_t>;
  using LinkKey = std::pair<PeerId, GlobalDeviceId>;

  // One message of an op; UCX's callbacks get its address.
  struct Slot {
    Op* op = nullptr;
    void* request = nullptr;  // while UCX has it and it can be cancelled
    bool returned = false;
    size_t size = 0;
    std::vector<ucp_dt_iov_t> pieces;              // only if the message is more than one
    std::unique_ptr<HostStaging::Message> staged;  // while it has memory to be staged in
  };

  // The sends to one device of a peer: each has bounds of its own, so that one that does not take
  // its messages holds up nobody else.
  struct Window {
    FairQueue sends;       // not all messages posted
    bool waiting = false;  // is in its channel's `waiting`
    size_t requests = 0;   // that UCX has
    size_t bytes = 0;      // of these
  };

  struct Op : FairQueue::Item {
    explicit Op(const TransportOp& op, size_t bytes)
        : Item(SessionOf(op.transfer).value(), op.priority, bytes) {}
    Impl* owner = nullptr;
    TransportOp op;
    Link* link = nullptr;  // null once it is stopped
    Channel* channel = nullptr;
    Window* window = nullptr;  // sends
    std::vector<Slot> slots;   // one per message; never resized
    size_t posted = 0;         // messages handed to UCX
    size_t segment = 0;        // where the next message begins
    size_t offset = 0;
    size_t in_flight = 0;   // requests that have not returned
    size_t copying = 0;     // messages that are copied from or to the GPU
    size_t arrived = 0;     // receives: messages that need nothing more from the peer
    bool direct = false;    // UCX has the GPU's memory
    bool staged = false;    // it goes by way of host memory
    bool overrun = false;   // the peer sent what was not agreed, and may go on
    bool finished = false;  // is in `finished_ops`
    absl::Status status;    // the first error
    absl::Time leave_by = absl::InfiniteFuture();  // once it is stopped: when force is used
    absl::Time drain_by = absl::InfiniteFuture();  // then: when the worker is thrown away

    bool receive() const { return op.role == LaunchRole::kReceive; }
    bool complete() const {
      return in_flight == 0 && copying == 0 && (!status.ok() || posted == slots.size());
    }
  };

  // The way to one device of a peer. Its endpoint is opened by the first op that needs it and
  // outlives the loss of the peer's link, and aborts: a peer that lives drops what it does not
  // take, so that all requests return. Closing an endpoint by force, under a peer that lives, is
  // the last resort but one. UCX tells the peer by its keepalive only, and it pairs the endpoints
  // of two workers by how many each has opened to the other: from then on they are out of step, and
  // a receive whose bytes came by an endpoint of the peer's may be held by none that we can close.
  // The last resort is to throw the worker away.
  struct Link {
    Impl* owner = nullptr;
    LinkKey key;
    std::string address;
    Channel* channel = nullptr;
    ucp_ep_h endpoint = nullptr;
    ucs_status_t error = UCS_OK;  // of `endpoint`
    absl::Status lost;            // why it takes no ops
  };

  struct Stray {
    uint64_t tag = 0;
    size_t messages = 0;  // that may still come
  };

  // A link with ops that were stopped and whose requests UCX may still have; when to look again.
  struct Leaving {
    absl::Time at;
    Link* link = nullptr;
  };

  // A worker and what is on it.
  struct Channel {
    std::string kind;
    UcxWorker::Settings settings;
    std::unique_ptr<UcxWorker> worker;  // null once closed
    // Endpoints have error handling and can be closed by force. Not so in UCX's shared memory, old
    // and new (where asking for it makes ends that differ, and UCX fall over them): there only
    // destroying the worker makes the requests of a dead peer return.
    bool forceable = true;
    bool direct = false;  // of a GPU's lane: UCX is given the GPU's memory
    size_t ops = 0;
    absl::flat_hash_map<LinkKey, std::unique_ptr<Window>> windows;
    std::deque<Window*> waiting;  // those that have sends
    size_t open_windows = 0;      // those with requests
    size_t receives_in_flight = 0;
    size_t copying = 0;  // messages of its ops
    // Staged receives whose messages have not all come, by tag. UCX has no request of these: what
    // arrives is given memory then, so that messages nobody has sent yet keep none from others.
    absl::btree_map<uint64_t, Op*> arriving;
    uint64_t looked_at = 0;  // of these, last
    bool draining = false;   // see Drain
    bool drained() const { return copying == 0 && (forceable || receives_in_flight == 0); }
    absl::Time drain_at = absl::InfiniteFuture();  // the first `drain_by` of its ops, or before
    std::vector<void*> closing;                    // requests of endpoints that close
    std::deque<Stray> strays;
    std::vector<Leaving> leaving;
  };

  Impl(const UcxApi& api, Lane& lane, OpSink sink, GpuStaging* staging,
       std::function<void(std::optional<PeerId>)> moved)
      : api(api), lane(lane), sink(std::move(sink)), staging(staging), moved(std::move(moved)) {}

  const UcxApi& api;
  Lane& lane;
  const OpSink sink;
  GpuStaging* const staging;                               // null: a host device
  const std::function<void(std::optional<PeerId>)> moved;  // UcxOptions::moved
  std::vector<std::unique_ptr<Channel>> channels;
  // By channel; "" of one that is draining, gone, or about to: nobody may be told of its address.
  mutable Mutex addresses_mutex;
  std::vector<UcxAddressBlob> addresses ABSL_GUARDED_BY(addresses_mutex);
  // Of links of workers that can be closed by force: see UcxAddressBlob.
  absl::flat_hash_map<LinkKey, uint64_t> closings ABSL_GUARDED_BY(addresses_mutex);
  absl::flat_hash_map<LinkKey, std::unique_ptr<Link>> links;
  std::vector<std::unique_ptr<Link>> old_links;  // UCX may still call back on them
  absl::flat_hash_map<OpKey, std::unique_ptr<Op>> ops;
  std::vector<Op*> finished_ops;                   // complete; answered by the next Poll
  std::vector<OpResult> results;                   // to be answered
  absl::Time held_since = absl::InfiniteFuture();  // the first of them, while others are under way
  std::vector<Op*> failed_ops;  // an error came by callback; stopped by the next Poll
  std::vector<Link*> failed_links;
  // Of a GPU's lane only.
  std::string way;

  // --- Set up and take down.

  absl::Status AddChannel(const std::string& kind, UcxWorker::Settings settings);
  absl::Status OpenWorker(Channel& channel);
  void SetUpGpu(const UcxOptions& options);
  void TakeDown();

  // --- Ops.

  absl::Status OpError(absl::StatusCode code, Reason reason, const TransportOp& op,
                       absl::string_view why);
  void Refuse(const TransportOp& op, Reason reason, absl::string_view why);
  // Messages of a receive that nobody waits for, which may come all the same: else they would lie
  // in the worker for ever, and their sender would wait.
  void AddStrays(Channel& channel, uint64_t tag, size_t messages);
  void Start(TransportOp op);
  void FinishIfComplete(Op& op);
  // The memory of a message: UCX's buffer, count and datatype of it.
  struct Buffer {
    void* data = nullptr;
    size_t count = 0;
    ucp_datatype_t type = ucp_dt_make_contig(1);
  };
  // Cuts the next message off the op's segments.
  Buffer NextMessage(Op& op, Slot& slot);
  ucp_request_param_t RequestParam(Slot& slot, const Buffer& buffer);
  // `arrived`: the message itself, if it has come already.
  void PostReceive(Slot& slot, const Buffer& buffer, ucp_tag_message_h arrived = nullptr);
  void PostSend(Op& op);
  void HandOver(Slot& send, const Buffer& buffer);
  // Whether a window has as much under way as it may.
  bool Full(const Channel& channel, const Window& window) const;
  void Received(Slot& slot, ucs_status_t status, size_t length);
  void Sent(Slot& slot, ucs_status_t status);
  void Returned(Slot& slot, void* request);
  // Ends an op as far as we can: nothing more is posted, receives are cancelled. It is answered
  // when all of its requests have returned.
  void StopOp(Op& op, const absl::Status& why);

  // --- By way of host memory.

  // Memory for the op's next message, and where its bytes are.
  void Stage(Slot& slot);
  void Unstage(Slot& slot);
  HostStaging& StagingOf(const Op& op) { return op.receive() ? staging->in() : staging->out(); }
  void Copy(Slot& slot);
  // Of a receive that UCX is done with.
  void CopyOrUnstage(Slot& receive);
  void Copied(HostStaging::Message& message);
  // Gives memory to messages that have come: to all of them, or to the first one and those of at
  // most so many ops.
  bool TakeArrivals(Channel& channel, size_t most_ops);
  // The op's next message, if it has come and there is memory.
  bool TakeArrival(Op& op);

  // --- Links.

  absl::Status OpenEndpoint(Link& link);
  // Ends what UCX has of this link, and what it is yet to get (`queued`).
  void StopOps(Link& link, const absl::Status& why, bool queued);
  // Closes the endpoint by force: nothing else makes the requests of a dead peer return.
  void CloseEndpoint(Link& link);
  // Both.
  void FailLink(Link& link, const absl::Status& why, bool queued);
  // This end has closed the link's endpoint, and the peer is to close its own.
  void CountClosing(const Link& link);
  // The peer has counted so many; whether these are more than here.
  bool SetClosings(const LinkKey& key, uint64_t closings);
  // Whether a stopped op is the link's, or that of one before it, and UCX may hold its requests. Of
  // what it receives by shared memory UCX lets go by itself.
  bool HoldsRequests(const Link& link, const Op& op) const;
  // When the first of these must have returned; the future: there is none, or force was used.
  absl::Time LeaveBy(const Link& link) const;
  // Sets it for those that have a time.
  void SetLeaveBy(const Link& link, absl::Time time);
  // Looks after those.
  void Watch(Link& link);
  // Whether peers may be told of the channel's address.
  void SetClosed(const Channel& channel, bool is_closed);
  // Closes what holds requests for too long.
  bool CloseOverdue(Channel& channel);
  // Drains the channel if that was not enough.
  void DrainOverdue(Channel& channel);
  // Throws the worker away, since it does not give requests back otherwise: its peers are refused
  // until there is another one, so that their transfers take another route. Of shared memory there
  // is none, and what UCX is reading for a receive it has to finish first.
  void Drain(Channel& channel);
  // As a task: a worker must not be destroyed from within its own progress.
  void PostFinishDraining(Channel& channel);
  void FinishDraining(Channel& channel);
  // Another worker, with another address; endpoints to peers are opened anew.
  void Reopen(Channel& channel);
  void DropLink(absl::flat_hash_map<LinkKey, std::unique_ptr<Link>>::iterator link,
                const absl::Status& why);

  // --- Progress.

  bool Busy(const Channel& channel) const;
  // After progress of the channel's worker. Here and not in UCX's callbacks, which must not call
  // UCX for much, and not in Launch or Abort, which must not answer.
  bool AfterProgress(Channel& channel);
  // UCX does not wake the lane for what has come already: all of it was looked at.
  bool MayPark(Channel& channel);
  void Enqueue(Op& send);
  // UCX has taken a message, or given it back.
  void Occupy(Channel& channel, Window& window, size_t bytes);
  void Vacate(Channel& channel, Window& window, size_t bytes);
  bool PumpSends(Channel& channel);
  // Looks for at most so many strays; whether any has come.
  bool DropStrays(Channel& channel, size_t most);
  bool DropMessage(Channel& channel, uint64_t tag);
  // Hands the results to the sink, a moment later while more is under way: each call of the sink
  // wakes whoever waits for it.
  bool Answer();
};

}  // namespace ferry
