/* SPDX-License-Identifier: Apache-2.0 */
/* What a session sees of the other nodes: the devices of the cluster, and who takes part in its
 * domains. Included by ferry.h. */
#ifndef FERRY_FERRY_CLUSTER_H_
#define FERRY_FERRY_CLUSTER_H_

#include <stddef.h>
#include <stdint.h>

#include "ferry/ferry_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* See ferry.h. */
typedef struct ferry_session ferry_session;

/* ---- Devices ---- */

/* A device anywhere in the cluster, for `remote_device` and `global_device` of what is posted. */
typedef struct ferry_cluster_device {
  uint64_t global_device_id;
  int kind;         /* 1 host, 2 GPU; 0: its daemon has not been heard of yet */
  int local;        /* 1: of the session's own daemon */
  const char* name; /* "gpu0"; "" as long as `kind` is 0; lives as long as the list */
  const char* node; /* whose it is; lives as long as the list */
} ferry_cluster_device;
typedef struct ferry_device_list ferry_device_list;
/* Those that the daemon knows now, by id: a call to it. PROTOCOL_VERSION from an older daemon. */
FERRY_API ferry_status* ferry_cluster_devices(ferry_session* session, ferry_device_list** devices);
FERRY_API size_t ferry_device_list_size(const ferry_device_list* devices);
FERRY_API ferry_cluster_device ferry_device_list_at(const ferry_device_list* devices, size_t index);
FERRY_API void ferry_device_list_free(ferry_device_list* devices); /* NULL is fine */

/* ---- Members of domains ---- */

/* The session is member `name` of a domain on a device of its own node, from now until it is closed
 * or its process dies; after each re-attach it joins again. `domain`, `domain_bytes`: as in
 * ferry_post_options, NULL and 0: the uid's. `name`: 1 to 64 bytes for people, such as "trainer-0";
 * joining again changes it.
 *
 * When the last member of a domain on a device is gone, whatever waits for its other half from
 * there, at any node, ends with PEER_CLIENT_GONE within a second instead of at its deadline; so
 * does what is posted later, until somebody joins there again, for ten minutes. Example: a trainer
 * joins on device 0 and is killed before it posts; a receive of device 9 from device 0 ends. Where
 * somebody joins, all must who post there: who has not joined counts as nobody.
 *
 * DEVICE_UNKNOWN: the device is not the node's. FIELD_INVALID. QUEUE_FULL: 64 domains and devices
 * are the most of one session. PROTOCOL_VERSION: the daemon is older. */
FERRY_API ferry_status* ferry_domain_join(ferry_session* session, const void* domain,
                                          size_t domain_bytes, uint64_t device, const char* name);

#ifdef __cplusplus
}
#endif

#endif /* FERRY_FERRY_CLUSTER_H_ */
