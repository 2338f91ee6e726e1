/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * The maps, and what is counted.
 */
#ifndef NAWA_BICAST_MAPS_H
#define NAWA_BICAST_MAPS_H

#include "walk.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

/* This host's addresses on the interfaces in use, and which interface has each. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct address);
	__type(value, __u32);
} own SEC(".maps");

/* The interfaces that the programs are on, and what share of the bytes copies which leave by each may be at most, in percent, in
 * adaptive mode. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u32);
} hooked SEC(".maps");

/* When this host's firewall, NAT or IPsec policies changed last, in ns of CLOCK_MONOTONIC: which ways they leave to copies is to be
 * seen anew. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} rules_changed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, ASSOCIATIONS);
	__type(key, struct key);
	__type(value, struct association);
} associations SEC(".maps");

/* From the key of what this host receives to the tag of what it sends. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, ASSOCIATIONS);
	__type(key, struct key);
	__type(value, __u32);
} inbound SEC(".maps");

/* From the key of what this host sends to the tag of what it receives, while an association is being set up. A flood of
 * INITs ends here and pushes out no association. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct key);
	__type(value, __u32);
} handshakes SEC(".maps");

/* From the key of what this host receives to the stack (enum bicast_stack) that its INIT or INIT ACK shows. What a flood
 * pushes out counts as not known. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct key);
	__type(value, __u32);
} stacks SEC(".maps");

/* From a HEARTBEAT's hash, in the place of the tag, to the tag of what this host sends. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, ASSOCIATIONS);
	__type(key, struct key);
	__type(value, __u32);
} probes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

/* A copy on its way to the other interface's hook, which runs inside the original's. */
struct making {
	__u32 interface; /* 0: none */
	struct address from, to;
	struct udp_ports udp;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct making);
} makings SEC(".maps");

enum scratch {
	SCRATCH_EGRESS = 0,
	SCRATCH_INGRESS = 1,
	SCRATCHES = 2,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCHES);
	__type(key, __u32);
	__type(value, struct walk);
} scratch SEC(".maps");

INLINE struct walk *new_walk(__u32 user)
{
	struct walk *w = bpf_map_lookup_elem(&scratch, &user);

	if (w)
		__builtin_memset(w, 0, sizeof(*w));
	return w;
}

INLINE void count(__u32 counter, __u64 amount)
{
	__u64 *value = bpf_map_lookup_elem(&counters, &counter);

	if (value)
		*value += amount;
}

INLINE void add(__u64 *counter, __u64 amount)
{
	__sync_fetch_and_add(counter, amount);
}

/* Functions that the verifier looks at once, not at every call with all that is known there. None takes a packet: what that is, a
 * kernel without BTF, as user-mode Linux is, does not tell there. */
#define GLOBAL __attribute__((noinline))

/* Takes the association for this processor, if no other has it for long. Nothing is sent meanwhile. */
GLOBAL int lock(struct association *a)
{
	if (!a)
		return 0;
	for (int i = 0; i < 256; i++)
		if (!__sync_val_compare_and_swap(&a->locked, 0, 1))
			return 1;
	add(&a->skipped[SKIPPED_BUSY], 1);
	return 0;
}

INLINE void unlock(struct association *a)
{
	__sync_fetch_and_and(&a->locked, 0);
}

static const struct association no_association;

/* The association of that key, made if it is not there. */
INLINE struct association *associate(const struct key *key)
{
	struct association *found = bpf_map_lookup_elem(&associations, key);

	if (found)
		return found;
	bpf_map_update_elem(&associations, key, &no_association, BPF_NOEXIST);
	return bpf_map_lookup_elem(&associations, key);
}

#endif
