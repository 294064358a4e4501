/* SPDX-License-Identifier: Apache-2.0 */
/* What a session sees of the other nodes: the devices of the cluster, and the members of its
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

/* A device anywhere in the cluster: what `remote_device` and `global_device` of a post name. */
typedef struct ferry_cluster_device {
  uint64_t global_device_id;
  int kind;         /* 1 host, 2 GPU; 0: its daemon has not been heard of yet */
  int local;        /* 1: a device of the session's own daemon */
  const char* name; /* "gpu0"; "" as long as `kind` is 0; lives as long as the list */
  const char* node; /* the node that has it; lives as long as the list */
} ferry_cluster_device;
typedef struct ferry_device_list ferry_device_list;
/* Asks the daemon for the devices that it knows now, by id. */
FERRY_API ferry_status* ferry_cluster_devices(ferry_session* session, ferry_device_list** devices);
FERRY_API size_t ferry_device_list_size(const ferry_device_list* devices);
FERRY_API ferry_cluster_device ferry_device_list_at(const ferry_device_list* devices, size_t index);
FERRY_API void ferry_device_list_free(ferry_device_list* devices); /* NULL is fine */

/* ---- Members of domains ---- */

/* Makes the session member `name` of a domain on a device of its own node, until it is closed or
 * its process dies; after each re-attach it joins again. `domain`, `domain_bytes`: as in
 * ferry_post_options; NULL and 0: the uid's domain. `name`: 1 to 64 bytes for people, such as
 * "trainer-0"; joining again changes it.
 *
 * When the last member of a domain on a device is gone, every transfer at any node that waits for
 * its other half from there ends with PEER_CLIENT_GONE within a second, instead of at its deadline.
 * For ten minutes transfers that are posted later end likewise, until somebody joins there again.
 * Example: a trainer joins on device 0 and is killed before it posts; a receive on device 9 from
 * device 0 ends. If one poster of a domain on a device joins, all must: a poster that has not
 * joined counts as nobody.
 *
 * DEVICE_UNKNOWN: the node has no such device. FIELD_INVALID: a bad argument. QUEUE_FULL: the
 * session has joined 64 (domain, device) pairs already. */
FERRY_API ferry_status* ferry_domain_join(ferry_session* session, const void* domain,
                                          size_t domain_bytes, uint64_t device, const char* name);

#ifdef __cplusplus
}
#endif

#endif /* FERRY_FERRY_CLUSTER_H_ */
