// fp32 loops for the CPU that do in one pass over memory the work of a chain of tensor operations,
// which takes many. Tensor versions beside their callers serve every other device and dtype, and
// are the reference of the tests.
//
// All arrays are dense and row-major; they must not overlap unless a comment says "in place". Each
// call uses the calling thread alone; its callers share rows among the threads of a worker. The
// same input gives the same bits on the same machine. A value that is not finite never becomes
// finite.

#ifndef TRAINER_CPU_KERNELS_H_
#define TRAINER_CPU_KERNELS_H_

#include <cstdint>

namespace gpuctl::trainer::cpu {

// The softmax of logits [vocab, rows]: a column is a token's distribution. It takes three steps, so
// that a part of the vocabulary is summed while it is in the processor's caches.
//
// First, for a part of the vocabulary: each column's largest value, and its sum of
// exp(value - largest).
void SumColumns(int64_t rows, int64_t vocab, const float* logits, float* largest, float* sums);

// Then the loss. `largest` and `sums`, [parts, rows], are those of the parts; their first rows
// become what the last step takes: each column's largest value, and the factor of its gradient.
struct ColumnTargets {
  const int64_t* targets;  // below 0: the column adds no loss, and its factor is 0
  const float* logits;     // those of the targets
  const float* weights;    // null: each column counts once
};
// Returns scale * the (weighted) sum of the columns' losses.
double SumLosses(int64_t rows, int64_t parts, const ColumnTargets& of, float scale, float* largest,
                 float* sums);

// Last, for a part of the vocabulary: the logits become factor * exp(value - largest), which lacks
// only the targets' own part to be the gradient; 0 where the factor is 0.
void ScaleColumns(int64_t rows, int64_t vocab, const float* largest, const float* factors,
                  float* logits);

// The same softmax for a panel (sgemm.h) of logits, [vocab, 16], against a reference of each column
// that needs not be its largest value. First each column's largest value.
void LargestOfPanel(int64_t vocab, const float* logits, float* largest);
// Then the logits become exp(logit - reference); their sums are added to `sums`.
void ExpPanel(int64_t vocab, const float* reference, float* logits, float* sums);
// Multiplies the columns of a panel [rows, 16] by factors, in place.
void ScalePanel(int64_t rows, const float* factors, float* values);
// Adds the columns of a panel [rows, 16], each times a factor, to those of `sums`.
void AddPanel(int64_t rows, const float* factors, const float* values, float* sums);

// The keys that the rows of scores [matrices, rows, keys] may see: of the first `visible + i` keys
// (at most `keys`), row i may see the last `window`. Where windows hold several documents, row i of
// a matrix may see no key before starts[i] - low of the matrix's window.
struct VisibleKeys {
  int64_t keys;
  int64_t visible;
  int64_t window;
  const int64_t* starts = nullptr;  // null: a window is one document
  int64_t starts_stride = 0;        // from one window to the next
  int64_t window_matrices = 1;      // matrices of one window
  int64_t low = 0;
};
// Computes the softmax of the matrices [first, last) of scores [matrices, rows, keys], in place;
// hidden keys become 0.
void CausalSoftmax(int64_t first, int64_t last, int64_t rows, const VisibleKeys& of, float* scores);
// Computes d_scores = p (d_p - sum over the row of d_p p), in place of d_p.
void CausalSoftmaxBackward(int64_t first, int64_t last, int64_t rows, const VisibleKeys& of,
                           const float* p, float* d_p);

// Computes out [rows, ffn] = silu(gate) up for rows [gate, up] of 2 ffn.
void SwiGlu(int64_t rows, int64_t ffn, const float* gate_up, float* out);
void SwiGluBackward(int64_t rows, int64_t ffn, const float* gate_up, const float* d_out,
                    float* d_gate_up);
// Does the same with gelu(gate) by tanh.
void GeGlu(int64_t rows, int64_t ffn, const float* gate_up, float* out);
void GeGluBackward(int64_t rows, int64_t ffn, const float* gate_up, const float* d_out,
                   float* d_gate_up);

// Computes out = x scale weight with scale [rows] = 1 / sqrt(mean of squares + eps).
void RmsNorm(int64_t rows, int64_t width, float eps, const float* x, const float* weight,
             float* out, float* scale);
// Computes the gradients; overwrites d_weight [width].
void RmsNormBackward(int64_t rows, int64_t width, const float* x, const float* weight,
                     const float* scale, const float* d_out, float* d_x, float* d_weight);

// The move of heads between the fused projection and separate tensors. It rotates them by the
// rotary angles (cos and sin, with rows of head_dim / 2): forward by +angle, backward by -angle.
struct HeadMove {
  int64_t windows;
  int64_t tokens;
  int64_t heads;  // number of heads to move
  int64_t head_dim;
  int64_t row_stride;  // floats of one row of the fused projection
  float multiply;      // factor for all values
  // Rows of the angles from one window to the next: 0 (all windows have the same), or `tokens`.
  int64_t angles_stride = 0;
};
// Moves fused (at its first moved head) [windows * tokens, row_stride] to split [windows, heads,
// tokens, head_dim], for the rows [first, last) of windows * tokens. cos == nullptr: no rotation.
void SplitHeads(const HeadMove& move, int64_t first, int64_t last, const float* cos,
                const float* sin, const float* fused, float* split);
void MergeHeads(const HeadMove& move, int64_t first, int64_t last, const float* cos,
                const float* sin, const float* split, float* fused);

}  // namespace gpuctl::trainer::cpu

#endif  // TRAINER_CPU_KERNELS_H_
