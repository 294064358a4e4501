// SPDX-License-Identifier: Apache-2.0
// Timelines on streams of CUDA: 'defined' is a store that the stream makes, 'over' a wait of it,
// bounded by ParkedStreams. What the calls promise is said in ferry/ferry_cuda.h. Any thread.
#pragma once

#include <cstdint>
#include <memory>

#include "client/include/ferry/ferry_cuda.h"
#include "client/status.h"

namespace ferry::client {

class Session;

StatusPtr DefineOnStream(Session& session, ferry_cuda_stream stream, uint32_t timeline,
                         uint64_t value);
StatusPtr WaitOverOnStream(const std::shared_ptr<Session>& session, ferry_cuda_stream stream,
                           uint32_t timeline, uint64_t value);
StatusPtr FireOnStream(ferry_prepared* prepared, ferry_cuda_stream stream, uint64_t* firing);
StatusPtr WaitPreparedOnStream(ferry_prepared* prepared, ferry_cuda_stream stream, uint64_t firing);

}  // namespace ferry::client
