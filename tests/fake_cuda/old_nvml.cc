// SPDX-License-Identifier: Apache-2.0
// A libnvidia-ml (libferry_fake_old_nvml.so) that has only what Ferry cannot do without: it knows a
// GPU by any UUID, and nothing of what joins GPUs.
#include <cstdio>

struct OldNvmlMemory {
  unsigned long long total, free, used;
};

extern "C" {

int nvmlInit_v2() { return 0; }

int nvmlSystemGetDriverVersion(char* version, unsigned length) {
  snprintf(version, length, "300.0-fake");
  return 0;
}

int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  static int any = 0;
  (void)uuid;
  *device = &any;
  return 0;
}

int nvmlDeviceGetMemoryInfo(void* device, OldNvmlMemory* memory) {
  (void)device;
  *memory = {100, 60, 40};
  return 0;
}

}  // extern "C"
