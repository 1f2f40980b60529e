// SPDX-License-Identifier: MIT
// syscalls.c: a library that is loaded before the program and makes system calls fail, including those inside libc. A seccomp
// filter traps the calls; the handler returns an error or makes the call itself.
//
//     FAULT_CALL=open|read|write|map|stat|remove   the kind of call that fails (remove: also truncate, rename and chmod)
//     FAULT_AT=N                                   the N-th call fails
//     FAULT_FROM=N                                 the N-th call and all later ones fail
//     FAULT_COUNT=FILE                             the number of calls is written to this file at the end
//     FAULT_SIGNAL=N                               the call succeeds, and the process gets this signal right after it
//
// Reads and writes count only on files, not on terminals and pipes. If the kernel has no such filter, the program ends with exit
// code 77 before main starts.

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define N_MAX 8 // system calls of one kind

static const struct kind {
    const char *name;
    int error;
    long calls[N_MAX]; // terminated by -1
} kinds[] = {
    {"open", EMFILE, {SYS_openat, -1}},
    {"read", EIO, {SYS_read, SYS_pread64, SYS_readv, -1}},
    {"write", ENOSPC, {SYS_write, SYS_pwrite64, SYS_writev, -1}},
    {"map", ENOMEM, {SYS_mmap, -1}},
#ifdef SYS_newfstatat
    {"stat", EACCES, {SYS_fstat, SYS_newfstatat, SYS_statx, -1}},
#else
    {"stat", EACCES, {SYS_fstat, SYS_statx, -1}},
#endif
#ifdef SYS_rename
    {"remove", EACCES, {SYS_unlinkat, SYS_ftruncate, SYS_fchmod, SYS_renameat, SYS_renameat2, SYS_rename, -1}},
#else
    {"remove", EACCES, {SYS_unlinkat, SYS_ftruncate, SYS_fchmod, SYS_renameat, SYS_renameat2, -1}},
#endif
};

static const struct kind *kind;
static atomic_ulong n_calls;
static atomic_bool is_over;
static unsigned long at, from;
static int signal_then; // 0: the call fails

// fault_pass makes a system call. The filter does not trap calls from the code between these two addresses.
extern const char fault_pass_begin[], fault_pass_end[];
long fault_pass(long nr, long a, long b, long c, long d, long e, long f);

#if defined(__aarch64__)
#    define MACHINE AUDIT_ARCH_AARCH64
__asm__(".text\n.global fault_pass, fault_pass_begin, fault_pass_end\n.type fault_pass, %function\n"
        "fault_pass_begin:\nfault_pass:\n"
        "mov x8, x0\nmov x0, x1\nmov x1, x2\nmov x2, x3\nmov x3, x4\nmov x4, x5\nmov x5, x6\nsvc #0\nret\n"
        "fault_pass_end:\nnop\n");
#elif defined(__x86_64__)
#    define MACHINE AUDIT_ARCH_X86_64
__asm__(".text\n.global fault_pass, fault_pass_begin, fault_pass_end\n.type fault_pass, @function\n"
        "fault_pass_begin:\nfault_pass:\n"
        "mov %rdi, %rax\nmov %rsi, %rdi\nmov %rdx, %rsi\nmov %rcx, %rdx\nmov %r8, %r10\nmov %r9, %r8\nmov 8(%rsp), "
        "%r9\nsyscall\nret\n"
        "fault_pass_end:\nnop\n");
#endif

static bool is_file(long fd) {
    struct stat s;
#ifdef SYS_newfstatat
    return fault_pass(SYS_newfstatat, fd, (long) "", (long) &s, AT_EMPTY_PATH, 0, 0) == 0 && S_ISREG(s.st_mode);
#else
    return fault_pass(SYS_fstat, fd, (long) &s, 0, 0, 0, 0) == 0 && S_ISREG(s.st_mode);
#endif
}

static bool must_fail(long nr, long first) {
    const bool is_read_or_write = nr == SYS_read || nr == SYS_write || nr == SYS_readv || nr == SYS_writev;
    if (atomic_load(&is_over) || (is_read_or_write && !is_file(first))) {
        return false;
    }
    const unsigned long n = atomic_fetch_add(&n_calls, 1) + 1;
    return n == at || (from > 0 && n >= from);
}

