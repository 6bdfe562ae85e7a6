/* SPDX-License-Identifier: Apache-2.0 */
/* Instruction sets of an x86-64 CPU that the kernel lets this process use.
 *
 * Wide registers in the CPU are not enough.  The kernel must save them on a context switch, which XCR0
 * shows.  A process must also ask for the AMX tiles (8 KiB for each thread) before it first uses them.  This
 * file asks once, so "has" always means "may be executed". */
#include "base/cpu.h"

#include <cpuid.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    XCR0_AVX = 0x6,     /* XMM and YMM */
    XCR0_AVX512 = 0xe6, /* mask registers and ZMM */
    XCR0_AMX = 0x60000, /* tile configuration and data */
    ARCH_ASK_XCOMP = 0x1023,
    XCOMP_TILE_DATA = 18,
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct cpu_features features;

static uint64_t read_xcr0(void)
{
    uint32_t low, high;

    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static bool cpu_x86_bit(uint32_t word, int n)
{
    return word >> n & 1;
}

static bool kernel_grants_amx(uint64_t xcr0)
{
    return (xcr0 & XCR0_AMX) == XCR0_AMX && syscall(SYS_arch_prctl, ARCH_ASK_XCOMP, XCOMP_TILE_DATA) == 0;
}

static void cpu_x86_detect(void)
{
    uint32_t a, b, c, d, b7, c7, d7, a7_1;

    if (!__get_cpuid(1, &a, &b, &c, &d) || !cpu_x86_bit(c, 27)) /* OSXSAVE: XCR0 can be read */
        return;
    uint64_t xcr0 = read_xcr0();
    bool has_fma = cpu_x86_bit(c, 12), has_f16c = cpu_x86_bit(c, 29);
    uint32_t model = a;
    if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d7))
        return;
    if (!__get_cpuid_count(7, 1, &a7_1, &b, &c, &d))
        a7_1 = 0;

    features.model = model;
    features.has_erms = cpu_x86_bit(b7, 9);
    long l1_bytes = sysconf(_SC_LEVEL1_DCACHE_SIZE);
    features.l1_bytes = l1_bytes > 0 ? (size_t)l1_bytes : 0;
    if ((xcr0 & XCR0_AVX) != XCR0_AVX)
        return;
    features.has_avx2 = cpu_x86_bit(b7, 5) && has_fma && has_f16c;
    features.has_avx_vnni = features.has_avx2 && cpu_x86_bit(a7_1, 4);
    if ((xcr0 & XCR0_AVX512) != XCR0_AVX512)
        return;
    features.has_avx512 = features.has_avx2 && cpu_x86_bit(b7, 16) && cpu_x86_bit(b7, 30) &&
                          cpu_x86_bit(b7, 31) && cpu_x86_bit(b7, 17);
    features.has_avx512_vnni = features.has_avx512 && cpu_x86_bit(c7, 11);
    features.has_avx512_vbmi = features.has_avx512 && cpu_x86_bit(c7, 1);
    features.has_avx512_bf16 = features.has_avx512 && cpu_x86_bit(a7_1, 5);
    if (cpu_x86_bit(d7, 24) && kernel_grants_amx(xcr0)) {
        features.has_amx_int8 = cpu_x86_bit(d7, 25);
        features.has_amx_bf16 = cpu_x86_bit(d7, 22);
    }
}

const struct cpu_features *cpu_features_get(void)
{
    pthread_once(&once, cpu_x86_detect);
    return &features;
}

void cpu_relax(void)
{
    __builtin_ia32_pause();
}
