// SPDX-License-Identifier: Apache-2.0
#include "transfer/ucx/ucx_transport.h"
