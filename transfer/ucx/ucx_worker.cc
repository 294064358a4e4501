// SPDX-License-Identifier: Apache-2.0
#include "transfer/ucx/ucx_worker.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ferry {
namespace {

// One Poll does at most this many rounds, so that the lane's other work has its turn.
constexpr int kRounds = 32;

}  // namespace

absl::StatusOr<std::unique_ptr<UcxWorker>> UcxWorker::Create(const UcxApi& api, std::string kind,
                                                             const Settings& settings) {
  std::unique_ptr<UcxWorker> worker(new UcxWorker(api, std::move(kind)));
  const auto failed = [&](absl::string_view what, ucs_status_t status) {
    return Error(absl::StatusCode::kUnavailable, Reason::kRouteUnavailable,
                 absl::StrCat("opening UCX for '", worker->kind_, "' peers: ", what, ": ",
                              api.ucs_status_string(status)));
  };
  ucp_config_t* config = nullptr;
  ucs_status_t status = api.ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return failed("reading its configuration", status);
  for (const auto& [name, value] : settings) {
    status = api.ucp_config_modify(config, name.c_str(), value.c_str());
    if (status != UCS_OK && (name == "TLS" || name == "NET_DEVICES")) {
      api.ucp_config_release(config);
      return failed(absl::StrCat("setting UCX_", name, "=", value), status);
    }
  }
  ucp_params_t params = {};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  status = api.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &worker->context_);
  api.ucp_config_release(config);
  if (status != UCS_OK) {
    worker->context_ = nullptr;
    return failed("making a context", status);
  }
  ucp_worker_params_t worker_params = {};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_params.thread_mode = UCS_THREAD_MODE_SINGLE;
  status = api.ucp_worker_create(worker->context_, &worker_params, &worker->worker_);
  if (status != UCS_OK) {
    worker->worker_ = nullptr;
    return failed("making a worker", status);
  }
  ucp_address_t* address = nullptr;
  size_t length = 0;
  status = api.ucp_worker_get_address(worker->worker_, &address, &length);
  if (status != UCS_OK) return failed("asking for its address", status);
  worker->address_.assign(reinterpret_cast<const char*>(address), length);
  api.ucp_worker_release_address(worker->worker_, address);
  status = api.ucp_worker_get_efd(worker->worker_, &worker->event_fd_);
  if (status != UCS_OK) return failed("asking for its event descriptor", status);
  return worker;
}

UcxWorker::~UcxWorker() {
  if (worker_ != nullptr) api_.ucp_worker_destroy(worker_);
  if (mapped_ != nullptr) api_.ucp_mem_unmap(context_, mapped_);
  if (context_ != nullptr) api_.ucp_cleanup(context_);
}

bool UcxWorker::HandlesCuda() const {
  home_.Check();
  ucp_context_attr_t attributes = {};
  attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  return api_.ucp_context_query(context_, &attributes) == UCS_OK &&
         (attributes.memory_types >> UCS_MEMORY_TYPE_CUDA & 1) != 0;
}

void UcxWorker::Map(absl::Span<std::byte> memory) {
  home_.Check();
  ucp_mem_map_params_t params = {};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
  params.address = memory.data();
  params.length = memory.size();
  params.memory_type = UCS_MEMORY_TYPE_HOST;
  if (api_.ucp_mem_map(context_, &params, &mapped_) != UCS_OK) mapped_ = nullptr;
}

void UcxWorker::SetHooks(Hooks hooks) {
  home_.Check();
  hooks_ = std::move(hooks);
}

bool UcxWorker::Poll() {
  home_.Check();
  bool any = false;
  for (int i = 0; i < kRounds && Progress(); ++i) any = true;
  return hooks_.after_progress() || any;
}

bool UcxWorker::PrepareToPark() {
  home_.Check();
  // UCS_ERR_BUSY: something has arrived that was not looked at yet.
  return hooks_.may_park() && api_.ucp_worker_arm(worker_) == UCS_OK;
}

}  // namespace ferry
