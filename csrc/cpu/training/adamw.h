// The gradient's norm, and AdamW's step, over all tensors of a model.
#pragma once

#include <cstdint>
#include <vector>

namespace encoder_engine {

// Elements that a thread takes at a time. Sums are of chunks, and then of their sums in order: their
// bits do not depend on the number of threads.
constexpr int64_t kOptimizerChunk = 1 << 15;

struct float_span {
    const float* data;
    int64_t size;
};

// Returns the sum of squares of all elements, in float64.
double sum_squares(const std::vector<float_span>& tensors, int num_threads);

// A parameter with its gradient and moments, and what differs from one parameter to the next.
struct adamw_tensor {
    float* parameter;
    const float* gradient;
    float* first;
    float* second;
    int64_t size;
    float learning_rate;  // over 1 - beta1^step
    float decay;          // 1 - learning rate * weight decay
    float correction;     // 1 / sqrt(1 - beta2^step)
};

struct adamw_call {
    // 1 - beta1, beta2 and 1 - beta2, each rounded once: of a float 0.999, 1 - beta2 is 1.3e-5 too small.
    float new_first, beta2, new_second;
    float epsilon;
    float gradient_factor;  // of the gradient, before anything else
    int num_threads;
};

void take_adamw_step(const adamw_call& call, const std::vector<adamw_tensor>& tensors);

}  // namespace encoder_engine
