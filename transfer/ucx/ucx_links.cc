// SPDX-License-Identifier: Apache-2.0
// Endpoints: opened by the first op that needs one, closed by force when a lost peer does not let
// go of its requests.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status.h"
#include "transfer/ucx/ucx_state.h"

namespace ferry {
namespace {

// By which devices a worker of these settings goes, for people.
std::string DevicesOf(const UcxWorker::Settings& settings) {
  for (const auto& [name, value] : settings) {
    if (name == "NET_DEVICES") return value;
  }
  return UcxDevices("");
}

// Progress that closing a connection takes.
constexpr int kRoundsToClose = 8;
// How often to ask whether requests have returned. Well below the time after which a lost link is
// dialled again: until they have, nobody is told of shared memory's address.
constexpr absl::Duration kLookAgain = absl::Milliseconds(2);

}  // namespace

absl::Status UcxTransport::Impl::OpenEndpoint(DeviceLink& link) {
  if (link.endpoint != nullptr) return absl::OkStatus();
  ucp_ep_params_t params = {};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(link.address.data());
  params.err_mode =
      link.channel->forceable ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
  params.err_handler.cb = [](void* arg, ucp_ep_h endpoint, ucs_status_t status) {
    DeviceLink& link = *static_cast<DeviceLink*>(arg);
    if (link.endpoint != endpoint || link.error != UCS_OK) return;
    link.error = status;
    link.owner->failed_links.push_back(&link);
  };
  params.err_handler.arg = &link;
  link.error = UCS_OK;
  const ucp_worker_h worker = link.channel->worker->get();
  const ucs_status_t status = api.ucp_ep_create(worker, &params, &link.endpoint);
  if (status == UCS_OK) return absl::OkStatus();
  link.endpoint = nullptr;
  return absl::UnavailableError(absl::StrCat(
      "opening an endpoint: ", api.ucs_status_string(status),
      link.channel->kind == kUcxNet ? absl::StrCat(" (by ", DevicesOf(link.channel->settings),
                                                   ": UCX_NET_DEVICES, transfer.ucx.net_devices)")
                                    : ""));
}

void UcxTransport::Impl::StopOps(DeviceLink& link, const absl::Status& why, bool queued) {
  std::vector<Op*> stopped;
  for (auto& [key, op] : ops) {
    if (op->link != &link || !(queued || op->receive() || op->posted > 0)) continue;
    stopped.push_back(op.get());
  }
  const absl::Status because = Annotate(
      why, absl::StrCat("with ", link.key.second.ToString(), " of ", link.key.first.ToString()));
  for (Op* op : stopped) StopOp(*op, because);
}

bool UcxTransport::Impl::HoldsRequests(const DeviceLink& link, const Op& op) const {
  return op.link == nullptr && op.in_flight > 0 && op.channel == link.channel &&
         (link.channel->forceable || !op.receive()) &&
         LinkKey{op.op.peer, op.op.remote_device} == link.key;
}

absl::Time UcxTransport::Impl::LeaveBy(const DeviceLink& link) const {
  absl::Time first = absl::InfiniteFuture();
  for (const auto& [key, op] : ops) {
    if (HoldsRequests(link, *op)) first = std::min(first, op->leave_by);
  }
  return first;
}

void UcxTransport::Impl::SetLeaveBy(const DeviceLink& link, absl::Time time) {
  for (const auto& [key, op] : ops) {
    if (HoldsRequests(link, *op) && op->leave_by < absl::InfiniteFuture()) op->leave_by = time;
  }
}

void UcxTransport::Impl::Watch(DeviceLink& link) {
  Channel& channel = *link.channel;
  if (std::any_of(channel.leaving.begin(), channel.leaving.end(),
                  [&](const Leaving& entry) { return entry.link == &link; })) {
    return;
  }
  const absl::Time at = LeaveBy(link);
  if (at == absl::InfiniteFuture()) return;
  channel.leaving.push_back({std::min(at, MonotonicNow() + kLookAgain), &link});
  if (!channel.forceable) SetClosed(channel, true);
}

void UcxTransport::Impl::SetClosed(const Channel& channel, bool is_closed) {
  MutexLock lock(addresses_mutex);
  for (size_t i = 0; i < channels.size(); ++i) {
    if (channels[i].get() == &channel) {
      addresses[i].address = is_closed ? "" : channel.worker->address();
    }
  }
}

bool UcxTransport::Impl::CloseOverdue(Channel& channel) {
  if (channel.leaving.empty()) return false;
  const absl::Time now = MonotonicNow();
  std::vector<DeviceLink*> due;
  std::erase_if(channel.leaving, [&](const Leaving& entry) {
    if (entry.at > now) return false;
    due.push_back(entry.link);
    return true;
  });
  bool any = false;
  for (DeviceLink* link : due) {
    if (LeaveBy(*link) > now) {
      Watch(*link);
      continue;
    }
    any = true;
    FailLink(*link,
             Error(absl::StatusCode::kAborted, Reason::kCommAborted,
                   "ucx: the connection was closed to end another transfer"),
             /*queued=*/false);
    CountClosing(*link);
  }
  if (!channel.forceable && channel.leaving.empty() && !channel.draining) {
    SetClosed(channel, false);
  }
  return any;
}

void UcxTransport::Impl::DrainOverdue(Channel& channel) {
  if (channel.drain_at == absl::InfiniteFuture()) return;
  const absl::Time now = MonotonicNow();
  if (channel.drain_at > now) return;
  channel.drain_at = absl::InfiniteFuture();
  for (const auto& [key, op] : ops) {
    if (op->channel == &channel && op->in_flight > 0) {
      channel.drain_at = std::min(channel.drain_at, op->drain_by);
    }
  }
  if (channel.drain_at <= now && !channel.draining) Drain(channel);
}

void UcxTransport::Impl::CloseEndpoint(DeviceLink& link) {
  failed_links.erase(std::remove(failed_links.begin(), failed_links.end(), &link),
                     failed_links.end());
  link.error = UCS_OK;
  if (link.channel != nullptr && link.channel->forceable) {
    const absl::Time drain_by = MonotonicNow() + kTimeToLeave;
    for (const auto& [key, op] : ops) {
      if (!HoldsRequests(link, *op) || op->leave_by == absl::InfiniteFuture()) continue;
      // What is not back after this is not the next endpoint's fault.
      op->leave_by = absl::InfiniteFuture();
      op->drain_by = drain_by;
      link.channel->drain_at = std::min(link.channel->drain_at, drain_by);
    }
  }
  if (link.endpoint == nullptr) return;
  const ucp_ep_h endpoint = std::exchange(link.endpoint, nullptr);
  if (!link.channel->forceable) {
    // The endpoint stays open in UCX: closing it without force would wait for the peer.
    if (LeaveBy(link) < absl::InfiniteFuture() && !link.channel->draining) Drain(*link.channel);
    return;
  }
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t request = api.ucp_ep_close_nbx(endpoint, &param);
  if (UCS_PTR_IS_PTR(request)) link.channel->closing.push_back(request);
  // UCX closes the connection as it progresses, and the lane may be about to sleep.
  for (int i = 0; i < kRoundsToClose; ++i) link.channel->worker->Progress();
}

void UcxTransport::Impl::FailLink(DeviceLink& link, const absl::Status& why, bool queued) {
  StopOps(link, why, queued);
  CloseEndpoint(link);
}

void UcxTransport::Impl::CountClosing(const DeviceLink& link) {
  if (!link.channel->forceable) return;
  {
    MutexLock lock(addresses_mutex);
    ++closings[link.key];
  }
  if (moved) moved(link.key.first);
}

bool UcxTransport::Impl::SetClosings(const LinkKey& key, uint64_t theirs) {
  MutexLock lock(addresses_mutex);
  if (theirs == 0) return false;
  uint64_t& ours = closings[key];
  return std::exchange(ours, std::max(ours, theirs)) < theirs;
}

void UcxTransport::Impl::Drain(Channel& channel) {
  FERRY_LOG(warn, "ucx.closed", "'{}' {}: a lost peer holds requests of ours", channel.kind,
            channel.forceable ? "begins anew" : "is off from here on");
  channel.draining = true;
  SetClosed(channel, true);
  const absl::Status why =
      Error(absl::StatusCode::kAborted, Reason::kCommAborted,
            absl::StrCat("ucx: '", channel.kind,
                         "' was closed because a lost peer would not let go of its transfers"));
  std::vector<Op*> stopped;
  for (auto& [key, op] : ops) {
    if (op->channel == &channel) stopped.push_back(op.get());
  }
  channel.waiting.clear();
  for (auto& [key, window] : channel.windows) {
    window->sends.Clear();
    window->waiting = false;
  }
  for (Op* op : stopped) StopOp(*op, why);
  PostFinishDraining(channel);
}

void UcxTransport::Impl::PostFinishDraining(Channel& channel) {
  lane.Post([this, &channel] { FinishDraining(channel); });
}

void UcxTransport::Impl::FinishDraining(Channel& channel) {
  if (channel.worker == nullptr || !channel.draining || !channel.drained()) return;
  lane.RemovePoller(channel.worker.get());
  channel.worker.reset();
  channel.closing.clear();
  channel.strays.clear();
  channel.leaving.clear();
  for (auto& [key, op] : ops) {
    if (op->channel != &channel) continue;
    op->in_flight = 0;
    for (Message& message : op->messages) Unstage(message);
    FinishIfComplete(*op);
  }
  if (channel.forceable) Reopen(channel);
  Answer();
}

void UcxTransport::Impl::Reopen(Channel& channel) {
  channel.windows.clear();
  channel.open_windows = channel.receives_in_flight = 0;
  const auto forget = [&](DeviceLink& link) {
    if (link.channel != &channel) return;
    link.endpoint = nullptr;
    link.error = UCS_OK;
    std::erase(failed_links, &link);
  };
  for (auto& [key, link] : links) forget(*link);
  for (const auto& link : old_links) forget(*link);
  if (const absl::Status opened = OpenWorker(channel); !opened.ok()) {
    FERRY_LOG(warn, "ucx.unavailable", "{}", std::string(opened.message()));
    return;
  }
  channel.draining = false;
  SetClosed(channel, false);
  if (moved) moved(std::nullopt);
}

void UcxTransport::Impl::DropLink(
    absl::flat_hash_map<LinkKey, std::unique_ptr<DeviceLink>>::iterator link,
    const absl::Status& why) {
  FailLink(*link->second, why, /*queued=*/true);
  if (Channel* const channel = link->second->channel; channel != nullptr) {
    std::erase_if(channel->leaving,
                  [&](const Leaving& entry) { return entry.link == link->second.get(); });
    old_links.push_back(std::move(link->second));
  }
  links.erase(link);
}

}  // namespace ferry
