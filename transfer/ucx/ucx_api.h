// SPDX-License-Identifier: Apache-2.0
// The vendor table of UCX: the functions of libucp that Ferry calls, found at run time, so that a
// machine without UCX has no route `ucx` and says why. Tests may fill a table with fakes. Constant
// after LoadUcx().
#pragma once

#include <ucp/api/ucp.h>

namespace ferry {

#define FERRY_UCX_FUNCTIONS(X)  \
  X(ucp_get_version)            \
  X(ucp_get_version_string)     \
  X(ucp_config_read)            \
  X(ucp_config_modify)          \
  X(ucp_config_release)         \
  X(ucp_init_version)           \
  X(ucp_cleanup)                \
  X(ucp_context_query)          \
  X(ucp_mem_map)                \
  X(ucp_mem_unmap)              \
  X(ucp_worker_create)          \
  X(ucp_worker_destroy)         \
  X(ucp_worker_get_address)     \
  X(ucp_worker_release_address) \
  X(ucp_worker_progress)        \
  X(ucp_worker_get_efd)         \
  X(ucp_worker_arm)             \
  X(ucp_ep_create)              \
  X(ucp_ep_close_nbx)           \
  X(ucp_tag_send_nbx)           \
  X(ucp_tag_recv_nbx)           \
  X(ucp_tag_probe_nb)           \
  X(ucp_tag_msg_recv_nbx)       \
  X(ucp_request_cancel)         \
  X(ucp_request_check_status)   \
  X(ucp_request_free)           \
  X(ucs_status_string)

struct UcxApi {
#define FERRY_UCX_POINTER(name) decltype(&::name) name = nullptr;
  FERRY_UCX_FUNCTIONS(FERRY_UCX_POINTER)
#undef FERRY_UCX_POINTER
};

}  // namespace ferry
