// SPDX-License-Identifier: Apache-2.0
// /metrics over HTTP/1.1, nothing else: one request a connection, answered with what `text` makes
// on control. A connection lasts kScrapePatience, and of more than kScrapes at once the oldest
// goes: who never ends a request holds nothing.
#pragma once

#include <functional>
#include <string>

#include "absl/time/time.h"
#include "base/executor.h"
#include "daemon/door.h"

namespace ferry {

inline constexpr absl::Duration kScrapePatience = absl::Seconds(10);
inline constexpr size_t kScrapes = 32;

// For Door::Listen. `door`, `control` and what `text` uses must outlive the door's thread.
Door::OnAccept ServeMetrics(Door& door, Executor& control, std::function<std::string()> text);

}  // namespace ferry
