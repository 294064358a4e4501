// SPDX-License-Identifier: Apache-2.0
// Whether a library multiplies blocks with scales as docs/numerics.md says, on one GPU: it makes
// small products of all formats, with random scales and global scales, whose results are known. So
// neither a library's version nor its word is trusted: one that drops the global scale answers OK.
//
// Home: a thread that may block. The GPU's context is current in the call.
#pragma once

#include "absl/status/status.h"
#include "compute/cuda/run/cublaslt_products.h"
#include "device/cuda/cuda_device.h"

namespace ferry::compute {

// OK if all results are within the bound of block scales in the tensor core. UNIMPLEMENTED/
// FIELD_INVALID if one is not, or the library refuses a product, with the product and why. Another
// error if the products cannot be made now, such as for want of the GPU's memory.
absl::Status CheckBlockScales(CudaDevice& device, CublasLtProducts& products);

}  // namespace ferry::compute
