// SPDX-License-Identifier: Apache-2.0
#include "transfer/ucx/ucx_transport.h"

#include <stdlib.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status.h"
#include "transfer/ucx/ucx_api.h"
#include "transfer/ucx/ucx_worker.h"

namespace ferry {
namespace {

constexpr char kNet[] = "net";
constexpr char kShm[] = "shm";
// Send requests that UCX has at once, per worker, and how many of them one op posts before the next has
// its turn. Only sends are bounded: receives are all posted, so that two ends which order their ops
// differently cannot wait for each other.
constexpr size_t kSendsAtOnce = 64;
constexpr size_t kSendsPerTurn = 16;
// Tags of cancelled receives to watch for, and how many of them one Poll looks for.
constexpr size_t kMostStrays = 65536;
constexpr size_t kStraysPerPoll = 64;
// How long taking down waits for requests to return before the worker is destroyed under them.
constexpr absl::Duration kTakeDownPatience = absl::Seconds(1);

// UCX's settings as pairs; what the operator has set in the environment stays.
UcxWorker::Settings WithDefaults(UcxWorker::Settings settings, const UcxWorker::Settings& tuning) {
  for (const auto& entry : tuning) {
    if (getenv(("UCX_" + entry.first).c_str()) == nullptr) settings.push_back(entry);
  }
  return settings;
}

UcxWorker::Settings NetSettings(const UcxOptions& options) {
  // TCP reads this much of a socket at once: measured up to twice the bandwidth of the default 64K.
  return WithDefaults({{"TLS", options.net_tls}, {"NET_DEVICES", options.net_devices}},
                      {{"TCP_RX_SEG_SIZE", "256K"}});
}

UcxWorker::Settings ShmSettings(const UcxOptions& options) {
  // The receiver reads: nobody but ourselves ever writes into our clients' memory, so that an op whose
  // requests have returned is really over, whatever the peer is doing.
  return WithDefaults({{"TLS", options.shm_tls}}, {{"RNDV_SCHEME", "get_zcopy"}});
}

}  // namespace

struct UcxTransport::Impl {
  struct Op;
  struct Link;
  struct Channel;
  using OpKey = std::pair<TransferId, uint32_t>;
  using LinkKey = std::pair<PeerId, GlobalDeviceId>;

  // One UCX request of an op; UCX's callbacks get its address.
  struct Slot {
    Op* op = nullptr;
    void* request = nullptr;  // while UCX has it and it can be cancelled
    bool returned = false;
  };

  struct Op {
    Impl* owner = nullptr;
    TransportOp op;
    Link* link = nullptr;  // null once it is stopped
    Channel* channel = nullptr;
    std::vector<Slot> slots;  // one per segment; never resized
    size_t posted = 0;        // segments handed to UCX, or skipped because they are empty
    size_t in_flight = 0;     // requests that have not returned
    size_t arrived = 0;       // receives: segments that need nothing more from the peer
    bool waiting = false;     // is in its channel's `sends`
    bool finished = false;    // is in `finished_ops`
    absl::Status status;      // the first error

    bool receive() const { return op.role == LaunchRole::kReceive; }
    bool complete() const { return in_flight == 0 && (!status.ok() || posted == slots.size()); }
  };

  // The way to one device of a peer. Its endpoint is opened by the first op that needs it.
  struct Link {
    Impl* owner = nullptr;
    LinkKey key;
    std::string address;
    Channel* channel = nullptr;
    ucp_ep_h endpoint = nullptr;
    ucs_status_t error = UCS_OK;  // of `endpoint`
  };

  struct Stray {
    uint64_t tag = 0;
    size_t messages = 0;  // that may still come
  };

