// SPDX-License-Identifier: Apache-2.0
// One UCX context and its worker. Owned by a channel of UcxChannels, whose lane polls it, and
// sleeps on its descriptor. Created for one value of the setting UCX_TLS. UcxTransport (a Transport
// of Ferry) knows what the requests mean. Home: the lane.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/home.h"
#include "device/lane.h"
#include "transfer/ucx/ucx_api.h"

namespace ferry {

class UcxWorker : public Poller {
 public:
  // Names without "UCX_", and values.
  using Settings = std::vector<std::pair<std::string, std::string>>;

  // A setting that this UCX does not know is skipped, but TLS and NET_DEVICES must be known.
  static absl::StatusOr<std::unique_ptr<UcxWorker>> Create(const UcxApi& api, std::string kind,
                                                           const Settings& settings);
  // Requests that are left end with the worker, and touch no memory afterwards.
  ~UcxWorker() override;

  const std::string& kind() const { return kind_; }
  const std::string& address() const { return address_; }
  ucp_worker_h get() const { return worker_; }

  // Whether this UCX, with these settings, moves GPU memory.
  bool HandlesCuda() const;
  // Registers host memory that messages are sent from and received into again and again. If that
  // fails UCX registers the memory when it needs it.
  void Map(absl::Span<std::byte> memory);
  ucp_mem_h mapped() const { return mapped_; }  // null: no memory is registered

  // What UcxTransport adds to polling. All are set before the lane polls the worker.
  struct Hooks {
    std::function<bool()> after_progress;  // called by Poll() after progress; did it do anything?
    std::function<bool()> busy;            // whether there is anything to poll for
    std::function<bool()> may_park;        // whether the lane may sleep until UCX has something
    std::function<bool()> restless;        // whether the lane must look at the clock
  };
  void SetHooks(Hooks hooks);
  bool Progress() {
    home_.Check();
    return api_.ucp_worker_progress(worker_) != 0;
  }

  bool Poll() override;
  bool Busy() const override { return hooks_.busy(); }
  bool Restless() const override { return hooks_.restless(); }
  int EventFd() const override { return event_fd_; }
  bool PrepareToPark() override;

 private:
  UcxWorker(const UcxApi& api, std::string kind) : api_(api), kind_(std::move(kind)) {}

  const UcxApi& api_;
  const std::string kind_;
  std::string address_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_mem_h mapped_ = nullptr;
  int event_fd_ = -1;
  Hooks hooks_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
