// SPDX-License-Identifier: Apache-2.0
#include "transfer/ucx/ucx_transport.h"

#include <stdlib.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status.h"
#include "transfer/ucx/ucx_state.h"

namespace ferry {
namespace {

// How long taking down waits for requests to return before the worker is destroyed under them.
constexpr absl::Duration kTakeDownPatience = absl::Seconds(1);
// Receives that one Poll looks for in vain; before the lane parks it looks for all.
constexpr size_t kArrivalsPerPoll = 256;
constexpr size_t kStraysPerPoll = 64;

// With what moves GPUs' memory, if that is wanted; what this UCX does not have of it is left out.
std::string Tls(const std::string& host, absl::string_view gpu, bool with_gpu) {
  return with_gpu ? absl::StrCat(host, ",", gpu) : host;
}

// Messages from this size on go by rendezvous, smaller ones in one fragment (which takes as much
// with every transport). Never in several: a receive whose first fragment has come can be
// cancelled no more, and belongs to no endpoint, so that it would wait for the others of a lost
// peer for ever.
constexpr char kRendezvousFrom[] = "8K";

// How often UCX asks whether the other end of a connection knows it still. That is how a receive
// hears that the peer has closed the endpoint it came by, if that is not paired with one of ours.
constexpr char kKeepalive[] = "1s";

// Whatever the environment says of these: with other values of RNDV_THRESH and RNDV_SCHEME a
// receive whose sender's daemon is killed may never end.
constexpr const char* kSettled[] = {"UCX_RNDV_THRESH", "UCX_RNDV_SCHEME", "UCX_KEEPALIVE_INTERVAL"};

UcxWorker::Settings NetSettings(const UcxOptions& options, bool with_gpu) {
  UcxWorker::Settings settings = {{"TLS", Tls(options.net_tls, "cuda_copy,gdr_copy", with_gpu)},
                                  {"RNDV_SCHEME", "auto"},
                                  {"RNDV_THRESH", kRendezvousFrom},
                                  {"KEEPALIVE_INTERVAL", kKeepalive}};
  if (!options.net_devices.empty()) settings.emplace_back("NET_DEVICES", options.net_devices);
  return settings;
}

UcxWorker::Settings ShmSettings(const UcxOptions& options, bool with_gpu) {
  // The receiver reads: nobody but ourselves ever writes into our clients' memory, so that an op
  // whose requests have returned is really over, whatever the peer is doing.
  return {{"TLS", Tls(options.shm_tls, "cuda_copy,cuda_ipc", with_gpu)},
          {"RNDV_SCHEME", "get_zcopy"},
          {"RNDV_THRESH", kRendezvousFrom}};
}

}  // namespace

std::vector<std::string> UcxNotTaken() {
  std::vector<std::string> found;
  for (const char* name : kSettled) {
    const char* const value = getenv(name);
    if (value != nullptr) found.push_back(absl::StrCat(name, "=", value));
  }
  return found;
}

std::string UcxDevices(const std::string& given) {
  const char* const said = getenv("UCX_NET_DEVICES");
  return !given.empty() ? given : said != nullptr ? said : "all";
}

absl::Status UcxTransport::Impl::AddChannel(const std::string& kind, UcxWorker::Settings settings) {
  auto channel = std::make_unique<Channel>();
  channel->kind = kind;
  channel->settings = std::move(settings);
  channel->forceable = kind != kUcxShm;
  if (absl::Status opened = OpenWorker(*channel); !opened.ok()) return opened;
  {
    MutexLock lock(addresses_mutex);
    addresses.push_back({kind, channel->worker->address()});
  }
  channels.push_back(std::move(channel));
  return absl::OkStatus();
}

absl::Status UcxTransport::Impl::OpenWorker(Channel& channel) {
  auto worker = UcxWorker::Create(api, channel.kind, channel.settings);
  if (!worker.ok()) return worker.status();
  channel.worker = *std::move(worker);
  channel.worker->SetHooks(
      [this, &channel] { return AfterProgress(channel); },
      [this, &channel] { return Busy(channel); }, [this, &channel] { return MayPark(channel); },
      [&channel] { return !channel.leaving.empty() || channel.drain_at < absl::InfiniteFuture(); });
  if (staging != nullptr) channel.worker->Map(staging->memory());
  lane.AddPoller(channel.worker.get());
  return absl::OkStatus();
}

void UcxTransport::Impl::TakeDown() {
  const absl::Status why =
      Error(absl::StatusCode::kAborted, Reason::kDraining, "ucx: the lane is being taken down");
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
    if (staging != nullptr) staging->Poll();
  } while (outstanding() && MonotonicNow() < patience);
  const auto copying = [](const auto& channel) { return channel->copying > 0; };
  while (std::any_of(channels.begin(), channels.end(), copying)) staging->Poll();
  for (const auto& channel : channels) {
    if (channel->worker == nullptr) continue;
    lane.RemovePoller(channel->worker.get());
    if (!channel->forceable && channel->receives_in_flight > 0) {
      // UCX ends the process if it is destroyed while it reads another process's memory. Nothing
      // drives it any more, so leaving it behind costs memory only.
      channel->worker.release();
    }
    channel->worker.reset();
  }
  // Without its worker a request that never returned touches nothing any more.
  for (auto& [key, op] : ops) results.push_back({key.first, key.second, std::move(op->status)});
  ops.clear();
  if (!results.empty()) sink(std::exchange(results, {}));
}

bool UcxTransport::Impl::Busy(const Channel& channel) const {
  return channel.ops > 0 || !channel.closing.empty() || !channel.leaving.empty() ||
         channel.drain_at < absl::InfiniteFuture() || !results.empty() || !finished_ops.empty() ||
         !failed_ops.empty() || !failed_links.empty();
}

