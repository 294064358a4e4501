// SPDX-License-Identifier: Apache-2.0
#include "transfer/ucx/ucx_channels.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "base/status.h"

namespace ferry {
namespace {

// How long taking down waits for requests to return before the worker is destroyed under them.
constexpr absl::Duration kTakeDownPatience = absl::Seconds(1);

}  // namespace

absl::Status UcxChannels::Add(const std::string& kind, UcxWorker::Settings settings) {
  home_.Check();
  auto channel = std::make_unique<UcxChannel>(api_);
  channel->kind = kind;
  channel->settings = std::move(settings);
  channel->forceable = kind != kUcxShm;
  if (absl::Status opened = OpenWorker(*channel); !opened.ok()) return opened;
  channel->index = addresses_.Add(kind, channel->worker->address());
  channels_.push_back(std::move(channel));
  return absl::OkStatus();
}

absl::Status UcxChannels::OpenWorker(UcxChannel& channel) {
  auto worker = UcxWorker::Create(api_, channel.kind, channel.settings);
  if (!worker.ok()) return worker.status();
  channel.worker = *std::move(worker);
  hooks_.opened(channel);
  if (staging_.on()) channel.worker->Map(staging_.gpu().memory());
  lane_.AddPoller(channel.worker.get());
  return absl::OkStatus();
}

UcxChannel* UcxChannels::Find(const std::string& kind) const {
  home_.Check();
  UcxChannel* found = nullptr;
  for (const auto& channel : channels_) {
    // One that begins anew in a moment takes its ops then.
    if ((channel->draining && !channel->forceable) || channel->kind != kind) continue;
    found = channel.get();
  }
  return found;
}

void UcxChannels::SetClosed(const UcxChannel& channel, bool is_closed) {
  home_.Check();
  addresses_.Set(channel.index, is_closed ? "" : channel.worker->address());
}

void UcxChannels::Look(UcxChannel& channel) {
  home_.Check();
  DrainOverdue(channel);
  if (channel.draining && channel.drained()) PostFinishDraining(channel);
}

void UcxChannels::DrainOverdue(UcxChannel& channel) {
  if (channel.drain_at == absl::InfiniteFuture()) return;
  const absl::Time now = MonotonicNow();
  if (channel.drain_at > now) return;
  channel.drain_at = absl::InfiniteFuture();
  ops_.ForEach([&](const UcxOp& op) {
    if (op.channel == &channel && op.in_flight > 0) {
      channel.drain_at = std::min(channel.drain_at, op.drain_by);
    }
  });
  if (channel.drain_at <= now && !channel.draining) Drain(channel);
}

void UcxChannels::Drain(UcxChannel& channel) {
  home_.Check();
  FERRY_LOG(warn, "ucx.closed", "'{}' {}: a lost peer holds requests of ours", channel.kind,
            channel.forceable ? "begins anew" : "is off from here on");
  channel.draining = true;
  SetClosed(channel, true);
  channel.waiting.clear();
  for (auto& [key, window] : channel.windows) {
    window->sends.Clear();
    window->waiting = false;
  }
  ops_.StopAll(channel,
               Error(absl::StatusCode::kAborted, Reason::kCommAborted,
                     absl::StrCat("ucx: '", channel.kind,
                                  "' was closed because a lost peer would not let go of its "
                                  "transfers")));
  PostFinishDraining(channel);
}

void UcxChannels::PostFinishDraining(UcxChannel& channel) {
  lane_.Post([this, &channel] { FinishDraining(channel); });
}

void UcxChannels::FinishDraining(UcxChannel& channel) {
  if (channel.worker == nullptr || !channel.draining || !channel.drained()) return;
  lane_.RemovePoller(channel.worker.get());
  channel.worker.reset();
  channel.closing.clear();
  channel.strays.Clear();
  channel.leaving.clear();
  ops_.ForEach([&](UcxOp& op) {
    if (op.channel != &channel) return;
    op.in_flight = 0;
    for (UcxMessage& message : op.messages) staging_.Unstage(message);
    ops_.FinishIfComplete(op);
  });
  if (channel.forceable) Reopen(channel);
  ops_.Answer();
}

void UcxChannels::Reopen(UcxChannel& channel) {
  channel.windows.clear();
  channel.open_windows = channel.receives_in_flight = 0;
  hooks_.gone(channel);
  if (const absl::Status opened = OpenWorker(channel); !opened.ok()) {
    FERRY_LOG(warn, "ucx.unavailable", "{}", std::string(opened.message()));
    return;
  }
  channel.draining = false;
  SetClosed(channel, false);
  if (hooks_.moved) hooks_.moved(std::nullopt);
}

void UcxChannels::TakeDown() {
  home_.Check();
  const auto outstanding = [&] {
    return std::any_of(channels_.begin(), channels_.end(), [](const auto& channel) {
      return channel->receives_in_flight > 0 ||
             (channel->forceable && (channel->ops > 0 || !channel->closing.empty()));
    });
  };
  const absl::Time patience = MonotonicNow() + kTakeDownPatience;
  do {
    for (const auto& channel : channels_) {
      if (channel->worker != nullptr) channel->worker->Poll();
    }
    if (staging_.on()) staging_.gpu().Poll();
  } while (outstanding() && MonotonicNow() < patience);
  const auto copying = [](const auto& channel) { return channel->copying > 0; };
  while (std::any_of(channels_.begin(), channels_.end(), copying)) staging_.gpu().Poll();
  for (const auto& channel : channels_) {
    if (channel->worker == nullptr) continue;
    lane_.RemovePoller(channel->worker.get());
    if (!channel->forceable && channel->receives_in_flight > 0) {
      // UCX ends the process if it is destroyed while it reads another process's memory. Nothing
      // drives it any more, so leaving it behind costs memory only.
      channel->worker.release();
    }
    channel->worker.reset();
  }
}

}  // namespace ferry
