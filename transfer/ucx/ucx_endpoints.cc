// SPDX-License-Identifier: Apache-2.0
#include "transfer/ucx/ucx_endpoints.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"

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

void UcxEndpoints::AddPeer(PeerId peer, GlobalDeviceId device, const UcxAddressBlob& address,
                           uint64_t closings) {
  home_.Check();
  const UcxLinkKey key{peer, device};
  const bool closed = addresses_.CatchUp(key, closings);
  const auto old = links_.find(key);
  if (old != links_.end()) {
    UcxDeviceLink& link = *old->second;
    if (link.channel != nullptr && (link.channel->forceable || !link.channel->draining) &&
        link.address == address.address) {
      if (closed) {
        Fail(link,
             Error(absl::StatusCode::kAborted, Reason::kCommAborted,
                   "ucx: the peer has closed the connection"),
             /*queued=*/false);
      }
      link.lost = absl::OkStatus();
      return;
    }
    Drop(old,
         Error(absl::StatusCode::kAborted, Reason::kCommAborted, "the peer's address has changed"));
  }
  auto link = std::make_unique<UcxDeviceLink>();
  link->owner = this;
  link->key = key;
  link->address = address.address;
  link->channel = channels_.Find(address.kind);
  links_.emplace(key, std::move(link));
}

void UcxEndpoints::RemovePeer(PeerId peer, const absl::Status& why) {
  home_.Check();
  for (auto& [key, owned] : links_) {
    if (key.first != peer) continue;
    UcxDeviceLink* const link = owned.get();
    link->lost = why;
    ops_.StopAll(*link, why, /*queued=*/true);
    if (link->channel == nullptr) continue;
    const absl::Time leave_by = MonotonicNow() + kUcxTimeToLeave;
    ops_.ForEach([&](UcxOp& op) {  // those that were aborted before, too
      if (HoldsRequests(*link, op) && op.leave_by < absl::InfiniteFuture()) op.leave_by = leave_by;
    });
    Watch(*link);
  }
}

UcxDeviceLink* UcxEndpoints::Find(PeerId peer, GlobalDeviceId device) const {
  home_.Check();
  const auto found = links_.find(UcxLinkKey{peer, device});
  return found == links_.end() ? nullptr : found->second.get();
}

absl::Status UcxEndpoints::Open(UcxDeviceLink& link) {
  home_.Check();
  if (link.endpoint != nullptr) return absl::OkStatus();
  ucp_ep_params_t params = {};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(link.address.data());
  params.err_mode =
      link.channel->forceable ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
  params.err_handler.cb = [](void* arg, ucp_ep_h endpoint, ucs_status_t status) {
    UcxDeviceLink& link = *static_cast<UcxDeviceLink*>(arg);
    if (link.endpoint != endpoint || link.error != UCS_OK) return;
    link.error = status;
    link.owner->failed_.push_back(&link);
  };
  params.err_handler.arg = &link;
  link.error = UCS_OK;
  const ucp_worker_h worker = link.channel->worker->get();
  const ucs_status_t status = api_.ucp_ep_create(worker, &params, &link.endpoint);
  if (status == UCS_OK) return absl::OkStatus();
  link.endpoint = nullptr;
  return absl::UnavailableError(absl::StrCat(
      "opening an endpoint: ", api_.ucs_status_string(status),
      link.channel->kind == kUcxNet ? absl::StrCat(" (by ", DevicesOf(link.channel->settings),
                                                   ": UCX_NET_DEVICES, transfer.ucx.net_devices)")
                                    : ""));
}

bool UcxEndpoints::HoldsRequests(const UcxDeviceLink& link, const UcxOp& op) {
  return op.link == nullptr && op.in_flight > 0 && op.channel == link.channel &&
         (link.channel->forceable || !op.receive()) &&
         UcxLinkKey{op.op.peer, op.op.remote_device} == link.key;
}

absl::Time UcxEndpoints::LeaveBy(const UcxDeviceLink& link) const {
  absl::Time first = absl::InfiniteFuture();
  ops_.ForEach([&](const UcxOp& op) {
    if (HoldsRequests(link, op)) first = std::min(first, op.leave_by);
  });
  return first;
}

void UcxEndpoints::Watch(UcxDeviceLink& link) {
  home_.Check();
  UcxChannel& channel = *link.channel;
  if (std::any_of(channel.leaving.begin(), channel.leaving.end(),
                  [&](const UcxLeaving& entry) { return entry.link == &link; })) {
    return;
  }
  const absl::Time at = LeaveBy(link);
  if (at == absl::InfiniteFuture()) return;
  channel.leaving.push_back({std::min(at, MonotonicNow() + kLookAgain), &link});
  if (!channel.forceable) channels_.SetClosed(channel, true);
}

