// SPDX-License-Identifier: Apache-2.0
// For tests that play the daemon: an executor whose time and tasks the test controls, and host
// devices. Needs no GoogleTest, for programs that have none.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "daemon/local_devices.h"
#include "device/host/copy.h"
#include "transfer/local/copy_transport.h"
#include "transfer/local/prepared_runner.h"

namespace ferry::testing {

// Runs tasks only in RunAll; time passes only in Advance. Post is for any thread.
class ManualExecutor : public Executor {
 public:
  void Post(Task task) override {
    MutexLock lock(mutex_);
    queue_.push_back(std::move(task));
  }
  absl::Time Now() override { return now_; }
  bool IsCurrent() const override { return true; }
  void Advance(absl::Duration by) { now_ += by; }
  // Runs the task that was posted first, if there is one.
  void RunNext() {
    Task task;
    {
      MutexLock lock(mutex_);
      if (queue_.empty()) return;
      task = std::move(queue_.front());
      queue_.erase(queue_.begin());
    }
    task();
  }
  // Runs what was posted, and what that posts. Returns how many tasks it was.
  size_t RunAll() {
    size_t count = 0;
    while (true) {
      std::vector<Task> batch;
      {
        MutexLock lock(mutex_);
        batch = std::exchange(queue_, {});
      }
      if (batch.empty()) return count;
      count += batch.size();
      for (Task& task : batch) task();
    }
  }

 private:
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1000);
  Mutex mutex_;
  std::vector<Task> queue_ ABSL_GUARDED_BY(mutex_);
};

// A daemon's host devices with their threads and copies, without UCX.
class Devices {
 public:
  // Gets what lanes answer; must be set before anything is launched.
  OpSink results;

  explicit Devices(const std::vector<uint64_t>& ids) {
    for (const uint64_t id : ids) {
      auto device = std::make_unique<LocalDevice>();
      device->id = GlobalDeviceId(id);
      device->name = absl::StrCat("host", table.list.size());
      device->memory = std::make_unique<SerialExecutor>("memory");
      device->lane = std::make_unique<Lane>("lane", absl::ZeroDuration());
      device->Add(
          {Route::kLocal, Route::kMapped}, LocalDevice::Serves::kPosted,
          std::make_unique<CopyTransport>(*device->lane, std::make_unique<HostCopier>(helper_),
                                          Sink(), [](PeerId) { return absl::OkStatus(); }));
      device->Add({Route::kLocal, Route::kMapped}, LocalDevice::Serves::kArmed,
                  std::make_unique<PreparedRunner>(*device->lane,
                                                   std::make_unique<HostCopier>(helper_), Sink()));
      table.list.push_back(std::move(device));
    }
  }
  // Waits until memory threads and lanes have done what they were given.
  void Settle() {
    for (const auto& device : table.list) {
      device->memory->RunAndWait([] {});
      device->lane->RunAndWait([] {});
      device->lane->RunAndWait([] {});  // and what that has posted
    }
  }

 private:
  OpSink Sink() {
    return [this](std::vector<OpResult> answered) {
      if (results) results(std::move(answered));
    };
  }

  CopyHelper helper_;  // outlives the devices

 public:
  LocalDevices table;
};

}  // namespace ferry::testing