  // A worker and what is on it.
  struct Channel {
    std::unique_ptr<UcxWorker> worker;  // null once closed
    // Endpoints can be closed by force. UCX's shared memory could not until late: then only destroying the
    // worker makes the requests of a dead peer return.
    bool forceable = true;
    size_t ops = 0;
    std::deque<Op*> sends;  // not all segments posted
    size_t sends_in_flight = 0;
    size_t receives_in_flight = 0;
    bool draining = false;  // see Drain
    std::vector<void*> closing;  // requests of endpoints that close
    std::deque<Stray> strays;
  };

  Impl(const UcxApi& api, Lane& lane, OpSink sink) : api(api), lane(lane), sink(std::move(sink)) {}

  const UcxApi& api;
  Lane& lane;
  const OpSink sink;
  std::vector<UcxAddressBlob> addresses;
  std::vector<std::unique_ptr<Channel>> channels;
  absl::flat_hash_map<LinkKey, std::unique_ptr<Link>> links;
  std::vector<std::unique_ptr<Link>> old_links;  // UCX may still call back on them
  absl::flat_hash_map<OpKey, std::unique_ptr<Op>> ops;
  std::vector<Op*> finished_ops;  // complete; answered by the next Poll
  std::vector<OpResult> results;  // of ops that never began
  std::vector<Op*> failed_ops;    // an error came by callback; stopped by the next Poll
  std::vector<Link*> failed_links;

  // --- Set up and take down.

  absl::Status AddChannel(const std::string& kind, const UcxWorker::Settings& settings) {
    auto worker = UcxWorker::Create(api, kind, settings);
    if (!worker.ok()) return worker.status();
    auto channel = std::make_unique<Channel>();
    channel->worker = *std::move(worker);
    channel->worker->SetHooks([this, c = channel.get()] { return AfterProgress(*c); },
                              [this, c = channel.get()] { return Busy(*c); });
    lane.AddPoller(channel->worker.get());
    addresses.push_back({kind, channel->worker->address()});
    channels.push_back(std::move(channel));
    return absl::OkStatus();
  }

  void TakeDown() {
    const absl::Status why = Error(absl::StatusCode::kAborted, Reason::kDraining,
                                   "ucx: the lane is being taken down");
    for (auto& [key, link] : links) FailLink(*link, why, /*queued=*/true);
    const auto outstanding = [&] {
      return std::any_of(channels.begin(), channels.end(), [](const auto& channel) {
        return channel->receives_in_flight > 0 ||
               (channel->forceable && (channel->ops > 0 || !channel->closing.empty()));
      });
    };
    const absl::Time patience = MonotonicNow() + kTakeDownPatience;
    do {
      for (const auto& channel : channels) {
        if (channel->worker != nullptr) channel->worker->Poll();
      }
    } while (outstanding() && MonotonicNow() < patience);
    for (const auto& channel : channels) {
      if (channel->worker == nullptr) continue;
      lane.RemovePoller(channel->worker.get());
      if (!channel->forceable && channel->receives_in_flight > 0) {
        // UCX ends the process if it is destroyed while it reads another process's memory. Nothing drives
        // it any more, so leaving it behind costs memory only.
        channel->worker.release();
      }
      channel->worker.reset();
    }
    // Without its worker a request that never returned touches nothing any more.
    for (auto& [key, op] : ops) results.push_back({key.first, key.second, std::move(op->status)});
    ops.clear();
    if (!results.empty()) sink(std::exchange(results, {}));
  }

  // --- Ops.

  absl::Status OpError(absl::StatusCode code, Reason reason, const TransportOp& op,
                       absl::string_view why) {
    const bool receive = op.role == LaunchRole::kReceive;
    return Error(code, reason,
                 absl::StrCat(receive ? "receiving " : "sending ", op.transfer.ToString(),
                              receive ? " from " : " to ", op.remote_device.ToString(), " of ",
                              op.peer.ToString(), " by ucx: ", why));
  }

  void Refuse(const TransportOp& op, Reason reason, absl::string_view why) {
    results.push_back({op.transfer, op.attempt,
                       OpError(absl::StatusCode::kUnavailable, reason, op, why)});
  }