bool UcxTransport::Impl::MayPark(Channel& channel) {
  return results.empty() && !TakeArrivals(channel, channel.arriving.size()) &&
         !DropStrays(channel, channel.strays.size());
}

bool UcxTransport::Impl::AfterProgress(Channel& channel) {
  bool any = TakeArrivals(channel, kArrivalsPerPoll);  // first: some of these fail at once
  for (DeviceLink* link : std::exchange(failed_links, {})) {
    any = true;
    FailLink(*link,
             Error(absl::StatusCode::kAborted, Reason::kCommAborted,
                   absl::StrCat("ucx: ", api.ucs_status_string(link->error))),
             /*queued=*/false);
    CountClosing(*link);
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
  any |= DropStrays(channel, kStraysPerPoll);
  any |= CloseOverdue(channel);
  DrainOverdue(channel);
  if (channel.draining && channel.drained()) PostFinishDraining(channel);
  return Answer() || any;
}

absl::StatusOr<std::unique_ptr<UcxTransport>> UcxTransport::Create(const UcxApi& api,
                                                                   UcxOptions options, Lane& lane,
                                                                   OpSink sink,
                                                                   GpuStaging* staging) {
  auto impl = std::make_unique<Impl>(api, lane, std::move(sink), staging, options.moved);
  absl::Status last = Error(absl::StatusCode::kUnavailable, Reason::kRouteUnavailable,
                            "opening UCX: no transports are configured");
  lane.RunAndWait([&] {
    const auto add = [&](const std::string& kind, const UcxWorker::Settings& settings) {
      const absl::Status added = impl->AddChannel(kind, settings);
      if (added.ok()) return;
      FERRY_LOG(warn, "ucx.unavailable", "{}", std::string(added.message()));
      last = added;
    };
    const bool with_gpu = staging != nullptr;
    if (!options.net_tls.empty()) {
      add(kUcxNet, NetSettings(options, with_gpu && options.net_direct));
    }
    if (!options.shm_tls.empty()) {
      add(kUcxShm, ShmSettings(options, with_gpu && options.shm_direct));
    }
    if (with_gpu && !impl->channels.empty()) impl->SetUpGpu(options);
  });
  if (impl->channels.empty()) return last;
  return std::unique_ptr<UcxTransport>(new UcxTransport(std::move(impl)));
}

UcxTransport::UcxTransport(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

UcxTransport::~UcxTransport() {
  impl_->lane.RunAndWait([this] { impl_->TakeDown(); });
  impl_->lane.RunAndWait([] {});  // what was posted for a draining channel
}

std::vector<UcxAddressBlob> UcxTransport::addresses(PeerId peer) const {
  MutexLock lock(impl_->addresses_mutex);
  std::vector<UcxAddressBlob> open;
  for (const UcxAddressBlob& blob : impl_->addresses) {
    if (!blob.address.empty()) open.push_back(blob);
  }
  for (const auto& [key, closings] : impl_->closings) {
    if (key.first != peer) continue;
    for (UcxAddressBlob& blob : open) {
      if (blob.kind != kUcxShm) blob.closings.emplace(key.second, closings);
    }
  }
  return open;
}

bool UcxTransport::Reaches(const std::string& kind) const {
  MutexLock lock(impl_->addresses_mutex);
  return std::any_of(impl_->addresses.begin(), impl_->addresses.end(), [&](const auto& blob) {
    return blob.kind == kind && (kind != kUcxShm || !blob.address.empty());
  });
}

const std::string& UcxTransport::way() const { return impl_->way; }

void UcxTransport::AddPeer(PeerId peer, GlobalDeviceId device, const UcxAddressBlob& address,
                           uint64_t closings) {
  FERRY_CHECK(impl_->lane.IsCurrent());
  const Impl::LinkKey key{peer, device};
  const bool closed = impl_->SetClosings(key, closings);
  const auto old = impl_->links.find(key);
  if (old != impl_->links.end()) {
    Impl::DeviceLink& link = *old->second;
    if (link.channel != nullptr && (link.channel->forceable || !link.channel->draining) &&
        link.address == address.address) {
      if (closed) {
        impl_->FailLink(link,
                        Error(absl::StatusCode::kAborted, Reason::kCommAborted,
                              "ucx: the peer has closed the connection"),
                        /*queued=*/false);
      }
      link.lost = absl::OkStatus();
      return;
    }
    impl_->DropLink(old, Error(absl::StatusCode::kAborted, Reason::kCommAborted,
                               "the peer's address has changed"));
  }
  auto link = std::make_unique<Impl::DeviceLink>();
  link->owner = impl_.get();
  link->key = key;
  link->address = address.address;
  for (const auto& channel : impl_->channels) {
    // One that begins anew in a moment takes its ops then.
    if ((channel->draining && !channel->forceable) || channel->kind != address.kind) continue;
    link->channel = channel.get();
  }
  impl_->links.emplace(key, std::move(link));
}

void UcxTransport::RemovePeer(PeerId peer, const absl::Status& why) {
  FERRY_CHECK(impl_->lane.IsCurrent());
  for (auto& [key, link] : impl_->links) {
    if (key.first != peer) continue;
    link->lost = why;
    impl_->StopOps(*link, why, /*queued=*/true);
    if (link->channel == nullptr) continue;
    impl_->SetLeaveBy(*link, MonotonicNow() + Impl::kTimeToLeave);  // of those aborted before, too
    impl_->Watch(*link);
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
  Impl::DeviceLink& link = *op.link;
  impl_->StopOp(op, why);
  // Over shared memory a send ends when the peer has taken it.
  if (link.channel->forceable && op.in_flight > 0) impl_->Watch(link);
}

}  // namespace ferry