static long answer(int nr, const long a[6]) {
    const bool chosen = must_fail(nr, a[0]);
    if (chosen && signal_then == 0) {
        return -kind->error;
    }
    const long r = fault_pass(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (chosen) {
        raise(signal_then);
    }
    return r;
}

static void trapped(int sig, siginfo_t *info, void *context) {
    (void) sig;
    ucontext_t *u = context;
    const int nr = info->si_syscall;
#if defined(__aarch64__)
    unsigned long long *r = u->uc_mcontext.regs;
    long a[6];
    for (int i = 0; i < 6; i++) {
        a[i] = (long) r[i];
    }
    r[0] = (unsigned long long) answer(nr, a);
#elif defined(__x86_64__)
    greg_t *r = u->uc_mcontext.gregs;
    const long a[6] = {r[REG_RDI], r[REG_RSI], r[REG_RDX], r[REG_R10], r[REG_R8], r[REG_R9]};
    r[REG_RAX] = answer(nr, a);
#endif
}

// A thread that blocks SIGSYS would be killed by the trap.
#pragma GCC visibility push(default)
int pthread_sigmask(int how, const sigset_t *set, sigset_t *old) {
    int (*next)(int, const sigset_t *, sigset_t *);
    *(void **) &next = dlsym(RTLD_NEXT, "pthread_sigmask");
    sigset_t open_set;
    if (set != NULL && how != SIG_UNBLOCK) {
        open_set = *set;
        sigdelset(&open_set, SIGSYS);
        set = &open_set;
    }
    return next(how, set, old);
}
#pragma GCC visibility pop

static bool filter(void) {
    struct sock_filter code[12 + N_MAX];
    int n = 0, n_kind_calls = 0;
    const uint64_t begin = (uint64_t) (uintptr_t) fault_pass_begin, end = (uint64_t) (uintptr_t) fault_pass_end;
    while (n_kind_calls < N_MAX && kind->calls[n_kind_calls] >= 0) {
        n_kind_calls++;
    }
    if (begin >> 32 != end >> 32) {
        return false; // the filter compares only the lower half of an address
    }
    code[n++] = (struct sock_filter) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < n_kind_calls; i++) {
        const uint8_t to_check = (uint8_t) (n_kind_calls - i);
        code[n++] = (struct sock_filter) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t) kind->calls[i], to_check, 0);
    }
    code[n++] = (struct sock_filter) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    code[n++] = (struct sock_filter) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer) + 4);
    code[n++] = (struct sock_filter) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t) (begin >> 32), 0, 3);
    code[n++] = (struct sock_filter) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer));
    code[n++] = (struct sock_filter) BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (uint32_t) begin, 0, 1);
    code[n++] = (struct sock_filter) BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, (uint32_t) end, 0, 1);
    code[n++] = (struct sock_filter) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
    code[n++] = (struct sock_filter) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const struct sock_fprog program = {.len = (unsigned short) n, .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static unsigned long number(const char *name) {
    const char *text = getenv(name);
    return text != NULL ? strtoul(text, NULL, 10) : 0;
}

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("FAULT_CALL");
    at = number("FAULT_AT");
    from = number("FAULT_FROM");
    signal_then = (int) number("FAULT_SIGNAL");
    for (size_t i = 0; name != NULL && i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(name, kinds[i].name) == 0) {
            kind = &kinds[i];
        }
    }
    struct sigaction action = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO | SA_NODEFER};
    if (kind != NULL && (sigaction(SIGSYS, &action, NULL) != 0 || !filter())) {
        _exit(77);
    }
}

__attribute__((destructor)) static void end(void) {
    atomic_store(&is_over, true);
    const char *path = getenv("FAULT_COUNT");
    const int fd = path != NULL ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666) : -1;
    if (fd >= 0) {
        dprintf(fd, "%lu\n", atomic_load(&n_calls));
        close(fd);
    }
}