  void Start(TransportOp op) {
    FERRY_CHECK(op.role != LaunchRole::kCopy);
    const auto found = links.find(LinkKey{op.peer, op.remote_device});
    if (found == links.end()) return Refuse(op, Reason::kPeerUnreachable, "it has no UCX address");
    Link& link = *found->second;
    if (link.channel == nullptr || link.channel->draining) {
      return Refuse(op, Reason::kRouteUnavailable, "the transports it names are not open here");
    }
    const absl::Status opened = OpenEndpoint(link);
    if (!opened.ok()) return Refuse(op, Reason::kRouteUnavailable, opened.message());
    const OpKey key{op.transfer, op.attempt};
    const auto [place, fresh] = ops.try_emplace(key, std::make_unique<Op>());
    FERRY_CHECK(fresh);
    Op& state = *place->second;
    state.owner = this;
    state.link = &link;
    state.channel = link.channel;
    state.slots.assign(op.segments.size(), Slot{&state});
    state.op = std::move(op);
    ++state.channel->ops;
    if (state.receive()) {
      while (state.status.ok() && state.posted < state.slots.size()) PostReceive(state);
      FinishIfComplete(state);
    } else if (state.slots.empty()) {
      FinishIfComplete(state);
    } else {
      state.waiting = true;
      state.channel->sends.push_back(&state);
    }
  }

  void FinishIfComplete(Op& op) {
    if (!op.complete() || std::exchange(op.finished, true)) return;
    finished_ops.push_back(&op);
  }

  ucp_request_param_t RequestParam(Slot& slot) {
    ucp_request_param_t param = {};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                         UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    param.user_data = &slot;
    param.memory_type = UCS_MEMORY_TYPE_HOST;
    return param;
  }

  void PostReceive(Op& op) {
    const Segment& segment = op.op.segments[op.posted];
    Slot& slot = op.slots[op.posted++];
    if (segment.size == 0) {
      ++op.arrived;
      return;
    }
    ucp_request_param_t param = RequestParam(slot);
    // A receive that completes at once would tell no length.
    param.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    param.cb.recv = [](void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                       void* user_data) {
      Slot& slot = *static_cast<Slot*>(user_data);
      --slot.op->channel->receives_in_flight;
      slot.op->owner->Received(slot, status, info->length);
      slot.op->owner->Returned(slot, request);
    };
    ++op.in_flight;
    ++op.channel->receives_in_flight;
    const ucs_status_ptr_t request = api.ucp_tag_recv_nbx(
        op.channel->worker->get(), segment.local, segment.size, op.op.tag, ~uint64_t{0}, &param);
    if (UCS_PTR_IS_PTR(request)) {
      if (!slot.returned) slot.request = request;
      return;
    }
    --op.in_flight;
    --op.channel->receives_in_flight;
    Received(slot, UCS_PTR_RAW_STATUS(request), 0);  // an error
  }

  void PostSend(Op& op) {
    const Segment& segment = op.op.segments[op.posted];
    Slot& slot = op.slots[op.posted++];
    if (segment.size == 0) return;
    ucp_request_param_t param = RequestParam(slot);
    param.cb.send = [](void* request, ucs_status_t status, void* user_data) {
      Slot& slot = *static_cast<Slot*>(user_data);
      --slot.op->channel->sends_in_flight;
      slot.op->owner->Sent(slot, status);
      slot.op->owner->Returned(slot, request);
    };
    ++op.in_flight;
    ++op.channel->sends_in_flight;
    const ucs_status_ptr_t request =
        api.ucp_tag_send_nbx(op.link->endpoint, segment.local, segment.size, op.op.tag, &param);
    if (UCS_PTR_IS_PTR(request)) {
      if (!slot.returned) slot.request = request;
      return;
    }
    --op.in_flight;
    --op.channel->sends_in_flight;
    Sent(slot, UCS_PTR_RAW_STATUS(request));
  }

