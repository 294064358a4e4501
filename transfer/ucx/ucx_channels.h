// SPDX-License-Identifier: Apache-2.0
// UcxChannels opens the workers of a lane, one a channel, and throws a worker away that does not
// give requests back otherwise. A channel whose worker is being thrown away takes no ops; it opens
// another worker, with another address, if its endpoints can be closed by force, else never.
//
// Home: the lane. Owner: UcxTransport; UcxEndpoints calls. Owns channels and workers.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/home.h"
#include "device/lane.h"
#include "transfer/ucx/ucx_addresses.h"
#include "transfer/ucx/ucx_api.h"
#include "transfer/ucx/ucx_ops.h"
#include "transfer/ucx/ucx_records.h"
#include "transfer/ucx/ucx_staging.h"
#include "transfer/ucx/ucx_worker.h"

namespace ferry {

class UcxChannels {
 public:
  struct Hooks {
    // The channel has a new worker, to be given its hooks.
    std::function<void(UcxChannel&)> opened;
    // The channel's worker is gone, and its endpoints with it; another one is opened next.
    std::function<void(UcxChannel&)> gone;
    std::function<void(std::optional<PeerId>)> moved;  // UcxOptions::moved
  };
  UcxChannels(const UcxApi& api, Lane& lane, UcxOps& ops, UcxStaging& staging,
              UcxAddresses& addresses, Hooks hooks)
      : api_(api),
        lane_(lane),
        ops_(ops),
        staging_(staging),
        addresses_(addresses),
        hooks_(std::move(hooks)) {}

  // Adds a channel of that kind, or says why it cannot be had.
  absl::Status Add(const std::string& kind, UcxWorker::Settings settings);
  // They stay where they are.
  const std::vector<std::unique_ptr<UcxChannel>>& all() const { return channels_; }
  // Whether no channel has a worker any more.
  bool all_gone() const {
    return std::none_of(channels_.begin(), channels_.end(),
                        [](const auto& channel) { return channel->worker != nullptr; });
  }
  // The channel for peers of that kind: null if there is none, nor will be.
  UcxChannel* Find(const std::string& kind) const;

  // Whether peers may be told of the channel's address: not if `is_closed`.
  void SetClosed(const UcxChannel& channel, bool is_closed);
  // Throws the worker away. Its peers are refused until there is another worker, so that their
  // transfers take another route. With shared memory there will be no other, and UCX must first
  // finish what it reads for a receive.
  void Drain(UcxChannel& channel);
  // Drains the channel if force was not enough, and goes on with a drain that can go on.
  void Look(UcxChannel& channel);

  // All ops were stopped: gives UCX time to return their requests, then closes all workers.
  void TakeDown();

 private:
  absl::Status OpenWorker(UcxChannel& channel);
  void DrainOverdue(UcxChannel& channel);
  // By a task: a worker must not be destroyed from inside its own progress.
  void PostFinishDraining(UcxChannel& channel);
  void FinishDraining(UcxChannel& channel);
  // Makes another worker, with another address; endpoints to peers are opened anew.
  void Reopen(UcxChannel& channel);

  const UcxApi& api_;
  Lane& lane_;
  UcxOps& ops_;
  UcxStaging& staging_;
  UcxAddresses& addresses_;
  const Hooks hooks_;
  std::vector<std::unique_ptr<UcxChannel>> channels_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
