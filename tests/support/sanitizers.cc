// The initial options of every sanitized program. They are linked in, because sshd and our own shim
// start processes with a clean environment; *SAN_OPTIONS, where it is set, is read after them.
// Reports go to files, because the guard restarts a server that died of one, and the test would not
// notice; ./test looks for the files. Their names are DIR/kind.<pid>, with DIR from
// GPUCTL_SANITIZER_REPORTS.
#if defined(GPUCTL_ASAN)

// Ten frames of each allocation are enough to know it, and take less time than thirty.
extern "C" const char* __asan_default_options() {
  return "malloc_context_size=10:log_path=" GPUCTL_SANITIZER_REPORTS "/asan";
}

extern "C" const char* __ubsan_default_options() {
  return "print_stacktrace=1:log_path=" GPUCTL_SANITIZER_REPORTS "/ubsan";
}

#elif defined(GPUCTL_TSAN)

// Packaged Abseil and gRPC are not instrumented.
extern "C" const char* __tsan_default_options() {
  return "ignore_noninstrumented_modules=1:halt_on_error=1:second_deadlock_stack=1:log_path"
         "=" GPUCTL_SANITIZER_REPORTS "/tsan";
}

#endif
