/* SPDX-License-Identifier: MIT OR GPL-2.0-only
 *
 * Who the two ends of an association are. Nothing that a packet merely claims is used for a copy: a copy to an address
 * that is not the peer's would be an attack on somebody, and one from an address that the peer does not know has it
 * answer with an ABORT that ends the association (RFC 9260 8.4 (8)). So
 *
 *   - an address of the peer counts once a HEARTBEAT that this host's stack sent there is answered, or if the handshake
 *     went there, as for the stack itself (RFC 9260 5.4); INIT, INIT ACK and ASCONF tell the stack where to send
 *     HEARTBEATs;
 *   - an address of this host counts once a packet with the association's tag has arrived at it; with `forwarding`, that
 *     of a host behind this one as well, on the interface by which it has arrived;
 *   - ASCONF takes addresses away at once (RFC 5061 4.2.2).
 */
#ifndef NAWA_BICAST_ENDS_H
#define NAWA_BICAST_ENDS_H

#include "maps.h"

#define INFORMATION 128 /* bytes of a HEARTBEAT that are hashed; stacks use 40 to 64 */
#define ASCONF_DELETE 0xc002
#define PARAMETERS 16 /* of INIT and INIT ACK that are looked at; what tells whose they are is among the first six */

INLINE int same(const struct address *a, const struct address *b)
{
	/* One branch, not four: the verifier follows each. */
	return !((a->words[0] ^ b->words[0]) | (a->words[1] ^ b->words[1]) | (a->words[2] ^ b->words[2]) |
		 (a->words[3] ^ b->words[3]));
}

INLINE __u32 is_ipv4(const struct address *a)
{
	return !(a->words[0] | a->words[1] | (a->words[2] ^ ntohl(0xffff)));
}

INLINE int is_none(const struct address *a)
{
	return !(a->words[0] | a->words[1] | a->words[2] | a->words[3]);
}

/* FNV-1a over words, of a HEARTBEAT or its answer. What it says is random, so nobody else can tell the hash. */
INLINE __u32 hash_information(struct __sk_buff *skb, struct place chunk)
{
	__u32 words[INFORMATION / 4] = {}, hash = 2166136261u, length = chunk.length - 4;

	if (length > INFORMATION)
		length = INFORMATION;
	if (length < 8 || bpf_skb_load_bytes(skb, chunk.at + 4, words, length))
		return 0;
	for (int i = 0; i < INFORMATION / 4; i++)
		hash = (hash ^ words[i]) * 16777619u;
	return hash;
}

/* The place of `address` among the peer's: its own, a free one, or that of one that is silent. */
INLINE struct remote *remote_slot(struct association *a, const struct address *address)
{
	struct remote *slot = 0;

	for (int i = 0; i < ADDRESSES; i++) {
		struct remote *one = &a->remotes[i];

		if (same(&one->address, address))
			return one;
		if (is_none(&one->address) || (one->unanswered > UNANSWERED && !slot))
			slot = one;
	}
	return slot;
}

/* This host's stack has sent a HEARTBEAT. */
INLINE void probe_sent(struct __sk_buff *skb, const struct walk *w, const struct key *key, struct association *a)
{
	struct key probe = { hash_information(skb, w->places[HEARTBEAT]), key->local_port, key->remote_port };
	struct remote *remote = remote_slot(a, &w->destination);

	if (!remote || !probe.tag)
		return;
	if (!same(&remote->address, &w->destination))
		*remote = (struct remote){ .address = w->destination };
	remote->interface = skb->ifindex;
	remote->nonce = probe.tag;
	remote->probed_ns = bpf_ktime_get_coarse_ns();
	remote->unanswered++;
	bpf_map_update_elem(&probes, &probe, &key->tag, BPF_ANY);
}

/* Whether the packet makes a path known that is not: a HEARTBEAT to an address that has not answered one yet, or an answer; if
 * it is lost, there is nothing to copy to until the next, which is often half a minute. Or whether it is the handshake's cookie or
 * the answer to that: if it is lost, the client sends nothing for seconds (RTO.Initial, RFC 9260 16). */
INLINE int makes_known(const struct walk *w, const struct association *a)
{
	__u32 known = 0;

	for (int i = 0; i < ADDRESSES; i++)
		if (same(&a->remotes[i].address, &w->destination))
			known |= a->remotes[i].confirmed;
	return w->places[COOKIE].length || w->places[HEARTBEAT_ACK].length || (w->places[HEARTBEAT].length && !known);
}

/* The cookie goes to, or came from, the address that the handshake has proved to be the peer's. */
INLINE void cookie_sent(const struct __sk_buff *skb, const struct walk *w, struct association *a)
{
	struct remote *remote = remote_slot(a, &w->destination);

	if (remote && !same(&remote->address, &w->destination))
		*remote = (struct remote){ .address = w->destination, .confirmed = 1, .interface = skb->ifindex };
}

INLINE void confirm(struct association *a, __u32 nonce)
{
	for (int i = 0; i < ADDRESSES; i++) {
		struct remote *one = &a->remotes[i];

		if (one->nonce != nonce || is_none(&one->address))
			continue;
		one->rtt_us = (bpf_ktime_get_coarse_ns() - one->probed_ns) / 1000;
		one->confirmed = 1;
		one->unanswered = 0;
		one->nonce = 0;
	}
}

/* The stack that sends an INIT or INIT ACK, as far as it can be told. */
INLINE __u32 stack_of(struct __sk_buff *skb, const struct place *init)
{
	__u32 at = init->at + 20, end = init->at + init->length, stack = STACK_UNKNOWN;
	struct { __u16 type, length; } parameter;

	for (int i = 0; i < PARAMETERS && stack == STACK_UNKNOWN; i++) {
		if (at + 4 > end || bpf_skb_load_bytes(skb, at, &parameter, sizeof(parameter)) || ntohs(parameter.length) < 4)
			break;
		stack = bicast_stack(ntohs(parameter.type));
		at += (ntohs(parameter.length) + 3) & ~3u;
	}
	return stack;
}

