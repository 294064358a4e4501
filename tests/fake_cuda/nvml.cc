// SPDX-License-Identifier: Apache-2.0
// As much of libnvidia-ml as Ferry asks, over the same devices; it needs no context, and counts
// what all contexts of this process took.
#include <cstdio>
#include <cstring>
#include <string>

#include "state.h"

using namespace fake_cuda;

namespace {

constexpr int kSuccess = 0;
constexpr int kInvalidArgument = 2;
constexpr int kNotFound = 6;

struct Memory {
  unsigned long long total, free, used;
};

}  // namespace

extern "C" {

int nvmlInit_v2() { return kSuccess; }
int nvmlShutdown() { return kSuccess; }
const char* nvmlErrorString(int code) {
  return code == kSuccess ? "Success" : "as the fake answers";
}

int nvmlSystemGetDriverVersion(char* version, unsigned length) {
  snprintf(version, length, "580.0-fake");
  return kSuccess;
}

int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  for (int i = 0; i < Get().settings.devices; ++i) {
    unsigned char bytes[16];
    UuidOf(i, bytes);
    std::string text = "GPU-";
    for (int b = 0; b < 16; ++b) {
      char digits[4];
      snprintf(digits, sizeof(digits), "%02x", bytes[b]);
      if (b == 4 || b == 6 || b == 8 || b == 10) text += '-';
      text += digits;
    }
    if (text != uuid) continue;
    *device = reinterpret_cast<void*>(static_cast<intptr_t>(i + 1));
    return kSuccess;
  }
  return kNotFound;
}

int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  State& state = Get();
  std::lock_guard lock(state.mutex);
  const auto index = static_cast<size_t>(reinterpret_cast<intptr_t>(device) - 1);
  if (index >= static_cast<size_t>(state.settings.devices)) return kInvalidArgument;
  memory->total = state.settings.memory;
  memory->used = index < state.used.size() ? state.used[index] : 0;
  memory->free = memory->total - memory->used;
  return kSuccess;
}

int nvmlDeviceGetMigMode(void* device, unsigned* current, unsigned* pending) {
  (void)device;
  *current = *pending = 0;
  return kSuccess;
}

}  // extern "C"
