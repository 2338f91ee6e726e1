/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * What a BPF program needs besides the kernel's types: sections, maps, the kernel's helpers by number, and byte order.
 */
#ifndef NAWA_HELPERS_H
#define NAWA_HELPERS_H

#include "vmlinux.h"

#define SEC(name) __attribute__((section(name), used))
#define KFUNC extern __attribute__((section(".ksyms")))
#define INLINE static inline __attribute__((always_inline))

/* Members of a map's definition. */
#define __uint(name, value) int(*name)[value]
#define __type(name, value) typeof(value) *name

#define BPF_MAP_TYPE_SK_STORAGE 24
#define BPF_F_NO_PREALLOC 1
#define BPF_SK_STORAGE_GET_F_CREATE 1

static void *(*const bpf_sk_storage_get)(void *map, void *sk, void *value, __u64 flags) = (void *)107;
static long (*const bpf_sk_storage_delete)(void *map, void *sk) = (void *)108;
static __u64 (*const bpf_jiffies64)(void) = (void *)118;
static long (*const bpf_seq_write)(struct seq_file *m, const void *data, __u32 len) = (void *)127;

/* From network byte order to this machine's, and back. */
INLINE __u16 ntohs(__u16 value)
{
	return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? __builtin_bswap16(value) : value;
}

INLINE __u32 ntohl(__u32 value)
{
	return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? __builtin_bswap32(value) : value;
}

#endif
