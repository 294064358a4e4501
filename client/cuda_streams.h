// SPDX-License-Identifier: Apache-2.0
// Timelines on CUDA's streams. 'defined' is a store that the stream makes; 'over' is a wait of the
// stream. ParkedStreams bounds how many streams wait. ferry/ferry_cuda.h says what the calls
// promise. Any thread.
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
