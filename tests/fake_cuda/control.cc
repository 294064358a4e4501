// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "fake_cuda.h"
#include "state.h"

namespace fake_cuda {

void Apply(Settings& settings, const std::string& text) {
  std::istringstream in(text);
  for (std::string entry; std::getline(in, entry, ';');) {
    const size_t equals = entry.find('=');
    if (entry.empty()) continue;
    const std::string key = entry.substr(0, equals);
    const std::string value = equals == std::string::npos ? "1" : entry.substr(equals + 1);
    const uint64_t number = std::strtoull(value.c_str(), nullptr, 10);
    if (key == "devices") {
      settings.devices = std::min(16, static_cast<int>(number));
    } else if (key == "seed") {
      settings.seed = static_cast<uint32_t>(number);
    } else if (key == "memory_mib") {
      settings.memory = number << 20;
    } else if (key == "version") {
      settings.version = static_cast<int>(number);
    } else if (key == "no_peer") {
      settings.no_peer = number != 0;
    } else if (key == "ipc_at_home") {
      settings.ipc_at_home = number != 0;
    } else if (key == "no_vmm") {
      settings.no_vmm = number != 0;
    } else if (key == "no_rdma") {
      settings.no_rdma = number != 0;
    } else if (key == "no_flush") {
      settings.no_flush = number != 0;
    } else if (key == "capability") {
      settings.capability = static_cast<int>(number);
    } else if (key == "no_stores") {
      settings.no_stores = number != 0;
    } else if (key == "nvlinks") {
      settings.nvlinks = static_cast<int>(number);
    } else if (key == "nvlinks_down") {
      settings.nvlinks_down = static_cast<int>(number);
    } else if (key == "nvswitch") {
      settings.nvswitch = number != 0;
    } else if (key == "virtual_gpus") {
      settings.virtual_gpus = number != 0;
    } else if (key == "exclusive") {
      settings.exclusive = number != 0;
    } else if (key == "prohibited") {
      settings.prohibited = number != 0;
    } else if (key == "copy_us") {
      settings.copy_us = number;
    } else if (key == "kernel_us") {
      settings.kernel_us = number;
    } else if (key == "gate") {
      settings.gate = value;
    } else if (key == "open_gate") {
      settings.open_gate = value;
    } else if (key == "fail_copy") {
      settings.fail_copy = number;
    } else if (key == "fail_import") {
      settings.fail_import = number;
    } else if (key == "unknown_handle") {
      settings.unknown_handle = number;
    } else if (key == "fail_map") {
      settings.fail_map = number;
    } else if (key == "fail_context") {
      settings.fail_context = number;
    } else if (key == "bad_kernels") {
      settings.bad_kernels = value;
    } else if (key == "sticky") {
      settings.sticky = number;
    } else {
      // A misspelt setting must not make a test pass.
      fprintf(stderr, "FERRY_FAKE_CUDA: unknown setting '%s'\n", key.c_str());
      abort();
    }
  }
}

State::State() {
  if (const char* text = getenv("FERRY_FAKE_CUDA"); text != nullptr) Apply(settings, text);
  if (const char* text = getenv("CUDA_DEVICE_MAX_CONNECTIONS"); text != nullptr) {
    connections = std::clamp(atoi(text), 1, 32);
  }
  void* const address =
      mmap(nullptr, region_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) abort();
  region = static_cast<std::byte*>(address);
}

State& Get() {
  static State* const state = new State();
  return *state;
}

}  // namespace fake_cuda

using fake_cuda::Get;
using fake_cuda::State;

extern "C" {

void fake_cuda_configure(const char* settings) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  fake_cuda::Apply(state.settings, settings);
  if (state.settings.sticky == 0) state.sticky = CUDA_SUCCESS;
}

void fake_cuda_hold_copies(int hold) { Get().held = hold != 0; }

void fake_cuda_get_counts(fake_cuda_counts* counts) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  counts->contexts = state.contexts.size();
  counts->streams = state.streams.size();
  counts->parked = static_cast<uint64_t>(state.parked.load());
  counts->flushing_waits = state.flushing_waits;
  counts->copies = state.copies;
  counts->batches = state.batches;
  counts->pageable_copies = state.pageable;
  counts->launches = state.launches;
  counts->early_launches = state.early_launches;
  counts->shared_bytes = state.shared_bytes;
  counts->attributes = state.attributes;
  counts->waits = state.waits;
  counts->bytes_copied = state.bytes_copied;
  counts->reservations = state.reserved.size();
  counts->registrations = state.registered.size();
  counts->rdma_handles = static_cast<uint64_t>(
      std::count_if(state.handles.begin(), state.handles.end(), [](const auto& entry) {
        const fake_cuda::Physical& physical = *entry.second.first;
        return physical.ours && physical.rdma;
      }));
}

uint64_t fake_cuda_streams_of(int priority) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  return static_cast<uint64_t>(
      std::count_if(state.streams.begin(), state.streams.end(),
                    [&](CUstream stream) { return stream->priority == priority; }));
}

uint64_t fake_cuda_allocated(int device) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  const auto index = static_cast<size_t>(device);
  return index < state.used.size() ? state.used[index] : 0;
}

}  // extern "C"
