// SPDX-License-Identifier: Apache-2.0
// Asks one daemon again and again for its activity, without waiting: the daemon may have stopped,
// or be gone and come back. Owns at most one call at a time. One thread; gRPC's threads only note
// that an answer is there.
#pragma once

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "ferry/admin/v1/admin.grpc.pb.h"
#include "tools/ferryctl/globals.h"
#include "tools/ferryctl/top_tables.h"

namespace ferry::tools {

class TopSource {
 public:
  // `answered`: an eventfd that is written to at each answer; outlives the object. `limit`: the
  // most transfers of one answer.
  TopSource(const Globals& globals, std::string runtime_dir, uint32_t limit, int answered);
  ~TopSource();  // cancels the call
  TopSource(const TopSource&) = delete;
  TopSource& operator=(const TopSource&) = delete;

  // Starts a call; does nothing while one is under way.
  void Ask(absl::Time now);
  // Takes the answer, if it has come.
  void Collect(absl::Time now);
  bool asking() const { return call_ != nullptr; }
  // The status of the last call that is over.
  const absl::Status& status() const { return status_; }
  // What is known of the daemon now. An answer that is older than `fresh` is not shown.
  DaemonSample Sample(absl::Time now, absl::Duration fresh) const;

 private:
  struct Call {
    grpc::ClientContext context;
    ferry::admin::v1::GetActivityRequest request;
    Activity response;
    Mutex mutex;
    std::condition_variable_any changed;
    std::optional<grpc::Status> status ABSL_GUARDED_BY(mutex);  // set once the call is over
  };

  absl::Duration Timeout() const;

  const Globals globals_;  // with the runtime directory of this daemon
  const uint32_t limit_;
  const int answered_;
  std::unique_ptr<ferry::admin::v1::AdminService::Stub> stub_;
  std::unique_ptr<Call> call_;
  absl::Status status_;
  std::optional<Activity> now_, before_;
  std::string node_;
  uint64_t first_life_ = 0;  // the incarnation that answered first
  // Time of the last answer; before the first, of the first call
  absl::Time heard_ = absl::InfiniteFuture();
};

}  // namespace ferry::tools
