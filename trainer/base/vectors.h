// TRAINER_WIDEST_VECTORS: one source, the widest vectors the machine has. The compiler emits the
// function once for each instruction set and the loader picks.

#ifndef TRAINER_BASE_VECTORS_H_
#define TRAINER_BASE_VECTORS_H_

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define TRAINER_WIDEST_VECTORS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TRAINER_WIDEST_VECTORS
#endif

#endif  // TRAINER_BASE_VECTORS_H_
