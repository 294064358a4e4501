// SPDX-License-Identifier: Apache-2.0
// What the classes of transfer/ucx know of an op and its messages, of the way to a device of a
// peer, and of a worker with what is on it. Plain data. Home: the lane.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "transfer/fair_queue.h"
#include "transfer/staging/host_staging.h"
#include "transfer/transport.h"
#include "transfer/types.h"
#include "transfer/ucx/ucx_api.h"
#include "transfer/ucx/ucx_strays.h"
#include "transfer/ucx/ucx_worker.h"

namespace ferry {

class UcxEndpoints;
class UcxReceives;
class UcxSends;
struct UcxChannel;
struct UcxDeviceLink;
struct UcxOp;

// Kinds of workers, as hellos name them to peers.
inline constexpr char kUcxNet[] = "net";
inline constexpr char kUcxShm[] = "shm";

// A transfer travels in messages of this size, so that a small transfer never waits behind a large
// one. Messages are cut by position in the transfer, so both ends cut alike, however each has laid
// out its bytes.
inline constexpr size_t kUcxMessageBytes = HostStaging::kBlock;
inline size_t UcxMessagesOf(size_t bytes) {
  return (bytes + kUcxMessageBytes - 1) / kUcxMessageBytes;
}
// How long requests may take to return by themselves. A living peer that has stopped its half drops
// what comes, or has taken it, within a turn of its lane.
inline constexpr absl::Duration kUcxTimeToLeave = absl::Milliseconds(250);

using UcxLinkKey = std::pair<PeerId, GlobalDeviceId>;

// One message of an op. UCX's callbacks get its address.
struct UcxMessage {
  UcxOp* op = nullptr;
  void* request = nullptr;  // while UCX has the request and it can be cancelled
  bool returned = false;
  size_t size = 0;
  std::vector<ucp_dt_iov_t> pieces;              // only if the message has more than one
  std::unique_ptr<HostStaging::Message> staged;  // set while the message has staging memory
};

// The sends to one device of a peer. Each window has bounds of its own, so that a device that does
// not take its messages holds up no other.
struct UcxWindow {
  FairQueue sends;       // sends whose messages are not all posted
  bool waiting = false;  // is in its channel's `waiting`
  size_t requests = 0;   // requests that UCX has
  size_t bytes = 0;      // bytes of these requests
};

struct UcxOp : FairQueue::Item {
  UcxOp(const TransportOp& op, size_t bytes)
      : Item(SessionOf(op.transfer).value(), op.priority, bytes) {}
  // Whom UCX's callbacks call: the one that has posted the op's requests.
  UcxSends* sends = nullptr;
  UcxReceives* receives = nullptr;
  TransportOp op;
  UcxDeviceLink* link = nullptr;  // null once the op is stopped
  UcxChannel* channel = nullptr;
  UcxWindow* window = nullptr;       // sends only
  std::vector<UcxMessage> messages;  // never resized
  size_t posted = 0;                 // messages that UCX was given
  size_t segment = 0;                // where the next message begins: segment, and offset in it
  size_t offset = 0;
  size_t in_flight = 0;   // requests that have not returned
  size_t copying = 0;     // messages that are being copied from or to the GPU
  size_t arrived = 0;     // receives: messages for which the peer need do nothing more
  bool direct = false;    // UCX has the GPU's memory
  bool staged = false;    // the bytes go by way of host memory
  bool overrun = false;   // the peer sent what was not agreed, and may go on
  bool finished = false;  // is complete, and is answered by the next UcxOps::Answer
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
// workers by how many each has opened to the other. From then on the two are out of step: a receive
// whose bytes came by an endpoint of the peer may be held by an endpoint that we cannot close. The
// last resort is to throw the worker away.
struct UcxDeviceLink {
  UcxEndpoints* owner = nullptr;
  UcxLinkKey key;
  std::string address;
  UcxChannel* channel = nullptr;
  ucp_ep_h endpoint = nullptr;
  ucs_status_t error = UCS_OK;  // error of `endpoint`
  absl::Status lost;            // not OK: why the link takes no ops
};

// A link with stopped ops whose requests UCX may still have, and when to look again.
struct UcxLeaving {
  absl::Time at;
  UcxDeviceLink* link = nullptr;
};

// A worker, and what is on it. Each group of fields is changed by the class that it names.
struct UcxChannel {
  explicit UcxChannel(const UcxApi& api) : strays(api) {}

  // UcxChannels.
  size_t index = 0;  // of UcxAddresses
  std::string kind;
  UcxWorker::Settings settings;
  std::unique_ptr<UcxWorker> worker;  // null once closed
  // The worker's endpoints have error handling and can be closed by force. Not with UCX's shared
  // memory, old or new: there, asking for error handling makes ends that differ, over which UCX
  // fails. With shared memory only destroying the worker makes the requests of a dead peer return.
  bool forceable = true;
  bool direct = false;    // GPUs: UCX is given the GPU's memory
  bool draining = false;  // see UcxChannels::Drain
  bool drained() const { return copying == 0 && (forceable || receives_in_flight == 0); }
  // The earliest `drain_by` of its ops, or before it.
  absl::Time drain_at = absl::InfiniteFuture();

  // UcxOps and UcxStaging.
  size_t ops = 0;
  size_t copying = 0;  // messages of its ops that are being copied

  // UcxEndpoints.
  std::vector<void*> closing;  // requests of endpoints that are being closed
  std::vector<UcxLeaving> leaving;

  // UcxSends.
  absl::flat_hash_map<UcxLinkKey, std::unique_ptr<UcxWindow>> windows;
  std::deque<UcxWindow*> waiting;  // windows with sends
  size_t open_windows = 0;         // windows with requests

  // UcxReceives.
  size_t receives_in_flight = 0;
  // By tag: staged receives whose messages have not all come. UCX has no request for these: a
  // message gets memory when it arrives, so that messages that nobody has sent yet keep no memory
  // from others.
  absl::btree_map<uint64_t, UcxOp*> arriving;
  uint64_t looked_at = 0;  // the tag in `arriving` that was looked for last
  UcxStrays strays;
};

}  // namespace ferry
