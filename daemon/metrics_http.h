// SPDX-License-Identifier: Apache-2.0
// Serves /metrics over HTTP/1.1 and nothing else: one request a connection, answered with what
// `text` returns on control. A connection lasts at most kScrapePatience. When there are more than
// kScrapes, the oldest is closed, so that a client who never ends a request holds nothing up.
#pragma once

#include <functional>
#include <string>

#include "absl/time/time.h"
#include "base/executor.h"
#include "daemon/door.h"

namespace ferry {

inline constexpr absl::Duration kScrapePatience = absl::Seconds(10);
inline constexpr size_t kScrapes = 32;

// Makes the handler for Door::Listen. `door`, `control` and what `text` uses must outlive the
// door's thread.
Door::OnAccept ServeMetrics(Door& door, Executor& control, std::function<std::string()> text);

}  // namespace ferry
