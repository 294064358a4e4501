// SPDX-License-Identifier: Apache-2.0
// /metrics over HTTP/1.1, nothing else: one request a connection, answered with what `text` makes
// on control.
#pragma once

#include <functional>
#include <string>

#include "base/executor.h"
#include "daemon/door.h"

namespace ferry {

// For Door::Listen. `door`, `control` and what `text` uses must outlive the door's thread.
Door::OnAccept ServeMetrics(Door& door, Executor& control, std::function<std::string()> text);

}  // namespace ferry
