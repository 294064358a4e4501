// SPDX-License-Identifier: Apache-2.0
// The insides of UcxTransport, private to transfer/ucx. ucx_transport.cc sets up and takes down;
// ucx_ops.cc moves the bytes of ops; ucx_staged.cc moves those that go by way of host memory;
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

// Kinds of workers, as hellos name them to peers.
inline constexpr char kUcxNet[] = "net";
inline constexpr char kUcxShm[] = "shm";

// A transfer travels in messages of this size, so that a small transfer never waits behind a large
// one. Messages are cut by position in the transfer, so both ends cut alike, however each has laid
// out its bytes.
inline constexpr size_t kUcxMessageBytes = HostStaging::kBlock;

struct UcxTransport::Impl {
  struct Op;
  struct DeviceLink;
  struct Channel;
  // How long requests may take to return by themselves. A living peer that has stopped its half
  // drops what comes, or has taken it, within a turn of its lane.
  static constexpr absl::Duration kTimeToLeave = absl::Milliseconds(250);
  using OpKey = std::pair<TransferId, uint32_t>;
  using LinkKey = std::pair<PeerId, GlobalDeviceId>;

  // One message of an op. UCX's callbacks get its address.
  struct Message {
    Op* op = nullptr;
    void* request = nullptr;  // while UCX has the request and it can be cancelled
    bool returned = false;
    size_t size = 0;
    std::vector<ucp_dt_iov_t> pieces;              // only if the message has more than one
    std::unique_ptr<HostStaging::Message> staged;  // set while the message has staging memory
  };

  // The sends to one device of a peer. Each window has bounds of its own, so that a device that
  // does not take its messages holds up no other.
  struct Window {
    FairQueue sends;       // sends whose messages are not all posted
    bool waiting = false;  // is in its channel's `waiting`
    size_t requests = 0;   // requests that UCX has
    size_t bytes = 0;      // bytes of these requests
  };

  struct Op : FairQueue::Item {
    explicit Op(const TransportOp& op, size_t bytes)
        : Item(SessionOf(op.transfer).value(), op.priority, bytes) {}
    Impl* owner = nullptr;
    TransportOp op;
    DeviceLink* link = nullptr;  // null once the op is stopped
    Channel* channel = nullptr;
    Window* window = nullptr;       // sends only
    std::vector<Message> messages;  // never resized
    size_t posted = 0;              // messages that UCX was given
    size_t segment = 0;             // where the next message begins: segment, and offset in it
    size_t offset = 0;
    size_t in_flight = 0;   // requests that have not returned
    size_t copying = 0;     // messages that are being copied from or to the GPU
    size_t arrived = 0;     // receives: messages for which the peer need do nothing more
    bool direct = false;    // UCX has the GPU's memory
    bool staged = false;    // the bytes go by way of host memory
    bool overrun = false;   // the peer sent what was not agreed, and may go on
    bool finished = false;  // is in `finished_ops`
    absl::Status status;    // the first error
    absl::Time leave_by = absl::InfiniteFuture();  // once the op is stopped: when force is used
    // Once force is used: when the worker is thrown away.
    absl::Time drain_by = absl::InfiniteFuture();

    bool receive() const { return op.role == LaunchRole::kReceive; }
    bool complete() const {
      return in_flight == 0 && copying == 0 && (!status.ok() || posted == messages.size());
    }
  };

  // The way to one device of a peer. Its endpoint is opened by the first op that needs it. The
  // endpoint outlives aborts and the loss of the peer's link: a living peer drops what it does not
  // take, so all requests return. To close the endpoint by force under a living peer is the last
  // resort but one. UCX tells the peer only by its keepalive; and UCX pairs the endpoints of two
  // workers by how many each has opened to the other. From then on the two are out of step: a
  // receive whose bytes came by an endpoint of the peer may be held by an endpoint that we cannot
  // close. The last resort is to throw the worker away.
  struct DeviceLink {
    Impl* owner = nullptr;
    LinkKey key;
    std::string address;
    Channel* channel = nullptr;
    ucp_ep_h endpoint = nullptr;
    ucs_status_t error = UCS_OK;  // error of `endpoint`
    absl::Status lost;            // not OK: why the link takes no ops
  };