/* An end of this side sends INIT or INIT ACK, which names the tag of what it will receive. */
INLINE void introduce(struct __sk_buff *skb, const struct place *init, const struct key *key)
{
	struct key in = *key;
	__u32 stack = stack_of(skb, init);

	if (!bpf_skb_load_bytes(skb, init->at + 4, &in.tag, sizeof(in.tag)))
		bpf_map_update_elem(&stacks, &in, &stack, BPF_ANY);
}

/* The two tags of an association are known to belong together. */
INLINE void join(const struct key *key, struct association *a, __u32 local_tag)
{
	struct key other = { local_tag, key->local_port, key->remote_port };
	__u32 *stack = bpf_map_lookup_elem(&stacks, &other);

	if (stack)
		a->spare.stack = *stack;
	a->local_tag = local_tag;
	bpf_map_update_elem(&inbound, &other, &key->tag, BPF_ANY);
}

/* A HEARTBEAT has been answered; `key` is that of the answer. */
INLINE void probe_answered(struct __sk_buff *skb, const struct walk *w, const struct key *key)
{
	struct key probe = { hash_information(skb, w->places[HEARTBEAT_ACK]), key->local_port, key->remote_port };
	struct key out = probe;
	struct association *a;
	__u32 *tag;

	tag = probe.tag ? bpf_map_lookup_elem(&probes, &probe) : 0;
	if (!tag)
		return;
	out.tag = *tag;
	bpf_map_delete_elem(&probes, &probe);
	a = bpf_map_lookup_elem(&associations, &out);
	if (!a)
		return;
	confirm(a, probe.tag);
	if (a->local_tag != key->tag)
		join(&out, a, key->tag);
}

/* A packet of the association has arrived at `address`. */
INLINE void arrived_at(const struct __sk_buff *skb, const struct settings *now, struct association *a,
		       const struct address *address)
{
	struct local local = { .address = *address };
	__u32 *interface, by = skb->ifindex;

	/* Else clang would choose between two pointers, one into the context, which the verifier does not follow. */
	asm volatile("" : "+r"(by));
	for (int i = 0; i < ADDRESSES; i++) {
		if (!same(&a->locals[i].address, address))
			continue;
		/* Routes may change. */
		if (a->locals[i].forwarded)
			a->locals[i].interface = by;
		return;
	}
	interface = bpf_map_lookup_elem(&own, address);
	if (!interface && !now->forwarding)
		return;
	local.forwarded = !interface;
	local.interface = interface ? *interface : by;
	a->locals[a->next_local++ % ADDRESSES] = local;
}

INLINE void forget_address(struct association *a, const struct address *address, int ours)
{
	for (int i = 0; i < ADDRESSES; i++) {
		if (ours && same(&a->locals[i].address, address))
			a->locals[i] = (struct local){};
		if (!ours && same(&a->remotes[i].address, address))
			a->remotes[i] = (struct remote){};
	}
}

INLINE void forget_others(struct association *a, const struct address *address, int ours)
{
	for (int i = 0; i < ADDRESSES; i++) {
		if (ours && !same(&a->locals[i].address, address))
			a->locals[i] = (struct local){};
		if (!ours && !same(&a->remotes[i].address, address))
			a->remotes[i] = (struct remote){};
	}
}

struct changes {
	struct __sk_buff *skb;
	const struct walk *w;
	struct association *a;
	__u32 at;
	__u32 end;
	int ours;
};

/* One parameter of an ASCONF; 1 ends the loop. */
INLINE int change(struct changes *c)
{
	struct { __u16 type, length; __u32 correlation; __u16 inner, inner_length; } p;
	struct address address = {};
	__u32 length;

	if (c->at + 4 > c->end || bpf_skb_load_bytes(c->skb, c->at, &p, 4))
		return 1;
	length = ntohs(p.length);
	if (length < 4 || length > c->end - c->at)
		return 1;
	if (ntohs(p.type) == ASCONF_DELETE && length >= 16 && !bpf_skb_load_bytes(c->skb, c->at, &p, sizeof(p))) {
		if (ntohs(p.inner) == PARAMETER_IPV4 && !bpf_skb_load_bytes(c->skb, c->at + 12, &address.words[3], 4)) {
			if (address.words[3])
				address.words[2] = ntohl(0xffff);
		} else if (ntohs(p.inner) != PARAMETER_IPV6 || length < 28 || bpf_skb_load_bytes(c->skb, c->at + 12, &address, 16)) {
			return 1;
		}
		/* The address of zeros stands for all but the packet's own (RFC 5061 4.2.2). */
		if (is_none(&address))
			forget_others(c->a, &c->w->source, c->ours);
		else
			forget_address(c->a, &address, c->ours);
	}
	c->at += (length + 3) & ~3u;
	return 0;
}

/* Takes away what an ASCONF deletes: of this host's addresses (`ours`), or of the peer's. */
INLINE void changed(struct __sk_buff *skb, const struct walk *w, struct association *a, int ours)
{
	const struct place *place = &w->places[ASCONF];
	struct changes c = { skb, w, a, place->at + 8, place->at + place->length, ours };

	for (int i = 0; i < 2 * ADDRESSES + 8; i++)
		if (change(&c))
			break;
}

INLINE void forget(const struct key *key, const struct association *a)
{
	struct key other = { a->local_tag, key->local_port, key->remote_port };

	bpf_map_delete_elem(&inbound, &other);
	bpf_map_delete_elem(&associations, key);
}

#endif
