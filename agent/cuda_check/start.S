// The start of gpuctl-cuda-check. The compiler's own (Scrt1.o) wants the newest __libc_start_main.
// Takes argc and argv from the stack, as the kernel leaves them, and calls
// __libc_start_main(main, argc, argv, init, fini, rtld_fini, stack_end) without init and fini: the
// program has no static objects.
  .text
  .globl _start
  .type _start, %function
_start:
#if defined(__x86_64__)
  endbr64
  xorl %ebp, %ebp
  movq %rdx, %r9
  popq %rsi
  movq %rsp, %rdx
  andq $-16, %rsp
  pushq %rax
  pushq %rsp
  xorl %r8d, %r8d
  xorl %ecx, %ecx
  leaq main(%rip), %rdi
  call *__libc_start_main@GOTPCREL(%rip)
  hlt
#elif defined(__aarch64__)
  mov x29, #0
  mov x30, #0
  mov x5, x0
  ldr x1, [sp]
  add x2, sp, #8
  mov x6, sp
  adrp x0, main
  add x0, x0, :lo12:main
  mov x3, #0
  mov x4, #0
  bl __libc_start_main
  brk #1
#endif
  .size _start, . - _start
  .section .note.GNU-stack, "", %progbits
