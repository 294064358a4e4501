// SPDX-License-Identifier: Apache-2.0
#include "base/profiler_range.h"

#include <nvtx3/nvToolsExt.h>

namespace ferry {
namespace {

// Null if no tool is attached.
nvtxDomainHandle_t Domain() {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("ferry");
  return domain;
}

}  // namespace

bool ProfilerRange::IsProfiled() { return Domain() != nullptr; }

ProfilerRange::ProfilerRange(absl::FunctionRef<std::string()> name) {
  if (!IsProfiled()) return;
  const std::string text = name();
  nvtxEventAttributes_t event = {};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.messageType = NVTX_MESSAGE_TYPE_ASCII;
  event.message.ascii = text.c_str();
  id_ = nvtxDomainRangeStartEx(Domain(), &event);
}

void ProfilerRange::End() {
  if (id_ != 0) nvtxDomainRangeEnd(Domain(), std::exchange(id_, 0));
}

}  // namespace ferry