  // Messages of a receive that nobody waits for any more.
  struct Stray {
    uint64_t tag = 0;
    size_t messages = 0;  // messages that may still come
  };

  // A link with stopped ops whose requests UCX may still have, and when to look again.
  struct Leaving {
    absl::Time at;
    DeviceLink* link = nullptr;
  };

  // A worker, and what is on it.
  struct Channel {
    std::string kind;
    UcxWorker::Settings settings;
    std::unique_ptr<UcxWorker> worker;  // null once closed
    // The worker's endpoints have error handling and can be closed by force. Not with UCX's shared
    // memory, old or new: there, asking for error handling makes ends that differ, over which UCX
    // fails. With shared memory only destroying the worker makes the requests of a dead peer
    // return.
    bool forceable = true;
    bool direct = false;  // GPUs: UCX is given the GPU's memory
    size_t ops = 0;
    absl::flat_hash_map<LinkKey, std::unique_ptr<Window>> windows;
    std::deque<Window*> waiting;  // windows with sends
    size_t open_windows = 0;      // windows with requests
    size_t receives_in_flight = 0;
    size_t copying = 0;  // messages of its ops that are being copied
    // By tag: staged receives whose messages have not all come. UCX has no request for these: a
    // message gets memory when it arrives, so that messages that nobody has sent yet keep no memory
    // from others.
    absl::btree_map<uint64_t, Op*> arriving;
    uint64_t looked_at = 0;  // the tag in `arriving` that was looked for last
    bool draining = false;   // see Drain
    bool drained() const { return copying == 0 && (forceable || receives_in_flight == 0); }
    // The earliest `drain_by` of its ops, or before it.
    absl::Time drain_at = absl::InfiniteFuture();
    std::vector<void*> closing;  // requests of endpoints that are being closed
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
  // By channel. "" for a channel that is draining, gone, or about to be: no peer may be told its
  // address.
  mutable Mutex addresses_mutex;
  std::vector<UcxAddressBlob> addresses ABSL_GUARDED_BY(addresses_mutex);
  // By link of a worker that can be closed by force: see UcxAddressBlob.
  absl::flat_hash_map<LinkKey, uint64_t> closings ABSL_GUARDED_BY(addresses_mutex);
  absl::flat_hash_map<LinkKey, std::unique_ptr<DeviceLink>> links;
  std::vector<std::unique_ptr<DeviceLink>> old_links;  // UCX may still call back on them
  absl::flat_hash_map<OpKey, std::unique_ptr<Op>> ops;
  std::vector<Op*> finished_ops;  // complete ops, which the next Poll answers
  std::vector<OpResult> results;  // results that are to be answered
  // Time of the first result, while other ops are under way.
  absl::Time held_since = absl::InfiniteFuture();
  std::vector<Op*> failed_ops;  // ops with an error from a callback, which the next Poll stops
  std::vector<DeviceLink*> failed_links;
  // A GPU's lane only: how its memory gets to UCX.
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
  // A receive has ended of which messages may still come. They are dropped when they come: else
  // they would lie in the worker for ever, and their sender would wait.
  void AddStrays(Channel& channel, uint64_t tag, size_t messages);
  void Start(TransportOp op);
  void FinishIfComplete(Op& op);
  // The memory of a message, as UCX takes it.
  struct Buffer {
    void* data = nullptr;
    size_t count = 0;
    ucp_datatype_t type = ucp_dt_make_contig(1);
  };
  // Cuts the next message off the op's segments.
  Buffer NextMessage(Op& op, Message& message);
  ucp_request_param_t RequestParam(Message& message, const Buffer& buffer);
  // `arrived`: the message, if it has come already.
  void PostReceive(Message& message, const Buffer& buffer, ucp_tag_message_h arrived = nullptr);
  void PostSend(Op& op);
  void PassToUcx(Message& send, const Buffer& buffer);
  // Whether the window has as many requests or bytes under way as it may.
  bool Full(const Channel& channel, const Window& window) const;
  void Received(Message& message, ucs_status_t status, size_t length);
  void Sent(Message& message, ucs_status_t status);
  void Returned(Message& message, void* request);
  // Ends an op as far as this end can: posts nothing more and cancels receives. The op is answered
  // when all its requests have returned.
  void StopOp(Op& op, const absl::Status& why);

