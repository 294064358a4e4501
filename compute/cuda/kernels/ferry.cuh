// SPDX-License-Identifier: Apache-2.0
// What generated kernels are made of.
#pragma once

#include "blocks.cuh"
#include "memory.cuh"
#include "philox.cuh"