  void Received(Slot& slot, ucs_status_t status, size_t length) {
    Op& op = *slot.op;
    const size_t size = op.op.segments[&slot - op.slots.data()].size;
    // What came, came: only a cancelled request's message may still be under way.
    if (status != UCS_ERR_CANCELED) ++op.arrived;
    if (status == UCS_OK && length == size) return;
    if (!op.status.ok()) return;
    if (status == UCS_OK || status == UCS_ERR_MESSAGE_TRUNCATED) {
      op.status = OpError(absl::StatusCode::kInternal, Reason::kProtocolError, op.op,
                          absl::StrCat("the peer sent ", length, " bytes where ", size,
                                       " were agreed"));
    } else {
      op.status = OpError(absl::StatusCode::kAborted, Reason::kCommAborted, op.op,
                          api.ucs_status_string(status));
    }
    failed_ops.push_back(&op);
  }

  void Sent(Slot& slot, ucs_status_t status) {
    Op& op = *slot.op;
    if (status == UCS_OK || !op.status.ok()) return;
    op.status = OpError(absl::StatusCode::kAborted, Reason::kCommAborted, op.op,
                        api.ucs_status_string(status));
    failed_ops.push_back(&op);
  }

  void Returned(Slot& slot, void* request) {
    slot.request = nullptr;
    slot.returned = true;
    --slot.op->in_flight;
    api.ucp_request_free(request);
    FinishIfComplete(*slot.op);
  }

  // Ends an op as far as we can: nothing more is posted, receives are cancelled. It is answered when all of
  // its requests have returned.
  void StopOp(Op& op, const absl::Status& why) {
    if (op.finished && op.status.ok()) return;  // all is there, only to be told
    if (op.status.ok()) op.status = why;
    if (std::exchange(op.link, nullptr) == nullptr) return;
    if (op.receive()) {
      for (size_t i = 0; i < op.slots.size(); ++i) {
        if (op.slots[i].request != nullptr) {
          api.ucp_request_cancel(op.channel->worker->get(), op.slots[i].request);
        }
      }
      // What the peer sends all the same would lie in the worker for ever.
      auto& strays = op.channel->strays;
      if (op.arrived < op.slots.size()) {
        strays.push_back({op.op.tag, op.slots.size() - op.arrived});
      }
      if (strays.size() > kMostStrays) strays.pop_front();
    } else if (std::exchange(op.waiting, false)) {
      auto& sends = op.channel->sends;
      sends.erase(std::find(sends.begin(), sends.end(), &op));
    }
    FinishIfComplete(op);
  }

  // --- Links.

  absl::Status OpenEndpoint(Link& link) {
    if (link.endpoint != nullptr) return absl::OkStatus();
    ucp_ep_params_t params = {};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                        UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t*>(link.address.data());
    params.err_mode =
        link.channel->forceable ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
    params.err_handler.cb = [](void* arg, ucp_ep_h endpoint, ucs_status_t status) {
      Link& link = *static_cast<Link*>(arg);
      if (link.endpoint != endpoint || link.error != UCS_OK) return;
      link.error = status;
      link.owner->failed_links.push_back(&link);
    };
    params.err_handler.arg = &link;
    link.error = UCS_OK;
    const ucp_worker_h worker = link.channel->worker->get();
    ucs_status_t status = api.ucp_ep_create(worker, &params, &link.endpoint);
    if (status == UCS_ERR_UNREACHABLE && link.channel->forceable &&
        link.channel->worker->kind() == kShm) {
      params.err_mode = UCP_ERR_HANDLING_MODE_NONE;
      status = api.ucp_ep_create(worker, &params, &link.endpoint);
      if (status == UCS_OK) link.channel->forceable = false;
    }
    if (status == UCS_OK) return absl::OkStatus();
    link.endpoint = nullptr;
    return absl::UnavailableError(
        absl::StrCat("opening an endpoint: ", api.ucs_status_string(status)));
  }