  // --- By way of host memory.

  // Takes memory for the op's next message, and notes where its bytes are.
  void Stage(Message& message);
  void Unstage(Message& message);
  HostStaging& StagingOf(const Op& op) { return op.receive() ? staging->in() : staging->out(); }
  void Copy(Message& message);
  // UCX is done with a message of a receive: copies it to the GPU, or gives its memory back.
  void CopyOrUnstage(Message& receive);
  void Copied(HostStaging::Message& copied);
  // Gives memory to messages that have come, in the order in which they came. If the first one is
  // of no op here, looks for messages of at most `most_ops` ops behind it.
  bool TakeArrivals(Channel& channel, size_t most_ops);
  // Takes the op's next message if it has come and there is memory.
  bool TakeArrival(Op& op);

  // --- Links.

  absl::Status OpenEndpoint(DeviceLink& link);
  // Stops the link's ops that UCX has and, if `queued`, those that UCX does not have yet.
  void StopOps(DeviceLink& link, const absl::Status& why, bool queued);
  // Closes the endpoint by force: nothing else makes the requests of a dead peer return.
  void CloseEndpoint(DeviceLink& link);
  // StopOps() and CloseEndpoint().
  void FailLink(DeviceLink& link, const absl::Status& why, bool queued);
  // This end has closed the link's endpoint by force: the peer must close its own as often.
  void CountClosing(const DeviceLink& link);
  // The peer has closed its endpoint `closings` times. True if that is more often than here.
  bool SetClosings(const LinkKey& key, uint64_t closings);
  // Whether a stopped op is of this link, or of an earlier link to the same device, and UCX may
  // hold its requests. UCX lets go by itself of receives by shared memory.
  bool HoldsRequests(const DeviceLink& link, const Op& op) const;
  // When the first of these ops must have returned; infinite: there is none, or force was used.
  absl::Time LeaveBy(const DeviceLink& link) const;
  // Sets `leave_by` of those of these ops that have one.
  void SetLeaveBy(const DeviceLink& link, absl::Time time);
  // Looks after these ops from now on.
  void Watch(DeviceLink& link);
  // Whether peers may be told of the channel's address: not if `is_closed`.
  void SetClosed(const Channel& channel, bool is_closed);
  // Closes endpoints that hold requests for too long.
  bool CloseOverdue(Channel& channel);
  // Drains the channel if force was not enough.
  void DrainOverdue(Channel& channel);
  // Throws the worker away, since it does not give requests back otherwise. Its peers are refused
  // until there is another worker, so that their transfers take another route. With shared memory
  // there will be no other, and UCX must first finish what it reads for a receive.
  void Drain(Channel& channel);
  // By a task: a worker must not be destroyed from inside its own progress.
  void PostFinishDraining(Channel& channel);
  void FinishDraining(Channel& channel);
  // Makes another worker, with another address; endpoints to peers are opened anew.
  void Reopen(Channel& channel);
  void DropLink(absl::flat_hash_map<LinkKey, std::unique_ptr<DeviceLink>>::iterator link,
                const absl::Status& why);

  // --- Progress.

  bool Busy(const Channel& channel) const;
  // Called after progress of the channel's worker. Its work is not done in UCX's callbacks, which
  // may call little of UCX, nor in Launch or Abort, which must not answer.
  bool AfterProgress(Channel& channel);
  // UCX does not wake the lane for messages that have come already, so all of them were looked at.
  bool MayPark(Channel& channel);
  void Enqueue(Op& send);
  // UCX has taken a message of the window, or given it back.
  void Occupy(Channel& channel, Window& window, size_t bytes);
  void Vacate(Channel& channel, Window& window, size_t bytes);
  bool PumpSends(Channel& channel);
  // Looks for at most `most` strays. True if one has come.
  bool DropStrays(Channel& channel, size_t most);
  bool DropMessage(Channel& channel, uint64_t tag);
  // Hands the results to the sink; while more ops are under way, a moment later, because each call
  // of the sink wakes whoever waits for it.
  bool Answer();
};

}  // namespace ferry
