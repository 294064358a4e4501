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
constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;
constexpr int kInsufficientSize = 7;
constexpr unsigned kGpu = 0, kSwitch = 2;  // what a link leads to
constexpr unsigned kP2pNvlink = 2;
constexpr unsigned kP2pOk = 0, kP2pNotSupported = 5;

struct Memory {
  unsigned long long total, free, used;
};

struct Pci {
  char bus_id_legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
static_assert(sizeof(Pci) == 68, "nvmlPciInfo_t");

// Of the machine; -1 if it is none.
int IndexOf(void* device) {
  const auto index = static_cast<int>(reinterpret_cast<intptr_t>(device)) - 1;
  return index >= 0 && index < Get().settings.devices ? index : -1;
}

void Place(unsigned bus, Pci* pci) {
  *pci = {};
  pci->bus = bus;
  snprintf(pci->bus_id, sizeof(pci->bus_id), "00000000:%02X:00.0", bus);
}

// Whether `device` has this link: to which GPU it leads, if there are no switches. The links of a
// GPU are in the order of the others.
int FindLink(void* device, unsigned link, int* other) {
  const Settings& settings = Get().settings;
  const int index = IndexOf(device);
  if (index < 0) return kInvalidArgument;
  if (settings.virtual_gpus || settings.nvlinks == 0) return kNotSupported;
  const auto each = static_cast<unsigned>(settings.nvlinks);
  const unsigned all =
      settings.nvswitch ? each : each * static_cast<unsigned>(settings.devices - 1);
  if (link >= all) return kInvalidArgument;
  *other = static_cast<int>(link / each);
  if (*other >= index) ++*other;
  return kSuccess;
}

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

int nvmlDeviceGetPciInfo_v3(void* device, Pci* pci) {
  const int index = IndexOf(device);
  if (index < 0) return kInvalidArgument;
  Place(PciBusOf(index), pci);
  return kSuccess;
}

int nvmlDeviceGetNvLinkState(void* device, unsigned link, unsigned* active) {
  int other = 0;
  if (const int error = FindLink(device, link, &other); error != kSuccess) return error;
  const Settings& settings = Get().settings;
  const auto within = static_cast<int>(link) % settings.nvlinks;
  *active = within < settings.nvlinks - settings.nvlinks_down;
  return kSuccess;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void* device, unsigned link, unsigned* type) {
  int other = 0;
  if (const int error = FindLink(device, link, &other); error != kSuccess) return error;
  *type = Get().settings.nvswitch ? kSwitch : kGpu;
  return kSuccess;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned link, Pci* pci) {
  int other = 0;
  if (const int error = FindLink(device, link, &other); error != kSuccess) return error;
  Place(Get().settings.nvswitch ? 0xe0u : PciBusOf(other), pci);
  return kSuccess;
}

int nvmlDeviceGetP2PStatus(void* one, void* other, unsigned what, unsigned* status) {
  const Settings& settings = Get().settings;
  if (IndexOf(one) < 0 || IndexOf(other) < 0 || one == other || what != kP2pNvlink) {
    return kInvalidArgument;
  }
  if (settings.virtual_gpus) return kNotSupported;
  *status = settings.nvlinks > 0 && !settings.no_peer ? kP2pOk : kP2pNotSupported;
  return kSuccess;
}

int nvmlDeviceGetMemoryAffinity(void* device, unsigned words, unsigned long* nodes,
                                unsigned scope) {
  const int index = IndexOf(device);
  if (index < 0 || scope > 1) return kInvalidArgument;
  if (words == 0) return kInsufficientSize;
  if (Get().settings.virtual_gpus) return kNotSupported;
  memset(nodes, 0, words * sizeof(*nodes));
  nodes[0] = 1ul << NumaNodeOf(index);
  return kSuccess;
}

}  // extern "C"