  // Ends what UCX has of this link, and what it is yet to get (`queued`), and closes the endpoint by force:
  // nothing else makes the requests of a dead peer return.
  void FailLink(Link& link, const absl::Status& why, bool queued) {
    std::vector<Op*> stopped;
    for (auto& [key, op] : ops) {
      if (op->link != &link || !(queued || op->receive() || op->posted > 0)) continue;
      stopped.push_back(op.get());
    }
    if (!stopped.empty()) {
      const auto goes = [&](const Op* op) {
        return op->link == &link && (queued || op->posted > 0);
      };
      auto& sends = link.channel->sends;
      sends.erase(std::remove_if(sends.begin(), sends.end(), goes), sends.end());
      for (Op* op : stopped) op->waiting = false;  // in one pass, not one by one in StopOp
    }
    const absl::Status because = Annotate(
        why, absl::StrCat("with ", link.key.second.ToString(), " of ", link.key.first.ToString()));
    for (Op* op : stopped) StopOp(*op, because);
    failed_links.erase(std::remove(failed_links.begin(), failed_links.end(), &link),
                       failed_links.end());
    link.error = UCS_OK;
    if (link.endpoint == nullptr) return;
    if (!link.channel->forceable) {
      const bool stuck = std::any_of(stopped.begin(), stopped.end(),
                                     [](const Op* op) { return !op->receive() && op->in_flight > 0; });
      if (stuck && !link.channel->draining) Drain(*link.channel);
      link.endpoint = nullptr;  // stays open in UCX: closing it without force would wait for the peer
      return;
    }
    const ucp_ep_h endpoint = std::exchange(link.endpoint, nullptr);
    ucp_request_param_t param = {};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    const ucs_status_ptr_t request = api.ucp_ep_close_nbx(endpoint, &param);
    if (UCS_PTR_IS_PTR(request)) link.channel->closing.push_back(request);
  }

  // Takes a channel down whose sends cannot be taken back otherwise: its peers are refused from here on, so
  // that their transfers take another route. What UCX is reading for a receive it has to finish first.
  void Drain(Channel& channel) {
    FERRY_LOG(warn, "ucx.closed", "'{}' is off from here on: a lost peer holds sends of ours",
              channel.worker->kind());
    channel.draining = true;
    const absl::Status why =
        Error(absl::StatusCode::kAborted, Reason::kCommAborted,
              "ucx: shared memory was closed because a lost peer would not let go of its transfers");
    std::vector<Op*> stopped;
    for (auto& [key, op] : ops) {
      if (op->channel == &channel) stopped.push_back(op.get());
    }
    channel.sends.clear();
    for (Op* op : stopped) {
      op->waiting = false;
      StopOp(*op, why);
    }
    PostFinishDraining(channel);
  }

  // As a task: a worker must not be destroyed from within its own progress.
  void PostFinishDraining(Channel& channel) {
    lane.Post([this, &channel] { FinishDraining(channel); });
  }

  void FinishDraining(Channel& channel) {
    if (channel.worker == nullptr || channel.receives_in_flight > 0) return;
    lane.RemovePoller(channel.worker.get());
    channel.worker.reset();
    channel.closing.clear();
    channel.strays.clear();
    for (auto& [key, op] : ops) {
      if (op->channel != &channel) continue;
      op->in_flight = 0;
      FinishIfComplete(*op);
    }
    Answer();
  }

  void DropLink(absl::flat_hash_map<LinkKey, std::unique_ptr<Link>>::iterator link,
                const absl::Status& why) {
    FailLink(*link->second, why, /*queued=*/true);
    if (link->second->channel != nullptr) old_links.push_back(std::move(link->second));
    links.erase(link);
  }

  // --- Progress.

