# gpuctl_harden(target): stack canaries, checked calls of libc, marked branch targets (x86-64), and
# relocations that are read-only once the program runs. hardening_test looks at the programs. A
# sanitized build has better checks of its own. The trainer has this file, too, where it builds
# alone.
function(gpuctl_harden target scope)
  if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux" OR GPUCTL_SANITIZE)
    return()
  endif()
  target_compile_options(${target} ${scope} -fstack-protector-strong)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    target_compile_options(${target} ${scope} -fcf-protection)
  endif()
  # The checks take the optimizer, which sources of tests go without.
  set(optimized $<NOT:$<OR:$<CONFIG:Debug>,$<BOOL:$<TARGET_PROPERTY:GPUCTL_FAST>>>>)
  target_compile_options(${target} ${scope}
    $<${optimized}:-U_FORTIFY_SOURCE> $<${optimized}:-D_FORTIFY_SOURCE=2>)
  target_link_options(${target} ${scope} LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack)
endfunction()
