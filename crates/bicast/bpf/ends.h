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
 *     of a host behind this one as well;
 *   - a copy goes between two addresses by an interface by which the stack itself has sent between the two: a HEARTBEAT that was
 *     answered, an answer to one, or, since no stack probes a path that it uses, DATA or a SACK to an address that counts. There is a
 *     route then, and neither a firewall nor IPsec stands in its way;
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

/* The place of `address` among this end's or the peer's; ADDRESSES if it has none. */
GLOBAL __u64 local_place(const struct association *a, const struct address *address)
{
	__u64 place = ADDRESSES;

	if (!a || !address)
		return place;
	for (__u32 i = 0; i < ADDRESSES; i++)
		if (same(&a->locals[i].address, address))
			place = i;
	return place;
}

GLOBAL __u64 remote_place(const struct association *a, const struct address *address)
{
	__u64 place = ADDRESSES;

	if (!a || !address)
		return place;
	for (__u32 i = 0; i < ADDRESSES; i++)
		if (same(&a->remotes[i].address, address))
			place = i;
	return place;
}

/* A place as an index: with its bounds where the verifier sees them. */
INLINE __u64 index(__u64 place)
{
	asm volatile("" : "+r"(place));
	return place % ADDRESSES;
}

/* The stack has sent from the one address to the other by `interface`, at `seen_ns`. */
INLINE void way_seen(struct association *a, __u64 local, __u64 remote, __u32 interface, __u64 seen_ns)
{
	if (local < ADDRESSES && remote < ADDRESSES)
		a->locals[index(local)].ways[index(remote)] = (struct way){ interface, seen_ns };
}

/* The stack sends the packet, at `a->seen_ns`. What it uses it does not probe: so what is sent to an address that counts says so, too. */
INLINE void way_used(const struct __sk_buff *skb, const struct walk *w, struct association *a)
{
	__u32 carries = (w->fields.found & FOUND_DATA) || w->places[SACK].length;
	__u64 remote;

	if (!carries && !w->places[HEARTBEAT_ACK].length)
		return;
	remote = remote_place(a, &w->destination);
	if (remote < ADDRESSES && (w->places[HEARTBEAT_ACK].length || a->remotes[index(remote)].confirmed))
		way_seen(a, local_place(a, &w->source), remote, skb->ifindex, a->seen_ns);
}

/* Another address of the peer's takes that place. */
INLINE void take_place(struct association *a, __u64 place, const struct remote *remote)
{
	place = index(place);
	a->remotes[place] = *remote;
	for (int i = 0; i < ADDRESSES; i++)
		a->locals[i].ways[place] = (struct way){};
}

/* The place of `address` among the peer's: its own, a free one, or that of one that is silent; it is `address`'s from then on. */
INLINE struct remote *remote_slot(struct association *a, const struct address *address)
{
	__u64 place = remote_place(a, address);
	struct remote new = { .address = *address };

	if (place < ADDRESSES)
		return &a->remotes[index(place)];
	for (__u32 i = ADDRESSES; i-- > 0;)
		if (is_none(&a->remotes[i].address))
			place = i;
	for (__u32 i = 0; i < ADDRESSES; i++)
		if (place == ADDRESSES && a->remotes[i].unanswered > UNANSWERED)
			place = i;
	if (place == ADDRESSES)
		return 0;
	take_place(a, place, &new);
	return &a->remotes[index(place)];
}

/* This host's stack has sent a HEARTBEAT. One that is padded asks how long packets may be: that it is not answered is an answer. */
INLINE void probe_sent(struct __sk_buff *skb, const struct walk *w, const struct key *key, struct association *a)
{
	struct key probe = { hash_information(skb, w->places[HEARTBEAT]), key->local_port, key->remote_port };
	struct remote *remote;

	if (!probe.tag || (w->fields.found & FOUND_PADDING))
		return;
	remote = remote_slot(a, &w->destination);
	if (!remote)
		return;
	remote->interface = skb->ifindex;
	remote->nonce = probe.tag;
	remote->probed = w->udp;
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
INLINE void cookie_sent(const struct walk *w, struct association *a)
{
	struct remote *remote = remote_slot(a, &w->destination);

	if (!remote || remote->confirmed)
		return;
	remote->confirmed = 1;
	remote->udp = w->udp;
}

/* The answer to the HEARTBEAT with that nonce has arrived at `w->destination`. */
INLINE void confirm(const struct walk *w, struct association *a, __u32 nonce)
{
	for (__u32 i = 0; i < ADDRESSES; i++) {
		struct remote *one = &a->remotes[i];

		if (one->nonce != nonce || is_none(&one->address))
			continue;
		one->rtt_us = (bpf_ktime_get_coarse_ns() - one->probed_ns) / 1000;
		one->confirmed = 1;
		one->unanswered = 0;
		one->nonce = 0;
		one->mtu = 0; /* the path may have changed; its routers say it again */
		one->udp = one->probed;
		way_seen(a, local_place(a, &w->destination), i, one->interface, one->probed_ns);
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

/* Whether the kernel's own SCTP, which is Linux's, sends it: a library's comes from a raw socket, or from one of UDP. */
INLINE int sent_by_kernel(struct __sk_buff *skb)
{
	struct bpf_sock *socket = skb->sk;

	socket = socket ? bpf_sk_fullsock(socket) : 0;
	return socket && socket->protocol == PROTOCOL_SCTP && socket->type != SOCK_RAW;
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
		a->rate.stack = *stack;
	a->local_tag = local_tag;
	bpf_map_update_elem(&inbound, &other, &key->tag, BPF_ANY);
}

/* A packet of the association has arrived at `address`, which takes a free place, or that of one that has left this host. */
INLINE void arrived_at(const struct settings *now, struct association *a, const struct address *address)
{
	struct local local = { .address = *address };
	__u64 place = local_place(a, address);

	local.forwarded = !bpf_map_lookup_elem(&own, address);
	if (place < ADDRESSES || (local.forwarded && !now->forwarding))
		return;
	for (__u32 i = ADDRESSES; i-- > 0;)
		if (!a->locals[i].forwarded && !bpf_map_lookup_elem(&own, &a->locals[i].address))
			place = i;
	if (place < ADDRESSES)
		a->locals[index(place)] = local;
}

/* A HEARTBEAT has been answered; `key` is that of the answer. */
INLINE void probe_answered(struct __sk_buff *skb, const struct settings *now, const struct walk *w, const struct key *key)
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
	if (!a || !lock(a))
		return;
	arrived_at(now, a, &w->destination);
	confirm(w, a, probe.tag);
	if (a->local_tag != key->tag)
		join(&out, a, key->tag);
	unlock(a);
}

static const struct remote no_remote;

INLINE void forget_address(struct association *a, const struct address *address, int ours)
{
	for (int i = 0; i < ADDRESSES; i++) {
		if (ours && same(&a->locals[i].address, address))
			a->locals[i] = (struct local){};
		if (!ours && same(&a->remotes[i].address, address))
			take_place(a, i, &no_remote);
	}
}

INLINE void forget_others(struct association *a, const struct address *address, int ours)
{
	for (int i = 0; i < ADDRESSES; i++) {
		if (ours && !same(&a->locals[i].address, address))
			a->locals[i] = (struct local){};
		if (!ours && !same(&a->remotes[i].address, address))
			take_place(a, i, &no_remote);
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