  bool Busy(const Channel& channel) const {
    return channel.ops > 0 || !channel.closing.empty() || !results.empty() ||
           !finished_ops.empty() || !failed_ops.empty() || !failed_links.empty();
  }

  // After progress of the channel's worker. Here and not in UCX's callbacks, which must not call UCX for
  // much, and not in Launch or Abort, which must not answer.
  bool AfterProgress(Channel& channel) {
    bool any = false;
    for (Link* link : std::exchange(failed_links, {})) {
      any = true;
      FailLink(*link,
               Error(absl::StatusCode::kAborted, Reason::kCommAborted,
                     absl::StrCat("ucx: ", api.ucs_status_string(link->error))),
               /*queued=*/false);
    }
    for (Op* op : std::exchange(failed_ops, {})) StopOp(*op, op->status);
    any |= PumpSends(channel);
    for (size_t i = 0; i < channel.closing.size();) {
      if (api.ucp_request_check_status(channel.closing[i]) == UCS_INPROGRESS) {
        ++i;
        continue;
      }
      api.ucp_request_free(channel.closing[i]);
      channel.closing.erase(channel.closing.begin() + i);
      any = true;
    }
    if (channel.closing.empty()) {
      old_links.erase(std::remove_if(old_links.begin(), old_links.end(),
                                     [&](const auto& link) { return link->channel == &channel; }),
                      old_links.end());
    }
    DropStrays(channel);
    if (channel.draining && channel.receives_in_flight == 0) PostFinishDraining(channel);
    return Answer() || any;
  }

  bool PumpSends(Channel& channel) {
    bool any = false;
    while (!channel.sends.empty() && channel.sends_in_flight < kSendsAtOnce) {
      Op& op = *channel.sends.front();
      channel.sends.pop_front();
      op.waiting = false;
      any = true;
      const absl::Status opened = OpenEndpoint(*op.link);
      if (!opened.ok()) {
        op.status = OpError(absl::StatusCode::kUnavailable,
                            op.posted == 0 ? Reason::kRouteUnavailable : Reason::kCommAborted, op.op,
                            opened.message());
      }
      for (size_t turn = 0; turn < kSendsPerTurn && op.status.ok() && op.posted < op.slots.size() &&
                            channel.sends_in_flight < kSendsAtOnce;
           ++turn) {
        PostSend(op);
      }
      if (op.status.ok() && op.posted < op.slots.size()) {
        op.waiting = true;
        channel.sends.push_back(&op);
      }
      FinishIfComplete(op);
    }
    return any;
  }

  void DropStrays(Channel& channel) {
    const size_t count = std::min(channel.strays.size(), kStraysPerPoll);
    for (size_t i = 0; i < count; ++i) {
      Stray stray = channel.strays.front();
      channel.strays.pop_front();
      while (stray.messages > 0 && DropMessage(channel, stray.tag)) --stray.messages;
      if (stray.messages > 0) channel.strays.push_back(stray);
    }
  }

  bool DropMessage(Channel& channel, uint64_t tag) {
    ucp_tag_recv_info_t info = {};
    const ucp_tag_message_h message =
        api.ucp_tag_probe_nb(channel.worker->get(), tag, ~uint64_t{0}, /*remove=*/1, &info);
    if (message == nullptr) return false;
    // A receive of no bytes: UCX drops the message, and tells a sender that waits to be done.
    static std::byte nowhere;
    ucp_request_param_t param = {};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.user_data = this;
    param.cb.recv = [](void* request, ucs_status_t, const ucp_tag_recv_info_t*, void* user_data) {
      static_cast<Impl*>(user_data)->api.ucp_request_free(request);
    };
    api.ucp_tag_msg_recv_nbx(channel.worker->get(), &nowhere, 0, message, &param);
    return true;
  }

