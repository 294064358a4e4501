// SPDX-License-Identifier: Apache-2.0
// Whether messages come through at all: each end sends one and answers the other's, so that who has
// the answer knows it of both directions.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "transfer/ucx/ucx_state.h"

namespace ferry {
namespace {

// Large enough to go by rendezvous, as large transfers do: it takes more than small messages do,
// and may not reach though they do.
constexpr size_t kProbeBytes = size_t{64} << 10;

absl::Status ProbeError(absl::string_view why) {
  return Error(absl::StatusCode::kUnavailable, Reason::kRouteUnavailable,
               absl::StrCat("trying whether UCX reaches the peer: ", why));
}

}  // namespace

void UcxTransport::Probe(PeerId peer, GlobalDeviceId device, uint64_t tag,
                         std::function<void(const absl::Status&)> done) {
  FERRY_CHECK(impl_->lane.IsCurrent() && (tag & kProbeTag) != 0 && (tag & 1) == 0);
  const Impl::LinkKey key{peer, device};
  const auto found = impl_->links.find(key);
  if (found == impl_->links.end() || found->second->channel == nullptr ||
      found->second->channel->draining) {
    return done(ProbeError("the transports it names are not open here"));
  }
  const bool stuck = std::any_of(impl_->probes.begin(), impl_->probes.end(),
                                 [&](const auto& probe) { return probe->key == key; });
  if (stuck) return done(ProbeError("an earlier message has not come through"));
  Impl::Link& link = *found->second;
  if (const absl::Status opened = impl_->OpenEndpoint(link); !opened.ok()) {
    return done(ProbeError(opened.message()));
  }
  auto& probe = *impl_->probes.emplace_back(std::make_unique<Impl::Probe>());
  probe.owner = impl_.get();
  probe.channel = link.channel;
  probe.key = key;
  probe.tag = tag;
  probe.done = std::move(done);
  probe.bytes.resize(kProbeBytes);
  for (size_t round : {0, 1}) impl_->ReceiveProbe(probe, round);
  impl_->SendProbe(probe);
}

void UcxTransport::Impl::ReceiveProbe(Probe& probe, size_t round) {
  Probe::Receive& receive = probe.receives[round];
  receive.probe = &probe;
  receive.bytes.resize(kProbeBytes);
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                       UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.user_data = &receive;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  param.cb.recv = [](void* request, ucs_status_t status, const ucp_tag_recv_info_t*, void* data) {
    Probe::Receive& receive = *static_cast<Probe::Receive*>(data);
    receive.request = nullptr;
    receive.returned = true;
    --receive.probe->requests;
    --receive.probe->channel->receives_in_flight;
    receive.came = status == UCS_OK;
    receive.probe->owner->api.ucp_request_free(request);
  };
  ++probe.requests;
  ++probe.channel->receives_in_flight;
  const ucs_status_ptr_t request =
      api.ucp_tag_recv_nbx(probe.channel->worker->get(), receive.bytes.data(), receive.bytes.size(),
                           probe.tag + round, ~uint64_t{0}, &param);
  if (UCS_PTR_IS_PTR(request)) {
    if (!receive.returned) receive.request = request;
    return;
  }
  --probe.requests;
  --probe.channel->receives_in_flight;
  probe.error = UCS_PTR_RAW_STATUS(request);
}

void UcxTransport::Impl::SendProbe(Probe& probe) {
  Link& link = *links.find(probe.key)->second;
  const uint64_t tag = probe.tag + probe.sent++;
  ucp_request_param_t param = {};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.user_data = &probe;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  param.cb.send = [](void* request, ucs_status_t status, void* data) {
    Probe& probe = *static_cast<Probe*>(data);
    --probe.requests;
    --probe.sending;
    if (status != UCS_OK) probe.error = status;
    probe.owner->api.ucp_request_free(request);
  };
  ++probe.requests;
  ++probe.sending;
  const ucs_status_ptr_t request =
      api.ucp_tag_send_nbx(link.endpoint, probe.bytes.data(), probe.bytes.size(), tag, &param);
  if (UCS_PTR_IS_PTR(request)) return;
  --probe.requests;
  --probe.sending;
  if (UCS_PTR_RAW_STATUS(request) != UCS_OK) probe.error = UCS_PTR_RAW_STATUS(request);
}

bool UcxTransport::Impl::AdvanceProbes(Channel& channel) {
  bool any = false;
  for (const auto& entry : probes) {
    Probe& probe = *entry;
    if (probe.channel != &channel || probe.done == nullptr) continue;
    const auto link = links.find(probe.key);
    if (probe.error == UCS_OK && (link == links.end() || link->second->endpoint == nullptr)) {
      probe.error = UCS_ERR_CONNECTION_RESET;
    }
    if (probe.error == UCS_OK && probe.receives[0].came && probe.sent == 1) {
      SendProbe(probe);
      any = true;
    }
    if (probe.error != UCS_OK) {
      StopProbe(probe, ProbeError(api.ucs_status_string(probe.error)));
      any = true;
    } else if (probe.receives[1].came && probe.sent == 2) {
      StopProbe(probe, absl::OkStatus());
      any = true;
    }
  }
  std::erase_if(probes,
                [](const auto& probe) { return probe->done == nullptr && probe->requests == 0; });
  return any;
}

void UcxTransport::Impl::StopProbe(Probe& probe, const absl::Status& status) {
  if (probe.done == nullptr) return;
  std::exchange(probe.done, nullptr)(status);
  for (size_t round : {0, 1}) {
    Probe::Receive& receive = probe.receives[round];
    if (receive.came) continue;
    if (receive.request != nullptr) {
      api.ucp_request_cancel(probe.channel->worker->get(), receive.request);
    }
    if (!receive.came) AddStrays(*probe.channel, probe.tag + round, 1);
  }
}

void UcxTransport::Impl::StopProbes(PeerId peer, const absl::Status& why) {
  for (const auto& probe : probes) {
    if (probe->key.first != peer) continue;
    StopProbe(*probe, why);
    const auto link = links.find(probe->key);
    // The peer may never take it. Of shared memory it stays until the worker goes.
    if (probe->sending > 0 && link != links.end() && link->second->channel->forceable) {
      CloseEndpoint(*link->second);
    }
  }
}

}  // namespace ferry
