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

// Receives that one Poll looks for in vain; before the lane parks it looks for all.
constexpr size_t kArrivalsPerPoll = 256;
constexpr size_t kStraysPerPoll = 64;

size_t BytesOf(const TransportOp& op) {
  size_t bytes = 0;
  for (const Segment& segment : op.segments) bytes += segment.size;
  return bytes;
}

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

void UcxTransport::Impl::SetHooks(UcxChannel& channel) {
  channel.worker->SetHooks({.after_progress = [this, &channel] { return AfterProgress(channel); },
                            .busy = [this, &channel] { return Busy(channel); },
                            .may_park = [this, &channel] { return MayPark(channel); },
                            .restless =
                                [&channel] {
                                  return !channel.leaving.empty() ||
                                         channel.drain_at < absl::InfiniteFuture();
                                }});
}

void UcxTransport::Impl::SetUpGpu(const UcxOptions& options) {
  size_t wanted = 0, direct = 0;
  const auto& all = channels.all();
  for (const auto& channel : all) {
    const bool wants = channel->worker->kind() == kUcxNet ? options.net_direct : options.shm_direct;
    channel->direct = wants && channel->worker->HandlesCuda();
    wanted += wants;
    direct += channel->direct;
  }
  way = direct == all.size() ? "direct"
        : direct > 0         ? "direct between hosts, staged within one"
        : wanted > 0         ? "staged: this UCX handles no CUDA memory here"
                             : absl::StrCat("staged: ", options.why_staged);
}

void UcxTransport::Impl::TakeDown() {
  endpoints.FailAll(
      Error(absl::StatusCode::kAborted, Reason::kDraining, "ucx: the lane is being taken down"));
  channels.TakeDown();
  // Without its worker a request that never returned touches nothing any more.
  ops.AnswerAll();
}

void UcxTransport::Impl::Start(TransportOp launched) {
  FERRY_CHECK(launched.role != LaunchRole::kCopy);
  UcxDeviceLink* const link = endpoints.Find(launched.peer, launched.remote_device);
  if (link == nullptr) {
    return ops.Refuse(launched, Reason::kPeerUnreachable, "it has no UCX address");
  }
  if (link->channel == nullptr || link->channel->draining) {
    return ops.Refuse(launched, Reason::kRouteUnavailable,
                      "the transports it names are not open here");
  }
  const size_t bytes = BytesOf(launched);
  const auto refuse = [&](Reason reason, absl::string_view why) {
    // Its sender was told to go.
    if (launched.role == LaunchRole::kReceive) {
      link->channel->strays.Add(launched.tag, UcxMessagesOf(bytes));
    }
    ops.Refuse(launched, reason, why);
  };
  if (!link->lost.ok()) {
    // As RemovePeer was told: the link was lost, or the route is not taken.
    const bool route = HasReason(link->lost, Reason::kRouteUnavailable);
    return refuse(route ? Reason::kRouteUnavailable : Reason::kPeerUnreachable,
                  link->lost.message());
  }
  const absl::Status opened = endpoints.Open(*link);
  if (!opened.ok()) return refuse(Reason::kRouteUnavailable, opened.message());
  UcxOp& op = ops.Add(std::move(launched), bytes, *link);
  op.direct = link->channel->direct && op.op.segments.size() == 1;
  op.staged = staging.on() && !op.direct;
  if (op.direct) staging.gpu().Enter();
  if (op.receive()) {
    receives.Post(op);
  } else if (op.messages.empty()) {
    ops.FinishIfComplete(op);
  } else {
    sends.Enqueue(op);
  }
}

bool UcxTransport::Impl::Busy(const UcxChannel& channel) const {
  return channel.ops > 0 || !channel.closing.empty() || !channel.leaving.empty() ||
         channel.drain_at < absl::InfiniteFuture() || ops.waits() || endpoints.has_failed();
}

bool UcxTransport::Impl::MayPark(UcxChannel& channel) {
  return !ops.has_results() && !receives.TakeArrivals(channel, channel.arriving.size()) &&
         !channel.strays.Drop(channel.worker->get(), channel.strays.size());
}

bool UcxTransport::Impl::AfterProgress(UcxChannel& channel) {
  // First: some of these fail at once.
  bool any = receives.TakeArrivals(channel, kArrivalsPerPoll);
  any |= endpoints.CloseFailed();
  ops.StopFailed();
  any |= sends.Pump(channel);
  any |= endpoints.EndClosed(channel);
  any |= channel.strays.Drop(channel.worker->get(), kStraysPerPoll);
  any |= endpoints.CloseOverdue(channel);
  channels.Look(channel);
  return ops.Answer() || any;
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
      const absl::Status added = impl->channels.Add(kind, settings);
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
    if (with_gpu && !impl->channels.all().empty()) impl->SetUpGpu(options);
  });
  if (impl->channels.all().empty()) return last;
  return std::unique_ptr<UcxTransport>(new UcxTransport(std::move(impl)));
}

UcxTransport::UcxTransport(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

UcxTransport::~UcxTransport() {
  impl_->lane.RunAndWait([this] { impl_->TakeDown(); });
  impl_->lane.RunAndWait([] {});  // what was posted for a draining channel
}

std::vector<UcxAddressBlob> UcxTransport::addresses(PeerId peer) const {
  return impl_->addresses.For(peer);
}

bool UcxTransport::Reaches(const std::string& kind) const { return impl_->addresses.Reaches(kind); }

const std::string& UcxTransport::way() const { return impl_->way; }

void UcxTransport::AddPeer(PeerId peer, GlobalDeviceId device, const UcxAddressBlob& address,
                           uint64_t closings) {
  FERRY_CHECK(impl_->lane.IsCurrent());
  impl_->endpoints.AddPeer(peer, device, address, closings);
}

void UcxTransport::RemovePeer(PeerId peer, const absl::Status& why) {
  FERRY_CHECK(impl_->lane.IsCurrent());
  impl_->endpoints.RemovePeer(peer, why);
}

void UcxTransport::Launch(std::vector<TransportOp> ops) {
  FERRY_CHECK(impl_->lane.IsCurrent());
  for (TransportOp& op : ops) impl_->Start(std::move(op));
  // A worker's Poll() answers; without any worker nobody polls.
  if (impl_->ops.has_results() && impl_->channels.all_gone()) {
    impl_->lane.Post([impl = impl_.get()] { impl->ops.Answer(); });
  }
}

void UcxTransport::Abort(TransferId transfer, uint32_t attempt, const absl::Status& why) {
  FERRY_CHECK(impl_->lane.IsCurrent());
  UcxOp* const op = impl_->ops.Find(transfer, attempt);
  if (op == nullptr || op->link == nullptr || op->finished) return;
  UcxDeviceLink& link = *op->link;
  impl_->ops.Stop(*op, why);
  // Over shared memory a send ends when the peer has taken it.
  if (link.channel->forceable && op->in_flight > 0) impl_->endpoints.Watch(link);
}

}  // namespace ferry