bool UcxEndpoints::CloseOverdue(UcxChannel& channel) {
  home_.Check();
  if (channel.leaving.empty()) return false;
  const absl::Time now = MonotonicNow();
  std::vector<UcxDeviceLink*> due;
  std::erase_if(channel.leaving, [&](const UcxLeaving& entry) {
    if (entry.at > now) return false;
    due.push_back(entry.link);
    return true;
  });
  bool any = false;
  for (UcxDeviceLink* const link : due) {
    if (LeaveBy(*link) > now) {
      Watch(*link);
      continue;
    }
    any = true;
    Fail(*link,
         Error(absl::StatusCode::kAborted, Reason::kCommAborted,
               "ucx: the connection was closed to end another transfer"),
         /*queued=*/false);
    CountClosing(*link);
  }
  OpenAddress(channel);
  return any;
}

void UcxEndpoints::OpenAddress(UcxChannel& channel) {
  if (channel.forceable || channel.draining || !channel.leaving.empty()) return;
  channels_.SetClosed(channel, false);
}

bool UcxEndpoints::CloseFailed() {
  home_.Check();
  bool any = false;
  for (UcxDeviceLink* const link : std::exchange(failed_, {})) {
    any = true;
    Fail(*link,
         Error(absl::StatusCode::kAborted, Reason::kCommAborted,
               absl::StrCat("ucx: ", api_.ucs_status_string(link->error))),
         /*queued=*/false);
    CountClosing(*link);
  }
  return any;
}

bool UcxEndpoints::EndClosed(UcxChannel& channel) {
  home_.Check();
  bool any = false;
  for (size_t i = 0; i < channel.closing.size();) {
    if (api_.ucp_request_check_status(channel.closing[i]) == UCS_INPROGRESS) {
      ++i;
      continue;
    }
    api_.ucp_request_free(channel.closing[i]);
    channel.closing.erase(channel.closing.begin() + i);
    any = true;
  }
  if (channel.closing.empty()) {
    std::erase_if(old_links_, [&](const auto& link) { return link->channel == &channel; });
  }
  return any;
}

void UcxEndpoints::Close(UcxDeviceLink& link) {
  std::erase(failed_, &link);
  link.error = UCS_OK;
  if (link.channel != nullptr && link.channel->forceable) {
    const absl::Time drain_by = MonotonicNow() + kUcxTimeToLeave;
    ops_.ForEach([&](UcxOp& op) {
      if (!HoldsRequests(link, op) || op.leave_by == absl::InfiniteFuture()) return;
      // What is not back after this is not the next endpoint's fault.
      op.leave_by = absl::InfiniteFuture();
      op.drain_by = drain_by;
      link.channel->drain_at = std::min(link.channel->drain_at, drain_by);
    });
  }
  if (link.endpoint == nullptr) return;
  const ucp_ep_h endpoint = std::exchange(link.endpoint, nullptr);
  if (!link.channel->forceable) {
    // The endpoint stays open in UCX: closing it without force would wait for the peer.
    if (LeaveBy(link) < absl::InfiniteFuture() && !link.channel->draining) {
      channels_.Drain(*link.channel);
    }
    return;
  }
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t request = api_.ucp_ep_close_nbx(endpoint, &param);
  if (UCS_PTR_IS_PTR(request)) link.channel->closing.push_back(request);
  // UCX closes the connection as it progresses, and the lane may be about to sleep.
  for (int i = 0; i < kRoundsToClose; ++i) link.channel->worker->Progress();
}

void UcxEndpoints::Fail(UcxDeviceLink& link, const absl::Status& why, bool queued) {
  ops_.StopAll(link, why, queued);
  Close(link);
}

void UcxEndpoints::FailAll(const absl::Status& why) {
  home_.Check();
  for (auto& [key, link] : links_) Fail(*link, why, /*queued=*/true);
}

void UcxEndpoints::CountClosing(const UcxDeviceLink& link) {
  if (!link.channel->forceable) return;
  addresses_.CountClosing(link.key);
  if (moved_) moved_(link.key.first);
}

void UcxEndpoints::Forget(UcxChannel& channel) {
  home_.Check();
  const auto forget = [&](UcxDeviceLink& link) {
    if (link.channel != &channel) return;
    link.endpoint = nullptr;
    link.error = UCS_OK;
    std::erase(failed_, &link);
  };
  for (auto& [key, link] : links_) forget(*link);
  for (const auto& link : old_links_) forget(*link);
}

void UcxEndpoints::Drop(Links::iterator link, const absl::Status& why) {
  Fail(*link->second, why, /*queued=*/true);
  if (UcxChannel* const channel = link->second->channel; channel != nullptr) {
    const auto left = std::erase_if(channel->leaving, [&](const UcxLeaving& entry) {
      return entry.link == link->second.get();
    });
    if (left > 0) OpenAddress(*channel);
    old_links_.push_back(std::move(link->second));
  }
  links_.erase(link);
}

}  // namespace ferry
