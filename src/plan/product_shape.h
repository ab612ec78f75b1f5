// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "plan/op_cost.h"

namespace tidegauge {

/// Which part of the best speed of products a product of this shape reaches, above 0 and at most 1.
///
///   columns  .-------.-------.---.   Each multiprocessor computes a tile of the result at a time,
///            | tile  | tile  | ##|   all of them a wave. What a tile has beyond the edges (##) is
///            |-------|-------|---|   wasted, and so are multiprocessors without a tile in the last
///     rows   | tile  | tile  | ##|   wave. Small tiles waste less but read more. Large depths may
///            '-------'-------'---'   be split among tiles; a small one does not hide the start.
///
/// Takes the best of several tiles and splits, as cuBLAS does. Of 183 products that SimuMax
/// (github.com/MooreThreads/SimuMax, configs/system) measured on an A100, from 0.45 to 0.80 of the
/// peak, 0.775 times this part is off by 4.3 % on average and by at most 27 %; a constant, by 5.8 %
/// and 37 %.
///
/// These were products of tensor cores. 1 if the shape or the number of multiprocessors is 0, which
/// means unknown.
double find_product_efficiency(const OpCost& cost, int multiprocessors);

/// The median of the measured products, for types that were not measured.
constexpr double kTypicalEfficiency = 0.93;

}  // namespace tidegauge
