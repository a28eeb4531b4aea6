// TRAINER_WIDEST_VECTORS makes a function use the widest vectors of the machine. The compiler emits
// it once for each instruction set, and the loader chooses.

#ifndef TRAINER_BASE_VECTORS_H_
#define TRAINER_BASE_VECTORS_H_

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define TRAINER_WIDEST_VECTORS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TRAINER_WIDEST_VECTORS
#endif

#endif  // TRAINER_BASE_VECTORS_H_
