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

// How old a page may be that the port answers with. Whoever reaches the port makes control write at
// most so many pages a second, however often he asks.
inline constexpr absl::Duration kPageAge = absl::Milliseconds(100);

// Makes the handler for Door::Listen. A request is answered with a page that is at most `page_age`
// old. `door`, `control` and what `text` uses must outlive the door's thread.
Door::OnAccept ServeMetrics(Door& door, Executor& control, std::function<std::string()> text,
                            absl::Duration page_age);

}  // namespace ferry
