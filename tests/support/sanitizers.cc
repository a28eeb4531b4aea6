// Linked into every sanitized program: the options it starts with. In the program, because sshd and
// our own shim start processes with a clean environment; *SAN_OPTIONS, where it arrives, is read
// after it. Reports go to files, because the guard starts a server again that died of one, and the
// test would not know; ./test looks for them. DIR/kind.<pid> in GPUCTL_SANITIZER_REPORTS.
#if defined(__SANITIZE_ADDRESS__)

extern "C" const char* __asan_default_options() {
  return "log_path=" GPUCTL_SANITIZER_REPORTS "/asan";
}

extern "C" const char* __ubsan_default_options() {
  return "print_stacktrace=1:log_path=" GPUCTL_SANITIZER_REPORTS "/ubsan";
}

#elif defined(__SANITIZE_THREAD__)

// Packaged Abseil and gRPC are not instrumented.
extern "C" const char* __tsan_default_options() {
  return "ignore_noninstrumented_modules=1:halt_on_error=1:second_deadlock_stack=1:log_path"
         "=" GPUCTL_SANITIZER_REPORTS "/tsan";
}

#endif
