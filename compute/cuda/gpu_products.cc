// SPDX-License-Identifier: Apache-2.0
// Products: what is before one in memory first, then cuBLASLt or a kernel, then what is after it.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "compute/cuda/block_scales.h"
#include "compute/cuda/gpu_planner.h"
#include "compute/cuda/kernel_writer.h"
#include "compute/cuda/product_pieces.h"
#include "compute/numerics/scale_layout.h"

namespace ferry::compute {
namespace {

using A = Attribute;

constexpr uint32_t kMostAlignment = 256;  // libraries ask for no more

bool IsProduct(const Node& node) {
  return node.op == Op::kDotGeneral || node.op == Op::kBlockScaledDot;
}

// Is it there without anything being computed?
bool IsThere(const Program& program, const std::vector<OpIndex>& definitions, ValueId value) {
  const Node& node = program.nodes[definitions[value]];
  if (IsMove(node.op)) return IsThere(program, definitions, node.operands[0]);
  return node.op == Op::kInput || node.op == Op::kConstant || node.op == Op::kIota;
}

bool IsExactInBf16(DType type) {
  return type == DType::kBF16 || Contains(dtypes::kSmallFloats, type);
}

// What cuBLASLt multiplies factors of these types in, so that products are exact or f32's.
DType WorkTypeOf(DType left, DType right, DType sum) {
  if (sum == DType::kF64) return DType::kF64;
  if (IsExactInBf16(left) && IsExactInBf16(right)) return DType::kBF16;
  const auto is_half = [](DType type) {
    return type == DType::kF16 || Contains(dtypes::kSmallFloats, type);
  };
  return is_half(left) && is_half(right) ? DType::kF16 : DType::kF32;
}

// One dimension of `dims` of a dense tensor: their number and stride; nothing if they are not one.
struct Dimension {
  int64_t size = 1;
  int64_t stride = 0;
};
std::optional<Dimension> AsOne(const View& view, const std::vector<size_t>& dims) {
  View part;
  for (const size_t d : dims) {
    part.dims.push_back(view.dims[d]);
    part.strides.push_back(view.strides[d]);
  }
  part = Collapsed(part);
  if (part.dims.size() > 1) return std::nullopt;
  if (part.dims.empty()) return Dimension{};
  return Dimension{part.dims[0], part.strides[0]};
}

struct Factor {
  int64_t batches = 1;
  int64_t rows = 1;
  int64_t depth = 1;
  GpuMatrix matrix;
};

// A dense tensor as a matrix of rows by what is contracted.
std::optional<Factor> FactorOf(const TensorType& type, absl::Span<const int64_t> batch,
                               int64_t contract) {
  const View view = LinearView(type.dims);
  std::vector<size_t> batches(batch.begin(), batch.end());
  std::vector<size_t> rows;
  for (size_t d = 0; d < type.dims.size(); ++d) {
    const auto signed_d = static_cast<int64_t>(d);
    if (signed_d != contract && std::count(batch.begin(), batch.end(), signed_d) == 0) {
      rows.push_back(d);
    }
  }
  const auto of_batch = AsOne(view, batches);
  const auto of_row = AsOne(view, rows);
  const auto of_depth = AsOne(view, {static_cast<size_t>(contract)});
  if (!of_batch || !of_row || !of_depth) return std::nullopt;
  Factor factor{of_batch->size, of_row->size, of_depth->size, {}};
  // A dimension of one element has whichever stride makes the other one a matrix's.
  factor.matrix.batch_stride = of_batch->stride;
  factor.matrix.row_stride =
      factor.rows == 1 ? std::max<int64_t>(factor.depth * of_depth->stride, 1) : of_row->stride;
  factor.matrix.column_stride = factor.depth == 1 ? 1 : of_depth->stride;
  if (factor.matrix.row_stride != 1 && factor.matrix.column_stride != 1) return std::nullopt;
  return factor;
}

// Both factors of a product; nothing if one is no matrix, or there is nothing to multiply.
std::optional<std::pair<Factor, Factor>> FactorsOf(const Program& program, const Node& node) {
  const TensorType& left = program.types[node.operands[0]];
  const TensorType& right = program.types[node.operands[1]];
  const bool scaled = node.op == Op::kBlockScaledDot;
  const auto last = static_cast<int64_t>(left.dims.size() - 1);
  const std::vector<int64_t> batch(scaled ? left.dims.size() - 2 : 0, 0);
  const auto ints = [&](A attribute) { return node.attributes.Ints(attribute); };
  const auto a = scaled ? FactorOf(left, batch, last)
                        : FactorOf(left, ints(A::kLhsBatch), ints(A::kLhsContract)[0]);
  const auto b = scaled ? FactorOf(right, batch, last)
                        : FactorOf(right, ints(A::kRhsBatch), ints(A::kRhsContract)[0]);
  if (!a || !b || a->batches * a->rows * a->depth * b->rows == 0) return std::nullopt;
  return std::make_pair(*a, *b);
}

// A product of these factors, as cuBLASLt multiplies them; nothing of it has a place yet.
GpuProduct ProductOf(const Program& program, const Node& node,
                     const std::pair<Factor, Factor>& factors, bool native) {
  const DType left = program.types[node.operands[0]].dtype;
  const DType right = program.types[node.operands[1]].dtype;
  const bool scaled = node.op == Op::kBlockScaledDot;
  const DType sum = node.attributes.Has(A::kAccumulate)
                        ? static_cast<DType>(node.attributes.Int(A::kAccumulate))
                        : program.types[node.first_result].dtype;
  const DType work = WorkTypeOf(left, right, scaled ? DType::kF32 : sum);
  GpuProduct product;
  product.batches = factors.first.batches;
  product.m = factors.first.rows;
  product.n = factors.second.rows;
  product.k = factors.first.depth;
  product.compute = work == DType::kF64 ? DType::kF64 : DType::kF32;
  product.left = factors.first.matrix;
  product.right = factors.second.matrix;
  product.left.type = native ? left : work;
  product.right.type = native ? right : work;
  if (native) {
    product.block = static_cast<int64_t>(
        BlockOf(node, program.types[node.operands[0]], program.types[node.operands[2]]));
  }
  product.result.batch_stride = product.batches == 1 ? 0 : product.m * product.n;
  product.result.row_stride = product.n;
  product.result.column_stride = 1;
  return product;
}

// Is there a factor for all of the result, beside the scales of blocks?
bool HasGlobalScale(const Node& product) {
  return product.op == Op::kBlockScaledDot && product.operands.size() > 4;
}

// Is a dense store of the product, as a library makes it, all that is done with it?
bool IsOnlyStored(const Node& product, bool native, const std::vector<const Node*>& sinks) {
  return (native || !HasGlobalScale(product)) && sinks.size() == 1 && sinks[0]->op == Op::kStore &&
         sinks[0]->operands[0] == product.first_result && !sinks[0]->attributes.Has(A::kStrides);
}

Node Elementwise(Op op, std::vector<ValueId> operands) {
  Node node;
  node.op = op;
  node.operands = std::move(operands);
  return node;
}

}  // namespace

absl::StatusOr<ValueId> GpuPlanner::InMemory(const Step& step, ValueId value, Part& part,
                                             std::vector<GpuPlace>& places,
                                             std::vector<GpuCommand>& commands) {
  const Program& program = step.program;
  if (!IsThere(program, DefinitionsOf(program), value)) {
    const TensorType& type = program.types[value];
    ASSIGN_OR_RETURN(const GpuPlace place, Compute(step, value, type.dtype, nullptr, commands));
    part.Read(value, part.AddBuffer(*BytesOf(type)));
    places.push_back(place);
  }
  return part.Take(value);
}

absl::StatusOr<GpuPlace> GpuPlanner::Compute(const Step& step, ValueId value, DType type,
                                             const Node* dequantize,
                                             std::vector<GpuCommand>& commands) {
  const Program& program = step.program;
  std::vector<GpuPlace> places;
  for (const Binding& binding : step.bindings) places.push_back(PlaceOf(binding));
  const TensorType made = {type, program.types[value].dims};
  const uint64_t bytes = *BytesOf(made);
  const GpuPlace place = Temporary(bytes, "a factor");
  Part part(program);
  ValueId result = part.Take(value);
  if (dequantize != nullptr) {
    Node node = *dequantize;
    ASSIGN_OR_RETURN(const ValueId scales,
                     InMemory(step, dequantize->operands[1], part, places, commands));
    node.operands = {result, scales};
    result = part.program().Result(part.program().Append(std::move(node), {made}));
  } else if (type != program.types[value].dtype) {
    Node node = Elementwise(Op::kConvert, {result});
    result = part.program().Result(part.program().Append(std::move(node), {made}));
  }
  Node store = Elementwise(Op::kStore, {result});
  store.buffers = {part.AddBuffer(bytes)};
  part.program().Append(std::move(store), {});
  places.push_back(place);
  RETURN_IF_ERROR(AddKernel(part.program(), std::move(places), commands, step.label));
  return place;
}

std::optional<GpuPlace> GpuPlanner::DenseInput(const Step& step, ValueId value) const {
  const Node& node = step.program.nodes[DefinitionsOf(step.program)[value]];
  if (node.op != Op::kInput || node.attributes.Has(A::kStrides)) return std::nullopt;
  GpuPlace place = PlaceOf(step.bindings[node.buffers[0]]);
  place.offset += static_cast<uint64_t>(node.attributes.Int(A::kOffset));
  constexpr uint32_t kLeastAlignment = 16;
  if (AlignmentOf(place) < kLeastAlignment) return std::nullopt;
  return place;
}

// A factor in memory, in `type`, and with scales if tensor cores are to take them.
absl::Status GpuPlanner::AddFactor(const Step& step, const Node& product, size_t index, bool native,
                                   GpuMatrix& matrix, std::vector<GpuCommand>& commands) {
  const Program& program = step.program;
  const ValueId value = product.operands[index];
  const bool scaled = product.op == Op::kBlockScaledDot && product.operands.size() > index + 2;
  const std::optional<GpuPlace> there = DenseInput(step, value);
  if (there && (native || !scaled) && program.types[value].dtype == matrix.type) {
    matrix.place = *there;
  } else if (native) {
    ASSIGN_OR_RETURN(matrix.place, Compute(step, value, matrix.type, nullptr, commands));
  } else if (scaled) {
    Node node;
    node.op = Op::kDequantizeBlock;
    node.operands = {value, product.operands[index + 2]};
    if (product.attributes.Has(A::kBlock)) {
      node.attributes.Set(A::kBlock, product.attributes.Int(A::kBlock));
    }
    ASSIGN_OR_RETURN(matrix.place, Compute(step, value, matrix.type, &node, commands));
  } else {
    ASSIGN_OR_RETURN(matrix.place, Compute(step, value, matrix.type, nullptr, commands));
  }
  matrix.alignment = std::min(AlignmentOf(matrix.place), kMostAlignment);
  return absl::OkStatus();
}

// All scales of a product that tensor cores take.
absl::Status GpuPlanner::AddScales(const Step& step, const Node& node, const ProductPieces& pieces,
                                   GpuProduct& product, std::vector<GpuCommand>& commands) {
  for (const size_t index : {0, 1}) {
    GpuMatrix& matrix = index == 0 ? product.left : product.right;
    RETURN_IF_ERROR(AddSwizzled(step, node, index, matrix, commands));
    if (pieces.one()) continue;
    const TensorType needed = NeededScales(step.program, node, index);
    const std::vector<Program> cuts = ScaleCuts(needed, pieces.length / product.block);
    if (cuts.empty()) continue;
    const GpuPlace whole = *matrix.scales;
    matrix.scales = Temporary(cuts[0].buffers[1].bytes, "scales of pieces");
    for (const Program& cut : cuts) {
      RETURN_IF_ERROR(AddKernel(cut, {whole, *matrix.scales}, commands, step.label));
    }
  }
  if (!HasGlobalScale(node)) return absl::OkStatus();
  return AddGlobalScale(step, node.operands[4], product, commands);
}

// The scales of a factor in memory, as tensor cores read them.
absl::Status GpuPlanner::AddSwizzled(const Step& step, const Node& product, size_t index,
                                     GpuMatrix& matrix, std::vector<GpuCommand>& commands) {
  const Program& program = step.program;
  const ValueId plain = product.operands[index + 2];
  const TensorType needed = NeededScales(program, product, index);
  matrix.scale_type = needed.dtype;
  // Those that come swizzled are there already.
  const Node& made_by = program.nodes[DefinitionsOf(program)[plain]];
  if (made_by.op == Op::kUnswizzleScales && AreTiles(program.types[plain], needed)) {
    matrix.scales = DenseInput(step, made_by.operands[0]);
    if (matrix.scales) return absl::OkStatus();
  }
  std::vector<GpuPlace> places;
  for (const Binding& binding : step.bindings) places.push_back(PlaceOf(binding));
  Part part(program);
  ASSIGN_OR_RETURN(const ValueId scales, InMemory(step, plain, part, places, commands));
  AddSwizzle(scales, needed, part);
  places.push_back(Temporary(part.program().buffers.back().bytes, "swizzled scales"));
  matrix.scales = places.back();
  return AddKernel(part.program(), std::move(places), commands, step.label);
}

// May tensor cores take the scales as they are?
bool GpuPlanner::IsNative(const Program& program, const Node& product) const {
  return options_.native_blocks && !options_.dequantized.contains(step_) &&
         made_.arch.block_scales && program.numerics.accumulation == Accumulation::kNativeBlock &&
         TakesBlocks(program, product);
}

// Where a product that is only stored may be made at once. Nothing if it may not: then it is made
// in memory of the step.
std::optional<GpuPlace> GpuPlanner::PlaceOfResult(const Step& step, const GpuProduct& product,
                                                  const Node& sink) const {
  GpuPlace place = PlaceOf(step.bindings[sink.buffers[0]]);
  place.offset += static_cast<uint64_t>(sink.attributes.Int(A::kOffset));
  const auto bytes = [](const GpuMatrix& matrix, int64_t batches, int64_t rows, int64_t columns) {
    const int64_t last = (batches - 1) * matrix.batch_stride + (rows - 1) * matrix.row_stride +
                         (columns - 1) * matrix.column_stride;
    return BytesOf(matrix.type, static_cast<uint64_t>(last) + 1);
  };
  const uint64_t made = bytes(product.result, product.batches, product.m, product.n);
  const auto is_read = [&](const GpuMatrix& factor, int64_t rows) {
    if (factor.scales) {
      const uint64_t scales = SwizzledScaleBytes(static_cast<uint64_t>(rows),
                                                 static_cast<uint64_t>(product.k / product.block));
      if (Overlap(place, made, *factor.scales, scales)) return true;
    }
    return Overlap(place, made, factor.place, bytes(factor, product.batches, rows, product.k));
  };
  if (is_read(product.left, product.m) || is_read(product.right, product.n)) return std::nullopt;
  return place;
}

// False: cuBLASLt has no such product.
absl::StatusOr<bool> GpuPlanner::AddLibraryProduct(const Step& step, const Node& node,
                                                   std::vector<GpuCommand>& commands) {
  const Program& program = step.program;
  const TensorType& result = program.types[node.first_result];
  if (!options_.library_products || options_.own_products.contains(step_) ||
      !InfoOf(result.dtype).floating) {
    return false;
  }
  const auto factors = FactorsOf(program, node);
  if (!factors) return false;
  bool native = IsNative(program, node);
  GpuProduct product = ProductOf(program, node, *factors, native);
  std::optional<ProductPieces> pieces = PiecesOf(product, result.dtype);
  if (native && !pieces) {  // dequantised it is fewer calls
    native = false;
    product = ProductOf(program, node, *factors, native);
    pieces = PiecesOf(product, result.dtype);
  }
  if (!pieces) return false;
  RETURN_IF_ERROR(AddFactor(step, node, 0, native, product.left, commands));
  RETURN_IF_ERROR(AddFactor(step, node, 1, native, product.right, commands));
  if (native) RETURN_IF_ERROR(AddScales(step, node, *pieces, product, commands));
  // Its result is where it is to be, or in memory for what is after it.
  std::vector<const Node*> sinks;
  for (const Node& other : program.nodes) {
    if (other.op == Op::kStore || other.op == Op::kAccumulate) sinks.push_back(&other);
  }
  const bool has_type =
      result.dtype == product.compute ||
      (pieces->one() && result.dtype == (native ? DType::kBF16 : product.left.type));
  std::optional<GpuPlace> place;
  if (has_type && IsOnlyStored(node, native, sinks)) {
    product.result.type = result.dtype;
    place = PlaceOfResult(step, product, *sinks[0]);
  }
  if (!place) product.result.type = product.compute;
  const uint64_t bytes = *BytesOf({product.result.type, result.dims});
  const bool at_once = place && pieces->sums == 1;
  product.result.place =
      at_once ? *place : Temporary(static_cast<uint64_t>(pieces->sums) * bytes, "a product");
  product.result.alignment = std::min(AlignmentOf(product.result.place), kMostAlignment);
  product.workspace_bytes = made_.arch.workspace;
  product.workspace = Temporary(product.workspace_bytes, "cuBLASLt's workspace");
  for (GpuProduct& call : CallsOf(product, *pieces)) {
    GpuCommand command;
    command.accumulation = native ? Accumulation::kNativeBlock : Accumulation::kExactProducts;
    command.kind = GpuCommand::Kind::kProduct;
    command.step = step_;
    command.product = std::move(call);
    commands.push_back(std::move(command));
  }
  if (pieces->sums > 1) {
    RETURN_IF_ERROR(AddSums(step, pieces->sums, result, place, product.result, commands));
  }
  if (place) return true;
  RETURN_IF_ERROR(AddAfterProduct(step, node, product, sinks, commands));
  return true;
}

// Adds up `count` sums of a product, in f64, and has `sums` be what they come to, at `place` if
// that is set.
absl::Status GpuPlanner::AddSums(const Step& step, int64_t count, const TensorType& result,
                                 const std::optional<GpuPlace>& place, GpuMatrix& sums,
                                 std::vector<GpuCommand>& commands) {
  const TensorType one = {sums.type, result.dims};
  TensorType all = one;
  all.dims = {count, static_cast<int64_t>(*BytesOf(one) / BytesOf(one.dtype, 1))};
  Program adds;
  adds.numerics = step.program.numerics;
  const auto buffer = [&](uint64_t bytes) {
    Buffer made;
    made.bytes = bytes;
    adds.buffers.push_back(std::move(made));
    return static_cast<uint32_t>(adds.buffers.size() - 1);
  };
  Node input;
  input.op = Op::kInput;
  input.buffers = {buffer(*BytesOf(all))};
  Node reduce = Elementwise(Op::kReduce, {adds.Result(adds.Append(std::move(input), {all}))});
  reduce.attributes.Set(A::kReduction, static_cast<int64_t>(Reduction::kSum));
  reduce.attributes.Set(A::kDimensions, std::vector<int64_t>{0});
  reduce.attributes.Set(A::kAccumulate, static_cast<int64_t>(DType::kF64));
  Node store = Elementwise(
      Op::kStore, {adds.Result(adds.Append(std::move(reduce), {{one.dtype, {all.dims[1]}}}))});
  store.buffers = {buffer(*BytesOf(one))};
  adds.Append(std::move(store), {});
  const GpuPlace from = sums.place;
  sums.place = place ? *place : Temporary(*BytesOf(one), "a product, added up");
  return AddKernel(adds, {from, sums.place}, commands, step.label);
}

absl::Status GpuPlanner::AddGlobalScale(const Step& step, ValueId scale, GpuProduct& product,
                                        std::vector<GpuCommand>& commands) {
  constexpr uint64_t kBytes = 3 * sizeof(float);
  const TensorType number = {DType::kF32, {}};
  Part part(step.program);
  Program& made = part.program();
  ValueId value = part.Take(scale);
  if (made.types[value] != number) {
    value = made.Result(made.Append(Elementwise(Op::kConvert, {value}), {number}));
  }
  std::vector<ValueId> values = {value};
  for (const float each : {0.0f, 1.0f}) {
    Node constant;
    constant.op = Op::kConstant;
    std::string bytes(sizeof(float), '\0');
    std::memcpy(bytes.data(), &each, sizeof(float));
    constant.attributes.Set(A::kSplat, std::move(bytes));
    values.push_back(made.Result(made.Append(std::move(constant), {number})));
  }
  const uint32_t buffer = part.AddBuffer(kBytes);
  for (size_t i = 0; i < values.size(); ++i) {
    Node store = Elementwise(Op::kStore, {values[i]});
    store.buffers = {buffer};
    if (i > 0) store.attributes.Set(A::kOffset, static_cast<int64_t>(i * sizeof(float)));
    made.Append(std::move(store), {});
  }
  std::vector<GpuPlace> places;
  for (const Binding& binding : step.bindings) places.push_back(PlaceOf(binding));
  places.push_back(Temporary(kBytes, "a global scale"));
  product.factors = places.back();
  return AddKernel(made, std::move(places), commands, step.label);
}

absl::Status GpuPlanner::AddAfterProduct(const Step& step, const Node& node,
                                         const GpuProduct& product,
                                         const std::vector<const Node*>& sinks,
                                         std::vector<GpuCommand>& commands) {
  const TensorType& result = step.program.types[node.first_result];
  const TensorType summed = {product.result.type, result.dims};
  Part rest(step.program);
  Program& made = rest.program();
  Node input;
  input.op = Op::kInput;
  input.buffers = {rest.AddBuffer(*BytesOf(summed))};
  ValueId value = made.Result(made.Append(std::move(input), {summed}));
  const auto convert = [&](ValueId from, DType type) {
    if (made.types[from].dtype == type) return from;
    const TensorType converted = {type, made.types[from].dims};
    return made.Result(made.Append(Elementwise(Op::kConvert, {from}), {converted}));
  };
  if (HasGlobalScale(node) && !product.factors) {  // rounded once
    value = convert(value, DType::kF64);
    const ValueId factor = convert(convert(rest.Take(node.operands[4]), DType::kF32), DType::kF64);
    Node spread = Elementwise(Op::kBroadcastInDim, {factor});
    const ValueId all = made.Result(made.Append(std::move(spread), {made.types[value]}));
    value = made.Result(made.Append(Elementwise(Op::kMultiply, {value, all})));
  }
  rest.Set(node.first_result, convert(value, result.dtype));
  for (const Node* sink : sinks) rest.Put(*sink);
  std::vector<GpuPlace> places;
  for (const Binding& binding : step.bindings) places.push_back(PlaceOf(binding));
  places.push_back(product.result.place);
  return AddKernel(made, std::move(places), commands, step.label);
}

absl::Status GpuPlanner::AddProduct(const Step& step, std::vector<GpuCommand>& commands) {
  const Program& program = step.program;
  const std::vector<OpIndex> definitions = DefinitionsOf(program);
  const auto found = std::find_if(program.nodes.begin(), program.nodes.end(), IsProduct);
  FERRY_CHECK(found != program.nodes.end());
  ASSIGN_OR_RETURN(const bool by_library, AddLibraryProduct(step, *found, commands));
  if (by_library) return absl::OkStatus();
  std::vector<GpuPlace> places;
  for (const Binding& binding : step.bindings) places.push_back(PlaceOf(binding));
  Part rest(program);
  std::map<ValueId, bool> factors;
  for (const ValueId value : found->operands) {
    if (IsThere(program, definitions, value) || !factors.try_emplace(value).second) continue;
    ASSIGN_OR_RETURN(const GpuPlace place,
                     Compute(step, value, program.types[value].dtype, nullptr, commands));
    rest.Read(value, rest.AddBuffer(*BytesOf(program.types[value])));
    places.push_back(place);
  }
  for (const Node& node : program.nodes) {
    if (node.op == Op::kStore || node.op == Op::kAccumulate) rest.Put(node);
  }
  return AddKernel(rest.program(), std::move(places), commands, step.label);
}

}  // namespace ferry::compute
