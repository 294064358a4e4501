// SPDX-License-Identifier: Apache-2.0
// The C boundary for what a session sees of other nodes (ferry_cluster.h). A list of devices is
// constant, as the daemon once told it; for any thread; the application owns it.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/api.h"
#include "client/problems.h"

struct ferry_device_list : ferry::client::Handle<0x6465'7669'6365'7306> {
  std::vector<ferry::client::ClusterDeviceInfo> devices;
};

extern "C" {

using namespace ferry::client;  // NOLINT: the functions below are the boundary itself

ferry_status* ferry_cluster_devices(ferry_session* session, ferry_device_list** devices) {
  FERRY_CLIENT_NEEDS(session);
  FERRY_CLIENT_NEEDS(devices);
  std::vector<ClusterDeviceInfo> told;
  if (StatusPtr error = Kept(session)->ListClusterDevices(&told)) return error.release();
  auto made = std::make_unique<ferry_device_list>();
  made->devices = std::move(told);
  *devices = made.release();
  return nullptr;
}

size_t ferry_device_list_size(const ferry_device_list* devices) {
  return Usable(devices) ? devices->devices.size() : 0;
}

ferry_cluster_device ferry_device_list_at(const ferry_device_list* devices, size_t index) {
  if (index >= ferry_device_list_size(devices)) return {0, 0, 0, "", ""};
  const ClusterDeviceInfo& known = devices->devices[index];
  return {known.device.id, known.device.kind, known.local ? 1 : 0, known.device.name.c_str(),
          known.node.c_str()};
}

ferry_status* ferry_domain_join(ferry_session* session, const void* domain, size_t domain_bytes,
                                uint64_t device, const char* name) {
  FERRY_CLIENT_NEEDS(session);
  FERRY_CLIENT_NEEDS(name);
  if (domain_bytes != 0) FERRY_CLIENT_NEEDS(domain);
  Problems problems("joining a domain");
  problems.CheckList([] { return std::string(); }, "domain", domain, "domain_bytes", domain_bytes);
  if (StatusPtr error = problems.Take()) return error.release();
  DomainMember member{std::string(static_cast<const char*>(domain), domain_bytes), device, name};
  return Kept(session)->JoinDomain(member).release();
}

void ferry_device_list_free(ferry_device_list* devices) {
  if (Usable(devices)) delete devices;
}

}  // extern "C"