  bool Answer() {
    for (Op* op : std::exchange(finished_ops, {})) {
      failed_ops.erase(std::remove(failed_ops.begin(), failed_ops.end(), op), failed_ops.end());
      --op->channel->ops;
      const OpKey key{op->op.transfer, op->op.attempt};
      results.push_back({key.first, key.second, std::move(op->status)});
      ops.erase(key);
    }
    if (results.empty()) return false;
    sink(std::exchange(results, {}));
    return true;
  }
};

absl::StatusOr<std::unique_ptr<UcxTransport>> UcxTransport::Create(const UcxApi& api,
                                                                   UcxOptions options, Lane& lane,
                                                                   OpSink sink) {
  auto impl = std::make_unique<Impl>(api, lane, std::move(sink));
  absl::Status last = Error(absl::StatusCode::kUnavailable, Reason::kRouteUnavailable,
                            "opening UCX: no transports are configured");
  lane.RunAndWait([&] {
    const auto add = [&](const std::string& kind, const UcxWorker::Settings& settings) {
      const absl::Status added = impl->AddChannel(kind, settings);
      if (added.ok()) return;
      FERRY_LOG(warn, "ucx.unavailable", "{}", std::string(added.message()));
      last = added;
    };
    if (!options.net_tls.empty()) add(kNet, NetSettings(options));
    if (!options.shm_tls.empty()) add(kShm, ShmSettings(options));
  });
  if (impl->channels.empty()) return last;
  return std::unique_ptr<UcxTransport>(new UcxTransport(std::move(impl)));
}

UcxTransport::UcxTransport(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

UcxTransport::~UcxTransport() {
  impl_->lane.RunAndWait([this] { impl_->TakeDown(); });
  impl_->lane.RunAndWait([] {});  // what was posted for a draining channel
}

const std::vector<UcxAddressBlob>& UcxTransport::addresses() const { return impl_->addresses; }

void UcxTransport::AddPeer(PeerId peer, GlobalDeviceId device, const UcxAddressBlob& address) {
  FERRY_CHECK(impl_->lane.IsCurrent());
  const Impl::LinkKey key{peer, device};
  const auto old = impl_->links.find(key);
  if (old != impl_->links.end()) {
    impl_->DropLink(old, Error(absl::StatusCode::kAborted, Reason::kCommAborted,
                               "the peer's address has changed"));
  }
  auto link = std::make_unique<Impl::Link>();
  link->owner = impl_.get();
  link->key = key;
  link->address = address.address;
  for (const auto& channel : impl_->channels) {
    if (channel->draining || channel->worker->kind() != address.kind) continue;
    link->channel = channel.get();
  }
  impl_->links.emplace(key, std::move(link));
}

void UcxTransport::RemovePeer(PeerId peer, const absl::Status& why) {
  FERRY_CHECK(impl_->lane.IsCurrent());
  for (auto link = impl_->links.begin(); link != impl_->links.end();) {
    const auto next = std::next(link);
    if (link->first.first == peer) impl_->DropLink(link, why);
    link = next;
  }
}

void UcxTransport::Launch(std::vector<TransportOp> ops) {
  FERRY_CHECK(impl_->lane.IsCurrent());
  for (TransportOp& op : ops) impl_->Start(std::move(op));
}

void UcxTransport::Abort(TransferId transfer, uint32_t attempt, const absl::Status& why) {
  FERRY_CHECK(impl_->lane.IsCurrent());
  const auto found = impl_->ops.find(Impl::OpKey{transfer, attempt});
  if (found == impl_->ops.end() || found->second->link == nullptr) return;
  Impl::Op& op = *found->second;
  if (op.finished) return;
  Impl::Link& link = *op.link;
  const bool posted_send = !op.receive() && op.posted > 0;
  impl_->StopOp(op, why);
  if (!posted_send || !link.channel->forceable) return;  // then it ends when the peer has taken it
  impl_->FailLink(link,
                  Error(absl::StatusCode::kAborted, Reason::kCommAborted,
                        "ucx: the connection was closed to abort another transfer"),
                  /*queued=*/false);
}

}  // namespace ferry
